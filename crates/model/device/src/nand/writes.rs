//! Writes: buffer, due collection, programs and erases, durability, and reads behind writes.
//!
//! Invariants: buffer space is freed exactly when its program starts; work starts in the order in which it
//! fell due; a flush completes when all earlier programs have.

use std::collections::VecDeque;

use rand::Rng;
use units::{Nanos, Share};

use super::parameters::WriteCache;
use super::{COMPLETE, Nand, Purpose, Task, WORKED};
use crate::{CHUNK, Event, Operation, Request};

/// Work that waits for a plane.
#[derive(Debug, Clone, Copy)]
struct Due {
    task: Task,
    /// Buffer space freed when it begins.
    bytes: u64,
}

/// Sequence numbers of programs are modulo this.
const ORDERS: u32 = 1 << 31;

/// Unprogrammed writes, and their waiters.
#[derive(Debug, Clone, Default)]
pub(super) struct WriteBuffer {
    /// Bytes in the buffer, including those due for programming.
    used: u64,
    /// Bytes not yet handed to a program.
    gathered: u64,
    /// End of the last handover, before which nothing new is acknowledged.
    handed_on: Nanos,
    /// Slots of writes that wait for space, oldest first.
    waiting: VecDeque<u32>,
    /// Slots of reads that wait behind writes, oldest first.
    held: VecDeque<u32>,
    /// Work that waits for a plane, and the amount on planes.
    due: VecDeque<Due>,
    working: u32,
    /// Bytes of moved data still to be programmed.
    moved: f64,
    /// Erases that are due, in fractions.
    erases: f64,
    /// For each program of host data from the first unfinished one: whether it has completed.
    done: VecDeque<bool>,
    /// Sequence number of that first one.
    first: u32,
    /// Flushes, each with the sequence number of the first program that it need not wait for.
    flushes: VecDeque<(u32, u32)>,
    /// Host data has arrived since the mapping was programmed.
    pub(super) unmapped: bool,
}

impl WriteBuffer {
    fn next_order(&self) -> u32 {
        (self.first + self.done.len() as u32) % ORDERS
    }

    /// Allocates the sequence number of another program of host data.
    fn order(&mut self) -> u32 {
        let order = self.next_order();
        self.done.push_back(false);
        order
    }

    fn ended(&mut self, order: u32) {
        let place = order.wrapping_sub(self.first) % ORDERS;
        self.done[place as usize] = true;
        while self.done.front() == Some(&true) {
            self.done.pop_front();
            self.first = (self.first + 1) % ORDERS;
        }
    }

    /// Takes a flush with nothing left to wait for.
    fn flushed(&mut self) -> Option<u32> {
        let (until, slot) = *self.flushes.front()?;
        let left = until.wrapping_sub(self.first) % ORDERS;
        // Beyond it, the difference wraps around.
        if left > 0 && left <= self.done.len() as u32 {
            return None;
        }
        self.flushes.pop_front();
        Some(slot)
    }
}

impl Nand {
    /// A read has passed the controller: it continues, unless a write has waited too long.
    pub(super) fn read_arrived(&mut self, now: Nanos, slot: u32) {
        self.slots.at(slot).arrived = now;
        if self.reads_wait(now) {
            self.buffer.held.push_back(slot);
        } else {
            self.read_pages(now, slot);
        }
    }

    /// Whether a read that arrived at `came` waits behind the oldest write without buffer space.
    fn reads_wait(&self, came: Nanos) -> bool {
        let Some(most) = &self.parameters.write_wait_max else { return false };
        let oldest = self.buffer.waiting.front();
        oldest.is_some_and(|slot| self.slots.get(*slot).arrived + most.value < came)
    }

    pub(super) fn write_arrived(&mut self, now: Nanos, slot: u32) {
        let request = self.slots.get(slot).request;
        self.cross_link(now, request.chunks(), true);
        self.slots.at(slot).arrived = now;
        self.buffer.waiting.push_back(slot);
        self.fill_buffer(now);
    }

    /// Moves waiting writes into the buffer while it has space (any write if nothing in it is due); reads
    /// behind them continue.
    fn fill_buffer(&mut self, now: Nanos) {
        let room = self.parameters.write_buffer.value.get();
        self.begin_work(now);
        while let Some(&slot) = self.buffer.waiting.front() {
            let bytes = self.slots.get(slot).request.chunks() * CHUNK;
            // Gathered data waits for more writes: only due data frees space.
            if self.buffer.used > self.buffer.gathered && self.buffer.used + bytes > room {
                break;
            }
            self.buffer.waiting.pop_front();
            self.take_write(now, slot, bytes);
            self.begin_work(now);
        }
        while let Some(&slot) = self.buffer.held.front() {
            if self.reads_wait(self.slots.get(slot).arrived) {
                break;
            }
            self.buffer.held.pop_front();
            self.read_pages(now, slot);
        }
    }

