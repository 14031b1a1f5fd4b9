//! NAND flash behind a controller: serial controller, independently readable units, channels, a
//! link, and a write buffer that is acknowledged early and programmed in large units.
//!
//! # Model
//! A request is admitted when fewer than `max_in_flight` are (SATA's NCQ), passes `front_time` and
//! the serial controller. A read is cut into flash pages; each waits for its unit (FIFO), is read in
//! `read_time` with a small normal spread, crosses its channel and then the link. A write crosses the
//! link, takes slots in the buffer (waiting while it is full) and is acknowledged after
//! `write_ack_time`; when `program_size` has gathered it is programmed on the next unit round-robin,
//! which reads of that unit wait for (where there are more program units than read units, reads of the same
//! plane of it). Garbage collection ([`translation`]) says how many pages each host write makes it
//! move: they are read and programmed like host data; and when a block is to be erased, which occupies a
//! unit for `erase_time`. Two disturbances that reads do not cause: a background stall of some units about
//! every `stall_period`, and a pause of the unit after a share of the erases.
//! Each stage is a real event: computing later stages at submission is wrong after a variable one.
//!
//! # Source
//! Structure and read constants: fitted on raw fio data of one drive and tested on depths that the fit
//! had not seen (see docs/VALIDATION.md). Program units, erase and write amplification: datasheets,
//! cited in the profiles.
//!
//! Invariant: what is owed to collection is programmed before more host data is accepted than the buffer
//! holds. What it is not: idle garbage collection, wear, or overwriting within the buffer.

mod page_level;
mod parameters;
mod translation;

pub(crate) use page_level::PageLevel;
pub use parameters::NandParameters;
pub use translation::{Collection, Condition, steady_write_amplification};

use std::collections::VecDeque;

use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp1, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Bytes, Nanos, Seed, Share};

use translation::Translation;

use crate::{CHUNK, Completion, Device, Direction, EventQueue, Request, chunks_touched};

#[derive(Debug, Clone, Copy)]
enum Event {
    /// The request in this slot reaches the controller. Reads and writes take different times to get
    /// there, so who comes first is not known at submission.
    AtController(u32),
    /// The controller is done with the request in this slot.
    Arrived(u32),
    /// A flash page was read: (slot, channel, chunks).
    PageRead(u32, u32, u32),
    /// It crossed its channel: (slot, chunks).
    OnLink(u32, u32),
    /// The request in this slot is done.
    Complete(u32),
    /// A program of host data is done; its buffer space is free.
    Programmed,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    request: Request,
    pages: u32,
    pages_left: u32,
}

/// A NAND device.
#[derive(Debug, Clone)]
pub struct Nand {
    parameters: NandParameters,
    random: Xoshiro256PlusPlus,
    events: EventQueue<Event>,
    slots: Vec<Slot>,
    free_slots: Vec<u32>,
    /// Requests that wait for admission.
    outside: VecDeque<Request>,
    controller_free: Nanos,
    link_free: Nanos,
    /// `[unit]`: when it is next free.
    unit_free: Vec<Nanos>,
    /// `[plane]`: when its program is done, where a unit has more than one plane to program.
    plane_free: Vec<Nanos>,
    /// `[channel]`: when it is next free.
    channel_free: Vec<Nanos>,
    buffer: WriteBuffer,
    translation: Translation,
    /// When the next background stall begins.
    next_stall: Nanos,
}

#[derive(Debug, Clone, Default)]
struct WriteBuffer {
    used: u64,
    /// Bytes not yet handed to a program.
    gathered: u64,
    /// Slots of writes that wait for space, oldest first.
    waiting: VecDeque<u32>,
    next_unit: u32,
    /// Bytes of moved data that are due to be programmed.
    moved: f64,
    /// Erases that are due, in fractions.
    erases: f64,
}

