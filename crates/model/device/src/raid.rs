//! RAID 0, 1 and 5 over members of any kind.
//!
//! # Model
//! A request first takes `request_time`: RAID 5 writes at one server (md's stripe thread), others in their
//! submitter, in parallel. Its data passes the controller at `bandwidth`, if set. RAID 0 splits at chunk
//! borders; RAID 1 reads from the members in turn and writes to all; RAID 5 has Linux md's default layout
//! (left-symmetric) and its choice for a partial stripe: the reads of a read-modify-write (old data and old
//! parity) or of a reconstruct-write (the other data), whichever are fewer, reconstruct on a tie. Then parity
//! is computed (`xor_time` per started 4 KiB) and data and parity are written. A full stripe needs no reads.
//!
//! # Source
//! Linux `drivers/md/raid5.c` (`handle_stripe_dirtying`, `raid5_compute_sector`).
//!
//! Invariant: a write is done when data and parity are.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

use crate::constant::Constant;
use crate::request::Route;
use crate::slab::Slab;
use crate::{CHUNK, Completion, Device, EventQueue, Operation, Request, Stage};

/// Constants of an array.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RaidParameters {
    /// RAID level: 0, 1 or 5.
    pub level: Constant<u32>,
    /// Names of the members, or profile files.
    pub devices: Vec<String>,
    /// Chunk size: bytes on one member before the next.
    pub chunk: Constant<Bytes>,
    /// Service time of a request before members are used.
    pub request_time: Constant<Nanos>,
    /// Controller bandwidth, bytes per second; absent: unlimited.
    pub bandwidth: Option<Constant<Bytes>>,
    /// Computing parity, for each started 4 KiB of it.
    pub xor_time: Constant<Nanos>,
}

#[derive(Debug, Clone, Copy)]
struct Job {
    request: Request,
    path: Route,
    /// Members' operations left in this phase.
    left: u32,
    /// The reads of a partial stripe are in flight.
    reading: bool,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    /// The request has passed the controller.
    Start(u32),
    /// Its parity is computed.
    Computed(u32),
    /// It has no work on any member.
    Empty(u32),
}

/// An operation on a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    member: usize,
    operation: Operation,
    offset: u64,
    length: u32,
}

/// A piece of a write on one member, in its chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    member: usize,
    start: u64,
    length: u32,
}

impl Piece {
    fn end(&self) -> u64 {
        self.start + u64::from(self.length)
    }
}

/// Part of a write in one row of chunks.
#[derive(Debug, Clone)]
struct Row {
    number: u64,
    /// Member that holds the row's parity.
    parity: usize,
    /// Its pieces, as indices into the list of all.
    pieces: Range<usize>,
}

/// The rows of a write; reused for the next write.
#[derive(Debug, Clone, Default)]
struct Rows {
    rows: Vec<Row>,
    pieces: Vec<Piece>,
}

impl Rows {
    fn clear(&mut self) {
        self.rows.clear();
        self.pieces.clear();
    }

    fn add(&mut self, (number, parity): (u64, usize), piece: Piece) {
        let place = self.pieces.len();
        // md works in stripes of 4 KiB: the end of one chunk and the start of the next have no stripe in
        // common unless they overlap, and are two small writes.
        let overlaps = |row: &&mut Row| {
            row.number == number
                && self.pieces[row.pieces.clone()]
                    .iter()
                    .any(|other| other.start < piece.end() && piece.start < other.end())
        };
        let joined = self.rows.last_mut().filter(overlaps);
        let row = joined.map(|row| row.pieces.end = place + 1);
        self.pieces.push(piece);
        match row {
            Some(()) => {}
            None => self.rows.push(Row { number, parity, pieces: place..place + 1 }),
        }
    }

    /// Each row with its pieces.
    fn iter(&self) -> impl Iterator<Item = (&Row, &[Piece])> {
        self.rows.iter().map(|row| (row, &self.pieces[row.pieces.clone()]))
    }
}

/// First and last byte (exclusive) in their chunks that pieces of a row cover together.
fn span(pieces: &[Piece]) -> (u64, u64) {
    let low = pieces.iter().map(|piece| piece.start).min().unwrap_or(0);
    (low, pieces.iter().map(Piece::end).max().unwrap_or(0))
}

