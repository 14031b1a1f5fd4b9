//! What the threads of measured programs wait for, as counted by the preloaded library (`observe-shim`).
//!
//! Each thread that waits has a slot in shared memory. Only that thread writes it, so nothing is locked; the
//! reader takes differences of two readings. CPU time and run-queue delay are the kernel's (schedstat).
//!
//! Invariant: the parts of a time never exceed it. A short call may not have waited at all, so waits that
//! sum to more than the time in which the threads were blocked are scaled down to it.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use stats::TIME_KINDS;

/// Maximum number of threads, including ended ones.
pub const THREADS: usize = 4096;
/// Marks the memory, version of this layout included.
const MAGIC: u64 = 0x6372_6f73_7377_0002;
/// Environment variable with the path of the shared memory.
pub const OBSERVE_VARIABLE: &str = "CROSSPOINT_OBSERVE";

/// What a thread waits for, in the order of the last of [`TIME_KINDS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitKind {
    /// A lock or a condition.
    Lock,
    /// A message.
    Network,
    /// Reading a file.
    Read,
    /// Writing or changing it.
    Write,
    /// A flush.
    Flush,
    /// A point in time.
    Sleep,
    /// A lock or a condition, in a thread that exchanges messages, until one that does not wakes it.
    Background,
}

impl WaitKind {
    /// Number of kinds.
    pub const COUNT: usize = 7;
}

/// The counters of one thread; zeroes until it first waits.
#[repr(C)]
#[derive(Debug)]
pub struct ThreadWaits {
    /// Process ID.
    pub process: AtomicU32,
    /// Thread ID, written last.
    pub thread: AtomicU32,
    /// Time-stamp counter's ticks in calls, by kind.
    pub ticks: [AtomicU64; WaitKind::COUNT],
    /// Number of calls, by kind.
    pub calls: [AtomicU64; WaitKind::COUNT],
}

/// The shared memory.
#[repr(C)]
#[derive(Debug)]
pub struct Waits {
    /// Marks the memory as this, in this layout.
    pub magic: AtomicU64,
    /// Number of slots in use; can exceed their number.
    pub used: AtomicU32,
    /// One per thread.
    pub threads: [ThreadWaits; THREADS],
}

/// Times of threads between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitTimes {
    /// By kind in the order of [`TIME_KINDS`], ns.
    pub times: [u64; TIME_KINDS.len()],
    /// Number of intercepted calls.
    pub calls: u64,
    /// Page faults that waited for storage.
    faults: u64,
    /// Time in which the threads existed, ns.
    whole: u64,
}

/// Position of CPU time and of run-queue delay in [`TIME_KINDS`].
const CPU: usize = 0;
const RUN_QUEUE: usize = 1;
/// Longest time of a page fault that waits for storage, ns.
const FAULT_MAX: u64 = 50_000_000;
/// Position of the first wait.
const WAITS: usize = 3;

impl WaitTimes {
    /// The times between `earlier` and this reading, as parts of the time that passed.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let whole = self.whole.saturating_sub(earlier.whole);
        let faults = self.faults.saturating_sub(earlier.faults);
        let calls = self.calls.saturating_sub(earlier.calls);
        let mut times: [u64; TIME_KINDS.len()] =
            std::array::from_fn(|kind| self.times[kind].saturating_sub(earlier.times[kind]));
        let blocked = whole.saturating_sub(times[CPU]).saturating_sub(times[RUN_QUEUE]);
        let waited = times[WAITS..].iter().fold(0_u64, |sum, time| sum.saturating_add(*time));
        if waited > blocked {
            let part = blocked as f64 / waited as f64;
            times[WAITS..].iter_mut().for_each(|time| *time = (*time as f64 * part) as u64);
        } else {
            // Outside of calls, a thread waits for the pages of a mapping.
            let faulted = faults.saturating_mul(FAULT_MAX);
            times[WAITS + WaitKind::Read as usize] += (blocked - waited).min(faulted);
        }
        Self { times, calls, faults, whole }
    }

    /// The sum over several threads.
    #[must_use]
    pub fn sum(all: impl Iterator<Item = Self>) -> Self {
        let mut sum = Self::default();
        all.for_each(|one| sum.add(&one));
        sum
    }

    fn add(&mut self, more: &Self) {
        // The numbers come from other programs.
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        self.times.iter_mut().zip(more.times).for_each(|(sum, time)| add(sum, time));
        add(&mut self.calls, more.calls);
        add(&mut self.faults, more.faults);
        add(&mut self.whole, more.whole);
    }
}

