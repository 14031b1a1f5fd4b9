//! What this machine can run, and the command that installs what is missing.
//!
//! Changes nothing.

use std::path::Path;

use observe::{Provenance, StorageFacts};
use serde::Serialize;
use stack::{direct_io_works, free_space};
use units::Bytes;
use worker::Handler;

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Works.
    Ok,
    /// Works with less.
    Limited,
    /// A study that needs it cannot run.
    Missing,
}

/// One thing that was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What.
    pub name: &'static str,
    /// How it came out.
    pub status: Status,
    /// What was found.
    pub detail: String,
    /// What to type, if something can be done.
    pub fix: Option<String>,
}

/// Space that the quickstart study needs.
const SPACE_WANTED: Bytes = Bytes::mib(2048);

/// Checks the host and the directory `dir`.
#[must_use]
pub fn doctor(dir: &Path) -> Vec<Check> {
    let facts = Provenance::read("", "");
    let mut checks = vec![
        Check { name: "kernel", status: Status::Ok, detail: facts.kernel, fix: None },
        direct(dir),
        space(dir),
        blkid(),
    ];
    // An engine with two operation sets is one installation.
    let mut seen = Vec::new();
    for engine in engines::ENGINES {
        if !seen.contains(&engine.descriptor.name) {
            seen.push(engine.descriptor.name);
            checks.push(usable(engine));
        }
    }
    checks.extend([
        bare_devices(),
        grounds(),
        memory_limit(),
        device_limit(),
        attaching(),
        own_cost(),
        load(&facts.load),
    ]);
    checks
}

/// Whether an engine can be used with its defaults.
fn usable(engine: &Handler) -> Check {
    let descriptor = engine.descriptor;
    let name = descriptor.title;
    match (engine.probe)() {
        Ok(detail) => Check { name, status: Status::Ok, detail, fix: None },
        Err(error) => Check {
            name,
            status: Status::Limited,
            detail: error.reason(),
            fix: Some(descriptor.install.to_owned()),
        },
    }
}

fn attaching() -> Check {
    let name = "attach";
    match attach::available() {
        Ok(how) => Check { name, status: Status::Ok, detail: how.into(), fix: None },
        Err(attach::Missing { reason: detail, next }) => {
            Check { name, status: Status::Missing, detail, fix: Some(next) }
        }
    }
}

/// Nanoseconds an operation above which our own cost is worth a word.
const OWN_COST_WANTED: f64 = 50.0;

fn own_cost() -> Check {
    let own = block::own_cost();
    let ring =
        own.ring_ns.map_or(String::new(), |ring| format!(", {ring:.0} ns with io_uring NOP"));
    let status = if own.batch_ns <= OWN_COST_WANTED { Status::Ok } else { Status::Limited };
    let detail = format!(
        "{:.0} ns per operation one at a time, {:.0} ns in batches of 32{ring}",
        own.single_ns, own.batch_ns
    );
    let fix = (status == Status::Limited)
        .then(|| "use a release build on an idle machine: cargo build --release".into());
    Check { name: "own cost", status, detail, fix }
}

fn direct(dir: &Path) -> Check {
    let name = "O_DIRECT";
    let file_system = StorageFacts::read(dir).file_system;
    let place = format!("{} ({file_system})", dir.display());
    match direct_io_works(dir) {
        Ok(true) => {
            Check { name, status: Status::Ok, detail: format!("works in {place}"), fix: None }
        }
        Ok(false) => Check {
            name,
            status: Status::Missing,
            detail: format!("not supported in {place}"),
            fix: Some(
                "run from, or --set stack.NAME.directory to, a directory on ext4, xfs or btrfs"
                    .into(),
            ),
        },
        Err(error) => Check {
            name,
            status: Status::Missing,
            detail: error.to_string(),
            fix: Some("run from a directory that you may write to".into()),
        },
    }
}

fn space(dir: &Path) -> Check {
    let name = "free space";
    match free_space(dir) {
        Ok(free) if free >= SPACE_WANTED => {
            Check { name, status: Status::Ok, detail: free.to_string(), fix: None }
        }
        Ok(free) => Check {
            name,
            status: Status::Missing,
            detail: format!("{free}; the quickstart needs {SPACE_WANTED}"),
            fix: Some("--set stack.this-disk.size=256MiB, or another directory".into()),
        },
        Err(error) => Check { name, status: Status::Missing, detail: error.to_string(), fix: None },
    }
}

fn blkid() -> Check {
    let name = "blkid";
    let found = stack::find_program("blkid").is_some();
    Check {
        name,
        status: if found { Status::Ok } else { Status::Limited },
        detail: if found { "found" } else { "not found; block devices cannot be written to" }
            .into(),
        fix: (!found).then(|| "apt-get install util-linux".into()),
    }
}

fn bare_devices() -> Check {
    let (ok, place) = crate::databases::raw_program();
    Check {
        name: "bare devices",
        status: if ok { Status::Ok } else { Status::Limited },
        detail: if ok { "found".into() } else { format!("{place} is not there") },
        fix: (!ok).then(|| "cargo build --release makes both programs; keep them together".into()),
    }
}

fn grounds() -> Check {
    let tools = ["losetup", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "mount", "blkdiscard"];
    let missing: Vec<&str> =
        tools.into_iter().filter(|tool| stack::find_program(tool).is_none()).collect();
    let root = rustix::process::geteuid().is_root();
    let (status, detail, fix) = match (root, missing.is_empty()) {
        (true, true) => (Status::Ok, "root, losetup, ext4, xfs, btrfs".to_owned(), None),
        (false, _) => (Status::Limited, "only root can make them".to_owned(), Some("sudo")),
        (true, false) => (
            Status::Limited,
            format!("not found: {}", missing.join(", ")),
            Some("apt-get install util-linux mount e2fsprogs xfsprogs btrfs-progs"),
        ),
    };
    Check { name: "own file systems", status, detail, fix: fix.map(str::to_owned) }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn of_version(version: u32) -> String {
    let only = if is_root() { "" } else { "; only root can use them" };
    format!("control groups, version {version}{only}")
}

fn memory_limit() -> Check {
    let found = stack::Limits::memory_controller();
    Check {
        name: "memory limit",
        status: if found.is_some() && is_root() { Status::Ok } else { Status::Limited },
        detail: found.map_or("no control group has the memory controller".into(), of_version),
        fix: found.is_none().then(|| "databases larger than memory need it: boot with it".into()),
    }
}

fn device_limit() -> Check {
    let found = stack::Limits::device_controller();
    Check {
        name: "device limit",
        status: if found.is_some() && is_root() { Status::Ok } else { Status::Limited },
        detail: found.map_or("no control group can limit block devices".into(), of_version),
        fix: found.is_none().then(|| "stacks with a limit need it: boot with it".into()),
    }
}

fn load(text: &str) -> Check {
    let first: f64 = text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let busy = first > cpus as f64 / 2.0;
    Check {
        name: "other load",
        status: if busy { Status::Limited } else { Status::Ok },
        detail: format!("load average {text} on {cpus} CPUs"),
        fix: busy.then(|| "wait until the machine is quiet; figures will vary".into()),
    }
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
