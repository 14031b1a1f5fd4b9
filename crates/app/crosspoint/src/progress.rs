//! Progress: a bar with time left on a terminal, plain lines otherwise.
//!
//! Invariant: writes to stderr only. What it is not: part of the measurement; it runs on the thread
//! that waits.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use runner::{Event, Watcher};
use study::Trial;
use units::{Nanos, human_count};

use crate::cli::ProgressKind;
use crate::words::plain;

/// Shortest time between two plain lines.
const LINE_SPACING: Duration = Duration::from_secs(1);

/// The same of things that are counted.
const COUNT_SPACING: Duration = Duration::from_secs(5);

/// Makes a watcher of the asked kind.
pub fn watcher(kind: ProgressKind) -> Box<dyn Watcher> {
    let bar = match kind {
        ProgressKind::Auto => std::io::stderr().is_terminal(),
        ProgressKind::Bar => true,
        ProgressKind::Plain => false,
        ProgressKind::None => return Box::new(Silent),
    };
    if bar { Box::new(Bar::new()) } else { Box::new(Plain::default()) }
}

/// Progress through a number of things that take about the same time each.
pub struct Counted {
    bar: ProgressBar,
    what: &'static str,
    began: Instant,
    last: Instant,
}

impl Counted {
    /// Of things of that name.
    pub fn new(what: &'static str) -> Self {
        let form = format!("{{bar:30}} {{pos}} of {{len}} {what}, {{eta}} left");
        let style =
            ProgressStyle::with_template(&form).unwrap_or_else(|_| ProgressStyle::default_bar());
        let now = Instant::now();
        Self { bar: ProgressBar::new(1).with_style(style), what, began: now, last: now }
    }

