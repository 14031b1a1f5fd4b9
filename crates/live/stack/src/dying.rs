//! Ends killed runs that cannot die because they wait for a drive that they served.
//!
//! A thread in `mount` or `sync` ignores signals while it waits for other threads of its process, which are
//! gone by then. It keeps the drive open, so the kernel does not notice that nobody serves it. A forced
//! unmount of the drive fails every waiting request. Invariants: only a killed process is affected, and of
//! its mounts only our drives in its own work areas.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};

use crate::mounts::{Mounted, mounts};

/// Time limit for exiting once nothing is waited for.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// The bit of SIGKILL among pending signals.
const KILLED: u64 = 1 << 8;

/// Ends the process that holds the lock of its journal, if it has been killed and hangs on one of its drives
/// at `mounts_of_it`. Returns whether it has ended.
pub(crate) fn let_die(journal: &File, mounts_of_it: &[PathBuf]) -> bool {
    let Some(process) = holder(journal).filter(|process| is_killed(*process)) else { return false };
    let drives = mounts().into_iter().filter(Mounted::is_ours);
    for drive in drives.filter(|drive| mounts_of_it.contains(&drive.place)) {
        // Reports busy, but has ended the waiting requests.
        let _ = unmount(&drive.place, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW);
    }
    let began = Instant::now();
    while began.elapsed() < ENDS_WITHIN {
        if holder(journal) != Some(process) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// The process that holds the lock of a file.
fn holder(file: &File) -> Option<u32> {
    let data = file.metadata().ok()?;
    let (major, minor) = (rustix::fs::major(data.dev()), rustix::fs::minor(data.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", data.ino());
    holder_in(&fs::read_to_string("/proc/locks").ok()?, &place)
}

/// Finds the holder in lines of `/proc/locks`: `1: FLOCK  ADVISORY  WRITE 708 08:01:13 0 EOF`.
fn holder_in(locks: &str, place: &str) -> Option<u32> {
    let fields = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut own = fields.filter(|fields| fields.get(5) == Some(&place));
    own.next()?.get(4)?.parse().ok()
}

/// Whether a thread of a process has a pending SIGKILL.
fn is_killed(process: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let status = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("status")).ok();
    threads.filter_map(status).any(|status| has_kill(&status))
}

fn has_kill(status: &str) -> bool {
    let pending = |name| {
        let line = status.lines().find_map(|line: &str| line.strip_prefix(name));
        line.and_then(|word| u64::from_str_radix(word.trim(), 16).ok()).unwrap_or(0)
    };
    (pending("SigPnd:") | pending("ShdPnd:")) & KILLED != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A living process taken for a dying one would lose the drive under its database.
    #[test]
    fn only_who_was_killed_is_met() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(holder(file.as_file()), None);
        file.as_file().lock().unwrap();
        assert_eq!(holder(file.as_file()), Some(std::process::id()));
        assert!(!is_killed(std::process::id()), "it lives");
        let status = "Name:\tx\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n";
        assert!(has_kill(status));
        assert!(!has_kill(&status.replace("100", "002")), "another signal");
        let locks = "1: FLOCK  ADVISORY  WRITE 708 08:01:13 0 EOF\n\
                     1: -> FLOCK  ADVISORY  WRITE 9 08:01:13 0 EOF\n";
        assert_eq!(holder_in(locks, "08:01:13"), Some(708), "not who waits for it");
        assert_eq!(holder_in(locks, "08:01:131"), None);
    }
}