/// The members and their next events: only changed members are queried.
#[derive(Debug, Clone)]
struct Members<D> {
    all: Vec<D>,
    /// `[member]`: its last known next event; `Nanos::MAX` if none.
    next: Vec<Nanos>,
    /// The earliest of those, with the member; the first member of several.
    first: (Nanos, usize),
}

impl<D: Device> Members<D> {
    fn new(all: Vec<D>) -> Self {
        Self { next: vec![Nanos::MAX; all.len()], first: (Nanos::MAX, 0), all }
    }

    /// Queries a changed member.
    #[inline]
    fn ask(&mut self, member: usize) {
        let next = self.all[member].next_event().unwrap_or(Nanos::MAX);
        self.next[member] = next;
        if (next, member) <= self.first {
            self.first = (next, member);
        } else if self.first.1 == member {
            let by_time = self.next.iter().copied().zip(0..);
            self.first = by_time.min().unwrap_or((Nanos::MAX, 0));
        }
    }

    fn submit(&mut self, now: Nanos, member: usize, request: Request) {
        self.all[member].submit(now, request);
        self.ask(member);
    }

    fn next_event(&self) -> Option<Nanos> {
        Some(self.first.0).filter(|at| *at < Nanos::MAX)
    }

    /// Processes the first event, due at `at`.
    fn advance(&mut self, at: Nanos, finished: &mut Vec<Completion>) {
        while self.first.0 <= at {
            let (next, member) = self.first;
            debug_assert_eq!(next, at);
            self.all[member].advance(at, finished);
            self.ask(member);
        }
    }
}

/// An array.
#[derive(Debug, Clone)]
pub struct Raid<D> {
    level: u32,
    chunk: u64,
    request_time: Nanos,
    /// Controller time, nanoseconds per byte.
    byte_nanos: f64,
    xor_time: Nanos,
    members: Members<D>,
    next_mirror: usize,
    controller_free: Nanos,
    wire_free: Nanos,
    jobs: Slab<Job>,
    events: EventQueue<Event>,
    parts: Vec<Part>,
    rows: Rows,
    finished: Vec<Completion>,
}

impl<D: Device> Raid<D> {
    /// An idle array of `members`.
    #[must_use]
    pub fn new(parameters: &RaidParameters, members: Vec<D>) -> Self {
        Self {
            level: parameters.level.value,
            chunk: parameters.chunk.value.get().max(1),
            request_time: parameters.request_time.value,
            byte_nanos: parameters
                .bandwidth
                .as_ref()
                .map_or(0.0, |bytes| 1e9 / bytes.value.get().max(1) as f64),
            xor_time: parameters.xor_time.value,
            members: Members::new(members),
            next_mirror: 0,
            controller_free: Nanos::ZERO,
            wire_free: Nanos::ZERO,
            jobs: Slab::default(),
            events: EventQueue::default(),
            parts: Vec::new(),
            rows: Rows::default(),
            finished: Vec::new(),
        }
    }

