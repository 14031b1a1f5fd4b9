//! The io_uring transport (Linux 6.14 and later): one thread per CPU serves that CPU's requests, so no
//! request wakes another CPU.
//!
//! The kernel puts a request into one of a thread's slots, and the answer goes back through the same slot.
//! Invariants: each request is answered once, by its thread; nothing is allocated after warm-up.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use device::Operation;
use io_uring::opcode;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};
use units::Nanos;

use super::answering::{Decision, change, decide};
use super::places::{Place, PlaceOf, ServerRing, new_ring, push};
use super::wire::{FuseAnswer, FuseOperation, FuseRequest, REQUEST_MAX, TRANSFER_MAX};
use crate::failures::{errno, lock};
use crate::handing::{FailedChanges, hand_over};
use crate::timed::{LOOK, ServedDisk, Serving, Turn, UnderWay};

/// Slots of a thread: maximum number of one CPU's requests in the model; more wait in the kernel.
const PLACES: usize = 256;
/// The same on machines with many CPUs.
const PLACES_OF_MANY: usize = 64;
/// Number of CPUs from which `PLACES_OF_MANY` applies.
const MANY: usize = 16;
/// Token that wakes a thread.
const WAKE: u64 = u64::MAX;

/// Messages for a thread.
#[derive(Debug)]
struct Inbox {
    /// Its ring; negative before it exists.
    ring: AtomicI32,
    /// Completions for its requests.
    due: Mutex<Vec<UnderWay>>,
}

/// State shared by the threads of one disk.
#[derive(Debug)]
pub(crate) struct Rings {
    fuse: OwnedFd,
    disk: Arc<ServedDisk>,
    /// User and group that own the file.
    owner: (u32, u32),
    inboxes: Vec<Inbox>,
}

impl Rings {
    /// Shared state with one inbox per possible CPU.
    pub fn new(fuse: OwnedFd, disk: Arc<ServedDisk>, owner: (u32, u32), processors: usize) -> Self {
        let inbox =
            || Inbox { ring: AtomicI32::new(-1), due: Mutex::new(Vec::with_capacity(1024)) };
        Self { fuse, disk, owner, inboxes: (0..processors).map(|_| inbox()).collect() }
    }

    pub const fn processors(&self) -> usize {
        self.inboxes.len()
    }
}

/// One serving thread.
pub(crate) struct RingServer {
    shared: Arc<Rings>,
    number: usize,
    ring: ServerRing,
    places: Vec<Place>,
    serving: Arc<Serving>,
    answer: FuseAnswer,
    due: Vec<UnderWay>,
    failed: FailedChanges,
    /// Threads with a non-empty inbox.
    to_wake: Vec<usize>,
    /// Requests of this thread that are with the model.
    under_way: usize,
    /// Time since when every slot has been in use: further requests wait in the kernel.
    full: Option<Instant>,
    turn: Turn,
    /// Buffer for requests through `/dev/fuse` that need no answer.
    other: Vec<u8>,
}

impl RingServer {
    /// Turns the calling thread into the server for CPU `number`.
    pub fn of_thread(shared: &Arc<Rings>, number: usize) -> std::io::Result<Self> {
        let mut only = CpuSet::new();
        only.set(number);
        // If that CPU is offline or not allowed, it serves from any.
        let _ = sched_setaffinity(None, &only);
        // If this thread cannot serve, the others end, and with them the mount.
        Self::make(Arc::clone(shared), number).inspect_err(|_| {
            shared.disk.state.stop.store(true, Ordering::Relaxed);
        })
    }

