//! Servers of ours that a killed run left behind: found by the data directory on their command line, ended.
//!
//! Invariant: only a process that was started on a directory with our mark is ended. What it is not: a way
//! to stop a server that is to keep its data; see the server's keeper.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::StackError;
use crate::journal::MARK;

/// Time that a process has to go after it was ended.
const GONE_MAX: Duration = Duration::from_secs(30);

/// Ends every process whose command line has `--datadir=` with `data`, and waits until it is gone.
pub(crate) fn end_servers(data: &Path) -> Result<(), StackError> {
    let marked = |part: &std::ffi::OsStr| part.to_str().is_some_and(|part| part.starts_with(MARK));
    if !data.iter().any(marked) {
        return Err(StackError::Refused {
            device: data.display().to_string(),
            reason: "not made by Crosspoint".into(),
            next: "stop the server yourself if you are sure".into(),
        });
    }
    let began = Instant::now();
    loop {
        let servers = servers_on(data);
        if servers.is_empty() {
            return Ok(());
        }
        if began.elapsed() > GONE_MAX {
            let numbers: Vec<String> = servers.iter().map(i32::to_string).collect();
            return Err(StackError::Refused {
                device: data.display().to_string(),
                reason: format!("its server does not end (process {})", numbers.join(", ")),
                next: "end it, then: crosspoint clean".into(),
            });
        }
        for server in servers {
            if let Some(pid) = Pid::from_raw(server) {
                // One that ended in between is what was wanted.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Processes on a data directory; those that have ended and were not waited for have no command line.
fn servers_on(data: &Path) -> Vec<i32> {
    let wanted = format!("--datadir={}", data.display());
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let on_it = |number: &i32| {
        let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == wanted.as_bytes())
    };
    numbers.filter(on_it).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// The user's own server must never be ended.
    #[test]
    fn only_servers_on_directories_of_ours_are_ended() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join(format!("{MARK}x")).join("data");
        let wait = |data: &Path| {
            let argument = format!("--datadir={}", data.display());
            let script = ["-c", "read line", "sh", &argument];
            Command::new("sh").args(script).stdin(Stdio::piped()).spawn().unwrap()
        };
        let (mut ours, mut theirs) = (wait(&data), wait(&dir.path().join("data")));
        // The child of ours is waited for elsewhere, so that it does not stay as a corpse.
        let waiter = std::thread::spawn(move || ours.wait());
        end_servers(&data).unwrap();
        assert!(waiter.join().unwrap().is_ok());
        assert!(theirs.try_wait().unwrap().is_none(), "the other one lives");
        assert!(end_servers(&dir.path().join("data")).is_err());
        theirs.kill().unwrap();
        theirs.wait().unwrap();
    }
}
