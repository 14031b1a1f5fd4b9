//! A recording from start to end: find the clients, measure what recording costs, record.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use capture::{
    Call, EVENTS_MAX, Encoder, Event, EventKind, FileKind, Header, Overhead, Process, Recording,
    SwitchOut, Thread, WokenBy,
};
use observe::{HostCpu, monotonic};
use stack::{Journal, StackError};
use thiserror::Error;
use units::Nanos;

use crate::kernel::{Kernel, describe_drive};
use crate::processes::{
    Activity, Descriptors, children, describe, describe_thread, file_system_threads, is_program,
    process_of, started, threads,
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
/// Most processes of a recording.
const PROCESSES_MAX: usize = 4096;
/// Context switches per interval below which their rate says nothing.
const SWITCHES_MIN: u64 = 100;

/// What to record.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// Processes.
    pub pids: Vec<u32>,
    /// How long.
    pub time: Duration,
    /// Stop before recording if it costs more than this share of the rate.
    pub overhead_max: f64,
    /// End when the recording has this many bytes.
    pub bytes_max: usize,
    /// Record at once: no clients are sought and the cost is not measured.
    pub at_once: bool,
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
    /// All processes ended while the cost was measured.
    #[error("the process ended before the recording began")]
    Ended,
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

/// The host and the recorded threads when recording starts.
struct Before {
    /// On the clock of the events.
    start: u64,
    host: HostCpu,
    activity: Activity,
}

struct Recorder<'a> {
    kernel: Kernel,
    /// The processes to record, with their start times: numbers are used again.
    wanted: Vec<(u32, u64)>,
    /// Processes and threads, described while they exist.
    processes: BTreeMap<u32, Process>,
    threads: BTreeMap<u32, Thread>,
    seen: Instant,
    descriptors: Descriptors,
    stop: &'a AtomicBool,
}

