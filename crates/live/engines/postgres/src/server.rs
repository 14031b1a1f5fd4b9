//! A private server: configured and started.
//!
//! Invariants: it listens on its own socket (or where the study says), reads no configuration of the machine,
//! and accepts only the password of its data directory.

use std::fs;
use std::process::Command;

use engine::{
    Address, DATA, EngineError, Habits, Home, Hosting, Listen, PrivateProcess, PrivateServer,
    Secret, Server as _, Target, last_lines,
};
use rustix::process::Signal;
use study::SqlJob;

use crate::binary::Binary;
use crate::options::{configuration, port};
use crate::reach::connect_briefly;

/// Our account on a private server.
pub(crate) const USER: &str = "crosspoint";
/// File with its password.
pub(crate) const PASSWORD: &str = "password";

/// A private server that runs.
#[derive(Debug)]
pub struct Server {
    /// Its process.
    pub process: PrivateProcess,
    address: Address,
    password: Secret,
}

impl Server {
    /// Starts the server of `job` in `home`, and waits until it answers.
    ///
    /// # Errors
    /// If its address is taken, or it does not start; with the last lines of its log.
    pub fn start(
        binary: &Binary,
        hosting: Hosting<'_>,
        (home, private): (&Home, PrivateServer<'_>),
        (listen, job): (&Listen, &SqlJob),
    ) -> Result<Self, EngineError> {
        listen.check_free()?;
        let data = |name: &str| format!("{DATA}/{name}");
        home.write(&data("postgresql.conf"), &configuration(job, listen, private.pool))?;
        home.write(&data("pg_hba.conf"), &accepted())?;
        let file = home.path(PASSWORD);
        let password = fs::read_to_string(&file).map_err(|error| {
            EngineError::refused(format!("{}: {error}", file.display()), "crosspoint clean")
        })?;
        let mut command = Command::new(&binary.path);
        command.args(["-D", &home.seen(DATA)]);
        let process = PrivateProcess::start(command, hosting.journal, (home, private), HABITS)?;
        let socket = format!(".s.PGSQL.{}", port(listen));
        let address = listen.address(process.process(), &socket);
        let mut server = Self { process, address, password: Secret::new(password) };
        let target = server.target(None);
        let answers = || connect_briefly(&target).is_ok();
        server.process.wait_until_up((&server.address, private), hosting, answers)?;
        Ok(server)
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
        let there = format!("SELECT 1 FROM pg_database WHERE datname = '{name}'");
        match conn.one(&there)? {
            Some(_) => Ok(()),
            None => conn.run(&format!("CREATE DATABASE {name}")),
        }
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

/// Fast shutdown: it disconnects clients, and writes a checkpoint.
const HABITS: Habits = Habits { quit: Signal::INT, last_words };

/// Who may log in: our account, with its password.
fn accepted() -> String {
    format!("local all {USER} scram-sha-256\nhost all {USER} 127.0.0.1/32 scram-sha-256\n")
}

/// The last lines of a log, in one line; errors if there are any.
fn last_words(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let severe = ["FATAL: ", "PANIC: ", "ERROR: "];
    // What follows a panic is its consequence; connections to a server that still starts are no errors of it.
    let errors: Vec<&str> = lines
        .iter()
        .copied()
        .filter(|line| severe.iter().any(|word| line.contains(word)))
        .filter(|line| !line.contains("the database system is "))
        .collect();
    last_lines(if errors.is_empty() { &lines } else { &errors })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cause of a crash must be shown, not what the other processes say of it.
    #[test]
    fn the_last_words_are_its_errors() {
        let calm = "2026 LOG:  one\n\n2026 LOG:  two\n";
        assert_eq!(last_words(calm), "2026 LOG:  one | 2026 LOG:  two");
        let crash = "LOG:  begun\nFATAL:  the database system is starting up\n\
                     PANIC:  could not write to file: No space left on device\nLOG:  terminating\n";
        assert!(last_words(crash).starts_with("PANIC:  could not write"));
        assert!(!last_words(crash).contains("starting up"));
    }
}
