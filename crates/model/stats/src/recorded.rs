//! How operations of each kind are recorded: a block or key-value operation by itself, a SQL statement also
//! as part of its phase and of its transaction.
//!
//! Invariant: every statement is recorded once under its class and, in a transaction that ends normally, once
//! as part of its phase (unless it is alone) and once as part of the transaction. Reads no clock.

use units::Nanos;
use workload::{
    BlockOp, Issue, KvOp, LaneOp, OpClass, Operation, Outcome, SqlOp, changed_bytes, phase_of,
};

use crate::{Recorder, Sample};

/// An operation that a driver can record.
pub trait Recorded: Operation {
    /// Whether the client retries operations that the engine rolled back; otherwise a rollback is a failure.
    const RETRIES: bool = false;
    /// State of a multi-statement operation.
    type Parts: Default;

    /// Records an operation that was issued at the first time, completed at the second and transferred
    /// `bytes`.
    #[inline]
    fn record(
        parts: &mut Self::Parts,
        recorder: &mut Recorder,
        issue: &Issue<Self>,
        times: (Nanos, Nanos),
        end: (Outcome, u32),
    ) {
        let _ = parts;
        recorder.record(Sample::of(issue, times, end));
    }
}

impl Recorded for BlockOp {
    type Parts = ();
}

impl Recorded for KvOp {
    type Parts = ();
}

impl Recorded for SqlOp {
    const RETRIES: bool = true;

    type Parts = SqlParts;

    /// `bytes` are those of the columns that the statement changes.
    fn record(
        parts: &mut SqlParts,
        recorder: &mut Recorder,
        issue: &Issue<Self>,
        times: (Nanos, Nanos),
        (outcome, _): (Outcome, u32),
    ) {
        parts.record(recorder, issue, times, outcome);
    }
}

/// State of each lane, created at its first operation.
#[derive(Debug)]
pub struct LaneParts<P>(Vec<P>);

impl<P> Default for LaneParts<P> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<Op: Recorded> Recorded for LaneOp<Op> {
    const RETRIES: bool = Op::RETRIES;

    type Parts = LaneParts<Op::Parts>;

    #[inline]
    fn record(
        parts: &mut Self::Parts,
        recorder: &mut Recorder,
        issue: &Issue<Self>,
        times: (Nanos, Nanos),
        end: (Outcome, u32),
    ) {
        let lane = issue.op.lane as usize;
        if parts.0.len() <= lane {
            parts.0.resize_with(lane + 1, Op::Parts::default);
        }
        let own = Issue { id: issue.id, op: issue.op.op, intended: issue.intended };
        Op::record(&mut parts.0[lane], recorder, &own, times, end);
    }
}

/// Consecutive statements of one phase.
#[derive(Debug, Clone, Copy)]
struct Phase {
    class: OpClass,
    begun: Nanos,
    ended: Nanos,
    bytes: u32,
}

/// An open transaction.
#[derive(Debug, Default)]
pub struct SqlParts {
    /// When the transaction was due, and when it began.
    intended: Nanos,
    issued: Nanos,
    /// Bytes that it changed so far.
    bytes: u32,
    phase: Option<Phase>,
}

