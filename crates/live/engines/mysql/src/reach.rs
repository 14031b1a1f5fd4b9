//! Connecting to a server with a time limit, and the meaning of its errors.
//!
//! Invariant: a password comes from the environment; it is in no structure that is written out and in no
//! message.

use std::time::Duration;

use engine::{Address, EngineError, ErrorKind, Secret, Target};
use mysql::{Conn, Opts, OptsBuilder};
use stack::PASSWORD_VARIABLE;

/// The password for a shared server, from the environment.
#[must_use]
pub fn password_from_environment() -> Option<Secret> {
    std::env::var(PASSWORD_VARIABLE).ok().map(Secret::new)
}

fn connect_within(
    target: &Target,
    statements: usize,
    answer: Option<Duration>,
) -> Result<Conn, EngineError> {
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

/// Connects with time limits, for short queries.
///
/// # Errors
/// [`ErrorKind::Refused`] with what to do.
pub fn connect_briefly(target: &Target) -> Result<Conn, EngineError> {
    connect_within(target, 32, Some(ANSWER_MAX))
}

/// Connects, with a cache for this many prepared statements.
pub(crate) fn connect_with(target: &Target, statements: usize) -> Result<Conn, EngineError> {
    connect_within(target, statements, None)
}

/// Time limit for a response that needs no work.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Error numbers after which a connection is unusable: the server shuts down or is gone.
const GONE: [u16; 4] = [1053, 1927, 2006, 2013];

/// Error numbers after which the transaction was rolled back and is retried, as in sysbench: a deadlock
/// (1213), a changed row (1020), a lock wait timeout (1205).
const RETRYABLE: [u16; 3] = [1213, 1020, 1205];

/// The server of a study's dsn, with the password from the environment.
///
/// # Errors
/// If the dsn is malformed.
pub fn target_of(dsn: &str) -> Result<Target, String> {
    let form = || "a dsn is mysql://USER@HOST:PORT/DATABASE".to_owned();
    let rest = dsn.strip_prefix("mysql://").ok_or_else(form)?;
    let (user, place) = rest.rsplit_once('@').ok_or_else(form)?;
    let socket = place.starts_with('/');
    let (place, database) = place.rsplit_once(if socket { ':' } else { '/' }).ok_or_else(form)?;
    let address = if socket {
        Address::Socket(place.into())
    } else {
        let (host, port) = place.rsplit_once(':').unwrap_or((place, "3306"));
        let port = port.parse().map_err(|_| form())?;
        Address::Tcp { host: host.into(), port }
    };
    let (user, database) = (user.into(), Some(database.into()));
    Ok(Target { address, user, database, password: password_from_environment() })
}

fn refused(target: &Target, error: &mysql::Error) -> EngineError {
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
    EngineError::refused(reason, next)
}

/// Converts an error of the client library.
pub(crate) fn told(error: mysql::Error) -> EngineError {
    match error {
        mysql::Error::MySqlError(error) => of_server(error.code, error.message),
        other => EngineError::disconnected(other.to_string()),
    }
}

/// Converts an error that the server reported by number.
pub(crate) fn of_server(code: u16, reason: String) -> EngineError {
    if GONE.contains(&code) {
        return EngineError::disconnected(reason);
    }
    let kind = if RETRYABLE.contains(&code) { ErrorKind::Retryable } else { ErrorKind::Failed };
    EngineError::statement(kind, i32::from(code), reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dsn_names_a_port_or_a_socket() {
        let tcp = target_of("mysql://me@db.example:3307/test").unwrap();
        let address = Address::Tcp { host: "db.example".into(), port: 3307 };
        assert_eq!((tcp.address, tcp.user.as_str()), (address, "me"));
        let socket = target_of("mysql://me@/run/s.sock:test").unwrap();
        assert_eq!(socket.address, Address::Socket("/run/s.sock".into()));
        assert_eq!(socket.database.as_deref(), Some("test"));
    }

    /// A deadlock that ended a trial, or a failure that was retried for ever, would both hide what happened.
    #[test]
    fn only_rolled_back_transactions_are_retried() {
        let kind = |code| of_server(code, "words".into()).kind();
        for code in RETRYABLE {
            assert_eq!(kind(code), ErrorKind::Retryable);
        }
        assert_eq!((kind(1064), kind(2013)), (ErrorKind::Failed, ErrorKind::Disconnected));
    }
}
