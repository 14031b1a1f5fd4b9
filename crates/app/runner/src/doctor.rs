//! What this machine can run, and how to install what is missing.
//!
//! Changes nothing.

use std::path::Path;

use observe::{Provenance, StorageFacts};
use serde::Serialize;
use stack::{direct_io_works, free_space};
use units::Bytes;
use worker::Handler;

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Works.
    Ok,
    /// Works with restrictions.
    Limited,
    /// A study that needs it cannot run.
    Missing,
}

/// One thing that was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// Its result.
    pub status: Status,
    /// Details.
    pub detail: String,
    /// Command that helps, if any.
    pub fix: Option<String>,
}

impl Check {
    fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, detail: detail.into(), fix: None }
    }

    /// Like [`Self::ok`], or limited, with help.
    fn limited_unless(ok: bool, name: &'static str, detail: impl Into<String>, fix: &str) -> Self {
        let status = if ok { Status::Ok } else { Status::Limited };
        let fix = (!ok && !fix.is_empty()).then(|| fix.to_owned());
        Self { name, status, detail: detail.into(), fix }
    }

    fn missing(name: &'static str, detail: impl Into<String>, fix: &str) -> Self {
        let fix = (!fix.is_empty()).then(|| fix.to_owned());
        Self { name, status: Status::Missing, detail: detail.into(), fix }
    }
}

/// Space that the quickstart study needs.
const SPACE_WANTED: Bytes = Bytes::mib(2048);

/// Checks the host and the directory `dir`.
#[must_use]
pub fn doctor(dir: &Path) -> Vec<Check> {
    let facts = Provenance::read("", "");
    let mut checks = vec![Check::ok("kernel", facts.kernel), direct(dir), space(dir)];
    let blkid = stack::find_program("blkid").is_some();
    let found = if blkid { "found" } else { "not found; block devices cannot be written to" };
    checks.push(Check::limited_unless(blkid, "blkid", found, "apt-get install util-linux"));
    // An engine with two operation sets is installed once.
    let mut seen = Vec::new();
    for engine in engines::ENGINES {
        if !seen.contains(&engine.descriptor.name) {
            seen.push(engine.descriptor.name);
            checks.push(usable(engine));
        }
    }
    let together = "cargo build --release makes both programs; keep them together";
    let (raw, place) = crate::databases::raw_program();
    let found = if raw { "found".into() } else { format!("{place} does not exist") };
    let observed = crate::simulated::observation().is_some();
    let waits = match observed {
        true => "waits of measured databases are timed",
        false => "the library that times waits of measured databases was not found",
    };
    checks.extend([
        Check::limited_unless(observed, "time breakdown", waits, together),
        Check::limited_unless(raw, "bare devices", found, together),
        grounds(),
        controller(
            "memory limit",
            stack::Limits::memory_controller(),
            "no control group has the memory controller",
            "databases larger than memory need it: boot with it",
        ),
        controller(
            "device limit",
            stack::Limits::device_controller(),
            "no control group can limit block devices",
            "stacks with a limit need it: boot with it",
        ),
        capture(),
        match attach::available() {
            Ok(how) => Check::ok("attach", how),
            Err(attach::Missing { reason, next }) => Check::missing("attach", reason, &next),
        },
        own_cost(),
        load(&facts.load),
    ]);
    checks
}

/// Whether an engine can be used with its defaults.
fn usable(engine: &Handler) -> Check {
    let descriptor = engine.descriptor;
    let probed = (engine.probe)();
    let ok = probed.is_ok();
    let detail = probed.unwrap_or_else(|error| error.reason());
    Check::limited_unless(ok, descriptor.title, detail, descriptor.install)
}

/// Harness overhead in nanoseconds per operation that triggers a warning.
const OWN_COST_WANTED: f64 = 50.0;

fn own_cost() -> Check {
    let own = block::own_cost();
    let ring =
        own.ring_ns.map_or(String::new(), |ring| format!(", {ring:.0} ns with io_uring NOP"));
    let detail = format!(
        "{:.0} ns per operation one at a time, {:.0} ns in batches of 32{ring}",
        own.single_ns, own.batch_ns
    );
    let fix = "use a release build on an idle machine: cargo build --release";
    Check::limited_unless(own.batch_ns <= OWN_COST_WANTED, "own cost", detail, fix)
}

fn direct(dir: &Path) -> Check {
    let name = "O_DIRECT";
    let place = format!("{} ({})", dir.display(), StorageFacts::read(dir).file_system);
    match direct_io_works(dir) {
        Ok(true) => Check::ok(name, format!("works in {place}")),
        Ok(false) => Check::missing(
            name,
            format!("not supported in {place}"),
            "run from, or --set stack.NAME.directory to, a directory on ext4, xfs or btrfs",
        ),
        Err(error) => {
            Check::missing(name, error.to_string(), "run from a directory that you can write to")
        }
    }
}

fn space(dir: &Path) -> Check {
    let name = "free space";
    match free_space(dir) {
        Ok(free) if free >= SPACE_WANTED => Check::ok(name, free.to_string()),
        Ok(free) => Check::missing(
            name,
            format!("{free}; the quickstart needs {SPACE_WANTED}"),
            "--set stack.this-disk.size=256MiB, or another directory",
        ),
        Err(error) => Check::missing(name, error.to_string(), ""),
    }
}

fn grounds() -> Check {
    let tools = ["losetup", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "mount", "blkdiscard"];
    let missing: Vec<&str> =
        tools.into_iter().filter(|tool| stack::find_program(tool).is_none()).collect();
    let packages = "apt-get install util-linux mount e2fsprogs xfsprogs btrfs-progs";
    let (ok, detail, fix) = match (is_root(), missing.is_empty()) {
        (true, true) => (true, "root, losetup, ext4, xfs, btrfs".to_owned(), ""),
        (false, _) => (false, "requires root".to_owned(), "sudo"),
        (true, false) => (false, format!("not found: {}", missing.join(", ")), packages),
    };
    Check::limited_unless(ok, "own file systems", detail, fix)
}

fn capture() -> Check {
    let (ok, detail, fix) = match (stack::has_event_tracing(), is_root()) {
        (false, _) => {
            (false, "the kernel has no event tracing", "boot a kernel with CONFIG_FTRACE")
        }
        (true, false) => (false, "requires root", "sudo"),
        (true, true) => (true, "event tracing of the kernel", ""),
    };
    Check::limited_unless(ok, "capture", detail, fix)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A cgroup controller, and the cgroup version that offers it.
fn controller(name: &'static str, found: Option<u32>, missing: &str, fix: &str) -> Check {
    let only = if is_root() { "" } else { "; requires root" };
    let version = |version| format!("control groups, version {version}{only}");
    let detail = found.map_or(missing.to_owned(), version);
    let fix = if found.is_none() { fix } else { "" };
    Check::limited_unless(found.is_some() && is_root(), name, detail, fix)
}

fn load(text: &str) -> Check {
    let first: f64 = text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let detail = format!("load average {text} on {cpus} CPUs");
    let fix = "wait until the machine is quiet; figures will vary";
    Check::limited_unless(first <= cpus as f64 / 2.0, "other load", detail, fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_there_is_told_with_a_fix() {
        let checks = doctor(Path::new("/no such directory"));
        let direct = checks.iter().find(|check| check.name == "O_DIRECT").unwrap();
        assert_eq!(direct.status, Status::Missing);
        assert!(direct.fix.is_some());
    }
}
