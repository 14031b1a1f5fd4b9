//! A device below another one, which remembers when it does something next.
//!
//! A stack looks at every event of its own when the next one is, and asking a device that is a stack itself
//! goes all the way down. Invariant: what it remembers is what the device would say; only requests and
//! events change that.

use units::Nanos;

use crate::{Completion, Device, Request};

/// A device, asked for its next event only after something was done to it.
#[derive(Debug, Clone)]
pub(crate) struct Below<D> {
    device: D,
    /// The end of time if never.
    next: Nanos,
}

impl<D: Device> Below<D> {
    /// Around `device`.
    pub fn new(device: D) -> Self {
        let next = device.next_event().unwrap_or(Nanos::MAX);
        Self { device, next }
    }

    /// When it does something next; the end of time if never.
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
