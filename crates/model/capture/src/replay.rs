//! Runs the graph of a recording in virtual time on another drive.
//!
//! Invariants: every step runs once, in its thread's order; the clock never goes back. If a cycle of waits is
//! left by an imprecise recording, a wait is ended, and counted.

use std::collections::HashMap;

use device::{Completion, Device, EventQueue, Operation, Request, Stages};
use sim::scheduler::{Key, Next, Scheduler, SchedulerCosts, TaskId, Wait, Waker};
use units::Nanos;

use crate::breakdown::Class;
use crate::graph::{Graph, Step, Track};

/// What a replay assumes about CPU time and CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assume {
    /// CPU times as recorded, with the cost of recording; the recorded order on each CPU.
    Recorded,
    /// The recorded order on each CPU, without the cost of recording.
    Undisturbed,
    /// Without the cost of recording; any thread on any CPU.
    AnyCpu,
    /// As on a drive that hardly makes threads sleep: any thread on any CPU, which never idles; warm caches
    /// (CPU time scaled to the fastest quarter of the responses); a cheap I/O path.
    Fast,
}

impl Assume {
    const fn keeps_order(self) -> bool {
        matches!(self, Self::Recorded | Self::Undisturbed)
    }
}

/// CPU time of recording one event, ns: 0.45 to 0.8 us were measured under MariaDB on a virtual machine.
const EVENT_COST: f64 = 450.0;
/// A thread runs at least this long, ns, before another that is due may take its core.
const GRAIN: u64 = 20_000;
/// Caches are never warmer than this: MariaDB's CPU time per query on tmpfs over that on a disk (22 and 37
/// us, November 2026).
const WARMEST: f64 = 0.6;
/// A stretch of CPU time is replayed in at most about this many pieces.
const PIECES: u64 = 64;
/// CPU time is cut to this share at most.
const LEAST_SHARE: f64 = 0.3;
/// The rate is taken at this share of the foreground's steps: threads that end early leave the rest slower.
pub(crate) const MEASURED: f64 = 0.9;

/// A drive that takes as long as the recorded one.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    times: Vec<u64>,
    events: EventQueue<(u64, Nanos)>,
}

impl Recorded {
    pub fn new(requests: &[crate::segment::Request]) -> Self {
        let time = |one: &crate::segment::Request| {
            one.completed.map_or(0, |at| at.saturating_sub(one.submitted))
        };
        Self { times: requests.iter().map(time).collect(), events: EventQueue::default() }
    }
}

impl Device for Recorded {
    fn submit(&mut self, now: Nanos, request: Request) {
        let time = Nanos(self.times[request.id as usize]);
        self.events.push(now + time, (request.id, time));
    }

    fn next_event(&self) -> Option<Nanos> {
        self.events.next_time()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some((at, (id, time))) = self.events.pop_due(now) {
            done.push(Completion { id, at, stages: Stages::new(time, []) });
        }
    }
}

/// A drive that takes no time.
#[derive(Debug, Default)]
pub(crate) struct ZeroLatency(EventQueue<u64>);

impl Device for ZeroLatency {
    fn submit(&mut self, now: Nanos, request: Request) {
        self.0.push(now, request.id);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.0.next_time()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some((at, id)) = self.0.pop_due(now) {
            done.push(Completion { id, at, stages: Stages::default() });
        }
    }
}

/// How to run it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub cores: usize,
    pub assume: Assume,
    /// Size of the drive in bytes; offsets wrap.
    pub capacity: u64,
}

/// What a replay gave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Outcome {
    /// Time of the measured share of the foreground's steps.
    pub time: f64,
    /// Waits that had to be ended.
    pub forced: u64,
    /// Steps that the foreground has made.
    pub steps: u64,
}

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blocked {
    No,
    Signal(usize),
    Completion(usize),
    Progress(u64),
}

struct Replay<'a, D> {
    graph: &'a Graph,
    settings: Settings,
    device: &'a mut D,
    scheduler: Scheduler,
    /// Next step of each track, and CPU time left of it.
    at: Vec<(usize, u64)>,
    blocked: Vec<Blocked>,
    signalled: Vec<bool>,
    complete: Vec<bool>,
    submitted: Vec<bool>,
    /// Threads that wait for a request.
    waiters: HashMap<usize, Vec<TaskId>>,
    advanced: u64,
    waiting_for_progress: EventQueue<usize>,
    target: u64,
    reached: Option<u64>,
    forced: u64,
    warm: f64,
    path: f64,
}

