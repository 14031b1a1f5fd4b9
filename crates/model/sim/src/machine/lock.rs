//! What threads wait for besides time: a lock, handed on in the order in which it was asked for, and a
//! condition.
//!
//! Invariants: only threads that wait there are made ready; one thread has it at a time; whoever lets it go
//! makes the next one ready, which has it from then on.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use device::Device;

use super::{Machine, ThreadId};

/// A lock of a machine's threads.
#[derive(Debug, Default)]
pub struct Lock {
    held: Cell<bool>,
    waiting: RefCell<VecDeque<ThreadId>>,
}

/// The right that a lock gives, until it is dropped.
#[derive(Debug)]
pub struct LockGuard<'a, D: Device> {
    lock: &'a Lock,
    machine: &'a Machine<D>,
}

impl<D: Device> Machine<D> {
    /// Takes `lock`, after all that asked before.
    pub async fn lock<'a>(&'a self, lock: &'a Lock) -> LockGuard<'a, D> {
        if lock.held.replace(true) {
            lock.waiting.borrow_mut().push_back(self.current());
            self.park().await;
        }
        LockGuard { lock, machine: self }
    }
}

impl<D: Device> Drop for LockGuard<'_, D> {
    fn drop(&mut self) {
        match self.lock.waiting.borrow_mut().pop_front() {
            Some(next) => self.machine.wake(next),
            None => self.lock.held.set(false),
        }
    }
}

/// Threads that wait for a condition; whoever brings it about makes them ready, and they look again.
#[derive(Debug, Default)]
pub struct Waiters(RefCell<VecDeque<ThreadId>>);

impl<D: Device> Machine<D> {
    /// Waits until somebody notifies `waiters`.
    pub async fn wait_for(&self, waiters: &Waiters) {
        waiters.0.borrow_mut().push_back(self.current());
        self.park().await;
    }

    /// Makes all ready that wait there now, in the order in which they came; whether there were any.
    pub fn notify_all(&self, waiters: &Waiters) -> bool {
        let mut waiting = waiters.0.borrow_mut();
        let any = !waiting.is_empty();
        waiting.drain(..).for_each(|thread| self.wake(thread));
        any
    }

    /// Makes the first ready that waits there; whether there was one.
    pub fn notify_one(&self, waiters: &Waiters) -> bool {
        let first = waiters.0.borrow_mut().pop_front();
        first.inspect(|thread| self.wake(*thread)).is_some()
    }
}
