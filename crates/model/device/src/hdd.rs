//! A hard disk: one arm, rotating platters, and a queue served in shortest-positioning-time order.
//!
//! # Model
//! Positioning takes a seek of `seek_min + (seek_max - seek_min) * sqrt(distance / capacity)` and the
//! rotational delay of the sector, whose angle follows from its address and `track_size`; the transfer takes
//! `transfer_time` per started 4 KiB. Of up to `max_in_flight` requests the one with the shortest positioning
//! time is next (SPTF); a request that continues the last one needs no positioning.
//!
//! # Source
//! Ruemmler and Wilkes, "An Introduction to Disk Drive Modeling", 1994 (seek curve, rotation); Jacobson and
//! Wilkes, 1991 (SPTF).
//!
//! Invariant: one request at a time.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

use crate::constant::Constant;
use crate::pending::Pending;
use crate::request::Route;
use crate::{Completion, Device, Operation, Request, Stage};

/// Constants of a disk drive.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HddParameters {
    /// One revolution.
    pub rotation_time: Constant<Nanos>,
    /// Shortest seek.
    pub seek_min: Constant<Nanos>,
    /// Full-stroke seek.
    pub seek_max: Constant<Nanos>,
    /// Transfer for each started 4 KiB.
    pub transfer_time: Constant<Nanos>,
    /// Bytes of a track.
    pub track_size: Constant<Bytes>,
    /// Requests among which the drive chooses; more wait in the host.
    pub max_in_flight: Constant<u32>,
}

/// A disk drive.
#[derive(Debug, Clone)]
pub struct Hdd {
    parameters: HddParameters,
    capacity: u64,
    queue: Vec<(Request, Route)>,
    outside: VecDeque<(Request, Route)>,
    /// The request in service and when it is done.
    serving: Option<(Nanos, Request, Route)>,
    /// Requests without work on the platter.
    at_once: Pending,
    /// Position of the arm: the end of the last request.
    head: u64,
}

impl Hdd {
    /// An idle drive of `capacity`.
    #[must_use]
    pub fn new(parameters: &HddParameters, capacity: Bytes) -> Self {
        Self {
            parameters: parameters.clone(),
            capacity: capacity.get().max(1),
            queue: Vec::new(),
            outside: VecDeque::new(),
            serving: None,
            at_once: Pending::default(),
            head: 0,
        }
    }

    /// Time until the first byte of `request` is under the head.
    fn positioning(&self, now: Nanos, request: &Request) -> Nanos {
        if request.offset == self.head {
            return Nanos::ZERO;
        }
        let p = &self.parameters;
        let distance = request.offset.abs_diff(self.head) as f64 / self.capacity as f64;
        let range = p.seek_max.value.since(p.seek_min.value).get() as f64;
        let seek = p.seek_min.value + Nanos((range * distance.sqrt()) as u64);
        let turn = p.rotation_time.value.get().max(1);
        let track = p.track_size.value.get().max(1);
        // Angles of the sector, and of the platter when the arm arrives.
        let sector = u128::from(request.offset % track) * u128::from(turn) / u128::from(track);
        let arrived = (now + seek).get() % turn;
        let wait = (sector as u64 + turn - arrived) % turn;
        seek + Nanos(wait)
    }

    fn start_next(&mut self, now: Nanos) {
        if self.serving.is_some() {
            return;
        }
        let nearest = (0..self.queue.len())
            .min_by_key(|place| (self.positioning(now, &self.queue[*place].0), *place));
        let Some(place) = nearest else { return };
        let (request, mut path) = self.queue.remove(place);
        let transfer = self.parameters.transfer_time.value * request.chunks();
        let there = now + self.positioning(now, &request);
        let end = there + transfer;
        path.served(now, Stage::Media, there);
        path.until(Stage::Transfer, end);
        self.head = request.offset + u64::from(request.length);
        self.serving = Some((end, request, path));
        if let Some(waiting) = self.outside.pop_front() {
            self.queue.push(waiting);
        }
    }
}

impl Device for Hdd {
    fn submit(&mut self, now: Nanos, request: Request) {
        // There is no write cache, and nothing to discard.
        if matches!(request.operation, Operation::Flush | Operation::Discard) {
            return self.at_once.at_once(now, request.id);
        }
        let path = Route::new(now);
        let in_service = usize::from(self.serving.is_some());
        if self.queue.len() + in_service < self.parameters.max_in_flight.value as usize {
            self.queue.push((request, path));
        } else {
            self.outside.push_back((request, path));
        }
        self.start_next(now);
    }

    fn next_event(&self) -> Option<Nanos> {
        let serving = self.serving.map(|(end, ..)| end);
        [serving, self.at_once.next_time()].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        // Submitted before now, so they precede later platter work.
        self.at_once.take_due(now, done);
        while let Some((end, request, path)) = self.serving.filter(|(end, ..)| *end <= now) {
            self.serving = None;
            done.push(path.done(request.id));
            self.start_next(end);
        }
    }
}
