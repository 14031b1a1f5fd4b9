//! A connection: logging in, queries of the program itself, and the workload's statements.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bytes::BytesMut;
use engine::{Address, EngineError, Target};
use postgres_protocol::IsNull;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::frontend;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::wire::{Login, Row, Rows, Wire};

/// Requests to log in: "Authentication..." in the manual's "Message Formats".
const LOGGED_IN: u32 = 0;
const CLEAR_PASSWORD: u32 = 3;
const MD5_PASSWORD: u32 = 5;
const SASL: u32 = 10;
const SASL_CONTINUE: u32 = 11;
const SASL_FINAL: u32 = 12;

/// A connection to a server.
#[derive(Debug)]
pub struct Conn {
    socket: OwnedFd,
    wire: Wire,
    /// Time limit of an answer.
    answer: Option<Duration>,
}

fn lost(error: impl std::fmt::Display) -> EngineError {
    EngineError::disconnected(error.to_string())
}

fn invalid(error: io::Error) -> EngineError {
    EngineError::failed("PostgreSQL", "encode a message", error)
}

impl Conn {
    /// Connects and logs in; every answer comes within `answer`, if there is a limit.
    ///
    /// # Errors
    /// The system's or the server's message.
    pub fn open(target: &Target, answer: Option<Duration>) -> Result<Self, EngineError> {
        let socket: OwnedFd = match &target.address {
            Address::Socket(path) => UnixStream::connect(path).map_err(lost)?.into(),
            Address::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).map_err(lost)?;
                stream.set_nodelay(true).map_err(lost)?;
                stream.into()
            }
        };
        for timeout in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, timeout, answer).map_err(lost)?;
        }
        let mut conn = Self { socket, wire: Wire::new(), answer };
        conn.log_in(target)?;
        Ok(conn)
    }

    fn log_in(&mut self, target: &Target) -> Result<(), EngineError> {
        let database = target.database.as_deref().unwrap_or("postgres");
        let mut parameters = vec![
            ("user", target.user.as_str()),
            ("database", database),
            ("client_encoding", "UTF8"),
            ("application_name", "crosspoint"),
        ];
        if self.answer.is_some() {
            // Nothing that a study changes may keep us from changing it back.
            parameters.extend([
                ("statement_timeout", "0"),
                ("lock_timeout", "0"),
                ("idle_session_timeout", "0"),
                ("default_transaction_read_only", "off"),
            ]);
        }
        let mut out = BytesMut::new();
        frontend::startup_message(parameters, &mut out).map_err(invalid)?;
        self.send(&out)?;
        let password = target.password.as_ref().map_or("", engine::Secret::text).as_bytes();
        let (mut scram, mut proven) = (None, true);
        while let Some(Login { kind, rest }) = self.wire.login(&self.socket)? {
            out.clear();
            match kind {
                LOGGED_IN if proven => continue,
                CLEAR_PASSWORD | MD5_PASSWORD if is_far(&target.address) => {
                    return Err(lost("the server asks for an unprotected password"));
                }
                CLEAR_PASSWORD => frontend::password_message(password, &mut out),
                MD5_PASSWORD => {
                    let salt = rest.first_chunk().copied().unwrap_or_default();
                    let hash = md5_hash(target.user.as_bytes(), password, salt);
                    frontend::password_message(hash.as_bytes(), &mut out)
                }
                SASL => {
                    proven = false;
                    let binding = ChannelBinding::unsupported();
                    let begun = scram.insert(ScramSha256::new(password, binding));
                    frontend::sasl_initial_response(SCRAM_SHA_256, begun.message(), &mut out)
                }
                SASL_CONTINUE | SASL_FINAL => {
                    let scram =
                        scram.as_mut().ok_or_else(|| lost("an unexpected message of SASL"))?;
                    if kind == SASL_FINAL {
                        scram.finish(&rest).map_err(lost)?;
                        proven = true;
                        continue;
                    }
                    scram.update(&rest).map_err(lost)?;
                    frontend::sasl_response(scram.message(), &mut out)
                }
                other => return Err(lost(format!("the server wants a login of kind {other}"))),
            }
            .map_err(invalid)?;
            self.send(&out)?;
        }
        Ok(())
    }

    /// Runs statements and returns their rows as text.
    ///
    /// # Errors
    /// The server's message.
    pub fn rows(&mut self, text: &str) -> Result<Vec<Row>, EngineError> {
        let mut out = BytesMut::new();
        frontend::query(text, &mut out).map_err(invalid)?;
        let mut rows = Vec::new();
        self.send(&out)?;
        self.wire.receive(&self.socket, true, Rows::Keep(&mut rows))?;
        Ok(rows)
    }

    /// Runs statements.
    ///
    /// # Errors
    /// The server's message.
    pub fn run(&mut self, text: &str) -> Result<(), EngineError> {
        self.rows(text).map(|_| ())
    }

    /// The first value of the first row.
    ///
    /// # Errors
    /// The server's message.
    pub fn one(&mut self, text: &str) -> Result<Option<String>, EngineError> {
        let first = self.rows(text)?.into_iter().next();
        Ok(first.and_then(|row| row.into_iter().next().flatten()))
    }

    /// Prepares a statement as `name`; its values have the types of their columns.
    pub(crate) fn prepare(&mut self, name: &str, text: &str) -> Result<(), EngineError> {
        let mut out = BytesMut::new();
        frontend::parse(name, text, [], &mut out).map_err(invalid)?;
        frontend::sync(&mut out);
        self.send(&out)?;
        self.receive(true).map(|_| ())
    }

    /// Sends an encoded request.
    pub(crate) fn send(&mut self, request: &[u8]) -> Result<(), EngineError> {
        self.wire.send(&self.socket, request, self.answer)
    }

    /// The bytes received, for a caller that sends a request itself.
    pub(crate) fn begin(&mut self) -> &mut Wire {
        self.wire.begin(self.answer);
        &mut self.wire
    }

    /// The bytes received.
    pub(crate) fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    /// Reads what has arrived of a result; returns `true` once it is complete.
    pub(crate) fn receive(&mut self, wait: bool) -> Result<bool, EngineError> {
        self.wire.receive(&self.socket, wait, Rows::Skip)
    }
}