    /// So many are done.
    pub fn tell(&mut self, done: usize, of: usize) {
        self.bar.set_length(of as u64);
        self.bar.set_position(done as u64);
        if self.bar.is_hidden() && done > 0 && self.last.elapsed() >= COUNT_SPACING {
            self.last = Instant::now();
            let left = self.began.elapsed().as_secs_f64() / done as f64 * (of - done) as f64;
            say!("{done} of {of} {}, about {left:.0} s left", self.what);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

struct Silent;

impl Watcher for Silent {
    fn event(&mut self, _: &Event<'_>) {}
}

/// Adds up the intervals of each trial's clients; those of a race run at once.
#[derive(Default)]
struct Sums(BTreeMap<u32, Sum>);

impl Sums {
    fn add(&mut self, trial: &Trial, summary: &stats::Summary) -> Option<String> {
        self.0.entry(trial.number).or_default().add(summary)
    }
}

/// Adds up the intervals of a trial's clients.
#[derive(Default)]
struct Sum {
    end: Nanos,
    ops: u64,
    seconds: f64,
    latency: Nanos,
}

impl Sum {
    /// Takes one client's interval; gives the sum of the interval before when a new one begins.
    fn add(&mut self, summary: &stats::Summary) -> Option<String> {
        let text = (self.end != summary.end && self.ops > 0).then(|| self.text());
        if self.end != summary.end {
            *self = Self { end: summary.end, ..Self::default() };
        }
        self.ops += summary.ops;
        self.seconds = summary.seconds;
        self.latency += summary.latency_sum;
        text
    }

    fn text(&self) -> String {
        let rate = human_count(self.ops as f64 / self.seconds.max(1e-9));
        let mean = Nanos(self.latency.get() / self.ops.max(1));
        format!("t={:.1}s {rate}/s mean {mean}", self.end.as_secs_f64())
    }
}

fn name(trial: &Trial) -> String {
    format!("{} {} {}", trial.experiment, trial.stack, trial.job.engine())
}

fn left(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    if seconds >= 60 {
        format!("{}m{:02}s left", seconds / 60, seconds % 60)
    } else {
        format!("{seconds}s left")
    }
}

/// Plain lines.
#[derive(Default)]
struct Plain {
    total: usize,
    seconds_left: f64,
    sums: Sums,
    last_line: Option<Instant>,
    prepared: u64,
}

impl Plain {
    fn due(&mut self) -> bool {
        let due = self.last_line.is_none_or(|last| last.elapsed() >= LINE_SPACING);
        if due {
            self.last_line = Some(Instant::now());
        }
        due
    }
}

impl Watcher for Plain {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Started { plan, done, seconds } => {
                self.total = plan.trials.len();
                self.seconds_left = *seconds;
                let already =
                    if *done > 0 { format!(", {done} there already") } else { String::new() };
                let trials = if self.total == 1 { "trial" } else { "trials" };
                say!("{} {trials}{already}, about {}", self.total, left(*seconds));
            }
            Event::Preparing { stack, done, of } => {
                let percent = done.get() * 100 / of.get().max(1);
                if percent >= self.prepared + 25 || *done == *of {
                    self.prepared = percent;
                    say!("preparing {stack}: {done} of {of}");
                }
            }
            Event::TrialStarted { .. } => {
                self.last_line = Some(Instant::now());
            }
            Event::Loading { done, of } => {
                if self.due() {
                    say!("  loading: {done} of {of} records");
                }
            }
            Event::Interval { trial, progress } => {
                if let Some(text) = self.sums.add(trial, &progress.summary)
                    && self.due()
                {
                    let shown = left(self.seconds_left - progress.summary.end.as_secs_f64());
                    say!("[{}/{}] {} {text} {shown}", trial.number, self.total, name(trial));
                }
            }
            Event::TrialEnded { trial, headline, seconds_left, .. } => {
                self.seconds_left = *seconds_left;
                say!(
                    "[{}/{}] {} {}: {headline}",
                    trial.number,
                    self.total,
                    name(trial),
                    trial.point_text()
                );
            }
            Event::Note(note) => say!("  note: {}", plain(note)),
        }
    }
}

/// A bar over the estimated time.
struct Bar {
    bar: ProgressBar,
    total: usize,
    /// Estimated time left after the current trial, and when that trial began.
    after: f64,
    began: Instant,
    sums: Sums,
}

impl Bar {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr_with_hz(8));
        let style = ProgressStyle::with_template("{bar:28} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        Self { bar, total: 0, after: 0.0, began: Instant::now(), sums: Sums::default() }
    }

    fn show(&self, text: &str) {
        let seconds = (self.after - self.began.elapsed().as_secs_f64()).max(0.0);
        let length = self.bar.length().unwrap_or(1);
        self.bar.set_position(length.saturating_sub((seconds * 10.0) as u64));
        self.bar.set_message(format!("{}  {text}", left(seconds)));
    }
}

impl Watcher for Bar {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Started { plan, seconds, .. } => {
                self.total = plan.trials.len();
                self.after = *seconds;
                self.began = Instant::now();
                self.bar.set_length((seconds * 10.0) as u64);
                self.show("starting");
            }
            Event::Preparing { stack, done, of } => {
                self.show(&format!("preparing {stack}: {done} of {of}"));
            }
            Event::TrialStarted { trial } => {
                self.show(&format!("{}/{} {}", trial.number, self.total, name(trial)));
            }
            Event::Loading { done, of } => self.show(&format!("loading {done} of {of} records")),
            Event::Interval { trial, progress } => {
                if let Some(text) = self.sums.add(trial, &progress.summary) {
                    self.show(&format!("{}/{} {} {text}", trial.number, self.total, name(trial)));
                }
            }
            Event::TrialEnded { trial, headline, seconds_left, .. } => {
                self.after = *seconds_left;
                self.began = Instant::now();
                self.bar.println(format!(
                    "{:>3}/{} {} {}: {headline}",
                    trial.number,
                    self.total,
                    name(trial),
                    trial.point_text()
                ));
                self.show("");
            }
            Event::Note(note) => self.bar.println(format!("  note: {}", plain(note))),
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
