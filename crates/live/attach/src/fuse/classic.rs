//! The classic transport through `/dev/fuse`: one thread, woken by requests and by time.
//!
//! It sleeps until shortly before something is due or a request arrives, and then polls. Data is written
//! while the model times a write and read when a read is answered, so an answer never misses acknowledged
//! data. Invariants: each request is answered once; nothing is allocated after warm-up.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use device::Operation;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use units::Nanos;

use super::answering::{Decision, change, decide};
use super::follow::Follower;
use super::wire::{FuseAnswer, FuseOperation, FuseRequest, REQUEST_MAX, TRANSFER_MAX};
use crate::failures::errno;
use crate::handing::{FailedChanges, hand_over};
use crate::timed::{LOOK, ServedDisk, Serving, Turn, UnderWay};

/// Requests taken before due completions are checked again.
const BATCH: usize = 32;
/// Up to this number of requests in flight, they are served on the client's CPU.
const FEW: usize = 2;

pub(crate) struct ClassicServer {
    fuse: OwnedFd,
    disk: Arc<ServedDisk>,
    /// User and group that own the file.
    owner: (u32, u32),
    serving: Arc<Serving>,
    /// When the last request was read.
    read: Instant,
    under_way: usize,
    due: Vec<UnderWay>,
    failed: FailedChanges,
    answer: FuseAnswer,
    follower: Follower,
    turn: Turn,
}

impl ClassicServer {
    /// Serves in the calling thread.
    pub fn new(fuse: OwnedFd, disk: Arc<ServedDisk>, owner: (u32, u32)) -> Self {
        let serving = disk.state.enter();
        let turn = Turn::new(disk.pace.spin);
        Self {
            fuse,
            disk,
            owner,
            serving,
            read: Instant::now(),
            under_way: 0,
            due: Vec::with_capacity(1024),
            failed: FailedChanges::default(),
            answer: FuseAnswer::with_capacity(TRANSFER_MAX as usize),
            follower: Follower::new(),
            turn,
        }
    }

    /// Serves until it is unmounted.
    pub fn run(mut self) -> std::io::Result<()> {
        let ended = self.serve();
        self.disk.state.leave(&self.serving);
        ended
    }

    fn serve(&mut self) -> std::io::Result<()> {
        let mut buffer = vec![0u8; REQUEST_MAX];
        loop {
            let mut taken = 0;
            while taken < BATCH {
                match rustix::io::read(&self.fuse, &mut buffer[..]) {
                    Ok(length) => {
                        self.read = Instant::now();
                        if let Some(message) = FuseRequest::parse(&buffer[..length]) {
                            self.take(message)?;
                        }
                        taken += 1;
                        // With nothing in flight there is time to wait for the next request.
                        if self.under_way == 0 {
                            break;
                        }
                    }
                    // A request that was interrupted before it was read.
                    Err(Errno::INTR | Errno::NOENT) => {}
                    Err(Errno::AGAIN) => break,
                    Err(Errno::NODEV) => return Ok(()),
                    Err(error) => return Err(error.into()),
                }
            }
            self.deliver()?;
            if self.disk.is_to_end() {
                return Ok(());
            }
            if taken == 0 || self.under_way == 0 {
                self.wait()?;
            }
            if Nanos::from(self.turn.looked.elapsed()) >= LOOK
                && self.disk.look(&self.serving, &mut self.turn)
            {
                self.follower.stay();
            }
        }
    }

    /// Waits for a request, or until shortly before something is due.
    fn wait(&mut self) -> std::io::Result<()> {
        let left = self.disk.model().left();
        let Some(pause) = self.disk.pause(left, &self.turn) else {
            self.serving.give_way();
            return Ok(());
        };
        let mut polled = [PollFd::from_borrowed_fd(self.fuse.as_fd(), PollFlags::IN)];
        let began = Instant::now();
        match poll(&mut polled, Some(&time_of(pause.time))) {
            Ok(0) => {
                self.turn.slept(began, pause);
                Ok(())
            }
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes one request: answers it at once, or submits it to the model.
    fn take(&mut self, message: FuseRequest<'_>) -> std::io::Result<()> {
        if matches!(message.asked, FuseOperation::Read { .. } | FuseOperation::Write { .. }) {
            self.follower.follow(message.process, self.read, self.under_way > FEW);
        }
        match decide(self.disk.medium.store(), self.owner, &message, &mut self.answer) {
            Decision::Silent => Ok(()),
            Decision::Now(error) => self.send(message.unique, error),
            Decision::Timed(operation, offset, length) => {
                let what = (operation, offset, length);
                let slot = UnderWay::new((message.unique, 0), what, self.read);
                if hand_over(&self.disk, slot, change(&message.asked), &mut self.failed) {
                    self.under_way += 1;
                    return Ok(());
                }
                self.conclude(&slot)?;
                self.disk.note_inside(self.read);
                Ok(())
            }
        }
    }

    /// Answers everything that is due.
    fn deliver(&mut self) -> std::io::Result<()> {
        let mut due = std::mem::take(&mut self.due);
        self.disk.model().due(|slot| due.push(slot));
        for slot in &due {
            self.under_way -= 1;
            self.conclude(slot)?;
            // Written one at a time, so that each client continues before the next answer.
            self.disk.note(&self.serving, std::slice::from_ref(slot));
        }
        due.clear();
        self.due = due;
        Ok(())
    }

    /// Answers one request.
    fn conclude(&mut self, slot: &UnderWay) -> std::io::Result<()> {
        let medium = &self.disk.medium;
        let mut error = self.failed.take(slot.token).or_else(|| medium.ends(slot.key()));
        let answer = self.answer.clear();
        match slot.operation {
            Operation::Read => {
                let room = answer.room(slot.length as usize);
                let read = || medium.store().read(slot.offset, room).err().as_ref().map(errno);
                error = error.or_else(read);
            }
            Operation::Write => answer.written(slot.length),
            Operation::Flush | Operation::Discard | Operation::WriteZeroes => {}
        }
        self.send(slot.token, error)
    }

    fn send(&mut self, unique: u64, error: Option<i32>) -> std::io::Result<()> {
        match rustix::io::write(&self.fuse, self.answer.finish(unique, error)) {
            // The client is gone, or the file system was unmounted.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn time_of(time: Nanos) -> Timespec {
    let second = 1_000_000_000;
    Timespec {
        tv_sec: (time.get() / second).cast_signed(),
        tv_nsec: (time.get() % second).cast_signed(),
    }
}
