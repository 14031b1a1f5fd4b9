//! Key-value workloads: one client's operations on the records of a database.
//!
//! Invariants: one operation in flight per client; a value is a pure function of its key and generation, so
//! any reader can verify it; a client that inserts has its own record numbers, beyond the loaded ones.

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Nanos, Seed};

use crate::arrivals::Schedule;
use crate::offsets::{Sampler, uniform};
use crate::{
    Arrivals, Client, ClientIndex, Issue, Offsets, OpClass, OpId, Operation, Outcome, Step, Until,
    Workload,
};

/// An operation on one record, or from one record on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvAction {
    /// Look it up.
    Get,
    /// Writes a record, existing or not.
    Put,
    /// Writes a record that never existed.
    Insert,
    /// Look it up, then write it.
    Update,
    /// Delete it.
    Delete,
    /// Look at this many records in key order, beginning with it.
    Scan(u32),
    /// As `Scan`, of a length drawn between 1 and this.
    ScanUpTo(u32),
}

/// How a client chooses records.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KvKeys {
    /// At random, with this distribution.
    Drawn(Offsets),
    /// In key order from the first; at the last the client ends (or, with scans, starts over).
    InOrder,
    /// As YCSB's "latest": Zipf over age, the youngest first.
    Latest,
}

/// Role of a client.
#[derive(Debug, Clone, PartialEq)]
pub struct KvRole {
    /// Two actions and their weights, the first above 0.
    pub mix: [(KvAction, u32); 2],
    /// How records are chosen.
    pub keys: KvKeys,
    /// Whether this client only runs alongside the clients that are measured.
    pub background: bool,
    /// Arrivals of all clients that share the schedule. A closed loop has no think time here.
    pub arrivals: Arrivals,
    /// Index of this client among those in the role, and their number.
    pub place: ClientIndex,
    /// Operations after which it ends.
    pub operations: Option<u64>,
}

impl KvRole {
    /// A closed loop of `action` on uniformly drawn records.
    #[must_use]
    pub const fn of(action: KvAction) -> Self {
        Self::mixed((action, 1), (action, 0))
    }

    /// A closed loop of two actions by weight on uniformly drawn records.
    #[must_use]
    pub const fn mixed(one: (KvAction, u32), other: (KvAction, u32)) -> Self {
        let keys = KvKeys::Drawn(Offsets::Uniform);
        let (arrivals, place) = (Arrivals::CLOSED, ClientIndex { index: 0, of: 1 });
        Self { mix: [one, other], keys, background: false, arrivals, place, operations: None }
    }

    /// Classes that its operations are recorded under.
    #[must_use]
    pub fn classes(&self) -> Vec<OpClass> {
        let done = self.mix.iter().filter(|(_, weight)| *weight > 0);
        let mut classes: Vec<OpClass> =
            done.map(|(action, _)| class_of(*action).beside(self.background)).collect();
        classes.sort_unstable();
        classes.dedup();
        classes
    }

    /// Looks up records.
    pub const READER: Self = Self::of(KvAction::Get);
    /// Overwrites existing records, one per transaction.
    pub const WRITER: Self = Self::of(KvAction::Put);
}

/// One key-value operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvOp {
    /// Class that it is recorded under.
    pub class: OpClass,
    /// The operation.
    pub action: KvAction,
    /// Number of the record.
    pub record: u64,
    /// Generation to write; 0 is the load's. Unused by lookups.
    pub generation: u64,
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

/// Parameters shared by all clients of a key-value trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvPlan {
    /// Records in the database, at least 1.
    pub records: u64,
    /// When the trial ends.
    pub until: Until,
    /// Number of clients, so that each has its own numbers for inserts.
    pub clients: u32,
}

/// One client with one operation in flight.
#[derive(Debug, Clone)]
pub struct KvClient {
    plan: KvPlan,
    role: KvRole,
    index: u32,
    keys: Sampler,
    generation: u64,
    /// Operations issued.
    issued: u64,
    inserted: u64,
    in_flight: bool,
    schedule: Option<Schedule>,
    /// Random numbers of the schedule alone, so that the rate does not change which records are drawn.
    gaps: Xoshiro256PlusPlus,
    random: Xoshiro256PlusPlus,
}

/// Exponent of YCSB's Zipf distributions.
const YCSB_EXPONENT: f64 = 0.99;

impl KvClient {
    /// The clients of a trial over `records` records until `end`, one per role.
    #[must_use]
    pub fn all(
        roles: &[KvRole],
        records: u64,
        until: impl Into<Until>,
        seed: Seed,
    ) -> Vec<Client<Self>> {
        let clients = u32::try_from(roles.len()).unwrap_or(u32::MAX);
        let plan = KvPlan { records, until: until.into(), clients };
        let client = |(index, role): (u32, &KvRole)| Client {
            workload: Self::new(plan, role.clone(), seed, index),
            classes: role.classes(),
            open_loop: role.arrivals.is_open(),
            recorded: true,
        };
        (0..).zip(roles).map(client).collect()
    }

