//! Draws the live document on a terminal.
//!
//! Invariants: the drawing fits terminals from 40 columns and 10 rows; shades are characters, so it is
//! complete without colours.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline};
use stats::Spread;
use units::{Nanos, human_count};

use crate::disks::Traffic;
use crate::live::{Live, LiveTrial};

/// Number of complete intervals behind percentiles.
const RECENT: usize = 10;
/// Buckets per row of the heat map: one octave.
const OF_ROW: usize = 4;
/// Character by the share of an interval's operations.
const SHADES: [(f64, char); 4] =
    [(0.5, '\u{2588}'), (0.1, '\u{2593}'), (0.01, '\u{2592}'), (0.0, '\u{2591}')];
/// Width of the heat map's row labels.
const NAMES: u16 = 9;

/// The terminal view and its options.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    colours: bool,
}

impl Screen {
    /// With colours unless NO_COLOR is set.
    #[must_use]
    pub const fn new(colours: bool) -> Self {
        Self { colours }
    }

    fn accent(self) -> Style {
        if self.colours { Style::new().fg(Color::Cyan) } else { Style::new() }
    }

    fn muted(self) -> Style {
        if self.colours { Style::new().fg(Color::DarkGray) } else { Style::new() }
    }

    /// Draws `live`, disk activity and key help.
    pub fn draw(self, frame: &mut Frame<'_>, live: &Live, disks: &[Traffic], leave: &str) {
        let area = frame.area();
        let disk_rows = if area.height >= 20 { 2 } else { 0 };
        let said_rows = (area.height / 5).min(6);
        let [head, middle, traffic, said, foot] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Min(4),
            Constraint::Length(disk_rows),
            Constraint::Length(said_rows),
            Constraint::Length(1),
        ])
        .areas(area);
        self.head(frame, head, live);
        match live.running.as_slice() {
            [] => {
                let doing = if live.doing.is_empty() { "between two trials" } else { &live.doing };
                frame.render_widget(Paragraph::new(doing), middle);
            }
            trials => {
                let shown = &trials[..trials.len().min(2)];
                let parts = Layout::horizontal(shown.iter().map(|_| Constraint::Fill(1)))
                    .spacing(2)
                    .split(middle);
                for (trial, part) in shown.iter().zip(parts.iter()) {
                    self.trial(frame, *part, trial, &live.doing);
                }
            }
        }
        let lines: Vec<Line<'_>> = disks.iter().map(|one| Line::raw(traffic_words(one))).collect();
        frame.render_widget(Paragraph::new(lines).style(self.muted()), traffic);
        let skipped = live.said.len().saturating_sub(usize::from(said_rows));
        let lines: Vec<Line<'_>> =
            live.said.iter().skip(skipped).map(|one| Line::raw(one.as_str())).collect();
        frame.render_widget(Paragraph::new(lines), said);
        frame.render_widget(Paragraph::new(leave).style(self.muted()), foot);
    }

    fn head(self, frame: &mut Frame<'_>, area: Rect, live: &Live) {
        let share = live.done as f64 / live.trials.max(1) as f64;
        let place = format!(
            "  {} of {} trials, {} left",
            live.done,
            live.trials,
            time_words(live.seconds_left)
        );
        let name = Span::styled(live.study.as_str(), Style::new().add_modifier(Modifier::BOLD));
        let first = Line::from(vec![name, Span::raw(place)]);
        let width = usize::from(area.width);
        let filled = ((width as f64 * share) as usize).min(width);
        let bar = format!("{}{}", "\u{2501}".repeat(filled), "\u{2500}".repeat(width - filled));
        let lines = vec![first, Line::styled(bar, self.accent())];
        frame.render_widget(Paragraph::new(lines), area);
    }

    fn trial(self, frame: &mut Frame<'_>, area: Rect, trial: &LiveTrial, doing: &str) {
        let rate_rows = (area.height.saturating_sub(4) / 3).clamp(1, 6);
        let [title, words, rate, heat] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Length(2),
            Constraint::Length(rate_rows),
            Constraint::Min(1),
        ])
        .areas(area);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let lines = vec![Line::styled(trial.name.as_str(), bold), Line::raw(trial.point.as_str())];
        frame.render_widget(Paragraph::new(lines), title);
        let lines: Vec<Line<'_>> = words_of(trial, doing).into_iter().map(Line::raw).collect();
        frame.render_widget(Paragraph::new(lines), words);
        let [name, plot] =
            Layout::horizontal([Constraint::Length(NAMES), Constraint::Min(1)]).areas(rate);
        let columns = usize::from(plot.width);
        let rates: Vec<u64> = last(trial, columns).map(|one| one.rate() as u64).collect();
        let most = rates.iter().copied().max().unwrap_or(0);
        frame.render_widget(Paragraph::new(format!("{:>7}", human_count(most as f64))), name);
        frame.render_widget(Sparkline::default().data(&rates).style(self.accent()), plot);
        self.heat(frame, heat, trial);
    }

    /// Rows are octaves of latency, labelled with their upper bound, the highest on top; columns are
    /// intervals.
    fn heat(self, frame: &mut Frame<'_>, area: Rect, trial: &LiveTrial) {
        let columns = usize::from(area.width.saturating_sub(NAMES));
        let spreads: Vec<Spread> = last(trial, columns).map(|one| one.spread()).collect();
        let octaves = |one: &Spread| {
            let mut all = one.counts().map(|(bucket, _)| bucket.div_ceil(OF_ROW));
            let first = all.next()?;
            Some((first, all.last().unwrap_or(first)))
        };
        let ends: Vec<(usize, usize)> = spreads.iter().filter_map(octaves).collect();
        let low = ends.iter().map(|(low, _)| *low).min();
        let high = ends.iter().map(|(_, high)| *high).max();
        let (Some(low), Some(high)) = (low, high) else { return };
        // Rows beyond the available space are merged into the last one.
        let rows = usize::from(area.height).min(high - low + 1);
        let mut lines = Vec::with_capacity(rows);
        for row in 0..rows {
            let octave = high - row;
            let last_row = row + 1 == rows;
            let cell = |spread: &Spread| {
                let all: u64 = spread.counts().map(|(_, count)| u64::from(count)).sum();
                let own = spread.counts().filter(|(bucket, _)| {
                    let of = bucket.div_ceil(OF_ROW);
                    of == octave || (last_row && of < octave)
                });
                let own: u64 = own.map(|(_, count)| u64::from(count)).sum();
                let share = own as f64 / all.max(1) as f64;
                let shade = SHADES.iter().find(|(least, _)| own > 0 && share >= *least);
                shade.map_or(' ', |(_, shade)| *shade)
            };
            let name = format!("{:>7}  ", Spread::upper(octave * OF_ROW).to_string());
            let cells: String = spreads.iter().map(cell).collect();
            lines.push(Line::from(vec![
                Span::styled(name, self.muted()),
                Span::styled(cells, self.accent()),
            ]));
        }
        frame.render_widget(Paragraph::new(lines), area);
    }
}

