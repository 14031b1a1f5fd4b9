//! RocksDB behind the engine contract, through the installed `librocksdb.so`.
//!
//! The library is loaded at run time, so users test the build that they run: its file, version and assertions
//! (a cost in distributions' builds) are printed. Each RocksDB object is freed once, by its owner; a process
//! loads one library. Unset options keep RocksDB's defaults.

mod api;
mod op_times;
mod statistics;

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::fmt::Write;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use api::{Api, Object};
use engine::{Engine, EngineError, KeyValue, KeyValueEngine, Place};
use observe::Counter;
use op_times::{Kind, OpTimes, ThreadTimes};
use statistics::{
    CAUSES, COLUMN_STATISTICS, DATABASE_STATISTICS, PROPERTIES, number_after, stall_causes,
    stalled_seconds, stalls_by,
};
use study::{Descriptor, Durability, KvJob, KvWorkload, Operations, OptionKind, VirtualTime};
use units::Bytes;

/// Refuses options with paths outside of the database's directory, whose I/O would not be on the stack under
/// test.
fn check_settings(settings: &str) -> Result<(), String> {
    const PATHS: [&str; 4] = ["wal_dir", "db_log_dir", "db_paths", "cf_paths"];
    let names = settings.split([';', '{', '}']).filter_map(|part| part.split_once('='));
    let names: Vec<&str> = names.map(|(name, _)| name.trim()).collect();
    let found = PATHS.into_iter().find(|path| names.contains(path));
    found.map_or(Ok(()), |name| {
        Err(format!(
            "`{name}` puts files outside the stack; their cost would be counted as the stack's"
        ))
    })
}

static ROCKSDB: Descriptor = Descriptor {
    virtual_time: VirtualTime::AnyDirectory,
    needs: Some("librocksdb"),
    install: "apt-get install librocksdb-dev",
    durability: [
        "no write-ahead log: memtables are lost with the process",
        "write-ahead log, not flushed (sync=0): survives a process crash, not power loss",
        "write-ahead log flushed (sync=1) before each commit returns",
    ],
    options: study::option_docs! {
        library: OptionKind::Text(|_| Ok(()), "a path, `auto` or `vendored`"), Some("auto"), Never,
            "librocksdb.so to load; `vendored` needs a build with --features rocksdb-vendored";
        settings: OptionKind::Text(check_settings, "name=value;name=value"), Some(""), Never,
            "Options by RocksDB's own names, as in its OPTIONS files; none that puts files elsewhere";
    },
    // Memory so small that flushes and compactions occur meanwhile.
    power_cuts: Some(
        "workload = \"overwrite\"\nrecords = 500\nvalue_size = \"400B\"\nload_batch = 50\nverify = true\n\
         durability = \"device\"\noptions.settings = \"write_buffer_size=65536\"\n",
    ),
    ..Descriptor::new("rocksdb", "RocksDB", Operations::KeyValue)
};

/// RocksDB's number for no compression.
const NO_COMPRESSION: i32 = 0;
/// Bloom filter bits per key, as in db_bench's flash tests.
const BLOOM_BITS: f64 = 10.0;
/// Block cache and memtable without a memory limit; with one, a quarter and an eighth of it at most.
const CACHE: usize = 64 << 20;

/// Sizes of the block cache and of each of two memtables within `memory`.
fn sizes(memory: Option<Bytes>) -> (usize, usize) {
    let memory =
        memory.map_or(usize::MAX, |bytes| usize::try_from(bytes.get()).unwrap_or(usize::MAX));
    (CACHE.min(memory / 4), CACHE.min(memory / 8))
}

static API: OnceLock<Result<Api, String>> = OnceLock::new();

fn failed(action: &'static str, reason: impl std::fmt::Display) -> EngineError {
    EngineError::failed("rocksdb", action, reason)
}

