//! What each recorded thread did over time: runs, waits for a CPU, waits for something, in that order.
//!
//! Invariant: the segments of a thread adjoin and cover the recording from its first event on.

use std::collections::{BTreeMap, HashSet};

use device::Operation;

use crate::event::{Call, Event, EventKind, FileKind, Io, SwitchOut, WokenBy};
use crate::format::Header;
use crate::in_flight::{InFlight, drives_of_processes};
use crate::path::{Paths, RequestPath};
use crate::segment::{Activity, Point, Request, Segment, ThreadLine, Waiting, Wake, WakeSource};

/// A recording by thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Threads by ID; those that did nothing are absent.
    pub threads: BTreeMap<u32, ThreadLine>,
    /// Wake-ups among recorded threads.
    pub wakes: Vec<Wake>,
    /// Requests to drives.
    pub requests: Vec<Request>,
    /// Their paths through the kernel: of reads, writes and flushes.
    pub paths: [RequestPath; 3],
}

/// A wait that an interrupt ended within this time of a completion was for that request, ns.
pub(crate) const COMPLETION_LAG: u64 = 200_000;

/// Bytes of a request; drivers split larger ones, and a damaged recording may hold any.
const REQUEST_MAX: u32 = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Since the recording began.
    Unknown,
    /// Since events were lost.
    Lost,
    Running,
    Ready,
    Waiting {
        blocked: bool,
    },
    Ended,
}

#[derive(Debug)]
struct Thread {
    line: ThreadLine,
    state: State,
    since: u64,
    call: Call,
    file: FileKind,
    /// The call before, which the kernel may continue.
    last: (Call, FileKind),
    /// CPU time in the current storage call.
    call_cpu: u64,
    /// Requests that it submitted in this call or page fault.
    pending: Vec<usize>,
    /// What the last of them does.
    submitted: Operation,
    /// When a request of it last completed.
    completion: u64,
    /// The wake-up after which it has not run yet.
    woken: Option<usize>,
}

impl Thread {
    fn close(&mut self, at: u64, doing: Activity) {
        if doing == Activity::CpuInStorageCall {
            self.call_cpu += at.saturating_sub(self.since);
        }
        if at > self.since {
            self.line.segments.push(Segment { from: self.since, to: at, doing });
        }
        self.since = at;
    }

    const fn cpu(&self) -> Activity {
        match (self.call, self.file) {
            (Call::None, _) => Activity::Cpu,
            (Call::Read | Call::Write, FileKind::Data | FileKind::Log) => {
                Activity::CpuInStorageCall
            }
            (Call::Flush | Call::AsyncIo, _) => Activity::CpuInStorageCall,
            _ => Activity::CpuInCall,
        }
    }

    fn sends(&self) -> bool {
        self.call == Call::Write && self.file == FileKind::Socket
    }

    fn receives(&self) -> bool {
        self.call == Call::Poll || self.call == Call::Read && self.file == FileKind::Socket
    }

    /// What the wait that ends now was for.
    fn waited_for(&self, at: u64, blocked: bool, outside: bool) -> Waiting {
        // Completed asynchronous I/O is handled by the thread that submitted it, whatever it waits for.
        let just_now = self.completion.saturating_add(COMPLETION_LAG) >= at;
        let handles_io = outside && just_now && self.completion >= self.since;
        match (self.call, self.file) {
            (Call::Lock | Call::Poll, _) if handles_io => Waiting::AsyncIo,
            (Call::Read | Call::Write, FileKind::Socket | FileKind::Other) => Waiting::Message,
            (Call::Poll, _) => Waiting::Message,
            (Call::Read, _) => Waiting::Read,
            (Call::Write, _) => Waiting::Write,
            (Call::Flush, FileKind::Log) => Waiting::LogFlush,
            (Call::Flush, _) => Waiting::Flush,
            (Call::AsyncIo, _) => Waiting::AsyncIo,
            (Call::Lock, _) if outside => Waiting::Timer,
            (Call::Lock, _) => Waiting::Lock,
            (Call::Sleep, _) => Waiting::Timer,
            // A page fault, or a thread of the kernel.
            (Call::None, _) if !self.pending.is_empty() => match self.submitted {
                Operation::Read => Waiting::Read,
                Operation::Flush => Waiting::Flush,
                _ => Waiting::Write,
            },
            (Call::None, _) if blocked => Waiting::Kernel,
            (Call::None, _) => Waiting::Other,
        }
    }

