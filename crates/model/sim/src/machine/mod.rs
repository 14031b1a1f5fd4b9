//! A host in virtual time whose threads are sequential code.
//!
//! A thread is an `async fn` that computes, sleeps, takes locks and issues device requests; the machine polls
//! it in its own order of events. There is no runtime, clock or waker: a thread waits for one thing at a
//! time, and whatever ends the wait puts it into the ready queue. Nothing is allocated once the threads exist
//! and the queues have grown.
//!
//! Invariants: time never goes back; the same threads give the same order of events; at one instant timers
//! come first, then CPUs, then the device.

mod lock;
mod processors;
mod threads;

pub use lock::{Lock, LockGuard, Waiters};
pub use processors::Processors;
pub use threads::{Desk, Threads};

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use device::{Completion, Device, EventQueue, Request};
use units::Nanos;

use crate::block_path::queue_of;
use processors::Sharing;

/// Number of a thread of a machine, in order of creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadId(pub u32);

/// A thread's handle to its machine; clones refer to the same one.
#[derive(Debug)]
pub struct Machine<D>(Rc<State<D>>);

impl<D> Clone for Machine<D> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

#[derive(Debug)]
struct State<D> {
    now: Cell<Nanos>,
    /// The thread that runs now.
    current: Cell<ThreadId>,
    ready: RefCell<VecDeque<ThreadId>>,
    /// Waits that have ended.
    waits: Cell<u64>,
    timers: RefCell<EventQueue<ThreadId>>,
    sharing: RefCell<Sharing>,
    device: RefCell<D>,
    completions: RefCell<Vec<Completion>>,
    /// `[thread]`: the answer to its last request.
    answers: RefCell<Vec<Option<Completion>>>,
}

/// The current thread's wait until it is made ready.
struct Wait {
    begun: bool,
}

impl Future for Wait {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        // A thread is polled when its wait is over and not before.
        if std::mem::replace(&mut self.begun, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

const fn wait() -> Wait {
    Wait { begun: false }
}

impl<D: Device> Machine<D> {
    /// A machine of `processors` with an idle device.
    #[must_use]
    pub fn new(device: D, processors: Processors) -> Self {
        Self(Rc::new(State {
            now: Cell::new(Nanos::ZERO),
            current: Cell::new(ThreadId(0)),
            ready: RefCell::default(),
            waits: Cell::new(0),
            timers: RefCell::default(),
            sharing: RefCell::new(Sharing::new(processors)),
            device: RefCell::new(device),
            completions: RefCell::default(),
            answers: RefCell::default(),
        }))
    }

    /// Virtual time.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.0.now.get()
    }

    /// The thread that runs now.
    #[inline]
    #[must_use]
    pub fn current(&self) -> ThreadId {
        self.0.current.get()
    }

    /// Waits of threads that have ended so far: the events of this machine.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.0.waits.get()
    }

    /// Uses `time` of CPU; longer where more threads run than there are CPUs.
    #[inline]
    pub async fn compute(&self, time: Nanos) {
        if time > Nanos::ZERO {
            self.0.sharing.borrow_mut().begin(self.now(), self.current(), time);
            wait().await;
        }
    }

    /// Sleeps; an interrupt on its way, or a pause.
    #[inline]
    pub async fn sleep(&self, time: Nanos) {
        if time > Nanos::ZERO {
            self.0.timers.borrow_mut().push(self.now() + time, self.current());
            wait().await;
        }
    }

    /// Issues a device request and waits for its completion; one per thread at a time. The request's id is
    /// replaced.
    #[inline]
    pub async fn ask(&self, request: Request) -> Completion {
        let ThreadId(thread) = self.current();
        let queue = queue_of(thread);
        let request = Request { id: u64::from(thread), queue, ..request };
        self.0.device.borrow_mut().submit(self.now(), request);
        loop {
            wait().await;
            if let Some(answer) = self.0.answers.borrow_mut()[thread as usize].take() {
                return answer;
            }
        }
    }

    /// Waits until another thread wakes this one with [`wake`](Self::wake).
    #[inline]
    pub(crate) async fn park(&self) {
        wait().await;
    }

    /// Makes a parked thread ready.
    #[inline]
    pub(crate) fn wake(&self, thread: ThreadId) {
        self.0.ready.borrow_mut().push_back(thread);
    }

    /// Time of the next event; now if a thread is ready.
    fn next_event(&self) -> Option<Nanos> {
        if !self.0.ready.borrow().is_empty() {
            return Some(self.now());
        }
        let timers = self.0.timers.borrow().next_time();
        let processors = self.0.sharing.borrow().next_event();
        let device = self.0.device.borrow().next_event();
        [timers, processors, device].into_iter().flatten().min()
    }

    /// Makes the threads ready whose wait ends at `now`.
    fn advance(&self, now: Nanos) {
        let State { timers, sharing, device, completions, answers, ready, .. } = &*self.0;
        self.0.now.set(now);
        let mut ready = ready.borrow_mut();
        let mut timers = timers.borrow_mut();
        while let Some((_, thread)) = timers.pop_due(now) {
            ready.push_back(thread);
        }
        sharing.borrow_mut().advance(now, &mut ready);
        let mut device = device.borrow_mut();
        if device.next_event().is_some_and(|at| at <= now) {
            let mut completions = completions.borrow_mut();
            device.advance(now, &mut completions);
            for completion in completions.drain(..) {
                let thread = completion.id as u32;
                answers.borrow_mut()[thread as usize] = Some(completion);
                ready.push_back(ThreadId(thread));
            }
        }
    }

    /// Takes the next ready thread, which runs from now on.
    #[inline]
    fn next_ready(&self) -> Option<ThreadId> {
        let thread = self.0.ready.borrow_mut().pop_front()?;
        self.0.current.set(thread);
        self.0.waits.set(self.0.waits.get() + 1);
        Some(thread)
    }
}
