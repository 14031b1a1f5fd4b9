//! The connections of one thread as a session.
//!
//! A thread that sleeps for each result pays for the sleep and the wake-up; one that serves several
//! connections finds the next result waiting. A connection has one statement in flight. Response time ends
//! when the thread has the whole result, so waiting for the thread is part of it.

use std::os::fd::OwnedFd;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use units::Nanos;
use workload::{Issue, LaneOp, OpId, SqlOp};

use crate::{Completion, Ended, EngineError, ErrorKind, Session, Statements, Submit, Wait};

/// Connections served by one thread; a lane is the index of a connection.
pub(crate) struct Connections<C> {
    all: Vec<C>,
    /// `[lane]`: a statement is in flight.
    sent: Vec<bool>,
    /// Epoll descriptor for several connections; `None` for one, which is read blocking.
    poll: Option<OwnedFd>,
    events: Vec<epoll::Event>,
    /// Index of the next event to handle.
    next: usize,
}

fn waiting(error: Errno) -> EngineError {
    EngineError::failed("client", "wait for results", error)
}

impl<C: Statements> Connections<C> {
    pub fn new(all: Vec<C>) -> Result<Self, EngineError> {
        let poll = if all.len() > 1 { Some(registered(&all)?) } else { None };
        let (sent, events) = (vec![false; all.len()], Vec::with_capacity(all.len()));
        Ok(Self { all, sent, poll, events, next: 0 })
    }

    /// Ends a statement. After an error the connection has no open transaction.
    fn ended(&mut self, lane: usize, result: Result<(), EngineError>) -> Ended {
        self.sent[lane] = false;
        let Err(error) = result else { return Ok(0) };
        if error.kind() != ErrorKind::Disconnected
            && let Err(again) = self.all[lane].roll_back()
        {
            return Err(EngineError::disconnected(again.reason()));
        }
        Err(error)
    }

    /// Reads from connections with events, up to the first completed statement.
    fn take(&mut self, done: &mut Vec<Completion>) {
        while done.is_empty() && self.next < self.events.len() {
            let lane = self.events[self.next].data.u64() as usize;
            self.next += 1;
            if !self.sent[lane] {
                continue;
            }
            let result = match self.all[lane].receive(false) {
                Ok(false) => continue,
                Ok(true) => Ok(()),
                Err(error) => Err(error),
            };
            let ended = self.ended(lane, result);
            done.push(Completion { id: OpId(lane as u32), ended });
        }
    }
}

fn registered<C: Statements>(all: &[C]) -> Result<OwnedFd, EngineError> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(waiting)?;
    for (lane, connection) in all.iter().enumerate() {
        // A connection without a descriptor completes at once and is never waited for.
        if let Some(descriptor) = connection.descriptor() {
            let data = epoll::EventData::new_u64(lane as u64);
            epoll::add(&poll, descriptor, data, epoll::EventFlags::IN).map_err(waiting)?;
        }
    }
    Ok(poll)
}

impl<C: Statements> Session for Connections<C> {
    type Op = LaneOp<SqlOp>;

    fn capacity(&self) -> usize {
        self.all.len()
    }

    fn submit(&mut self, issue: &Issue<LaneOp<SqlOp>>) -> Submit {
        let lane = issue.op.lane as usize;
        match self.all[lane].send(&issue.op.op) {
            Ok(()) if self.all[lane].descriptor().is_some() => {
                self.sent[lane] = true;
                Submit::Queued
            }
            result => Submit::Done(self.ended(lane, result)),
        }
    }

    /// Reports one statement at a time, so each is timed when its own result is complete.
    fn poll(&mut self, wait: Wait, done: &mut Vec<Completion>) -> Result<(), EngineError> {
        let Some(poll) = &self.poll else {
            let result = self.all[0].receive(true).map(|_| ());
            let ended = self.ended(0, result);
            done.push(Completion { id: OpId(0), ended });
            return Ok(());
        };
        if self.next == self.events.len() {
            let pause = wait.due_in.map_or(wait.interval, |due| due.min(wait.interval));
            self.events.clear();
            self.next = 0;
            let space = rustix::buffer::spare_capacity(&mut self.events);
            match epoll::wait(poll, space, Some(&timespec(pause))) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(waiting(error)),
            }
        }
        self.take(done);
        Ok(())
    }

    fn abandons(&self) -> bool {
        true
    }
}

fn timespec(time: Nanos) -> Timespec {
    const SECOND: u64 = 1_000_000_000;
    Timespec { tv_sec: (time.get() / SECOND) as i64, tv_nsec: (time.get() % SECOND) as i64 }
}
