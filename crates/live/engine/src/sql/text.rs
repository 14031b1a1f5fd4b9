//! The statements as text, as sysbench's scripts send them.
//!
//! Source: sysbench 1.0.20, `oltp_common.lua`; sysbench 0.5, `oltp.lua`; PostgreSQL 15, `pgbench.c`.
//! A text is a pure function of its operation.

use std::io::Write;

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use study::SqlDialect;
use workload::{OpClass, SQL_C, SQL_PAD, SqlOp, write_digits};

/// The statement of a class, with `?` for its values.
#[must_use]
pub fn prepared_text(class: OpClass, table: u32) -> String {
    match class {
        OpClass::Begin => "BEGIN".into(),
        OpClass::Commit => "COMMIT".into(),
        OpClass::PointSelect => format!("SELECT c FROM sbtest{table} WHERE id=?"),
        OpClass::SimpleRange => format!("SELECT c FROM sbtest{table} WHERE id BETWEEN ? AND ?"),
        OpClass::SumRange => format!("SELECT SUM(k) FROM sbtest{table} WHERE id BETWEEN ? AND ?"),
        OpClass::OrderRange => {
            format!("SELECT c FROM sbtest{table} WHERE id BETWEEN ? AND ? ORDER BY c")
        }
        OpClass::DistinctRange => {
            format!("SELECT DISTINCT c FROM sbtest{table} WHERE id BETWEEN ? AND ? ORDER BY c")
        }
        OpClass::IndexUpdate => format!("UPDATE sbtest{table} SET k=k+1 WHERE id=?"),
        OpClass::NonIndexUpdate => format!("UPDATE sbtest{table} SET c=? WHERE id=?"),
        OpClass::Delete => format!("DELETE FROM sbtest{table} WHERE id=?"),
        OpClass::Insert => format!("INSERT INTO sbtest{table} (id, k, c, pad) VALUES (?, ?, ?, ?)"),
        OpClass::AccountUpdate => {
            "UPDATE pgbench_accounts SET abalance = abalance + ? WHERE aid = ?".into()
        }
        OpClass::AccountSelect => "SELECT abalance FROM pgbench_accounts WHERE aid = ?".into(),
        OpClass::TellerUpdate => {
            "UPDATE pgbench_tellers SET tbalance = tbalance + ? WHERE tid = ?".into()
        }
        OpClass::BranchUpdate => {
            "UPDATE pgbench_branches SET bbalance = bbalance + ? WHERE bid = ?".into()
        }
        OpClass::HistoryInsert => {
            "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES \
                                   (?, ?, ?, ?, CURRENT_TIMESTAMP)"
                .into()
        }
        _ => String::new(),
    }
}

/// The strings that an operation writes: `c`, and `pad` for inserts.
#[must_use]
pub fn texts_of(op: &SqlOp) -> ([u8; SQL_C], [u8; SQL_PAD]) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(op.text.0);
    let (mut c, mut pad) = ([0; SQL_C], [0; SQL_PAD]);
    write_digits(&mut random, &mut c);
    if op.class == OpClass::Insert {
        write_digits(&mut random, &mut pad);
    }
    (c, pad)
}