impl SqlParts {
    /// Records a statement issued at `issued` that has completed.
    fn record(
        &mut self,
        recorder: &mut Recorder,
        issue: &Issue<SqlOp>,
        (issued, completed): (Nanos, Nanos),
        outcome: Outcome,
    ) {
        let op = &issue.op;
        let bytes = changed_bytes(op.class);
        if op.first {
            *self = Self { intended: issue.intended, issued, ..Self::default() };
        }
        let mut record = |class, intended, (issued, completed), bytes| {
            let position = op.row;
            let sample = Sample { class, intended, issued, completed, bytes, outcome, position };
            recorder.record(sample);
        };
        record(op.class, issue.intended, (issued, completed), bytes);
        if outcome != Outcome::Done {
            self.phase = None;
            return;
        }
        self.bytes += bytes;
        let alone = op.first && op.last;
        let class = phase_of(op.class).filter(|_| !alone);
        if let Some(over) = self.phase.take_if(|open| class != Some(open.class)) {
            record(over.class, over.begun, (over.begun, over.ended), over.bytes);
        }
        if let Some(class) = class {
            let fresh = Phase { class, begun: issued, ended: completed, bytes: 0 };
            let open = self.phase.get_or_insert(fresh);
            (open.ended, open.bytes) = (completed, open.bytes + bytes);
        }
        if op.last {
            if let Some(over) = self.phase.take() {
                record(over.class, over.begun, (over.begun, over.ended), over.bytes);
            }
            record(OpClass::Transaction, self.intended, (self.issued, completed), self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timeline;
    use units::Seed;
    use workload::{OpId, SqlMix};

    /// Performance drops are attributed by phases: a wrong start or duration would mislead.
    #[test]
    fn a_transaction_is_recorded_whole_by_phase_and_by_statement() {
        let timeline =
            Timeline { warm_up: Nanos::ZERO, measure: Nanos(10_000), interval: Nanos(10_000) };
        let mut recorder = Recorder::new(timeline, &SqlMix::READ_WRITE.classes());
        let mut open = SqlParts::default();
        let script = [
            (OpClass::Begin, 0, 10),
            (OpClass::PointSelect, 10, 30),
            (OpClass::SimpleRange, 30, 60),
            (OpClass::IndexUpdate, 60, 100),
            (OpClass::Commit, 100, 150),
        ];
        for (class, issued, completed) in script {
            let (first, last) = (class == OpClass::Begin, class == OpClass::Commit);
            let op =
                SqlOp { class, table: 1, row: 1, other: 1, amount: 0, text: Seed(0), first, last };
            let issue = Issue { id: OpId(0), op, intended: Nanos(issued) };
            let times = (Nanos(issued), Nanos(completed));
            open.record(&mut recorder, &issue, times, Outcome::Done);
        }
        let recording = recorder.finish(Nanos(10_000));
        let time = |class| recording.total(Some(class)).counts.latency_sum.get();
        assert_eq!(time(OpClass::Transaction), 150);
        assert_eq!(time(OpClass::ReadPhase), 50);
        assert_eq!(time(OpClass::WritePhase), 40);
        assert_eq!(time(OpClass::Commit), 50);
        let whole = recording.total(None).counts;
        assert_eq!((whole.ops, whole.bytes), (1, 4), "a transaction counts once");
    }

    /// A retried transaction, one that waited for its turn, and a lone statement must each be recorded once
    /// and from the right time.
    #[test]
    fn failures_waits_and_lone_statements_are_recorded_once() {
        let timeline =
            Timeline { warm_up: Nanos::ZERO, measure: Nanos(10_000), interval: Nanos(10_000) };
        let mut recorder = Recorder::with_service(timeline, &SqlMix::READ_WRITE.classes());
        let mut parts = SqlParts::default();
        let mut record = |class, (first, last), intended, times: (u64, u64), outcome| {
            let op =
                SqlOp { class, table: 1, row: 1, other: 1, amount: 0, text: Seed(0), first, last };
            let issue = Issue { id: OpId(0), op, intended: Nanos(intended) };
            let times = (Nanos(times.0), Nanos(times.1));
            SqlOp::record(&mut parts, &mut recorder, &issue, times, (outcome, 0));
        };
        let (done, retried) = (Outcome::Done, Outcome::Retried);
        // Due at 100, begun at 300; its second update fails, and it is retried.
        record(OpClass::Begin, (true, false), 100, (300, 310), done);
        record(OpClass::IndexUpdate, (false, false), 310, (310, 330), done);
        record(OpClass::NonIndexUpdate, (false, false), 330, (330, 360), retried);
        record(OpClass::Begin, (true, false), 100, (400, 410), done);
        record(OpClass::IndexUpdate, (false, false), 410, (410, 430), done);
        record(OpClass::NonIndexUpdate, (false, false), 430, (430, 470), done);
        record(OpClass::Commit, (false, true), 470, (470, 500), done);
        // A statement alone: its own phase and its own transaction.
        record(OpClass::PointSelect, (true, true), 600, (700, 750), done);
        let recording = recorder.finish(Nanos(10_000));
        let of = |class| {
            let total = recording.total(Some(class));
            (total.counts.ops, total.counts.latency_sum.get(), total.counts.bytes)
        };
        // From 100 to 500 and from 600 to 750; bytes of the failed attempt do not count.
        assert_eq!(of(OpClass::Transaction), (2, 400 + 150, 124));
        assert_eq!(of(OpClass::WritePhase), (1, 60, 124));
        assert_eq!(of(OpClass::ReadPhase), (0, 0, 0));
        assert_eq!(of(OpClass::IndexUpdate), (2, 40, 8));
        assert_eq!(recording.errors(), 0, "it is in no rate twice and fails no objective");
        // Service time of a transaction is from its begin, not from when it was due.
        let service = recording.total(Some(OpClass::Transaction)).service;
        assert_eq!((service.min(), service.max()), (50, 100));
    }
}