/// The last complete intervals.
fn last(trial: &LiveTrial, count: usize) -> impl Iterator<Item = &crate::live::LiveInterval> {
    let whole = trial.whole();
    let skipped = whole.len().saturating_sub(count);
    whole.skip(skipped)
}

/// The state of a trial, in two lines.
fn words_of(trial: &LiveTrial, doing: &str) -> Vec<String> {
    let Some(now) = trial.whole().last() else {
        let doing = if doing.is_empty() { "begins" } else { doing };
        return vec![doing.to_owned()];
    };
    let mean = Nanos(now.latency_sum_ns / now.ops.max(1));
    let phase = if now.measured { "measured" } else { "warm-up" };
    let spread = trial.recent(RECENT);
    let of = |percent: f64| {
        spread.percentile(percent).map_or_else(|| "-".into(), |time| time.to_string())
    };
    vec![
        format!(
            "{}/s, mean {mean}, {phase}, {:.1} s",
            human_count(now.rate()),
            trial.at().as_secs_f64()
        ),
        format!("p50 {}  p90 {}  p99 {}  (to a fifth)", of(50.0), of(90.0), of(99.0)),
    ]
}

/// A run in one line, for output without a screen.
#[must_use]
pub fn line_of(live: &Live) -> String {
    let now = match live.running.first() {
        None => live.doing.clone(),
        Some(trial) => format!("{}: {}", trial.name, words_of(trial, &live.doing).join(", ")),
    };
    format!(
        "{} of {} trials, {} left; {now}",
        live.done,
        live.trials,
        time_words(live.seconds_left)
    )
}