impl Nand {
    /// An idle device.
    #[must_use]
    pub fn new(
        parameters: &NandParameters,
        capacity: Bytes,
        condition: Condition,
        seed: Seed,
    ) -> Self {
        let units = parameters.read_units.value.max(1) as usize;
        let channels = parameters.channels.value.max(1) as usize;
        let programs = parameters.program_units.value as usize;
        let planes = if programs > units { programs } else { 0 };
        let seed = seed.derive("nand", 0);
        let (collection, drive) = (parameters.collection.value, parameters.drive(capacity));
        let translation = seed.derive("translation", 0).0;
        let mut nand = Self {
            parameters: parameters.clone(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed.0),
            events: EventQueue::default(),
            slots: Vec::new(),
            free_slots: Vec::new(),
            outside: VecDeque::new(),
            controller_free: Nanos::ZERO,
            link_free: Nanos::ZERO,
            unit_free: vec![Nanos::ZERO; units],
            plane_free: vec![Nanos::ZERO; planes],
            channel_free: vec![Nanos::ZERO; channels],
            buffer: WriteBuffer::default(),
            translation: Translation::new(collection, drive, condition, translation),
            next_stall: Nanos::MAX,
        };
        nand.next_stall = nand.stall_after(Nanos::ZERO);
        nand
    }

    /// When the first background stall after `now` begins.
    fn stall_after(&mut self, now: Nanos) -> Nanos {
        let Some(period) = &self.parameters.stall_period else { return Nanos::MAX };
        let draw: f64 = Exp1.sample(&mut self.random);
        now + Nanos((draw * period.value.get() as f64) as u64 + 1)
    }

    /// Background stalls that began by `now`: some neighbouring units stand still.
    fn stall(&mut self, now: Nanos) {
        let value = |constant: Option<Nanos>| constant.unwrap_or(Nanos::ZERO);
        let takes = value(self.parameters.stall_time.as_ref().map(|time| time.value));
        let all = self.unit_free.len();
        let wanted = self.parameters.stalled_units.as_ref().map_or(0, |units| units.value as usize);
        while self.next_stall <= now {
            let (begins, first) = (self.next_stall, self.random.next_u64() as usize % all);
            for unit in (first..first + wanted.min(all)).map(|unit| unit % all) {
                self.unit_free[unit] = self.unit_free[unit].max(begins) + takes;
            }
            self.next_stall = self.stall_after(begins + takes);
        }
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free_slots.len()
    }