/// Runs a graph on a drive.
pub(crate) fn replay<D: Device>(graph: &Graph, device: &mut D, settings: Settings) -> Outcome {
    // The recorded order of threads on each CPU already limits how many run at once.
    let cores = if settings.assume.keeps_order() { graph.tracks.len() } else { settings.cores };
    // Times of switching and waking are in the recorded CPU times and wake-ups.
    let mut scheduler = Scheduler::new(cores, SchedulerCosts::FREE);
    for _ in &graph.tracks {
        scheduler.enter();
    }
    let [mean, fast] = graph.cpu;
    let (warm, path) = match settings.assume {
        Assume::Fast if mean > 0.0 => ((fast / mean).clamp(WARMEST, 1.0), graph.cheap_path),
        Assume::Fast => (1.0, graph.cheap_path),
        _ => (1.0, 1.0),
    };
    let mut replay = Replay {
        graph,
        settings,
        device,
        scheduler,
        at: vec![(0, 0); graph.tracks.len()],
        blocked: vec![Blocked::No; graph.tracks.len()],
        signalled: vec![false; graph.signals],
        complete: vec![false; graph.requests.len()],
        submitted: vec![false; graph.requests.len()],
        waiters: HashMap::new(),
        advanced: 0,
        waiting_for_progress: EventQueue::default(),
        target: (graph.advances.len() as f64 * MEASURED) as u64,
        reached: None,
        forced: 0,
        warm,
        path,
    };
    replay.run();
    let time = replay.reached.unwrap_or_else(|| replay.scheduler.now().get());
    Outcome { time: time as f64, forced: replay.forced, steps: replay.advanced }
}

const SIGNALS: u64 = 1 << 62;

