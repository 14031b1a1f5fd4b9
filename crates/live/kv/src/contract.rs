//! The contract suite: what every engine must hold, run by each engine's own tests.
//!
//! Invariant: uses nothing but the contract. What it is not: a benchmark.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use observe::Control;
use stats::Timeline;
use study::Durability;
use units::{Bytes, Nanos, Seed};
use workload::{Client, KvAction, KvClient, KvRole, OpClass, ValueShape, Values, write_key};

use crate::{Engine, KvError, KvSpec, Options, Session, load, measure};

const RECORDS: u64 = 500;
const VALUE: usize = 200;

fn options(durability: Durability) -> Options {
    Options {
        durability,
        expected: Bytes(RECORDS * (VALUE as u64 + 16)),
        sessions: 4,
        memory: None,
        bulk: false,
        write_map: false,
        read_ahead: false,
        map_size: None,
        settings: String::new(),
    }
}

fn spec() -> KvSpec {
    KvSpec {
        records: RECORDS,
        key_size: 20,
        values: ValueShape::of(VALUE),
        load_batch: 64,
        timeline: Timeline {
            warm_up: Nanos::from_millis(20),
            measure: Nanos::from_millis(100),
            interval: Nanos::from_millis(20),
        },
        seed: Seed(1),
        stop_on_error: true,
    }
}

fn clients(roles: &[KvRole]) -> Vec<Client<KvClient>> {
    KvClient::all(roles, RECORDS, spec().timeline.end(), spec().seed)
}

/// Runs the whole suite on an engine, in sub-directories of the empty directory `dir`.
///
/// # Panics
/// At the first broken promise, naming it.
pub fn check<E: Engine>(dir: &Path) {
    for durability in [Durability::None, Durability::Os, Durability::Device] {
        let place = dir.join(durability.word());
        std::fs::create_dir(&place).expect("an empty directory");
        assert!(!E::promise(durability).is_empty(), "a promise in words for {durability:?}");
        check_data::<E>(&place, durability).expect("the engine does what is asked");
    }
    assert!(!E::version().is_empty(), "a version");
    check_clients::<E>(&dir.join("clients")).expect("clients run side by side");
}

fn check_data<E: Engine>(dir: &Path, durability: Durability) -> Result<(), KvError> {
    let engine = E::open(dir, &options(durability))?;
    assert!(load(&engine, &spec(), None, &mut |_| true)?, "everything is loaded");
    let mut session = engine.session()?;
    let mut key = [0; 20];
    write_key(7, &mut key);
    session.put(&key, b"updated")?;
    let mut value = Vec::new();
    assert!(session.get(&key, &mut |bytes| value = bytes.to_vec())?);
    assert_eq!(value, b"updated", "an update is visible");
    assert!(!session.get(b"no such key here", &mut |_| ())?, "a missing key is told");
    let mut extra = key;
    write_key(RECORDS + 5, &mut extra);
    session.put(&extra, b"extra")?;
    session.delete(&extra)?;
    session.delete(&extra)?;
    assert!(!session.get(&extra, &mut |_| ())?, "what was deleted is gone");
    drop(session);
    engine.close()?;

    let again = E::open(dir, &options(durability))?;
    let values = Values::new(ValueShape::of(VALUE), Seed(1));
    let mut session = again.session()?;
    let mut next = 0;
    session.scan(&[], &mut |found, bytes| {
        write_key(next, &mut key);
        assert_eq!(found, key, "keys come in order and none is missing");
        assert!(if next == 7 { bytes == b"updated" } else { values.check(next, bytes) });
        next += 1;
        true
    })?;
    assert_eq!(next, RECORDS, "everything is there after closing and opening again");
    let mut from = Vec::new();
    write_key(RECORDS - 3, &mut key);
    session.scan(&key, &mut |found, _| {
        from.push(found.to_vec());
        from.len() < 2
    })?;
    assert_eq!((from.len(), &from[0][..]), (2, &key[..]), "a scan begins and ends where asked");
    drop(session);
    again.compact()?;
    again.close()
}

fn check_clients<E: Engine>(dir: &Path) -> Result<(), KvError> {
    std::fs::create_dir(dir).expect("an empty directory");
    let engine = E::open(dir, &options(Durability::Os))?;
    load(&engine, &spec(), None, &mut |_| true)?;
    let stop = AtomicBool::new(false);
    let control = Control { stop: &stop, progress: None, keep: None };
    let roles = [KvRole::WRITER, KvRole::READER, KvRole::READER];
    let measured = measure(&engine, &spec(), clients(&roles), None, &control)?;
    assert_eq!(measured.failure, None);
    for class in [OpClass::Read, OpClass::Write] {
        let total = measured.recording.total(Some(class));
        assert!(total.counts.ops > 0, "{class:?} operations complete");
    }
    check_actions(&engine, &control)?;
    // A missing record must end the trial as wrong data, not as a fast lookup.
    let too_many = KvSpec { records: RECORDS * 1000, ..spec() };
    let lost = KvClient::all(&roles, too_many.records, spec().timeline.end(), spec().seed);
    let wrong = measure(&engine, &too_many, lost, None, &control);
    assert!(matches!(wrong, Err(KvError::Wrong { .. })), "a missing record is told");
    engine.close()
}

/// Every action, as the workloads mix them.
fn check_actions<E: Engine>(engine: &E, control: &Control<'_>) -> Result<(), KvError> {
    let mixes = [
        KvRole::mixed((KvAction::Update, 1), (KvAction::Insert, 1)),
        KvRole::mixed((KvAction::Scan(10), 1), (KvAction::ScanUpTo(20), 1)),
    ];
    let roles = mixes.map(|role| KvRole { operations: Some(200), ..role });
    let measured = measure(engine, &spec(), clients(&roles), None, control)?;
    assert_eq!(measured.failure, None);
    let sum = |class| -> u64 {
        measured.recording.intervals.iter().map(|i| i.tallies[class].counts.ops).sum()
    };
    assert_eq!(sum(OpClass::Read) + sum(OpClass::Write), 400, "every operation is counted");
    Ok(())
}
