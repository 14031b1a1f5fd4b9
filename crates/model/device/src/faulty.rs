//! A device with faults: a plan delays the completions of another device and decides on its requests.
//!
//! Times and outcomes are separate, like models and data: [`Faulty`] is a device, live and in virtual time;
//! [`FaultyDrive`] decides the outcome of each request for the owner of the data.
//!
//! Invariants: without a plan nothing changes; the same plan and the same requests in the same order give the
//! same faults.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Nanos, Share};

use crate::events::EventQueue;
use crate::faults::{Fault, FaultPlan};
use crate::{Completion, Device, Operation, Request, Stage, Stages};

/// Time of a command that does nothing, a few microseconds on NVMe.
const ACKNOWLEDGED: Nanos = Nanos(5_000);

/// A device whose completions a plan changes: stalls, slow periods, and flushes that are dropped.
#[derive(Debug, Clone)]
pub struct Faulty<D> {
    device: D,
    /// Faults that change times; the plan's time starts at `origin`.
    faults: Vec<Fault>,
    origin: Nanos,
    held: EventQueue<Completion>,
    below: Vec<Completion>,
}

impl<D: Device> Faulty<D> {
    /// Without faults.
    pub fn new(device: D) -> Self {
        let (held, below) = (EventQueue::default(), Vec::new());
        Self { device, faults: Vec::new(), origin: Nanos::ZERO, held, below }
    }

    /// Starts `plan` at `now`.
    pub fn begin(&mut self, plan: &FaultPlan, now: Nanos) {
        let timed = |fault: &&Fault| match fault {
            Fault::Stall { .. } | Fault::Slow { .. } => true,
            // Of a share, the owner of the data draws which.
            Fault::LyingFlush { share, .. } => *share == Share::ALL,
            _ => false,
        };
        self.faults = plan.faults.iter().filter(timed).cloned().collect();
        self.origin = now;
    }

    /// Ends the plan; delayed completions stay delayed.
    pub fn end(&mut self) {
        self.faults.clear();
    }

    /// When a completion that the device gave at `at`, after `took`, is delivered.
    fn held_until(&self, at: Nanos, took: Nanos) -> Nanos {
        let mut until = at;
        for fault in &self.faults {
            let now = until.since(self.origin);
            match fault {
                Fault::Slow { factor, when } if when.end_at(now).is_some() => {
                    let more = took.get().saturating_mul(u64::from(factor.get() - 1));
                    until += Nanos(more);
                }
                Fault::Stall { when } => {
                    if let Some(end) = when.end_at(now) {
                        until = self.origin + end;
                    }
                }
                _ => {}
            }
        }
        until
    }
}

impl<D: Device> Device for Faulty<D> {
    #[inline]
    fn submit(&mut self, now: Nanos, request: Request) {
        let since = now.since(self.origin);
        if self.faults.iter().any(|fault| fault.meets(since, &request)) {
            // A dropped flush takes a command's time: nothing is written.
            let stages = Stages::new(ACKNOWLEDGED, [(Stage::Controller, ACKNOWLEDGED)]);
            let at = now + ACKNOWLEDGED;
            self.held.push(at, Completion { id: request.id, at, stages });
            return;
        }
        self.device.submit(now, request);
    }

    fn next_event(&self) -> Option<Nanos> {
        let (below, held) = (self.device.next_event(), self.held.next_time());
        below.min(held).or(below).or(held)
    }

    fn forgets(&self) -> bool {
        self.device.forgets()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        if self.faults.is_empty() && self.held.is_empty() {
            return self.device.advance(now, done);
        }
        self.device.advance(now, &mut self.below);
        let mut below = std::mem::take(&mut self.below);
        for completion in below.drain(..) {
            let until = self.held_until(completion.at, completion.stages.total());
            self.held.push(until, completion.held_until(until));
        }
        self.below = below;
        while let Some((_, completion)) = self.held.pop_due(now) {
            done.push(completion);
        }
    }
}