/// The error if there is no library.
fn not_loaded(action: &str, reason: &str) -> EngineError {
    let help = format!("{}, or library = \"/path/of/librocksdb.so\"", ROCKSDB.install);
    EngineError::refused(format!("rocksdb: cannot {action}: {reason}"), help)
}

fn api() -> Result<&'static Api, EngineError> {
    let found = API.get_or_init(|| Api::load(None));
    found.as_ref().map_err(|reason| not_loaded("load librocksdb.so", reason))
}

/// Loads the library at `path`, or the system's; the first call of a process decides.
///
/// # Errors
/// The dynamic linker's message, or that another library is loaded.
fn load(path: Option<&Path>) -> Result<(), EngineError> {
    let found = API.get_or_init(|| Api::load(path));
    let api = found.as_ref().map_err(|reason| not_loaded("load librocksdb.so", reason))?;
    let same = |path: &Path| {
        if path == Path::new(api::WORD) {
            return api.file.to_string_lossy().contains(api::WORD);
        }
        let real = |path: &Path| std::fs::canonicalize(path).ok();
        real(path).is_some() && real(path) == real(&api.file)
    };
    match path {
        Some(path) if !same(path) => {
            let reason = format!("{} is already loaded; one library per run", api.file.display());
            Err(not_loaded("load another librocksdb.so", &reason))
        }
        _ => Ok(()),
    }
}

/// An object of RocksDB's and the function that frees it.
#[derive(Debug)]
struct Owned {
    object: Object,
    free: unsafe extern "C" fn(Object),
}

impl Owned {
    fn new(object: Object, free: unsafe extern "C" fn(Object)) -> Self {
        Self { object, free }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: made by the matching constructor, freed here alone.
        unsafe { (self.free)(self.object) };
    }
}

// SAFETY: RocksDB's database, options and read and write options may be used by all threads at once
// (rocksdb/db.h: "all methods are thread safe"); iterators and batches are never shared here.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

/// Calls a RocksDB function that reports errors by a message.
fn checked<T>(
    api: &Api,
    action: &'static str,
    call: impl FnOnce(*mut *mut c_char) -> T,
) -> Result<T, EngineError> {
    let mut message: *mut c_char = ptr::null_mut();
    let result = call(&mut message);
    if message.is_null() {
        return Ok(result);
    }
    // SAFETY: set by RocksDB, taken once.
    Err(failed(action, unsafe { api.take(message) }))
}

/// An open RocksDB database.
#[derive(Debug)]
pub struct RocksDb {
    api: &'static Api,
    // Dropped in this order: the database first, then what it refers to.
    database: Owned,
    read: Owned,
    write: Owned,
    _options: Owned,
    /// Non-default options, for people.
    set: String,
    times: OpTimes,
}

/// A thread's access.
#[derive(Debug)]
pub struct RocksDbAccess<'a> {
    rocksdb: &'a RocksDb,
    /// Reused for each update; otherwise every put would create and free one.
    batch: Owned,
    times: ThreadTimes<'a>,
}

/// Options for the fastest fill: a memtable is sorted only when full, and compaction is off (the bulk load of
/// RocksDB's documented flash tests).
const BULK: &str = "memtable_factory=vector;allow_concurrent_memtable_write=false;\
    disable_auto_compactions=true;level0_file_num_compaction_trigger=10485760;\
    level0_slowdown_writes_trigger=10485760;level0_stop_writes_trigger=10485760;";

