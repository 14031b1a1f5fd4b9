//! A private server: where it listens, and its process, started in its home, watched and stopped.
//!
//! Invariants: processes of a killed run are found by their mark; the server ends with the thread that
//! started it.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use crate::{Address, EngineError, Home, Hosting, Preload, PrivateServer, Server};

/// Time limit for starting, including crash recovery.
const START_MAX: Duration = Duration::from_secs(300);
/// Time limit for flushing dirty pages and shutting down.
const STOP_MAX: Duration = Duration::from_secs(120);
/// Time limit for a killed server to disappear.
const GONE_MAX: Duration = Duration::from_secs(10);
/// Polling interval.
const LOOK: Duration = Duration::from_millis(10);
/// Maximum number of lines shown from the end of the server's log.
const LOG_LINES: usize = 8;

const DOCTOR: &str = "crosspoint doctor";

fn refused(reason: String, next: &str) -> EngineError {
    EngineError::refused(reason, next)
}

/// Where a private server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A socket in its data directory.
    Own,
    /// A port on loopback.
    Port(u16),
}

impl Listen {
    /// Parses the study's value.
    ///
    /// # Errors
    /// What is allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        Ok(study::listen_port(text)?.map_or(Self::Own, Self::Port))
    }

    /// Checks that no server listens there.
    ///
    /// # Errors
    /// Describes what does.
    pub fn check_free(&self) -> Result<(), EngineError> {
        let refused = |reason: String| {
            let next = "choose another place to listen, or listen = \"auto\"";
            Err(EngineError::refused(reason, next))
        };
        match self {
            Self::Port(port) => match TcpListener::bind(("127.0.0.1", *port)) {
                Ok(_) => Ok(()),
                Err(error) => refused(format!("127.0.0.1:{port} is not available: {error}")),
            },
            Self::Own => Ok(()),
        }
    }

    /// The address of the server in `process`, whose socket is `socket` in its working directory. The socket
    /// is reached through that directory, because the stack's path can exceed a socket's limit.
    #[must_use]
    pub fn address(&self, process: u32, socket: &str) -> Address {
        match self {
            Self::Own => Address::Socket(PathBuf::from(format!("/proc/{process}/cwd/{socket}"))),
            Self::Port(port) => Address::Tcp { host: "127.0.0.1".into(), port: *port },
        }
    }
}

