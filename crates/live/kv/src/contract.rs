//! The contract suite: what every engine must hold, run by each engine's own tests.
//!
//! Invariant: uses nothing but the contract. What it is not: a benchmark.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use observe::Control;
use stats::Timeline;
use study::Durability;
use units::{Bytes, Nanos, Seed};
use workload::{OpClass, Values, write_key};

use crate::{Engine, KvError, Options, Session, Spec, load, measure};

const RECORDS: u64 = 500;
const VALUE: usize = 200;

fn options(durability: Durability) -> Options {
    Options {
        durability,
        expected: Bytes(RECORDS * (VALUE as u64 + 16)),
        sessions: 4,
        memory: None,
    }
}

fn spec() -> Spec {
    Spec {
        records: RECORDS,
        value_size: VALUE,
        readers: 2,
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
    assert!(load(&engine, &spec(), &mut |_| true)?, "everything is loaded");
    let mut session = engine.session()?;
    let mut key = [0; 16];
    write_key(7, &mut key);
    session.put(&key, b"updated")?;
    let mut value = Vec::new();
    assert!(session.get(&key, &mut |bytes| value = bytes.to_vec())?);
    assert_eq!(value, b"updated", "an update is visible");
    assert!(!session.get(b"no such key here", &mut |_| ())?, "a missing key is told");
    drop(session);
    engine.close()?;

    let again = E::open(dir, &options(durability))?;
    let values = Values::new(VALUE, Seed(1));
    let mut session = again.session()?;
    let mut next = 0;
    session.scan(&mut |found, bytes| {
        write_key(next, &mut key);
        assert_eq!(found, key, "keys come in order and none is missing");
        assert!(if next == 7 { bytes == b"updated" } else { values.check(next, bytes) });
        next += 1;
        true
    })?;
    assert_eq!(next, RECORDS, "everything is there after closing and opening again");
    drop(session);
    again.close()
}

fn check_clients<E: Engine>(dir: &Path) -> Result<(), KvError> {
    std::fs::create_dir(dir).expect("an empty directory");
    let engine = E::open(dir, &options(Durability::Os))?;
    load(&engine, &spec(), &mut |_| true)?;
    let stop = AtomicBool::new(false);
    let control = Control { stop: &stop, progress: None };
    let measured = measure(&engine, &spec(), &control)?;
    assert_eq!(measured.failure, None);
    for class in [OpClass::Read, OpClass::Write] {
        let total = measured.recording.total(Some(class));
        assert!(total.counts.ops > 0, "{class:?} operations complete");
    }
    // A missing record must end the trial as wrong data, not as a fast lookup.
    let too_many = Spec { records: RECORDS * 1000, ..spec() };
    let wrong = measure(&engine, &too_many, &control);
    assert!(matches!(wrong, Err(KvError::Wrong { .. })), "a missing record is told");
    engine.close()
}
