//! CPU time, context switches, page faults and block counts of this process.
//!
//! The whole process is counted, including io_uring worker threads, which per-thread accounting misses.
//! Invariant: counters never decrease, so `since` is exact.

use stats::Usage;

/// Reads the counters (getrusage(2), `RUSAGE_SELF`). Costs a system call.
#[must_use]
pub fn usage() -> Usage {
    read(libc::RUSAGE_SELF)
}

/// Reads the counters of the calling thread. Costs a system call.
#[must_use]
pub fn thread_usage() -> Usage {
    read(libc::RUSAGE_THREAD)
}

fn read(who: libc::c_int) -> Usage {
    // SAFETY: `rusage` is plain data; all zero is a valid value of it.
    let mut raw: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `raw` is a valid, writable rusage for the duration of the call.
    let result = unsafe { libc::getrusage(who, &raw mut raw) };
    if result != 0 {
        return Usage::default();
    }
    let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
    let time = |value: libc::timeval| {
        u64::try_from(value.tv_sec).unwrap_or(0) * 1_000_000_000
            + u64::try_from(value.tv_usec).unwrap_or(0) * 1_000
    };
    Usage {
        cpu_user_ns: time(raw.ru_utime),
        cpu_system_ns: time(raw.ru_stime),
        switches_voluntary: count(raw.ru_nvcsw),
        switches_involuntary: count(raw.ru_nivcsw),
        blocks_in: count(raw.ru_inblock),
        blocks_out: count(raw.ru_oublock),
        faults_major: count(raw.ru_majflt),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Nanos;

    /// CPU figures that stay at zero would make every engine look free.
    #[test]
    fn work_is_counted() {
        let before = usage();
        let mut word = 1u64;
        let began = std::time::Instant::now();
        while usage().since(&before).cpu() < Nanos::from_millis(20) {
            assert!(began.elapsed().as_secs() < 60, "no time is counted");
            for _ in 0..100_000 {
                word = std::hint::black_box(word.wrapping_mul(6_364_136_223_846_793_005));
            }
        }
        assert!(usage().since(&before).cpu_user_ns > 0);
        assert_eq!(before.since(&before), Usage::default());
    }
}
