//! Any device model, dispatched statically.
//!
//! Invariant: an enum, so the loop that drives it has no indirect calls.

use units::{Nanos, Seed};

use crate::cache::Cache;
use crate::cloud::Cloud;
use crate::flow::Flow;
use crate::hdd::Hdd;
use crate::hop::Hop;
use crate::profile::{Parameters, Profile};
use crate::raid::Raid;
use crate::ram::Ram;
use crate::{Completion, Condition, Device, Nand, Request, XPoint};

/// A device of one of the known kinds.
#[derive(Debug, Clone)]
pub enum Model {
    /// 3D XPoint.
    XPoint(XPoint),
    /// NAND flash behind a controller.
    Nand(Box<Nand>),
    /// Memory.
    Ram(Ram),
    /// A disk drive.
    Hdd(Box<Hdd>),
    /// A cloud volume.
    Cloud(Box<Cloud>),
    /// A device described by measurements.
    Flow(Box<Flow>),
    /// An array of devices.
    Raid(Box<Raid<Self>>),
    /// A fast device in front of a slow one.
    Cache(Box<Cache<Self>>),
    /// A device behind a fabric or a hypervisor.
    Hop(Box<Hop<Self>>),
}

impl Model {
    /// The device that `profile` describes, idle; flash in `condition`.
    #[must_use]
    pub fn new(profile: &Profile, condition: Condition, seed: Seed) -> Self {
        match &profile.parameters {
            Parameters::XPoint(parameters) => Self::XPoint(XPoint::new(parameters, seed)),
            Parameters::Nand(parameters) => {
                Self::Nand(Box::new(Nand::new(parameters, profile.capacity, condition, seed)))
            }
            Parameters::Ram(parameters) => Self::Ram(Ram::new(parameters)),
            Parameters::Hdd(parameters) => {
                Self::Hdd(Box::new(Hdd::new(parameters, profile.capacity)))
            }
            Parameters::Cloud(parameters) => Self::Cloud(Box::new(Cloud::new(parameters, seed))),
            Parameters::Flow(parameters) => Self::Flow(Box::new(Flow::new(parameters, seed))),
            Parameters::Raid(parameters, members) => {
                // Drives of one model still have different random draws.
                let member = |(place, member): (usize, &Profile)| {
                    Self::new(member, condition, seed.derive("member", place as u64))
                };
                let members = members.iter().enumerate().map(member).collect();
                Self::Raid(Box::new(Raid::new(parameters, members)))
            }
            Parameters::Cache(parameters, both) => {
                let fast = Self::new(&both.0, condition, seed.derive("fast", 0));
                let slow = Self::new(&both.1, condition, seed.derive("slow", 0));
                Self::Cache(Box::new(Cache::new(parameters, fast, slow)))
            }
            Parameters::Hop(parameters, device) => {
                let below = Self::new(device, condition, seed);
                Self::Hop(Box::new(Hop::new(parameters, below, seed)))
            }
        }
    }
}

/// Dispatches a call to the variant's model.
macro_rules! each {
    ($model:expr, $device:ident => $call:expr) => {
        match $model {
            Self::XPoint($device) => $call,
            Self::Nand($device) => $call,
            Self::Ram($device) => $call,
            Self::Hdd($device) => $call,
            Self::Cloud($device) => $call,
            Self::Flow($device) => $call,
            Self::Raid($device) => $call,
            Self::Cache($device) => $call,
            Self::Hop($device) => $call,
        }
    };
}

impl Device for Model {
    #[inline]
    fn submit(&mut self, now: Nanos, request: Request) {
        each!(self, device => device.submit(now, request));
    }

    fn forgets(&self) -> bool {
        each!(self, device => device.forgets())
    }

    #[inline]
    fn next_event(&self) -> Option<Nanos> {
        each!(self, device => device.next_event())
    }

    #[inline]
    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        each!(self, device => device.advance(now, done));
    }
}
