//! A private server: started, watched and stopped.
//!
//! Invariants: it listens on its own socket (or where the study says), reads no configuration of the machine,
//! and accepts only the password created by this start; processes of a killed run are found by their mark; it
//! ends with the thread that started it.

use std::fs::{self, File};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::{Address, EngineError, Flavour, Hosting, Preload, PrivateServer, Secret, Target};
use mysql::prelude::Queryable;
use rustix::process::{Pid, Signal, kill_process};
use stack::random_hex;

use crate::binary::{Binary, bare_environment};
use crate::home::{FILES, Home, TEMPORARY};
use crate::options::{Listen, SOCKET};
use crate::reach::{connect_briefly, told};

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

fn refused(reason: String, next: &str) -> EngineError {
    EngineError::refused(reason, next)
}

const DOCTOR: &str = "crosspoint doctor";

/// Our account on a private server.
const USER: &str = "crosspoint";
/// SQL that a server executes before it accepts connections.
const ACCOUNTS: &str = "accounts.sql";

/// A private server that runs.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: Address,
    password: Secret,
    log: PathBuf,
    stopped: bool,
}

impl Server {
    /// Starts the server with `arguments` (of [`crate::arguments`]) in `home`, in its limits or its
    /// simulation from its first instruction, and waits until it answers. The arguments added here come
    /// last, so that no setting overrides them.
    ///
    /// # Errors
    /// If its address is taken, or it does not start; with the last lines of its log.
    pub fn start(
        binary: &Binary,
        Hosting { journal, stop }: Hosting<'_>,
        (home, private): (&Home, PrivateServer<'_>),
        (listen, arguments): (&Listen, &[String]),
    ) -> Result<Self, EngineError> {
        let log = private.log;
        listen.check_free()?;
        let password = Secret::new(random_hex(32));
        home.write(ACCOUNTS, &accounts(binary.flavour, &password))?;
        let file = File::options().create(true).append(true).open(log);
        let file = file.map_err(|error| refused(format!("{}: {error}", log.display()), DOCTOR))?;
        let output = file.try_clone();
        let output = output.map_err(|error| refused(error.to_string(), DOCTOR))?;
        let mut command = Command::new(&binary.path);
        command.args(arguments).args(listening(listen)).args([
            format!("--tmpdir={}", home.seen(TEMPORARY)),
            format!("--secure-file-priv={}", home.seen(FILES)),
            format!("--init-file={}", home.seen(ACCOUNTS)),
        ]);
        bare_environment(&mut command);
        journal.mark().put_on(&mut command);
        // Its own process group: a terminal interrupt goes to the program, which then stops it.
        command.process_group(0).stdin(Stdio::null()).stdout(output).stderr(file);
        match private.preload {
            Preload::Simulation(simulation) => {
                // Its requests would bypass the simulation.
                command.arg("--innodb-use-native-aio=OFF");
                simulation.admit_server(&mut command, &home.seen_place());
            }
            Preload::Observation(observation) => observation.admit(&mut command),
            Preload::None => {}
        }
        let doors = private.limits.doors().map_err(|error| refused(error.to_string(), DOCTOR))?;
        home.confine(&mut command, doors);
        let child = command.spawn();
        let child = child
            .map_err(|error| refused(format!("{}: {error}", binary.path.display()), DOCTOR))?;
        let address = listen.address(child.id());
        let mut server = Self { child, address, password, log: log.to_owned(), stopped: false };
        let up = server.wait_until_up(stop);
        let _ = fs::remove_file(home.path(ACCOUNTS));
        up?;
        let process = server.child.id();
        if let Preload::Simulation(simulation) = private.preload
            && !simulation.has_joined(process)
        {
            let reason = "the server did not load the library of virtual time".to_owned();
            return Err(refused(reason, "use a dynamically linked server"));
        }
        Ok(server)
    }

    fn wait_until_up(&mut self, stop: &AtomicBool) -> Result<(), EngineError> {
        let began = Instant::now();
        let target = self.target(None);
        loop {
            if let Some(how) = engine::Server::obituary(self, Duration::ZERO) {
                let reason = format!("the server did not start: it {how}");
                return Err(refused(reason, "see the server's log"));
            }
            let open = match &self.address {
                Address::Socket(path) => UnixStream::connect(path).is_ok(),
                Address::Tcp { host, port } => TcpStream::connect((host.as_str(), *port)).is_ok(),
            };
            if open && connect_briefly(&target).is_ok() {
                return Ok(());
            }
            if stop.load(Ordering::Relaxed) {
                return Err(refused("the server was still starting".into(), "run it again"));
            }
            if began.elapsed() > START_MAX {
                let said = self.last_words();
                return Err(refused(format!("the server did not start in time: {said}"), DOCTOR));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Creates a database unless it exists.
    ///
    /// # Errors
    /// The server's message.
    pub fn make_database(&self, name: &str) -> Result<(), EngineError> {
        let mut conn = connect_briefly(&self.target(None))?;
        conn.query_drop(format!("CREATE DATABASE IF NOT EXISTS {name}")).map_err(told)
    }

    /// Our account on it, in `database`.
    #[must_use]
    pub fn target(&self, database: Option<&str>) -> Target {
        Target {
            address: self.address.clone(),
            user: USER.into(),
            database: database.map(Into::into),
            password: Some(self.password.clone()),
        }
    }

    fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        last_lines(&String::from_utf8_lossy(&text))
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // Our child, not waited for yet, so the ID is still its own.
            let _ = kill_process(pid, signal);
        }
    }
}

impl engine::Server for Server {
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
        self.signal(Signal::TERM);
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

impl Drop for Server {
    fn drop(&mut self) {
        if !self.stopped {
            let _ = self.child.kill();
            // A process that waits for a device may remain; it is left to the undo journal.
            let began = Instant::now();
            while began.elapsed() < GONE_MAX && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(LOOK);
            }
        }
    }
}

/// Statements that make our account, and leave no other; a line each.
fn accounts(flavour: Flavour, password: &Secret) -> String {
    let mut text = String::new();
    for host in ["localhost", "127.0.0.1"] {
        let account = format!("'{USER}'@'{host}'");
        text.push_str(&format!(
            "CREATE USER IF NOT EXISTS {account} IDENTIFIED BY '{0}';\n\
             ALTER USER {account} IDENTIFIED BY '{0}';\n\
             GRANT ALL PRIVILEGES ON *.* TO {account} WITH GRANT OPTION;\n",
            password.text()
        ));
    }
    if flavour == Flavour::MySql {
        text.push_str("DROP USER IF EXISTS 'root'@'localhost';\n");
    }
    // Unwritten data would be written at shutdown, for which a full disk has no room.
    text + "FLUSH TABLES;\n"
}

fn listening(listen: &Listen) -> Vec<String> {
    match listen {
        Listen::Own => vec![format!("--socket={SOCKET}"), "--skip-networking".into()],
        Listen::Port(port) => vec![
            format!("--socket={SOCKET}"),
            "--bind-address=127.0.0.1".into(),
            format!("--port={port}"),
        ],
    }
}

/// The last lines of a text, in one line.
pub(crate) fn last_lines(text: &str) -> String {
    let mut lines: Vec<&str> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    // A crash is followed by a hundred lines about the process; its cause precedes them.
    if let Some(crash) = lines.iter().position(|line| line.contains(" got signal ")) {
        lines.truncate(crash);
        lines.retain(|line| line.contains("[ERROR]"));
    }
    lines[lines.len().saturating_sub(LOG_LINES)..].join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cause of a crash must be shown before the hundred lines of its stack trace.
    #[test]
    fn the_last_words_of_a_crash_are_its_errors() {
        let calm = "2026-11-23 [Note] one\n\n2026-11-23 [Note] two\n";
        assert_eq!(last_lines(calm), "2026-11-23 [Note] one | 2026-11-23 [Note] two");
        let crash = "[Note] begun\n[ERROR] [FATAL] InnoDB: write failed\n\
                     261123 [ERROR] mysqld got signal 6 ;\nLinux 6.1\nMax open files 20000\n";
        assert_eq!(last_lines(crash), "[ERROR] [FATAL] InnoDB: write failed");
    }
}