    /// Ends the current state at `at`.
    fn leave(&mut self, at: u64, ended: WakeSource) {
        match self.state {
            State::Running => self.close(at, self.cpu()),
            State::Ready => self.close(at, Activity::RunQueue(None)),
            State::Waiting { blocked } => {
                let waiting = self.waited_for(at, blocked, ended == WakeSource::Outside);
                self.close(at, Activity::Waits(waiting, ended));
                // A page fault is over.
                if self.call == Call::None {
                    self.pending.clear();
                }
            }
            State::Unknown | State::Lost => self.close(at, Activity::Waits(Waiting::Other, ended)),
            State::Ended => self.since = at,
        }
    }
}

struct Builder<'a> {
    header: &'a Header,
    threads: BTreeMap<u32, Thread>,
    wakes: Vec<Wake>,
    requests: Vec<Request>,
    /// Drives that the processes use, themselves or through threads of the kernel; others have other users.
    used: HashSet<u32>,
    in_flight: InFlight,
    paths: Paths,
    /// Streams that have a gap now. Events of the others say too little about a thread.
    gaps: u32,
}

impl Timeline {
    /// Orders the events of a recording by thread. Costs about 100 ns an event.
    #[must_use]
    pub fn new(header: &Header, events: &[Event]) -> Self {
        let fresh = |tid: &u32| {
            let thread = Thread {
                line: ThreadLine::default(),
                state: State::Unknown,
                since: header.start,
                call: Call::None,
                file: FileKind::Data,
                last: (Call::None, FileKind::Data),
                call_cpu: 0,
                pending: Vec::new(),
                submitted: Operation::Read,
                completion: 0,
                woken: None,
            };
            (*tid, thread)
        };
        let tids: Vec<u32> = header.thread.iter().map(|one| one.tid).collect();
        let mut builder = Builder {
            header,
            threads: tids.iter().map(fresh).collect(),
            wakes: Vec::new(),
            requests: Vec::new(),
            used: drives_of_processes(header, events),
            in_flight: InFlight::default(),
            paths: Paths::default(),
            gaps: 0,
        };
        events.iter().filter(|one| one.at <= header.last()).for_each(|event| builder.add(event));
        builder.finish()
    }
}

