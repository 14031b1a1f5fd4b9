//! The event loop of an attached disk: requests of the kernel in, answers at the model's time out.
//!
//! One thread, woken by requests and by time alike: it sleeps until shortly before something is due, or
//! until a request comes, and looks actively for the last instants. Data are written when a write arrives
//! and read when a read is answered, so that an answer never shows less than what was acknowledged.
//! Invariants: each request is answered once; after warm-up nothing is allocated. What it is not: the
//! model.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use device::{Completion, Device, Operation, Request};
use realtime::RealTime;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use stats::Histogram;
use units::Nanos;

use crate::fidelity::{Fidelity, Served};
use crate::follow::Follower;
use crate::store::Store;
use crate::wire::{
    Answer, Asked, Attributes, FILE, Message, NAME, REQUEST_MAX, ROOT, TRANSFER_MAX,
};

/// Requests that are taken before what is due is looked at again.
const BATCH: usize = 32;
/// With no more requests under way than this, it is served where the client runs.
const FEW: usize = 2;
/// How often what was served is told.
const TELL: Nanos = Nanos::from_millis(100);

/// What the thread that serves shares with the one that attached.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Whether the model times requests; until then they are answered at once, to find out what the way
    /// takes.
    pub timed: AtomicBool,
    /// What the way takes, nanoseconds; known once requests are timed.
    pub floor: AtomicU64,
    /// Whether to end, though it may still be mounted elsewhere.
    pub stop: AtomicBool,
    /// What was served, every tenth of a second.
    pub served: Mutex<Served>,
}

impl Told {
    pub fn served(&self) -> Served {
        *self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How to serve.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub scale: u32,
    /// Waits shorter than this are spent looking.
    pub spin: Nanos,
    /// What the way to a real device takes.
    pub path: Nanos,
}

/// A request that is with the model.
#[derive(Debug, Clone, Copy)]
struct Slot {
    unique: u64,
    operation: Operation,
    offset: u64,
    length: u32,
    /// Of the answer to a failed write.
    error: Option<i32>,
    told: Nanos,
    arrived: Instant,
}

pub(crate) struct Server<D> {
    fuse: OwnedFd,
    store: Store,
    clock: RealTime<D>,
    pace: Pace,
    /// What the way takes; none until it is known.
    floor: Option<Nanos>,
    /// What of it passes outside of this thread.
    outside: Nanos,
    /// What passed inside of it while the way was measured.
    inside: Histogram,
    /// When the last request was read.
    read: Instant,
    /// Time that this thread waited for a processor: before, and when that was last looked at.
    delay: (Nanos, Nanos),
    told: Arc<Told>,
    owner: (u32, u32),
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    done: Vec<Completion>,
    answer: Answer,
    fidelity: Fidelity,
    follower: Follower,
    began: Instant,
    last_told: Nanos,
    cpu: Nanos,
}

impl<D: Device> Server<D> {
    pub fn new(
        (fuse, store): (OwnedFd, Store),
        device: D,
        pace: Pace,
        (told, owner): (Arc<Told>, (u32, u32)),
    ) -> Self {
        Self {
            fuse,
            store,
            clock: RealTime::new(device).stretched(pace.scale),
            pace,
            floor: None,
            outside: Nanos::ZERO,
            inside: stats::new_histogram(),
            read: Instant::now(),
            delay: (observe::thread_delay(), observe::thread_delay()),
            told,
            owner,
            slots: Vec::with_capacity(1024),
            free: Vec::with_capacity(1024),
            done: Vec::with_capacity(1024),
            answer: Answer::with_capacity(TRANSFER_MAX as usize),
            fidelity: Fidelity::new(),
            follower: Follower::new(),
            began: Instant::now(),
            last_told: Nanos::ZERO,
            cpu: observe::thread_usage().cpu(),
        }
    }

