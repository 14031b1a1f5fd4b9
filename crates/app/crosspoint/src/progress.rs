//! Progress: a bar with time left on a terminal, plain lines otherwise.
//!
//! Invariant: writes to stderr only.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use runner::{Event, Watcher};
use study::{Plan, Trial};
use units::{Nanos, human_count};

use crate::words::plain;

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProgressKind {
    /// A bar on a terminal, lines otherwise
    Auto,
    /// A bar
    Bar,
    /// One line per interval, at most one per second
    Plain,
    /// Nothing
    None,
}

/// Shortest time between two plain lines.
const LINE_SPACING: Duration = Duration::from_secs(1);

/// Interval of plain lines for counters.
const COUNT_SPACING: Duration = Duration::from_secs(5);

/// Returns a watcher of the requested kind.
pub fn watcher(kind: ProgressKind) -> Box<dyn Watcher> {
    let bar = match kind {
        ProgressKind::Auto => std::io::stderr().is_terminal(),
        ProgressKind::Bar => true,
        ProgressKind::Plain => false,
        ProgressKind::None => return Box::new(Silent),
    };
    Box::new(Shown::new(bar))
}

/// Progress through things that take about the same time each.
pub struct Counted {
    bar: ProgressBar,
    what: &'static str,
    began: Instant,
    last: Instant,
}

impl Counted {
    /// Counts items called `what`.
    pub fn new(what: &'static str) -> Self {
        let form = format!("{{bar:30}} {{pos}} of {{len}} {what}, {{eta}} left");
        let style =
            ProgressStyle::with_template(&form).unwrap_or_else(|_| ProgressStyle::default_bar());
        let now = Instant::now();
        Self { bar: ProgressBar::new(1).with_style(style), what, began: now, last: now }
    }

    /// Reports that `done` of `of` are done.
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

/// Sums the intervals of each trial's clients; racers run at the same time.
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
    /// Adds one client's interval; returns the previous sum when a new interval begins.
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

/// Number of reasons printed at the start of a run; `plan` prints all.
const REASONS_TOLD: usize = 5;

/// Returns what the run skips and why, one line per reason.
fn left_out(plan: &Plan) -> Vec<String> {
    let mut reasons: Vec<(&str, BTreeSet<&str>, BTreeSet<&str>)> = Vec::new();
    for skip in &plan.skipped {
        let engine = skip.engine.as_deref().unwrap_or(&skip.experiment);
        let why = skip.reason.as_str();
        let place = reasons.iter().position(|(other, ..)| *other == why).unwrap_or_else(|| {
            reasons.push((why, BTreeSet::new(), BTreeSet::new()));
            reasons.len() - 1
        });
        reasons[place].1.insert(engine);
        reasons[place].2.insert(&skip.stack);
    }
    let words = |names: &BTreeSet<&str>| names.iter().copied().collect::<Vec<_>>().join(", ");
    let mut lines: Vec<String> = reasons
        .iter()
        .take(REASONS_TOLD)
        .map(|(why, engines, stacks)| {
            format!("left out: {} on {}: {}", words(engines), words(stacks), plain(why))
        })
        .collect();
    if reasons.len() > REASONS_TOLD {
        lines.push(format!("and {} more reasons: crosspoint plan", reasons.len() - REASONS_TOLD));
    }
    lines
}

/// Positions of trials in a run.
#[derive(Default)]
struct Order(Vec<u32>);

impl Order {
    fn of(plan: &Plan) -> Self {
        Self(plan.trials.iter().map(|trial| trial.number).collect())
    }

    /// Position in the run: `12/52`.
    fn place(&self, trial: &Trial) -> String {
        let place = self.0.iter().position(|number| *number == trial.number);
        format!("{}/{}", place.map_or(0, |place| place + 1), self.0.len())
    }
}

/// Shows a run: a bar over the estimated time, or lines.
struct Shown {
    /// `None`: prints plain lines.
    bar: Option<ProgressBar>,
    order: Order,
    /// Estimated time left at the start of the current trial, and the time of that start.
    after: f64,
    began: Instant,
    sums: Sums,
    /// Time of the last line about the running trial, or of that trial's start.
    last: Instant,
    /// Completed quarters of the preparation.
    quarters: u32,
}

impl Shown {
    fn new(bar: bool) -> Self {
        let bar = bar.then(|| {
            let target = ProgressDrawTarget::stderr_with_hz(8);
            let style = ProgressStyle::with_template("{bar:16} {wide_msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::with_draw_target(Some(1), target).with_style(style)
        });
        let now = Instant::now();
        let (order, sums) = (Order::default(), Sums::default());
        Self { bar, order, after: 0.0, began: now, sums, last: now, quarters: 0 }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => say!("{text}"),
        }
    }