impl Builder<'_> {
    fn add(&mut self, event: &Event) {
        let at = event.at.max(self.header.start);
        match event.what {
            EventKind::Lost => return self.lose(at),
            EventKind::Recovered => {
                self.gaps = self.gaps.saturating_sub(1);
                return;
            }
            _ if self.gaps > 0 => return,
            // The drives' events are enabled first, one after the other: completions may be missing.
            EventKind::Submits(io) | EventKind::Issues(io) | EventKind::Completes(io)
                if event.at < self.header.start || !self.used.contains(&io.drive) =>
            {
                return;
            }
            EventKind::Submits(io) => return self.submit(at, event.thread, io),
            EventKind::Issues(io) => {
                self.in_flight.issued(io).for_each(|index| self.paths.issue(at, index));
                return;
            }
            EventKind::Completes(io) => return self.complete(at, io),
            EventKind::Woken { waker, by } => return self.wake(at, event.thread, (waker, by)),
            _ => {}
        }
        if let EventKind::Runs { after } = event.what {
            return self.run(at, event.thread, after);
        }
        // Linux does not report every switch from an idle CPU.
        if self.threads.get(&event.thread).is_some_and(|thread| thread.state == State::Ready) {
            self.run(at, event.thread, 0);
        }
        self.on_cpu(at, event);
    }

    /// An event of a thread that has a CPU.
    fn on_cpu(&mut self, at: u64, event: &Event) {
        let Some(thread) = self.threads.get_mut(&event.thread) else { return };
        thread.line.events += 1;
        match event.what {
            EventKind::Enters { call, .. } if call != Call::None => {
                self.paths.enter(at, event.thread, call);
            }
            EventKind::Returns => self.paths.leave(at, event.thread),
            _ => {}
        }
        match event.what {
            EventKind::Leaves(leave) => {
                if thread.state == State::Unknown {
                    thread.state = State::Running;
                }
                thread.leave(at, WakeSource::Outside);
                thread.state = match leave {
                    SwitchOut::Preempted => State::Ready,
                    SwitchOut::Sleeps => State::Waiting { blocked: false },
                    SwitchOut::Blocks => State::Waiting { blocked: true },
                    SwitchOut::Ends => State::Ended,
                };
            }
            EventKind::Enters { call, file, .. } => {
                thread.leave(at, WakeSource::Outside);
                let (call, file) = if call == Call::None { thread.last } else { (call, file) };
                (thread.state, thread.call, thread.file) = (State::Running, call, file);
                thread.call_cpu = 0;
                if call == Call::Write && file == FileKind::Socket {
                    thread.line.sends += 1;
                    thread.line.points.push((at, Point::Sends));
                }
            }
            EventKind::Returns => {
                thread.leave(at, WakeSource::Outside);
                let waits = matches!(thread.call, Call::Read | Call::Write | Call::Flush);
                if !thread.pending.is_empty() {
                    thread.line.io_cpu += thread.call_cpu;
                    thread.line.io_requests += thread.pending.len() as u64;
                }
                if waits && !thread.pending.is_empty() {
                    thread.line.points.push((at, Point::Synchronous));
                }
                // The kernel merges flushes and then completes only one of them.
                for index in thread.pending.drain(..).filter(|_| thread.call == Call::Flush) {
                    let request = &mut self.requests[index];
                    if request.io.operation == Operation::Flush {
                        request.completed.get_or_insert(at);
                    }
                }
                thread.last = (thread.call, thread.file);
                (thread.state, thread.call) = (State::Running, Call::None);
            }
            _ => {}
        }
    }

    /// Events were lost: nothing is known about any thread until its next one.
    fn lose(&mut self, at: u64) {
        self.gaps = self.gaps.saturating_add(1);
        self.paths.lose();
        // Completions may be among them.
        for index in self.in_flight.clear() {
            self.requests[index].completed.get_or_insert(at);
        }
        let known = |one: &&mut Thread| !matches!(one.state, State::Ended | State::Lost);
        let mut woken = Vec::new();
        for thread in self.threads.values_mut().filter(known) {
            thread.leave(at, WakeSource::Outside);
            // Its wake-up happened, whatever it did then.
            if let Some(index) = thread.woken.take() {
                woken.push(index);
            }
            (thread.state, thread.call) = (State::Lost, Call::None);
            thread.pending.clear();
        }
        for index in woken {
            let Wake { at, by } = self.wakes[index];
            if let Some(waker) = self.threads.get_mut(&by) {
                waker.line.points.push((at, Point::Wakes(index)));
            }
        }
    }

    fn wake(&mut self, at: u64, tid: u32, (waker, by): (u32, WokenBy)) {
        // A message over loopback arrives in a deferred interrupt of its sender; so do completions, which end
        // other waits.
        let receives = self.threads.get(&tid).is_some_and(Thread::receives);
        let by_thread = waker != tid
            && self.threads.get(&waker).is_some_and(|thread| match by {
                WokenBy::Thread => true,
                WokenBy::Deferred => receives && thread.sends(),
                WokenBy::Interrupt => false,
            });
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        thread.line.events += 1;
        if !matches!(thread.state, State::Waiting { .. } | State::Unknown | State::Lost) {
            return;
        }
        let ended = if by_thread { WakeSource::By(self.wakes.len()) } else { WakeSource::Outside };
        thread.leave(at, ended);
        thread.state = State::Ready;
        if by_thread {
            thread.woken = Some(self.wakes.len());
            self.wakes.push(Wake { at, by: waker });
        }
    }

    /// A thread has a CPU after another thread, or after none.
    fn run(&mut self, at: u64, tid: u32, after: u32) {
        self.paths.run(at, tid);
        let after_recorded = self.threads.contains_key(&after);
        let behind_waker = self.signal(at, tid, after);
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        // One event says who leaves and who runs.
        thread.line.events += u64::from(!after_recorded);
        if thread.state == State::Unknown {
            // It began now, or nothing is known about the time before.
            thread.since = at;
        }
        match thread.state {
            State::Ready if after == 0 => thread.close(at, Activity::WakeUp),
            State::Ready if !after_recorded => thread.close(at, Activity::Neighbour),
            State::Ready if !behind_waker && after != tid => {
                let index = self.wakes.len();
                self.wakes.push(Wake { at, by: after });
                thread.close(at, Activity::RunQueue(Some(index)));
                thread.state = State::Running;
                if let Some(other) = self.threads.get_mut(&after) {
                    other.line.points.push((at, Point::Wakes(index)));
                }
                return;
            }
            _ => thread.leave(at, WakeSource::Outside),
        }
        thread.state = State::Running;
    }

    /// A thread runs for the first time after another woke it. If it waited until its waker left the CPU,
    /// that moment counts, and this returns true: the kernel often wakes a thread on the waker's CPU.
    fn signal(&mut self, at: u64, tid: u32, after: u32) -> bool {
        let woken = self.threads.get_mut(&tid).and_then(|thread| thread.woken.take());
        let Some(index) = woken else { return false };
        let wake = self.wakes[index];
        let behind_waker = wake.by == after;
        let at = if behind_waker { at } else { wake.at };
        if let Some(waker) = self.threads.get_mut(&wake.by) {
            waker.line.points.push((at, Point::Wakes(index)));
        }
        behind_waker
    }

    fn submit(&mut self, at: u64, tid: u32, io: Io) {
        if self.threads.get(&tid).is_some_and(|thread| thread.state == State::Ready) {
            self.run(at, tid, 0);
        }
        let index = self.requests.len();
        self.in_flight.add(index, io);
        let io = Io { bytes: io.bytes.min(REQUEST_MAX), ..io };
        self.requests.push(Request { io, thread: tid, submitted: at, completed: None });
        self.paths.submit(at, tid, (index, io.operation));
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.line.events += 1;
            thread.pending.push(index);
            thread.submitted = io.operation;
            thread.line.points.push((at, Point::Submits(index)));
        }
    }

    fn complete(&mut self, at: u64, io: Io) {
        let requests = &self.requests;
        let open = |index: usize| requests[index].completed.is_none();
        for index in self.in_flight.complete(io, open) {
            self.requests[index].completed = Some(at);
            if let Some(thread) = self.threads.get_mut(&self.requests[index].thread) {
                let waits = matches!(thread.state, State::Waiting { .. });
                self.paths.complete(at, index, waits);
                thread.completion = at;
            }
        }
    }

    fn finish(mut self) -> Timeline {
        let end = self.header.last();
        self.threads.retain(|_, thread| thread.line.events > 0);
        for thread in self.threads.values_mut().filter(|one| one.state != State::Ended) {
            // A wait that is not over was not ended by a timer.
            thread.leave(end, WakeSource::Outside);
        }
        // A submission is reported from another instance's buffer, in order of its own time.
        let threads = self.threads.into_iter().map(|(tid, mut thread)| {
            thread.line.points.sort_by_key(|(at, _)| *at);
            (tid, thread.line)
        });
        Timeline {
            threads: threads.collect(),
            wakes: self.wakes,
            requests: self.requests,
            paths: self.paths.sums,
        }
    }
}
