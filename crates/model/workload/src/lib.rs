//! Workloads as state machines without I/O.
//!
//! A workload says "issue this now", "wait until then" or "finished", and is notified of completions. The
//! same code is driven by io_uring on a real disk, by a real database engine, and by virtual time
//! ([`Workload`] is the interface).
//!
//! Invariants: no clock, no I/O, no allocation after construction; the same seed gives the same operations.

#![forbid(unsafe_code)]

mod arrivals;
mod block;
mod block_group;
mod client;
mod kv;
mod lanes;
mod offsets;
mod sizes;
mod sql;
mod sql_mix;
mod sql_numbers;
pub mod stamp;
mod values;

pub use arrivals::{Arrivals, OpenLoop, RateStep, Spacing};
pub use block::{BlockClient, BlockOp, BlockPlan, Pattern};
pub use block_group::BlockGroup;
pub use client::{Client, ClientIndex, Operation};
pub use kv::{KvAction, KvClient, KvKeys, KvOp, KvPlan, KvRole};
pub use lanes::{LaneOp, Lanes};
pub use offsets::Offsets;
pub use sizes::Sizes;
pub use sql::{ACCOUNTS, SQL_C, SQL_PAD, SqlClient, SqlOp, SqlPlan, TELLERS, write_digits};
pub use sql_mix::{SqlDialect, SqlMix, changed_bytes, phase_of};
pub use sql_numbers::{SqlKeys, SqlNumbers};
pub use values::{KEY_DIGITS, ValueShape, Values, write_key};

use units::Nanos;

/// Class of an operation, for recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OpClass {
    /// Reads data: a block read, a key lookup.
    Read,
    /// Writes data: a block write, an update with its commit.
    Write,
    /// Makes earlier writes durable: fdatasync, a device flush.
    Sync,
    /// A read that continues next to the operations of interest.
    BackgroundRead,
    /// A write that continues next to them.
    BackgroundWrite,
    /// A flush that continues next to them.
    BackgroundSync,
    /// A whole SQL transaction, from its intended start to its commit.
    Transaction,
    /// The statements of a transaction that read, from the first to the last.
    ReadPhase,
    /// The statements of a transaction that change rows, from the first to the last.
    WritePhase,
    /// `BEGIN`.
    Begin,
    /// `SELECT` of one row by its primary key.
    PointSelect,
    /// `SELECT` of a range.
    SimpleRange,
    /// `SELECT SUM` over a range.
    SumRange,
    /// `SELECT ... ORDER BY` of a range.
    OrderRange,
    /// `SELECT DISTINCT ... ORDER BY` of a range.
    DistinctRange,
    /// `UPDATE` of an indexed column.
    IndexUpdate,
    /// `UPDATE` of a column without an index.
    NonIndexUpdate,
    /// `DELETE` of one row.
    Delete,
    /// `INSERT` of one row.
    Insert,
    /// pgbench's `UPDATE` of an account's balance.
    AccountUpdate,
    /// pgbench's `SELECT` of an account's balance.
    AccountSelect,
    /// pgbench's `UPDATE` of a teller's balance.
    TellerUpdate,
    /// pgbench's `UPDATE` of a branch's balance.
    BranchUpdate,
    /// pgbench's `INSERT` of a line of history.
    HistoryInsert,
    /// `COMMIT`.
    Commit,
}

units::words!(OpClass {
    Read => "read", Write => "write", Sync => "sync", BackgroundRead => "background_read",
    BackgroundWrite => "background_write", BackgroundSync => "background_sync",
    Transaction => "transaction", ReadPhase => "read_phase", WritePhase => "write_phase",
    Begin => "begin", PointSelect => "point_select", SimpleRange => "simple_range",
    SumRange => "sum_range", OrderRange => "order_range", DistinctRange => "distinct_range",
    IndexUpdate => "index_update", NonIndexUpdate => "non_index_update", Delete => "delete",
    Insert => "insert", AccountUpdate => "account_update", AccountSelect => "account_select",
    TellerUpdate => "teller_update", BranchUpdate => "branch_update",
    HistoryInsert => "history_insert", Commit => "commit",
});
units::text_serde!(OpClass, word, "^[a-z_]+$", "a class of operation");

