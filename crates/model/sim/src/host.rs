//! The host model: what a submission path costs in CPU and in latency.
//!
//! Invariant: an operation at queue depth 1 takes exactly `submit + device + wake + complete` plus
//! jitter; `submit + complete` occupy the submitting thread, so one thread has a maximum rate.
//! What it is not: a file system or a hypervisor.

use units::Nanos;

/// Costs of one submission path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostModel {
    /// Name in profiles and reports.
    pub name: &'static str,
    /// CPU time to submit; the thread does nothing else meanwhile.
    pub submit: Nanos,
    /// Interrupt and wake-up; no CPU of the thread.
    pub wake: Nanos,
    /// CPU time to take a completion.
    pub complete: Nanos,
    /// Mean of an exponential delay added to the wake-up; zero for none.
    pub jitter: Nanos,
    /// Where the constants come from.
    pub source: &'static str,
}

const CHEOPS_2023: &str = "Ren and Trivedi, CHEOPS 2023: 900P on a Xeon 4210R, Linux 5.15, raw fio data; \
     CPU an operation from one saturated core at QD128, latency from QD1";

/// The known paths. CPU an operation: SPDK 0.98 us, io_uring 3.2 us, psync inside its 4.5 us. Jitter:
/// p99 less p50 of QD1 reads, 1.2 to 1.3 us, is 4.6 means of an exponential.
const KNOWN: [HostModel; 3] = [
    HostModel {
        name: "spdk",
        submit: Nanos(500),
        wake: Nanos::ZERO,
        complete: Nanos(480),
        jitter: Nanos(270),
        source: CHEOPS_2023,
    },
    HostModel {
        name: "psync",
        submit: Nanos(1_500),
        wake: Nanos(1_500),
        complete: Nanos(1_500),
        jitter: Nanos(270),
        source: CHEOPS_2023,
    },
    HostModel {
        name: "io_uring",
        submit: Nanos(1_600),
        wake: Nanos(2_800),
        complete: Nanos(1_600),
        jitter: Nanos(270),
        source: CHEOPS_2023,
    },
];

impl HostModel {
    /// The path of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        KNOWN.into_iter().find(|host| host.name == name)
    }

    /// The path that predictions use unless told otherwise: io_uring, as the measured driver does.
    #[must_use]
    pub const fn io_uring() -> Self {
        KNOWN[2]
    }

    /// The names that [`HostModel::named`] knows.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        KNOWN.iter().map(|host| host.name).collect()
    }
}
