//! Where the time of each class of threads went, and what the drives did.
//!
//! Invariant: the parts of a class sum to its threads' time.

use std::collections::BTreeMap;

use device::Operation;

use crate::format::Header;
use crate::segment::{Activity, Segment, ThreadLine, Waiting, WakeSource};
use crate::timeline::Timeline;

/// A class of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Threads of the database that answer requests; in an embedded database, the program's busy threads.
    Foreground,
    /// Other threads of the database.
    Background,
    /// Processes that send requests from this host.
    Client,
    /// Threads of the kernel that commit file systems.
    FileSystem,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 4] = [Self::Foreground, Self::Background, Self::Client, Self::FileSystem];
}

/// A part of a thread's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Own code.
    Cpu,
    /// System calls that read, write or flush files.
    CpuInStorageCalls,
    /// Other recorded system calls.
    CpuInCalls,
    /// Ready, while another recorded thread has the CPU.
    RunQueue,
    /// Ready, while a thread that is not recorded has the CPU.
    Neighbour,
    /// Ready, until an idle CPU takes it.
    WakeUp,
    /// A wait.
    Wait(Waiting),
}

impl Part {
    /// Every part, in the order of a table.
    pub const ALL: [Self; 16] = [
        Self::Cpu,
        Self::CpuInStorageCalls,
        Self::CpuInCalls,
        Self::RunQueue,
        Self::Neighbour,
        Self::WakeUp,
        Self::Wait(Waiting::Read),
        Self::Wait(Waiting::Write),
        Self::Wait(Waiting::Flush),
        Self::Wait(Waiting::LogFlush),
        Self::Wait(Waiting::AsyncIo),
        Self::Wait(Waiting::Lock),
        Self::Wait(Waiting::Message),
        Self::Wait(Waiting::Timer),
        Self::Wait(Waiting::Kernel),
        Self::Wait(Waiting::Other),
    ];

    /// Name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::CpuInStorageCalls => "CPU in storage calls",
            Self::CpuInCalls => "CPU in other calls",
            Self::RunQueue => "run queue",
            Self::Neighbour => "other programs",
            Self::WakeUp => "wake-up latency",
            Self::Wait(Waiting::Read) => "read",
            Self::Wait(Waiting::Write) => "write",
            Self::Wait(Waiting::Flush) => "flush",
            Self::Wait(Waiting::LogFlush) => "log flush",
            Self::Wait(Waiting::AsyncIo) => "asynchronous I/O",
            Self::Wait(Waiting::Lock) => "other threads",
            Self::Wait(Waiting::Message) => "messages",
            Self::Wait(Waiting::Timer) => "timer",
            Self::Wait(Waiting::Kernel) => "kernel",
            Self::Wait(Waiting::Other) => "unattributed",
        }
    }

    const fn of(doing: Activity) -> Self {
        match doing {
            Activity::Cpu => Self::Cpu,
            Activity::CpuInStorageCall => Self::CpuInStorageCalls,
            Activity::CpuInCall => Self::CpuInCalls,
            Activity::RunQueue(_) => Self::RunQueue,
            Activity::Neighbour => Self::Neighbour,
            Activity::WakeUp => Self::WakeUp,
            Activity::Waits(waiting, _) => Self::Wait(waiting),
        }
    }
}

/// Nanoseconds by part.
pub type Parts = BTreeMap<Part, u64>;

/// The time of a class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassTime {
    /// Threads that did anything.
    pub threads: u32,
    /// Their time.
    pub parts: Parts,
    /// Waits for other threads, by what the thread that ended the wait did meanwhile.
    pub behind: Parts,
    /// Messages that they sent.
    pub sends: u64,
}

impl ClassTime {
    /// All parts together, ns.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.parts.values().sum()
    }

    /// Share of one part.
    #[must_use]
    pub fn share(&self, part: Part) -> f64 {
        let part = self.parts.get(&part).copied().unwrap_or_default();
        part as f64 / self.total().max(1) as f64
    }
}

/// A class of requests of a drive.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Requests {
    /// Completed requests.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests by size in bytes.
    pub sizes: BTreeMap<u32, u64>,
    /// Their times from submission to completion, ns, sorted.
    pub times: Vec<u64>,
}

impl Requests {
    /// The time that `share` of the requests did not exceed; `None` if fewer than one is expected above.
    #[must_use]
    pub fn percentile(&self, share: f64) -> Option<u64> {
        if (1.0 - share) * (self.times.len() as f64) < 1.0 {
            return None;
        }
        let rank = (self.times.len() as f64 * share).ceil() as usize;
        self.times.get(rank.clamp(1, self.times.len().max(1)) - 1).copied()
    }
}

/// What a drive did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DriveLoad {
    /// Reads, writes, flushes.
    pub kinds: [Requests; 3],
    /// Mean number of requests in flight.
    pub depth: f64,
    /// Writes that have to be durable.
    pub durable: u64,
}

/// The answer to "where did the time go".
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Breakdown {
    /// By class.
    pub classes: BTreeMap<Class, ClassTime>,
    /// Foreground time in equal intervals of the recording.
    pub intervals: Vec<Parts>,
    /// By device number; only drives that recorded threads used.
    pub drives: BTreeMap<u32, DriveLoad>,
}