/// The options of a database, and their non-default values.
fn options(api: &Api, job: &KvJob) -> Result<(Owned, String), EngineError> {
    let (cache, memtable) = sizes(job.memory.bytes(job.data()));
    // SAFETY: objects are made, handed over or freed as rocksdb/c.h says: the table factory takes the filter
    // policy, and copies of the table options and a reference to the cache.
    let options = unsafe {
        let options = Owned::new((api.options_create)(), api.options_destroy);
        (api.options_set_create_if_missing)(options.object, 1);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (api.options_increase_parallelism)(options.object, i32::try_from(cores).unwrap_or(1));
        (api.options_set_compression)(options.object, NO_COMPRESSION);
        (api.options_set_write_buffer_size)(options.object, memtable);
        let table = Owned::new((api.block_based_options_create)(), api.block_based_options_destroy);
        let cache = Owned::new((api.cache_create_lru)(cache), api.cache_destroy);
        (api.block_based_options_set_block_cache)(table.object, cache.object);
        let bloom = (api.filterpolicy_create_bloom)(BLOOM_BITS);
        (api.block_based_options_set_filter_policy)(table.object, bloom);
        (api.options_set_block_based_table_factory)(options.object, table.object);
        options
    };
    let mut set = format!(
        "no compression, Bloom filter {BLOOM_BITS} bits, block cache {} MiB, memtable {} MiB",
        cache >> 20,
        memtable >> 20
    );
    let bulk = if job.workload == KvWorkload::BulkLoad { BULK } else { "" };
    let text = format!("{bulk}{}", job.options.text("settings"));
    if text.is_empty() {
        return Ok((options, set));
    }
    let _ = write!(set, ", and over these {}", text.trim_end_matches(';'));
    let text = CString::new(text).map_err(|error| failed("read the options", error))?;
    // SAFETY: a constructor without arguments.
    let changed = Owned::new(unsafe { (api.options_create)() }, api.options_destroy);
    // SAFETY: both options and the text outlive the call, which copies them.
    checked(api, "read the options", |message| unsafe {
        (api.get_options_from_string)(options.object, text.as_ptr(), changed.object, message);
    })?;
    Ok((changed, set))
}

impl Engine for RocksDb {
    const DESCRIPTOR: &'static Descriptor = &ROCKSDB;

    type Job = KvJob;

    fn probe(job: Option<&KvJob>) -> Result<String, EngineError> {
        let library = job.map(|job| job.options.text("library"));
        let library = library.filter(|library| !["auto", ""].contains(library));
        load(library.map(Path::new))?;
        if let Some(job) = job {
            options(api()?, job).map_err(|error| {
                let help =
                    "options have the names of RocksDB's OPTIONS file: name=value;name=value";
                EngineError::refused(error.reason(), help)
            })?;
        }
        Ok(version(api()?))
    }

    fn open(place: &Place, job: &KvJob) -> Result<Self, EngineError> {
        Self::probe(Some(job))?;
        let api = api()?;
        let path = CString::new(place.path()?.as_os_str().as_encoded_bytes())
            .map_err(|error| failed("open the database", error))?;
        let (options, set) = options(api, job)?;
        // SAFETY: options and path outlive the call; the message is handled by `checked`.
        let opened = checked(api, "open the database", |message| unsafe {
            (api.open)(options.object, path.as_ptr(), message)
        })?;
        let database = Owned::new(opened, api.close);
        // SAFETY: constructors without arguments.
        let (read, write) = unsafe {
            (
                Owned::new((api.readoptions_create)(), api.readoptions_destroy),
                Owned::new((api.writeoptions_create)(), api.writeoptions_destroy),
            )
        };
        // SAFETY: the write options are alive.
        unsafe {
            match job.durability {
                Durability::None => (api.writeoptions_disable_WAL)(write.object, 1),
                Durability::Os => {}
                Durability::Device => (api.writeoptions_set_sync)(write.object, 1),
            }
        }
        let times = OpTimes::default();
        Ok(Self { api, database, read, write, _options: options, set, times })
    }

    fn close(self) -> Result<(), EngineError> {
        let api = self.api;
        // SAFETY: a constructor without arguments; the database is alive.
        unsafe {
            let options = Owned::new((api.flushoptions_create)(), api.flushoptions_destroy);
            checked(api, "flush the memtables", |message| {
                (api.flush)(self.database.object, options.object, message);
            })
        }
    }