impl OpClass {
    /// Number of classes.
    pub const COUNT: usize = 25;

    /// The SQL statements among them, in their order within a transaction.
    pub const STATEMENTS: [Self; 16] = {
        let last: [Self; 16] = *Self::ALL.last_chunk().expect("invariant: sixteen classes");
        assert!(matches!(last, [Self::Begin, .., Self::Commit]), "statements are the last classes");
        last
    };

    /// Position in arrays by class.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether it belongs to SQL: a transaction, a phase of one or a statement.
    #[must_use]
    pub const fn is_sql(self) -> bool {
        self.index() >= Self::Transaction.index()
    }

    /// Whether it is one SQL statement: a query, as databases count them.
    #[must_use]
    pub const fn is_statement(self) -> bool {
        self.index() >= Self::Begin.index()
    }

    /// Whether it is a statement of pgbench's scripts, about its own tables.
    #[must_use]
    pub const fn is_of_pgbench(self) -> bool {
        self.index() >= Self::AccountUpdate.index() && self.index() <= Self::HistoryInsert.index()
    }

    /// The class itself, or the one that is recorded next to it.
    #[must_use]
    pub const fn beside(self, background: bool) -> Self {
        match (self, background) {
            (Self::Read, true) => Self::BackgroundRead,
            (Self::Write, true) => Self::BackgroundWrite,
            (Self::Sync, true) => Self::BackgroundSync,
            (class, _) => class,
        }
    }

    /// Whether it counts in totals: block reads and writes, lookups and updates, whole SQL transactions, but
    /// not their parts again.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::Transaction)
    }

    /// Whether operations of the class are scheduled by themselves; flushes follow writes, statements their
    /// transaction.
    #[must_use]
    pub const fn is_due_by_itself(self) -> bool {
        self.is_whole() || matches!(self, Self::BackgroundRead | Self::BackgroundWrite)
    }
}

/// Identifies an operation in flight, among those of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OpId(pub u32);

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Success.
    Done,
    /// With this operating-system error number.
    Failed(i32),
    /// The engine rolled its transaction back; the client starts that again, and its time continues.
    Retried,
}

/// An operation to issue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Issue<Op> {
    /// ID until its completion.
    pub id: OpId,
    /// The operation.
    pub op: Op,
    /// When it was due; response time counts from here.
    pub intended: Nanos,
}

/// A workload's next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<Op> {
    /// Issue this operation now.
    Issue(Issue<Op>),
    /// Nothing before this instant; ask again then (or after a completion).
    WaitUntil(Nanos),
    /// Nothing before an operation completes.
    WaitCompletion,
    /// Finished; every operation has completed.
    Finished,
}

/// When clients stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Until {
    /// Nothing is due from here on; closed loops stop issuing.
    pub due: Nanos,
    /// Operations that were due earlier and found no free slot are issued until here: otherwise their
    /// lateness would be unknown. Not before `due`.
    pub issue: Nanos,
}

impl From<Nanos> for Until {
    fn from(end: Nanos) -> Self {
        Self { due: end, issue: end }
    }
}

impl Until {
    /// Whether an operation due at `due` is too late to be issued at `now`.
    #[inline]
    #[must_use]
    pub fn is_over(&self, now: Nanos, due: Nanos) -> bool {
        now >= self.due && (due >= self.due || now >= self.issue)
    }
}

/// One client's stream of operations.
pub trait Workload {
    /// Type of its operations.
    type Op: Operation;

    /// The step at `now`. Call again until it no longer returns [`Step::Issue`]. Costs nanoseconds.
    fn next(&mut self, now: Nanos) -> Step<Self::Op>;

    /// Operations that arrived before the end, and before `until`, when the trial stopped, and were never
    /// issued; 0 in a closed loop. Called for every client once all have ended; the sum over the clients is
    /// the trial's.
    fn missed(&mut self, until: Nanos) -> u64 {
        let _ = until;
        0
    }

    /// Reports that operation `id` ended at `now`. Called exactly once for each issued operation.
    fn completed(&mut self, id: OpId, outcome: Outcome, now: Nanos);
}
