//! What an emulated drive delivered and what its model requested, by kind of request.
//!
//! Invariant: both cover the same requests.

use std::fmt;

use serde::{Deserialize, Serialize};
use units::Nanos;

/// Maximum difference of served and requested latencies at the median and in the mean; beyond it figures
/// carry a warning.
const DIFFERENCE_MAX: f64 = 0.10;
/// Minimum error of a kind of request, as a share of the total requested time, for it to count.
const MOVED_MIN: f64 = 0.05;
/// Maximum unobserved delay of requests, as a share; beyond it figures carry a warning.
const STARVED_MAX: f64 = 0.05;

/// Requests of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServedKind {
    /// Requests that the model timed.
    pub requests: u64,
    /// Service time requested by the model, `scale` included: mean.
    pub requested_mean_ns: u64,
    /// Requested latency, p50.
    pub requested_p50_ns: u64,
    /// Requested latency, p99.
    pub requested_p99_ns: u64,
    /// Service time delivered, emulation overhead included: mean.
    pub delivered_mean_ns: u64,
    /// Served latency, p50.
    pub delivered_p50_ns: u64,
    /// Served latency, p99.
    pub delivered_p99_ns: u64,
}

impl ServedKind {
    /// Delivered over requested, minus 1, at the median or in the mean, whichever is larger; `None` without
    /// requests.
    #[must_use]
    pub fn difference(&self) -> Option<f64> {
        let off = |delivered: u64, requested: u64| delivered as f64 / requested.max(1) as f64 - 1.0;
        let median = off(self.delivered_p50_ns, self.requested_p50_ns);
        let mean = off(self.delivered_mean_ns, self.requested_mean_ns);
        (self.requests > 0).then_some(if mean.abs() > median.abs() { mean } else { median })
    }

    /// Total requested time.
    fn weight(&self) -> f64 {
        self.requests as f64 * self.requested_mean_ns as f64
    }
}

/// Formats a ratio of times minus 1: `9 % longer`, `2.4 times as long`, `3 % less`.
#[must_use]
pub fn longer_words(off: f64) -> String {
    match off {
        off if off >= 1.0 => format!("{:.1} times as long", 1.0 + off),
        off if off >= 0.0 => format!("{:.0} % longer", off * 100.0),
        off => format!("{:.0} % less", -off * 100.0),
    }
}

/// What an attached device has served since it was attached, or since the last mark.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Served {
    /// Number of resets of the counters.
    pub marks: u32,
    /// Overhead of the path through the kernel and back, subtracted from the model's times.
    pub floor_ns: u64,
    /// Time scale of the device.
    pub scale: u32,
    /// Reads.
    pub reads: ServedKind,
    /// Writes.
    pub writes: ServedKind,
    /// Flushes.
    pub flushes: ServedKind,
    /// Share of one processor that serving took.
    pub cpu_share: f64,
    /// Unobserved delay of requests while the server waited for a CPU or was stopped, over the requested
    /// time.
    pub starved_share: f64,
}