    fn counters(&self) -> Vec<Counter> {
        let stalled = stalled_seconds(&self.property(DATABASE_STATISTICS));
        let stalled = stalled.map(|seconds| Counter {
            name: "writes stalled, ms/s",
            value: seconds * 1e3,
            sum: true,
        });
        let now = PROPERTIES.iter().filter_map(|(name, property, unit)| {
            let value = self.property(property).trim().parse::<f64>().ok()? / unit;
            Some(Counter { name, value, sum: false })
        });
        stalled.into_iter().chain(now).collect()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!("options: {}; otherwise defaults", self.set)];
        if let Some(seconds) = stalled_seconds(&self.property(DATABASE_STATISTICS)) {
            let causes = stall_causes(&self.property(COLUMN_STATISTICS));
            let causes = if causes.is_empty() { String::new() } else { format!(" ({causes})") };
            notes.push(format!("writes stalled {seconds:.3} s{causes}"));
        }
        notes
    }

    fn totals(&self, _: &BTreeMap<String, f64>) -> Vec<(&'static str, f64)> {
        let (database, column) =
            (self.property(DATABASE_STATISTICS), self.property(COLUMN_STATISTICS));
        // RocksDB's GB are 2^30 bytes.
        let bytes = |text: &str, line: &str, word: &str| {
            number_after(text, line, word).map(|gigabytes| gigabytes * f64::from(1 << 30))
        };
        let totals = [
            ("stall_time", stalled_seconds(&database)),
            ("ingest_bytes", bytes(&database, "Cumulative writes:", "ingest: ")),
            ("flush_bytes", bytes(&column, "Flush(GB):", "cumulative ")),
            ("compaction_bytes", bytes(&column, "Cumulative compaction:", "")),
        ];
        let causes = CAUSES.into_iter().map(|(cause, metric)| (metric, stalls_by(&column, cause)));
        let all = totals.into_iter().chain(causes);
        let counted = all.filter_map(|(metric, value)| Some((metric, value?)));
        counted.chain(self.times.means()).collect()
    }
}

fn version(api: &Api) -> String {
    let name = api.file.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let number = name.split(".so.").nth(1).unwrap_or("of unknown version").to_owned();
    let asserts = if asserts(&api.file) { ", built with assertions" } else { "" };
    format!("RocksDB {number}{asserts}")
}

impl KeyValueEngine for RocksDb {
    type Access<'a> = RocksDbAccess<'a>;

    fn access(&self) -> Result<RocksDbAccess<'_>, EngineError> {
        let times = ThreadTimes::begin(self.api, &self.times);
        // SAFETY: a constructor without arguments.
        let batch = unsafe { (self.api.writebatch_create)() };
        let batch = Owned::new(batch, self.api.writebatch_destroy);
        Ok(RocksDbAccess { rocksdb: self, batch, times })
    }

    fn compact(&self) -> Result<(), EngineError> {
        let Self { api, database, .. } = self;
        // SAFETY: without bounds everything is compacted; the database is alive.
        unsafe { (api.compact_range)(database.object, ptr::null(), 0, ptr::null(), 0) };
        Ok(())
    }
}

impl RocksDb {
    /// Text of a property; empty if this build lacks it.
    fn property(&self, name: &str) -> String {
        let Ok(name) = CString::new(name) else { return String::new() };
        // SAFETY: database and name outlive the call.
        unsafe { self.api.take((self.api.property_value)(self.database.object, name.as_ptr())) }
    }
}

/// Whether a library was built with assertions: it then calls the function that reports them.
fn asserts(file: &Path) -> bool {
    let Ok(bytes) = std::fs::read(file) else { return false };
    let name = b"__assert_fail";
    bytes.windows(name.len()).any(|window| window == name)
}

