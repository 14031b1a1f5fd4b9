//! Counters that a program may ask for.

use device::StageTimes;

/// Whose times are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TotalsOf {
    /// Those of all threads of the process.
    Process,
    /// Those of the calling thread.
    Thread,
    /// Those of threads of other processes that have waited for a message: what serves this process.
    Servers,
}

impl TotalsOf {
    /// From an argument.
    #[must_use]
    pub const fn of(argument: u64) -> Self {
        match argument {
            1 => Self::Thread,
            2 => Self::Servers,
            _ => Self::Process,
        }
    }
}

/// Counters of a program.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// CPU time, ns.
    pub cpu: u64,
    /// CPU time of the other processes, ns.
    pub cpu_of_others: u64,
    /// Waits: voluntary context switches.
    pub waits: u64,
    /// Involuntary context switches.
    pub preemptions: u64,
    /// Read requests to the drive, their bytes, and the sum of their latencies in ns.
    pub reads: [u64; 3],
    /// The same for writes.
    pub writes: [u64; 3],
    /// Bytes of pages that programs made dirty, and of direct writes.
    pub dirtied: u64,
    /// Flushes, and the sum of their times in ns.
    pub flushes: [u64; 2],
    /// Where the time of the thread, or of the process's threads, went, ns: CPU, run queue, wake-up, and the
    /// waits in the order of `sim::scheduler::Wait`.
    pub times: [u64; 10],
    /// Latencies of the drive by stage.
    pub stages: [u64; StageTimes::VALUES],
}

impl Totals {
    /// Number of values.
    pub const VALUES: usize = 23 + StageTimes::VALUES;

    /// Latencies of the drive by stage since an earlier reading.
    #[must_use]
    pub fn stages_since(&self, earlier: &Self) -> StageTimes {
        StageTimes::between(self.stages, earlier.stages)
    }

    /// The values as arguments of a call.
    #[must_use]
    pub fn values(&self) -> [u64; Self::VALUES] {
        // SAFETY: an array of u64 of the same size, without padding.
        unsafe { std::mem::transmute(*self) }
    }

    /// The counters from arguments of a call.
    #[must_use]
    pub const fn of(values: [u64; Self::VALUES]) -> Self {
        // SAFETY: an array of u64 of the same size, without padding; every value is valid.
        unsafe { std::mem::transmute(values) }
    }
}

/// Function of the preloaded library that fills [`Totals`]; the second argument is a [`TotalsOf`]:
/// `extern "C" fn(*mut Totals, c_int)`.
pub const TOTALS_FUNCTION: &std::ffi::CStr = c"crosspoint_vtime_totals";
