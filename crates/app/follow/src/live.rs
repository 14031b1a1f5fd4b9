//! The document of a run in progress.
//!
//! Invariant: its size is bounded, however long the run.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use stats::{Phase, Spread, Summary};
use units::Nanos;

/// Number of intervals kept of the current trial.
const INTERVALS_MAX: usize = 240;
/// Number of results and notes kept.
const LINES_MAX: usize = 30;

/// A run in progress.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Live {
    /// Version of this document.
    pub schema: u32,
    /// Name of the study.
    pub study: String,
    /// Its question.
    pub question: String,
    /// Process that runs it.
    pub process: u32,
    /// Trials of the run.
    pub trials: usize,
    /// Number of ended trials.
    pub done: usize,
    /// Estimated seconds left.
    pub seconds_left: f64,
    /// Current activity outside of a trial: `loading 3 of 10 records`; may be empty.
    pub doing: String,
    /// The current trial, or all trials of a race.
    pub running: Vec<LiveTrial>,
    /// Results of completed trials, and notes, oldest first.
    pub said: VecDeque<String>,
}

/// A trial in progress.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveTrial {
    /// Its number in the plan.
    pub number: u32,
    /// Experiment, stack and engine.
    pub name: String,
    /// Parameters that vary.
    pub point: String,
    /// Its intervals over all clients; the last may be incomplete.
    pub intervals: VecDeque<LiveInterval>,
}

/// An interval of all clients.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveInterval {
    /// End of the interval, in nanoseconds since the trial's start.
    pub end_ns: u64,
    /// Its length in seconds.
    pub seconds: f64,
    /// Part of the measurement, not warm-up.
    pub measured: bool,
    /// Operations that were completed.
    pub ops: u64,
    /// Sum of their response times, nanoseconds.
    pub latency_sum_ns: u64,
    /// Non-empty buckets of `stats::Spread` with their counts.
    pub times: Vec<(usize, u32)>,
}

impl LiveInterval {
    /// Operations per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.ops as f64 / self.seconds.max(1e-9)
    }

    /// How its times spread.
    #[must_use]
    pub fn spread(&self) -> Spread {
        let mut spread = Spread::default();
        self.times.iter().for_each(|(bucket, count)| spread.add_to(*bucket, *count));
        spread
    }
}

impl Live {
    /// A trial in progress, by its number.
    pub fn running_mut(&mut self, number: u32) -> Option<&mut LiveTrial> {
        self.running.iter_mut().find(|one| one.number == number)
    }

    /// Adds a line.
    pub fn say(&mut self, line: String) {
        self.said.push_back(line);
        while self.said.len() > LINES_MAX {
            self.said.pop_front();
        }
    }
}

impl LiveTrial {
    /// Adds one client's interval to the sum.
    pub fn add(&mut self, summary: &Summary) {
        if summary.phase == Phase::Drain {
            return;
        }
        let end_ns = summary.end.get();
        let place = self.intervals.iter().rposition(|one| one.end_ns == end_ns);
        let place = place.unwrap_or_else(|| {
            let measured = summary.phase == Phase::Measure;
            let begun = LiveInterval { end_ns, measured, ..LiveInterval::default() };
            let after = self.intervals.iter().rposition(|one| one.end_ns < end_ns);
            let place = after.map_or(0, |place| place + 1);
            self.intervals.insert(place, begun);
            place
        });
        let interval = &mut self.intervals[place];
        let mut spread = interval.spread();
        spread.merge(&summary.spread);
        interval.times = spread.counts().collect();
        interval.seconds = summary.seconds;
        interval.ops = interval.ops.saturating_add(summary.ops);
        interval.latency_sum_ns = interval.latency_sum_ns.saturating_add(summary.latency_sum.get());
        while self.intervals.len() > INTERVALS_MAX {
            self.intervals.pop_front();
        }
    }

    /// Intervals that are likely complete: a client may not have reported its part of the last.
    #[must_use]
    pub fn whole(&self) -> impl DoubleEndedIterator<Item = &LiveInterval> + ExactSizeIterator {
        self.intervals.iter().take(self.intervals.len().saturating_sub(1))
    }

    /// Spread of the last `count` complete intervals.
    #[must_use]
    pub fn recent(&self, count: usize) -> Spread {
        let mut spread = Spread::default();
        self.whole().rev().take(count).for_each(|one| spread.merge(&one.spread()));
        spread
    }

    /// End of the last reported interval.
    #[must_use]
    pub fn at(&self) -> Nanos {
        Nanos(self.intervals.back().map_or(0, |one| one.end_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(end: u64, ops: u64, time: u64) -> Summary {
        let mut spread = Spread::default();
        spread.add(Nanos(time), ops);
        Summary {
            phase: Phase::Measure,
            end: Nanos(end),
            seconds: 0.1,
            ops,
            latency_sum: Nanos(ops * time),
            spread,
        }
    }

    /// A client that reports late must not appear as a dip.
    #[test]
    fn clients_of_an_interval_are_one() {
        let mut trial = LiveTrial::default();
        trial.add(&summary(100, 10, 5000));
        trial.add(&summary(200, 10, 5000));
        trial.add(&summary(100, 30, 9000));
        assert_eq!(trial.intervals.len(), 2);
        let first = &trial.intervals[0];
        assert_eq!((first.end_ns, first.ops, first.latency_sum_ns), (100, 40, 320_000));
        assert!((first.rate() - 400.0).abs() < 1e-6);
        assert_eq!(trial.whole().count(), 1, "the last may lack a client");
        assert_eq!(trial.recent(5).counts().map(|(_, count)| count).sum::<u32>(), 40);
    }

    /// The live document of a run of days must stay bounded.
    #[test]
    fn what_is_kept_has_a_bound() {
        let mut live = Live::default();
        let mut trial = LiveTrial::default();
        for number in 0..10_000 {
            trial.add(&summary(number * 100, 1, 1000));
            live.say(format!("{number}"));
        }
        assert_eq!((trial.intervals.len(), live.said.len()), (INTERVALS_MAX, LINES_MAX));
        assert_eq!(trial.at(), Nanos(999_900));
        assert_eq!(live.said.back().unwrap(), "9999");
    }
}