impl<D: Device> Replay<'_, D> {
    fn run(&mut self) {
        let mut done = Vec::new();
        while self.reached.is_none() {
            match self.scheduler.next(self.device.next_event()) {
                Next::Run { task, until } => self.advance(task, until),
                Next::Device(at) => {
                    self.device.advance(at, &mut done);
                    for one in done.drain(..) {
                        self.completed(one.id as usize, one.at);
                    }
                }
                Next::Stuck => {
                    if !self.release() {
                        return;
                    }
                }
                Next::Finished => return,
            }
        }
    }

    fn completed(&mut self, index: usize, at: Nanos) {
        self.complete[index] = true;
        for task in self.waiters.remove(&index).unwrap_or_default() {
            if self.blocked[task.0 as usize] == Blocked::Completion(index) {
                self.blocked[task.0 as usize] = Blocked::No;
                self.scheduler.complete(task, at);
            }
        }
    }

    /// Ends a wait, first one for progress; false if nothing waits.
    fn release(&mut self) -> bool {
        let now = self.scheduler.now();
        let first = self.waiting_for_progress.pop_due(Nanos(u64::MAX)).map(|(_, track)| track);
        let waits = |track: &usize| self.blocked[*track] != Blocked::No;
        let Some(track) = first.or_else(|| (0..self.blocked.len()).find(waits)) else {
            return false;
        };
        self.blocked[track] = Blocked::No;
        self.forced += 1;
        self.scheduler.complete(TaskId(track as u32), now);
        true
    }

    /// Runs a thread until it waits, ends, or is past `until`.
    fn advance(&mut self, task: TaskId, until: Nanos) {
        let (track, graph) = (task.0 as usize, self.graph);
        self.blocked[track] = Blocked::No;
        let Track { steps, class } = &graph.tracks[track];
        while self.scheduler.time_of(task) <= until {
            let (index, left) = self.at[track];
            let Some(step) = steps.get(index) else { return self.scheduler.exit(task) };
            if let Step::Cpu { time, .. } = *step {
                let left = if left == 0 { self.cpu(*class, *step) } else { left };
                let now = self.scheduler.time_of(task);
                let grain = GRAIN.max(time / PIECES);
                let slice = left.min(until.since(now).get().max(grain));
                self.scheduler.charge(task, Nanos(slice));
                let rest = left.saturating_sub(slice);
                self.at[track] = if rest == 0 { (index + 1, 0) } else { (index, rest) };
                continue;
            }
            self.at[track] = (index + 1, 0);
            if self.step(task, *step) {
                return;
            }
        }
    }

    fn cpu(&self, class: Class, step: Step) -> u64 {
        let Step::Cpu { time, events, storage } = step else { return 0 };
        if self.settings.assume == Assume::Recorded {
            return time;
        }
        let time = time as f64;
        let scale = match (storage, class) {
            (true, _) => self.path,
            (false, Class::Foreground) => self.warm,
            _ => 1.0,
        };
        ((time - f64::from(events) * EVENT_COST) * scale).max(time * LEAST_SHARE) as u64
    }

    /// Makes one step; returns whether the thread waits.
    fn step(&mut self, task: TaskId, step: Step) -> bool {
        let (track, now) = (task.0 as usize, self.scheduler.time_of(task));
        match step {
            Step::Cpu { .. } => {}
            Step::Submit(index) => self.submit(now, index, track),
            Step::Signal(index) => {
                self.signalled[index] = true;
                self.scheduler.wake(task, Key(SIGNALS + index as u64), 1, Waker::Futex);
            }
            Step::Await(index) if self.signalled[index] => {}
            Step::Await(index) => {
                return self.block(task, Blocked::Signal(index), SIGNALS + index as u64);
            }
            Step::Turn(index) if self.signalled[index] || !self.settings.assume.keeps_order() => {}
            Step::Turn(index) => {
                return self.block(task, Blocked::Signal(index), SIGNALS + index as u64);
            }
            Step::Completion(index) if self.complete[index] => {}
            Step::Completion(index) => {
                self.waiters.entry(index).or_default().push(task);
                self.blocked[track] = Blocked::Completion(index);
                self.scheduler.block(task, &[], None, Wait::Lock);
                return true;
            }
            Step::WakeUp(_) if self.settings.assume == Assume::Fast => {}
            Step::Pause(time) | Step::WakeUp(time) => return self.pause(task, now + Nanos(time)),
            Step::Progress(count) if self.advanced >= count => {}
            Step::Progress(count) => {
                self.waiting_for_progress.push(Nanos(count), track);
                return self.block(task, Blocked::Progress(count), track as u64);
            }
            Step::Advance => self.progress(task, now),
        }
        false
    }

    fn progress(&mut self, task: TaskId, now: Nanos) {
        self.advanced += 1;
        if self.advanced >= self.target {
            self.reached.get_or_insert(now.get());
        }
        while let Some((_, track)) = self.waiting_for_progress.pop_due(Nanos(self.advanced)) {
            if matches!(self.blocked[track], Blocked::Progress(_)) {
                self.blocked[track] = Blocked::No;
                self.scheduler.wake(task, Key(track as u64), 1, Waker::Futex);
            }
        }
    }

    fn block(&mut self, task: TaskId, blocked: Blocked, key: u64) -> bool {
        self.blocked[task.0 as usize] = blocked;
        self.scheduler.block(task, &[Key(key)], None, Wait::Lock);
        true
    }

    fn pause(&mut self, task: TaskId, until: Nanos) -> bool {
        self.scheduler.block(task, &[], Some(until), Wait::Sleep);
        true
    }

    fn submit(&mut self, now: Nanos, index: usize, track: usize) {
        // On behalf of several waiting threads, only once.
        if std::mem::replace(&mut self.submitted[index], true) {
            return;
        }
        let io = self.graph.requests[index].io;
        if self.graph.requests[index].completed.is_none() {
            self.complete[index] = true;
            return;
        }
        let flush = io.operation == Operation::Flush;
        let length = if flush { 0 } else { io.bytes.max(512) };
        let room = self.settings.capacity.saturating_sub(u64::from(length)).max(1);
        let offset = if flush { 0 } else { (io.sector.saturating_mul(512) % room) / 512 * 512 };
        let request = Request {
            id: index as u64,
            operation: io.operation,
            fua: io.durable && !flush,
            offset,
            length,
            queue: track as u16,
        };
        self.device.submit(now, request);
    }
}
