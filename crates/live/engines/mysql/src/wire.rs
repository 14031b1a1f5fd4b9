//! Statements over a connection's own socket: sent without waiting, results read as they arrive.
//!
//! The client library connects, prepares and encodes, but can only block for a result, which costs a sleep
//! and a wake-up per statement. Here one thread serves many connections: requests are encoded once by the
//! library and their values overwritten, and only packet boundaries of results are parsed. Invariants: one
//! request in flight; a result is read completely before the next; between requests the library may use the
//! connection, too.
//!
//! Source: MariaDB Knowledge Base, "Client/Server Protocol", "Result Set Packets" and "COM_STMT_EXECUTE".

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd};

use engine::EngineError;
use mysql::Conn;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Bytes per read.
const CHUNK: usize = 64 << 10;
/// Bytes of a packet's header: three of length, one of sequence.
const HEADER: usize = 4;
/// Payload of a packet that ends columns, if the server sends it.
const END_OF_COLUMNS: usize = 5;

/// Position in a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Before the first packet.
    Begin,
    /// Number of column descriptions to come.
    Columns(u64),
    /// After them: maybe their end, maybe a row.
    AfterColumns,
    Rows,
    Done,
}

/// The result of one request as it arrives.
#[derive(Debug)]
pub(crate) struct Wire {
    stage: Stage,
    /// Received, unparsed bytes: `from..to`.
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    /// Bytes of a row still to skip.
    skip: usize,
    error: Option<EngineError>,
}

fn lost(error: &io::Error) -> EngineError {
    EngineError::disconnected(error.to_string())
}

/// The socket of a connection.
fn socket(conn: &Conn) -> BorrowedFd<'_> {
    // SAFETY: the descriptor belongs to `conn`, which outlives the borrow.
    unsafe { BorrowedFd::borrow_raw(conn.as_raw_fd()) }
}

impl Wire {
    pub fn new() -> Self {
        let buffer = vec![0; CHUNK];
        Self { stage: Stage::Done, buffer, from: 0, to: 0, skip: 0, error: None }
    }

