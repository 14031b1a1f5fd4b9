//! Clients as drivers take them: a workload, and how its operations are recorded.
//!
//! Invariant: measured and predicted trials of one job have the same clients. What it is not: a choice of
//! what a job's clients do; `study` makes them.

use units::{Seed, Share};

use crate::{BlockClient, BlockOp, BlockPlan, ClientIndex, KvOp, OpClass, SqlOp};

/// What every operation says of itself, whatever it is done to.
pub trait Operation: Copy {
    /// The class that it is recorded under.
    fn class(&self) -> OpClass;
    /// Byte offset, record or row: what is kept of an operation that failed.
    fn position(&self) -> u64;
}

impl Operation for BlockOp {
    #[inline]
    fn class(&self) -> OpClass {
        self.class
    }
    #[inline]
    fn position(&self) -> u64 {
        self.offset
    }
}

impl Operation for KvOp {
    #[inline]
    fn class(&self) -> OpClass {
        self.class
    }
    #[inline]
    fn position(&self) -> u64 {
        self.record
    }
}

impl Operation for SqlOp {
    #[inline]
    fn class(&self) -> OpClass {
        self.class
    }
    #[inline]
    fn position(&self) -> u64 {
        self.row
    }
}

/// One client of a trial.
#[derive(Debug, Clone)]
pub struct Client<W> {
    /// What it does.
    pub workload: W,
    /// Classes of its operations.
    pub classes: Vec<OpClass>,
    /// Operations are due by a schedule, so that service times are kept as well.
    pub open_loop: bool,
    /// Whether its operations are recorded at all.
    pub recorded: bool,
}

/// Block clients that do the same.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockGroup {
    /// What each client does.
    pub plan: BlockPlan,
    /// Number of clients, each with a thread of its own on io_uring.
    pub clients: u32,
    /// io_uring: completions to wait for at once, at least 1.
    pub batch: u32,
    /// Share of each payload that cannot be compressed.
    pub random_payload: Share,
    /// Whether its operations are recorded at all.
    pub recorded: bool,
}

impl BlockGroup {
    /// One client of `plan` with incompressible data, recorded.
    #[must_use]
    pub const fn new(plan: BlockPlan) -> Self {
        Self { plan, clients: 1, batch: 1, random_payload: Share::ALL, recorded: true }
    }

    /// Its clients, each from a stream of its own.
    #[must_use]
    pub fn clients(&self, seed: Seed) -> Vec<Client<BlockClient>> {
        let of = self.clients;
        let client = |index| Client {
            workload: BlockClient::new(self.plan.clone(), seed, ClientIndex { index, of }),
            classes: self.plan.classes(),
            open_loop: self.plan.arrivals.is_open(),
            recorded: self.recorded,
        };
        (0..of).map(client).collect()
    }
}
