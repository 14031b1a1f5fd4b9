//! Synchronization of simulated threads: a FIFO lock, and a condition.
//!
//! Invariants: only waiting threads are made ready; a lock has one holder at a time; releasing it hands it
//! directly to the next waiter.

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

/// Holds a lock until dropped.
#[derive(Debug)]
pub struct LockGuard<'a, D: Device> {
    lock: &'a Lock,
    machine: &'a Machine<D>,
}

impl<D: Device> Machine<D> {
    /// Takes `lock`, after all earlier requests.
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

/// Threads that wait for a condition; a notification makes them ready, and they check again.
#[derive(Debug, Default)]
pub struct Waiters(RefCell<VecDeque<ThreadId>>);

impl<D: Device> Machine<D> {
    /// Waits until `waiters` is notified.
    pub async fn wait_for(&self, waiters: &Waiters) {
        waiters.0.borrow_mut().push_back(self.current());
        self.park().await;
    }

    /// Makes all current waiters ready, in order of arrival; returns whether there were any.
    pub fn notify_all(&self, waiters: &Waiters) -> bool {
        let mut waiting = waiters.0.borrow_mut();
        let any = !waiting.is_empty();
        waiting.drain(..).for_each(|thread| self.wake(thread));
        any
    }

    /// Makes the first waiter ready; returns whether there was one.
    pub fn notify_one(&self, waiters: &Waiters) -> bool {
        let first = waiters.0.borrow_mut().pop_front();
        first.inspect(|thread| self.wake(*thread)).is_some()
    }
}
