//! Memory as a block device: one shared server and a copy.
//!
//! # Model
//! A request takes `serial_time` plus `copy_time` per started 4 KiB at one FIFO server, then `fixed_time`
//! without queueing.
//!
//! # Source
//! The constants' sources are in the profile.
//!
//! Invariant: reads and writes take the same time.

use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::constant::Constant;
use crate::pending::Pending;
use crate::{Completion, Device, Operation, Request, Stage, Stages};

/// Constants of a RAM disk.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RamParameters {
    /// Service time per request at the shared server.
    pub serial_time: Constant<Nanos>,
    /// Service time per started 4 KiB at the shared server.
    pub copy_time: Constant<Nanos>,
    /// Latency without queueing.
    pub fixed_time: Constant<Nanos>,
}

/// A RAM disk.
#[derive(Debug, Clone)]
pub struct Ram {
    serial_time: Nanos,
    copy_time: Nanos,
    fixed_time: Nanos,
    free: Nanos,
    done: Pending,
}

impl Ram {
    /// An idle device.
    #[must_use]
    pub fn new(parameters: &RamParameters) -> Self {
        Self {
            serial_time: parameters.serial_time.value,
            copy_time: parameters.copy_time.value,
            fixed_time: parameters.fixed_time.value,
            free: Nanos::ZERO,
            done: Pending::default(),
        }
    }
}

#[cfg(test)]
impl Ram {
    /// A device that serves one request after the other, each in `serial` and `fixed`.
    pub(crate) fn taking(serial: Nanos, fixed: Nanos) -> Self {
        let (free, done) = (Nanos::ZERO, Pending::default());
        Self { serial_time: serial, copy_time: Nanos::ZERO, fixed_time: fixed, free, done }
    }
}

impl Device for Ram {
    fn forgets(&self) -> bool {
        true
    }

    fn submit(&mut self, now: Nanos, request: Request) {
        // Memory is lost in a power failure, so there is nothing to flush.
        if request.operation == Operation::Flush {
            return self.done.at_once(now, request.id);
        }
        let service = self.serial_time + self.copy_time * request.carried();
        self.free = self.free.max(now) + service;
        let at = self.free + self.fixed_time;
        let parts = [(Stage::Media, service), (Stage::Controller, self.fixed_time)];
        self.done.push(Completion {
            id: request.id,
            at,
            stages: Stages::new(at.since(now), parts),
        });
    }

    fn next_event(&self) -> Option<Nanos> {
        self.done.next_time()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        self.done.take_due(now, done);
    }
}
