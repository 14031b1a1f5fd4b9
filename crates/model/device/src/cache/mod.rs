//! A cache on a fast device in front of a slow one, as in Open CAS and dm-cache.
//!
//! # Model
//! Addresses are cached in lines; the least recently used clean one is replaced. A read whose lines are all
//! cached goes to the fast device; others go to the slow one and, after `promotion_hits` misses of the first
//! line, into the cache in the background. Writes: **write-back** goes to the fast device, with a metadata
//! write for a line that becomes dirty; **write-through** to both; **write-around** to the slow one, and the
//! lines are dropped. Without a clean line, requests pass through to the slow device (the performance drop of
//! a full cache), and some lines are cleaned. A cleaner with `clean_depth` lines in flight reads dirty lines,
//! oldest first, and writes them to the slow device: when no line is clean, and from `dirty_high` of the
//! cache until a tenth less is dirty. With `dirty_max`, writes wait at that share, as a page cache throttles
//! its writers; otherwise they pass through. Every request takes `lookup_time` first.
//!
//! # Source
//! Open CAS Linux documentation (cache modes, ALRU cleaning, promotion, pass-through when eviction fails) and
//! its framework (<https://github.com/Open-CAS/ocf>, `lru.c`: clean and dirty lines in separate lists, 32
//! lines cleaned if no clean one is left); Linux `Documentation/admin-guide/device-mapper/cache.rst`.
//!
//! Invariant: a line is dirty exactly if the slow device lacks its last write.

mod lines;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos, Share};

use self::lines::Ends;
use crate::below::Below;
use crate::constant::Constant;
use crate::request::Route;
use crate::slab::Slab;
use crate::{Completion, Device, EventQueue, Operation, Request, Stage};

/// Write policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheMode {
    /// Acknowledged by the fast device.
    WriteBack,
    /// Acknowledged by both.
    WriteThrough,
    /// To the slow device only.
    WriteAround,
}

/// Constants of a cache.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CacheParameters {
    /// Name of the fast device, or a profile file.
    pub fast: String,
    /// Name of the slow device, or a profile file.
    pub slow: String,
    /// Write policy.
    pub mode: Constant<CacheMode>,
    /// Capacity of the fast device used for caching, bytes.
    pub size: Constant<Bytes>,
    /// Bytes of a line.
    pub line: Constant<Bytes>,
    /// CPU for looking lines up.
    pub lookup_time: Constant<Nanos>,
    /// Misses of a line before it is cached; 1: at the first.
    pub promotion_hits: Constant<u32>,
    /// Bytes written to the fast device when a line becomes dirty; 0: none.
    pub metadata_write: Constant<Bytes>,
    /// Share of dirty lines at which cleaning begins.
    pub dirty_high: Constant<Share>,
    /// Share of dirty lines at which writes wait; absent: they pass through without a clean line.
    pub dirty_max: Option<Constant<Share>>,
    /// Lines cleaned at once.
    pub clean_depth: Constant<u32>,
}

/// A hash of one multiplication: sufficient for line numbers, and portable.
#[derive(Debug, Clone, Default)]
struct LineHasher(u64);

impl Hasher for LineHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
}

type LineMap<T> = HashMap<u64, T, BuildHasherDefault<LineHasher>>;

/// The host queue of the cache's own copies.
const OWN: u16 = u16::MAX;
/// No neighbour in the list.
const NONE: u32 = u32::MAX;

/// A cached line in one of the lists from most to least recently used.
#[derive(Debug, Clone, Copy)]
struct Line {
    number: u64,
    newer: u32,
    older: u32,
    dirty: bool,
}

/// A request of the cache to one of its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// For the user; `left` requests remain.
    User { request: Request, path: Route, left: u32, fill: bool },
    /// Fills a line after a miss.
    Fill,
    /// The cleaner reads a line from the fast device; the second field is the sequence number at which it
    /// became dirty.
    CleanRead(u32, u64),
    /// The cleaner writes it to the slow device.
    CleanWrite(u64),
}

