//! Accuracy of virtual time: engines on a drive with fixed latencies, simulated and in real time.
//!
//! Both runs have the same engine process, and the same model of page cache, file system and drive. In the
//! second one the threads, locks and wake-ups are real, on one CPU, and another CPU polls for the drive. The
//! costs of the host's I/O path and of page faults are calibrated without a database. Prints a CSV with one
//! line per cell: medians over interleaved rounds. Arguments: number of rounds, text that cells must contain,
//! the name of the set (last column), and `free`: the program may use all CPUs, on which the drive sleeps
//! until its next event. `wakes` in place of the text compares waits, wake-ups and switches of point selects.
//! MariaDB with sysbench and PostgreSQL with pgbench are run by a shell in the same way; server and clients
//! share the one CPU. PostgreSQL needs another user than root, with CAP_SYS_NICE, below a shell of root that
//! holds /dev/cpu_dma_latency at 0.

mod calibration;
mod idle;
mod servers;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use device::{Completion, Device, Operation, Request, Stages};
use sim::scheduler::{Counts, SchedulerCosts, WakeCost};
use sim::{HostModel, PageCacheCosts};
use stack::Journal;
use study::Trial;
use units::{Nanos, Seed};
use vtime::{Drive, FileSystem, Host, Process, RealTime, Simulation};
use worker::{Channel, Ended, TrialParameters, TrialRequest, Waiting};
use workload::OpClass;

use crate::calibration::{Access, calibrate, read_pages};
use crate::idle::{Awake, Wakes};
use crate::servers::{MARIADB, POSTGRES};

/// Fixed latencies of the drive; any number of requests at once.
#[derive(Debug, Clone, Copy)]
struct Latency {
    read: Nanos,
    write: Nanos,
    flush: Nanos,
}

#[derive(Debug)]
struct Fixed {
    latency: Latency,
    queue: Vec<(Nanos, Nanos, u64)>,
}

impl Device for Fixed {
    fn submit(&mut self, now: Nanos, request: Request) {
        let takes = match request.operation {
            Operation::Read => self.latency.read,
            Operation::Flush => self.latency.flush,
            _ if request.fua => self.latency.write + self.latency.flush,
            _ => self.latency.write,
        };
        self.queue.push((now + takes, now, request.id));
    }

    fn next_event(&self) -> Option<Nanos> {
        self.queue.iter().map(|(at, ..)| *at).min()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        self.queue.sort_unstable();
        let due = self.queue.partition_point(|(at, ..)| *at <= now);
        for (at, began, id) in self.queue.drain(..due) {
            done.push(Completion { id, at, stages: Stages::new(at.since(began), []) });
        }
    }
}

/// Bytes of the page cache: almost every read of LMDB and SQLite goes to the drive.
const MEMORY: u64 = 4 << 20;
/// Time between two requests of one flush, in both runs.
const GAP: Nanos = Nanos(10_000);

/// CPU times of /dev/shm, which the embedded engines of the reference really use.
static COSTS: LazyLock<PageCacheCosts> = LazyLock::new(|| {
    let place = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    observe::page_cache_costs(place.path()).expect("measured")
});

/// CPUs of the program.
static CORES: OnceLock<usize> = OnceLock::new();

fn cores() -> usize {
    CORES.get().copied().unwrap_or(1)
}

/// Costs of scheduling on this host, as `crosspoint calibrate` measures them.
static SCHEDULER: LazyLock<SchedulerCosts> = LazyLock::new(|| {
    let place = tempfile::tempdir().expect("a directory");
    runner::fit_scheduler(place.path()).expect("measured").costs
});

/// What a page fault of the reference, emulated by signals, takes longer than a simulated one.
static FAULTS: OnceLock<Nanos> = OnceLock::new();

fn drive(latency: Latency) -> Drive<Fixed> {
    let fixed = Fixed { latency, queue: Vec::new() };
    let emulated = FAULTS.get().copied().unwrap_or_default();
    let costs = PageCacheCosts { fault_missed: COSTS.fault_missed + emulated, ..*COSTS };
    Drive::new(fixed, 1 << 40, MEMORY, FileSystem::Ext4).with_gap(GAP).with_costs(costs)
}

/// A prepared simulation, or one of the drive alone.
enum Mode {
    Virtual(Simulation),
    Real(RealTime),
}

impl Mode {
    fn new(simulation: Simulation, is_real: bool) -> Self {
        match is_real {
            true => Self::Real(simulation.in_real_time()),
            false => Self::Virtual(simulation),
        }
    }

    /// Returns the scheduler's counters of a simulation.
    fn run(self, drive: Drive<Fixed>, process: Process) -> Counts {
        let (totals, counts) = match self {
            Self::Virtual(one) => {
                let found = one.run(drive, Some(process)).expect("simulated");
                (found.drive, found.counts)
            }
            Self::Real(one) => (one.run(drive, &process).expect("served"), Counts::default()),
        };
        assert!(totals.reads + totals.writes > 0, "the drive was not used");
        counts
    }
}

