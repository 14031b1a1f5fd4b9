//! A hop between host and device: a network fabric, or a hypervisor.
//!
//! # Model
//! A request takes `serial_time` at the server of its path, crosses the wire (`wire_time` per started 4 KiB;
//! writes outwards, reads on return), half of `round_trip` with an exponential jitter, then the device below,
//! and the other half back. Paths are virtual machines or connections: requests are distributed in turn, and
//! each has its own server, while the wire and the device are shared.
//!
//! # Source
//! The constants' sources are in the profiles.
//!
//! Invariant: a request never takes less than round trip, serial and wire time.

use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use units::{Nanos, Seed};

use crate::below::Below;
use crate::constant::Constant;
use crate::request::Route;
use crate::slab::Slab;
use crate::{Completion, Device, EventQueue, Operation, Request, Stage};

/// Constants of a hop.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HopParameters {
    /// Name of the device below, or a profile file.
    pub device: String,
    /// Latency added by the round trip, without queueing.
    pub round_trip: Constant<Nanos>,
    /// Mean of the exponential delay added to each way; zero for none.
    pub jitter: Constant<Nanos>,
    /// Service time of a request at the server of its path.
    pub serial_time: Constant<Nanos>,
    /// Paths, each with a server: virtual machines, connections, cores.
    pub paths: Constant<u32>,
    /// Shared wire for each started 4 KiB of payload.
    pub wire_time: Constant<Nanos>,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    /// The request of this job reaches the device.
    Arrive(u32),
    /// Its response reaches the host.
    Return(u32),
}

/// A device behind a hop.
#[derive(Debug, Clone)]
pub struct Hop<D> {
    below: Below<D>,
    half: Nanos,
    jitter: Nanos,
    serial_time: Nanos,
    wire_time: Nanos,
    /// `[path]`: when its server is next free.
    path_free: Vec<Nanos>,
    next_path: usize,
    /// When the wire is next free, in each direction.
    wire_free: [Nanos; 2],
    jobs: Slab<(Request, Route)>,
    events: EventQueue<Event>,
    random: Xoshiro256PlusPlus,
    finished: Vec<Completion>,
}

impl<D: Device> Hop<D> {
    /// An idle hop before `below`.
    #[must_use]
    pub fn new(parameters: &HopParameters, below: D, seed: Seed) -> Self {
        Self {
            below: Below::new(below),
            half: Nanos(parameters.round_trip.value.get() / 2),
            jitter: parameters.jitter.value,
            serial_time: parameters.serial_time.value,
            wire_time: parameters.wire_time.value,
            path_free: vec![Nanos::ZERO; parameters.paths.value.max(1) as usize],
            next_path: 0,
            wire_free: [Nanos::ZERO; 2],
            jobs: Slab::default(),
            events: EventQueue::default(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed.derive("hop", 0).0),
            finished: Vec::new(),
        }
    }

    fn one_way(&mut self) -> Nanos {
        if self.jitter == Nanos::ZERO {
            return self.half;
        }
        let draw: f64 = Exp1.sample(&mut self.random);
        self.half + Nanos((draw * self.jitter.get() as f64) as u64)
    }

    /// Crosses the wire from `now` in one direction, if there is payload.
    fn cross(&mut self, now: Nanos, back: bool, request: Request) -> Nanos {
        let carries = request.carried() > 0 && (request.operation == Operation::Read) == back;
        if !carries || self.wire_time == Nanos::ZERO {
            return now;
        }
        let time = self.wire_time * request.carried();
        let free = &mut self.wire_free[usize::from(back)];
        *free = (*free).max(now) + time;
        *free
    }

    fn happen(&mut self, now: Nanos, event: Event, done: &mut Vec<Completion>) {
        match event {
            Event::Arrive(job) => {
                let request = self.jobs.get(job).0.named(u64::from(job));
                self.below.submit(now, request);
            }
            Event::Return(job) => {
                let (request, path) = self.jobs.take(job);
                done.push(path.done(request.id));
            }
        }
    }
}

impl<D: Device> Device for Hop<D> {
    fn forgets(&self) -> bool {
        self.below.forgets()
    }

    fn submit(&mut self, now: Nanos, request: Request) {
        let mut path = Route::new(now);
        let free = &mut self.path_free[self.next_path];
        let start = (*free).max(now);
        let sent = start + self.serial_time;
        *free = sent;
        self.next_path = (self.next_path + 1) % self.path_free.len();
        let arrives = self.cross(sent, false, request) + self.one_way();
        path.served(start, Stage::Hop, arrives);
        let job = self.jobs.put((request, path));
        self.events.push(arrives, Event::Arrive(job));
    }

    fn next_event(&self) -> Option<Nanos> {
        let next = self.events.next_time().unwrap_or(Nanos::MAX).min(self.below.next());
        (next < Nanos::MAX).then_some(next)
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            if self.below.next() == at {
                let mut finished = std::mem::take(&mut self.finished);
                self.below.advance(at, &mut finished);
                for completion in finished.drain(..) {
                    let job = completion.id as u32;
                    let request = self.jobs.get(job).0;
                    let returns = self.cross(completion.at, true, request) + self.one_way();
                    let path = &mut self.jobs.at(job).1;
                    path.below(&completion);
                    path.until(Stage::Hop, returns);
                    self.events.push(returns, Event::Return(job));
                }
                self.finished = finished;
            } else if let Some((at, event)) = self.events.pop_due(at) {
                self.happen(at, event, done);
            }
        }
    }
}
