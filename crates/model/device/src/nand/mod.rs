//! NAND flash behind a controller: serial controller, independently readable units, channels, a link, and a
//! write buffer with early acknowledgement and large programs.
//!
//! # Model
//! A request is admitted while fewer than `max_in_flight` are (SATA's NCQ), or than an NVMe drive fetches
//! (`commands_inside`; others wait, host queues in turn: [`arbiter`]), passes `front_time` and the serial
//! controller. A read is split into flash pages; each takes `read_time` with a small normal spread on the
//! unit of its `stripe`, then crosses its channel and the link. A write crosses the link, takes buffer slots
//! (waiting while it is full) and is acknowledged after `write_ack_time`, counted from the end of a handover
//! if it arrives during one (`handover_time`); a partly covered chunk is read first. A full `program_size` is
//! programmed on an idle plane, `program_units` at once; its slots are free when that begins. [`planes`]
//! shares a plane between reads and programs. [`translation`] gives the pages that each host write makes
//! garbage collection move: they are read and programmed like host data, as they are due or in bursts
//! (`collection_burst`); and the erases. Reads wait behind writes that have waited for `write_wait_max` on
//! their arrival. Two disturbances independent of reads: a background stall of some units about every
//! `stall_period`, and a pause of the plane after a share of the erases. Each stage is a real event:
//! computing later stages at submission is wrong after a variable one.
//!
//! # Source
//! Structure and read constants: fitted on raw fio data of one drive and tested on held-out depths. Reads
//! before suspended programs, collection bursts, reads behind writes: percentiles of six drives at set write
//! rates (Haas et al., PVLDB 18, 2025, raw data), some of them held out (docs/VALIDATION.md). Program units,
//! erase and write amplification: datasheets, cited in the profiles.
//!
//! Invariant: due collection is programmed before more host data is accepted than the buffer and one burst
//! hold.

mod arbiter;
mod page_level;
mod parameters;
mod planes;
mod translation;
mod writes;

pub(crate) use page_level::PageLevel;
pub use parameters::{NandParameters, WriteCache};
pub use translation::{Collection, Condition, steady_write_amplification};

use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp1, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Bytes, Nanos, Seed};

use arbiter::Arbiter;
use planes::{Planes, Purpose, Task};
use translation::Translation;
use writes::WriteBuffer;

use crate::slab::Slab;
use crate::{CHUNK, Completion, Device, Event, EventQueue, Operation, Request, Stage, Stages};

/// The request in this slot reaches the controller. Earlier times vary, so the arrival order is unknown at
/// submission.
const AT_CONTROLLER: u32 = 0;
/// The controller is done with the request in this slot.
const ARRIVED: u32 = 1;
/// This flash page was read.
const PAGE_READ: u32 = 2;
/// The page has crossed its channel.
const ON_LINK: u32 = 3;
/// The request in this slot is done.
const COMPLETE: u32 = 4;
/// The work on this plane may be done.
const WORKED: u32 = 5;

#[derive(Debug, Clone, Copy)]
struct Slot {
    request: Request,
    submitted: Nanos,
    pages: u32,
    pages_left: u32,
    /// For a read, once known, the chunks of 4 KiB and media time of the page that it waits for; for a write
    /// or flush, the time of the program that it waits for.
    chunks: u32,
    media: Nanos,
    /// For a write, arrival at the buffer and, once inside, its acknowledgement; for a read or flush, when it
    /// passed the controller.
    arrived: Nanos,
    /// For a flush: time waiting for programs in flight.
    cache: Nanos,
}

/// A flash page on its way to the link.
#[derive(Debug, Clone, Copy)]
struct Page {
    slot: u32,
    channel: u32,
    chunks: u32,
    /// Media time of its read, nanoseconds.
    media: u32,
}

