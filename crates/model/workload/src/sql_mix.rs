//! The statements of SQL transactions and their order, as in sysbench's and pgbench's scripts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::OpClass;

/// Version of sysbench's scripts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum SqlDialect {
    /// `oltp.lua` of sysbench 0.5: one table per transaction.
    #[serde(rename = "0.5")]
    Sysbench05,
    /// `oltp_*.lua` of sysbench 1.0: a table for each kind of statement.
    #[default]
    #[serde(rename = "1.0")]
    Sysbench10,
}

units::words!(SqlDialect { Sysbench05 => "0.5", Sysbench10 => "1.0" });

/// Number of statements of each kind in a transaction, in the order in which they are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SqlMix {
    /// With `BEGIN` and `COMMIT`.
    pub transaction: bool,
    /// Rows by primary key.
    pub point_selects: u32,
    /// Plain range queries.
    pub simple_ranges: u32,
    /// Sums over ranges.
    pub sum_ranges: u32,
    /// Ranges in order.
    pub order_ranges: u32,
    /// Distinct values of ranges.
    pub distinct_ranges: u32,
    /// Updates of the indexed column.
    pub index_updates: u32,
    /// Updates of a column without an index.
    pub non_index_updates: u32,
    /// A row deleted and inserted again.
    pub delete_inserts: u32,
    /// Statements of a pgbench script, once each, in order; with none of sysbench's.
    pub pgbench: &'static [OpClass],
}

impl SqlMix {
    /// No statements.
    pub const EMPTY: Self = Self {
        transaction: false,
        point_selects: 0,
        simple_ranges: 0,
        sum_ranges: 0,
        order_ranges: 0,
        distinct_ranges: 0,
        index_updates: 0,
        non_index_updates: 0,
        delete_inserts: 0,
        pgbench: &[],
    };
    /// `oltp_read_only`.
    pub const READ_ONLY: Self = Self {
        transaction: true,
        point_selects: 10,
        simple_ranges: 1,
        sum_ranges: 1,
        order_ranges: 1,
        distinct_ranges: 1,
        ..Self::EMPTY
    };
    /// `oltp_write_only`.
    pub const WRITE_ONLY: Self = Self {
        transaction: true,
        index_updates: 1,
        non_index_updates: 1,
        delete_inserts: 1,
        ..Self::EMPTY
    };
    /// `oltp_read_write`.
    pub const READ_WRITE: Self =
        Self { index_updates: 1, non_index_updates: 1, delete_inserts: 1, ..Self::READ_ONLY };

    /// pgbench's `tpcb-like`.
    pub const TPCB_LIKE: Self = Self {
        transaction: true,
        pgbench: &[
            OpClass::AccountUpdate,
            OpClass::AccountSelect,
            OpClass::TellerUpdate,
            OpClass::BranchUpdate,
            OpClass::HistoryInsert,
        ],
        ..Self::EMPTY
    };
    /// pgbench's `simple-update`: without the rows of tellers and branches, which few clients share.
    pub const SIMPLE_UPDATE: Self = Self {
        transaction: true,
        pgbench: &[OpClass::AccountUpdate, OpClass::AccountSelect, OpClass::HistoryInsert],
        ..Self::EMPTY
    };
    /// pgbench's `select-only`.
    pub const SELECT_ONLY: Self = Self { pgbench: &[OpClass::AccountSelect], ..Self::EMPTY };

    /// Every kind with its count, in order; `Delete` stands for itself and the insert after it.
    const fn groups(&self) -> [(OpClass, u32); 8] {
        [
            (OpClass::PointSelect, self.point_selects),
            (OpClass::SimpleRange, self.simple_ranges),
            (OpClass::SumRange, self.sum_ranges),
            (OpClass::OrderRange, self.order_ranges),
            (OpClass::DistinctRange, self.distinct_ranges),
            (OpClass::IndexUpdate, self.index_updates),
            (OpClass::NonIndexUpdate, self.non_index_updates),
            (OpClass::Delete, self.delete_inserts),
        ]
    }

    /// Classes that a transaction is recorded under.
    #[must_use]
    pub fn classes(&self) -> Vec<OpClass> {
        let mut classes = vec![OpClass::Transaction];
        let there = self.groups().into_iter().filter(|(_, count)| *count > 0);
        for (class, _) in there {
            classes.push(class);
            if class == OpClass::Delete {
                classes.push(OpClass::Insert);
            }
            // A statement alone is its own phase.
            classes.extend(phase_of(class).filter(|_| self.statements() > 1));
        }
        classes.extend(self.pgbench);
        if self.transaction {
            classes.extend([OpClass::Begin, OpClass::Commit]);
        }
        classes.sort_unstable();
        classes.dedup();
        classes
    }

    /// Statements of a transaction.
    #[must_use]
    pub fn statements(&self) -> u32 {
        let count = |(class, count): (OpClass, u32)| match class {
            OpClass::Delete => 2 * count,
            _ => count,
        };
        let of_pgbench = self.pgbench.len() as u32;
        self.groups().into_iter().map(count).sum::<u32>()
            + of_pgbench
            + 2 * u32::from(self.transaction)
    }

    /// Whether rows are changed.
    #[must_use]
    pub const fn writes(&self) -> bool {
        self.index_updates + self.non_index_updates + self.delete_inserts > 0
            || self.pgbench.len() > 1
    }

    /// The classes of a transaction's statements, in order; the flag says whether a table is drawn first.
    pub(crate) fn script(&self, dialect: SqlDialect) -> Vec<(OpClass, bool)> {
        let mut script = Vec::new();
        if self.transaction {
            script.push((OpClass::Begin, dialect == SqlDialect::Sysbench05));
        }
        for (class, count) in self.groups() {
            for number in 0..count {
                let first = number == 0 && dialect == SqlDialect::Sysbench10;
                script.push((class, first || script.is_empty()));
                if class == OpClass::Delete {
                    script.push((OpClass::Insert, false));
                }
            }
        }
        script.extend(self.pgbench.iter().map(|class| (*class, false)));
        if self.transaction {
            script.push((OpClass::Commit, false));
        }
        script
    }
}

/// The phase of a transaction that a statement belongs to.
#[must_use]
pub const fn phase_of(class: OpClass) -> Option<OpClass> {
    match class {
        OpClass::PointSelect
        | OpClass::SimpleRange
        | OpClass::SumRange
        | OpClass::OrderRange
        | OpClass::DistinctRange => Some(OpClass::ReadPhase),
        OpClass::IndexUpdate | OpClass::NonIndexUpdate | OpClass::Delete | OpClass::Insert => {
            Some(OpClass::WritePhase)
        }
        _ => None,
    }
}

/// Bytes of the columns that a statement of this class writes: k; c; id, k, c and pad (declared sizes).
#[must_use]
pub const fn changed_bytes(class: OpClass) -> u32 {
    match class {
        OpClass::IndexUpdate => 4,
        OpClass::NonIndexUpdate => 120,
        OpClass::Insert => 4 + 4 + 120 + 60,
        OpClass::AccountUpdate | OpClass::TellerUpdate | OpClass::BranchUpdate => 4,
        // tid, bid, aid, delta and mtime.
        OpClass::HistoryInsert => 4 * 4 + 8,
        _ => 0,
    }
}