impl Drop for Conn {
    /// Says goodbye: otherwise the server keeps the session, and its locks, until it notices.
    fn drop(&mut self) {
        let _ = self.wire.send(&self.socket, b"X\0\0\0\x04", None);
    }
}

impl AsFd for Conn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether others may read what is sent there.
fn is_far(address: &Address) -> bool {
    match address {
        Address::Socket(_) => false,
        Address::Tcp { host, .. } => {
            host != "localhost"
                && !host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    }
}

/// A request that executes the prepared statement `name` with `values`, in binary form; and the offset of its
/// first value. Rows come as text, and are described first, as libpq asks for them.
pub(crate) fn execution(name: &str, values: &[Vec<u8>]) -> Result<(Vec<u8>, usize), EngineError> {
    let mut out = BytesMut::new();
    let copy = |value: &Vec<u8>, out: &mut BytesMut| {
        out.extend_from_slice(value);
        Ok(IsNull::No)
    };
    let bound = frontend::bind("", name, [1], values, copy, [0], &mut out);
    bound.map_err(|_| lost("a statement has too many values"))?;
    frontend::describe(b'P', "", &mut out).map_err(invalid)?;
    frontend::execute("", 0, &mut out).map_err(invalid)?;
    frontend::sync(&mut out);
    // Type, length, portal, name, one format, number of values; then each value's length.
    let first = 1 + 4 + 1 + (name.len() + 1) + (2 + 2) + 2;
    Ok((out.to_vec(), first))
}