    /// Serves until it is unmounted; gives what was served.
    pub fn run(mut self) -> std::io::Result<Served> {
        let mut buffer = vec![0u8; REQUEST_MAX];
        loop {
            let mut taken = 0;
            while taken < BATCH {
                match rustix::io::read(&self.fuse, &mut buffer[..]) {
                    Ok(length) => {
                        self.read = Instant::now();
                        if let Some(message) = Message::parse(&buffer[..length]) {
                            self.take(message)?;
                        }
                        taken += 1;
                        // Without anything under way there is time for the next one to be waited for.
                        if self.is_idle() {
                            break;
                        }
                    }
                    // A request that was given up before it was read.
                    Err(Errno::INTR | Errno::NOENT) => {}
                    Err(Errno::AGAIN) => break,
                    Err(Errno::NODEV) => return Ok(self.summary()),
                    Err(error) => return Err(error.into()),
                }
            }
            self.deliver()?;
            if self.told.stop.load(Ordering::Relaxed) {
                return Ok(self.summary());
            }
            if taken == 0 || self.is_idle() {
                self.wait()?;
                if Nanos::from(self.began.elapsed()).since(self.last_told) >= TELL {
                    self.tell();
                }
            }
        }
    }

    /// Whether nothing is with the model.
    fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Waits for a request, or until shortly before something is due.
    fn wait(&mut self) -> std::io::Result<()> {
        let second = 1_000_000_000;
        let of = |time: Nanos| Timespec {
            tv_sec: (time.get() / second).cast_signed(),
            tv_nsec: (time.get() % second).cast_signed(),
        };
        let time = match self.clock.left().filter(|_| !self.is_idle()) {
            // Whoever was answered may want this processor.
            Some(left) if left <= self.pace.spin => {
                rustix::thread::sched_yield();
                return Ok(());
            }
            Some(left) => left.since(self.pace.spin),
            // What a model does when nobody asks shows when somebody does.
            None => TELL,
        };
        let mut lines = [PollFd::from_borrowed_fd(self.fuse.as_fd(), PollFlags::IN)];
        match poll(&mut lines, Some(&of(time.min(TELL)))) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Says what was served. Where others keep this thread from running, it no longer gives way to them,
    /// nor follows its client.
    fn tell(&mut self) {
        let delay = observe::thread_delay();
        let passed = Nanos::from(self.began.elapsed()).since(self.last_told);
        if delay.since(self.delay.1).get() * 10 > passed.get() {
            observe::take_part();
            self.follower.stay();
        }
        self.delay.1 = delay;
        let served = self.summary();
        *self.told.served.lock().unwrap_or_else(PoisonError::into_inner) = served;
        self.last_told = Nanos::from(self.began.elapsed());
    }

    fn summary(&self) -> Served {
        let cpu = observe::thread_usage().cpu().since(self.cpu);
        let floor = self.floor.unwrap_or_default();
        let starved = observe::thread_delay().since(self.delay.0);
        let times = (cpu, starved, Nanos::from(self.began.elapsed()));
        self.fidelity.summary((floor, self.pace.scale), times)
    }

    /// Takes one request: answers it at once, or hands it to the model.
    fn take(&mut self, message: Message<'_>) -> std::io::Result<()> {
        let Message { unique, node, process, asked } = message;
        if matches!(asked, Asked::Read { .. } | Asked::Write { .. }) {
            let many = self.slots.len() - self.free.len() > FEW;
            self.follower.follow(process, Instant::now(), many);
        }
        let size = self.store.size().get();
        let of = |node| Attributes { node, size, owner: self.owner };
        let answer = self.answer.clear();
        let mut error = None;
        match asked {
            Asked::Silent => return Ok(()),
            Asked::Read { offset, length } => {
                let length = u64::from(length).min(size.saturating_sub(offset)) as u32;
                return self.submit(unique, (Operation::Read, offset, length), None);
            }
            Asked::Write { offset, data } => {
                let error = self.store.write(offset, data).err().as_ref().map(errno);
                let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
                return self.submit(unique, (Operation::Write, offset, length), error);
            }
            Asked::Flush => return self.submit(unique, (Operation::Flush, 0, 0), None),
            Asked::Discard { offset, length } => {
                let error = self.store.discard(offset, length).err().as_ref().map(errno);
                let length = length.min(size.saturating_sub(offset)).min(1 << 30) as u32;
                return self.submit(unique, (Operation::Discard, offset, length), error);
            }
            Asked::Init { readahead, flags } => answer.init(readahead, flags),
            Asked::Lookup { name, .. } if node == ROOT && name == NAME.as_bytes() => {
                answer.entry(of(FILE));
            }
            Asked::Lookup { .. } => error = Some(Errno::NOENT),
            Asked::SetAttributes { size: Some(other), .. } if other != size => {
                error = Some(Errno::PERM);
            }
            Asked::SetAttributes { owner: true, .. } | Asked::Forbidden => {
                error = Some(Errno::PERM);
            }
            Asked::Allocate { end } if end > size => error = Some(Errno::NOSPC),
            Asked::Allocate { .. } => {}
            Asked::Attributes | Asked::SetAttributes { .. } => answer.attributes(of(node)),
            Asked::Open { direct } => answer.opened(direct),
            Asked::OpenDirectory => answer.opened(false),
            Asked::ReadDirectory { from: 0 } => answer.directory(),
            Asked::Statistics => answer.statistics(size),
            Asked::ReadDirectory { .. } | Asked::Nothing => {}
            Asked::Unknown => error = Some(Errno::NOSYS),
        }
        self.send(unique, error.map(Errno::raw_os_error))
    }

    /// Hands a request to the model; one without bytes, and every one while the way is measured, is
    /// answered at once.
    fn submit(
        &mut self,
        unique: u64,
        (operation, offset, length): (Operation, u64, u32),
        error: Option<i32>,
    ) -> std::io::Result<()> {
        let told = Nanos::ZERO;
        let mut slot = Slot { unique, operation, offset, length, error, told, arrived: self.read };
        let nothing = length == 0 && operation != Operation::Flush;
        if nothing || error.is_some() {
            return self.conclude(slot);
        }
        if !self.is_timed() {
            self.conclude(slot)?;
            let inside = Nanos::from(self.read.elapsed());
            self.inside.saturating_record(inside.get());
            return Ok(());
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        let request = Request { id: u64::from(place), operation, fua: false, offset, length };
        slot.told = self.clock.submit(request, &mut self.done);
        self.slots[place as usize] = Some(slot);
        Ok(())
    }

    /// Whether the model times requests by now; what the way takes is known then.
    #[inline]
    fn is_timed(&mut self) -> bool {
        if self.floor.is_none() && self.told.timed.load(Ordering::Acquire) {
            let floor = Nanos(self.told.floor.load(Ordering::Relaxed));
            // What the way to a real device takes, the client is to see. Where that is more than the way
            // here, answers come so much too early.
            let path = Nanos(self.pace.path.get() * u64::from(self.pace.scale));
            self.clock.lead_by(floor.since(path));
            self.floor = Some(floor);
            self.outside = floor.since(Nanos(self.inside.value_at_quantile(0.5)));
        }
        self.floor.is_some()
    }

    /// Answers everything that is due.
    fn deliver(&mut self) -> std::io::Result<()> {
        self.clock.advance(&mut self.done);
        while let Some(completion) = self.done.pop() {
            let place = completion.id as usize;
            let Some(slot) = self.slots.get_mut(place).and_then(Option::take) else { continue };
            self.free.push(place as u32);
            self.conclude(slot)?;
            let delivered = Nanos::from(slot.arrived.elapsed()) + self.outside;
            let requested = completion.at.since(slot.told) + self.pace.path;
            let requested = requested.get() * u64::from(self.pace.scale);
            self.fidelity.note(Nanos(requested), delivered);
        }
        Ok(())
    }

    /// Answers one request.
    fn conclude(&mut self, slot: Slot) -> std::io::Result<()> {
        let mut error = slot.error;
        let answer = self.answer.clear();
        match slot.operation {
            Operation::Read => {
                let room = answer.room(slot.length as usize);
                error = error.or(self.store.read(slot.offset, room).err().as_ref().map(errno));
            }
            Operation::Write => answer.written(slot.length),
            Operation::Flush | Operation::Discard | Operation::WriteZeroes => {}
        }
        self.send(slot.unique, error)
    }

    fn send(&mut self, unique: u64, error: Option<i32>) -> std::io::Result<()> {
        match rustix::io::write(&self.fuse, self.answer.finish(unique, error)) {
            // Who asked has gone, or nothing is mounted any more.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn errno(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())
}
