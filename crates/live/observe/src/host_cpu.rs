//! CPU use of this host: ours and others'.
//!
//! Invariants: steal time counts as busy by others; kernel threads (block layer, journal, write-back, loop
//! devices) do not, because they also serve us, as far as they take no more than we do. It covers the whole
//! host, not a container, because all of it competes for the device.

use std::fs;

use units::Nanos;

/// CPU time of the host since boot, in clock ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostCpu {
    busy: u64,
    idle: u64,
    /// Of kernel threads; part of `busy`.
    kernel: u64,
    /// Online CPUs, whatever this process may use.
    cpus: u32,
}

/// Environment variable with the CPUs of the whole run, for a part of it that has fewer.
pub const CPUS_VARIABLE: &str = "CROSSPOINT_CPUS";

/// CPUs that this run may use, at least 1.
#[must_use]
pub fn cpus() -> u32 {
    let given = std::env::var(CPUS_VARIABLE).ok().and_then(|text| text.parse().ok());
    if let Some(given) = given.filter(|count| *count > 0) {
        return given;
    }
    std::thread::available_parallelism().map_or(1, |count| count.get() as u32)
}

/// Cores of the CPUs that this process may use, and whether it may use two threads of one.
#[must_use]
pub fn cores() -> (u32, bool) {
    let own = crate::scheduling::allowed();
    let list = |cpu: &usize| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        crate::first_line(path).unwrap_or_else(|| cpu.to_string())
    };
    let mut cores: Vec<String> = own.iter().map(list).collect();
    cores.sort_unstable();
    let twice = cores.windows(2).any(|pair| pair[0] == pair[1]);
    cores.dedup();
    // A control group's quota may be smaller.
    let count = u32::try_from(cores.len()).unwrap_or(1).clamp(1, cpus().max(1));
    (count, twice)
}

impl HostCpu {
    /// Reads `/proc/stat`, zeros if it is missing, and the times of kernel threads: some milliseconds. Zeros
    /// in a simulation, which would be charged for reading them.
    #[must_use]
    pub fn now() -> Self {
        if vtime::is_simulated() {
            return Self::default();
        }
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> =
            line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        // proc(5): user nice system idle iowait irq softirq steal; guest time is in user already.
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        let all: u64 = ticks.iter().take(8).sum();
        let cpus = text.lines().skip(1).take_while(|line| line.starts_with("cpu")).count();
        Self { busy: all - idle, idle, kernel: kernel_threads(), cpus: cpus as u32 }
    }

    /// Online CPUs of the host, at least 1.
    #[must_use]
    pub fn online(&self) -> u32 {
        self.cpus.max(1)
    }

    /// Busy share of all CPUs since `earlier`, 0 to 1, and that of other programs: without `own` CPU time
    /// over `wall` time and the kernel's; `None` if no time has passed.
    #[must_use]
    pub fn busy_since(&self, earlier: &Self, own: Nanos, wall: Nanos) -> Option<(f64, f64)> {
        if vtime::is_simulated() {
            // The simulated host runs nothing else.
            let all = wall.get() as f64 * f64::from(cpus());
            return (all > 0.0).then(|| (own.get() as f64 / all, 0.0));
        }
        let busy = self.busy.saturating_sub(earlier.busy) as f64;
        let all = busy + self.idle.saturating_sub(earlier.idle) as f64;
        let cpus = f64::from(self.online());
        if all <= 0.0 || wall == Nanos::ZERO {
            return None;
        }
        let share = busy / all;
        let ours = own.as_secs_f64() / wall.as_secs_f64() / cpus;
        let kernel = self.kernel.saturating_sub(earlier.kernel) as f64 / all;
        // What it does for us is seldom more than we do; the rest serves others.
        Some((share, (share - ours - kernel.min(ours)).max(0.0)))
    }
}

/// Flag of a kernel thread (`include/linux/sched.h`).
const PF_KTHREAD: u64 = 0x0020_0000;

/// CPU time of all kernel threads, in clock ticks. A thread that has ended is no longer in it.
fn kernel_threads() -> u64 {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbered = entries.filter(|one| one.file_name().as_encoded_bytes()[0].is_ascii_digit());
    let texts = numbered.filter_map(|one| fs::read_to_string(one.path().join("stat")).ok());
    texts.filter_map(|text| of_kernel_thread(&text)).sum()
}

/// CPU time in a line of `/proc/PID/stat`, in clock ticks; `None` unless it is a kernel thread's.
fn of_kernel_thread(stat: &str) -> Option<u64> {
    // The name before the parenthesis may contain anything. Fields: state ppid pgrp session tty tpgid flags
    // ... utime (12th) stime.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field)?.parse::<u64>().ok();
    let is_kernels = ticks(6)? & PF_KTHREAD != 0;
    is_kernels.then(|| Some(ticks(11)? + ticks(12)?))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_all_cpus() {
        let before = HostCpu { busy: 100, idle: 100, kernel: 0, cpus: 4 };
        let after = HostCpu { busy: 175, idle: 125, kernel: 0, cpus: 4 };
        let (busy, others) = after.busy_since(&before, Nanos::ZERO, Nanos::from_secs(1)).unwrap();
        assert_eq!((busy, others), (0.75, 0.75));
        let after = HostCpu { kernel: 25, ..after };
        // A quarter of four CPUs for a second.
        let own = |ms: u64| {
            let (_, others) =
                after.busy_since(&before, Nanos(ms * 1_000_000), Nanos::from_secs(1))?;
            Some((others * 1000.0).round() / 1000.0)
        };
        assert_eq!(own(1000), Some(0.25), "the kernel works for us");
        assert_eq!(own(200), Some(0.65), "more than it does for us");
        assert_eq!(own(0), Some(0.75), "we did nothing");
        assert_eq!(before.busy_since(&before, Nanos::ZERO, Nanos::from_secs(1)), None);
        assert!(HostCpu::now().idle > 0 && HostCpu::now().online() >= cpus());
        let kworker = "9 (kworker/u8:1-(x)) I 2 0 0 0 -1 69238880 0 0 0 0 3 40 0 0 20 0 1 0 26";
        assert_eq!(of_kernel_thread(kworker), Some(43));
        assert_eq!(of_kernel_thread(&kworker.replace("69238880", "4194560")), None);
        assert_eq!(of_kernel_thread("9 (half"), None);
    }
}