    /// Shows the current activity: next to the bar, or as one line per second.
    fn state(&mut self, text: &str) {
        let seconds = (self.after - self.began.elapsed().as_secs_f64()).max(0.0);
        if let Some(bar) = &self.bar {
            let length = bar.length().unwrap_or(1);
            bar.set_position(length.saturating_sub((seconds * 10.0) as u64));
            bar.set_message(format!("{}  {text}", left(seconds)));
        } else if self.last.elapsed() >= LINE_SPACING {
            self.last = Instant::now();
            say!("{text}, {}", left(seconds));
        }
    }

    fn place(&self, trial: &Trial) -> String {
        format!("[{}] {}", self.order.place(trial), name(trial))
    }
}

impl Watcher for Shown {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Started { plan, done, seconds, .. } => {
                self.order = Order::of(plan);
                (self.after, self.began) = (*seconds, Instant::now());
                let total = plan.trials.len();
                let trials = if total == 1 { "trial" } else { "trials" };
                let already = (*done > 0).then(|| format!(", {done} already complete"));
                let already = already.unwrap_or_default();
                self.line(&format!("{total} {trials}{already}, about {}", left(*seconds)));
                left_out(plan).iter().for_each(|line| self.line(line));
                if let Some(bar) = &self.bar {
                    bar.set_length((seconds * 10.0) as u64);
                    self.state("starting");
                }
            }
            Event::Preparing { stack, done, of } => {
                let text = format!("preparing {stack}: {done} of {of}");
                let quarter = (done.get() * 4 / of.get().max(1)) as u32;
                match &self.bar {
                    Some(_) => self.state(&text),
                    None if quarter != self.quarters && quarter > 0 => say!("{text}"),
                    None => {}
                }
                self.quarters = quarter;
            }
            Event::TrialStarted { trial } => match &self.bar {
                Some(_) => self.state(&self.place(trial)),
                // The first line of a trial comes after a second.
                None => self.last = Instant::now(),
            },
            Event::Loading { done, of } => self.state(&format!("loading {done} of {of} records")),
            Event::Interval { trial, progress } => {
                if let Some(text) = self.sums.add(trial, &progress.summary) {
                    self.state(&format!("{} {text}", self.place(trial)));
                }
            }
            Event::TrialEnded { trial, headline, seconds_left, .. } => {
                (self.after, self.began) = (*seconds_left, Instant::now());
                self.line(&format!("{} {}: {headline}", self.place(trial), trial.point_text()));
                if self.bar.is_some() {
                    self.state("");
                }
            }
            Event::Note(note) => self.line(&format!("  note: {}", plain(note))),
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use study::Skip;

    /// The count must not run past its total ("trial 59 of 52"), and a skipped drive must be reported.
    #[test]
    fn trials_are_counted_among_those_that_run_and_what_does_not_says_why() {
        let text = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
                    [[experiment]]\nname = \"e\"\n[experiment.block]\nqueue_depth = [1, 2, 4]\n";
        let mut plan = study::plan(&study::parse(text, engines::list()).unwrap());
        let last = plan.trials[2].clone();
        plan.trials.remove(0);
        let skip = |engine: &'static str, stack: &str| Skip {
            experiment: "e".into(),
            stack: stack.into(),
            engine: Some(engine.to_owned()),
            reason: "mkfs.ext4 was not found (apt-get install e2fsprogs)".into(),
        };
        plan.skipped = vec![skip("lmdb", "a"), skip("lmdb", "b"), skip("sqlite", "a")];
        assert_eq!(Order::of(&plan).place(&last), "2/2");
        let why = "mkfs.ext4 was not found (apt-get install e2fsprogs)";
        assert_eq!(left_out(&plan), [format!("left out: lmdb, sqlite on a, b: {why}")]);
    }
}
