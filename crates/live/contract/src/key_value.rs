//! The contract suite of key-value engines, run by each engine's tests through the contract alone.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use observe::Control;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use stats::Timeline;
use study::{Durability, Job, KvJob, Options};
use units::{Nanos, Seed};
use workload::{Client, KvAction, KvClient, KvRole, OpClass, ValueShape, Values, write_key};

use engine::kv::{KvSpec, Ledger, load, measure};
use engine::{EngineError, ErrorKind, KeyValue, KeyValueEngine, Place, TrialSpec};

const RECORDS: u64 = 500;
const VALUE: usize = 200;
const KEY: usize = 20;
/// Records of a batch on a file system that is too small.
const BATCH: u64 = 1000;

/// The job of the suite for an engine.
///
/// # Panics
/// Never: the study is valid.
#[must_use]
pub fn job<E: KeyValueEngine>(durability: Durability) -> KvJob {
    let text = format!(
        "schema = 2\nname = \"contract\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n[[experiment]]\nname = \
         \"e\"\n[experiment.job]\nengine = {:?}\nworkload = \"read_while_writing\"\n\
         records = {RECORDS}\nkey_size = {KEY}\nvalue_size = \"{VALUE}B\"\nclients = 3\n\
         durability = {:?}\nload_batch = 64\n",
        E::DESCRIPTOR.name,
        durability.word()
    );
    let plan = study::plan(&study::parse(&text, study::Engines::ANY).expect("a study"));
    match &plan.trials[0].job {
        Job::Kv(job) => KvJob { options: Options::of(E::DESCRIPTOR.options), ..(**job).clone() },
        _ => unreachable!("invariant: a key-value job was written"),
    }
}

fn spec() -> KvSpec {
    let interval = Nanos::from_millis(20);
    let timeline = Timeline { warm_up: interval, measure: interval * 5, interval };
    KvSpec {
        records: RECORDS,
        key_size: KEY,
        values: ValueShape::of(VALUE),
        load_batch: 64,
        trial: TrialSpec { timeline, stop_on_error: true, failures_max: None, max_lag: None },
        seed: Seed(1),
    }
}

fn clients(roles: &[KvRole]) -> Vec<Client<KvClient>> {
    KvClient::all(roles, RECORDS, spec().trial.timeline.end(), spec().seed)
}

fn open<E: KeyValueEngine>(dir: &Path, durability: Durability) -> Result<E, EngineError> {
    E::open(&Place::Directory(dir.to_owned()), &job::<E>(durability))
}

/// Runs the whole suite on an engine, in new directories below `dir`. `test` is the name of the calling test,
/// which is started again as a process to kill.
///
/// # Panics
/// At the first broken guarantee, naming it.
pub fn check<E: KeyValueEngine>(test: &str, dir: &Path) {
    if let Some(place) = std::env::var_os(CHILD) {
        write_until_killed::<E>(Path::new(&place));
    }
    assert!(!E::probe(None).expect("the engine can be used here").is_empty(), "a version");
    for durability in Durability::ALL {
        let place = new(dir, durability.word());
        let promise = E::DESCRIPTOR.promise(durability);
        assert!(!promise.is_empty(), "a promise in words for {durability:?}");
        check_data::<E>(&place, durability).expect("the engine completes the operation");
    }
    check_clients::<E>(&new(dir, "clients")).expect("clients run at the same time");
    check_kill::<E>(test, &new(dir, "kill"));
    check_full_disk::<E>(&new(dir, "full"));
}

fn new(dir: &Path, name: &str) -> std::path::PathBuf {
    let place = dir.join(name);
    std::fs::create_dir(&place).expect("a new directory");
    place
}

