//! SQL transactions of sysbench's OLTP scripts and of pgbench's built-in ones, statement for statement.
//!
//! Two dialects: `oltp.lua` of sysbench 0.5 (one table per transaction) and the `oltp_*.lua` of 1.0 (the
//! table drawn again for each kind of statement). Invariants: one statement in flight per client; the order
//! of statements in a transaction is fixed; a transaction rolled back by the server is retried, and its time
//! continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Nanos, Seed};

use crate::arrivals::Schedule;
use crate::offsets::uniform;
use crate::{
    Arrivals, Client, ClientIndex, Issue, OpClass, OpId, Operation, Outcome, SqlDialect, SqlKeys,
    SqlMix, SqlNumbers, Step, Until, Workload,
};

/// One statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SqlOp {
    /// Its class.
    pub class: OpClass,
    /// Number of the table, from 1; of pgbench's branch.
    pub table: u32,
    /// The row; the first one of a range; pgbench's account.
    pub row: u64,
    /// The last row of a range; the new value of `k` of an insert; pgbench's teller.
    pub other: u64,
    /// What pgbench adds to balances.
    pub amount: i32,
    /// Seed of the text columns.
    pub text: Seed,
    /// The first statement of a transaction.
    pub first: bool,
    /// The last statement of a transaction.
    pub last: bool,
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

/// Parameters shared by all clients.
#[derive(Debug, Clone)]
pub struct SqlPlan {
    /// Version of the scripts.
    pub dialect: SqlDialect,
    /// Statements of a transaction.
    pub mix: SqlMix,
    /// Tables.
    pub tables: u32,
    /// Rows per table.
    pub rows: u64,
    /// Rows of a range.
    pub range_size: u64,
    /// How rows are drawn.
    pub keys: SqlKeys,
    /// Arrivals of transactions, all clients together; each goes to whichever client is free.
    pub arrivals: Arrivals,
    /// Transactions of all clients together after which they end.
    pub transactions: Option<u64>,
    /// When the trial ends.
    pub until: Until,
}

/// One connection.
#[derive(Debug)]
pub struct SqlClient {
    plan: SqlPlan,
    script: Vec<(OpClass, bool)>,
    /// Transactions assigned to clients so far.
    tickets: Arc<AtomicU64>,
    /// The schedule of an open loop with the number of its next arrival; the same for all clients.
    schedule: Option<(Schedule, Xoshiro256PlusPlus, u64)>,
    numbers: SqlNumbers,
    random: Xoshiro256PlusPlus,
    /// Intended start of the transaction that continues, or is due.
    current: Option<Nanos>,
    /// Place in the script of the next statement.
    place: usize,
    table: u32,
    /// Row of the delete, for the insert after it; the account of a pgbench transaction.
    deleted: u64,
    /// Teller and amount of the transaction, for pgbench.
    drawn: (u64, i32),
    in_flight: bool,
    /// Number of the client, from 0.
    index: u32,
}

impl SqlClient {
    /// The clients of a trial, which share its transactions.
    #[must_use]
    pub fn all(plan: &SqlPlan, count: u32, seed: Seed) -> Vec<Client<Self>> {
        let tickets = Arc::<AtomicU64>::default();
        let client = |index| Client {
            workload: Self::new(plan.clone(), Arc::clone(&tickets), seed, index),
            classes: plan.mix.classes(),
            open_loop: plan.arrivals.is_open(),
            recorded: true,
        };
        (0..count).map(client).collect()
    }

    /// Client number `index`; `tickets` begins at 0 and is shared by all clients of the trial.
    #[must_use]
    pub fn new(plan: SqlPlan, tickets: Arc<AtomicU64>, seed: Seed, index: u32) -> Self {
        let random = |label, index| {
            Xoshiro256PlusPlus::seed_from_u64(seed.derive(label, u64::from(index)).0)
        };
        let mut of_schedule = random("sql-arrivals", 0);
        let only = ClientIndex { index: 0, of: 1 };
        let schedule = Schedule::new(&plan.arrivals, only, &mut of_schedule);
        Self {
            script: plan.mix.script(plan.dialect),
            tickets,
            schedule: schedule.map(|schedule| (schedule, of_schedule, 0)),
            numbers: SqlNumbers::new(plan.keys, plan.rows),
            random: random("sql-client", index),
            index,
            current: None,
            place: 0,
            table: 1,
            deleted: 1,
            drawn: (1, 0),
            in_flight: false,
            plan,
        }
    }

    /// The intended start of the next transaction; `None` when there is none.
    fn begin(&mut self, now: Nanos) -> Option<Nanos> {
        let open = self.schedule.is_some();
        if self.plan.until.is_over(now, if open { Nanos::ZERO } else { now })
            || self.script.is_empty()
        {
            return None;
        }
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        if self.plan.transactions.is_some_and(|most| ticket >= most) {
            return None;
        }
        match &mut self.schedule {
            None => Some(now),
            Some((schedule, random, next)) => {
                while *next < ticket {
                    schedule.advance(random);
                    *next += 1;
                }
                Some(schedule.next())
            }
        }
    }

