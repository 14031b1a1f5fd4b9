//! Reaching a server: connecting with a time limit, and what its refusals mean.
//!
//! Invariant: a password is taken from the environment, kept in no structure that is written anywhere, and
//! in no message. What it is not: statements.

use std::time::Duration;

use mysql::{Conn, Opts, OptsBuilder};
use sql::{Address, Refusal, Secret, SqlError, Target};
use stack::PASSWORD_VARIABLE;

/// The password for a server that others use too, if the environment has one.
#[must_use]
pub fn password_from_environment() -> Option<Secret> {
    std::env::var(PASSWORD_VARIABLE).ok().map(Secret::new)
}

fn connect_within(
    target: &Target,
    statements: usize,
    answer: Option<Duration>,
) -> Result<Conn, SqlError> {
    let options = OptsBuilder::new()
        .user(Some(target.user.clone()))
        .pass(target.password.as_ref().map(Secret::text))
        .db_name(target.database.clone())
        .prefer_socket(false)
        .stmt_cache_size(statements)
        .tcp_connect_timeout(Some(ANSWER_MAX))
        .read_timeout(answer)
        .write_timeout(answer);
    let options = match &target.address {
        Address::Socket(path) => options.socket(Some(path.display().to_string())),
        Address::Tcp { host, port } => options.ip_or_hostname(Some(host.clone())).tcp_port(*port),
    };
    Conn::new(Opts::from(options)).map_err(|error| refused(target, &error))
}

/// Connects, and does not wait for ever for an answer: for questions that are answered at once.
pub(crate) fn connect_briefly(target: &Target) -> Result<Conn, SqlError> {
    connect_within(target, 32, Some(ANSWER_MAX))
}

/// Connects, for so many prepared statements.
pub(crate) fn connect_with(target: &Target, statements: usize) -> Result<Conn, SqlError> {
    connect_within(target, statements, None)
}

/// Time that a server has for an answer that needs no work.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Numbers of errors after which a connection is of no use: the server goes down, or is gone.
const GONE: [u16; 4] = [1053, 1927, 2006, 2013];

fn refused(target: &Target, error: &mysql::Error) -> SqlError {
    let (code, reason) = match error {
        mysql::Error::MySqlError(error) => (error.code, error.message.clone()),
        other => (0, other.to_string()),
    };
    let next = match code {
        1044 | 1045 | 1698 => format!(
            "check the user of the dsn; the password comes from the environment: \
             {PASSWORD_VARIABLE}=... crosspoint run STUDY"
        ),
        1049 => {
            format!(
                "make it first: CREATE DATABASE {}",
                target.database.as_deref().unwrap_or("NAME")
            )
        }
        1040 => "the server takes no more connections: fewer threads, or raise its max_connections"
            .into(),
        _ => "check host and port, or the socket, of the dsn; is the server running?".into(),
    };
    let reason = format!("no connection to {} as {}: {reason}", target.address, target.user);
    SqlError::Refused(Refusal { reason, next })
}

/// An error of the client library in our words.
pub(crate) fn told(error: mysql::Error) -> SqlError {
    match error {
        mysql::Error::MySqlError(error) => of_server(error.code, error.message),
        other => SqlError::Lost(other.to_string()),
    }
}

/// An error that the server told by its number.
pub(crate) fn of_server(code: u16, reason: String) -> SqlError {
    if GONE.contains(&code) { SqlError::Lost(reason) } else { SqlError::Statement { code, reason } }
}
