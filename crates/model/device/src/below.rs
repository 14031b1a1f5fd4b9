//! A lower device with a cached next event.
//!
//! A stack checks its next event often, and querying a device that is itself a stack goes all the way down.
//! Invariant: the cache equals the device's answer; only requests and events change that.

use units::Nanos;

use crate::{Completion, Device, Request};

/// A device whose next event is queried only after a change.
#[derive(Debug, Clone)]
pub(crate) struct Below<D> {
    device: D,
    /// `Nanos::MAX` if there is none.
    next: Nanos,
}

impl<D: Device> Below<D> {
    /// Wraps `device`.
    pub fn new(device: D) -> Self {
        let next = device.next_event().unwrap_or(Nanos::MAX);
        Self { device, next }
    }

    /// Time of the device's next event; `Nanos::MAX` if there is none.
    #[inline]
    pub fn next(&self) -> Nanos {
        self.next
    }

    /// As [`Device::submit`].
    #[inline]
    pub fn submit(&mut self, now: Nanos, request: Request) {
        self.device.submit(now, request);
        self.look();
    }

    /// As [`Device::advance`].
    #[inline]
    pub fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        self.device.advance(now, done);
        self.look();
    }

    /// As [`Device::forgets`].
    pub fn forgets(&self) -> bool {
        self.device.forgets()
    }

    #[inline]
    fn look(&mut self) {
        self.next = self.device.next_event().unwrap_or(Nanos::MAX);
    }
}