/// Writes a statement with its values into `out`, which is cleared first.
///
/// # Panics
/// Never: writing to memory does not fail.
pub fn write_text(op: &SqlOp, dialect: SqlDialect, out: &mut Vec<u8>) {
    out.clear();
    let (table, row, old) = (op.table, op.row, dialect == SqlDialect::Sysbench05);
    // sysbench 0.5 leaves the end of a range to the server.
    let end = |out: &mut Vec<u8>| {
        if old { write!(out, "{row}+{}", op.other - row) } else { write!(out, "{}", op.other) }
    };
    let written = match op.class {
        OpClass::Begin | OpClass::Commit => write!(out, "{}", prepared_text(op.class, table)),
        OpClass::AccountUpdate => write!(
            out,
            "UPDATE pgbench_accounts SET abalance = abalance + {} WHERE aid = {row}",
            op.amount
        ),
        OpClass::AccountSelect => {
            write!(out, "SELECT abalance FROM pgbench_accounts WHERE aid = {row}")
        }
        OpClass::TellerUpdate => write!(
            out,
            "UPDATE pgbench_tellers SET tbalance = tbalance + {} WHERE tid = {}",
            op.amount, op.other
        ),
        OpClass::BranchUpdate => write!(
            out,
            "UPDATE pgbench_branches SET bbalance = bbalance + {} WHERE bid = {table}",
            op.amount
        ),
        OpClass::HistoryInsert => write!(
            out,
            "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES \
             ({}, {table}, {row}, {}, CURRENT_TIMESTAMP)",
            op.other, op.amount
        ),
        OpClass::PointSelect => write!(out, "SELECT c FROM sbtest{table} WHERE id={row}"),
        OpClass::SimpleRange => {
            write!(out, "SELECT c FROM sbtest{table} WHERE id BETWEEN {row} AND ")
                .and_then(|()| end(out))
        }
        OpClass::SumRange => {
            let k = if old { "K" } else { "k" };
            write!(out, "SELECT SUM({k}) FROM sbtest{table} WHERE id BETWEEN {row} AND ")
                .and_then(|()| end(out))
        }
        OpClass::OrderRange => {
            write!(out, "SELECT c FROM sbtest{table} WHERE id BETWEEN {row} AND ")
                .and_then(|()| end(out))
                .and_then(|()| write!(out, " ORDER BY c"))
        }
        OpClass::DistinctRange => {
            write!(out, "SELECT DISTINCT c FROM sbtest{table} WHERE id BETWEEN {row} AND ")
                .and_then(|()| end(out))
                .and_then(|()| write!(out, " ORDER BY c"))
        }
        OpClass::IndexUpdate => write!(out, "UPDATE sbtest{table} SET k=k+1 WHERE id={row}"),
        OpClass::Delete => write!(out, "DELETE FROM sbtest{table} WHERE id={row}"),
        OpClass::NonIndexUpdate => {
            let (c, _) = texts_of(op);
            write!(out, "UPDATE sbtest{table} SET c='")
                .and_then(|()| out.write_all(&c))
                .and_then(|()| write!(out, "' WHERE id={row}"))
        }
        OpClass::Insert => {
            let (c, pad) = texts_of(op);
            write!(out, "INSERT INTO sbtest{table} (id, k, c, pad) VALUES ({row}, {}, '", op.other)
                .and_then(|()| out.write_all(&c))
                .and_then(|()| write!(out, "', '"))
                .and_then(|()| out.write_all(&pad))
                .and_then(|()| write!(out, "')"))
        }
        _ => Ok(()),
    };
    written.expect("invariant: memory takes what is written");
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Seed;

    fn op(class: OpClass) -> SqlOp {
        let (first, last) = (false, false);
        SqlOp { class, table: 3, row: 5, other: 104, amount: -7, text: Seed(1), first, last }
    }

    fn text(class: OpClass, dialect: SqlDialect) -> String {
        let mut out = Vec::new();
        write_text(&op(class), dialect, &mut out);
        String::from_utf8(out).unwrap()
    }

    /// Text and prepared statement must be the same statement, or the two modes are two workloads.
    #[test]
    fn text_is_the_prepared_statement_with_its_values() {
        for class in OpClass::STATEMENTS {
            let (c, pad) = texts_of(&op(class));
            let quoted = |text: &[u8]| format!("'{}'", String::from_utf8_lossy(text));
            let values = match class {
                OpClass::NonIndexUpdate => vec![quoted(&c), "5".into()],
                OpClass::Insert => vec!["5".into(), "104".into(), quoted(&c), quoted(&pad)],
                OpClass::AccountUpdate => vec!["-7".into(), "5".into()],
                OpClass::TellerUpdate => vec!["-7".into(), "104".into()],
                OpClass::BranchUpdate => vec!["-7".into(), "3".into()],
                OpClass::HistoryInsert => ["104", "3", "5", "-7"].map(str::to_owned).to_vec(),
                _ => vec!["5".to_owned(), "104".into()],
            };
            let mut expected = prepared_text(class, 3);
            for value in values {
                expected = expected.replacen('?', &value, 1);
            }
            assert_eq!(text(class, SqlDialect::Sysbench10), expected);
        }
    }

    #[test]
    fn the_old_dialect_leaves_the_end_of_a_range_to_the_server() {
        let sum = "SELECT SUM(K) FROM sbtest3 WHERE id BETWEEN 5 AND 5+99";
        assert_eq!(text(OpClass::SumRange, SqlDialect::Sysbench05), sum);
    }
}
