//! The statement stream must be sysbench's, or results are not comparable.

use super::*;
use crate::phase_of;
use crate::{Spacing, SqlKeys};
use units::Rate;

fn plan(dialect: SqlDialect, mix: SqlMix) -> SqlPlan {
    SqlPlan {
        dialect,
        mix,
        tables: 16,
        rows: 1000,
        range_size: 100,
        keys: SqlKeys::Uniform,
        arrivals: Arrivals::CLOSED,
        transactions: None,
        until: Nanos::from_secs(1).into(),
    }
}

fn client(plan: &SqlPlan) -> SqlClient {
    SqlClient::new(plan.clone(), Arc::default(), Seed(1), 0)
}

fn statement(client: &mut SqlClient, now: Nanos) -> Issue<SqlOp> {
    let Step::Issue(issue) = client.next(now) else { panic!("no statement") };
    assert_eq!(client.next(now), Step::WaitCompletion);
    client.completed(issue.id, Outcome::Done, now);
    issue
}

fn transaction(client: &mut SqlClient) -> Vec<SqlOp> {
    let mut ops = Vec::new();
    loop {
        ops.push(statement(client, Nanos::ZERO).op);
        if ops[ops.len() - 1].last {
            return ops;
        }
    }
}

/// Another order is another pattern of locks and of page reads.
#[test]
fn a_transaction_has_its_twenty_statements_in_order() {
    use OpClass::*;
    let mut client = client(&plan(SqlDialect::Sysbench10, SqlMix::READ_WRITE));
    let ops = transaction(&mut client);
    let classes: Vec<OpClass> = ops.iter().map(|op| op.class).collect();
    let mut expected = vec![Begin];
    expected.extend([PointSelect; 10]);
    expected.extend([SimpleRange, SumRange, OrderRange, DistinctRange]);
    expected.extend([IndexUpdate, NonIndexUpdate, Delete, Insert, Commit]);
    assert_eq!(classes, expected);
    assert_eq!(SqlMix::READ_WRITE.statements(), 20);
    assert_eq!(ops.iter().filter(|op| op.first).count(), 1);
    let (delete, insert) = (ops[17], ops[18]);
    assert_eq!((delete.row, delete.table), (insert.row, insert.table), "the row comes back");
    assert_eq!(ops[11].other - ops[11].row, 99);
}

/// sysbench 0.5 stays in one table; 1.0 draws one for each kind, and all ten points share it.
#[test]
fn tables_are_drawn_as_the_dialect_does() {
    let mut old = client(&plan(SqlDialect::Sysbench05, SqlMix::READ_WRITE));
    let mut new = client(&plan(SqlDialect::Sysbench10, SqlMix::READ_WRITE));
    let tables = |ops: &[SqlOp]| {
        let touched = ops.iter().filter(|op| phase_of(op.class).is_some());
        let mut tables: Vec<u32> = touched.map(|op| op.table).collect();
        tables.sort_unstable();
        tables.dedup();
        tables.len()
    };
    let mut several = 0;
    for _ in 0..50 {
        assert_eq!(tables(&transaction(&mut old)), 1);
        let ops = transaction(&mut new);
        assert!(ops[1..=10].iter().all(|op| op.table == ops[1].table));
        several += u32::from(tables(&ops) > 3);
    }
    assert!(several > 45, "{several}");
}

/// A deadlock must not hide the time that it cost: the transaction begins again and is timed as one.
#[test]
fn a_transaction_that_was_given_up_begins_again() {
    let mut client = client(&plan(SqlDialect::Sysbench10, SqlMix::WRITE_ONLY));
    let begin = statement(&mut client, Nanos(5));
    let Step::Issue(update) = client.next(Nanos(10)) else { panic!("no statement") };
    client.completed(update.id, Outcome::Retried, Nanos(20));
    let again = statement(&mut client, Nanos(20));
    assert_eq!((again.op.class, again.intended), (OpClass::Begin, begin.intended));
}

