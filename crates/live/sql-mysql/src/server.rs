//! A private server: made, started, watched and stopped.
//!
//! Invariants: it listens on its own socket (or where the study says), reads no configuration of the
//! machine's, and its data directory carries our mark; it is in the undo journal before it starts, and ends
//! with the thread that started it. What it is not: the user's server; that is only ever connected to.

use std::fs::{self, File};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use sql::{Address, Flavour, Refusal, SqlError, Target};
use stack::{Journal, Undo};
use units::Bytes;

use crate::binary::Binary;
use crate::connection::{Reach, told};
use crate::options::{Listen, SOCKET, base};

/// Time that a server has to come up; a crash recovery may be in it.
const START_MAX: Duration = Duration::from_secs(300);
/// Time that it has to write its dirty pages and go down.
const STOP_MAX: Duration = Duration::from_secs(300);
/// Time between looks at it.
const LOOK: Duration = Duration::from_millis(10);
/// Lines of its log that are told.
const LOG_LINES: usize = 8;

fn refused(reason: String, next: &str) -> SqlError {
    SqlError::Refused(Refusal { reason, next: next.into() })
}

/// Makes an empty data directory at `data`.
///
/// # Errors
/// In the words of the program that makes it.
pub fn initialise(binary: &Binary, data: &Path, page_size: Bytes) -> Result<(), SqlError> {
    fs::create_dir(data)
        .map_err(|error| refused(format!("{}: {error}", data.display()), DOCTOR))?;
    let mut arguments = base(binary, data, page_size);
    let program = match binary.flavour {
        Flavour::MySql => {
            arguments.push("--initialize-insecure".into());
            Some(binary.path.clone())
        }
        Flavour::MariaDb => {
            arguments.extend([
                "--auth-root-authentication-method=normal".to_owned(),
                "--skip-test-db".into(),
                // Nobody needs the system tables if this machine goes down now.
                "--innodb-flush-method=nosync".into(),
            ]);
            arguments.retain(|argument| !argument.starts_with("--log-warnings"));
            let names = ["mariadb-install-db", "mysql_install_db"];
            names.iter().find_map(|name| binary.companion(name))
        }
    };
    let Some(program) = program else {
        let reason =
            "mariadb-install-db, which makes data directories, is not installed".to_owned();
        return Err(refused(reason, "apt-get install mariadb-server"));
    };
    let output = Command::new(&program).args(&arguments).stdin(Stdio::null()).output();
    let output =
        output.map_err(|error| refused(format!("{}: {error}", program.display()), DOCTOR))?;
    if !output.status.success() {
        let said = [output.stderr, output.stdout].concat();
        let said = last_lines(&String::from_utf8_lossy(&said));
        let reason = format!("the data directory could not be made: {said}");
        return Err(refused(reason, "look at the words of the server; is the file system full?"));
    }
    Ok(())
}

const DOCTOR: &str = "crosspoint doctor";

/// A private server that runs.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: Address,
    log: PathBuf,
    /// A socket at a place that the study names, made by the server.
    socket: Option<PathBuf>,
    stopped: bool,
}

impl Server {
    /// Starts the server with `arguments` (of [`crate::arguments`]) on `data`, and waits until it answers.
    ///
    /// # Errors
    /// When its place is taken, or it does not come up; with the last lines of its log.
    pub fn start(
        binary: &Binary,
        journal: &Journal,
        (data, log): (&Path, &Path),
        listen: &Listen,
        arguments: &[String],
    ) -> Result<Self, SqlError> {
        listen.check_free()?;
        journal
            .note(Undo::StopServer { data: data.to_owned() })
            .map_err(|error| refused(error.to_string(), DOCTOR))?;
        let file = File::options().create(true).append(true).open(log);
        let file = file.map_err(|error| refused(format!("{}: {error}", log.display()), DOCTOR))?;
        let output = file.try_clone();
        let output = output.map_err(|error| refused(error.to_string(), DOCTOR))?;
        let mut command = Command::new(&binary.path);
        command.args(arguments).args(listening(listen)).current_dir(data);
        // A group of its own: an interrupt from the terminal is for the program, which then stops it.
        command.process_group(0).stdin(Stdio::null()).stdout(output).stderr(file);
        // SAFETY: between fork and exec only prctl(2) is called, which is safe to call there.
        unsafe {
            command.pre_exec(|| {
                set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into)
            });
        }
        let child = command.spawn();
        let child = child
            .map_err(|error| refused(format!("{}: {error}", binary.path.display()), DOCTOR))?;
        let address = listen.address(child.id());
        let socket = match listen {
            Listen::Socket(path) => Some(path.clone()),
            Listen::Own | Listen::Port(_) => None,
        };
        let mut server = Self { child, address, log: log.to_owned(), socket, stopped: false };
        server.wait_until_up()?;
        Ok(server)
    }

    fn wait_until_up(&mut self) -> Result<(), SqlError> {
        let began = Instant::now();
        let target = self.target(None);
        loop {
            if let Some(how) = self.obituary(Duration::ZERO) {
                let reason = format!("the server did not come up: it {how}");
                return Err(refused(reason, "look at the words of the server's log"));
            }
            let open = match &self.address {
                Address::Socket(path) => UnixStream::connect(path).is_ok(),
                Address::Tcp { host, port } => TcpStream::connect((host.as_str(), *port)).is_ok(),
            };
            if open && target.connect().is_ok() {
                return Ok(());
            }
            if began.elapsed() > START_MAX {
                let said = self.last_words();
                return Err(refused(format!("the server did not come up in time: {said}"), DOCTOR));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Its process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Makes a database unless it is there.
    ///
    /// # Errors
    /// What the server said.
    pub fn make_database(&self, name: &str) -> Result<(), SqlError> {
        let mut conn = self.target(None).connect()?;
        conn.query_drop(format!("CREATE DATABASE IF NOT EXISTS {name}")).map_err(told)
    }

    /// Its `root`, in `database`.
    #[must_use]
    pub fn target(&self, database: Option<&str>) -> Target {
        Target::private(self.address.clone(), database)
    }

    /// How it ended, with the last lines of its log; `None` when it still runs after `wait`.
    pub fn obituary(&mut self, wait: Duration) -> Option<String> {
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

    fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        last_lines(&String::from_utf8_lossy(&text))
    }

    /// Stops it as it should be stopped, its pages written; ends it if that takes too long.
    ///
    /// # Errors
    /// In words that go on after "the server", when it had to be ended or had ended before.
    pub fn stop(mut self) -> Result<(), String> {
        if let Some(how) = self.obituary(Duration::ZERO) {
            return Err(how);
        }
        self.signal(Signal::TERM);
        let began = Instant::now();
        while began.elapsed() < STOP_MAX {
            if self.child.try_wait().ok().flatten().is_some() {
                self.stopped = true;
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        Err("did not go down in time and was ended".into())
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It is our child and was not waited for, so the number is still its own.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.stopped {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        // One that was killed leaves it behind, and nobody else was there before.
        if let Some(socket) = &self.socket {
            let _ = fs::remove_file(socket);
        }
    }
}

fn listening(listen: &Listen) -> Vec<String> {
    match listen {
        Listen::Own => vec![format!("--socket={SOCKET}"), "--skip-networking".into()],
        Listen::Socket(path) => {
            vec![format!("--socket={}", path.display()), "--skip-networking".into()]
        }
        Listen::Port(port) => vec![
            format!("--socket={SOCKET}"),
            "--bind-address=127.0.0.1".into(),
            format!("--port={port}"),
        ],
    }
}

/// The last lines of a text, in one line.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join(" | ")
}