/// Why a request ends with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultError {
    /// Input/output error.
    Io,
    /// The device is read-only.
    ReadOnly,
}

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// The request succeeds.
    Right,
    /// It fails and changes nothing.
    Fails(FaultError),
    /// It fails with ENOSPC if that much is stored already.
    FailsBeyond(u64),
    /// It is acknowledged and not done.
    Lies,
    /// It is done with one flipped bit, chosen by this number.
    Rots(u64),
    /// The power is cut while it is in flight.
    PowerCut,
}

/// Applies a fault plan to requests.
#[derive(Debug, Clone)]
pub struct FaultyDrive {
    plan: FaultPlan,
    random: Xoshiro256PlusPlus,
    writes: u64,
}

impl FaultyDrive {
    /// Starts `plan`.
    #[must_use]
    pub fn new(plan: FaultPlan) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(plan.seed.derive("faults", 0).0);
        Self { plan, random, writes: 0 }
    }

    /// The plan.
    #[must_use]
    pub const fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    /// Whether power is cut by `now`, counted from the plan's start; [`FaultyDrive::judge`] decides for
    /// counted writes.
    #[must_use]
    pub fn is_cut(&self, now: Nanos) -> bool {
        let gone =
            |fault: &Fault| matches!(fault, Fault::PowerCut { at: Some(at), .. } if now >= *at);
        self.plan.faults.iter().any(gone)
    }

    /// The outcome of a request at `now`, counted from the plan's start.
    pub fn judge(&mut self, now: Nanos, request: &Request) -> Judgement {
        self.writes += u64::from(request.operation == Operation::Write);
        let count = self.writes;
        let is_last = |fault: &Fault| match fault {
            Fault::PowerCut { write: Some(write), .. } => count >= *write,
            _ => false,
        };
        if self.is_cut(now) || self.plan.faults.iter().any(is_last) {
            return Judgement::PowerCut;
        }
        for fault in &self.plan.faults {
            if !fault.meets(now, request) || !self.random.random_bool(fault.chance()) {
                continue;
            }
            return match fault {
                Fault::Error { .. } => Judgement::Fails(FaultError::Io),
                Fault::ReadOnly { .. } => Judgement::Fails(FaultError::ReadOnly),
                Fault::Full { after } => Judgement::FailsBeyond(after.get()),
                Fault::LostWrite { .. } | Fault::LyingFlush { .. } => Judgement::Lies,
                Fault::BitRot { .. } => Judgement::Rots(self.random.random()),
                Fault::Stall { .. } | Fault::Slow { .. } | Fault::PowerCut { .. } => continue,
            };
        }
        Judgement::Right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ram;

    fn plan(faults: &str) -> FaultPlan {
        FaultPlan::parse(&format!("schema = 1\nseed = 3\n{faults}")).unwrap()
    }

    fn judged(faults: &str, requests: &[(Nanos, Request)]) -> Vec<Judgement> {
        let mut drive = FaultyDrive::new(plan(faults));
        requests.iter().map(|(now, request)| drive.judge(*now, request)).collect()
    }

    /// A test of error handling depends on faults hitting the given share of the given requests, and no
    /// others.
    #[test]
    fn faults_meet_their_share_of_what_they_name_and_nothing_else() {
        let text = "[[fault]]\nkind = \"error\"\nof = [\"write\"]\nshare = \"10%\"\n\
                    range = { offset = \"4KiB\", length = \"4KiB\" }\n";
        let writes: Vec<_> =
            (0..10_000).map(|id| (Nanos::ZERO, Request::write(id, 4096, 512))).collect();
        let met = judged(text, &writes);
        let failed = met.iter().filter(|one| **one == Judgement::Fails(FaultError::Io)).count();
        assert!((800..1200).contains(&failed), "{failed}");
        assert_eq!(met, judged(text, &writes), "the same seed meets the same ones");
        let others = [
            (Nanos::ZERO, Request::read(1, 4096, 512)),
            (Nanos::ZERO, Request::write(2, 8192, 512)),
            (Nanos::ZERO, Request::flush(3)),
        ];
        let text = text.replace("10%", "100%");
        assert_eq!(judged(&text, &others), [Judgement::Right; 3]);
        assert_eq!(judged(&text, &writes[..1]), [Judgement::Fails(FaultError::Io)]);
    }

    #[test]
    fn the_power_goes_once_and_stays_away() {
        let requests: Vec<_> = (0..4)
            .map(|id| (Nanos::from_secs(id), Request::write(id, 0, 512)))
            .chain([(Nanos::from_secs(4), Request::read(9, 0, 512))])
            .collect();
        let by_write = judged("[[fault]]\nkind = \"power_cut\"\nwrite = 3\n", &requests);
        let right = Judgement::Right;
        let gone = Judgement::PowerCut;
        assert_eq!(by_write, [right, right, gone, gone, gone]);
        let by_time = judged("[[fault]]\nkind = \"power_cut\"\nat = \"1s\"\n", &requests);
        assert_eq!(by_time, [right, gone, gone, gone, gone]);
    }

    /// Completion times on a device of 10 us of requests submitted at these times.
    fn ended(faults: &str, submitted: [u64; 3]) -> [Nanos; 3] {
        let mut device = Faulty::new(Ram::taking(Nanos::ZERO, Nanos::from_micros(10)));
        device.begin(&plan(faults), Nanos::ZERO);
        let mut done = Vec::new();
        for (id, at) in (0..).zip(submitted.map(Nanos::from_micros)) {
            device.advance(at, &mut done);
            device.submit(at, Request::read(id, id * 4096, 4096));
        }
        while let Some(next) = device.next_event() {
            device.advance(next, &mut done);
        }
        let mut at = [Nanos::ZERO; 3];
        for one in done {
            let began = Nanos::from_micros(submitted[one.id as usize]);
            assert_eq!(one.stages.total(), one.at.since(began), "stages sum to the whole");
            at[one.id as usize] = one.at;
        }
        at
    }

    /// A drive that drops flushes answers before one that writes could; only then can a check suspect it.
    #[test]
    fn a_dropped_flush_takes_the_time_of_a_command() {
        let took = |faults: &str| {
            let mut device = Faulty::new(Ram::taking(Nanos::ZERO, Nanos::from_micros(900)));
            device.begin(&plan(faults), Nanos::ZERO);
            device.submit(Nanos::ZERO, Request::flush(1));
            device.submit(Nanos::ZERO, Request::write(2, 0, 512));
            let mut done = Vec::new();
            while let Some(next) = device.next_event() {
                device.advance(next, &mut done);
            }
            done.sort_by_key(|one| one.id);
            done.iter().map(|one| one.at).collect::<Vec<Nanos>>()
        };
        let drops = took("[[fault]]\nkind = \"lying_flush\"\n");
        assert_eq!(drops, [ACKNOWLEDGED, Nanos::from_micros(900)]);
        assert_eq!(took("[[fault]]\nkind = \"lying_flush\"\nshare = \"50%\"\n")[1], drops[1]);
    }

    #[test]
    fn stalls_hold_everything_and_slowness_stretches() {
        let micros = |times: [u64; 3]| times.map(Nanos::from_micros);
        assert_eq!(ended("", [0, 100, 1000]), micros([10, 110, 1010]));
        let stall = "[[fault]]\nkind = \"stall\"\nwhen = { at = \"100us\", for = \"500us\" }\n";
        assert_eq!(ended(stall, [0, 100, 200]), micros([10, 600, 600]));
        let slow = "[[fault]]\nkind = \"slow\"\nfactor = 3\n";
        assert_eq!(ended(slow, [0, 100, 1000]), micros([30, 130, 1030]));
    }
}