/// Whoever is free takes the next arrival: one slow client must not hold up those that wait for others.
#[test]
fn arrivals_go_to_whoever_is_free() {
    let arrivals = Arrivals::open(Spacing::Constant, Rate(1000));
    let mut plan = plan(SqlDialect::Sysbench10, SqlMix::WRITE_ONLY);
    plan.arrivals = arrivals;
    let tickets: Arc<AtomicU64> = Arc::default();
    let new = |index| SqlClient::new(plan.clone(), Arc::clone(&tickets), Seed(1), index);
    let (mut slow, mut free) = (new(0), new(1));
    assert_eq!(statement(&mut slow, Nanos::ZERO).intended, Nanos::ZERO);
    for turn in 1..4 {
        let due = Nanos::from_millis(turn);
        assert_eq!(free.next(Nanos::ZERO), Step::WaitUntil(due));
        for place in 0..6 {
            let issue = statement(&mut free, due);
            assert_eq!(issue.intended, due, "statement {place}");
        }
    }
    assert_eq!(free.next(Nanos::ZERO), Step::WaitUntil(Nanos::from_millis(4)));
    assert_eq!(free.next(Nanos::from_secs(1)), Step::Finished, "nothing begins after the end");
    // 1000 arrivals in the second; four were begun.
    assert_eq!(slow.missed(Nanos::MAX), 996);
}

#[test]
fn a_number_of_transactions_is_shared_by_all_clients() {
    let mut plan = plan(SqlDialect::Sysbench10, SqlMix { point_selects: 1, ..SqlMix::EMPTY });
    plan.transactions = Some(5);
    let tickets: Arc<AtomicU64> = Arc::default();
    let new = |index| SqlClient::new(plan.clone(), Arc::clone(&tickets), Seed(1), index);
    let (mut one, mut other) = (new(0), new(1));
    for turn in 0..5 {
        statement(if turn % 2 == 0 { &mut one } else { &mut other }, Nanos::ZERO);
    }
    assert_eq!((one.next(Nanos::ZERO), other.next(Nanos::ZERO)), (Step::Finished, Step::Finished));
}

#[test]
fn texts_are_groups_of_eleven_digits() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut text = [0; SQL_C];
    let mut counts = [0u32; 10];
    for _ in 0..1000 {
        write_digits(&mut random, &mut text);
        let groups: Vec<&[u8]> = text.split(|byte| *byte == b'-').collect();
        assert!(groups.len() == 10 && groups.iter().all(|group| group.len() == 11));
        groups.concat().iter().for_each(|digit| counts[usize::from(digit - b'0')] += 1);
    }
    assert!(counts.iter().all(|count| (10_600..11_400).contains(count)), "{counts:?}");
}

/// A transfer whose statements name different accounts would be another benchmark than pgbench's.
#[test]
fn a_transfer_of_pgbench_is_drawn_once_per_transaction() {
    let plan = SqlPlan {
        rows: 3 * ACCOUNTS,
        tables: 1,
        ..plan(SqlDialect::Sysbench10, SqlMix::TPCB_LIKE)
    };
    let mut client = SqlClient::new(plan, Arc::default(), Seed(4), 0);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let mut script = Vec::new();
        for _ in 0..7 {
            let Step::Issue(issue) = client.next(Nanos::ZERO) else { panic!("it continues") };
            client.completed(issue.id, Outcome::Done, Nanos::ZERO);
            script.push(issue.op);
        }
        let classes: Vec<OpClass> = script.iter().map(|op| op.class).collect();
        use OpClass as C;
        let transfer = [
            C::AccountUpdate,
            C::AccountSelect,
            C::TellerUpdate,
            C::BranchUpdate,
            C::HistoryInsert,
        ];
        assert_eq!(classes, [&[C::Begin], &transfer[..], &[C::Commit]].concat());
        let of = |op: &SqlOp| (op.row, op.table, op.other, op.amount);
        let (account, branch, teller, amount) = of(&script[1]);
        assert!(script[1..6].iter().all(|op| of(op) == of(&script[1])), "{script:?}");
        assert!((1..=3 * ACCOUNTS).contains(&account) && (1..=3).contains(&branch));
        assert!((1..=30).contains(&teller) && (-5000..=5000).contains(&amount));
        seen.insert(of(&script[1]));
    }
    assert!(seen.len() > 195, "each transaction has its own");
}