/// Intervals of the time axis.
const INTERVALS: u64 = 12;
/// Shares of the busiest sender, and of the recording, from which a thread counts as foreground.
const SENDER_SHARE: f64 = 0.02;
const BUSY_SHARE: f64 = 0.2;
/// How many waits are followed from waiter to waker.
const DEPTH: u32 = 3;

/// Class of each thread.
#[must_use]
pub fn classes(header: &Header, timeline: &Timeline) -> BTreeMap<u32, Class> {
    let client = |pid: u32| header.process.iter().any(|one| one.pid == pid && one.client);
    let own: Vec<_> = header.thread.iter().filter(|one| one.pid != 0 && !client(one.pid)).collect();
    let line = |tid: u32| timeline.threads.get(&tid);
    let most =
        own.iter().filter_map(|one| line(one.tid)).map(|line| line.sends).max().unwrap_or_default();
    let length = header.length().get().max(1) as f64;
    let busy = |line: &ThreadLine| {
        let idle = |segment: &&Segment| {
            let idle = [Waiting::Lock, Waiting::Message, Waiting::Timer, Waiting::Other];
            !matches!(segment.doing, Activity::Waits(waiting, _) if idle.contains(&waiting))
        };
        line.segments.iter().filter(idle).map(|one| one.to - one.from).sum::<u64>() as f64 / length
    };
    let is_server = most >= 10;
    let class = |one: &crate::format::Thread| match line(one.tid) {
        _ if one.pid == 0 => Class::FileSystem,
        _ if client(one.pid) => Class::Client,
        Some(line) if is_server && line.sends as f64 >= most as f64 * SENDER_SHARE => {
            Class::Foreground
        }
        // The background threads of RocksDB carry its name.
        Some(line)
            if !is_server && busy(line) >= BUSY_SHARE && !one.name.starts_with("rocksdb:") =>
        {
            Class::Foreground
        }
        _ => Class::Background,
    };
    header.thread.iter().map(|one| (one.tid, class(one))).collect()
}

/// Adds what a thread did between two instants; waits for other threads are followed to those.
fn follow(timeline: &Timeline, (tid, from, to): (u32, u64, u64), depth: u32, into: &mut Parts) {
    let Some(line) = timeline.threads.get(&tid) else { return };
    let first = line.segments.partition_point(|one| one.to <= from);
    for segment in line.segments[first..].iter().take_while(|one| one.from < to) {
        let (from, to) = (segment.from.max(from), segment.to.min(to));
        match segment.doing {
            Activity::Waits(Waiting::Lock, WakeSource::By(wake)) if depth > 0 => {
                follow(timeline, (timeline.wakes[wake].by, from, to), depth - 1, into);
            }
            doing => *into.entry(Part::of(doing)).or_default() += to - from,
        }
    }
}

impl Breakdown {
    /// Of a recording.
    #[must_use]
    pub fn new(header: &Header, timeline: &Timeline) -> Self {
        let classes = classes(header, timeline);
        let mut found =
            Self { intervals: vec![Parts::new(); INTERVALS as usize], ..Self::default() };
        let step = header.length().get().div_ceil(INTERVALS).max(1);
        for (tid, line) in &timeline.threads {
            let class = classes.get(tid).copied().unwrap_or(Class::Background);
            let time = found.classes.entry(class).or_default();
            time.threads += 1;
            time.sends += line.sends;
            for segment in &line.segments {
                let part = Part::of(segment.doing);
                *time.parts.entry(part).or_default() += segment.to - segment.from;
                if let Activity::Waits(Waiting::Lock, WakeSource::By(wake)) = segment.doing {
                    let waker = (timeline.wakes[wake].by, segment.from, segment.to);
                    follow(timeline, waker, DEPTH, &mut time.behind);
                }
                if class == Class::Foreground {
                    spread(segment, part, (header.start, step), &mut found.intervals);
                }
            }
        }
        found.drives = drives(header, timeline);
        found
    }
}

/// Adds a segment to the intervals that it covers.
fn spread(segment: &Segment, part: Part, (start, step): (u64, u64), intervals: &mut [Parts]) {
    let mut from = segment.from;
    while from < segment.to {
        let index = (from - start) / step;
        let to = segment.to.min(start + (index + 1) * step);
        if let Some(interval) = intervals.get_mut(index as usize) {
            *interval.entry(part).or_default() += to - from;
        }
        from = to;
    }
}

fn drives(header: &Header, timeline: &Timeline) -> BTreeMap<u32, DriveLoad> {
    let mut loads: BTreeMap<u32, DriveLoad> = BTreeMap::new();
    for request in &timeline.requests {
        let Some(completed) = request.completed else { continue };
        let load = loads.entry(request.io.drive).or_default();
        let kind = match request.io.operation {
            Operation::Read => 0,
            Operation::Flush => 2,
            Operation::Write => 1,
            Operation::Discard | Operation::WriteZeroes => continue,
        };
        load.durable += u64::from(kind == 1 && request.io.durable);
        let (kind, took) = (&mut load.kinds[kind], completed - request.submitted.min(completed));
        kind.count += 1;
        kind.bytes += u64::from(request.io.bytes);
        *kind.sizes.entry(request.io.bytes).or_default() += 1;
        kind.times.push(took);
        load.depth += took as f64;
    }
    for load in loads.values_mut() {
        load.depth /= header.length().get().max(1) as f64;
        load.kinds.iter_mut().for_each(|kind| kind.times.sort_unstable());
    }
    loads
}
