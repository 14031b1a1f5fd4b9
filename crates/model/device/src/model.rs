//! Any device model, dispatched statically.
//!
//! Invariant: an enum, so the loop that drives it has no indirect calls. What it is not: a registry;
//! profiles are found by the caller.

use units::{Nanos, Seed};

use crate::profile::{Parameters, Profile};
use crate::{Completion, Device, Nand, Request, XPoint};

/// A device of one of the known kinds.
#[derive(Debug, Clone)]
pub enum Model {
    /// 3D XPoint.
    XPoint(XPoint),
    /// NAND flash behind a controller.
    Nand(Box<Nand>),
}

impl Model {
    /// The device that `profile` describes, idle.
    #[must_use]
    pub fn new(profile: &Profile, seed: Seed) -> Self {
        match &profile.parameters {
            Parameters::XPoint(parameters) => Self::XPoint(XPoint::new(parameters)),
            Parameters::Nand(parameters) => Self::Nand(Box::new(Nand::new(parameters, seed))),
        }
    }
}

impl Device for Model {
    #[inline]
    fn submit(&mut self, now: Nanos, request: Request) {
        match self {
            Self::XPoint(device) => device.submit(now, request),
            Self::Nand(device) => device.submit(now, request),
        }
    }

    #[inline]
    fn next_event(&self) -> Option<Nanos> {
        match self {
            Self::XPoint(device) => device.next_event(),
            Self::Nand(device) => device.next_event(),
        }
    }

    #[inline]
    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        match self {
            Self::XPoint(device) => device.advance(now, done),
            Self::Nand(device) => device.advance(now, done),
        }
    }
}