/// Costs of the I/O path of this harness.
#[derive(Debug, Clone, Copy)]
struct PathCosts {
    submit: Nanos,
    wake: WakeCost,
}

fn host(path: PathCosts, directory: &Path) -> Host {
    let none = HostModel::named("none").expect("a host without costs");
    Host {
        cores: cores(),
        costs: SchedulerCosts { interrupt: path.wake, ..*SCHEDULER },
        path: HostModel { submit: path.submit, submit_write: path.submit, ..none },
        library: library(),
        cpu_time: None,
        seed: Seed(1),
        directory: directory.to_owned(),
        wal: None,
    }
}

/// The preloaded library, in the folder of this program.
fn library() -> PathBuf {
    let own = std::env::current_exe().expect("a path");
    own.with_file_name("libcrosspoint_vtime_shim.so")
}

/// Operations per second, and the p99 of reads, of updates or of transactions, microseconds.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    rate: f64,
    p99: f64,
}

/// Runs a trial on the drive, in virtual or in real time.
fn run(trial: &Trial, latency: Latency, path: PathCosts, is_real: bool) -> Outcome {
    let place = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let state = tempfile::tempdir().expect("a directory");
    let journal = Journal::new(state.path(), |_, _, _| Ok(()));
    let host = host(path, place.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_crosspoint"));
    command.arg(runner::HOST_VERB);
    let simulation = Simulation::new(&host).expect("prepared");
    simulation.admit(&mut command);
    let simulation = Mode::new(simulation, is_real);
    let line = Channel::start(command, journal.mark()).expect("started");
    let process = Process::open(line.process()).expect("a process");
    let data = place.path().join("data");
    std::fs::create_dir(&data).expect("a directory");
    let request = worker::Request::Trial(Box::new(TrialRequest {
        job: trial.job.key_value().expect("a key-value job").clone(),
        place: data,
        parameters: TrialParameters {
            timeline: trial.timeline,
            seed: 1,
            stop_on_error: true,
            journal: None,
        },
        ledger: None,
    }));
    let stop = AtomicBool::new(false);
    let minutes = |count: u64| Duration::from_secs(60 * count);
    let waiting = Waiting { stop: &stop, deadline: minutes(10), grace: minutes(1) };
    let drive = drive(latency);
    let ended = std::thread::scope(|scope| {
        let simulated = scope.spawn(|| simulation.run(drive, process));
        let ended = line.ask(&request, waiting, &mut |_| ()).expect("an answer");
        simulated.join().expect("no panic");
        ended
    });
    let Ended::Done(result) = ended else { panic!("{ended:?}") };
    let recording = &result.recording;
    let total = recording.total(None);
    let class =
        if recording.counts(Some(OpClass::Read)).ops > 0 { OpClass::Read } else { OpClass::Write };
    let measured = trial.timeline.measure.as_secs_f64();
    Outcome {
        rate: total.counts.ops as f64 / measured,
        p99: recording.total(Some(class)).latency.value_at_quantile(0.99) as f64 / 1e3,
    }
}

/// Runs a command on the drive, in virtual or in real time; returns its output.
fn output_of(command: Command, host: &Host, latency: Latency, is_real: bool) -> String {
    counted_output_of(command, host, latency, Clock::new(is_real)).0
}

/// How a command runs.
#[derive(Debug, Clone, Copy)]
enum Clock<'a> {
    Virtual,
    Real,
    /// In real time, with its wake-ups counted.
    Counted(&'a Wakes),
}

impl Clock<'_> {
    const fn new(is_real: bool) -> Self {
        if is_real { Self::Real } else { Self::Virtual }
    }

    fn count(self) -> Counts {
        if let Self::Counted(counter) = self { counter.count() } else { Counts::default() }
    }
}

/// The same with the number of waits and of wake-ups on an idle CPU.
fn counted_output_of(
    mut command: Command,
    host: &Host,
    latency: Latency,
    clock: Clock<'_>,
) -> (String, Counts) {
    let simulation = Simulation::new(host).expect("prepared");
    simulation.admit(&mut command);
    let is_real = !matches!(clock, Clock::Virtual);
    let simulation = Mode::new(simulation, is_real);
    let before = (waits_of_children(), clock.count());
    let child = command.spawn().expect("started");
    let process = Process::open(child.id()).expect("a process");
    let mut counts = simulation.run(drive(latency), process);
    let output = child.wait_with_output().expect("it ended");
    if is_real {
        let (waits, after, before) = (waits_of_children() - before.0, clock.count(), before.1);
        counts = Counts {
            waits,
            idle_wakes: after.idle_wakes - before.idle_wakes,
            busy_wakes: after.busy_wakes - before.busy_wakes,
            switches: after.switches - before.switches,
            ..counts
        };
    } else {
        // Every thread that starts waits or loses its core later.
        counts.switches = counts.waits + counts.preemptions;
    }
    (String::from_utf8_lossy(&output.stdout).into_owned(), counts)
}