fn time_words(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match seconds {
        3600.. => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
        60.. => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{seconds} s"),
    }
}

fn traffic_words(one: &Traffic) -> String {
    format!(
        "{:<8} {:>6} reads/s {:>7.1} MB/s   {:>6} writes/s {:>7.1} MB/s   {:>3.0} % busy",
        one.name,
        human_count(one.reads),
        one.read_bytes / 1e6,
        human_count(one.writes),
        one.written_bytes / 1e6,
        one.busy * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::LiveInterval;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn going_on(trials: u32) -> Live {
        let mut live = Live {
            study: "quickstart".into(),
            trials: 12,
            done: 3,
            seconds_left: 95.0,
            ..Live::default()
        };
        for number in 1..=trials {
            let mut trial = LiveTrial {
                number,
                name: format!("depth this-disk block {number}"),
                point: "queue_depth=4".into(),
                ..LiveTrial::default()
            };
            for interval in 1..=100u64 {
                trial.intervals.push_back(LiveInterval {
                    end_ns: interval * 100_000_000,
                    seconds: 0.1,
                    measured: interval > 10,
                    ops: 1000 + interval,
                    latency_sum_ns: 100_000 * 1000,
                    times: vec![(26, 990), (50, 10 + interval as u32)],
                });
            }
            live.running.push(trial);
        }
        live.say("latency this-disk block: 99 us".into());
        live
    }

    fn drawn(live: &Live, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let disk = Traffic {
            name: "vda".into(),
            reads: 1e4,
            writes: 0.0,
            read_bytes: 4e7,
            written_bytes: 0.0,
            busy: 0.5,
        };
        let draw = |frame: &mut Frame<'_>| {
            Screen::new(false).draw(frame, live, std::slice::from_ref(&disk), "q leaves");
        };
        terminal.draw(draw).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(row).collect()
    }

    /// An 80 by 24 terminal must show everything at once.
    #[test]
    fn a_screen_of_80_by_24_has_all() {
        let rows = drawn(&going_on(1), 80, 24);
        let all = rows.join("\n");
        for words in [
            "quickstart  3 of 12 trials, 1 min 35 s left",
            "depth this-disk block 1",
            "queue_depth=4",
            "11.0k/s, mean 91.0",
            "p50 90.5",
            "vda",
            "50 % busy",
            "latency this-disk block: 99 us",
            "q leaves",
        ] {
            assert!(all.contains(words), "{words}\n{all}");
        }
        assert!(
            all.contains('\u{2588}') && all.contains('\u{2592}'),
            "both times of the heat map\n{all}"
        );
    }

    /// Shrinking the window must not end the view.
    #[test]
    fn small_windows_and_races_are_drawn() {
        for (width, height) in [(1, 1), (20, 5), (40, 10), (200, 60)] {
            for trials in [0, 1, 2, 3] {
                drawn(&going_on(trials), width, height);
            }
        }
        let race = drawn(&going_on(2), 100, 24).join("\n");
        assert!(race.contains("block 1") && race.contains("block 2"), "{race}");
    }

    #[test]
    fn without_a_screen_it_is_a_line() {
        let line = line_of(&going_on(1));
        assert!(
            line.starts_with("3 of 12 trials, 1 min 35 s left; depth this-disk block 1: 11.0k/s"),
            "{line}"
        );
    }
}
