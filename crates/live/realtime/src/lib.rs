//! Device models by the wall clock: the driver of everything that is emulated live.
//!
//! The model is told the instant at which each request arrives and is advanced when something is due; it
//! cannot tell this driver from the one of virtual time. What a request takes is decided by the model
//! alone; how late its completion is delivered is this driver's own error, and is measured.
//!
//! Invariants: instants given to the model never decrease; a completion is delivered once, never before
//! its time. What it is not: a block device; front ends hand requests in and completions out.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use device::{Completion, Device, Request};
use units::Nanos;

/// Waits shorter than this spin: a timer of the kernel would be later than what it waits for.
const SPIN: Nanos = Nanos(60_000);

/// A model, and the clock that drives it.
#[derive(Debug)]
pub struct RealTime<D> {
    device: D,
    origin: Instant,
    last: Nanos,
}

impl<D: Device> RealTime<D> {
    /// Starts the clock of an idle device.
    pub fn new(device: D) -> Self {
        Self { device, origin: Instant::now(), last: Nanos::ZERO }
    }

    /// Time since the start; never less than the model was told.
    pub fn now(&mut self) -> Nanos {
        let passed = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last = self.last.max(Nanos(passed));
        self.last
    }

    /// Takes a request now; gives the instant that the model was told. Completions that are due by then are
    /// appended to `done` first.
    pub fn submit(&mut self, request: Request, done: &mut Vec<Completion>) -> Nanos {
        let now = self.now();
        self.device.advance(now, done);
        self.device.submit(now, request);
        now
    }

    /// Waits until something completes, or until `until`; appends what completed to `done`. Returns at once
    /// when something is due already, and when nothing ever will be and there is no `until`.
    pub fn wait(&mut self, until: Option<Nanos>, done: &mut Vec<Completion>) {
        let before = done.len();
        loop {
            let now = self.now();
            self.device.advance(now, done);
            let next = [self.device.next_event(), until].into_iter().flatten().min();
            let Some(next) = next.filter(|_| done.len() == before && until.is_none_or(|u| u > now))
            else {
                return;
            };
            self.pass(next);
        }
    }

    /// Lets time pass until `next`: sleeps through most of it, spins through the rest.
    fn pass(&mut self, next: Nanos) {
        loop {
            let left = next.since(self.now());
            if left == Nanos::ZERO {
                return;
            }
            match left.get().checked_sub(SPIN.get()) {
                Some(long) if long > 0 => std::thread::sleep(Duration::from_nanos(long)),
                _ => std::hint::spin_loop(),
            }
        }
    }
}