    /// Client number `index` of a trial; each has its own random stream.
    #[must_use]
    pub fn new(plan: KvPlan, role: KvRole, seed: Seed, index: u32) -> Self {
        let writes =
            role.classes().iter().any(|class| *class == OpClass::Write.beside(role.background));
        let label = if writes { "kv-writer" } else { "kv-reader" };
        let seed = seed.derive(label, u64::from(index));
        let random = Xoshiro256PlusPlus::seed_from_u64(seed.0);
        let keys = match role.keys {
            KvKeys::Drawn(offsets) => Sampler::new(offsets, plan.records),
            KvKeys::InOrder => Sampler::new(Offsets::Uniform, plan.records),
            KvKeys::Latest => Sampler::unscattered(YCSB_EXPONENT, plan.records),
        };
        let mut gaps = Xoshiro256PlusPlus::seed_from_u64(seed.derive("arrivals", 0).0);
        let schedule = Schedule::new(&role.arrivals, role.place, &mut gaps);
        let (generation, issued, inserted, in_flight) = (0, 0, 0, false);
        Self {
            plan,
            role,
            index,
            keys,
            generation,
            issued,
            inserted,
            in_flight,
            schedule,
            gaps,
            random,
        }
    }

    fn action(&mut self) -> KvAction {
        let [(one, weight), (other, rest)] = self.role.mix;
        if rest == 0 {
            return one;
        }
        let draw = uniform(&mut self.random, u64::from(weight) + u64::from(rest));
        if draw < u64::from(weight) { one } else { other }
    }

    /// Number of this client's insert number `count`, from 0.
    fn own(&self, count: u64) -> u64 {
        self.plan.records + count * u64::from(self.plan.clients.max(1)) + u64::from(self.index)
    }

    fn record(&mut self) -> u64 {
        match self.role.keys {
            KvKeys::InOrder => self.issued % self.plan.records,
            KvKeys::Drawn(_) => self.keys.draw(&mut self.random),
            KvKeys::Latest => {
                // A client knows only its own inserts; those of other clients are assumed to be as recent as
                // its own.
                let age = self.keys.draw(&mut self.random);
                match self.inserted.checked_sub(age + 1) {
                    Some(count) => self.own(count),
                    None => self.plan.records - 1 - (age - self.inserted),
                }
            }
        }
    }

    fn operation(&mut self) -> KvOp {
        let mut action = self.action();
        let record = match action {
            KvAction::Insert => {
                self.inserted += 1;
                self.own(self.inserted - 1)
            }
            KvAction::Scan(length) if self.role.keys == KvKeys::InOrder => {
                self.issued.wrapping_mul(u64::from(length)) % self.plan.records
            }
            _ => self.record(),
        };
        if let KvAction::ScanUpTo(most) = action {
            action = KvAction::Scan(1 + uniform(&mut self.random, u64::from(most.max(1))) as u32);
        }
        let class = class_of(action);
        // Filling a database writes the first generation, as a load does.
        let fills = action == KvAction::Insert || self.role.keys == KvKeys::InOrder;
        if class == OpClass::Write && !fills {
            self.generation += 1;
        }
        let generation = if fills { 0 } else { self.generation };
        KvOp { class: class.beside(self.role.background), action, record, generation }
    }

    fn ended(&self, now: Nanos, due: Nanos) -> bool {
        let all = self.role.operations.is_some_and(|most| self.issued >= most);
        all || self.plan.until.is_over(now, due)
    }
}

/// The class that an action is recorded under, in the foreground.
const fn class_of(action: KvAction) -> OpClass {
    match action {
        KvAction::Get | KvAction::Scan(_) | KvAction::ScanUpTo(_) => OpClass::Read,
        KvAction::Put | KvAction::Insert | KvAction::Update | KvAction::Delete => OpClass::Write,
    }
}

impl Workload for KvClient {
    type Op = KvOp;

    fn next(&mut self, now: Nanos) -> Step<KvOp> {
        if self.in_flight {
            return Step::WaitCompletion;
        }
        let due = self.schedule.as_ref().map_or(now, Schedule::next);
        if self.ended(now, due) {
            return Step::Finished;
        }
        if due > now {
            // Nothing is due before the end: the client waits until then.
            return Step::WaitUntil(due.min(self.plan.until.due));
        }
        // Late or not, response time counts from when it was due.
        if let Some(schedule) = &mut self.schedule {
            schedule.advance(&mut self.gaps);
        }
        self.in_flight = true;
        let op = self.operation();
        self.issued += 1;
        Step::Issue(Issue { id: OpId(0), op, intended: due })
    }

    fn missed(&mut self, until: Nanos) -> u64 {
        let left = self.role.operations.map_or(u64::MAX, |most| most.saturating_sub(self.issued));
        let missed = self
            .schedule
            .as_ref()
            .map_or(0, |due| due.missed(self.plan.until.due.min(until), &mut self.gaps));
        missed.min(left)
    }