impl Served {
    /// Requests that the model timed.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.reads.requests + self.writes.requests + self.flushes.requests
    }

    /// Records that the server waited for a CPU for `waited` in this number of turns: requests that arrive in
    /// between wait unobserved until it runs, for the mean length of a wait.
    pub fn note_waits(&mut self, waited: Nanos, turns: u64) {
        let asked: f64 = self.kinds().iter().map(|(_, kind)| kind.weight()).sum();
        if asked > 0.0 {
            let of_one = waited.get() as f64 / turns.max(1) as f64;
            self.starved_share += of_one * self.requests() as f64 / asked;
        }
    }

    /// Each kind with its name.
    fn kinds(&self) -> [(&'static str, &ServedKind); 3] {
        [("reads", &self.reads), ("writes", &self.writes), ("flushes", &self.flushes)]
    }

    /// The largest error among the kinds of requests that matter in total, with the kind's name.
    #[must_use]
    pub fn difference(&self) -> Option<(f64, &'static str)> {
        let all: f64 = self.kinds().iter().map(|(_, kind)| kind.weight()).sum();
        let moves = |kind: &ServedKind, off: f64| kind.weight() * off.abs() >= MOVED_MIN * all;
        self.kinds()
            .into_iter()
            .filter_map(|(name, kind)| Some((kind, kind.difference()?, name)))
            .filter(|(kind, off, _)| moves(kind, *off))
            .map(|(_, off, name)| (off, name))
            .max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()))
    }

    /// The largest error, if beyond the limit for a figure, with the kind's name.
    #[must_use]
    pub fn excess(&self) -> Option<(f64, &'static str)> {
        self.difference().filter(|(off, _)| off.abs() > DIFFERENCE_MAX)
    }

    /// Total delivered over requested time, minus 1; 0 without requests.
    #[must_use]
    pub fn longer(&self) -> f64 {
        let asked: f64 = self.kinds().iter().map(|(_, kind)| kind.weight()).sum();
        let took = |kind: &ServedKind| kind.requests as f64 * kind.delivered_mean_ns as f64;
        let took: f64 = self.kinds().iter().map(|(_, kind)| took(kind)).sum();
        if asked > 0.0 { took / asked - 1.0 } else { 0.0 }
    }

    /// Describes the delay by waiting for CPUs.
    #[must_use]
    pub fn starved_words(&self) -> String {
        let longer = longer_words(self.starved_share);
        format!("emulator short of CPU (requests took about {longer})")
    }

    /// Short reason why it is unreliable; empty if it is reliable.
    #[must_use]
    pub fn complaint(&self) -> String {
        let mut said = Vec::new();
        let worst =
            self.excess().and_then(|(_, name)| self.kinds().into_iter().find(|(n, _)| *n == name));
        if let Some((name, kind)) = worst {
            said.push(format!(
                "{name} took {} (p50 {}), modelled {} (p50 {})",
                Nanos(kind.delivered_mean_ns),
                Nanos(kind.delivered_p50_ns),
                Nanos(kind.requested_mean_ns),
                Nanos(kind.requested_p50_ns),
            ));
        }
        if self.starved_share > STARVED_MAX {
            said.push(self.starved_words());
        }
        said.join("; ")
    }

    /// Whether its shares are finite and not negative; in a damaged archive they may not be.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let share = |of: f64| of.is_finite() && of >= 0.0;
        share(self.cpu_share) && share(self.starved_share)
    }

    /// Whether figures on it are reliable: served latencies follow the model at the median and in the mean.
    #[must_use]
    pub fn is_faithful(&self) -> bool {
        let near = self.difference().is_none_or(|(off, _)| off.abs() <= DIFFERENCE_MAX);
        near && self.starved_share <= STARVED_MAX
    }
}

