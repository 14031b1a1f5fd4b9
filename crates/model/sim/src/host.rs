//! The host model: CPU time and latency of a submission path.
//!
//! Invariants: an operation at queue depth 1 takes exactly `submit + device + wake + complete` plus jitter;
//! `submit + complete + between` occupy the submitting thread, and a core where cores are counted, so one
//! thread has a maximum rate.

use std::borrow::Cow;

use device::Profile;
use units::Nanos;

use crate::cores::SIBLING_BUSY_PERCENT;

/// Costs of one submission path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostModel {
    /// Name in profiles and reports.
    pub name: &'static str,
    /// CPU time to submit: system call, file system if any, block layer and driver; blocks the thread.
    pub submit: Nanos,
    /// Submission time of writes, if different: memory is written by the submitting thread.
    pub submit_write: Nanos,
    /// Interrupt and wake-up time, without CPU time of the thread. 0 on a device that completes during
    /// submission, such as memory.
    pub wake: Nanos,
    /// CPU time to reap a completion.
    pub complete: Nanos,
    /// CPU time after a completion, outside every latency: the client's own work.
    pub between: Nanos,
    /// Mean of an exponential delay added to the wake-up; zero for none.
    pub jitter: Nanos,
    /// Cores that the threads share; 0: one for each.
    pub cores: u32,
    /// Whether each core has two hardware threads.
    pub siblings: bool,
    /// Whether the device's times include submission, as whole-stack measurements do: the device starts when
    /// submission starts, and the completion is visible when both are done.
    pub contained: bool,
    /// Source of the constants.
    pub source: &'static str,
}

const CHEOPS_2023: &str = "Ren and Trivedi, CHEOPS 2023: 900P on a Xeon 4210R, Linux 5.15, raw fio data; \
     CPU per operation from one saturated core at QD128, latency from QD1";
const ICPADS_2018: &str = "Zhang et al., ICPADS 2018: fio on ext4 takes about 14 \u{b5}s on an Optane \
900P, 3 \u{b5}s \
     on a RAM disk; device time from CHEOPS 2023; the breakdown and the five cores are assumed; jitter \
     fitted to a p99 of 41 \u{b5}s with 16 threads on a P4800X (AnandTech 11209)";
const ANANDTECH_2017: &str = "AnandTech 11209: like psync, but 1.4 \u{b5}s less in total, which is fitted to \
     the mean of P4800X reads at depth 1; the source does not state its I/O path";

const HAAS_2025: &str = "Haas et al., PVLDB 18 (2025), raw data: a jitter of the path, fitted on p99 14 \
     \u{b5}s of writes of the PM9A3 next to the fewest (one host for all drives, not stated); other times as \
     of io_uring";

/// The known paths. CPU per operation, `between` included: SPDK 0.98 us, io_uring 3.2 us, polled 3.0, libaio
/// 3.4.
const KNOWN: [HostModel; 9] = [
    path("spdk", [300, 0, 280], CHEOPS_2023),
    path("psync", [1_500, 1_100, 1_500], CHEOPS_2023),
    path("io_uring", [1_400, 2_800, 1_400], CHEOPS_2023),
    path("io_uring-polled", [1_300, 0, 1_300], CHEOPS_2023),
    path("libaio", [1_500, 2_800, 1_500], CHEOPS_2023),
    HostModel {
        jitter: Nanos(3_000),
        cores: 5,
        ..path("ext4-psync", [1_500, 2_500, 600], ICPADS_2018)
    },
    HostModel { jitter: Nanos(770), ..path("io_uring-2024", [1_400, 2_800, 1_400], HAAS_2025) },
    path("psync-2017", [1_200, 300, 1_200], ANANDTECH_2017),
    NONE,
];

/// Throughput of the two hardware threads of a core over that of one (assumed, as in `cores`).
const SIBLINGS_YIELD: f64 = 200.0 / SIBLING_BUSY_PERCENT as f64;

/// No cost: for a device whose measurements include its host.
const NONE: HostModel = HostModel {
    between: Nanos::ZERO,
    jitter: Nanos::ZERO,
    ..path("none", [0, 0, 0], "the measurements contain the host they were made on")
};

