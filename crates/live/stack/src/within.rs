//! Runs a program with a time limit and bounded output.
//!
//! Invariants: a program that exceeds the limit is killed, and it dies with the thread that started it;
//! output beyond the bound is read and dropped, so it does not block; none of this program's secrets are in
//! its environment.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, set_parent_process_death_signal};

use crate::PASSWORD_VARIABLE;

/// Maximum bytes of output that are kept.
const SAID_MAX: u64 = 1 << 20;
/// Polling interval.
const LOOK: Duration = Duration::from_millis(20);

/// Path of a program: on the search path, or in the administrators' directories. Nothing is started.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    const PLACES: [&str; 5] =
        ["/usr/sbin", "/sbin", "/usr/libexec", "/usr/local/sbin", "/usr/local/mysql/bin"];
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::env::split_paths(&paths).chain(PLACES.iter().map(PathBuf::from));
    paths.map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Runs `command`, with its stdin already set, until it ends, for at most `most`, or until `stop`. `begun`
/// receives the child first.
///
/// # Errors
/// The system's error; [`io::ErrorKind::TimedOut`] or [`io::ErrorKind::Interrupted`] if it was killed.
pub fn output_within(
    command: &mut Command,
    (most, stop): (Duration, Option<&AtomicBool>),
    begun: impl FnOnce(&mut Child),
) -> io::Result<Output> {
    // In its own process group, so that its children are killed with it.
    command
        .env_remove(PASSWORD_VARIABLE)
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: between fork and exec only prctl(2) is called, which is safe to call there.
    unsafe {
        command
            .pre_exec(|| set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into));
    }
    let mut child = command.spawn()?;
    begun(&mut child);
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (send_out, out) = sync_channel(1);
    let (send_errors, errors) = sync_channel(1);
    // Not joined: its children may hold its outputs open.
    std::thread::spawn(move || send_out.send(bounded(stdout)));
    std::thread::spawn(move || send_errors.send(bounded(stderr)));
    let status = end_of(&mut child, most, stop)?;
    let said = |from: std::sync::mpsc::Receiver<Vec<u8>>| {
        from.recv_timeout(Duration::from_secs(1)).unwrap_or_default()
    };
    Ok(Output { status, stdout: said(out), stderr: said(errors) })
}

fn end_of(child: &mut Child, most: Duration, stop: Option<&AtomicBool>) -> io::Result<ExitStatus> {
    let began = Instant::now();
    let mut look = Duration::from_micros(200);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let stopped = stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
        if stopped || began.elapsed() >= most {
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                // Not reaped yet, so the ID cannot belong to another process.
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = child.wait();
            let kind = if stopped { io::ErrorKind::Interrupted } else { io::ErrorKind::TimedOut };
            return Err(io::Error::new(kind, format!("it timed out after {} s", most.as_secs())));
        }
        std::thread::sleep(look);
        look = (look * 2).min(LOOK);
    }
}

fn bounded(stream: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        let _ = stream.by_ref().take(SAID_MAX).read_to_end(&mut bytes);
        let _ = io::copy(&mut stream, &mut io::sink());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        command
    }

    /// A helper program that hangs must not hang the run.
    #[test]
    fn a_program_that_does_not_end_is_ended() {
        let most = Duration::from_millis(200);
        let error = output_within(&mut shell("kill -STOP $$"), (most, None), |_| ()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let stop = AtomicBool::new(true);
        let long = Duration::from_secs(600);
        let error =
            output_within(&mut shell("sleep 600"), (long, Some(&stop)), |_| ()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        // Its children are killed with it.
        let dir = tempfile::tempdir().unwrap();
        let script = format!("sleep 600 & echo $! > {}/child; wait", dir.path().display());
        let most = Duration::from_millis(500);
        assert!(output_within(&mut shell(&script), (most, None), |_| ()).is_err());
        let started = std::fs::read_to_string(dir.path().join("child")).unwrap();
        let lives = || {
            let line = std::fs::read_to_string(format!("/proc/{}/stat", started.trim()));
            line.is_ok_and(|line| !line.contains(") Z "))
        };
        let began = Instant::now();
        while lives() {
            assert!(began.elapsed() < Duration::from_secs(60), "what it has started is ended");
            std::thread::yield_now();
        }
        let output = output_within(&mut shell("echo a; echo b >&2; exit 3"), (long, None), |_| ());
        let output = output.unwrap();
        assert_eq!(
            (output.stdout.as_slice(), output.stderr.as_slice()),
            (&b"a\n"[..], &b"b\n"[..])
        );
        assert_eq!(output.status.code(), Some(3));
    }
}