impl fmt::Display for Served {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.requests() == 0 {
            write!(out, "no requests")?;
        }
        let mut begun = false;
        for (name, kind) in self.kinds().into_iter().filter(|(_, kind)| kind.requests > 0) {
            write!(
                out,
                "{}{name} ({}): mean {} vs {}, p50 {} vs {}, p99 {} vs {}",
                if begun { "; " } else { "" },
                kind.requests,
                Nanos(kind.delivered_mean_ns),
                Nanos(kind.requested_mean_ns),
                Nanos(kind.delivered_p50_ns),
                Nanos(kind.requested_p50_ns),
                Nanos(kind.delivered_p99_ns),
                Nanos(kind.requested_p99_ns),
            )?;
            begun = true;
        }
        write!(out, "; emulator used {:.0} % of a CPU", self.cpu_share * 100.0)?;
        if self.scale > 1 {
            write!(out, "; time-scaled {}x", self.scale)?;
        }
        if self.starved_share > STARVED_MAX {
            write!(out, "; {}: not reliable", self.starved_words())?;
        }
        match self.excess() {
            Some((off, name)) => {
                write!(out, "; {name} {:+.0} %: not reliable", off * 100.0)
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(reads: ServedKind, writes: ServedKind) -> Served {
        Served { reads, writes, scale: 1, ..Served::default() }
    }

    const fn kind(requests: u64, requested: u64, delivered: u64) -> ServedKind {
        ServedKind {
            requests,
            requested_mean_ns: requested,
            requested_p50_ns: requested,
            requested_p99_ns: requested,
            delivered_mean_ns: delivered,
            delivered_p50_ns: delivered,
            delivered_p99_ns: delivered,
        }
    }

    /// A disk that is twice as slow as its model must be reported.
    #[test]
    fn what_is_off_by_more_than_a_tenth_says_so() {
        let near = served(kind(100, 10_000, 10_500), ServedKind::default());
        assert!(near.is_faithful(), "{near}");
        let starved = Served { starved_share: 0.2, ..near };
        assert!(!starved.is_faithful() && starved.to_string().contains("20 %"), "{starved}");
        let far = Served { scale: 2, ..served(kind(100, 10_000, 20_000), ServedKind::default()) };
        assert!(!far.is_faithful());
        assert!(far.to_string().contains("not reliable") && far.to_string().contains("2x"));
        assert!(Served::default().is_faithful(), "nothing was served");
    }

    /// A flush that should take nothing and takes a little is "38 times as long" but hardly matters in total.
    #[test]
    fn what_all_took_longer_is_by_time_not_by_kind() {
        let (writes, flushes) = (kind(100, 1_000_000, 1_000_000), kind(100, 4_000, 154_000));
        let one = Served { flushes, ..served(ServedKind::default(), writes) };
        assert!((one.longer() - 0.149).abs() < 0.001, "{}", one.longer());
        assert_eq!(one.excess().map(|(_, name)| name), Some("flushes"));
        assert_eq!(Served::default().longer(), 0.0);
    }

    /// A late tail affects rates but not the median, so the mean must be checked as well.
    #[test]
    fn a_mean_that_is_off_says_so() {
        let late = ServedKind { delivered_mean_ns: 15_000, ..kind(1000, 10_000, 10_000) };
        let late = served(late, ServedKind::default());
        assert!(!late.is_faithful() && late.to_string().contains("+50 %"), "{late}");
    }

    /// A waiting request has no arrival time yet: only the server observes the delay.
    #[test]
    fn waits_for_a_processor_count_by_what_they_add_to_a_request() {
        let reads = served(kind(1000, 100_000, 100_000), ServedKind::default());
        // 20 us per turn; every request takes 100 us.
        let mut waiting = reads;
        waiting.note_waits(Nanos::from_millis(20), 1000);
        assert!((waiting.starved_share - 0.2).abs() < 1e-9 && !waiting.is_faithful(), "{waiting}");
        // Turns of timers without requests must not count.
        let mut idle = reads;
        idle.note_waits(Nanos::from_millis(2000), 100_000);
        assert_eq!(idle.starved_share, waiting.starved_share);
        // A server that runs rarely and late: few turns, each delaying all requests that arrived.
        let mut seldom = reads;
        seldom.note_waits(Nanos::from_millis(20), 10);
        assert!(seldom.starved_share > 10.0);
        assert!(seldom.to_string().contains("21.0 times as long"), "{seldom}");
        // The same waits in front of a drive with latencies of milliseconds are negligible.
        let mut slow = served(kind(1000, 2_000_000, 2_000_000), ServedKind::default());
        slow.note_waits(Nanos::from_millis(20), 1000);
        assert!(slow.is_faithful() && slow.starved_share > 0.0, "{slow}");
        let mut idle = Served::default();
        idle.note_waits(Nanos::from_millis(20), 1);
        assert!(idle.is_faithful());
    }

    /// Inaccurate writes must not be hidden by many accurate reads.
    #[test]
    fn one_kind_does_not_hide_behind_another() {
        let hidden = served(kind(1000, 10_000, 10_000), kind(100, 10_000, 30_000));
        assert_eq!(hidden.difference().map(|(_, name)| name), Some("writes"));
        assert!(!hidden.is_faithful() && hidden.to_string().contains("writes +200 %"), "{hidden}");
        assert!(
            hidden.complaint().starts_with("writes took 30.0 \u{b5}s"),
            "{}",
            hidden.complaint()
        );
        // Half of the time, with an error of 10 %: at the limit of both.
        let even = served(kind(100, 10_000, 11_200), kind(100, 10_000, 10_000));
        assert!(!even.is_faithful(), "{even}");
        // Short writes before flushes that take nearly all of the time hardly matter.
        let flushes = Served {
            flushes: kind(1000, 1_200_000, 1_210_000),
            ..served(kind(0, 0, 0), kind(2000, 18_000, 36_000))
        };
        assert!(flushes.is_faithful(), "{flushes}");
        // A kind that took almost none of the time says nothing about the rest.
        let few = served(kind(1000, 10_000, 10_000), kind(1, 10_000, 30_000));
        assert!(few.is_faithful(), "{few}");
    }
}