    /// Takes a write of this many chunk bytes into the buffer.
    fn take_write(&mut self, now: Nanos, slot: u32, bytes: u64) {
        let request = self.slots.get(slot).request;
        self.buffer.used += bytes;
        self.buffer.gathered += bytes;
        self.buffer.unmapped = true;
        self.read_partial_chunks(now, request);
        let ready = self.link_free.max(self.buffer.handed_on).max(now);
        let acknowledged = ready + self.parameters.write_ack_time.value;
        let forced = request.fua && self.is_volatile();
        if !forced {
            self.events.push(acknowledged, Event::new(COMPLETE, slot));
        }
        let owed = self.translation.write(request.offset, request.length);
        self.buffer.moved += owed.moved_pages * CHUNK as f64;
        self.buffer.erases += owed.erases;
        let size = self.program_size();
        // The last of a FUA write's data is programmed with its mapping, below.
        let least = if forced { size + 1 } else { size };
        while self.buffer.gathered >= least {
            self.hand_on(now);
            self.program_host_data(size, self.parameters.program_time.value, Purpose::NOTHING);
        }
        if forced {
            self.slots.at(slot).arrived = acknowledged;
            // Its data, then the mapping; this makes all acknowledged writes durable.
            self.buffer.unmapped = false;
            self.program_durably(slot, 2);
        }
    }

    /// Hands over a program's data once it is complete: new writes wait meanwhile. Data of several programs
    /// is handed over in parallel.
    fn hand_on(&mut self, now: Nanos) {
        if let Some(takes) = &self.parameters.handover_time {
            self.buffer.handed_on = self.link_free.max(now) + takes.value;
        }
    }

    /// Chunks that a write covers in part must be read before they can be programmed.
    fn read_partial_chunks(&mut self, now: Nanos, request: Request) {
        let end = request.offset + u64::from(request.length);
        if request.offset.is_multiple_of(CHUNK) && end.is_multiple_of(CHUNK) {
            return;
        }
        let (head, tail) = (request.offset / CHUNK, end / CHUNK);
        let partly = [!request.offset.is_multiple_of(CHUNK), !end.is_multiple_of(CHUNK)];
        // Both partial chunks are the same: one read.
        let second = partly[1] && !(partly[0] && head == tail);
        for (chunk, wanted) in [(head, partly[0]), (tail, second)] {
            if wanted {
                let (unit, takes) = (self.unit_of(chunk * CHUNK), self.read_time());
                self.planes.read(now, (unit, chunk), takes);
            }
        }
    }

    fn program_size(&self) -> u64 {
        self.parameters.program_size.value.get().max(1)
    }

    /// Whether acknowledged writes are lost on power failure.
    fn is_volatile(&self) -> bool {
        self.parameters
            .write_cache
            .as_ref()
            .is_some_and(|cache| cache.value == WriteCache::Volatile)
    }

    fn flush_program_time(&self) -> Nanos {
        let p = &self.parameters;
        p.flush_program_time.as_ref().map_or(p.program_time.value, |time| time.value)
    }

    /// Programs for durability, awaited by `slot`: the incomplete program and the mapping, in one program
    /// unless two are needed.
    fn program_durably(&mut self, slot: u32, programs: u64) {
        let (gathered, each) = (self.buffer.gathered, self.flush_program_time());
        if gathered > 0 {
            self.slots.at(slot).media = each * programs;
            return self.program_host_data(gathered, each * programs, slot);
        }
        self.slots.at(slot).media = each;
        let purpose = Purpose { order: self.buffer.order(), slot };
        self.task_due((each, 0), purpose);
    }

    /// A flush: programs buffered data with the mapping of everything since the last flush; completes when
    /// all earlier programs have.
    pub(super) fn flush(&mut self, now: Nanos, slot: u32) {
        self.slots.at(slot).arrived = now;
        if self.is_volatile() && std::mem::take(&mut self.buffer.unmapped) {
            self.program_durably(slot, 1);
        }
        if self.is_volatile() {
            let until = self.buffer.next_order();
            self.buffer.flushes.push_back((until, slot));
            self.fill_buffer(now);
            self.end_flushes(now);
        } else {
            self.events.push(now, Event::new(COMPLETE, slot));
        }
    }