fn check_data<E: KeyValueEngine>(dir: &Path, durability: Durability) -> Result<(), EngineError> {
    let engine: E = open(dir, durability)?;
    assert!(load(&engine, &spec(), None, &mut |_| true)?, "everything is loaded");
    let mut access = engine.access()?;
    let mut key = [0; KEY];
    write_key(7, &mut key);
    access.put(&key, b"updated")?;
    let mut value = Vec::new();
    assert!(access.get(&key, &mut |bytes| value = bytes.to_vec())?);
    assert_eq!(value, b"updated", "an update is visible");
    assert!(!access.get(b"no such key here", &mut |_| ())?, "a missing key is reported");
    let mut extra = key;
    write_key(RECORDS + 5, &mut extra);
    access.put(&extra, b"extra")?;
    access.delete(&extra)?;
    access.delete(&extra)?;
    assert!(!access.get(&extra, &mut |_| ())?, "a deleted record is gone");
    drop(access);
    engine.close()?;

    let again: E = open(dir, durability)?;
    let values = Values::new(ValueShape::of(VALUE), Seed(1));
    let mut access = again.access()?;
    let mut next = 0;
    access.scan(&[], &mut |found, bytes| {
        write_key(next, &mut key);
        assert_eq!(found, key, "keys come in order and none is missing");
        assert!(if next == 7 { bytes == b"updated" } else { values.check(next, bytes) });
        next += 1;
        true
    })?;
    assert_eq!(next, RECORDS, "everything is there after closing and opening again");
    let mut from = Vec::new();
    write_key(RECORDS - 3, &mut key);
    access.scan(&key, &mut |found, _| {
        from.push(found.to_vec());
        from.len() < 2
    })?;
    assert_eq!((from.len(), &from[0][..]), (2, &key[..]), "a scan begins and ends where asked");
    drop(access);
    again.compact()?;
    again.close()
}

fn check_clients<E: KeyValueEngine>(dir: &Path) -> Result<(), EngineError> {
    let engine: E = open(dir, Durability::Os)?;
    load(&engine, &spec(), None, &mut |_| true)?;
    assert!(!engine.version().is_empty(), "a version");
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
    // A missing record must end the trial as corruption, not as a fast lookup.
    let too_many = KvSpec { records: RECORDS * 1000, ..spec() };
    let end = spec().trial.timeline.end();
    let lost = KvClient::all(&roles, too_many.records, end, spec().seed);
    let missing = measure(&engine, &too_many, lost, None, &control).map(|_| ());
    let kind = missing.map_err(|error| error.kind());
    assert_eq!(kind, Err(ErrorKind::Corruption), "a missing record is found");
    // A value of another record must be rejected as well.
    let values = Values::new(ValueShape::of(VALUE), Seed(1));
    let (mut key, mut value) = ([0; KEY], Vec::new());
    for record in 0..RECORDS {
        write_key(record, &mut key);
        values.fill(RECORDS - record, 0, &mut value);
        engine.access()?.put(&key, &value)?;
    }
    let wrong = measure(&engine, &spec(), clients(&[KvRole::READER]), None, &control).map(|_| ());
    let kind = wrong.map_err(|error| error.kind());
    assert_eq!(kind, Err(ErrorKind::Corruption), "a wrong value is found");
    engine.close()
}

