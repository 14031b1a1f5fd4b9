//! Device models by the wall clock, for live emulation.
//!
//! The model receives the arrival time of each request and is advanced when something is due; it cannot
//! distinguish this driver from virtual time. The model alone decides the time of a request; the delay of its
//! delivery is the front end's error, measured there.
//!
//! A front end waits for requests and time at once: it asks how long nothing will be due
//! ([`RealTime::left`]), waits for that long or for a request, and takes what is due.
//!
//! Invariants: times given to the model never decrease; a completion is delivered once, and never earlier
//! than the lead before its time.

#![forbid(unsafe_code)]

use std::time::Instant;

use device::{Completion, Device, Request};
use units::Nanos;

/// A model, and the clock that drives it.
#[derive(Debug)]
pub struct RealTime<D> {
    device: D,
    origin: Instant,
    last: Nanos,
    /// Device time passes this many times slower than the clock.
    scale: u32,
    /// How early completions are delivered, in device time.
    lead: Nanos,
}

impl<D: Device> RealTime<D> {
    /// Starts the clock of an idle device.
    pub fn new(device: D) -> Self {
        Self { device, origin: Instant::now(), last: Nanos::ZERO, scale: 1, lead: Nanos::ZERO }
    }

    /// A device that is this many times slower.
    ///
    /// # Panics
    /// With a scale of 0.
    #[must_use]
    pub fn stretched(self, scale: u32) -> Self {
        assert!(scale > 0, "time must pass");
        Self { scale, ..self }
    }

    /// Sets how early completions are delivered, in wall time: the overhead of reaching the client and back.
    pub fn lead_by(&mut self, lead: Nanos) {
        self.lead = Nanos(lead.get() / u64::from(self.scale));
    }

    /// Replaces the device by an idle one whose time begins now.
    pub fn replace(&mut self, device: D) {
        (self.device, self.origin, self.last) = (device, Instant::now(), Nanos::ZERO);
    }

    /// The model.
    pub const fn device(&mut self) -> &mut D {
        &mut self.device
    }

    /// Device time since the start; never less than the model's.
    pub fn now(&mut self) -> Nanos {
        self.last = self.last.max(self.wall());
        self.last
    }

    /// Device time by the clock, wherever the model is.
    fn wall(&self) -> Nanos {
        let passed = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Nanos(passed / u64::from(self.scale))
    }

    /// Submits a request now; returns its arrival time. Completions due by then are appended to `done` first.
    pub fn submit(&mut self, request: Request, done: &mut Vec<Completion>) -> Nanos {
        self.advance(done);
        let now = self.now();
        self.device.submit(now, request);
        now
    }

    /// Appends due completions to `done`. With a lead the model's clock runs ahead of the wall clock, but
    /// only to completions that are then due: a request that comes meanwhile gets that time, not an earlier
    /// one.
    pub fn advance(&mut self, done: &mut Vec<Completion>) {
        let (now, due) = (self.now(), self.wall() + self.lead);
        self.device.advance(now, done);
        while let Some(next) = self.device.next_event().filter(|next| *next <= due) {
            self.last = self.last.max(next);
            self.device.advance(next, done);
        }
    }

    /// Wall time until something is due; zero if something is, `None` if nothing ever will be.
    pub fn left(&mut self) -> Option<Nanos> {
        let next = self.device.next_event()?;
        Some(Nanos(next.since(self.wall() + self.lead).get() * u64::from(self.scale)))
    }
}
