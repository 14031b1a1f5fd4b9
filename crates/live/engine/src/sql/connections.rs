//! The connections of one thread as a session.
//!
//! A thread that sleeps for each result pays for the sleep and the wake-up; one that serves several
//! connections finds the next result waiting. A connection has one statement in flight. Response time ends
//! when the thread has the whole result, so waiting for the thread is part of it. Several connections use
//! io_uring where it is available, and epoll otherwise.

use std::os::fd::OwnedFd;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use units::Nanos;
use workload::{Issue, LaneOp, OpId, SqlOp};

use super::ring::{Arrival, Ring};
use crate::{Completion, Ended, EngineError, ErrorKind, Session, Statements, Submit, Wait};

/// Connections served by one thread; a lane is the index of a connection.
pub(crate) struct Connections<C: Statements> {
    all: Vec<C>,
    /// `[lane]`: a statement is in flight.
    sent: Vec<bool>,
    awaited: Awaited,
}

/// How results are awaited.
enum Awaited {
    /// Of one connection: by reading it.
    Reading,
    Ring(Box<Ring>),
    Events(Events),
}

/// Results awaited by epoll.
struct Events {
    poll: OwnedFd,
    events: Vec<epoll::Event>,
    /// Index of the next event to handle.
    next: usize,
}

fn waiting(error: Errno) -> EngineError {
    EngineError::failed("client", "wait for results", error)
}

impl<C: Statements> Connections<C> {
    pub fn new(mut all: Vec<C>) -> Result<Self, EngineError> {
        let exchanges = all.iter_mut().all(|one| one.exchange().is_some());
        let sockets: Option<Vec<_>> = all.iter().map(Statements::descriptor).collect();
        let ring = sockets.filter(|_| exchanges && all.len() > 1).and_then(|all| Ring::new(&all));
        let awaited = match ring {
            Some(ring) => Awaited::Ring(Box::new(ring)),
            None if all.len() == 1 => Awaited::Reading,
            None => {
                let events = Vec::with_capacity(all.len());
                Awaited::Events(Events { poll: registered(&all)?, events, next: 0 })
            }
        };
        Ok(Self { sent: vec![false; all.len()], all, awaited })
    }

    /// Sends a statement; its result is awaited if it has a descriptor.
    fn send(&mut self, lane: usize, op: &SqlOp) -> Result<(), EngineError> {
        let (connection, Awaited::Ring(ring)) = (&mut self.all[lane], &mut self.awaited) else {
            return self.all[lane].send(op);
        };
        let exchange = connection.exchange().expect("invariant: checked for all");
        let parts = exchange.begin(op)?;
        // SAFETY: both belong to the connection, which is not used before its arrival, nor dropped before
        // `drain`.
        unsafe { ring.exchange(lane, parts) };
        Ok(())
    }

    /// Takes what arrived for a connection; `None` if its result is not complete.
    fn arrived(&mut self, Arrival { lane, count }: Arrival) -> Option<Completion> {
        let exchange = self.all[lane].exchange().expect("invariant: checked for all");
        let closed = |reason: String| EngineError::disconnected(reason);
        let result = match count {
            Ok(0) => exchange.closed().and(Err(closed("the server closed it".to_owned()))),
            Ok(count) => exchange.received(count),
            // Asked again, as after a wait that was interrupted.
            Err(Errno::INTR | Errno::AGAIN) => Ok(false),
            Err(error) => exchange.closed().and(Err(closed(error.to_string()))),
        };
        if let (Ok(false), Awaited::Ring(ring)) = (&result, &mut self.awaited) {
            // SAFETY: as for the first part of the result.
            unsafe { ring.receive(lane, exchange.space()) };
            return None;
        }
        let ended = self.ended(lane, result.map(|_| ()));
        Some(Completion { id: OpId(lane as u32), ended })
    }

    /// Ends a statement. After an error the connection has no open transaction.
    fn ended(&mut self, lane: usize, result: Result<(), EngineError>) -> Ended {
        self.sent[lane] = false;
        let Err(error) = result else { return Ok(0) };
        if error.kind() != ErrorKind::Disconnected {
            // The others' requests do not wait for it.
            let sent = match &mut self.awaited {
                Awaited::Ring(ring) => ring.submit(),
                _ => Ok(()),
            };
            if let Err(again) = sent.and_then(|()| self.all[lane].roll_back()) {
                return Err(EngineError::disconnected(again.reason()));
            }
        }
        Err(error)
    }

    /// Reads from connections with events, up to the first completed statement.
    fn take(&mut self) -> Option<Completion> {
        loop {
            let Awaited::Events(events) = &mut self.awaited else { return None };
            let lane = events.events.get(events.next)?.data.u64() as usize;
            events.next += 1;
            if !self.sent[lane] {
                continue;
            }
            let result = match self.all[lane].receive(false) {
                Ok(false) => continue,
                Ok(true) => Ok(()),
                Err(error) => Err(error),
            };
            let ended = self.ended(lane, result);
            return Some(Completion { id: OpId(lane as u32), ended });
        }
    }
}

impl<C: Statements> Drop for Connections<C> {
    /// The kernel must not receive into memory that is freed.
    fn drop(&mut self) {
        let Awaited::Ring(ring) = &mut self.awaited else { return };
        let abandoned = self.all.iter().zip(&self.sent).filter(|(_, sent)| **sent);
        for socket in abandoned.filter_map(|(connection, _)| connection.descriptor()) {
            let _ = shutdown(socket, Shutdown::Read);
        }
        if !ring.drain() {
            std::mem::forget(std::mem::take(&mut self.all));
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

impl Events {
    /// Waits if all events were handled.
    fn await_some(&mut self, pause: Nanos) -> Result<(), EngineError> {
        if self.next < self.events.len() {
            return Ok(());
        }
        self.events.clear();
        self.next = 0;
        let space = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.poll, space, Some(&timespec(pause))) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(waiting(error)),
        }
    }
}

impl<C: Statements> Session for Connections<C> {
    type Op = LaneOp<SqlOp>;

    fn capacity(&self) -> usize {
        self.all.len()
    }

    fn submit(&mut self, issue: &Issue<LaneOp<SqlOp>>) -> Submit {
        let lane = issue.op.lane as usize;
        match self.send(lane, &issue.op.op) {
            Ok(()) if self.all[lane].descriptor().is_some() => {
                self.sent[lane] = true;
                Submit::Queued
            }
            result => Submit::Done(self.ended(lane, result)),
        }
    }

    /// Reports one statement at a time, so each is timed when its own result is complete.
    fn poll(&mut self, wait: Wait, done: &mut Vec<Completion>) -> Result<(), EngineError> {
        let pause = wait.due_in.map_or(wait.interval, |due| due.min(wait.interval));
        match &mut self.awaited {
            Awaited::Reading => {
                let result = self.all[0].receive(true).map(|_| ());
                let ended = self.ended(0, result);
                done.push(Completion { id: OpId(0), ended });
            }
            Awaited::Ring(ring) => {
                let arrival = match ring.next() {
                    None => {
                        ring.wait(pause)?;
                        ring.next()
                    }
                    arrival => arrival,
                };
                done.extend(arrival.and_then(|arrival| self.arrived(arrival)));
            }
            Awaited::Events(events) => {
                events.await_some(pause)?;
                done.extend(self.take());
            }
        }
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