impl Recorder<'_> {
    /// Records for `time`, or until a stop, the end of all `pids`, or `bytes_max`.
    fn run(&mut self, wanted: &RecordOptions, tell: &mut dyn FnMut(Progress)) -> io::Result<()> {
        let began = Instant::now();
        loop {
            std::thread::sleep(ROUND);
            self.descriptors.refresh();
            if self.seen.elapsed() > SEEN_AGAIN {
                self.describe();
            }
            let (bytes, events) = self.kernel.drain(&mut self.descriptors)?;
            let passed = began.elapsed();
            tell(Progress::Recording(passed.as_secs_f64() / wanted.time.as_secs_f64()));
            let full = bytes >= wanted.bytes_max || events >= EVENTS_MAX * 9 / 10;
            let over = passed >= wanted.time || full;
            let gone = self.wanted.iter().all(|(pid, began)| started(*pid) != Some(*began));
            if over || gone || self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    }

    /// Describes threads and child processes that began since the last call.
    fn describe(&mut self) {
        self.seen = Instant::now();
        let database = self.processes.values().filter(|one| !one.client).map(|one| one.pid);
        let mut parents: Vec<u32> = database.collect();
        while let Some(parent) = parents.pop() {
            for child in children(parent) {
                let new = !self.processes.contains_key(&child) && child != std::process::id();
                if new && self.processes.len() < PROCESSES_MAX {
                    self.processes.insert(child, describe(child, false));
                    parents.push(child);
                }
            }
        }
        for pid in self.processes.keys() {
            for tid in threads(*pid) {
                self.threads.entry(tid).or_insert_with(|| describe_thread(tid, *pid));
            }
        }
        self.descriptors.own(self.threads.keys().copied(), self.processes.keys().copied());
    }

    /// Records all described threads from now on, and `others`.
    fn choose(&self, others: &[u32]) -> Result<(), StackError> {
        let tids = self.threads.keys().chain(others).copied();
        self.kernel.choose(&tids.collect::<Vec<_>>())
    }

    /// Threads of the recorded processes.
    fn own(&self) -> impl Iterator<Item = u32> {
        self.threads.values().filter(|one| one.pid != 0).map(|one| one.tid)
    }

    /// Facts about the recording that ends at `end`.
    fn header(&self, before: &Before, end: u64) -> Header {
        let (mut tids, mut disks) = (BTreeSet::new(), BTreeSet::new());
        for event in self.kernel.streams().flatten() {
            match event.what {
                EventKind::Submits(io) => {
                    disks.insert(io.drive);
                }
                EventKind::Runs { .. } | EventKind::Leaves(_) | EventKind::Enters { .. } => {
                    tids.insert(event.thread);
                }
                _ => {}
            }
        }
        let (host, length) = (HostCpu::now(), Nanos(end - before.start));
        let own = Nanos(Activity::of(self.own()).since(&before.activity).1);
        let busy = host.busy_since(&before.host, own, length);
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let active = self.threads.values().filter(|one| tids.contains(&one.tid));
        Header {
            kernel: release.trim().to_owned(),
            cpus: host.online(),
            start: before.start,
            end,
            lost: 0,
            other_requests: self.kernel.other_requests,
            other_load: busy.map_or(0.0, |(_, others)| others),
            overhead: None,
            process: self.processes.values().cloned().collect(),
            thread: active.cloned().collect(),
            disk: disks.into_iter().map(describe_drive).collect(),
        }
    }

    /// The calls in which threads wait when the recording starts.
    fn waiting(&mut self, start: u64) -> Encoder {
        let mut stream = Encoder::default();
        for tid in self.threads.keys() {
            if let Some(call) = self.kernel.current_call(*tid, &mut self.descriptors) {
                for what in [call, EventKind::Leaves(SwitchOut::Sleeps)] {
                    stream.push(&Event { at: start, thread: *tid, what });
                }
            }
        }
        stream
    }

    /// Programs that send messages to the database: of those that end waits of it, the ones that do so while
    /// they write to a socket and it waits for a message. Completions of requests also end waits, in whatever
    /// program runs.
    fn clients(&mut self) -> Result<Vec<u32>, TracerError> {
        let wakers = self.wakers(|_, _| true)?;
        let threads: Vec<u32> = wakers.iter().flat_map(|pid| threads(*pid)).collect();
        self.choose(&threads)?;
        let sends = |waker, woken| {
            let receives = matches!(
                woken,
                Some((Call::Poll, _) | (Call::Read, FileKind::Socket | FileKind::Other))
            );
            receives && waker == Some((Call::Write, FileKind::Socket))
        };
        let clients = self.wakers(sends)?;
        self.choose(&[])?;
        Ok(clients)
    }

    /// Programs that end a share of the database's waits; only of those that `counts` accepts, by the calls
    /// of both threads.
    fn wakers(
        &mut self,
        counts: impl Fn(Option<(Call, FileKind)>, Option<(Call, FileKind)>) -> bool,
    ) -> Result<Vec<u32>, TracerError> {
        self.kernel.switch(true)?;
        std::thread::sleep(PROBE);
        self.kernel.switch(false)?;
        self.kernel.drain(&mut self.descriptors)?;
        let own: BTreeSet<u32> = self.own().collect();
        let mut events: Vec<Event> = self.kernel.streams().flatten().collect();
        events.sort_by_key(|event| event.at);
        let (mut all, mut by) = (0u32, BTreeMap::<u32, u32>::new());
        let mut calls = BTreeMap::new();
        for Event { thread, what, .. } in events {
            match what {
                EventKind::Enters { call, file } => drop(calls.insert(thread, (call, file))),
                EventKind::Returns => drop(calls.remove(&thread)),
                EventKind::Woken { waker, by: WokenBy::Thread | WokenBy::Deferred }
                    if own.contains(&thread)
                        && counts(calls.get(&waker).copied(), calls.get(&thread).copied()) =>
                {
                    all += 1;
                    *by.entry(waker).or_default() += 1;
                }
                _ => {}
            }
        }
        self.kernel.forget();
        let mut wakers = BTreeMap::<u32, u32>::new();
        for (tid, count) in by {
            let other = |pid: &u32| !self.processes.contains_key(pid) && is_program(*pid);
            if let Some(pid) = process_of(tid).filter(other) {
                *wakers.entry(pid).or_default() += count;
            }
        }
        let enough = |count: u32| f64::from(count) >= f64::from(all) * CLIENT_SHARE;
        Ok(wakers.into_iter().filter(|(_, count)| enough(*count)).map(|(pid, _)| pid).collect())
    }

    /// The rate of context switches with and without recording, in turn.
    fn overhead(&mut self) -> Result<Option<Overhead>, TracerError> {
        let mut lost = Vec::new();
        for _ in 0..PAIRS {
            let mut rates = [0.0; 2];
            for (rate, on) in rates.iter_mut().zip([false, true]) {
                self.kernel.switch(on)?;
                self.describe();
                let (before, began) = (Activity::of(self.own()), Instant::now());
                // Reading the buffers is part of the cost.
                while began.elapsed() < INTERVAL {
                    std::thread::sleep(ROUND);
                    self.kernel.drain(&mut self.descriptors)?;
                }
                self.describe();
                let (after, passed) = (Activity::of(self.own()), began.elapsed());
                if on {
                    self.kernel.switch(false)?;
                    self.kernel.drain(&mut self.descriptors)?;
                }
                self.kernel.forget();
                let switches = after.since(&before).0;
                if switches < SWITCHES_MIN {
                    return Ok(None);
                }
                *rate = switches as f64 / passed.as_secs_f64();
            }
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
    wanted: &RecordOptions,
    (journal, stop): (&Journal, &AtomicBool),
    tell: &mut dyn FnMut(Progress),
) -> Result<Recording, TracerError> {
    if let Some(gone) = wanted.pids.iter().find(|pid| started(**pid).is_none()) {
        return Err(TracerError::NoProcess(*gone));
    }
    tell(Progress::Preparing);
    let mut recorder = Recorder {
        kernel: Kernel::prepare(journal)?,
        wanted: wanted.pids.iter().filter_map(|pid| Some((*pid, started(*pid)?))).collect(),
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
    recorder.choose(&[])?;
    let mut overhead = None;
    if !wanted.at_once {
        let clients = recorder.clients()?;
        recorder.processes.extend(clients.into_iter().map(|pid| (pid, describe(pid, true))));
        recorder.describe();
        recorder.choose(&[])?;
        overhead = recorder.overhead()?;
    }
    if let Some(Overhead { lost, error }) = overhead
        && lost - error > wanted.overhead_max
    {
        let (lost, limit) = (lost * 100.0, wanted.overhead_max * 100.0);
        return Err(TracerError::TooExpensive { lost, limit });
    }
    let ended = |(pid, began): &(u32, u64)| started(*pid) != Some(*began);
    if recorder.wanted.iter().all(ended) {
        return Err(TracerError::Ended);
    }
    let (host, activity) = (HostCpu::now(), Activity::of(recorder.own()));
    recorder.kernel.switch(true)?;
    let before = Before { start: monotonic(), host, activity };
    let waiting = recorder.waiting(before.start);
    recorder.run(wanted, tell)?;
    let end = monotonic();
    recorder.kernel.switch(false)?;
    recorder.kernel.drain(&mut recorder.descriptors)?;
    let mut header = recorder.header(&before, end);
    header.overhead = overhead;
    let (mut streams, lost) = recorder.kernel.finish();
    streams.push(waiting);
    header.lost = lost;
    Ok(Recording::new(header, &streams))
}
