//! Reaching a server: the address of a DSN, and the meaning of errors.
//!
//! Invariant: a password comes from the environment; it is in no structure that is written out and in no
//! message.

use std::time::Duration;

use engine::{Address, EngineError, ErrorKind, Secret, Target};
use stack::PASSWORD_VARIABLE;

use crate::conn::Conn;

/// Time limit for a response that needs no work.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// SQL states after which a connection is unusable: shutdown by an administrator or after a crash, and not
/// started yet.
const GONE: [&str; 3] = ["57P01", "57P02", "57P03"];

/// SQL states after which the transaction was rolled back and is retried, as in sysbench: a failed
/// serialization, a deadlock, a row that another transaction inserted (`drv_pgsql.c`).
const RETRYABLE: [&str; 3] = ["40001", "40P01", "23505"];

/// Connects with time limits, for short queries.
///
/// # Errors
/// [`ErrorKind::Refused`] with what to do.
pub fn connect_briefly(target: &Target) -> Result<Conn, EngineError> {
    Conn::open(target, Some(ANSWER_MAX)).map_err(|error| refused(target, &error))
}

/// Connects for a trial.
pub(crate) fn connect(target: &Target) -> Result<Conn, EngineError> {
    Conn::open(target, None).map_err(|error| refused(target, &error))
}

/// The server of a study's dsn, with the password from the environment.
///
/// # Errors
/// If the dsn is malformed.
pub fn target_of(dsn: &str) -> Result<Target, String> {
    let form = || {
        "a dsn is postgresql://USER@HOST:PORT/DATABASE or postgresql://USER@/path/of/socket:DATABASE"
            .to_owned()
    };
    let rest = dsn.strip_prefix("postgresql://").ok_or_else(form)?;
    let (user, place) = rest.rsplit_once('@').ok_or_else(form)?;
    let socket = place.starts_with('/');
    let (place, database) = place.rsplit_once(if socket { ':' } else { '/' }).ok_or_else(form)?;
    let address = if socket {
        Address::Socket(place.into())
    } else {
        let (host, port) = place.rsplit_once(':').unwrap_or((place, "5432"));
        let port = port.parse().map_err(|_| form())?;
        Address::Tcp { host: host.into(), port }
    };
    let password = std::env::var(PASSWORD_VARIABLE).ok().map(Secret::new);
    Ok(Target { address, user: user.into(), database: Some(database.into()), password })
}

/// PostgreSQL's errors have states, in letters and digits, and no numbers.
const NO_NUMBER: i32 = -1;

fn refused(target: &Target, error: &EngineError) -> EngineError {
    let said = error.reason();
    let is = |states: &[&str]| states.iter().any(|state| said.contains(&with_state(state)));
    let next = if is(&["28P01", "28000"]) {
        format!(
            "check the user of the dsn; the password comes from the environment: \
             {PASSWORD_VARIABLE}=... crosspoint run STUDY"
        )
    } else if is(&["3D000"]) {
        format!("make it first: createdb {}", target.database.as_deref().unwrap_or("NAME"))
    } else if is(&["53300"]) {
        "the server takes no more connections: fewer clients, or raise its max_connections".into()
    } else {
        "check host and port, or the socket, of the dsn; is the server running?".into()
    };
    let reason = format!("no connection to {} as {}: {error}", target.address, target.user);
    EngineError::refused(reason, next)
}

/// How an error's state is written.
fn with_state(state: &str) -> String {
    format!("(SQL state {state})")
}

/// Converts an error that the server reported by its SQL state.
pub(crate) fn of_server(state: &str, reason: String) -> EngineError {
    if GONE.contains(&state) {
        return EngineError::disconnected(reason);
    }
    let kind = if RETRYABLE.contains(&state) { ErrorKind::Retryable } else { ErrorKind::Failed };
    EngineError::statement(kind, NO_NUMBER, format!("{reason} {}", with_state(state)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dsn_names_a_port_or_a_socket() {
        let tcp = target_of("postgresql://me@db.example:5433/test").unwrap();
        let address = Address::Tcp { host: "db.example".into(), port: 5433 };
        assert_eq!((tcp.address, tcp.user.as_str()), (address, "me"));
        let socket = target_of("postgresql://me@/run/postgresql/.s.PGSQL.5432:test").unwrap();
        assert_eq!(socket.address, Address::Socket("/run/postgresql/.s.PGSQL.5432".into()));
        assert_eq!(socket.database.as_deref(), Some("test"));
        assert!(target_of("mysql://me@h/d").is_err());
    }

    /// Help that names another cause sends the user in circles.
    #[test]
    fn a_refused_connection_has_the_help_for_its_cause() {
        let target = target_of("postgresql://me@h/d").unwrap();
        for (state, help) in
            [("28P01", "CROSSPOINT_SQL_PASSWORD"), ("3D000", "createdb d"), ("53300", "fewer")]
        {
            let error = refused(&target, &of_server(state, "no".into()));
            assert!(error.help().unwrap().contains(help), "{state}: {:?}", error.help());
        }
    }
}
