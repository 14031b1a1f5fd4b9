//! Kernel worker threads for io_uring requests that a target cannot take without blocking: on zram, brd and
//! md, for example.
//!
//! They belong to this process, and so does their CPU time, which tools that count the submitting thread
//! alone miss. Invariant: only threads of this process.

use std::collections::BTreeMap;
use std::fs;

use units::Nanos;

/// The kernel's name of such a thread.
const NAME: &str = "iou-wrk-";

/// CPU of each worker thread by its id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IoWorkers(BTreeMap<u32, Nanos>);

impl IoWorkers {
    /// The current threads. Costs a few system calls per thread of this process.
    #[must_use]
    pub fn now() -> Self {
        let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let worker = |task: fs::DirEntry| {
            let id = task.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(task.path().join("stat")).ok()?;
            let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
            // proc(5): fields 14 and 15 are user and system time in clock ticks; `rest` starts at 3.
            let ticks = |at: usize| rest.split(' ').nth(at - 3)?.parse::<u64>().ok();
            name.starts_with(NAME).then_some(())?;
            Some((id, Nanos((ticks(14)? + ticks(15)?) * nanoseconds_a_tick())))
        };
        Self(tasks.filter_map(worker).collect())
    }

    /// Merges with `other`; the later reading of a thread wins.
    pub fn join(&mut self, other: &Self) {
        for (id, cpu) in &other.0 {
            let mine = self.0.entry(*id).or_default();
            *mine = (*mine).max(*cpu);
        }
    }

    /// Number of threads that are new or worked since, and their CPU time since.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> (usize, Nanos) {
        let mut active = 0;
        let mut cpu = Nanos::ZERO;
        for (id, now) in &self.0 {
            let before = earlier.0.get(id);
            if before != Some(now) {
                active += 1;
                cpu += now.since(before.copied().unwrap_or_default());
            }
        }
        (active, cpu)
    }
}

fn nanoseconds_a_tick() -> u64 {
    // SAFETY: sysconf reads a constant of the system.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    1_000_000_000 / u64::try_from(ticks).unwrap_or(100).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_did_nothing_are_not_counted() {
        let before = IoWorkers([(1, Nanos(10)), (2, Nanos(10))].into());
        let after = IoWorkers([(1, Nanos(10)), (2, Nanos(30)), (3, Nanos(5))].into());
        assert_eq!(after.since(&before), (2, Nanos(25)));
        assert_eq!(IoWorkers::now(), IoWorkers::default(), "this process has no ring");
    }
}