impl KeyValue for RocksDbAccess<'_> {
    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool, EngineError> {
        let RocksDb { api, database, read, .. } = self.rocksdb;
        let timed = self.times.begin_one(Kind::Get);
        // SAFETY: the key outlives the call; database and read options are alive.
        let slice = checked(api, "get", |message| unsafe {
            (api.get_pinned)(database.object, read.object, key.as_ptr().cast(), key.len(), message)
        });
        self.times.end_one(Kind::Get, timed);
        let slice = slice?;
        if slice.is_null() {
            return Ok(false);
        }
        let slice = Owned::new(slice, api.pinnableslice_destroy);
        let mut length = 0usize;
        // SAFETY: the slice stays pinned until it is dropped, after `seen`.
        unsafe {
            let value = (api.pinnableslice_value)(slice.object, &mut length);
            seen(std::slice::from_raw_parts(value.cast(), length));
        }
        Ok(true)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let RocksDb { api, database, write, .. } = self.rocksdb;
        let batch = self.batch.object;
        let timed = self.times.begin_one(Kind::Put);
        // SAFETY: the batch copies key and value; database, options and batch are alive.
        let put = checked(api, "put", |message| unsafe {
            let (key, key_length) = (key.as_ptr().cast(), key.len());
            let (value, value_length) = (value.as_ptr().cast(), value.len());
            (api.writebatch_clear)(batch);
            (api.writebatch_put)(batch, key, key_length, value, value_length);
            (api.write)(database.object, write.object, batch, message);
        });
        self.times.end_one(Kind::Put, timed);
        put
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), EngineError> {
        let RocksDb { api, database, write, .. } = self.rocksdb;
        // SAFETY: the key outlives the call, which copies it.
        checked(api, "delete", |message| unsafe {
            let (key, length) = (key.as_ptr().cast(), key.len());
            (api.delete)(database.object, write.object, key, length, message);
        })
    }

    fn put_batch(
        &mut self,
        next: &mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> bool,
    ) -> Result<(), EngineError> {
        let RocksDb { api, database, write, .. } = self.rocksdb;
        let batch = &self.batch;
        // SAFETY: the batch is alive and this session's alone.
        unsafe { (api.writebatch_clear)(batch.object) };
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while next(&mut key, &mut value) {
            // SAFETY: the batch copies key and value.
            unsafe {
                let (key, key_length) = (key.as_ptr().cast(), key.len());
                let (value, value_length) = (value.as_ptr().cast(), value.len());
                (api.writebatch_put)(batch.object, key, key_length, value, value_length);
            }
        }
        // SAFETY: database, options and batch are alive.
        checked(api, "write a batch", |message| unsafe {
            (api.write)(database.object, write.object, batch.object, message);
        })
    }

    fn scan(
        &mut self,
        from: &[u8],
        seen: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EngineError> {
        let RocksDb { api, database, read, .. } = self.rocksdb;
        // SAFETY: the iterator lives no longer than the database; its key and value are used before it moves
        // on.
        unsafe {
            let iterator =
                Owned::new((api.create_iterator)(database.object, read.object), api.iter_destroy);
            (api.iter_seek)(iterator.object, from.as_ptr().cast(), from.len());
            while (api.iter_valid)(iterator.object) != 0 {
                let (mut key_length, mut value_length) = (0usize, 0usize);
                let key = (api.iter_key)(iterator.object, &mut key_length);
                let value = (api.iter_value)(iterator.object, &mut value_length);
                let key = std::slice::from_raw_parts(key.cast(), key_length);
                let value = std::slice::from_raw_parts(value.cast(), value_length);
                if !seen(key, value) {
                    break;
                }
                (api.iter_next)(iterator.object);
            }
            checked(api, "iterate", |message| (api.iter_get_error)(iterator.object, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the library is installed; otherwise counts a skipped test.
    fn installed() -> bool {
        let path = cfg!(feature = "vendored").then(|| Path::new(api::WORD));
        let found = load(path).is_ok();
        if !found {
            contract::skip("librocksdb is not installed");
        }
        found
    }

    #[test]
    fn rocksdb_keeps_the_contract() {
        if installed() {
            let dir = tempfile::tempdir().unwrap();
            contract::key_value::check::<RocksDb>("tests::rocksdb_keeps_the_contract", dir.path());
        }
    }

    fn wanted(options: &str, workload: KvWorkload) -> KvJob {
        let job = contract::key_value::job::<RocksDb>(Durability::Os);
        let text = study::OptionValue::Text(options.into());
        KvJob { options: job.options.with("settings", text), workload, ..job }
    }

    fn opened(dir: &Path, job: &KvJob) -> RocksDb {
        RocksDb::open(&Place::Directory(dir.to_owned()), job).unwrap()
    }

    /// An option that is not understood must be reported before anything is loaded, in RocksDB's words.
    #[test]
    fn options_are_rocksdbs_own() {
        if !installed() {
            return;
        }
        let good = "compaction_style=kCompactionStyleUniversal;max_background_jobs=4;\
                    rate_limiter_bytes_per_sec=1048576;use_direct_reads=true;\
                    block_based_table_factory={block_size=8192;partition_filters=true;\
                    index_type=kTwoLevelIndexSearch}";
        RocksDb::probe(Some(&wanted(good, KvWorkload::BulkLoad))).unwrap();
        let error =
            RocksDb::probe(Some(&wanted("no_such_option=1", KvWorkload::Overwrite))).unwrap_err();
        assert!(error.to_string().contains("no_such_option"), "{error}");
        let dir = tempfile::tempdir().unwrap();
        let opened = opened(dir.path(), &wanted(good, KvWorkload::BulkLoad));
        opened.access().unwrap().put(b"key", b"value").unwrap();
        opened.compact().unwrap();
        assert!(opened.notes().iter().any(|note| note.contains("vector")), "{:?}", opened.notes());
        opened.close().unwrap();
    }

    /// A counter that a RocksDB version renamed would be missing from every report without notice.
    #[test]
    fn operations_are_timed_by_rocksdb_itself() {
        if !installed() {
            return;
        }
        let wanted = KvJob { durability: Durability::Device, ..wanted("", KvWorkload::Overwrite) };
        let dir = tempfile::tempdir().unwrap();
        let opened = opened(dir.path(), &wanted);
        let mut access = opened.access().unwrap();
        for number in 0..3 * op_times::EACH {
            access.put(&number.to_be_bytes(), &[7; 400]).unwrap();
            assert!(access.get(&number.to_be_bytes(), &mut |_| ()).unwrap());
        }
        drop(access);
        let totals: BTreeMap<_, _> = opened.times.means().into_iter().collect();
        assert_eq!((totals["gets_timed"], totals["puts_timed"]), (3.0, 3.0));
        let steps = ["put_log_time", "put_memtable_time", "put_stall_time", "put_wait_time"];
        let sum: f64 = steps.iter().map(|name| totals[name]).sum();
        assert!(totals["put_log_time"] > 0.0 && sum <= totals["put_time"], "{totals:?}");
        assert!(totals["get_block_read_time"] <= totals["get_time"], "{totals:?}");
        opened.close().unwrap();
    }

    /// A write-ahead log on another disk makes the measured one look as fast as that.
    #[test]
    fn no_option_leads_out_of_the_stack() {
        for wrong in
            ["write_buffer_size=65536; wal_dir =/tmp", "db_paths={{path=/tmp;target_size=1}}"]
        {
            assert!(check_settings(wrong).is_err(), "{wrong}");
        }
        assert!(check_settings("block_based_table_factory={block_size=8192}").is_ok());
    }

    #[test]
    fn the_library_says_what_it_is() {
        if installed() {
            let version = RocksDb::probe(None).unwrap();
            assert!(version.starts_with("RocksDB ") && !version.contains("unknown"), "{version}");
            assert_eq!(version.contains("vendored"), cfg!(feature = "vendored"), "{version}");
        }
    }
}