    fn end_flushes(&mut self, now: Nanos) {
        while let Some(slot) = self.buffer.flushed() {
            let state = self.slots.at(slot);
            state.media = state.media.min(now.since(state.arrived));
            state.cache = now.since(state.arrived).since(state.media);
            self.events.push(now, Event::new(COMPLETE, slot));
        }
    }

    /// Queues the program of `bytes` of buffered data, with the collection that they cause.
    fn program_host_data(&mut self, bytes: u64, takes: Nanos, slot: u32) {
        self.buffer.gathered -= bytes;
        let purpose = Purpose { order: self.buffer.order(), slot };
        self.task_due((takes, bytes), purpose);
        let size = self.program_size();
        let burst = self.parameters.collection_burst.as_ref().map_or(0, |burst| burst.value.get());
        // A throttling drive does collection while a host write waits.
        let meters = self.parameters.meters.as_ref().is_none_or(|meters| meters.value);
        let as_owed = meters && !self.buffer.waiting.is_empty();
        let least = if as_owed { size } else { size.max(burst) };
        if self.buffer.moved >= least as f64 {
            self.move_data(size);
        }
        while self.buffer.erases >= 1.0 {
            let takes = self.erase();
            self.task_due((takes, 0), Purpose::NONE);
        }
    }

    /// Queues a program or erase of `takes`; this many bytes of the buffer are freed when it starts.
    fn task_due(&mut self, (takes, bytes): (Nanos, u64), purpose: Purpose) {
        let (suspend, resume) = (self.parameters.suspend(), self.parameters.resume());
        let task = Task { takes, suspend, resume, purpose };
        self.buffer.due.push_back(Due { task, bytes });
    }

    /// Queues moves: each program's data is read first, on the same planes.
    fn move_data(&mut self, size: u64) {
        let p = &self.parameters;
        let pages = size.div_ceil(p.flash_page.value.get().max(CHUNK));
        let takes = p.read_time.value * pages + p.program_time.value;
        while self.buffer.moved >= size as f64 {
            self.buffer.moved -= size as f64;
            self.task_due((takes, 0), Purpose::NONE);
        }
    }

    /// Plane time of a due erase.
    fn erase(&mut self) -> Nanos {
        self.buffer.erases -= 1.0;
        let p = &self.parameters;
        let pauses = p.erase_stall_share.as_ref().map_or(Share::NONE, |share| share.value);
        let below = (pauses.fraction() * 2f64.powi(64)) as u64;
        let pause = match &p.erase_stall_time {
            Some(time) if self.random.next_u64() < below => time.value,
            _ => Nanos::ZERO,
        };
        p.erase_time.value + pause
    }

    /// Assigns due work to available planes.
    fn begin_work(&mut self, now: Nanos) {
        let most = self.parameters.program_units.value.max(1);
        while self.buffer.working < most {
            let Some(due) = self.buffer.due.pop_front() else { return };
            self.buffer.working += 1;
            self.buffer.used -= due.bytes;
            let (plane, end) = self.planes.start(now, due.task);
            self.events.push(end, Event::new(WORKED, plane));
        }
    }

    /// The work on a plane may be done.
    pub(super) fn worked(&mut self, now: Nanos, plane: u32) {
        let purpose = match self.planes.finish(now, plane) {
            Err(later) => return self.events.push(later, Event::new(WORKED, plane)),
            Ok(purpose) => purpose,
        };
        self.buffer.working -= 1;
        if purpose.order != Purpose::NOTHING {
            self.buffer.ended(purpose.order);
        }
        if purpose.slot != Purpose::NOTHING
            && self.slots.get(purpose.slot).request.operation == Operation::Write
        {
            self.forced_write_ended(now, purpose.slot);
        }
        self.fill_buffer(now);
        if !self.buffer.flushes.is_empty() {
            self.end_flushes(now);
        }
    }

    /// The programs of a forced write have ended.
    fn forced_write_ended(&mut self, now: Nanos, slot: u32) {
        let state = self.slots.at(slot);
        let done = now.max(state.arrived);
        // Time before the acknowledgement is in other stages already.
        state.media = state.media.min(done.since(state.arrived));
        self.events.push(done, Event::new(COMPLETE, slot));
    }
}