    fn admit(&mut self, now: Nanos, request: Request) {
        if self.next_stall <= now {
            self.stall(now);
        }
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(Slot { request, pages: 0, pages_left: 0 });
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize] = Slot { request, pages: 0, pages_left: 0 };
        let front = match request.direction {
            Direction::Read => self.parameters.front_time.value,
            Direction::Write => self.parameters.front_time_write.value,
        };
        self.events.push(now + front, Event::AtController(slot));
    }

    fn read_pages(&mut self, now: Nanos, slot: u32) {
        let request = self.slots[slot as usize].request;
        let page = self.parameters.flash_page.value.get().max(CHUNK);
        let end = request.offset + u64::from(request.length);
        let (mut at, mut pages) = (request.offset, 0);
        while at < end {
            let next = (at / page + 1) * page;
            let bytes = (next.min(end) - at) as u32;
            let unit = Seed(at / page).derive("unit", 0).0 % self.unit_free.len() as u64;
            let takes = self.read_time();
            let start = self.unit_free[unit as usize].max(now);
            self.unit_free[unit as usize] = start + takes;
            // Other planes of the unit can be read while one is programmed.
            let done = self.program_on(unit, at / page).max(start) + takes;
            let channel = unit % self.channel_free.len() as u64;
            let chunks = chunks_touched(at, bytes) as u32;
            self.events.push(done, Event::PageRead(slot, channel as u32, chunks));
            at = next;
            pages += 1;
        }
        let slot = &mut self.slots[slot as usize];
        (slot.pages, slot.pages_left) = (pages, pages);
    }

    /// When the program on the plane of a page is done; zero where planes are units.
    fn program_on(&self, unit: u64, page: u64) -> Nanos {
        let (planes, units) = (self.plane_free.len() as u64, self.unit_free.len() as u64);
        if planes == 0 {
            return Nanos::ZERO;
        }
        let (first, after) = (unit * planes / units, (unit + 1) * planes / units);
        let plane = first + Seed(page).derive("plane", 0).0 % (after - first);
        self.plane_free[plane as usize]
    }

    fn read_time(&mut self) -> Nanos {
        let draw: f64 = StandardNormal.sample(&mut self.random);
        let mean = self.parameters.read_time.value.get() as f64;
        let spread = self.parameters.read_time_sigma.value.get() as f64;
        Nanos((mean + draw * spread).max(mean / 2.0) as u64)
    }

    /// Takes data over the link; a request's first data also pays for the request.
    fn cross_link(&mut self, now: Nanos, chunks: u64, first: bool) -> Nanos {
        let beside = if first { self.parameters.link_request_time.value } else { Nanos::ZERO };
        let data = self.parameters.link_time.value * chunks;
        self.link_free = self.link_free.max(now) + beside + data;
        self.link_free
    }

    fn write_arrived(&mut self, now: Nanos, slot: u32) {
        let request = self.slots[slot as usize].request;
        self.cross_link(now, chunks_touched(request.offset, request.length), true);
        self.buffer.waiting.push_back(slot);
        self.fill_buffer(now);
    }

    /// Takes waiting writes into the buffer while it has room (an empty buffer takes any write).
    fn fill_buffer(&mut self, now: Nanos) {
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
            let acknowledged = self.link_free.max(now) + self.parameters.write_ack_time.value;
            self.events.push(acknowledged, Event::Complete(slot));
            let owed = self.translation.write(request.offset, request.length);
            self.buffer.moved += owed.moved_pages * CHUNK as f64;
            self.buffer.erases += owed.erases;
            while self.buffer.gathered >= self.parameters.program_size.value.get().max(1) {
                self.buffer.gathered -= self.parameters.program_size.value.get().max(1);
                self.program_host_data(now);
            }
        }
    }

    fn program_host_data(&mut self, now: Nanos) {
        let done = self.program(now, Nanos::ZERO);
        self.events.push(done, Event::Programmed);
        let size = self.parameters.program_size.value.get().max(1);
        let pages = size.div_ceil(self.parameters.flash_page.value.get().max(CHUNK));
        // Moved data is read first, on a unit of the same kind.
        let reads = self.parameters.read_time.value * pages;
        while self.buffer.moved >= size as f64 {
            self.buffer.moved -= size as f64;
            self.program(now, reads);
        }
    }

    /// Occupies the next unit (or plane) for a program, and for an erase when one is due.
    fn program(&mut self, now: Nanos, before: Nanos) -> Nanos {
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
        let done = (*free).max(now) + before + self.parameters.program_time.value;
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

    fn happen(&mut self, now: Nanos, event: Event, done: &mut Vec<Completion>) {
        match event {
            Event::AtController(slot) => {
                let start = self.controller_free.max(now);
                self.controller_free = start + self.parameters.controller_time.value;
                self.events.push(self.controller_free, Event::Arrived(slot));
            }
            Event::Arrived(slot) => match self.slots[slot as usize].request.direction {
                Direction::Read => self.read_pages(now, slot),
                Direction::Write => self.write_arrived(now, slot),
            },
            Event::PageRead(slot, channel, chunks) => {
                let free = &mut self.channel_free[channel as usize];
                *free = (*free).max(now) + self.parameters.channel_time.value * u64::from(chunks);
                self.events.push(*free, Event::OnLink(slot, chunks));
            }
            Event::OnLink(slot, chunks) => {
                let slot_now = &self.slots[slot as usize];
                let first = slot_now.pages_left == slot_now.pages;
                let end = self.cross_link(now, u64::from(chunks), first);
                let pages_left = &mut self.slots[slot as usize].pages_left;
                *pages_left -= 1;
                if *pages_left == 0 {
                    self.events.push(end, Event::Complete(slot));
                }
            }
            Event::Complete(slot) => {
                done.push(Completion { id: self.slots[slot as usize].request.id, at: now });
                self.free_slots.push(slot);
                if let Some(request) = self.outside.pop_front() {
                    self.admit(now, request);
                }
            }
            Event::Programmed => {
                let freed = self.parameters.program_size.value.get().max(1);
                self.buffer.used = self.buffer.used.saturating_sub(freed);
                self.fill_buffer(now);
            }
        }
    }
}

impl Device for Nand {
    fn submit(&mut self, now: Nanos, request: Request) {
        if self.in_flight() < self.parameters.max_in_flight.value.max(1) as usize {
            self.admit(now, request);
        } else {
            self.outside.push_back(request);
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        self.events.next_time()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some((at, event)) = self.events.pop_due(now) {
            self.happen(at, event, done);
        }
    }
}