/// A NAND device.
#[derive(Debug, Clone)]
pub struct Nand {
    parameters: NandParameters,
    random: Xoshiro256PlusPlus,
    events: EventQueue<Event>,
    slots: Slab<Slot>,
    /// Requests that wait for admission.
    outside: Arbiter,
    /// Maximum number of admitted requests, and whether the host's queues take turns.
    inside_max: usize,
    in_turns: bool,
    pages: Slab<Page>,
    /// Bytes per flash read.
    page: Step,
    /// Bytes at consecutive addresses on one unit.
    stripe: Step,
    controller_free: Nanos,
    link_free: Nanos,
    planes: Planes,
    /// `[channel]`: when it is next free.
    channel_free: Vec<Nanos>,
    buffer: WriteBuffer,
    translation: Translation,
    /// Start of the next background stall.
    next_stall: Nanos,
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
        let seed = seed.derive("nand", 0);
        let (collection, drive) = (parameters.collection.value, parameters.drive(capacity));
        let translation = seed.derive("translation", 0).0;
        let page = parameters.flash_page.value.get().max(CHUNK);
        let mut nand = Self {
            page: Step::new(page),
            stripe: Step::new(parameters.stripe.as_ref().map_or(page, |one| one.value.get())),
            parameters: parameters.clone(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed.0),
            events: EventQueue::default(),
            slots: Slab::default(),
            outside: Arbiter::default(),
            inside_max: parameters.inside_max() as usize,
            in_turns: parameters.commands_inside.is_some(),
            pages: Slab::default(),
            controller_free: Nanos::ZERO,
            link_free: Nanos::ZERO,
            planes: {
                let random = Xoshiro256PlusPlus::seed_from_u64(seed.derive("planes", 0).0);
                Planes::new((units, programs), parameters.reads_first(), random)
            },
            channel_free: vec![Nanos::ZERO; channels],
            buffer: WriteBuffer::default(),
            translation: Translation::new(collection, drive, condition, translation),
            next_stall: Nanos::MAX,
        };
        nand.next_stall = nand.stall_after(Nanos::ZERO);
        nand
    }

    /// Start of the first background stall after `now`.
    fn stall_after(&mut self, now: Nanos) -> Nanos {
        let Some(period) = &self.parameters.stall_period else { return Nanos::MAX };
        let draw: f64 = Exp1.sample(&mut self.random);
        now + Nanos((draw * period.value.get() as f64) as u64 + 1)
    }

    /// Starts the background stalls due by `now`: some neighbouring units stop.
    fn stall(&mut self, now: Nanos) {
        let value = |constant: Option<Nanos>| constant.unwrap_or(Nanos::ZERO);
        let takes = value(self.parameters.stall_time.as_ref().map(|time| time.value));
        let all = self.planes.units();
        let wanted = self.parameters.stalled_units.as_ref().map_or(0, |units| units.value as usize);
        while self.next_stall <= now {
            let (begins, first) = (self.next_stall, self.random.next_u64() as usize % all);
            self.planes.stand_still(begins, (first, wanted), takes);
            self.next_stall = self.stall_after(begins + takes);
        }
    }

    fn admit(&mut self, now: Nanos, request: Request, submitted: Nanos) {
        if self.next_stall <= now {
            self.stall(now);
        }
        let front = match request.operation {
            Operation::Read => self.parameters.front_time.value,
            _ => self.parameters.front_time_write.value,
        };
        let (media, cache) = (Nanos::ZERO, Nanos::ZERO);
        let taken = Slot {
            request,
            submitted,
            pages: 0,
            pages_left: 0,
            chunks: 0,
            media,
            arrived: now,
            cache,
        };
        let slot = self.slots.put(taken);
        self.events.push(now + front, Event::new(AT_CONTROLLER, slot));
    }

    fn read_pages(&mut self, now: Nanos, slot: u32) {
        let request = self.slots.get(slot).request;
        let page = self.page;
        let end = request.offset + u64::from(request.length);
        let (mut at, mut pages) = (request.offset, 0);
        while at < end {
            let number = page.of(at);
            let next = (number + 1) * page.bytes;
            let bytes = (next.min(end) - at) as u32;
            let (unit, takes) = (self.unit_of(at), self.read_time());
            let done = self.planes.read(now, (unit, number), takes);
            let channel = unit % self.channel_free.len();
            let chunks = Request::read(0, at, bytes).chunks() as u32;
            let media = u32::try_from(takes.get()).unwrap_or(u32::MAX);
            let place = self.pages.put(Page { slot, channel: channel as u32, chunks, media });
            self.events.push(done, Event::new(PAGE_READ, place));
            at = next;
            pages += 1;
        }
        let slot = self.slots.at(slot);
        (slot.pages, slot.pages_left) = (pages, pages);
    }

    /// The unit of the data at `offset`: neighbouring stripes are on different units.
    #[inline]
    fn unit_of(&self, offset: u64) -> usize {
        let stripe = self.stripe.of(offset);
        let units = self.planes.units() as u64;
        let (round, place) = (stripe / units, stripe % units);
        let place = place + Seed(round).derive("unit", 0).0 % units;
        (if place < units { place } else { place - units }) as usize
    }

    fn read_time(&mut self) -> Nanos {
        let draw: f64 = StandardNormal.sample(&mut self.random);
        let mean = self.parameters.read_time.value.get() as f64;
        let spread = self.parameters.read_time_sigma.value.get() as f64;
        Nanos((mean + draw * spread).max(mean / 2.0) as u64)
    }

    /// Transfers data over the link; a request's first data includes the per-request cost.
    fn cross_link(&mut self, now: Nanos, chunks: u64, first: bool) -> Nanos {
        let beside = if first { self.parameters.link_request_time.value } else { Nanos::ZERO };
        let data = self.parameters.link_time.value * chunks;
        self.link_free = self.link_free.max(now) + beside + data;
        self.link_free
    }

    #[inline]
    fn controller_time(&self, request: Request) -> Nanos {
        let p = &self.parameters;
        match &p.controller_time_write {
            Some(write) if request.operation != Operation::Read => write.value,
            _ => p.controller_time.value,
        }
    }

    /// The completion of a request with its stages: constants, the slot's records, and waiting.
    #[inline]
    fn completion(&self, now: Nanos, slot: &Slot) -> Completion {
        let p = &self.parameters;
        let request = &slot.request;
        let (front, link) = match request.operation {
            Operation::Read => (p.front_time.value, u64::from(slot.chunks)),
            Operation::Write => {
                (p.front_time_write.value + p.write_ack_time.value, request.chunks())
            }
            _ => (p.front_time_write.value, 0),
        };
        // For a read of several pages, the first one over the link carries the cost of the request.
        let mut transfer = p.link_time.value * link;
        if link > 0 && slot.pages <= 1 {
            transfer += p.link_request_time.value;
        }
        if request.operation == Operation::Read {
            transfer += p.channel_time.value * link;
        }
        let parts = [
            (Stage::Controller, front + self.controller_time(*request)),
            (Stage::Media, slot.media),
            (Stage::Transfer, transfer),
            (Stage::Cache, slot.cache),
        ];
        Completion {
            id: request.id,
            at: now,
            stages: Stages::new(now.since(slot.submitted), parts),
        }
    }

    fn happen(&mut self, now: Nanos, event: Event, done: &mut Vec<Completion>) {
        let of = event.of();
        match event.kind() {
            AT_CONTROLLER => {
                let slot = of;
                let start = self.controller_free.max(now);
                self.controller_free = start + self.controller_time(self.slots.get(slot).request);
                self.events.push(self.controller_free, Event::new(ARRIVED, slot));
            }
            ARRIVED => {
                let slot = of;
                let Request { operation, offset, length, .. } = self.slots.get(slot).request;
                match operation {
                    Operation::Read => self.read_arrived(now, slot),
                    Operation::Write => self.write_arrived(now, slot),
                    Operation::Flush => self.flush(now, slot),
                    // Both only change the mapping.
                    Operation::Discard | Operation::WriteZeroes => {
                        self.translation.discard(offset, length);
                        self.buffer.unmapped = true;
                        self.events.push(now, Event::new(COMPLETE, slot));
                    }
                }
            }
            PAGE_READ => {
                let place = of;
                let page = self.pages.at(place);
                let free = &mut self.channel_free[page.channel as usize];
                let takes = self.parameters.channel_time.value * u64::from(page.chunks);
                *free = (*free).max(now) + takes;
                self.events.push(*free, Event::new(ON_LINK, place));
            }
            ON_LINK => {
                let place = of;
                let page = self.pages.take(place);
                let slot = self.slots.get(page.slot);
                let first = slot.pages_left == slot.pages;
                let end = self.cross_link(now, u64::from(page.chunks), first);
                let slot = self.slots.at(page.slot);
                slot.pages_left -= 1;
                if slot.pages_left == 0 {
                    // The request waits for the last page over the link.
                    slot.chunks = page.chunks;
                    slot.media = Nanos(u64::from(page.media));
                    self.events.push(end, Event::new(COMPLETE, page.slot));
                }
            }
            COMPLETE => {
                let slot = of;
                let slot = self.slots.take(slot);
                done.push(self.completion(now, &slot));
                if let Some((request, submitted)) = self.outside.pop() {
                    self.admit(now, request, submitted);
                }
            }
            _ => {
                debug_assert_eq!(event.kind(), WORKED);
                self.worked(now, of);
            }
        }
    }
}

/// A divisor of offsets, used once per page: most are powers of two.
#[derive(Debug, Clone, Copy)]
struct Step {
    bytes: u64,
    /// Its logarithm, if it is a power of two.
    shift: Option<u32>,
}

impl Step {
    fn new(bytes: u64) -> Self {
        Self { bytes, shift: bytes.is_power_of_two().then(|| bytes.trailing_zeros()) }
    }

    /// Number of whole units before `offset`.
    #[inline(always)]
    fn of(self, offset: u64) -> u64 {
        match self.shift {
            Some(shift) => offset >> shift,
            None => offset / self.bytes,
        }
    }
}

impl Device for Nand {
    fn submit(&mut self, now: Nanos, request: Request) {
        if self.slots.in_use() < self.inside_max {
            self.admit(now, request, now);
        } else {
            let queue = if self.in_turns { request.queue } else { 0 };
            self.outside.push(queue, request, now);
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