/// Clears a server's environment, except PATH and CROSSPOINT_STATE_DIR.
pub fn bare_environment(command: &mut Command) {
    command.env_clear();
    for name in ["PATH", "CROSSPOINT_STATE_DIR"] {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
}

/// How the processes of a server product behave.
#[derive(Debug, Clone, Copy)]
pub struct Habits {
    /// Asks it to shut down cleanly.
    pub quit: Signal,
    /// The part of its log that says why it ended.
    pub last_words: fn(&str) -> String,
}

/// The process of a private server that runs; killed when dropped.
#[derive(Debug)]
pub struct PrivateProcess {
    child: Child,
    log: PathBuf,
    habits: Habits,
    started: SystemTime,
    stopped: bool,
}

impl PrivateProcess {
    /// Starts `command` in `home`, in its limits or its simulation from its first instruction.
    ///
    /// # Errors
    /// The system's error.
    pub fn start(
        mut command: Command,
        journal: &stack::Journal,
        (home, private): (&Home, PrivateServer<'_>),
        habits: Habits,
    ) -> Result<Self, EngineError> {
        let program = Path::new(command.get_program()).display().to_string();
        let failed = |error: std::io::Error| refused(format!("{program}: {error}"), DOCTOR);
        let file = File::options().create(true).append(true).open(private.log);
        let file =
            file.map_err(|error| refused(format!("{}: {error}", private.log.display()), DOCTOR))?;
        let output = file.try_clone().map_err(failed)?;
        bare_environment(&mut command);
        journal.mark().put_on(&mut command);
        // Its own process group: a terminal interrupt goes to the program, which then stops it.
        command.process_group(0).stdin(Stdio::null()).stdout(output).stderr(file);
        match private.preload {
            Preload::Simulation(simulation) => {
                simulation.admit_server(&mut command, &home.seen_place());
            }
            Preload::Observation(observation) => observation.admit(&mut command),
            Preload::None => {}
        }
        let doors = private.limits.doors().map_err(|error| refused(error.to_string(), DOCTOR))?;
        home.confine(&mut command, doors, private.wal).map_err(failed)?;
        let started = SystemTime::now();
        let child = command.spawn().map_err(failed)?;
        Ok(Self { child, log: private.log.to_owned(), habits, started, stopped: false })
    }

    /// Waits until the server listens at `address` and `answers`.
    ///
    /// # Errors
    /// If it does not start; with the last lines of its log.
    pub fn wait_until_up(
        &mut self,
        (address, private): (&Address, PrivateServer<'_>),
        hosting: Hosting<'_>,
        answers: impl Fn() -> bool,
    ) -> Result<(), EngineError> {
        let began = Instant::now();
        loop {
            if let Some(how) = self.obituary(Duration::ZERO) {
                let reason = format!("the server did not start: it {how}");
                return Err(refused(reason, "see the server's log"));
            }
            let open = match address {
                Address::Socket(path) => UnixStream::connect(path).is_ok(),
                Address::Tcp { host, port } => TcpStream::connect((host.as_str(), *port)).is_ok(),
            };
            if open && answers() {
                break;
            }
            if hosting.stop.load(Ordering::Relaxed) {
                return Err(refused("the server was still starting".into(), "run it again"));
            }
            if began.elapsed() > START_MAX {
                let said = self.last_words();
                return Err(refused(format!("the server did not start in time: {said}"), DOCTOR));
            }
            std::thread::sleep(LOOK);
        }
        if let Preload::Simulation(simulation) = private.preload
            && !simulation.has_joined(self.child.id())
        {
            let reason = "the server did not load the library of virtual time".to_owned();
            return Err(refused(reason, "use a dynamically linked server"));
        }
        Ok(())
    }

    fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        (self.habits.last_words)(&String::from_utf8_lossy(&text))
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // Our child, not waited for yet, so the ID is still its own.
            let _ = kill_process(pid, signal);
        }
    }
}

/// The last lines of a text, in one line.
#[must_use]
pub fn last_lines(lines: &[&str]) -> String {
    let said: Vec<&str> = lines.iter().map(|line| line.trim()).filter(|l| !l.is_empty()).collect();
    said[said.len().saturating_sub(LOG_LINES)..].join(" | ")
}

impl Server for PrivateProcess {
    fn process(&self) -> u32 {
        self.child.id()
    }

    fn obituary(&mut self, wait: Duration) -> Option<String> {
        let began = Instant::now();
        let status = loop {
            match self.child.try_wait().ok().flatten() {
                Some(status) => break status,
                None if began.elapsed() >= wait => return None,
                None => std::thread::sleep(LOOK),
            }
        };
        self.stopped = true;
        let how = match (status.signal(), status.code()) {
            (Some(signal), _) => format!("was ended by signal {signal}"),
            (None, code) => format!("ended with code {}", code.unwrap_or(0)),
        };
        Some(format!("{how}; the last lines of its log: {}", self.last_words()))
    }

    fn stop(mut self: Box<Self>) -> Result<(), String> {
        if let Some(how) = self.obituary(Duration::ZERO) {
            return Err(how);
        }
        self.signal(self.habits.quit);
        // A stopped process would not receive it.
        self.signal(Signal::CONT);
        let began = Instant::now();
        while began.elapsed() < STOP_MAX {
            if self.child.try_wait().ok().flatten().is_some() {
                self.stopped = true;
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        Err("did not shut down in time and was killed".into())
    }
}

impl Drop for PrivateProcess {
    fn drop(&mut self) {
        if !self.stopped {
            // Its children would go on writing for a while.
            let all = observe::family(self.child.id()).into_iter().skip(1);
            let open = |id: u32| pidfd_open(Pid::from_raw(id as i32)?, PidfdFlags::empty()).ok();
            let children: Vec<_> = all.filter_map(open).collect();
            let _ = self.child.kill();
            for child in &children {
                let _ = pidfd_send_signal(child, Signal::KILL);
            }
            // A process that waits for a device may remain; it is left to the undo journal.
            let began = Instant::now();
            while began.elapsed() < GONE_MAX && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(LOOK);
            }
            remove_segments(self.child.id(), self.started);
        }
    }
}

/// Removes System V shared memory that a killed server made since it was `started`. Not as root, whose
/// servers have a name space of their own: a reused process ID could name what belongs to others.
fn remove_segments(process: u32, started: SystemTime) {
    let since = started.duration_since(SystemTime::UNIX_EPOCH).map_or(u64::MAX, |t| t.as_secs());
    if rustix::process::geteuid().is_root() {
        return;
    }
    let all = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    for line in all.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, id, _, _, maker, _, attached, ..] = words[..] else { continue };
        let made = words.get(13).and_then(|word| word.parse::<u64>().ok());
        if attached == "0"
            && made.is_some_and(|made| made >= since)
            && maker.parse() == Ok(process)
            && let Ok(id) = id.parse()
        {
            // SAFETY: the call takes no memory; the segment is ours, or it fails.
            unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_to_listen_are_told_apart() {
        assert_eq!(Listen::parse("auto"), Ok(Listen::Own));
        assert!(Listen::parse("/run/x.sock").is_err());
        assert_eq!(Listen::parse("127.0.0.1:3399"), Ok(Listen::Port(3399)));
        assert!(Listen::parse("0.0.0.0:3306").unwrap_err().contains("allowed"));
    }
}