    /// The pieces of a request, cut at chunk borders: `(chunk number, offset in it, length)`.
    fn pieces(&self, request: Request) -> impl Iterator<Item = (u64, u64, u32)> + use<D> {
        let (chunk, end) = (self.chunk, request.offset + u64::from(request.length));
        let mut at = request.offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let piece = (at / chunk, at % chunk, (end - at).min(chunk - at % chunk) as u32);
            at += u64::from(piece.2);
            Some(piece)
        })
    }

    /// Where a data chunk of a RAID 5 lies: its member, its row, and the member of the row's parity.
    fn place(&self, chunk: u64) -> (usize, u64, usize) {
        let members = self.members.all.len() as u64;
        let (row, column) = (chunk / (members - 1), chunk % (members - 1));
        let parity = members - 1 - row % members;
        ((((parity + 1 + column) % members) as usize), row, parity as usize)
    }

    /// Fills `parts` with the first phase of a request; returns whether a second follows.
    fn first_phase(&mut self, request: Request) -> bool {
        self.parts.clear();
        let operation = request.operation;
        let part =
            |member: usize, offset: u64, length: u32| Part { member, operation, offset, length };
        let count = self.members.all.len();
        match (self.level, operation) {
            // md flushes every member; it does not discard on a RAID 5, whose parity would be wrong.
            (_, Operation::Flush) => self.parts.extend((0..count).map(|member| part(member, 0, 0))),
            (5, Operation::Discard) => {}
            (1, Operation::Read) => {
                self.next_mirror = (self.next_mirror + 1) % count;
                self.parts.push(part(self.next_mirror, request.offset, request.length));
            }
            (1, _) => {
                let all = (0..count).map(|member| part(member, request.offset, request.length));
                self.parts.extend(all);
            }
            (5, Operation::Write | Operation::WriteZeroes) => {
                self.lay_out(request);
                self.reads_for_parity();
                return true;
            }
            (level, _) => {
                for (chunk, start, length) in self.pieces(request) {
                    let (member, row) = if level == 5 {
                        let (member, row, _) = self.place(chunk);
                        (member, row)
                    } else {
                        ((chunk % count as u64) as usize, chunk / count as u64)
                    };
                    self.parts.push(part(member, row * self.chunk + start, length));
                }
            }
        }
        false
    }

    /// Finds the rows that a write touches.
    fn lay_out(&mut self, request: Request) {
        let mut rows = std::mem::take(&mut self.rows);
        rows.clear();
        for (chunk, start, length) in self.pieces(request) {
            let (member, number, parity) = self.place(chunk);
            rows.add((number, parity), Piece { member, start, length });
        }
        self.rows = rows;
    }

    /// Adds the reads needed for parity.
    fn reads_for_parity(&mut self) {
        let operation = Operation::Read;
        let (parts, chunk, count) = (&mut self.parts, self.chunk, self.members.all.len());
        for (row, pieces) in self.rows.iter() {
            let (low, high) = span(pieces);
            let whole = |piece: &Piece| (piece.start, piece.end()) == (low, high);
            let data = count - 1;
            if pieces.len() == data && pieces.iter().all(whole) {
                continue;
            }
            let (offset, length) = (row.number * chunk + low, (high - low) as u32);
            let read = |member: usize| Part { member, operation, offset, length };
            // Reads of either method: the old data and the old parity (read-modify-write), or everything that
            // is not written (reconstruct-write), which includes the rest of a partly written chunk.
            let partly = || pieces.iter().filter(|piece| !whole(piece));
            let untouched = data - pieces.len() + partly().count();
            if pieces.len() + 1 < untouched {
                parts.extend(pieces.iter().map(|piece| Part {
                    offset: row.number * chunk + piece.start,
                    length: piece.length,
                    ..read(piece.member)
                }));
                parts.push(read(row.parity));
            } else {
                let touched = |m: &usize| pieces.iter().any(|piece| piece.member == *m);
                let others = (0..count).filter(|m| *m != row.parity && !touched(m));
                parts.extend(others.map(read));
                parts.extend(partly().map(|piece| read(piece.member)));
            }
        }
    }

    fn second_phase(&mut self, request: Request) {
        self.parts.clear();
        self.lay_out(request);
        let (operation, chunk) = (Operation::Write, self.chunk);
        for (row, pieces) in self.rows.iter() {
            let (low, high) = span(pieces);
            let (offset, length) = (row.number * chunk + low, (high - low) as u32);
            self.parts.push(Part { member: row.parity, operation, offset, length });
            self.parts.extend(pieces.iter().map(|piece| Part {
                member: piece.member,
                operation,
                offset: row.number * chunk + piece.start,
                length: piece.length,
            }));
        }
    }

    /// Submits `parts` to the members for a job.
    fn issue(&mut self, now: Nanos, job: u32) {
        let state = self.jobs.at(job);
        state.left = self.parts.len() as u32;
        let Request { fua, queue, .. } = state.request;
        for part in &self.parts {
            let Part { member, operation, offset, length } = *part;
            let fua = fua && operation != Operation::Read;
            let request = Request { id: u64::from(job), operation, fua, offset, length, queue };
            self.members.submit(now, member, request);
        }
    }

    fn happen(&mut self, now: Nanos, event: Event, done: &mut Vec<Completion>) {
        match event {
            Event::Start(job) => {
                let request = self.jobs.get(job).request;
                let reading = self.first_phase(request);
                self.jobs.at(job).reading = reading;
                if reading && self.parts.is_empty() {
                    self.compute(now, job);
                } else if self.parts.is_empty() {
                    self.events.push(now, Event::Empty(job));
                } else {
                    self.issue(now, job);
                }
            }
            Event::Computed(job) => {
                self.jobs.at(job).reading = false;
                self.second_phase(self.jobs.get(job).request);
                self.issue(now, job);
            }
            Event::Empty(job) => {
                let Job { request, path, .. } = self.jobs.take(job);
                done.push(path.done(request.id));
            }
        }
    }

    fn compute(&mut self, now: Nanos, job: u32) {
        self.lay_out(self.jobs.get(job).request);
        let of_row = |(_, pieces): (&Row, &[Piece])| {
            let (low, high) = span(pieces);
            (high - low).div_ceil(CHUNK)
        };
        let parity: u64 = self.rows.iter().map(of_row).sum();
        let state = self.jobs.at(job);
        let computed = now + self.xor_time * parity;
        state.path.until(Stage::Controller, computed);
        self.events.push(computed, Event::Computed(job));
    }

    fn member_done(&mut self, completion: Completion, done: &mut Vec<Completion>) {
        let job = completion.id as u32;
        let state = self.jobs.at(job);
        state.left -= 1;
        if state.left > 0 {
            return;
        }
        // The last member is the one that the request waits for.
        state.path.below(&completion);
        if state.reading {
            self.compute(completion.at, job);
        } else {
            let Job { request, path, .. } = self.jobs.take(job);
            done.push(path.done(request.id));
        }
    }
}

