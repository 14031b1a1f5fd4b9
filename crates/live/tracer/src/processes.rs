//! Facts of `/proc` about the recorded processes: threads, names, kinds of descriptors, switches, CPU time.
//!
//! Invariant: a process that ends while it is read is the same as one without threads.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use capture::{FileKind, Process, Thread};
use observe::BlockDevice;

/// Life of a remembered kind of descriptor: numbers are reused for other files.
const REMEMBERED: Duration = Duration::from_secs(1);

/// IDs in a directory of `/proc` whose entries are numbers.
fn numbers(path: &str) -> Vec<u32> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Threads of a process.
pub fn threads(pid: u32) -> Vec<u32> {
    numbers(&format!("/proc/{pid}/task"))
}

/// A thread's or process's name; empty if it has ended.
pub fn name(id: u32) -> String {
    fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default().trim().to_owned()
}

/// The process of a thread; `None` if it has ended.
pub fn process_of(tid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// Child processes of all threads of a process; none if the kernel does not list them.
pub fn children(pid: u32) -> Vec<u32> {
    let of = |tid: u32| fs::read_to_string(format!("/proc/{pid}/task/{tid}/children"));
    let lists = threads(pid).into_iter().filter_map(|tid| of(tid).ok());
    lists
        .flat_map(|list| {
            list.split(' ').filter_map(|id| id.trim().parse().ok()).collect::<Vec<u32>>()
        })
        .collect()
}

/// When a process began, in ticks since the host did; `None` if it has ended.
pub fn started(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before may contain anything.
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Whether it is a process of user space.
pub fn is_program(pid: u32) -> bool {
    fs::metadata(format!("/proc/{pid}/exe")).is_ok()
}

/// Threads of the kernel that work for file systems: journal commits.
pub fn file_system_threads() -> Vec<u32> {
    let kernel = |tid: &u32| {
        let name = name(*tid);
        (name.starts_with("jbd2/") || name.starts_with("xfsaild/")) && !is_program(*tid)
    };
    numbers("/proc").into_iter().filter(kernel).collect()
}

/// Processes of a name, as in `/proc/PID/comm`, or of a systemd unit.
pub fn named(name_or_unit: &str) -> Vec<u32> {
    let unit = format!("/{}.service", name_or_unit.trim_end_matches(".service"));
    let matching = |pid: &u32| {
        let group = || fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        name(*pid) == name_or_unit || group().lines().any(|line| line.ends_with(&unit))
    };
    numbers("/proc").into_iter().filter(matching).collect()
}

/// Processes that have files open on the drive of `device`, or the drive itself.
pub fn with_files_on(device: &Path) -> Vec<u32> {
    let whole = |path: &Path| BlockDevice::under(path).map(|device| device.whole());
    let Some(wanted) = whole(device) else { return Vec::new() };
    let uses = |pid: &u32| {
        let folder = PathBuf::from(format!("/proc/{pid}/fd"));
        let mut files = fs::read_dir(folder).into_iter().flatten().flatten();
        files.any(|file| whole(&file.path()).as_ref() == Some(&wanted))
    };
    numbers("/proc").into_iter().filter(uses).collect()
}

/// Description of a process for the header.
pub fn describe(pid: u32, client: bool) -> Process {
    Process { pid, name: name(pid), client }
}

/// Description of a thread of process `pid` (0: of the kernel) for the header.
pub fn describe_thread(tid: u32, pid: u32) -> Thread {
    Thread { tid, pid, name: name(tid) }
}

/// What threads did since they began.
#[derive(Debug, Default)]
pub struct Activity(HashMap<u32, (u64, u64)>);

impl Activity {
    /// Of threads; those that have ended are left out.
    pub fn of(tids: impl Iterator<Item = u32>) -> Self {
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let one = |tid: u32| {
            let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
            let switches =
                status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            let times = fs::read_to_string(format!("/proc/{tid}/schedstat")).unwrap_or_default();
            let cpu = times.split(' ').next().and_then(number);
            Some((tid, (switches.and_then(number)?, cpu.unwrap_or_default())))
        };
        Self(tids.filter_map(one).collect())
    }

    /// Voluntary context switches and CPU time (ns) since `before`. A thread that has ended takes all of its
    /// own with it, so sums cannot be subtracted.
    pub fn since(&self, before: &Self) -> (u64, u64) {
        let all = self.0.iter().map(|(tid, now)| (now, before.0.get(tid).copied()));
        all.fold((0, 0), |sum, (now, then)| {
            let (switches, cpu) = then.unwrap_or_default();
            (sum.0 + now.0.saturating_sub(switches), sum.1 + now.1.saturating_sub(cpu))
        })
    }
}

/// Kinds of descriptors, looked up when first used and again every second.
#[derive(Debug)]
pub struct Descriptors {
    known: HashMap<(u32, u32), FileKind>,
    /// Whether threads belong to programs that are not recorded.
    others: HashMap<u32, bool>,
    /// The recorded processes.
    processes: Vec<u32>,
    since: Instant,
}

impl Descriptors {
    pub fn new() -> Self {
        let (known, others) = (HashMap::new(), HashMap::new());
        Self { known, others, processes: Vec::new(), since: Instant::now() }
    }

    /// Sets the recorded threads and processes.
    pub fn own(&mut self, tids: impl Iterator<Item = u32>, pids: impl Iterator<Item = u32>) {
        self.others.extend(tids.map(|tid| (tid, false)));
        self.processes = pids.collect();
    }

    /// Whether a thread belongs to a program that is not recorded. Threads of the kernel do not: they also
    /// write for recorded ones.
    pub fn is_other_program(&mut self, tid: u32) -> bool {
        let own = &self.processes;
        let other = |pid| !own.contains(&pid) && is_program(pid);
        *self.others.entry(tid).or_insert_with(|| process_of(tid).is_some_and(other))
    }

    /// Forgets descriptors that were looked up too long ago; call it once per round.
    pub fn refresh(&mut self) {
        if self.since.elapsed() > REMEMBERED {
            self.known.clear();
            self.since = Instant::now();
        }
    }

    /// Kind of a descriptor of a thread.
    pub fn kind(&mut self, tid: u32, fd: u32) -> FileKind {
        *self.known.entry((tid, fd)).or_insert_with(|| {
            let target = fs::read_link(format!("/proc/{tid}/fd/{fd}"));
            target.map_or(FileKind::Data, |path| kind_of(&path.to_string_lossy()))
        })
    }
}

/// Kind of what a link in `/proc/PID/fd` points to, by the names that databases give to their logs.
fn kind_of(target: &str) -> FileKind {
    if target.starts_with("socket:") {
        return FileKind::Socket;
    }
    if !target.starts_with('/') {
        return FileKind::Other;
    }
    let file = target.rsplit('/').next().unwrap_or_default();
    let sequence = |stem: &str| stem.len() >= 6 && stem.bytes().all(|byte| byte.is_ascii_digit());
    let log = target.contains("/pg_wal/")
        || target.contains("/#innodb_redo/")
        || file.starts_with("ib_logfile")
        || file.ends_with("-wal")
        || file.ends_with("-journal")
        || file.contains("-bin.")
        || file.starts_with("binlog.")
        || file.strip_suffix(".log").is_some_and(sequence);
    if log { FileKind::Log } else { FileKind::Data }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log counted as data hides that the commit path is the limit.
    #[test]
    fn logs_of_the_known_engines_are_told_from_data() {
        for log in [
            "/var/lib/mysql/ib_logfile0",
            "/d/#innodb_redo/#ib_redo7",
            "/db/000123.log",
            "/x/a.db-wal",
            "/pg/pg_wal/00000001",
            "/var/lib/mysql/mysql-bin.000001",
            "/var/lib/mysql/binlog.000001",
            "/x/a.db-journal",
        ] {
            assert_eq!(kind_of(log), FileKind::Log, "{log}");
        }
        for data in ["/db/000123.sst", "/d/ibdata1", "/x/data.mdb", "/x/error.log"] {
            assert_eq!(kind_of(data), FileKind::Data, "{data}");
        }
        assert_eq!(kind_of("socket:[123]"), FileKind::Socket);
        assert_eq!(kind_of("anon_inode:[eventpoll]"), FileKind::Other);
    }

    #[test]
    fn a_thread_belongs_to_its_process() {
        let own = std::process::id();
        assert!(threads(own).contains(&own));
        assert_eq!(process_of(own), Some(own));
        assert!(is_program(own));
        assert!(threads(u32::MAX).is_empty());
    }

    /// A connection that ends would take its whole life from the rate, and the limit on cost would not hold.
    #[test]
    fn a_thread_that_ended_takes_nothing_from_the_others() {
        let before = Activity([(1, (1_000_000, 5)), (2, (10, 10))].into());
        let after = Activity([(2, (30, 40)), (3, (7, 8))].into());
        assert_eq!(after.since(&before), (27, 38));
        let own = Activity::of(threads(std::process::id()).into_iter());
        assert!(own.since(&Activity::default()).1 > 0);
    }

    /// Requests of a thread that is not listed yet are the database's.
    #[test]
    fn a_new_thread_of_a_recorded_process_is_no_other_program() {
        let own = std::process::id();
        let mut descriptors = Descriptors::new();
        descriptors.own([].into_iter(), [own].into_iter());
        assert!(!descriptors.is_other_program(own));
        assert!(Descriptors::new().is_other_program(own));
    }
}
