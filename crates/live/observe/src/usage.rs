//! CPU time, context switches, page faults and block counts of this process.
//!
//! The process is counted whole: io_uring worker threads belong to it, so their CPU is included,
//! which per-thread accounting misses. Invariant: counters never decrease, so `since` is exact.
//! What it is not: a profile.

use serde::{Deserialize, Serialize};
use units::Nanos;

/// Counters of this process since it started, or between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// CPU in application code, nanoseconds.
    pub cpu_user_ns: u64,
    /// CPU in the kernel on its behalf, nanoseconds.
    pub cpu_system_ns: u64,
    /// Switches because it waited.
    pub switches_voluntary: u64,
    /// Switches because its time was up or something else was due.
    pub switches_involuntary: u64,
    /// 512-byte blocks read from file systems and devices.
    pub blocks_in: u64,
    /// 512-byte blocks written to them (counted when a page is dirtied).
    pub blocks_out: u64,
    /// Page faults that waited for storage.
    pub faults_major: u64,
}

impl Usage {
    /// Reads the counters (getrusage(2), `RUSAGE_SELF`). Costs a system call.
    #[must_use]
    pub fn now() -> Self {
        Self::read(libc::RUSAGE_SELF)
    }

    /// Reads the counters of the calling thread alone. Costs a system call.
    #[must_use]
    pub fn of_thread() -> Self {
        Self::read(libc::RUSAGE_THREAD)
    }

    fn read(who: libc::c_int) -> Self {
        // SAFETY: `rusage` is plain data; all zero is a valid value of it.
        let mut raw: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `raw` is a valid, writable rusage for the duration of the call.
        let result = unsafe { libc::getrusage(who, &raw mut raw) };
        if result != 0 {
            return Self::default();
        }
        let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
        let time = |value: libc::timeval| {
            u64::try_from(value.tv_sec).unwrap_or(0) * 1_000_000_000
                + u64::try_from(value.tv_usec).unwrap_or(0) * 1_000
        };
        Self {
            cpu_user_ns: time(raw.ru_utime),
            cpu_system_ns: time(raw.ru_stime),
            switches_voluntary: count(raw.ru_nvcsw),
            switches_involuntary: count(raw.ru_nivcsw),
            blocks_in: count(raw.ru_inblock),
            blocks_out: count(raw.ru_oublock),
            faults_major: count(raw.ru_majflt),
        }
    }

    /// What was used since `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            cpu_user_ns: self.cpu_user_ns.saturating_sub(earlier.cpu_user_ns),
            cpu_system_ns: self.cpu_system_ns.saturating_sub(earlier.cpu_system_ns),
            switches_voluntary: self.switches_voluntary.saturating_sub(earlier.switches_voluntary),
            switches_involuntary: self
                .switches_involuntary
                .saturating_sub(earlier.switches_involuntary),
            blocks_in: self.blocks_in.saturating_sub(earlier.blocks_in),
            blocks_out: self.blocks_out.saturating_sub(earlier.blocks_out),
            faults_major: self.faults_major.saturating_sub(earlier.faults_major),
        }
    }

    /// CPU in all.
    #[must_use]
    pub const fn cpu(&self) -> Nanos {
        Nanos(self.cpu_user_ns + self.cpu_system_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPU figures that stay at zero would make every engine look free.
    #[test]
    fn work_is_counted() {
        let before = Usage::now();
        let mut word = 1u64;
        while Usage::now().since(&before).cpu() < Nanos::from_millis(20) {
            for _ in 0..100_000 {
                word = std::hint::black_box(word.wrapping_mul(6_364_136_223_846_793_005));
            }
        }
        assert!(Usage::now().since(&before).cpu_user_ns > 0);
        assert_eq!(before.since(&before), Usage::default());
    }
}
