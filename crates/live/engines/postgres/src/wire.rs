//! Results of requests as they arrive: message boundaries, errors, and rows if they are wanted.
//!
//! One thread serves many connections, so nothing here blocks unless asked to. Invariants: one request in
//! flight; a result is read completely before the next; rows that nobody reads are skipped without being
//! copied.
//!
//! Source: PostgreSQL manual, "Frontend/Backend Protocol", "Message Formats".

use std::io::{Error, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use engine::EngineError;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::reach::of_server;

/// Bytes per read.
const CHUNK: usize = 64 << 10;
/// Bytes of a message's header: its type, and its length without the type.
const HEADER: usize = 5;
/// Maximum bytes of a message that is looked at; servers' errors are shorter.
const MESSAGE_MAX: usize = 1 << 20;
/// Maximum bytes of rows that are kept: those of all settings, many times over.
const KEPT_MAX: usize = 8 << 20;

/// A row: its values as text.
pub(crate) type Row = Vec<Option<String>>;

/// What to do with the rows of a result.
pub(crate) enum Rows<'a> {
    Skip,
    Keep(&'a mut Vec<Row>),
}

/// A request to log in that the server makes: its kind, and the rest of the message.
pub(crate) struct Login {
    pub kind: u32,
    pub rest: Vec<u8>,
}

/// Bytes received from a server, and the position in them.
#[derive(Debug)]
pub(crate) struct Wire {
    /// Received, unparsed bytes: `from..to`.
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    /// Bytes of a message still to skip.
    skip: usize,
    done: bool,
    error: Option<EngineError>,
    /// When the answer must be complete.
    due: Option<Instant>,
    /// Bytes of this result's rows that are kept.
    kept: usize,
}

fn lost(error: &Error) -> EngineError {
    EngineError::disconnected(error.to_string())
}

impl Wire {
    pub fn new() -> Self {
        Self {
            buffer: vec![0; CHUNK],
            from: 0,
            to: 0,
            skip: 0,
            done: true,
            error: None,
            due: None,
            kept: 0,
        }
    }

    /// Sends a request; its result is received next, within `answer` if there is a limit.
    pub fn send(
        &mut self,
        socket: impl AsFd,
        request: &[u8],
        answer: Option<Duration>,
    ) -> Result<(), EngineError> {
        let mut rest = request;
        while !rest.is_empty() {
            match send(socket.as_fd(), rest, SendFlags::NOSIGNAL) {
                Ok(sent) => rest = &rest[sent..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.closed(&error.into())),
            }
        }
        self.begin(answer);
        Ok(())
    }

    /// A request was, or will be, sent: its result is received next, within `answer` if there is a limit.
    pub fn begin(&mut self, answer: Option<Duration>) {
        self.due = answer.map(|limit| Instant::now() + limit);
        (self.kept, self.done) = (0, false);
    }

    /// Memory for what is received next.
    pub fn space(&mut self) -> &mut [u8] {
        self.make_room();
        &mut self.buffer[self.to..]
    }

    /// Takes what was received there; returns `true` when the result is complete.
    pub fn received(&mut self, count: usize) -> Result<bool, EngineError> {
        self.to += count;
        self.look(&mut Rows::Skip)?;
        match self.done {
            true => self.error.take().map_or(Ok(true), Err),
            false => Ok(false),
        }
    }

    /// The connection was lost: the reason that the server gave, if it did.
    pub fn lost(&mut self) -> Result<(), EngineError> {
        self.error.take().map_or(Ok(()), Err)
    }

    /// The reason that the server gave before it closed the connection, or else the system's.
    fn closed(&mut self, error: &Error) -> EngineError {
        self.error.take().unwrap_or_else(|| lost(error))
    }

    /// Reads what has arrived; returns `true` when the result is complete. Waits for it if `wait`.
    pub fn receive(
        &mut self,
        socket: impl AsFd,
        wait: bool,
        mut rows: Rows<'_>,
    ) -> Result<bool, EngineError> {
        loop {
            self.look(&mut rows)?;
            if self.done {
                return self.error.take().map_or(Ok(true), Err);
            }
            if !self.fill(socket.as_fd(), wait)? {
                return Ok(false);
            }
        }
    }

    /// Receives the server's next request to log in; `None` once it accepts requests.
    pub fn login(&mut self, socket: impl AsFd) -> Result<Option<Login>, EngineError> {
        loop {
            while let Some((kind, body)) = self.message()? {
                match kind {
                    b'R' => {
                        let word = body.first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
                        let rest = body.get(4..).unwrap_or_default().to_vec();
                        return Ok(Some(Login { kind: word, rest }));
                    }
                    b'E' => return Err(error_of(body)),
                    b'Z' => {
                        self.done = true;
                        return Ok(None);
                    }
                    _ => {}
                }
            }
            if !self.fill(socket.as_fd(), true)? {
                return Err(EngineError::disconnected("the server does not answer".into()));
            }
        }
    }

    /// Receives more; `false` if nothing is there.
    fn fill(&mut self, socket: BorrowedFd<'_>, wait: bool) -> Result<bool, EngineError> {
        if self.due.is_some_and(|due| Instant::now() > due) {
            return Err(EngineError::disconnected("no answer in time".into()));
        }
        self.make_room();
        let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        loop {
            match recv(socket, &mut self.buffer[self.to..], flags) {
                Ok((0, _)) => {
                    return Err(
                        self.closed(&Error::new(ErrorKind::UnexpectedEof, "the server closed it"))
                    );
                }
                Ok((count, _)) => {
                    self.to += count;
                    return Ok(true);
                }
                Err(Errno::AGAIN) if !wait => return Ok(false),
                Err(Errno::AGAIN) => {
                    return Err(EngineError::disconnected("no answer in time".into()));
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.closed(&error.into())),
            }
        }
    }

    /// Moves the rest of a message to the front, and makes room behind it.
    fn make_room(&mut self) {
        self.buffer.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        if self.to == self.buffer.len() {
            self.buffer.resize(self.to * 2, 0);
        }
    }

    /// Type and length of the next message's body, if its header is there.
    fn head(&self) -> Result<Option<(u8, usize)>, EngineError> {
        let Some(head) = self.buffer[self.from..self.to].first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        match length.checked_sub(4).filter(|length| *length <= MESSAGE_MAX) {
            Some(length) => Ok(Some((head[0], length))),
            None => Err(EngineError::disconnected("this is not a PostgreSQL server".into())),
        }
    }

    /// The next message, if it is complete.
    fn message(&mut self) -> Result<Option<(u8, &[u8])>, EngineError> {
        let Some((kind, length)) = self.head()? else { return Ok(None) };
        let begin = self.from + HEADER;
        if self.to - begin < length {
            return Ok(None);
        }
        self.from = begin + length;
        Ok(Some((kind, &self.buffer[begin..begin + length])))
    }

    /// Parses what was received, up to the end of the result.
    fn look(&mut self, rows: &mut Rows<'_>) -> Result<(), EngineError> {
        while !self.done {
            let step = self.skip.min(self.to - self.from);
            (self.from, self.skip) = (self.from + step, self.skip - step);
            if self.skip > 0 {
                return Ok(());
            }
            let Some((kind, length)) = self.head()? else { return Ok(()) };
            let wanted = match kind {
                b'E' | b'Z' => true,
                b'D' => matches!(rows, Rows::Keep(_)),
                _ => false,
            };
            if !wanted {
                (self.from, self.skip) = (self.from + HEADER, length);
                continue;
            }
            if kind == b'D' && self.kept + length > KEPT_MAX {
                return Err(EngineError::disconnected("the server sent too many rows".into()));
            }
            let Some((_, body)) = self.message()? else { return Ok(()) };
            match kind {
                b'D' => {
                    if let Rows::Keep(rows) = rows {
                        rows.push(row_of(body));
                        self.kept += length;
                    }
                }
                b'E' => {
                    let error = error_of(body);
                    self.error.get_or_insert(error);
                }
                _ => self.done = true,
            }
        }
        // Between results a server sends notices and changed parameters alone.
        let more = self.buffer[self.from..self.to].first();
        if more.is_some_and(|kind| !b"NSA".contains(kind)) {
            return Err(EngineError::disconnected("the server sent data after a result".into()));
        }
        Ok(())
    }

    /// Whether these bytes, arriving in pieces, are a complete result; or the server's error in them.
    pub fn whole(bytes: &[u8]) -> Result<bool, EngineError> {
        let mut wire = Self { done: false, ..Self::new() };
        let mut kept = Vec::new();
        let mut pieces = bytes.chunks(7);
        loop {
            wire.look(&mut Rows::Keep(&mut kept))?;
            if wire.done {
                return wire.error.take().map_or(Ok(true), Err);
            }
            let Some(piece) = pieces.next() else { return Ok(false) };
            wire.make_room();
            let piece = &piece[..piece.len().min(wire.buffer.len() - wire.to)];
            wire.buffer[wire.to..wire.to + piece.len()].copy_from_slice(piece);
            wire.to += piece.len();
        }
    }
}

/// A row's values as text: their number, then each with its length, -1 for NULL.
fn row_of(body: &[u8]) -> Row {
    let mut rest = body.get(2..).unwrap_or_default();
    let mut row = Row::new();
    while let Some((head, tail)) = rest.split_first_chunk() {
        let length = i32::from_be_bytes(*head);
        let bytes = usize::try_from(length).ok().map(|length| &tail[..length.min(tail.len())]);
        rest = &tail[bytes.map_or(0, <[u8]>::len)..];
        row.push(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()));
    }
    row
}