/// The shared memory and the library of a trial's programs, which are observed from their start.
#[derive(Debug)]
pub struct Observation {
    memory: File,
    library: File,
}

impl Observation {
    /// Counters for the programs of a trial; `library` is the preloaded one.
    ///
    /// # Errors
    /// The library cannot be opened, or the memory cannot be made.
    pub fn new(library: &Path) -> std::io::Result<Self> {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = File::from(memfd_create("crosspoint-waits", flags)?);
        memory.set_len(Waits::SIZE)?;
        // A server of another user has it, and could otherwise truncate it under the reader.
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Waits::mapped(&memory)?.magic.store(MAGIC, Relaxed);
        Ok(Self { memory, library: File::open(library)? })
    }

    /// Makes a program one of those that are observed. It may belong to another user.
    pub fn admit(&self, command: &mut Command) {
        let (memory, library) = (self.memory.as_raw_fd(), self.library.as_raw_fd());
        // The library leaves the user's own in place.
        let own = std::env::var("LD_PRELOAD").map(|own| format!(":{own}")).unwrap_or_default();
        command.env("LD_PRELOAD", format!("/proc/self/fd/{library}{own}"));
        command.env(OBSERVE_VARIABLE, format!("/proc/self/fd/{memory}"));
        // SAFETY: two system calls, on descriptors that are open until the program has started.
        unsafe {
            command.pre_exec(move || {
                for number in [memory, library] {
                    let file = std::os::fd::BorrowedFd::borrow_raw(number);
                    rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty())?;
                }
                Ok(())
            });
        }
    }
}

/// Reads the counters of this process's threads and of those that serve it.
#[derive(Debug)]
pub struct WaitReader {
    waits: &'static Waits,
    /// Nanoseconds per tick of the time-stamp counter.
    tick: f64,
    /// What timing a call costs, ns.
    cost: f64,
}

impl WaitReader {
    /// The memory that this process was started with; `None` if it is not observed.
    #[must_use]
    pub fn of_this_process() -> Option<&'static Self> {
        static READER: OnceLock<Option<WaitReader>> = OnceLock::new();
        let open = || {
            let path = std::env::var_os(OBSERVE_VARIABLE)?;
            let file = File::options().read(true).write(true).open(path).ok()?;
            let waits = Waits::map(&file).ok()?;
            Some(Self { waits, tick: crate::clock::tick()?, cost: cost_of_a_call() })
        };
        READER.get_or_init(open).as_ref()
    }

    /// Time that the library needs for a call, ns.
    #[must_use]
    pub fn cost(&self) -> f64 {
        self.cost
    }

    /// The calling thread.
    #[must_use]
    pub fn of_this_thread(&self) -> WaitTimes {
        let thread = rustix::thread::gettid().as_raw_pid().unsigned_abs();
        let found = self.used().find(|slot| slot.thread.load(Relaxed) == thread);
        let own = std::process::id();
        self.read(found, own, thread).unwrap_or_default()
    }

    /// Threads of other processes that have waited for a message, which serve this process, by their ID.
    #[must_use]
    pub fn of_servers(&self) -> HashMap<u32, WaitTimes> {
        let own = std::process::id();
        let serves = |slot: &&ThreadWaits| {
            let waited = slot.calls[WaitKind::Network as usize].load(Relaxed) > 0;
            waited && slot.process.load(Relaxed) != own
        };
        let times = |slot: &'static ThreadWaits| {
            let (process, thread) = (slot.process.load(Relaxed), slot.thread.load(Relaxed));
            Some((thread, self.read(Some(slot), process, thread)?))
        };
        self.used().filter(serves).filter_map(times).collect()
    }

    fn used(&self) -> impl Iterator<Item = &'static ThreadWaits> {
        let used = (self.waits.used.load(Relaxed) as usize).min(THREADS);
        self.waits.threads[..used].iter().filter(|slot| slot.thread.load(Relaxed) != 0)
    }

    /// A thread with its slot, if it has waited; `None` once it has ended.
    fn read(&self, slot: Option<&ThreadWaits>, process: u32, thread: u32) -> Option<WaitTimes> {
        let task = format!("/proc/{process}/task/{thread}");
        let ran = crate::first_line(format!("{task}/schedstat"))?;
        let mut ran = ran.split_ascii_whitespace().map_while(|word| word.parse::<u64>().ok());
        let stat = crate::first_line(format!("{task}/stat"))?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        // Fields 12 and 22 of proc_pid_stat(5), counted from the third.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let began = field(22)? * (1_000_000_000 / rustix::param::clock_ticks_per_second());
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        let mut times = [0; TIME_KINDS.len()];
        (times[CPU], times[RUN_QUEUE]) = (ran.next()?, ran.next()?);
        let mut calls = 0;
        if let Some(slot) = slot {
            for (time, ticks) in times[WAITS..].iter_mut().zip(&slot.ticks) {
                *time = (ticks.load(Relaxed) as f64 * self.tick) as u64;
            }
            let all = slot.calls.iter().map(|calls| calls.load(Relaxed));
            calls = all.fold(0, u64::saturating_add);
        }
        Some(WaitTimes { times, calls, faults: field(12)?, whole: now.saturating_sub(began) })
    }
}

