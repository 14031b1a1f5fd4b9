//! A recording from start to end: find the clients, measure what recording costs, record.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use capture::{
    Disk, Encoder, Event, Header, Leave, Overhead, Process, Recording, Thread, What, WokenBy,
};
use observe::monotonic;
use stack::{Journal, StackError};
use thiserror::Error;

use crate::kernel::{Kernel, drive_name, made_of};
use crate::processes::{
    Descriptors, activity, describe, describe_thread, file_system_threads, is_program, process_of,
    threads,
};

/// Time between two reads of the kernel's buffers.
const ROUND: Duration = Duration::from_millis(20);
/// Time between two looks for new threads.
const SEEN_AGAIN: Duration = Duration::from_millis(200);
/// Time in which clients are found.
const PROBE: Duration = Duration::from_millis(700);
/// Pairs of intervals with and without recording, and the length of one.
const PAIRS: usize = 8;
const INTERVAL: Duration = Duration::from_millis(300);
/// A process that ends at least this share of the waits is a client.
const CLIENT_SHARE: f64 = 0.01;
/// Context switches per interval below which their rate says nothing.
const SWITCHES_MIN: u64 = 100;

/// What to record.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Processes.
    pub pids: Vec<u32>,
    /// How long.
    pub time: Duration,
    /// Stop before recording if it costs more than this share of the rate.
    pub overhead_max: f64,
    /// End when the recording has this many bytes.
    pub bytes_max: usize,
}

/// Where a recording is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Progress {
    /// Clients are sought, then the cost of recording is measured.
    Preparing,
    /// Recording; the share of the time that has passed.
    Recording(f64),
}

/// Why nothing was recorded.
#[derive(Debug, Error)]
pub enum TracerError {
    /// The kernel refused.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// No such process.
    #[error("process {0} does not exist")]
    NoProcess(u32),
    /// Above the ceiling.
    #[error(
        "recording costs this process {lost:.0} % of its context switches; the limit is {limit:.0} %"
    )]
    TooExpensive {
        /// Percent of the rate.
        lost: f64,
        /// Percent allowed.
        limit: f64,
    },
    /// Reading the buffers failed.
    #[error("the kernel's buffer cannot be read: {0}")]
    Read(#[from] io::Error),
    /// A stop was requested before anything was recorded.
    #[error("interrupted")]
    Interrupted,
}

/// CPU time of the host: all, idle, steal, in clock ticks.
fn host_times() -> [u64; 3] {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = first.split_whitespace().skip(1).flat_map(str::parse).collect();
    let of = |at: usize| ticks.get(at).copied().unwrap_or_default();
    [ticks.iter().take(8).sum(), of(3) + of(4), of(7)]
}

/// Online CPUs of the host, whatever this process may use.
fn online_cpus() -> u32 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let cpu = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    stat.lines().filter(cpu).count().max(1) as u32
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

struct Recorder<'a> {
    kernel: Kernel,
    /// Processes and threads, described while they exist.
    processes: BTreeMap<u32, Process>,
    threads: BTreeMap<u32, Thread>,
    seen: Instant,
    descriptors: Descriptors,
    stop: &'a AtomicBool,
}