/// A cache.
#[derive(Debug, Clone)]
pub struct Cache<D> {
    fast: Below<D>,
    slow: Below<D>,
    mode: CacheMode,
    line: u64,
    capacity: usize,
    lookup_time: Nanos,
    promotion_hits: u32,
    metadata_write: u32,
    dirty_high: usize,
    /// Maximum number of dirty lines; `usize::MAX` without a limit.
    dirty_max: usize,
    /// Writes that wait for lines to be cleaned.
    throttled: VecDeque<u32>,
    clean_depth: usize,
    lines: Vec<Line>,
    map: LineMap<u32>,
    clean_lines: Ends,
    dirty_lines: Ends,
    /// Free indices of earlier jobs.
    free: Vec<u32>,
    /// Lines to clean because no line was free.
    to_clean: usize,
    /// Misses of lines that are not cached yet.
    misses: LineMap<u32>,
    /// Dirty lines in the order in which they became dirty; may include cleaned ones.
    dirty_order: VecDeque<(u32, u64)>,
    /// Lines that have become dirty so far.
    dirtied: u64,
    /// Flushes that wait for cleaning, each with the sequence number up to which lines must be clean.
    flushes: VecDeque<(u32, u64)>,
    dirty: usize,
    /// Lines being cleaned, by the sequence number at which they became dirty.
    cleaning: Vec<u64>,
    clean_on: bool,
    jobs: Slab<Work>,
    looked_up: EventQueue<u32>,
    finished: Vec<Completion>,
}

impl<D: Device> Cache<D> {
    /// An empty cache.
    #[must_use]
    pub fn new(parameters: &CacheParameters, fast: D, slow: D) -> Self {
        let p = parameters;
        let line = p.line.value.get().max(512);
        let capacity = usize::try_from(p.size.value.get() / line).unwrap_or(usize::MAX).max(1);
        let part = |share: Share| ((capacity as f64 * share.fraction()) as usize).max(1);
        Self {
            fast: Below::new(fast),
            slow: Below::new(slow),
            mode: p.mode.value,
            line,
            capacity,
            lookup_time: p.lookup_time.value,
            promotion_hits: p.promotion_hits.value.max(1),
            metadata_write: p.metadata_write.value.get() as u32,
            dirty_high: part(p.dirty_high.value),
            dirty_max: p.dirty_max.as_ref().map_or(usize::MAX, |share| part(share.value)),
            throttled: VecDeque::new(),
            clean_depth: p.clean_depth.value.max(1) as usize,
            lines: Vec::new(),
            map: LineMap::default(),
            clean_lines: Ends::EMPTY,
            dirty_lines: Ends::EMPTY,
            free: Vec::new(),
            to_clean: 0,
            misses: LineMap::default(),
            dirty_order: VecDeque::new(),
            dirtied: 0,
            flushes: VecDeque::new(),
            dirty: 0,
            cleaning: Vec::new(),
            clean_on: false,
            jobs: Slab::default(),
            looked_up: EventQueue::default(),
            finished: Vec::new(),
        }
    }

    /// Lines that are dirty now.
    #[must_use]
    pub fn dirty_lines(&self) -> usize {
        self.dirty
    }

    fn numbers(&self, request: Request) -> std::ops::RangeInclusive<u64> {
        let last = request.offset + u64::from(request.length.max(1)) - 1;
        request.offset / self.line..=last / self.line
    }

    /// Submits an operation of a job to the fast device, at the slot of its first line.
    fn submit_fast(&mut self, now: Nanos, job: u32, place: u32, request: Request) {
        let offset = u64::from(place) * self.line;
        self.fast.submit(now, Request { offset, ..request.named(u64::from(job)) });
    }

    fn submit_slow(&mut self, now: Nanos, job: u32, request: Request) {
        self.slow.submit(now, request.named(u64::from(job)));
    }

    fn serve(&mut self, now: Nanos, job: u32) {
        let Work::User { request, mut path, .. } = self.jobs.get(job) else { return };
        if request.operation.changes() && self.dirty >= self.dirty_max {
            self.throttled.push_back(job);
            return;
        }
        path.until(Stage::Cache, now);
        let (left, fill) = match request.operation {
            Operation::Read => self.read(now, job, request),
            Operation::Write | Operation::WriteZeroes => (self.write(now, job, request), false),
            Operation::Flush => (self.flush(now, job, request), false),
            Operation::Discard => (self.discard(now, job, request), false),
        };
        *self.jobs.at(job) = Work::User { request, path, left, fill };
        self.clean(now);
    }