/// Nanoseconds by which a call that is timed takes longer than the same system call by number, which is not:
/// median of many short series in turn.
fn cost_of_a_call() -> f64 {
    const SERIES: usize = 63;
    const CALLS: u32 = 64;
    let series = |call: &dyn Fn()| {
        let began = std::time::Instant::now();
        (0..CALLS).for_each(|_| call());
        began.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    // No file has this descriptor, so nothing is flushed.
    // SAFETY: both calls fail without any effect.
    let timed = || _ = unsafe { libc::fsync(-1) };
    // SAFETY: as above.
    let by_number = || _ = unsafe { libc::syscall(libc::SYS_fsync, -1) };
    let mut all: Vec<f64> = (0..SERIES).map(|_| series(&timed) - series(&by_number)).collect();
    all.sort_by(f64::total_cmp);
    all[SERIES / 2].max(0.0)
}

impl Waits {
    /// Size of the memory, bytes.
    pub const SIZE: u64 = size_of::<Self>() as u64;

    /// Maps the memory.
    ///
    /// # Errors
    /// The file is another one, or cannot be mapped.
    pub fn map(file: &File) -> std::io::Result<&'static Self> {
        let waits = Self::mapped(file)?;
        match waits.magic.load(Relaxed) {
            MAGIC => Ok(waits),
            _ => Err(std::io::Error::other("not the counters of waits")),
        }
    }

    fn mapped(file: &File) -> std::io::Result<&'static Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        if file.metadata()?.len() < Self::SIZE {
            return Err(std::io::Error::other("the shared memory is too short"));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let size = size_of::<Self>();
        // SAFETY: a new mapping of a file of this size; it is never unmapped.
        let place = unsafe {
            mmap(std::ptr::null_mut(), size, protection, MapFlags::SHARED, file.as_fd(), 0)
        }?;
        // SAFETY: page-aligned, long enough, and every bit pattern is valid for atomics.
        Ok(unsafe { &*place.cast::<Self>() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(times: [u64; 10], whole: u64, faults: u64) -> WaitTimes {
        WaitTimes { times, calls: 0, faults, whole }
    }

    /// Stages that sum to more than an operation's time would be shares of nothing.
    #[test]
    fn waits_are_parts_of_the_time_in_which_threads_were_blocked() {
        let none = WaitTimes::default();
        let busy = reading([400, 100, 0, 0, 0, 600, 400, 0, 0, 0], 1000, 0).since(&none);
        assert_eq!(busy.times, [400, 100, 0, 0, 0, 300, 200, 0, 0, 0], "calls include CPU time");
        let known = reading([400, 100, 0, 0, 0, 300, 0, 0, 0, 0], 1000, 0).since(&none);
        assert_eq!(known.times[WAITS + 2], 300, "the rest is not known");
        let faults = reading([400, 100, 0, 0, 0, 300, 0, 0, 0, 0], 1000, 7).since(&none);
        let wild = WaitTimes::sum([reading([u64::MAX; 10], 1000, 0); 2].into_iter());
        assert!(wild.since(&none).times[WAITS..].iter().all(|time| *time <= 1000), "{wild:?}");
        let second = 1_000_000_000;
        let one = reading([0; 10], second, 1).since(&none);
        assert_eq!(one.times[WAITS + 2], FAULT_MAX, "one fault does not take a second");
        assert_eq!(faults.times[WAITS + 2], 500, "page faults are outside of calls");
    }
}
