//! A private server: started with its accounts.
//!
//! Invariants: it listens on its own socket (or where the study says), reads no configuration of the machine,
//! and accepts only the password created by this start.

use std::fs;
use std::process::Command;

use engine::{
    Address, EngineError, FILES, Habits, Home, Hosting, Listen, Preload, PrivateProcess,
    PrivateServer, Secret, Server as _, TEMPORARY, Target, last_lines,
};
use mysql::prelude::Queryable;
use rustix::process::Signal;
use stack::random_hex;

use crate::binary::{Binary, Flavour};
use crate::reach::{connect_briefly, told};

/// Our account on a private server.
const USER: &str = "crosspoint";
/// SQL that a server executes before it accepts connections.
const ACCOUNTS: &str = "accounts.sql";
/// Name of the socket in the data directory.
const SOCKET: &str = "crosspoint.sock";

/// A private server that runs.
#[derive(Debug)]
pub struct Server {
    /// Its process.
    pub process: PrivateProcess,
    address: Address,
    password: Secret,
}

impl Server {
    /// Starts the server with `arguments` (of [`crate::arguments`]) in `home`, and waits until it answers.
    /// The arguments added here come last, so that no setting overrides them.
    ///
    /// # Errors
    /// If its address is taken, or it does not start; with the last lines of its log.
    pub fn start(
        binary: &Binary,
        hosting: Hosting<'_>,
        (home, private): (&Home, PrivateServer<'_>),
        (listen, arguments): (&Listen, &[String]),
    ) -> Result<Self, EngineError> {
        listen.check_free()?;
        let password = Secret::new(random_hex(32));
        home.write(ACCOUNTS, &accounts(binary.flavour, &password))?;
        let mut command = Command::new(&binary.path);
        command.args(arguments).args(listening(listen)).args([
            format!("--tmpdir={}", home.seen(TEMPORARY)),
            format!("--secure-file-priv={}", home.seen(FILES)),
            format!("--init-file={}", home.seen(ACCOUNTS)),
        ]);
        if let Preload::Simulation(_) = private.preload {
            // Its requests would bypass the simulation.
            command.arg("--innodb-use-native-aio=OFF");
        }
        let habits = Habits { quit: Signal::TERM, last_words };
        let process = PrivateProcess::start(command, hosting.journal, (home, private), habits)?;
        let address = listen.address(process.process(), SOCKET);
        let mut server = Self { process, address, password };
        let target = server.target(None);
        let answers = || connect_briefly(&target).is_ok();
        let up = server.process.wait_until_up((&server.address, private), hosting, answers);
        let _ = fs::remove_file(home.path(ACCOUNTS));
        up.map(|()| server)
    }

    /// Shuts it down cleanly.
    ///
    /// # Errors
    /// How it ended instead.
    pub fn stop(self) -> Result<(), String> {
        Box::new(self.process).stop()
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

/// The last lines of a log, in one line; of a crash, its errors.
pub(crate) fn last_words(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    // A crash is followed by a hundred lines about the process; its cause precedes them.
    if let Some(crash) = lines.iter().position(|line| line.contains(" got signal ")) {
        lines.truncate(crash);
        lines.retain(|line| line.contains("[ERROR]"));
    }
    last_lines(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cause of a crash must be shown before the hundred lines of its stack trace.
    #[test]
    fn the_last_words_of_a_crash_are_its_errors() {
        let calm = "2026-11-23 [Note] one\n\n2026-11-23 [Note] two\n";
        assert_eq!(last_words(calm), "2026-11-23 [Note] one | 2026-11-23 [Note] two");
        let crash = "[Note] begun\n[ERROR] [FATAL] InnoDB: write failed\n\
                     261123 [ERROR] mysqld got signal 6 ;\nLinux 6.1\nMax open files 20000\n";
        assert_eq!(last_words(crash), "[ERROR] [FATAL] InnoDB: write failed");
    }
}