    fn read(&mut self, now: Nanos, job: u32, request: Request) -> (u32, bool) {
        let mut first = None;
        let mut hit = true;
        for number in self.numbers(request) {
            match self.map.get(&number).copied() {
                Some(place) => {
                    self.touch(place);
                    first = first.or(Some(place));
                }
                None => hit = false,
            }
        }
        if let (true, Some(place)) = (hit, first) {
            self.submit_fast(now, job, place, request);
            return (1, false);
        }
        self.submit_slow(now, job, request);
        let misses = self.misses.entry(request.offset / self.line).or_insert(0);
        *misses += 1;
        (1, *misses >= self.promotion_hits)
    }

    fn write(&mut self, now: Nanos, job: u32, request: Request) -> u32 {
        if self.mode == CacheMode::WriteAround {
            return self.discard(now, job, request);
        }
        let Some(place) = self.allocate_all(request) else {
            self.submit_slow(now, job, request);
            return 1;
        };
        self.submit_fast(now, job, place, request);
        // Durable data must not be on a volatile fast device alone.
        if self.mode == CacheMode::WriteThrough || request.fua && self.fast.forgets() {
            self.submit_slow(now, job, request);
            return 2;
        }
        let changed = self.mark_dirty(request);
        if changed && self.metadata_write > 0 {
            let Request { fua, queue, .. } = request;
            let metadata = Request { fua, queue, ..Request::write(0, 0, self.metadata_write) };
            self.submit_fast(now, job, place, metadata);
            return 2;
        }
        1
    }

    /// Sends the request (a discard, or a write-around write) to the slow device and drops its cached lines,
    /// dirty data included.
    fn discard(&mut self, now: Nanos, job: u32, request: Request) -> u32 {
        for number in self.numbers(request) {
            self.forget(number);
        }
        self.submit_slow(now, job, request);
        1
    }

    /// Flushes both devices; if the fast one is volatile, all dirty lines are written to the slow one first.
    fn flush(&mut self, now: Nanos, job: u32, request: Request) -> u32 {
        if self.fast.forgets() && self.dirty + self.cleaning.len() > 0 {
            self.flushes.push_back((job, self.dirtied));
            return 1;
        }
        self.submit_slow(now, job, request);
        self.fast.submit(now, request.named(u64::from(job)));
        2
    }

    /// Sends flushes to the slow device once every line that was dirty on their arrival is clean.
    fn go_on_with_flushes(&mut self, now: Nanos) {
        while let Some(&(job, dirtied)) = self.flushes.front() {
            let waiting = self.dirty_order.front().is_some_and(|(_, number)| *number < dirtied);
            if waiting || self.cleaning.iter().any(|number| *number < dirtied) {
                return;
            }
            self.flushes.pop_front();
            if let Work::User { request, path, .. } = self.jobs.at(job) {
                path.until(Stage::Cache, now);
                let request = *request;
                self.submit_slow(now, job, request);
            }
        }
    }

    /// Starts to clean lines while too many are dirty.
    fn clean(&mut self, now: Nanos) {
        let low = self.dirty_high - self.dirty_high / 10;
        self.clean_on = self.dirty >= if self.clean_on { low } else { self.dirty_high };
        let on = self.clean_on || !self.flushes.is_empty();
        while (on || self.to_clean > 0) && self.cleaning.len() < self.clean_depth {
            let Some((place, number)) = self.dirty_order.pop_front() else { return };
            if !self.lines[place as usize].dirty {
                continue;
            }
            self.to_clean = self.to_clean.saturating_sub(1);
            self.cleaning.push(number);
            let job = self.jobs.put(Work::CleanRead(place, number));
            self.submit_fast(now, job, place, Request::read(0, 0, self.line as u32).by(OWN));
        }
    }

    fn device_done(&mut self, completion: Completion, done: &mut Vec<Completion>) {
        let (job, now) = (completion.id as u32, completion.at);
        match self.jobs.get(job) {
            Work::User { request, path, left, fill } if left > 1 => {
                *self.jobs.at(job) = Work::User { request, path, left: left - 1, fill };
            }
            Work::User { request, mut path, fill, .. } => {
                self.jobs.take(job);
                // The request waits for the device that completes last.
                path.below(&completion);
                done.push(path.done(request.id));
                if let Some(place) = fill.then(|| self.allocate_all(request)).flatten() {
                    let fill = self.jobs.put(Work::Fill);
                    self.submit_fast(
                        now,
                        fill,
                        place,
                        Request::write(0, 0, request.length).by(OWN),
                    );
                }
                // Cleans lines if none is free.
                if self.to_clean > 0 {
                    self.clean(now);
                }
            }
            Work::Fill => {
                self.jobs.take(job);
            }
            // The line was dropped in the meantime.
            Work::CleanRead(place, order) if !self.lines[place as usize].dirty => {
                self.cleaned(now, job, order);
            }
            Work::CleanRead(place, order) => {
                *self.jobs.at(job) = Work::CleanWrite(order);
                let number = self.lines[place as usize].number;
                let (offset, length) = (number.saturating_mul(self.line), self.line as u32);
                // Later writes make it dirty again.
                self.turn(place, false);
                self.slow.submit(now, Request::write(u64::from(job), offset, length).by(OWN));
            }
            Work::CleanWrite(order) => self.cleaned(now, job, order),
        }
    }