    fn completed(&mut self, _id: OpId, _outcome: Outcome, _now: Nanos) {
        self.in_flight = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpenLoop, RateStep, Spacing};
    use units::Rate;

    const PLAN: KvPlan =
        KvPlan { records: 10, until: Until { due: Nanos(100), issue: Nanos(100) }, clients: 2 };

    fn issue(client: &mut KvClient, now: Nanos) -> Issue<KvOp> {
        let Step::Issue(issue) = client.next(now) else { panic!("no operation") };
        assert_eq!(client.next(now), Step::WaitCompletion);
        client.completed(issue.id, Outcome::Done, now);
        issue
    }

    #[test]
    fn clients_draw_existing_records_and_end() {
        let mut writer = KvClient::new(PLAN, KvRole::WRITER, Seed(1), 0);
        let mut seen = [false; 10];
        for turn in 1..200 {
            let op = issue(&mut writer, Nanos(0)).op;
            assert_eq!((op.class, op.generation), (OpClass::Write, turn));
            seen[op.record as usize] = true;
        }
        assert_eq!(seen, [true; 10]);
        assert_eq!(writer.next(Nanos(100)), Step::Finished);
    }

    /// A fill that skips records would make every later lookup of them an error.
    #[test]
    fn a_fill_in_order_writes_every_record_once_as_a_load_does() {
        let operations = Some(10);
        let role = KvRole { keys: KvKeys::InOrder, operations, ..KvRole::WRITER };
        let mut filler = KvClient::new(PLAN, role, Seed(1), 0);
        for record in 0..10 {
            let op = issue(&mut filler, Nanos(0)).op;
            assert_eq!((op.record, op.generation), (record, 0));
        }
        assert_eq!(filler.next(Nanos(0)), Step::Finished);
    }

    /// Response time counts from when an operation was due, also when the one before was late.
    #[test]
    fn a_rate_spaces_operations_and_keeps_them_due() {
        let end = Nanos::from_secs(1);
        let arrivals = Arrivals::open(Spacing::Constant, Rate(1000));
        let role = KvRole { arrivals, ..KvRole::WRITER };
        let mut writer = KvClient::new(KvPlan { until: end.into(), ..PLAN }, role, Seed(1), 0);
        assert_eq!(issue(&mut writer, Nanos(0)).intended, Nanos(0));
        assert_eq!(writer.next(Nanos(1)), Step::WaitUntil(Nanos::from_millis(1)));
        let late = Nanos::from_millis(5);
        assert_eq!(issue(&mut writer, late).intended, Nanos::from_millis(1));
        assert_eq!(issue(&mut writer, late).intended, Nanos::from_millis(2));
        // What was due and is not issued any more is counted: 1000 were, three were issued.
        assert_eq!(writer.missed(Nanos::MAX), 997);
        assert_eq!(writer.missed(Nanos::from_millis(10)), 7, "one that is stopped missed no more");
        let rates = vec![RateStep { from: Nanos::ZERO, per_second: 1000.0 }];
        let arrivals = Arrivals::Open(OpenLoop { spacing: Spacing::Constant, rates, burst: 10 });
        let role = KvRole { arrivals, ..KvRole::WRITER };
        let mut writer = KvClient::new(KvPlan { until: end.into(), ..PLAN }, role, Seed(1), 0);
        for _ in 0..10 {
            assert_eq!(issue(&mut writer, Nanos(0)).intended, Nanos(0));
        }
        assert_eq!(writer.next(Nanos(1)), Step::WaitUntil(Nanos::from_millis(10)));
    }

    /// YCSB's D: inserts have numbers of their own, and the youngest records are read most.
    #[test]
    fn latest_reads_what_is_there_and_mostly_the_youngest() {
        let role = KvRole {
            keys: KvKeys::Latest,
            ..KvRole::mixed((KvAction::Get, 95), (KvAction::Insert, 5))
        };
        let plan = KvPlan { records: 1000, ..PLAN };
        let mut client = KvClient::new(plan, role, Seed(1), 1);
        let (mut there, mut young, mut reads) = (std::collections::BTreeSet::new(), 0, 0);
        for _ in 0..20_000 {
            let op = issue(&mut client, Nanos(0)).op;
            if op.action == KvAction::Insert {
                assert!(op.record >= 1000 && op.record % 2 == 1 && there.insert(op.record));
            } else {
                assert!(op.record < 1000 || there.contains(&op.record), "{op:?}");
                let newest = there.iter().rev().take(10).any(|one| *one == op.record);
                young += u32::from(newest || (there.is_empty() && op.record >= 990));
                reads += 1;
            }
        }
        let share = f64::from(young) / f64::from(reads);
        // With Zipf 0.99 over a thousand records, the first ten get 39 %.
        assert!((0.30..0.48).contains(&share), "{share}");
        assert!((900..1100).contains(&there.len()), "{}", there.len());
    }
}
