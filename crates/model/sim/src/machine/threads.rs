//! The threads of a machine as a target: one serves each client, others may work in the background.
//!
//! Invariant: a client's operations are served in the order in which they were issued.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};

use device::Device;
use stats::Recorded;
use units::Nanos;
use workload::Outcome;

use super::{Machine, ThreadId};
use crate::target::{Done, Target, Ticket};

/// Where a thread receives its client's operations and returns their results.
#[derive(Debug)]
pub struct Desk<D, Op> {
    machine: Machine<D>,
    in_tray: Rc<RefCell<Tray<Op>>>,
    done: Rc<RefCell<VecDeque<Done>>>,
    ticket: Ticket,
}

#[derive(Debug)]
struct Tray<Op> {
    thread: ThreadId,
    operations: VecDeque<(Ticket, Op)>,
    /// The thread waits for an operation.
    idle: bool,
}

impl<D: Device, Op: Recorded> Desk<D, Op> {
    /// The machine that the thread runs on.
    #[must_use]
    pub const fn machine(&self) -> &Machine<D> {
        &self.machine
    }

    /// The next operation of the client.
    pub async fn next(&mut self) -> Op {
        loop {
            let found = self.in_tray.borrow_mut().operations.pop_front();
            if let Some((ticket, op)) = found {
                self.ticket = ticket;
                return op;
            }
            self.in_tray.borrow_mut().idle = true;
            self.machine.park().await;
        }
    }

    /// Ends the operation taken last; once for each.
    pub fn end(&self, outcome: Outcome, bytes: u32) {
        let done = Done { ticket: self.ticket, at: self.machine.now(), outcome, bytes };
        self.done.borrow_mut().push_back(done);
    }
}

type Thread = Pin<Box<dyn Future<Output = ()>>>;

/// A machine with its threads.
pub struct Threads<D, Op> {
    machine: Machine<D>,
    threads: Vec<Thread>,
    /// `[client]`.
    trays: Vec<Rc<RefCell<Tray<Op>>>>,
    done: Rc<RefCell<VecDeque<Done>>>,
}

impl<D: Device, Op: Recorded> Threads<D, Op> {
    /// No threads yet; one set of threads a machine.
    #[must_use]
    pub fn new(machine: Machine<D>) -> Self {
        Self { machine, threads: Vec::new(), trays: Vec::new(), done: Rc::default() }
    }

    /// Adds a thread that works in the background.
    pub fn background(&mut self, thread: impl Future<Output = ()> + 'static) -> ThreadId {
        let id = ThreadId(self.threads.len() as u32);
        self.threads.push(Box::pin(thread));
        self.machine.0.answers.borrow_mut().push(None);
        self.machine.wake(id);
        id
    }

    /// Adds the thread that serves the next client, from client 0 on; a run needs one for each client, and an
    /// operation without one panics. `serve` makes the thread's body from the client's desk.
    pub fn serve<F: Future<Output = ()> + 'static>(
        &mut self,
        serve: impl FnOnce(Desk<D, Op>) -> F,
    ) -> ThreadId {
        let thread = ThreadId(self.threads.len() as u32);
        let operations = VecDeque::with_capacity(1);
        let tray = Rc::new(RefCell::new(Tray { thread, operations, idle: false }));
        self.trays.push(Rc::clone(&tray));
        let desk = Desk {
            machine: self.machine.clone(),
            in_tray: tray,
            done: Rc::clone(&self.done),
            ticket: Ticket { client: 0, slot: 0 },
        };
        self.background(serve(desk))
    }
}

impl<D: Device, Op: Recorded> Target for Threads<D, Op> {
    type Op = Op;

    fn submit(&mut self, now: Nanos, ticket: Ticket, op: Op) {
        self.machine.0.now.set(now);
        let mut tray = self.trays[ticket.client as usize].borrow_mut();
        tray.operations.push_back((ticket, op));
        if std::mem::take(&mut tray.idle) {
            self.machine.wake(tray.thread);
        }
    }

    fn free_at(&self, _client: u32) -> Nanos {
        Nanos::ZERO
    }

    fn next_event(&self) -> Option<Nanos> {
        match self.done.borrow().front() {
            Some(done) => Some(done.at),
            None => self.machine.next_event(),
        }
    }

    fn advance(&mut self, now: Nanos) -> Option<Done> {
        let waiting = self.done.borrow_mut().pop_front();
        if waiting.is_some() {
            return waiting;
        }
        self.machine.advance(now);
        let mut context = Context::from_waker(Waker::noop());
        while let Some(ThreadId(thread)) = self.machine.next_ready() {
            // A finished thread is never made ready again.
            let _ = self.threads[thread as usize].as_mut().poll(&mut context);
        }
        self.done.borrow_mut().pop_front()
    }
}
