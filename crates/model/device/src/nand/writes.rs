//! Writes: the buffer, what is owed to collection, programs and erases, and what makes data durable.
//!
//! Invariant: buffer space is free again exactly when its program is done.

use rand::Rng;
use units::{Nanos, Share};

use super::parameters::WriteCache;
use super::{COMPLETE, Nand, PROGRAMMED};
use crate::{CHUNK, Event};

impl Nand {
    pub(super) fn write_arrived(&mut self, now: Nanos, slot: u32) {
        let request = self.slots[slot as usize].request;
        self.cross_link(now, request.chunks(), true);
        self.buffer.waiting.push_back(slot);
        self.fill_buffer(now);
    }

    /// Takes waiting writes into the buffer while it has room (an empty buffer takes any write).
    pub(super) fn fill_buffer(&mut self, now: Nanos) {
        while let Some(&slot) = self.buffer.waiting.front() {
            let request = self.slots[slot as usize].request;
            let bytes = u64::from(request.length);
            let room = self.parameters.write_buffer.value.get();
            if self.buffer.used > 0 && self.buffer.used + bytes > room {
                return;
            }
            self.buffer.waiting.pop_front();
            self.buffer.used += bytes;
            self.buffer.gathered += bytes;
            self.buffer.unmapped = true;
            let taken = self.link_free.max(now);
            let acknowledged = taken + self.parameters.write_ack_time.value;
            let forced = request.fua && self.is_volatile();
            if !forced {
                self.events.push(acknowledged, Event::new(COMPLETE, slot));
            }
            let owed = self.translation.write(request.offset, request.length);
            self.buffer.moved += owed.moved_pages * CHUNK as f64;
            self.buffer.erases += owed.erases;
            while self.buffer.gathered >= self.parameters.program_size.value.get().max(1) {
                self.buffer.gathered -= self.parameters.program_size.value.get().max(1);
                let size = self.parameters.program_size.value.get().max(1);
                self.program_host_data(now, (size, self.parameters.program_time.value));
            }
            if forced {
                let programmed = self.program_gathered(now);
                let mapped = self.program(programmed, self.flush_program_time());
                let done = mapped.max(acknowledged);
                // The rest until then was waiting for the unit.
                let programs = self.flush_program_time() * 2;
                self.slots[slot as usize].media = programs.min(done.since(acknowledged));
                // All that was acknowledged is programmed and mapped.
                self.buffer.unmapped = false;
                self.buffer.durable_at = self.buffer.durable_at.max(mapped);
                self.events.push(done, Event::new(COMPLETE, slot));
            }
        }
    }

    /// Whether acknowledged writes are lost with the power.
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

    /// Programs what does not fill a unit yet; says when all host data is on flash.
    fn program_gathered(&mut self, now: Nanos) -> Nanos {
        let gathered = std::mem::take(&mut self.buffer.gathered);
        if gathered > 0 {
            self.program_host_data(now, (gathered, self.flush_program_time()));
        }
        self.buffer.programmed_at.max(now)
    }

    /// A flush: what is gathered is programmed, with the mapping of all that has come since the last.
    pub(super) fn flush(&mut self, now: Nanos, slot: u32) {
        if self.is_volatile() && std::mem::take(&mut self.buffer.unmapped) {
            let takes = self.flush_program_time();
            let before = self.buffer.programmed_at;
            let programmed = match self.buffer.gathered {
                0 => self.program(before.max(now), takes),
                _ => self.program_gathered(now),
            };
            let state = &mut self.slots[slot as usize];
            (state.cache, state.media) = (before.min(programmed - takes).since(now), takes);
            self.buffer.durable_at = self.buffer.durable_at.max(programmed);
        } else {
            self.slots[slot as usize].cache = self.buffer.durable_at.since(now);
        }
        // What an earlier flush is still writing was acknowledged before this one, too.
        self.events.push(self.buffer.durable_at.max(now), Event::new(COMPLETE, slot));
    }

    /// Programs `bytes` of host data, one unit at most, in the time that it takes.
    fn program_host_data(&mut self, now: Nanos, (bytes, takes): (u64, Nanos)) {
        let done = self.program(now, takes);
        self.buffer.programmed_at = self.buffer.programmed_at.max(done);
        self.events.push(done, Event::new(PROGRAMMED, bytes as u32));
        let size = self.parameters.program_size.value.get().max(1);
        let pages = size.div_ceil(self.parameters.flash_page.value.get().max(CHUNK));
        // Moved data is read first, on a unit of the same kind.
        let reads = self.parameters.read_time.value * pages;
        while self.buffer.moved >= size as f64 {
            self.buffer.moved -= size as f64;
            self.program(now, reads + self.parameters.program_time.value);
        }
    }

    /// Occupies the next unit (or plane) for a program, and for an erase when one is due.
    fn program(&mut self, now: Nanos, takes: Nanos) -> Nanos {
        let programs = self.parameters.program_units.value.max(1);
        let next = self.buffer.next_unit as usize;
        self.buffer.next_unit = (self.buffer.next_unit + 1) % programs;
        let erase = if self.buffer.erases >= 1.0 { self.erase() } else { Nanos::ZERO };
        let free = if self.plane_free.is_empty() {
            let unit = next * self.unit_free.len() / programs as usize;
            &mut self.unit_free[unit]
        } else {
            &mut self.plane_free[next]
        };
        let done = (*free).max(now) + takes;
        *free = done + erase;
        done
    }

    /// What an erase that is due occupies its unit for.
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
}