/// Every action, in the mix of the workloads.
fn check_actions<E: KeyValueEngine>(engine: &E, control: &Control<'_>) -> Result<(), EngineError> {
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

/// Environment variable with the directory in which a child of the suite writes until it is killed.
const CHILD: &str = "CROSSPOINT_CONTRACT_CHILD";
/// Updates that the child acknowledges before it is killed.
const UPDATES: u64 = 50;
/// Time limit for them.
const UPDATES_WITHIN: Duration = Duration::from_secs(120);

/// The child of [`check_kill`].
fn write_until_killed<E: KeyValueEngine>(dir: &Path) -> ! {
    let engine: E = open(&dir.join("database"), Durability::Os).expect("it opens");
    let ledger =
        Ledger::create(&dir.join("ledger"), &dir.join("database"), RECORDS).expect("a ledger");
    load(&engine, &spec(), Some(&ledger), &mut |_| true).expect("it loads");
    let forever = Nanos::from_secs(3600);
    let trial = TrialSpec {
        timeline: Timeline { warm_up: Nanos::ZERO, measure: forever, interval: forever },
        ..spec().trial
    };
    let stop = AtomicBool::new(false);
    let control = Control { stop: &stop, progress: None, keep: None };
    let writer = KvClient::all(&[KvRole::WRITER], RECORDS, forever, Seed(1));
    let spec = KvSpec { trial, ..spec() };
    let end = measure(&engine, &spec, writer, Some(&ledger), &control);
    panic!("the child was not killed: {end:?}");
}

/// Killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Acknowledged data survives the process (durability `os`).
fn check_kill<E: KeyValueEngine>(test: &str, dir: &Path) {
    let place = new(dir, "database");
    let own = std::env::current_exe().expect("this program");
    let child = Command::new(own)
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, dir)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test starts again");
    let mut child = Killed(child);
    let (path, began) = (dir.join("ledger"), Instant::now());
    let acknowledged =
        || Ledger::open(&path).and_then(|(ledger, _)| ledger.noted()).unwrap_or_default();
    while acknowledged().1 < UPDATES {
        let over = child.0.try_wait().expect("its state");
        assert!(
            over.is_none(),
            "the child ended by itself; is `{test}` the name of the calling test?"
        );
        assert!(began.elapsed() < UPDATES_WITHIN, "{:?} of {UPDATES} updates", acknowledged());
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(child);
    let engine: E = open(&place, Durability::Os).expect("it opens after kill -9");
    let (ledger, _) = Ledger::open(&path).expect("the ledger");
    let values = Values::new(ValueShape::of(VALUE), Seed(1));
    let checked = ledger.check(&engine, &values, KEY).expect("no value is wrong");
    assert!(checked.records == RECORDS && checked.updated >= UPDATES, "{checked:?}");
    assert_eq!(checked.lost, 0, "what was acknowledged is there after kill -9");
    engine.close().expect("it closes");
}

/// A file system of a fixed size that is unmounted when dropped.
struct Tmpfs<'a>(&'a Path);

impl Drop for Tmpfs<'_> {
    fn drop(&mut self) {
        let _ = unmount(self.0, UnmountFlags::DETACH);
    }
}

/// A full file system is an error, not a hang, a crash or wrong data.
fn check_full_disk<E: KeyValueEngine>(dir: &Path) {
    if !rustix::process::geteuid().is_root() {
        return crate::skip("a full file system needs root to mount it");
    }
    mount("tmpfs", dir, "tmpfs", MountFlags::empty(), Some(c"size=4m")).expect("tmpfs mounts");
    let mounted = Tmpfs(dir);
    let filled = || -> Result<(), EngineError> {
        let engine: E = open(dir, Durability::Device)?;
        let many = KvSpec { records: 100_000, load_batch: BATCH as u32, ..spec() };
        load(&engine, &many, None, &mut |_| true)?;
        engine.close()
    };
    let error = filled().expect_err("20 MB do not fit 4 MiB");
    assert_eq!(error.kind(), ErrorKind::Failed, "{error}");
    mount_remount(dir, MountFlags::empty(), c"size=64m").expect("tmpfs grows");
    let whole = || -> Result<u64, EngineError> {
        let engine: E = open(dir, Durability::Device)?;
        let values = Values::new(ValueShape::of(VALUE), Seed(1));
        let (mut key, mut count) = ([0; KEY], 0);
        engine.access()?.scan(&[], &mut |found, bytes| {
            write_key(count, &mut key);
            assert!(found == key && values.check(count, bytes), "record {count}");
            count += 1;
            true
        })?;
        engine.close().map(|()| count)
    };
    let count = whole().expect("it opens after the error");
    assert!(count > 0, "batches that were committed before are there");
    assert_eq!(count % BATCH, 0, "of the batch that failed nothing is stored");
    drop(mounted);
}