impl Recorder<'_> {
    /// Records for `time`, or until a stop, the end of all `pids`, or `bytes_max`.
    fn run(&mut self, wanted: &Wanted, tell: &mut dyn FnMut(Progress)) -> io::Result<()> {
        let began = Instant::now();
        loop {
            std::thread::sleep(ROUND);
            self.descriptors.refresh();
            if self.seen.elapsed() > SEEN_AGAIN {
                self.describe();
            }
            let bytes = self.kernel.drain(&mut self.descriptors)?;
            let passed = began.elapsed();
            tell(Progress::Recording(passed.as_secs_f64() / wanted.time.as_secs_f64()));
            let over = passed >= wanted.time || bytes >= wanted.bytes_max;
            let gone = wanted.pids.iter().all(|pid| threads(*pid).is_empty());
            if over || gone || self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    }

    /// Describes threads that began since the last call.
    fn describe(&mut self) {
        self.seen = Instant::now();
        for pid in self.processes.keys() {
            for tid in threads(*pid) {
                self.threads.entry(tid).or_insert_with(|| describe_thread(tid, *pid));
            }
        }
        self.descriptors.own(self.threads.keys().copied());
    }

    /// Records all described threads from now on.
    fn add_all(&self) -> Result<(), StackError> {
        self.kernel.add(&self.threads.keys().copied().collect::<Vec<_>>())
    }

    /// Threads of the recorded processes.
    fn own(&self) -> Vec<u32> {
        self.threads.values().filter(|one| one.pid != 0).map(|one| one.tid).collect()
    }

    /// Facts about the recording between `times`; before it, the host's times were `host`, and the recorded
    /// threads have used `cpu` since.
    fn header(&self, (start, end): (u64, u64), (host, cpu): ([u64; 3], u64)) -> Header {
        let (mut tids, mut disks) = (BTreeSet::new(), BTreeSet::new());
        for event in self.kernel.events() {
            match event.what {
                What::Submits(io) => {
                    disks.insert(io.drive);
                }
                What::Runs { .. } | What::Leaves(_) | What::Enters { .. } => {
                    tids.insert(event.thread);
                }
                _ => {}
            }
        }
        let after = host_times();
        let [whole, idle, steal] = [0, 1, 2].map(|at| after[at].saturating_sub(host[at]));
        let own = cpu as f64 / ((end - start).max(1) as f64 * f64::from(online_cpus()));
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let active = self.threads.values().filter(|one| tids.contains(&one.tid));
        let disk = |number| Disk { number, name: drive_name(number), made_of: made_of(number) };
        Header {
            kernel: release.trim().to_owned(),
            cpus: online_cpus(),
            start,
            end,
            lost: 0,
            other_requests: self.kernel.other_requests,
            other_load: (1.0 - share(idle + steal, whole) - own).max(0.0),
            steal: share(steal, whole),
            overhead: None,
            process: self.processes.values().cloned().collect(),
            thread: active.cloned().collect(),
            disk: disks.into_iter().map(disk).collect(),
        }
    }

    /// The calls in which threads wait when the recording starts.
    fn waiting(&mut self, start: u64) -> Encoder {
        let mut stream = Encoder::default();
        for tid in self.threads.keys() {
            if let Some(call) = self.kernel.current_call(*tid, &mut self.descriptors) {
                for what in [call, What::Leaves(Leave::Sleeps)] {
                    stream.push(&Event { at: start, thread: *tid, what });
                }
            }
        }
        stream
    }

    /// Processes outside of `pids` whose threads end waits of theirs.
    fn clients(&mut self, pids: &[u32]) -> Result<Vec<u32>, TracerError> {
        self.kernel.switch(true)?;
        std::thread::sleep(PROBE);
        self.kernel.switch(false)?;
        self.kernel.drain(&mut self.descriptors)?;
        let (mut all, mut by) = (0u32, BTreeMap::<u32, u32>::new());
        let of: BTreeSet<u32> = pids.iter().flat_map(|pid| threads(*pid)).collect();
        for event in self.kernel.events() {
            if let Event {
                what: What::Woken { waker, by: WokenBy::Thread | WokenBy::Deferred },
                thread,
                ..
            } = event
                && of.contains(&thread)
            {
                all += 1;
                *by.entry(waker).or_default() += 1;
            }
        }
        self.kernel.forget();
        let mut clients = BTreeMap::<u32, u32>::new();
        for (tid, count) in by {
            if let Some(pid) = process_of(tid).filter(|pid| !pids.contains(pid) && is_program(*pid))
            {
                *clients.entry(pid).or_default() += count;
            }
        }
        let enough = |count: u32| f64::from(count) >= f64::from(all) * CLIENT_SHARE;
        Ok(clients.into_iter().filter(|(_, count)| enough(*count)).map(|(pid, _)| pid).collect())
    }

    /// The rate of context switches with and without recording, in turn.
    fn overhead(&mut self) -> Result<Option<Overhead>, TracerError> {
        let tids = &self.own()[..];
        let mut lost = Vec::new();
        for _ in 0..PAIRS {
            let mut rates = [0.0; 2];
            for (rate, on) in rates.iter_mut().zip([false, true]) {
                self.kernel.switch(on)?;
                let (before, began) = (activity(tids).0, Instant::now());
                std::thread::sleep(INTERVAL);
                let (after, passed) = (activity(tids).0, began.elapsed());
                let switches = after.saturating_sub(before);
                if switches < SWITCHES_MIN {
                    self.kernel.switch(false)?;
                    return Ok(None);
                }
                *rate = switches as f64 / passed.as_secs_f64();
                self.kernel.drain(&mut self.descriptors)?;
                self.kernel.forget();
            }
            self.kernel.switch(false)?;
            lost.push(1.0 - rates[1] / rates[0]);
            if self.stop.load(Ordering::Relaxed) {
                return Err(TracerError::Interrupted);
            }
        }
        let count = lost.len() as f64;
        let mean = lost.iter().sum::<f64>() / count;
        let spread = lost.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (count - 1.0);
        Ok(Some(Overhead { lost: mean, error: (spread / count).sqrt() }))
    }
}

/// Records.
///
/// # Errors
/// Without root, without the process, above the overhead limit, or if interrupted before recording began.
pub fn record(
    wanted: &Wanted,
    (journal, stop): (&Journal, &AtomicBool),
    tell: &mut dyn FnMut(Progress),
) -> Result<Recording, TracerError> {
    if let Some(gone) = wanted.pids.iter().find(|pid| threads(**pid).is_empty()) {
        return Err(TracerError::NoProcess(*gone));
    }
    tell(Progress::Preparing);
    let mut recorder = Recorder {
        kernel: Kernel::prepare(journal)?,
        processes: wanted.pids.iter().map(|pid| (*pid, describe(*pid, false))).collect(),
        threads: BTreeMap::new(),
        seen: Instant::now(),
        descriptors: Descriptors::new(),
        stop,
    };
    recorder.describe();
    for tid in file_system_threads() {
        recorder.threads.insert(tid, describe_thread(tid, 0));
    }
    recorder.add_all()?;
    let clients = recorder.clients(&wanted.pids)?;
    recorder.processes.extend(clients.into_iter().map(|pid| (pid, describe(pid, true))));
    recorder.describe();
    recorder.add_all()?;
    let overhead = recorder.overhead()?;
    if let Some(Overhead { lost, error }) = overhead
        && lost - error > wanted.overhead_max
    {
        let (lost, limit) = (lost * 100.0, wanted.overhead_max * 100.0);
        return Err(TracerError::TooExpensive { lost, limit });
    }
    let (host, cpu) = (host_times(), activity(&recorder.own()).1);
    recorder.kernel.switch(true)?;
    let start = monotonic();
    let waiting = recorder.waiting(start);
    recorder.run(wanted, tell)?;
    let end = monotonic();
    recorder.kernel.switch(false)?;
    recorder.kernel.drain(&mut recorder.descriptors)?;
    let cpu = activity(&recorder.own()).1.saturating_sub(cpu);
    let mut header = recorder.header((start, end), (host, cpu));
    header.overhead = overhead;
    let (mut streams, lost) = recorder.kernel.finish();
    streams.push(waiting);
    header.lost = lost;
    Ok(Recording::new(header, &streams))
}