/// p99 less p50 of QD1 reads, 1.2 to 1.3 us, is 4.6 means of an exponential (CHEOPS 2023, raw data).
const BASE_JITTER: Nanos = Nanos(270);
/// CPU time of the benchmark itself between operations: at depth 1 fio's rate is this much below the inverse
/// of its mean latency (0.35 to 0.6 us with psync, SPDK and io_uring; CHEOPS 2023, raw data).
const BETWEEN: Nanos = Nanos(400);

/// A path of `[submit, wake, complete]` nanoseconds.
const fn path(name: &'static str, costs: [u64; 3], source: &'static str) -> HostModel {
    let [submit, wake, complete] = costs;
    HostModel {
        name,
        submit: Nanos(submit),
        submit_write: Nanos(submit),
        wake: Nanos(wake),
        complete: Nanos(complete),
        between: BETWEEN,
        jitter: BASE_JITTER,
        cores: 0,
        siblings: true,
        contained: false,
        source,
    }
}

impl HostModel {
    /// The path of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        KNOWN.into_iter().find(|host| host.name == name)
    }

    /// The path with the same times except for jitter; published results of either apply to both.
    #[must_use]
    pub fn kin(name: &str) -> &str {
        name.strip_suffix("-2024").unwrap_or(name)
    }

    /// Default path of predictions: io_uring, as in the measuring driver.
    #[must_use]
    pub const fn io_uring() -> Self {
        KNOWN[2]
    }

    /// All its times: submission, submission of a write, wake-up, completion, between, jitter.
    #[must_use]
    pub const fn times(&self) -> [Nanos; 6] {
        [self.submit, self.submit_write, self.wake, self.complete, self.between, self.jitter]
    }

    /// How many threads' worth of work this many threads can do at once on the available cores.
    #[must_use]
    pub fn threads(&self, threads: u32) -> f64 {
        if self.cores == 0 || threads <= self.cores {
            return f64::from(threads);
        }
        let yields = if self.siblings { SIBLINGS_YIELD } else { 1.0 };
        f64::from(threads).min(f64::from(self.cores) * yields)
    }

    /// Maximum reads per second that one thread can submit and reap.
    #[must_use]
    pub fn thread_rate(&self) -> f64 {
        1.0 / (self.submit + self.complete + self.between).as_secs_f64().max(1e-9)
    }

    /// The names accepted by [`HostModel::named`].
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        KNOWN.iter().map(|host| host.name).collect()
    }

    /// The path to a device that completes during submission: no interrupt, no wake-up.
    #[must_use]
    pub const fn without_wake(self) -> Self {
        Self { wake: Nanos::ZERO, jitter: BASE_JITTER, ..self }
    }

    /// The device as this many client threads see it, and this path without what `profile` already includes.
    #[must_use]
    pub fn met_by(self, profile: &Profile, threads: u32) -> (Cow<'_, Profile>, Self) {
        match (threads == 1).then(|| profile.of_one_thread()).flatten() {
            Some(own) => {
                let host = Self { cores: self.cores, ..self.to(&own) };
                (Cow::Owned(own), host)
            }
            None => (Cow::Borrowed(profile), self),
        }
    }

    /// The path adapted to `profile`: without a wake-up for memory, which completes during submission, and
    /// without the costs that a whole-stack measurement already includes.
    #[must_use]
    pub fn to(self, profile: &Profile) -> Self {
        match &profile.parameters {
            device::Parameters::Ram(_) => self.without_wake(),
            device::Parameters::Flow(p) => {
                let time = |time: &Option<device::Constant<Nanos>>| {
                    time.as_ref().map_or(Nanos::ZERO, |time| time.value)
                };
                let submit = time(&p.thread_time);
                let of_write = p.thread_time_write.as_ref();
                Self {
                    submit,
                    submit_write: of_write.map_or(submit, |time| time.value),
                    between: time(&p.thread_between),
                    contained: true,
                    ..NONE
                }
            }
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths that differ in more than jitter must not share their validated errors.
    #[test]
    fn kin_differ_in_their_jitter_alone() {
        let mut pairs = 0;
        for path in KNOWN {
            let kin = HostModel::named(HostModel::kin(path.name)).expect("a known path");
            pairs += u32::from(kin.name != path.name);
            let HostModel { name, jitter, source, .. } = path;
            assert_eq!(HostModel { name, jitter, source, ..kin }, path);
        }
        assert!(pairs > 0);
    }
}