    /// Draws account, branch, teller and amount of a pgbench transaction, as its scripts do at first.
    fn draw_transfer(&mut self) {
        let branches = (self.plan.rows / ACCOUNTS).max(1);
        let random = &mut self.random;
        self.deleted = self.numbers.draw(random);
        self.table = 1 + uniform(random, branches) as u32;
        let teller = 1 + uniform(random, branches * TELLERS);
        self.drawn = (teller, uniform(random, 10_001) as i32 - 5000);
    }

    fn operation(&mut self) -> SqlOp {
        let (class, new_table) = self.script[self.place];
        if self.place == 0 && !self.plan.mix.pgbench.is_empty() {
            self.draw_transfer();
        }
        if new_table {
            self.table = 1 + uniform(&mut self.random, u64::from(self.plan.tables)) as u32;
        }
        let mut op = SqlOp {
            class,
            table: self.table,
            row: 0,
            other: 0,
            amount: 0,
            text: Seed(0),
            first: self.place == 0,
            last: self.place + 1 == self.script.len(),
        };
        match class {
            OpClass::Begin | OpClass::Commit => {}
            _ if class.is_of_pgbench() => {
                op.row = self.deleted;
                (op.other, op.amount) = self.drawn;
            }
            OpClass::Insert => {
                (op.row, op.other) = (self.deleted, self.numbers.draw(&mut self.random));
                op.text = Seed(self.random.next_u64());
            }
            _ => {
                op.row = self.numbers.draw(&mut self.random);
                op.other = op.row + self.plan.range_size.max(1) - 1;
                if class == OpClass::NonIndexUpdate {
                    op.text = Seed(self.random.next_u64());
                }
                self.deleted = op.row;
            }
        }
        op
    }
}

impl Workload for SqlClient {
    type Op = SqlOp;

    fn next(&mut self, now: Nanos) -> Step<SqlOp> {
        if self.in_flight {
            return Step::WaitCompletion;
        }
        let Some(intended) = self.current.or_else(|| self.begin(now)) else {
            return Step::Finished;
        };
        self.current = Some(intended);
        if self.place == 0 && self.plan.until.is_over(now, intended) {
            // Assigned and never begun: counts as missed.
            self.current = None;
            self.tickets.fetch_sub(1, Ordering::Relaxed);
            return Step::Finished;
        }
        if self.place == 0 && intended > now {
            // Nothing is due before the end: the client waits until then.
            return Step::WaitUntil(intended.min(self.plan.until.due));
        }
        self.in_flight = true;
        let op = self.operation();
        // Response time of the first statement, and of the transaction, counts from when that was due.
        let intended = if op.first { intended } else { now };
        Step::Issue(Issue { id: OpId(0), op, intended })
    }

    /// Unassigned arrivals belong to no client; the first one reports them.
    fn missed(&mut self, until: Nanos) -> u64 {
        if self.index > 0 {
            return 0;
        }
        let taken = self.tickets.load(Ordering::Relaxed);
        let Some((schedule, random, next)) = &mut self.schedule else { return 0 };
        while *next < taken {
            schedule.advance(random);
            *next += 1;
        }
        let rest = schedule.missed(self.plan.until.due.min(until), random);
        rest.min(self.plan.transactions.unwrap_or(u64::MAX).saturating_sub(taken))
    }

    fn completed(&mut self, _id: OpId, outcome: Outcome, _now: Nanos) {
        self.in_flight = false;
        self.place += 1;
        if outcome != Outcome::Done {
            self.place = 0;
        } else if self.place == self.script.len() {
            (self.place, self.current) = (0, None);
        }
    }
}

/// pgbench's accounts of a branch.
pub const ACCOUNTS: u64 = 100_000;
/// pgbench's tellers of a branch.
pub const TELLERS: u64 = 10;
/// Bytes of column `c`: ten groups of eleven digits.
pub const SQL_C: usize = 119;
/// Bytes of column `pad`: five groups.
pub const SQL_PAD: usize = 59;

/// Writes digits in groups of eleven with dashes between, the texts of sysbench's rows; a pure function of
/// `random`'s state.
pub fn write_digits(random: &mut Xoshiro256PlusPlus, text: &mut [u8]) {
    let mut word = 0u64;
    for (place, byte) in text.iter_mut().enumerate() {
        if place % 12 == 11 {
            *byte = b'-';
            continue;
        }
        if place % 12 == 0 {
            word = random.next_u64();
        }
        // The next digit is the integer part of ten times the remaining fraction.
        let product = u128::from(word) * 10;
        *byte = b'0' + (product >> 64) as u8;
        word = product as u64;
    }
}

#[cfg(test)]
mod tests;
