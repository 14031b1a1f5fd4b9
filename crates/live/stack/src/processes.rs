//! Processes started by a run: found by the mark in their environment, and ended; and users of a mount.
//!
//! Invariant: a process is ended only while held by a pidfd and carrying the mark, so a reused ID is not
//! taken for ours.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, FileType, StatxFlags};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::StackError;
use crate::mark::Mark;

/// Time limit for killed processes to exit.
const GONE_MAX: Duration = Duration::from_secs(30);

/// Ends every process with `mark` in its environment except this one, and waits until they are gone; returns
/// their number.
pub(crate) fn end_marked(mark: &Mark) -> Result<usize, StackError> {
    let began = Instant::now();
    let mut ended = std::collections::BTreeSet::new();
    loop {
        let there = marked(mark);
        if there.is_empty() {
            return Ok(ended.len());
        }
        if began.elapsed() > GONE_MAX {
            let names: Vec<String> = there.iter().map(|pid| name_of(*pid)).collect();
            return Err(StackError::refused(
                &"processes of a run",
                format!("they do not end: {}", names.join(", ")),
                "they wait for a device; when it answers: crosspoint clean",
            ));
        }
        for number in there {
            if end(number, mark) {
                ended.insert(number);
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Time for an ended process to close its files before the others are ended.
const ENDED_MAX: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Ends one process if it still carries the mark.
fn end(number: i32, mark: &Mark) -> bool {
    let Some(pid) = Pid::from_raw(number) else { return false };
    let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    // Checked again now that the ID cannot be reused.
    if !carries(number, mark) || pidfd_send_signal(&held, Signal::KILL).is_err() {
        return false;
    }
    // Its environment disappears before its files and locks; readable when it is gone completely.
    let _ = poll(&mut [PollFd::new(&held, PollFlags::IN)], Some(&ENDED_MAX));
    true
}

/// Processes with the mark; zombies have no environment.
fn marked(mark: &Mark) -> Vec<i32> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    numbers().filter(|number| *number != own && carries(*number, mark)).collect()
}

fn carries(number: i32, mark: &Mark) -> bool {
    let entry = mark.entry();
    let environment = fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|one| one == entry.as_bytes())
}

fn numbers() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
}

fn name_of(number: i32) -> String {
    let name = fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
    format!("{number} ({})", name.trim())
}

/// Processes with something open, mapped or as working directory at or below `place`, for people.
pub(crate) fn holders(place: &Path) -> Vec<String> {
    let holds = |number: &i32| {
        let process = PathBuf::from(format!("/proc/{number}"));
        let plain = ["cwd", "root", "exe"].map(|link| process.join(link));
        let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        let mapped = fs::read_dir(process.join("map_files")).into_iter().flatten().flatten();
        plain
            .into_iter()
            .chain(open.map(|entry| entry.path()))
            .chain(mapped.map(|entry| entry.path()))
            .any(|link| fs::read_link(link).is_ok_and(|to| to.starts_with(place)))
    };
    numbers().filter(holds).map(name_of).collect()
}

/// Processes that have a block device with one of these numbers (major, minor) open, by whatever node, for
/// people.
pub(crate) fn holders_of(devices: &[(u32, u32)]) -> Vec<String> {
    // The kernel's cached attributes: a stuck server must not be queried.
    let is_one = |link: &Path| {
        let (flags, wanted) = (AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE);
        rustix::fs::statx(rustix::fs::CWD, link, flags, wanted).is_ok_and(|found| {
            FileType::from_raw_mode(found.stx_mode.into()) == FileType::BlockDevice
                && devices.contains(&(found.stx_rdev_major, found.stx_rdev_minor))
        })
    };
    let holds = |number: &i32| {
        let links = |of: &str| fs::read_dir(format!("/proc/{number}/{of}")).into_iter().flatten();
        let mut open = links("fd").chain(links("map_files")).flatten();
        open.any(|entry| is_one(&entry.path()))
    };
    numbers().filter(holds).map(name_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// A process of the user's own must never be ended.
    #[test]
    fn only_marked_processes_and_theirs_are_ended() {
        let (mark, other) = (Mark::random(), Mark::random());
        let start = |mark: &Mark| {
            let mut command = Command::new("sh");
            mark.put_on(&mut command);
            // A shell that waits for its child: both must be killed.
            command.args(["-c", "sleep 60 & read line"]);
            command.stdin(Stdio::piped()).spawn().unwrap()
        };
        let (mut ours, mut theirs) = (start(&mark), start(&other));
        // A process that has only just begun has no environment yet.
        while marked(&mark).is_empty() {
            std::thread::yield_now();
        }
        // Waiting for it would close its input, and it would exit by itself.
        let _input = ours.stdin.take();
        let waiter = std::thread::spawn(move || ours.wait());
        assert!(end_marked(&mark).unwrap() >= 1);
        assert!(waiter.join().unwrap().is_ok());
        assert_eq!(marked(&mark), Vec::<i32>::new());
        assert!(theirs.try_wait().unwrap().is_none(), "the other one lives");
        theirs.kill().unwrap();
        theirs.wait().unwrap();
        end_marked(&other).unwrap();
    }

    #[test]
    fn who_holds_a_place_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let place = fs::canonicalize(dir.path()).unwrap();
        assert_eq!(holders(&place), Vec::<String>::new());
        let _open = fs::File::create(place.join("open")).unwrap();
        assert!(holders(&place)[0].starts_with(&std::process::id().to_string()));
    }
}
