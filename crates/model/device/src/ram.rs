//! Memory as a block device: one shared server, a copy, nothing else.
//!
//! # Model
//! A request takes `serial_time` plus `copy_time` for each started 4 KiB at one FIFO server, then
//! `fixed_time` that no other waits for. # Source: the constants' own, in the profile.
//!
//! Invariant: reads and writes are alike. What it is not: a cache hierarchy.

use serde::Deserialize;
use units::Nanos;

use crate::profile::Constant;
use crate::{Completion, Device, EventQueue, Request, chunks_touched};

/// Constants of a RAM disk.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RamParameters {
    /// Shared service a request.
    pub serial_time: Constant<Nanos>,
    /// Shared service for each started 4 KiB.
    pub copy_time: Constant<Nanos>,
    /// Latency that no other request waits for.
    pub fixed_time: Constant<Nanos>,
}

/// A RAM disk.
#[derive(Debug, Clone)]
pub struct Ram {
    serial_time: Nanos,
    copy_time: Nanos,
    fixed_time: Nanos,
    free: Nanos,
    done: EventQueue<u64>,
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
            done: EventQueue::default(),
        }
    }
}

impl Device for Ram {
    fn submit(&mut self, now: Nanos, request: Request) {
        let copies = chunks_touched(request.offset, request.length);
        self.free = self.free.max(now) + self.serial_time + self.copy_time * copies;
        self.done.push(self.free + self.fixed_time, request.id);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.done.next_time()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some((at, id)) = self.done.pop_due(now) {
            done.push(Completion { id, at });
        }
    }
}
