//! What the client threads of one trial share, and how each ends.
//!
//! Invariants: touched once an operation at most by a relaxed load; written only when something went
//! wrong or came to its end. What it is not: a queue between threads; each issues for itself.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use observe::{Clock, Control, IoWorkers};
use stats::{DueShares, Recorder, Recording};
use units::Nanos;
use workload::{BlockClient, BlockGroup, BlockOp, Issue, Outcome};

use crate::verify::{self, Corruption};
use crate::{BlockSpec, Target};

pub(crate) struct BlockShared<'a> {
    pub target: &'a Target,
    pub spec: &'a BlockSpec<'a>,
    pub control: &'a Control<'a>,
    pub clock: Clock,
    /// The trial is over: something failed, or all there was to do is done.
    over: AtomicBool,
    /// How far behind its schedule the trial was when it was given up; 0: it was not.
    lag_ns: AtomicU64,
    /// Clients of interest that are still at work; when none is, those beside them stop.
    foreground_left: AtomicU32,
    pub corruption: OnceLock<Box<Corruption>>,
}

/// What one client thread gave.
pub(crate) struct ClientEnd {
    pub recording: Recording,
    /// The client with what it missed by class, if it is recorded.
    pub client: Option<(BlockClient, DueShares)>,
    /// When it ended.
    pub at: Nanos,
    /// Share of its time in which it used a CPU.
    pub busy: f64,
    /// Threads that carried out requests for a ring, as they were when this client ended: they end with
    /// it.
    pub workers: IoWorkers,
}

impl<'a> BlockShared<'a> {
    pub fn new(
        (target, spec): (&'a Target, &'a BlockSpec<'a>),
        control: &'a Control<'a>,
        clock: Clock,
        foreground: u32,
    ) -> Self {
        Self {
            target,
            spec,
            control,
            clock,
            over: AtomicBool::new(false),
            lag_ns: AtomicU64::new(0),
            foreground_left: AtomicU32::new(foreground),
            corruption: OnceLock::new(),
        }
    }

    /// Whether clients should stop where they are.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// How far behind its schedule the trial was when it was given up.
    pub fn lag(&self) -> Option<Nanos> {
        let lag = self.lag_ns.load(Ordering::Relaxed);
        (lag > 0).then_some(Nanos(lag))
    }

    /// Gives the trial up when an operation would be issued too long after it was due.
    #[inline]
    pub fn watch_lag(&self, issue: &Issue<BlockOp>, now: Nanos) {
        if let Some(max) = self.spec.max_lag {
            let lag = now.since(issue.intended);
            if lag > max {
                self.lag_ns.store(lag.get(), Ordering::Relaxed);
                self.over.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Before an operation goes out: stamps what is written, when data is verified.
    #[inline]
    pub fn prepare(&self, op: BlockOp, buffer: &mut [u8]) {
        if let Some(ledger) = self.spec.verify {
            verify::before(ledger, op, buffer);
        }
    }

    /// After an operation: checks data, and ends the trial when it is wrong or a failure should end it.
    #[inline]
    pub fn conclude(&self, op: BlockOp, outcome: Outcome, buffer: &[u8]) {
        if outcome != Outcome::Done && self.spec.stop_on_error {
            self.over.store(true, Ordering::Relaxed);
        }
        let Some(ledger) = self.spec.verify else { return };
        match verify::after(ledger, self.target, op, outcome, buffer) {
            Ok(checked) => {
                if checked {
                    ledger.count_check();
                }
            }
            Err(corruption) => {
                // The first one is the evidence.
                let _ = self.corruption.set(corruption);
                self.over.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Ends the interval that is over; says whether the user asked to stop. `client` is a number, and
    /// whether it is recorded.
    #[inline]
    pub fn roll(
        &self,
        recorder: &mut Recorder,
        (client, recorded): (u32, bool),
        now: Nanos,
    ) -> bool {
        let mut stopping = false;
        while let Some(summary) = recorder.poll(now) {
            self.control.tell(client, summary);
            if recorded {
                self.control.keep(recorder, client, now);
            }
            stopping |= self.control.stopping();
        }
        stopping
    }

    /// Ends one client, of that number, that has nothing in flight.
    pub fn finish(
        &self,
        group: &BlockGroup,
        (number, client, mut recorder): (u32, BlockClient, Recorder),
        (now, stopped): (Nanos, bool),
    ) -> ClientEnd {
        // Everything was done before the time was over: a plan bounded by operations.
        let early = !stopped && !self.is_over() && now < self.spec.timeline.end();
        if group.recorded {
            self.control.leave(&mut recorder, number, now);
        }
        let mut recording = if early { recorder.finish_early(now) } else { recorder.finish(now) };
        if !group.plan.background && self.foreground_left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.over.store(true, Ordering::Relaxed);
        }
        if !group.recorded {
            recording = Recording::default();
        }
        let shares = recording.due_shares(&group.plan.classes());
        let client = group.recorded.then_some((client, shares));
        let busy = observe::thread_usage().cpu().as_secs_f64() / now.as_secs_f64().max(1e-9);
        ClientEnd { recording, client, at: now, busy, workers: IoWorkers::now() }
    }
}