    fn make(shared: Arc<Rings>, number: usize) -> std::io::Result<Self> {
        let many = if shared.processors() < MANY { PLACES } else { PLACES_OF_MANY };
        let mut ring = new_ring(2 * many as u32)?;
        shared.inboxes[number].ring.store(ring.as_raw_fd(), Ordering::Release);
        let mut places = Vec::with_capacity(many);
        for token in 0..many as u64 {
            let mut place = Place::new(TRANSFER_MAX as usize);
            place.register(&mut ring, &shared.fuse, PlaceOf { queue: number as u16, token })?;
            places.push(place);
        }
        let serving = shared.disk.state.enter();
        let turn = Turn::new(shared.disk.pace.spin);
        Ok(Self {
            shared,
            number,
            ring,
            places,
            serving,
            answer: FuseAnswer::with_capacity(4096),
            due: Vec::with_capacity(1024),
            failed: FailedChanges::default(),
            to_wake: Vec::with_capacity(16),
            under_way: 0,
            full: None,
            turn,
            other: vec![0; if number == 0 { REQUEST_MAX } else { 0 }],
        })
    }

    /// Serves until it is unmounted.
    pub fn run(mut self) -> std::io::Result<()> {
        let ended = self.serve();
        self.shared.disk.state.leave(&self.serving);
        // If one thread ends, the others are useless.
        self.shared.disk.state.stop.store(true, Ordering::Relaxed);
        ended
    }

    fn serve(&mut self) -> std::io::Result<()> {
        loop {
            // All requests of a batch have arrived by now, however long the first takes.
            let arrived = Instant::now();
            loop {
                let next = self.ring.completion().next();
                let Some(entry) = next else { break };
                match (entry.user_data(), entry.result()) {
                    (WAKE, _) => {}
                    (token, 0) => self.take(token as usize, arrived)?,
                    (_, error) => {
                        let gone =
                            [Errno::NOTCONN, Errno::CANCELED, Errno::NODEV, Errno::CONNABORTED];
                        let error = Errno::from_raw_os_error(-error);
                        return if gone.contains(&error) { Ok(()) } else { Err(error.into()) };
                    }
                }
            }
            self.deliver()?;
            if self.shared.disk.is_to_end() {
                return Ok(());
            }
            self.wait()?;
            if Nanos::from(self.turn.looked.elapsed()) >= LOOK {
                let disk = Arc::clone(&self.shared);
                disk.disk.look(&self.serving, &mut self.turn);
                if !self.drain() {
                    return Ok(());
                }
            }
        }
    }

    /// Takes the request in a slot: answers it at once, or submits it to the model.
    fn take(&mut self, token: usize, arrived: Instant) -> std::io::Result<()> {
        let disk = &self.shared.disk;
        let Some(place) = self.places.get(token) else {
            return Err(std::io::Error::other("the kernel named an unknown queue entry"));
        };
        let (head, arguments, data) = place.request();
        let Some(request) = FuseRequest::of_parts(head, arguments, data) else {
            return Err(std::io::Error::other("the kernel sent an invalid request"));
        };
        let decision = decide(disk.medium.store(), self.shared.owner, &request, &mut self.answer);
        match decision {
            Decision::Timed(operation, offset, length) => {
                let key = (token as u64, self.number);
                let slot = UnderWay::new(key, (operation, offset, length), arrived);
                if hand_over(disk, slot, change(&request.asked), &mut self.failed) {
                    self.under_way += 1;
                    if self.under_way == self.places.len() {
                        self.full = Some(Instant::now());
                    }
                    return Ok(());
                }
                self.conclude(&slot)?;
                self.shared.disk.note_inside(arrived);
                Ok(())
            }
            // Every ring request needs an answer, or its slot would be lost.
            Decision::Silent => self.put(token, None),
            Decision::Now(error) => self.put(token, error),
        }
    }