impl<D: Device> Device for Raid<D> {
    /// A mirror keeps data if one of its members does.
    fn forgets(&self) -> bool {
        match self.level {
            1 => self.members.all.iter().all(Device::forgets),
            _ => self.members.all.iter().any(Device::forgets),
        }
    }

    fn submit(&mut self, now: Nanos, request: Request) {
        let mut path = Route::new(now);
        let serial = self.level == 5 && request.operation.changes();
        let start = if serial { self.controller_free.max(now) } else { now };
        let mut ready = start + self.request_time;
        path.served(start, Stage::Controller, ready);
        if serial {
            self.controller_free = ready;
        }
        if self.byte_nanos > 0.0 && request.carried() > 0 {
            let from = self.wire_free.max(ready);
            ready = from + Nanos((f64::from(request.length) * self.byte_nanos) as u64);
            path.served(from, Stage::Transfer, ready);
            self.wire_free = ready;
        }
        let job = self.jobs.put(Job { request, path, left: 0, reading: false });
        self.events.push(ready, Event::Start(job));
    }

    fn next_event(&self) -> Option<Nanos> {
        [self.members.next_event(), self.events.next_time()].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            if let Some((at, event)) = self.events.pop_due(at) {
                self.happen(at, event, done);
                continue;
            }
            let mut finished = std::mem::take(&mut self.finished);
            self.members.advance(at, &mut finished);
            for completion in finished.drain(..) {
                self.member_done(completion, done);
            }
            self.finished = finished;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constant::constant;
    use crate::ram::Ram;

    /// Members that take 10 us for anything, one after the other.
    fn array(level: u32, members: usize) -> Raid<Ram> {
        limited(level, members, Nanos::ZERO, None)
    }

    fn limited(level: u32, members: usize, each: Nanos, bandwidth: Option<Bytes>) -> Raid<Ram> {
        let parameters = RaidParameters {
            level: constant(level),
            devices: Vec::new(),
            chunk: constant(Bytes(65_536)),
            request_time: constant(each),
            bandwidth: bandwidth.map(constant),
            xor_time: constant(Nanos::from_micros(1)),
        };
        Raid::new(&parameters, vec![Ram::taking(Nanos::from_micros(10), Nanos::ZERO); members])
    }

    fn takes(raid: &mut Raid<Ram>, operation: Operation, offset: u64, length: u32) -> u64 {
        raid.submit(
            Nanos::ZERO,
            Request { id: 7, operation, fua: false, offset, length, queue: 0 },
        );
        let mut done = Vec::new();
        raid.advance(Nanos::from_secs(1), &mut done);
        assert_eq!(done.len(), 1);
        assert_eq!(done[0].stages.total(), done[0].at);
        done[0].at.get() / 1000
    }

    /// Three members: a small write reads the other data (one read, fewer than data and parity) and then
    /// writes data and parity on two members; a full-stripe write reads nothing.
    #[test]
    fn a_small_write_reads_first_and_a_full_stripe_does_not() {
        assert_eq!(takes(&mut array(5, 3), Operation::Write, 0, 4096), 10 + 1 + 10);
        assert_eq!(takes(&mut array(5, 3), Operation::Write, 0, 131_072), 16 + 10);
        assert_eq!(takes(&mut array(5, 3), Operation::Read, 0, 4096), 10);
    }

    /// Reads pass md in their submitters, in parallel; stripes are written by one thread. Requests through a
    /// controller share its bandwidth.
    #[test]
    fn reads_do_not_wait_for_each_other_before_the_members() {
        let ends = |mut raid: Raid<Ram>, operation: Operation| {
            for member in 0..3 {
                let offset = member * 65_536;
                raid.submit(
                    Nanos::ZERO,
                    Request { operation, ..Request::read(member, offset, 4096) },
                );
            }
            let mut done = Vec::new();
            raid.advance(Nanos::from_secs(1), &mut done);
            done.last().map(|one| one.at.get() / 1000)
        };
        let each = Nanos::from_micros(5);
        assert_eq!(ends(limited(0, 3, each, None), Operation::Read), Some(15));
        assert_eq!(ends(limited(5, 4, each, None), Operation::Read), Some(15));
        assert_eq!(
            ends(limited(0, 3, each, Some(Bytes(4_096_000_000))), Operation::Read),
            Some(18)
        );
        let written = ends(limited(5, 4, each, None), Operation::Write);
        assert!(written >= Some(3 * 5 + 10 + 1 + 10), "{written:?}");
    }

    /// A write across two chunks must transfer 4 KiB of each, not whole chunks.
    #[test]
    fn a_write_across_chunks_of_a_row_moves_what_it_writes() {
        let mut array = array(5, 3);
        array.first_phase(Request::write(0, 61_440, 8192));
        let bytes = |array: &Raid<Ram>| array.parts.iter().map(|part| part.length).sum::<u32>();
        assert_eq!(bytes(&array), 8192, "the other chunk of each of two stripes");
        array.second_phase(Request::write(0, 61_440, 8192));
        assert_eq!(bytes(&array), 16_384, "data and parity of each");
    }

    /// The unwritten rest of a chunk must be read for a reconstruct-write.
    #[test]
    fn reads_of_both_ways_are_counted_in_full() {
        let mut array = array(5, 6);
        array.first_phase(Request::write(0, 32_768, 98_304));
        assert_eq!(array.parts.len(), 3, "two of old data and one of parity, against four");
    }

    /// With many members, read-modify-write needs fewer reads than a reconstruct-write.
    #[test]
    fn md_chooses_the_fewer_reads() {
        let reads = |members| {
            let mut array = array(5, members);
            array.first_phase(Request::write(0, 0, 4096));
            array.parts
        };
        assert_eq!(reads(8).len(), 2);
        let parts = reads(4);
        assert_eq!(parts.len(), 2, "two others against data and parity: a tie is reconstructed");
        assert!(parts.iter().all(|part| part.member != array(5, 4).place(0).0));
    }

    /// md's left-symmetric layout: parity moves down one member per row, data starts after it.
    #[test]
    fn the_layout_is_mds() {
        let array = array(5, 3);
        let places: Vec<_> = (0..6).map(|chunk| array.place(chunk)).collect();
        assert_eq!(places, [(0, 0, 2), (1, 0, 2), (2, 1, 1), (0, 1, 1), (1, 2, 0), (2, 2, 0)]);
    }

    #[test]
    fn mirrors_and_stripes() {
        assert_eq!(takes(&mut array(1, 2), Operation::Write, 0, 4096), 10);
        assert_eq!(takes(&mut array(0, 2), Operation::Read, 0, 131_072), 10, "both at once");
        assert_eq!(takes(&mut array(0, 2), Operation::Read, 0, 262_144), 20);
    }
}