/// An error: fields with a letter each, ended by zeros. `C` is the SQL state, `M` the message.
fn error_of(body: &[u8]) -> EngineError {
    let field = |letter: u8| {
        let mut fields = body.split(|byte| *byte == 0);
        let found = fields.find(|field| field.first() == Some(&letter));
        found.map(|field| String::from_utf8_lossy(&field[1..]).into_owned()).unwrap_or_default()
    };
    let (state, message) = (field(b'C'), field(b'M'));
    of_server(&state, message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[kind], length.to_be_bytes().as_slice(), body].concat()
    }

    fn result() -> Vec<u8> {
        let row = [&[0, 2, 0, 0, 0, 3], b"abc".as_slice(), &[255; 4]].concat();
        [
            message(b'2', b""),
            message(b'T', &[0, 1, b'x', 0]),
            message(b'D', &row),
            message(b'N', b"a notice"),
            message(b'C', b"SELECT 1\0"),
            message(b'Z', b"I"),
        ]
        .concat()
    }

    /// If a result is taken as complete too early, the rest answers the next statement.
    #[test]
    fn the_end_of_a_result_is_found_however_it_comes_in() {
        let whole = result();
        for end in 0..whole.len() {
            assert_eq!(Wire::whole(&whole[..end]).ok(), Some(false), "{end}");
        }
        assert_eq!(Wire::whole(&whole).ok(), Some(true));
    }

    #[test]
    fn rows_are_kept_with_their_nulls() {
        let whole = result();
        let mut wire = Wire { done: false, ..Wire::new() };
        wire.buffer[..whole.len()].copy_from_slice(&whole);
        wire.to = whole.len();
        let mut rows = Vec::new();
        wire.look(&mut Rows::Keep(&mut rows)).unwrap();
        assert_eq!(rows, [vec![Some("abc".to_owned()), None]]);
    }

    /// A deadlock that ended a trial, or a failure retried for ever, would both hide what happened.
    #[test]
    fn errors_have_their_state_and_message() {
        let error = |state: &str| {
            let body = format!("SERROR\0C{state}\0Mthe reason\0\0");
            let whole = [message(b'E', body.as_bytes()), message(b'Z', b"E")].concat();
            Wire::whole(&whole).unwrap_err()
        };
        assert_eq!(error("40P01").kind(), engine::ErrorKind::Retryable);
        assert_eq!(error("23505").kind(), engine::ErrorKind::Retryable);
        assert_eq!(error("57P01").kind(), engine::ErrorKind::Disconnected);
        assert_eq!(error("42601").kind(), engine::ErrorKind::Failed);
        assert!(error("42601").to_string().contains("the reason"));
    }

    proptest! {
        /// Whatever a server sends, nothing panics.
        #[test]
        fn any_bytes_are_taken_without_panic(bytes: Vec<u8>) {
            let _ = Wire::whole(&bytes);
        }
    }
}