    /// Answers all due requests of this thread, and hands others to their threads.
    fn deliver(&mut self) -> std::io::Result<()> {
        let mut due = std::mem::take(&mut self.due);
        let (shared, to_wake) = (Arc::clone(&self.shared), &mut self.to_wake);
        due.append(&mut lock(&shared.inboxes[self.number].due));
        shared.disk.model().due(|slot| {
            if slot.server == self.number {
                due.push(slot);
                return;
            }
            lock(&shared.inboxes[slot.server].due).push(slot);
            if !to_wake.contains(&slot.server) {
                to_wake.push(slot.server);
            }
        });
        for slot in &due {
            self.under_way -= 1;
            if let Some(full) = self.full.take() {
                self.serving.was_away(full.elapsed().into());
            }
            self.conclude(slot)?;
        }
        shared.disk.note(&self.serving, &due);
        due.clear();
        self.due = due;
        while let Some(server) = self.to_wake.pop() {
            let ring = Fd(shared.inboxes[server].ring.load(Ordering::Acquire));
            let message = opcode::MsgRingData::new(ring, 0, WAKE, None).build().user_data(WAKE);
            push(&mut self.ring, &message.into())?;
        }
        Ok(())
    }

    /// Answers one request that was timed.
    fn conclude(&mut self, slot: &UnderWay) -> std::io::Result<()> {
        let token = slot.token as usize;
        let medium = &self.shared.disk.medium;
        let error = self.failed.take(slot.token).or_else(|| medium.ends(slot.key()));
        self.answer.clear();
        match slot.operation {
            Operation::Read => {
                let room = self.places[token].room(slot.length as usize);
                let read = || medium.store().read(slot.offset, room).err().as_ref().map(errno);
                let error = error.or_else(read);
                return self.answer_with(token, error, slot.length as usize);
            }
            Operation::Write => self.answer.written(slot.length),
            Operation::Flush | Operation::Discard | Operation::WriteZeroes => {}
        }
        self.put(token, error)
    }

    /// Answers with the prepared answer.
    fn put(&mut self, token: usize, error: Option<i32>) -> std::io::Result<()> {
        let body = self.answer.body();
        self.places[token].room(body.len()).copy_from_slice(body);
        let length = body.len();
        self.answer_with(token, error, length)
    }

    /// Answers a request with the slot's contents.
    fn answer_with(
        &mut self,
        token: usize,
        error: Option<i32>,
        length: usize,
    ) -> std::io::Result<()> {
        let length = if error.is_some() { 0 } else { length };
        let of = PlaceOf { queue: self.number as u16, token: token as u64 };
        self.places[token].answer(&mut self.ring, &self.shared.fuse, of, (error, length))
    }

    /// Waits for a request, or until shortly before something is due.
    fn wait(&mut self) -> std::io::Result<()> {
        let left = if self.under_way > 0 { self.shared.disk.model().left() } else { None };
        let Some(pause) = self.shared.disk.pause(left, &self.turn) else {
            self.ring.submit()?;
            self.serving.give_way();
            return Ok(());
        };
        let began = Instant::now();
        let time = Timespec::from(std::time::Duration::from(pause.time));
        let until = SubmitArgs::new().timespec(&time);
        match self.ring.submitter().submit_with_args(1, &until) {
            Ok(_) => Ok(()),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::TIME) => {
                    self.turn.slept(began, pause);
                    Ok(())
                }
                Some(Errno::INTR | Errno::BUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Reads remaining requests from `/dev/fuse`: FORGET needs no answer, others are refused. Returns whether
    /// the file system is still mounted.
    fn drain(&mut self) -> bool {
        if self.other.is_empty() {
            return true;
        }
        loop {
            let length = match rustix::io::read(&self.shared.fuse, &mut self.other[..]) {
                Ok(length) => length,
                Err(Errno::INTR | Errno::NOENT) => continue,
                Err(Errno::NODEV) => return false,
                Err(_) => return true,
            };
            let request = FuseRequest::parse(&self.other[..length]);
            if let Some(request) = request.filter(|one| one.asked != FuseOperation::Silent) {
                let refusal = Some(Errno::IO.raw_os_error());
                let answer = self.answer.clear().finish(request.unique, refusal);
                let _ = rustix::io::write(&self.shared.fuse, answer);
            }
        }
    }
}