    /// A line has become clean.
    fn cleaned(&mut self, now: Nanos, job: u32, order: u64) {
        self.jobs.take(job);
        self.cleaning.retain(|number| *number != order);
        self.clean(now);
        self.go_on_with_flushes(now);
        // Writers continue up to the limit of dirty lines; a rewritten line may be dirty already.
        while self.dirty < self.dirty_max
            && let Some(waiting) = self.throttled.pop_front()
        {
            self.serve(now, waiting);
        }
    }
}

impl<D: Device> Device for Cache<D> {
    /// Clean data is on the slow device as well; a flush writes back dirty data of a volatile fast device.
    fn forgets(&self) -> bool {
        self.slow.forgets()
    }

    fn submit(&mut self, now: Nanos, request: Request) {
        let path = Route::new(now);
        let job = self.jobs.put(Work::User { request, path, left: 0, fill: false });
        self.looked_up.push(now + self.lookup_time, job);
    }

    fn next_event(&self) -> Option<Nanos> {
        let own = self.looked_up.next_time().unwrap_or(Nanos::MAX);
        let next = own.min(self.fast.next()).min(self.slow.next());
        (next < Nanos::MAX).then_some(next)
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            if let Some((at, job)) = self.looked_up.pop_due(at) {
                self.serve(at, job);
                continue;
            }
            let mut finished = std::mem::take(&mut self.finished);
            if self.fast.next() == at {
                self.fast.advance(at, &mut finished);
            }
            if self.slow.next() == at {
                self.slow.advance(at, &mut finished);
            }
            for completion in finished.drain(..) {
                self.device_done(completion, done);
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

    fn ram(micros: u64) -> Ram {
        Ram::taking(Nanos::from_micros(micros), Nanos::ZERO)
    }

    /// Fast takes 10 us, slow 100 us; 8 lines of 4 KiB.
    fn cache(mode: CacheMode, dirty_high: &str) -> Cache<Ram> {
        let parameters = CacheParameters {
            fast: String::new(),
            slow: String::new(),
            mode: constant(mode),
            size: constant(Bytes(8 * 4096)),
            line: constant(Bytes(4096)),
            lookup_time: constant(Nanos::ZERO),
            promotion_hits: constant(1),
            metadata_write: constant(Bytes(0)),
            dirty_high: constant(dirty_high.parse().unwrap()),
            dirty_max: None,
            clean_depth: constant(1),
        };
        Cache::new(&parameters, ram(10), ram(100))
    }

    /// Microseconds of one operation on an idle cache.
    fn takes(cache: &mut Cache<Ram>, second: u64, operation: Operation, line: u64) -> u64 {
        let now = Nanos::from_secs(second);
        let mut done = Vec::new();
        cache.advance(now, &mut done);
        done.clear();
        let request = Request { operation, ..Request::read(1, line * 4096, 4096) };
        cache.submit(now, request);
        while done.is_empty() {
            let next = cache.next_event().expect("something happens");
            cache.advance(next, &mut done);
        }
        done[0].at.since(now).get() / 1000
    }

    #[test]
    fn a_read_is_slow_once() {
        let mut cache = cache(CacheMode::WriteBack, "100%");
        assert_eq!(takes(&mut cache, 1, Operation::Read, 5), 100);
        assert_eq!(takes(&mut cache, 2, Operation::Read, 5), 10);
        // Eight others evict it: the least recently used goes first.
        for line in 10..18 {
            takes(&mut cache, 3 + line, Operation::Read, line);
        }
        assert_eq!(takes(&mut cache, 40, Operation::Read, 5), 100);
    }

    #[test]
    fn modes_decide_who_acknowledges_a_write() {
        assert_eq!(takes(&mut cache(CacheMode::WriteBack, "100%"), 1, Operation::Write, 1), 10);
        assert_eq!(takes(&mut cache(CacheMode::WriteThrough, "100%"), 1, Operation::Write, 1), 100);
        let mut around = cache(CacheMode::WriteAround, "100%");
        takes(&mut around, 1, Operation::Read, 1);
        assert_eq!(takes(&mut around, 2, Operation::Write, 1), 100);
        assert_eq!(takes(&mut around, 3, Operation::Read, 1), 100, "the line was dropped");
    }

    /// The dirty-line stall: with nothing clean to replace, writes run at the speed of the slow device.
    #[test]
    fn without_clean_lines_writes_pass_through() {
        let mut cache = cache(CacheMode::WriteBack, "100%");
        for line in 0..7 {
            assert_eq!(takes(&mut cache, 1 + line, Operation::Write, line), 10);
        }
        let now = Nanos::from_secs(20);
        for line in 10..14 {
            cache.submit(now, Request::write(line, line * 4096, 4096));
        }
        let mut done = Vec::new();
        cache.advance(Nanos::from_secs(21), &mut done);
        assert_eq!(done.len(), 4);
        let slowest = done.iter().map(|c| c.at.since(now).get() / 1000).max();
        assert!(slowest >= Some(100), "{slowest:?}");
    }

    /// Old dirty lines must not prevent reads from being cached.
    #[test]
    fn reads_are_cached_beside_old_dirty_lines() {
        let mut cache = cache(CacheMode::WriteBack, "100%");
        for line in 0..6 {
            takes(&mut cache, 1 + line, Operation::Write, line);
        }
        for line in 10..20 {
            assert_eq!(takes(&mut cache, 2 * line, Operation::Read, line), 100);
            assert_eq!(takes(&mut cache, 2 * line + 1, Operation::Read, line), 10);
        }
        assert_eq!(cache.dirty_lines(), 6);
    }

    /// A cache full of dirty lines must clean some, or it would never cache again.
    #[test]
    fn without_room_some_lines_are_cleaned() {
        let mut cache = cache(CacheMode::WriteBack, "100%");
        cache.dirty_high = usize::MAX;
        for line in 0..8 {
            takes(&mut cache, 1 + line, Operation::Write, line);
        }
        assert_eq!(takes(&mut cache, 20, Operation::Read, 20), 100, "it passes");
        assert_eq!(takes(&mut cache, 21, Operation::Read, 20), 100, "there was no room yet");
        assert_eq!(takes(&mut cache, 22, Operation::Read, 20), 10);
        assert!(cache.dirty_lines() < 8);
    }

    /// As a page cache without bypass: at the dirty limit, writers are throttled to the cleaner's speed.
    #[test]
    fn at_the_limit_writers_wait_for_the_cleaner() {
        let mut cache = cache(CacheMode::WriteBack, "25%");
        cache.dirty_max = 4;
        for line in 0..40u64 {
            cache.submit(Nanos::ZERO, Request::write(line, line * 4096, 4096));
        }
        let mut done = Vec::new();
        cache.advance(Nanos::from_secs(1), &mut done);
        assert_eq!(done.len(), 40, "nobody waits for ever");
        assert!(cache.dirty_lines() <= 4);
        // Four at once, then one for each line read (10 us) and written (100 us).
        let last = done.last().unwrap().at.get() / 1000;
        assert!((34 * 110..38 * 110).contains(&last), "{last}");
    }

    /// Writers that wait while lines are rewritten must not be forgotten when cleaning stops.
    #[test]
    fn every_writer_that_waits_goes_on() {
        let mut cache = cache(CacheMode::WriteBack, "50%");
        cache.dirty_max = 6;
        for id in 0..300u64 {
            let line = if id < 6 { id } else { id % 2 };
            cache.submit(Nanos::ZERO, Request::write(id, line * 4096, 4096));
        }
        let mut done = Vec::new();
        cache.advance(Nanos::from_secs(10), &mut done);
        assert_eq!(done.len(), 300);
    }

    #[test]
    fn the_cleaner_brings_dirty_lines_below_its_mark() {
        let mut cache = cache(CacheMode::WriteBack, "50%");
        for line in 0..8 {
            takes(&mut cache, 1 + line, Operation::Write, line);
        }
        cache.advance(Nanos::from_secs(60), &mut Vec::new());
        assert!(cache.dirty_lines() < 4, "{}", cache.dirty_lines());
    }
}