    /// Sends a request, with its header.
    pub fn send(&mut self, conn: &Conn, request: &[u8]) -> Result<(), EngineError> {
        debug_assert!(self.stage == Stage::Done, "one request at a time");
        let mut rest = request;
        while !rest.is_empty() {
            match send(socket(conn), rest, SendFlags::NOSIGNAL) {
                Ok(sent) => rest = &rest[sent..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(lost(&error.into())),
            }
        }
        self.begin();
        Ok(())
    }

    /// A request was, or will be, sent: its result is received next.
    pub fn begin(&mut self) {
        (self.stage, self.from, self.to, self.skip) = (Stage::Begin, 0, 0, 0);
    }

    /// Memory for what is received next: the rest of a packet moves to the front.
    pub fn space(&mut self) -> &mut [u8] {
        self.buffer.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        &mut self.buffer[self.to..]
    }

    /// Takes what was received there; returns `true` when the result is complete.
    pub fn received(&mut self, count: usize) -> Result<bool, EngineError> {
        self.to += count;
        self.look()?;
        match self.stage {
            Stage::Done => self.error.take().map_or(Ok(true), Err),
            _ => Ok(false),
        }
    }

    /// Reads what has arrived; returns `true` when the result is complete. Waits for it if `wait`.
    pub fn receive(&mut self, conn: &Conn, wait: bool) -> Result<bool, EngineError> {
        loop {
            self.look()?;
            if self.stage == Stage::Done {
                return self.error.take().map_or(Ok(true), Err);
            }
            let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
            match recv(socket(conn), self.space(), flags) {
                Ok((0, _)) => {
                    let error = io::Error::new(ErrorKind::UnexpectedEof, "the server closed it");
                    return Err(lost(&error));
                }
                Ok((count, _)) => self.to += count,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(lost(&error.into())),
            }
        }
    }

    /// Whether these bytes, arriving in pieces, are a complete result; or the server's error in them.
    pub fn whole(bytes: &[u8]) -> Result<bool, EngineError> {
        let mut wire = Self { stage: Stage::Begin, ..Self::new() };
        let mut rest = bytes;
        loop {
            wire.look()?;
            if wire.stage == Stage::Done {
                return wire.error.take().map_or(Ok(true), Err);
            }
            if rest.is_empty() {
                return Ok(false);
            }
            wire.buffer.copy_within(wire.from..wire.to, 0);
            (wire.from, wire.to) = (0, wire.to - wire.from);
            let count = rest.len().min(wire.buffer.len() - wire.to).min(7);
            wire.buffer[wire.to..wire.to + count].copy_from_slice(&rest[..count]);
            (wire.to, rest) = (wire.to + count, &rest[count..]);
        }
    }

    /// Parses what was received; rows and columns are skipped before they are complete.
    fn look(&mut self) -> Result<(), EngineError> {
        while self.stage != Stage::Done {
            let there = self.to - self.from;
            if self.skip > 0 {
                let step = self.skip.min(there);
                (self.from, self.skip) = (self.from + step, self.skip - step);
                if self.skip > 0 {
                    return Ok(());
                }
                continue;
            }
            if there <= HEADER {
                return Ok(());
            }
            let head = &self.buffer[self.from..self.to];
            let length =
                usize::from(head[0]) | usize::from(head[1]) << 8 | usize::from(head[2]) << 16;
            let first = head[HEADER];
            let row = self.stage == Stage::Rows && first != 0xfe && first != 0xff;
            let column = matches!(self.stage, Stage::Columns(_));
            if row || column {
                // Its contents are not needed, however long.
                self.stage = after(self.stage, &[]);
                self.from += HEADER;
                self.skip = length;
                continue;
            }
            if there < HEADER + length {
                if HEADER + length > self.buffer.len() {
                    self.buffer.resize(HEADER + length, 0);
                }
                return Ok(());
            }
            let payload = self.from + HEADER..self.from + HEADER + length;
            let packet = &self.buffer[payload];
            self.stage = after(self.stage, packet);
            if first == 0xff {
                self.error = Some(error_of(packet));
            }
            self.from += HEADER + length;
        }
        if self.from != self.to {
            return Err(EngineError::disconnected("the server sent data after a result".into()));
        }
        Ok(())
    }
}

/// The stage after a packet; columns and rows are skipped without looking at their bytes.
fn after(stage: Stage, packet: &[u8]) -> Stage {
    match (stage, packet.first().copied()) {
        (Stage::Begin, Some(0x00 | 0xff)) => Stage::Done,
        // A column count, possibly with a flag that their cached descriptions are omitted.
        (Stage::Begin, Some(count)) => match packet.get(1) {
            Some(0) => Stage::AfterColumns,
            _ => Stage::Columns(u64::from(count)),
        },
        (Stage::Columns(left), _) if left > 1 => Stage::Columns(left - 1),
        (Stage::Columns(_), _) => Stage::AfterColumns,
        (Stage::AfterColumns, Some(0xfe)) if packet.len() == END_OF_COLUMNS => Stage::Rows,
        (Stage::AfterColumns | Stage::Rows, Some(0xfe | 0xff)) => Stage::Done,
        (Stage::AfterColumns, Some(_)) => Stage::Rows,
        (stage, _) => stage,
    }
}

/// An error packet: 0xff, number, `#` and five characters of SQL state, message.
fn error_of(packet: &[u8]) -> EngineError {
    let number = packet.get(1..3).map_or(0, |two| u16::from_le_bytes([two[0], two[1]]));
    let words = packet.get(3..).unwrap_or_default();
    let words = if words.first() == Some(&b'#') { words.get(6..) } else { Some(words) };
    let reason = String::from_utf8_lossy(words.unwrap_or_default()).into_owned();
    crate::reach::of_server(number, reason)
}

/// A request with its header: `payload` fits one packet.
pub(crate) fn framed(payload: &[u8]) -> Vec<u8> {
    let length = payload.len();
    let mut request = vec![length as u8, (length >> 8) as u8, (length >> 16) as u8, 0];
    request.extend_from_slice(payload);
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(number: u8, payload: &[u8]) -> Vec<u8> {
        let mut framed = framed(payload);
        framed[3] = number;
        framed
    }

    /// Feeds a result in pieces of `size` bytes; returns after which piece it was complete.
    fn fed(result: &[u8], size: usize) -> (Wire, Vec<Result<bool, String>>) {
        let mut wire = Wire::new();
        wire.stage = Stage::Begin;
        let mut seen = Vec::new();
        for piece in result.chunks(size) {
            wire.buffer.copy_within(wire.from..wire.to, 0);
            (wire.from, wire.to) = (0, wire.to - wire.from);
            wire.buffer[wire.to..wire.to + piece.len()].copy_from_slice(piece);
            wire.to += piece.len();
            let done = wire.look().map(|()| wire.stage == Stage::Done);
            seen.push(done.map_err(|error| error.to_string()));
        }
        (wire, seen)
    }

    /// If a result is taken as complete too early, the rest answers the next statement.
    #[test]
    fn the_end_of_a_result_is_found_however_it_comes_in() {
        let row = packet(4, &[0, 0, 3, b'a', 0xfe, b'c']);
        let column = packet(2, &[3, b'd', b'e', b'f', 0xfe]);
        let old_end = packet(3, &[0xfe, 0, 0, 2, 0]);
        let new_end = packet(9, &[0xfe, 0, 0, 2, 0, 0, 0]);
        let whole = [
            // Columns, their end, rows, the end.
            [packet(1, &[1]), column.clone(), old_end.clone(), row.clone(), old_end.clone()]
                .concat(),
            // Without an EOF packet after the columns; the last packet is an OK.
            [packet(1, &[1]), column.clone(), row.clone(), row.clone(), new_end.clone()].concat(),
            // Columns left out.
            [packet(1, &[1, 0]), row.clone(), new_end.clone()].concat(),
            // A column count, with the byte for metadata.
            [packet(1, &[1, 1]), column.clone(), row, new_end.clone()].concat(),
            // No rows, in both dialects.
            [packet(1, &[1, 0]), new_end].concat(),
            [packet(1, &[1]), column, old_end.clone(), old_end].concat(),
            // A statement without a result.
            packet(1, &[0, 1, 0, 2, 0, 0, 0]),
        ];
        for (number, result) in whole.iter().enumerate() {
            for size in [1, 2, 3, 5, 7, 1000] {
                let (_, seen) = fed(result, size);
                let (last, before) = seen.split_last().unwrap();
                assert_eq!(*last, Ok(true), "result {number} in pieces of {size}");
                assert!(before.iter().all(|done| *done == Ok(false)), "result {number}, {size}");
            }
        }
    }

    proptest! {
        /// Whatever a server sends, nothing panics and nothing is looked at twice.
        #[test]
        fn any_bytes_are_taken_without_panic(bytes: Vec<u8>, size in 1usize..40) {
            let (wire, _) = fed(&bytes[..bytes.len().min(4000)], size);
            prop_assert!(wire.from <= wire.to);
        }
    }

    #[test]
    fn errors_come_with_their_number_and_more_than_a_result_is_told() {
        let error = packet(1, b"\xff\xbd\x04#40001Deadlock found");
        let (wire, seen) = fed(&error, 1000);
        assert_eq!(seen, [Ok(true)]);
        let error = wire.error.unwrap();
        assert_eq!(error.kind(), engine::ErrorKind::Retryable, "{error}");
        assert!(error.to_string().contains("Deadlock found"));
        let twice = packet(1, &[0, 1, 0, 2, 0, 0, 0]).repeat(2);
        assert!(fed(&twice, 1000).1[0].is_err());
    }
}