/// Voluntary context switches of all children that ended.
fn waits_of_children() -> u64 {
    // SAFETY: a local variable.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage.ru_nvcsw as u64
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

const fn latency_of(read: u64, flush: u64) -> Latency {
    let write = if read < 80 { Nanos(10_000) } else { Nanos(20_000) };
    Latency { read: Nanos(read * 1000), write, flush: Nanos(flush * 1000) }
}

/// Workload, durability, latency of reads and of flushes, microseconds.
const JOBS: [(&str, &str, u64, u64); 6] = [
    ("read_random", "os", 10, 0),
    ("read_random", "os", 80, 0),
    ("read_random", "os", 300, 0),
    ("overwrite", "device", 80, 0),
    ("overwrite", "device", 80, 1200),
    ("mixed", "device", 80, 1200),
];

fn trial(engine: &str, job: (&str, &str, u64, u64), clients: u32) -> Trial {
    let (workload, durability, ..) = job;
    let workload = match workload {
        "mixed" => "workload = \"read_while_writing\"\nwrite_rate = \"200/s\"",
        "overwrite" => "workload = \"overwrite\"",
        _ => "workload = \"read_random\"",
    };
    // More than RocksDB's block cache of 64 MiB: while a cache that holds all of it warms up, the rate says
    // more about how far it got than about the drive.
    let records = if engine == "rocksdb" { 500_000 } else { 100_000 };
    let text = format!(
        "schema = 2\nname = \"accuracy\"\n[[stack]]\nname = \"drive\"\ndevice = \"file\"\n[[experiment]]\n\
         name = \"cell\"\nwarm_up = \"300ms\"\nduration = \"1s\"\ninterval = \"100ms\"\n[experiment.job]\n\
         engine = \"{engine}\"\n{workload}\nrecords = {records}\nvalue_size = \"400B\"\n\
         clients = {clients}\ndurability = \"{durability}\"\n"
    );
    let study = study::parse(&text, engines::list()).expect("a study");
    study::plan(&study).trials.remove(0)
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if let [verb, file, threads] = &arguments[..]
        && let Some(access) = Access::of(verb)
    {
        return read_pages(Path::new(file), threads.parse().expect("a number"), access);
    }
    let rounds: usize = arguments.first().and_then(|text| text.parse().ok()).unwrap_or(3);
    let only = arguments.get(1).map(String::as_str).unwrap_or_default();
    if let [verb, socket @ ..] = &arguments[..]
        && verb == runner::WAKING_VERB
    {
        let nanos = runner::waking(!socket.is_empty()).expect("measured");
        return println!("{nanos}");
    }
    let _awake = Awake::new();
    LazyLock::force(&COSTS);
    eprintln!("scheduler: {:?}", *SCHEDULER);
    let set = arguments.get(2).map_or("0", String::as_str);
    if arguments.get(3).is_some_and(|word| word == "free") {
        CORES.get_or_init(|| std::thread::available_parallelism().expect("CPUs").get());
    }
    let path = calibrate();
    if only == "wakes" {
        return servers::compare_wakes(rounds, path);
    }
    println!(
        "engine,workload,read_us,flush_us,clients,real,virtual,error,real_p99_us,virtual_p99_us,p99_error,set"
    );
    for engine in ["lmdb", "sqlite", "rocksdb"] {
        for job in JOBS {
            for clients in [1, 4, 16] {
                let (workload, _, read, flush) = job;
                let cell = format!("{engine},{workload},{read},{flush},{clients}");
                let trial = trial(engine, job, clients);
                let latency = latency_of(read, flush);
                if cell.contains(only) {
                    compare((&cell, set), rounds, |is_real| run(&trial, latency, path, is_real));
                }
            }
        }
    }
    for server in [MARIADB, POSTGRES].into_iter().filter(servers::Server::is_possible) {
        let place = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let tables = LazyLock::new(|| server.make_tables(place.path()));
        for (workload, read, flush) in server.jobs {
            for clients in [1, 4, 16] {
                let cell = format!("{},{workload},{read},{flush},{clients}", server.name);
                let how = (latency_of(*read, *flush), path);
                if cell.contains(only) {
                    let run = |is_real| server.run(&tables, (workload, clients), how, is_real);
                    compare((&cell, set), rounds, run);
                }
            }
        }
    }
}

/// Runs a cell in real and in virtual time in turn, and prints the medians and the errors.
fn compare((cell, set): (&str, &str), rounds: usize, run: impl Fn(bool) -> Outcome) {
    let mut found = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for is_real in [round % 2 == 0, round % 2 == 1] {
            found[usize::from(!is_real)].push(run(is_real));
        }
    }
    let part =
        |place: usize, of: fn(&Outcome) -> f64| median(found[place].iter().map(of).collect());
    let rates = [0, 1].map(|place| part(place, |one| one.rate));
    let tails = [0, 1].map(|place| part(place, |one| one.p99));
    println!(
        "{cell},{:.0},{:.0},{:+.3},{:.1},{:.1},{:+.3},{set}",
        rates[0],
        rates[1],
        rates[1] / rates[0] - 1.0,
        tails[0],
        tails[1],
        tails[1] / tails[0] - 1.0
    );
}
