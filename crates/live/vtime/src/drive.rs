//! The modelled drive under the files of a simulation: page cache, file system, device.
//!
//! The contents are in real files, read and written at once; here is only the time that it takes. Files get
//! places on the device in the order in which they are first touched.
//!
//! Invariant: an access is a chain of steps; the requests of a step run at once, and the next step begins
//! when the last of them is done.

use std::collections::{BTreeSet, HashMap, VecDeque};

use device::{Completion, Device, Operation, Request};
use sim::PageCache;
use sim::scheduler::{TaskId, Wait};
use units::Nanos;

use crate::wire::access;

/// Bytes of a page.
const PAGE: u64 = 4096;
/// Pages that are placed together.
const CHUNK: u64 = 256;
/// Largest request, pages: 1,280 KiB (`BLK_DEF_MAX_SECTORS_CAP`, Linux 6.18).
const REQUEST_MAX: u64 = 320;
/// Pages that a sequential buffered read reads ahead: 128 KiB (`VM_READAHEAD_PAGES`).
const READ_AHEAD: u64 = 32;
/// Pages of the journal, at the start of the device: 128 MiB, as mke2fs(8) makes on most disks.
const JOURNAL: u64 = 32_768;
/// Share of the cache that may be dirty before writers have to write back (`vm.dirty_ratio`), percent.
const DIRTY_PERCENT: u64 = 20;

/// How a flush of a file becomes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// A flush of new sizes commits the journal: its blocks, a flush, and a commit block with FUA (jbd2).
    Ext4,
    /// No journal: metadata is one more write before the flush.
    Ext4NoJournal,
}

/// What the drive did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DriveTotals {
    /// Requests that read.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Requests that wrote.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Pages of buffered reads that were in the page cache.
    pub hits: u64,
    /// Pages that were not.
    pub misses: u64,
    /// Sums of the times of reads, writes and flushes.
    pub times: [Nanos; 3],
}

#[derive(Debug, Default)]
struct File {
    /// First page on the device of each chunk.
    places: HashMap<u64, u64>,
    size: u64,
    dirty: BTreeSet<u64>,
    /// Its size or its directory entry changed since the last flush.
    metadata: bool,
    /// Where a sequential read would go on.
    next_read: u64,
    /// Pages of it are mapped by the program.
    mapped: bool,
}

type Step = Vec<Request>;

#[derive(Debug)]
struct Io {
    task: TaskId,
    steps: VecDeque<Step>,
    outstanding: usize,
    /// When its requests were submitted, and the place of their kind in [`DriveTotals::times`].
    began: Nanos,
    kind: usize,
}

/// An access to a file.
#[derive(Debug, Clone, Copy)]
pub struct FileAccess {
    /// Number of the file.
    pub file: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Flags of [`access`].
    pub flags: u64,
}

/// What becomes of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// It is done: only the page cache was needed.
    Done,
    /// The thread waits.
    Waits(Wait),
}

/// A step of a thread's access has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepEnd {
    /// The thread.
    pub task: TaskId,
    /// When.
    pub at: Nanos,
    /// What it waits for next; `None` if it is done.
    pub next: Option<Wait>,
}

/// Page cache, file system and device.
#[derive(Debug)]
pub struct Drive<D> {
    device: D,
    file_system: FileSystem,
    files: HashMap<u64, File>,
    cache: PageCache,
    /// Pages that the cache may hold, and those of the device.
    frames: u64,
    capacity: u64,
    placed: u64,
    /// File and chunk of each placed chunk.
    owners: HashMap<u64, (u64, u64)>,
    /// Mapped pages that left the cache, by file and byte, and that the program does not know of.
    evicted: VecDeque<(u64, u64)>,
    journal: u64,
    dirty: u64,
    pending: HashMap<u64, Io>,
    next_io: u64,
    done: Vec<Completion>,
    last: Nanos,
    totals: DriveTotals,
}

impl<D: Device> Drive<D> {
    /// An idle device of `capacity` bytes, with a cold page cache of `memory` bytes.
    pub fn new(device: D, capacity: u64, memory: u64, file_system: FileSystem) -> Self {
        let frames = (memory / PAGE).clamp(1, u64::from(u32::MAX));
        Self {
            device,
            file_system,
            files: HashMap::new(),
            cache: PageCache::new(0, frames as u32, sim::Recency::Marks),
            frames,
            capacity: (capacity / PAGE).clamp(JOURNAL + CHUNK, u64::from(u32::MAX)),
            placed: JOURNAL,
            owners: HashMap::new(),
            evicted: VecDeque::new(),
            journal: 0,
            dirty: 0,
            pending: HashMap::new(),
            next_io: 0,
            done: Vec::new(),
            last: Nanos::ZERO,
            totals: DriveTotals::default(),
        }
    }

    /// What it did so far.
    pub fn totals(&self) -> DriveTotals {
        self.totals
    }

    /// Time of the device's next event.
    pub fn next_event(&self) -> Option<Nanos> {
        self.device.next_event()
    }

    /// A thread reads or writes at `now`.
    pub fn access(&mut self, task: TaskId, now: Nanos, what: FileAccess) -> Begun {
        let writes = what.flags & access::WRITE != 0;
        let mut steps = VecDeque::new();
        let first = what.offset / PAGE;
        let last = (what.offset + what.length.max(1) - 1) / PAGE;
        if writes {
            let file = self.files.entry(what.file).or_default();
            let end = what.offset + what.length;
            file.metadata |= end > file.size;
            file.size = file.size.max(end);
        }
        let pages = first..=last;
        let operation = if writes { Operation::Write } else { Operation::Read };
        match (what.flags & access::DIRECT != 0, writes) {
            (true, _) => steps.push_back(self.runs(what.file, pages, operation)),
            (false, true) => self.write_cached(what.file, pages, &mut steps),
            (false, false) => {
                let ahead = what.flags & access::RANDOM == 0;
                if what.flags & access::MAPPED == 0 {
                    self.read_cached((what.file, ahead), pages, &mut steps);
                } else {
                    self.fault((what.file, ahead), first, &mut steps);
                }
            }
        }
        if writes && what.flags & access::SYNC != 0 {
            self.sync_steps(what.file, false, &mut steps);
        }
        self.note_evicted();
        self.begin(task, now, steps)
    }

    /// The next mapped page that left the cache, as file and byte.
    pub fn next_evicted(&mut self) -> Option<(u64, u64)> {
        self.evicted.pop_front()
    }

    fn note_evicted(&mut self) {
        for page in self.cache.take_evicted() {
            let place = u64::from(page);
            let Some((file, chunk)) = self.owners.get(&(place / CHUNK * CHUNK)) else { continue };
            if self.files.get(file).is_some_and(|file| file.mapped) {
                self.evicted.push_back((*file, (chunk * CHUNK + place % CHUNK) * PAGE));
            }
        }
    }

    /// A thread flushes a file at `now`, with its times of change or without.
    pub fn sync(&mut self, task: TaskId, now: Nanos, file: u64, metadata: bool) -> Begun {
        let mut steps = VecDeque::new();
        self.sync_steps(file, metadata, &mut steps);
        self.begin(task, now, steps)
    }

    /// The size of a file was set, or a file was made.
    pub fn resize(&mut self, file: u64, size: u64) {
        let file = self.files.entry(file).or_default();
        file.metadata = true;
        let kept = file.dirty.split_off(&size.div_ceil(PAGE));
        self.dirty -= kept.len() as u64;
        file.size = size;
    }

    /// A file that was there before the simulation.
    pub fn found(&mut self, file: u64, size: u64) {
        let file = self.files.entry(file).or_default();
        file.size = file.size.max(size);
    }

    /// A file is gone, and with it what was not written yet.
    pub fn remove(&mut self, file: u64) {
        if let Some(file) = self.files.remove(&file) {
            self.dirty -= file.dirty.len() as u64;
        }
    }

    /// Clean pages of a file leave the page cache; a length of 0 is to its end.
    pub fn evict(&mut self, file: u64, offset: u64, length: u64) {
        let Some(state) = self.files.get(&file) else { return };
        let end = if length == 0 { state.size } else { offset.saturating_add(length) };
        let pages = offset.div_ceil(PAGE)..end.min(state.size).div_ceil(PAGE);
        for page in pages.filter(|page| !state.dirty.contains(page)) {
            if let Some(first) = state.places.get(&(page / CHUNK)) {
                self.cache.forget((first + page % CHUNK) as u32);
            }
        }
    }

    /// Advances the device; appends the steps that ended.
    pub fn advance(&mut self, now: Nanos, ended: &mut Vec<StepEnd>) {
        self.last = self.last.max(now);
        let mut done = std::mem::take(&mut self.done);
        self.device.advance(self.last, &mut done);
        for completion in done.drain(..) {
            let Some(io) = self.pending.get_mut(&completion.id) else { continue };
            io.outstanding -= 1;
            self.totals.times[io.kind] += completion.at.since(io.began);
            if io.outstanding > 0 {
                continue;
            }
            let task = io.task;
            let next = self.submit_next(completion.id, completion.at);
            ended.push(StepEnd { task, at: completion.at, next });
        }
        self.done = done;
    }

    fn begin(&mut self, task: TaskId, now: Nanos, steps: VecDeque<Step>) -> Begun {
        let id = self.next_io;
        self.next_io += 1;
        self.pending.insert(id, Io { task, steps, outstanding: 0, began: now, kind: 0 });
        self.submit_next(id, now).map_or(Begun::Done, Begun::Waits)
    }

    /// Submits the next step of an access; returns what it waits for, or forgets the access.
    fn submit_next(&mut self, id: u64, now: Nanos) -> Option<Wait> {
        let io = self.pending.get_mut(&id)?;
        let step = loop {
            match io.steps.pop_front() {
                Some(step) if step.is_empty() => {}
                Some(step) => break step,
                None => {
                    self.pending.remove(&id);
                    return None;
                }
            }
        };
        io.outstanding = step.len();
        let queue = (io.task.0 % 64) as u16;
        self.last = self.last.max(now);
        let (wait, kind) = match step[0].operation {
            Operation::Read => (Wait::Read, 0),
            Operation::Flush => (Wait::Flush, 2),
            _ => (Wait::Write, 1),
        };
        (io.began, io.kind) = (self.last, kind);
        for request in step {
            let bytes = u64::from(request.length);
            let totals = &mut self.totals;
            match request.operation {
                Operation::Read => {
                    totals.reads += 1;
                    totals.read_bytes += bytes;
                }
                Operation::Flush => totals.flushes += 1,
                _ => {
                    totals.writes += 1;
                    totals.written_bytes += bytes;
                }
            }
            self.device.submit(self.last, Request { id, queue, ..request });
        }
        Some(wait)
    }

    fn read_cached(
        &mut self,
        (file, ahead): (u64, bool),
        pages: std::ops::RangeInclusive<u64>,
        steps: &mut VecDeque<Step>,
    ) {
        let (first, last) = (*pages.start(), *pages.end());
        let state = self.files.entry(file).or_default();
        let sequential = ahead && state.next_read == first && first > 0;
        state.next_read = last + 1;
        let size = state.size.div_ceil(PAGE);
        let mut missing: Vec<u64> = Vec::new();
        for page in pages {
            let place = self.place(file, page);
            if self.cache.access(place as u32) {
                self.totals.hits += 1;
            } else {
                self.totals.misses += 1;
                missing.push(page);
            }
        }
        if sequential && missing.last() == Some(&last) {
            for page in last + 1..size.min(last + READ_AHEAD) {
                let place = self.place(file, page);
                if !self.cache.access(place as u32) {
                    missing.push(page);
                }
            }
        }
        steps.push_back(self.runs(file, missing.into_iter(), Operation::Read));
    }

    /// A page fault: reads the missing pages around it, unless the mapping is for random access.
    fn fault(&mut self, (file, around): (u64, bool), page: u64, steps: &mut VecDeque<Step>) {
        let state = self.files.entry(file).or_default();
        state.mapped = true;
        let end = state.size.div_ceil(PAGE).max(page + 1);
        let place = self.place(file, page);
        if self.cache.access(place as u32) {
            self.totals.hits += 1;
            return;
        }
        self.totals.misses += 1;
        let first = page - page % READ_AHEAD;
        let pages = if around { first..(first + READ_AHEAD).min(end) } else { page..page + 1 };
        let mut missing = Vec::new();
        for near in pages {
            let place = self.place(file, near);
            if near == page || !self.cache.access(place as u32) {
                missing.push(near);
            }
        }
        steps.push_back(self.runs(file, missing.into_iter(), Operation::Read));
    }

    fn write_cached(
        &mut self,
        file: u64,
        pages: std::ops::RangeInclusive<u64>,
        steps: &mut VecDeque<Step>,
    ) {
        for page in pages {
            let place = self.place(file, page);
            self.cache.access(place as u32);
            let state = self.files.entry(file).or_default();
            self.dirty += u64::from(state.dirty.insert(page));
        }
        if self.dirty * 100 > self.frames * DIRTY_PERCENT {
            steps.push_back(self.write_back(file));
        }
    }

    fn write_back(&mut self, file: u64) -> Step {
        let dirty = std::mem::take(&mut self.files.entry(file).or_default().dirty);
        self.dirty -= dirty.len() as u64;
        self.runs(file, dirty.into_iter(), Operation::Write)
    }

    fn sync_steps(&mut self, file: u64, metadata: bool, steps: &mut VecDeque<Step>) {
        steps.push_back(self.write_back(file));
        let state = self.files.entry(file).or_default();
        let commits = std::mem::take(&mut state.metadata) || metadata;
        let mut journal = |pages: u64, fua: bool| {
            let page = self.journal % (JOURNAL - 2);
            self.journal += pages;
            let write = Request::write(0, page * PAGE, (pages * PAGE) as u32);
            vec![Request { fua, ..write }]
        };
        match (commits, self.file_system) {
            (true, FileSystem::Ext4) => {
                steps.push_back(journal(2, false));
                steps.push_back(vec![Request::flush(0)]);
                steps.push_back(journal(1, true));
            }
            (true, FileSystem::Ext4NoJournal) => {
                steps.push_back(journal(1, false));
                steps.push_back(vec![Request::flush(0)]);
            }
            (false, _) => steps.push_back(vec![Request::flush(0)]),
        }
    }

    /// One request for each run of pages that are next to each other on the device.
    fn runs(&mut self, file: u64, pages: impl Iterator<Item = u64>, operation: Operation) -> Step {
        let mut step: Step = Vec::new();
        for page in pages {
            let offset = self.place(file, page) * PAGE;
            match step.last_mut() {
                Some(last)
                    if last.offset + u64::from(last.length) == offset
                        && u64::from(last.length) < REQUEST_MAX * PAGE =>
                {
                    last.length += PAGE as u32;
                }
                _ => step.push(Request { operation, ..Request::read(0, offset, PAGE as u32) }),
            }
        }
        step
    }

    /// Place of a file's page on the device, in pages.
    fn place(&mut self, file: u64, page: u64) -> u64 {
        let chunk = page / CHUNK;
        let state = self.files.entry(file).or_default();
        if let Some(first) = state.places.get(&chunk) {
            return first + page % CHUNK;
        }
        if self.placed + CHUNK > self.capacity {
            self.placed = JOURNAL;
        }
        let first = self.placed;
        self.placed += CHUNK;
        self.cache.grow(self.placed as u32);
        state.places.insert(chunk, first);
        self.owners.insert(first, (file, chunk));
        first + page % CHUNK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use device::Stages;

    /// Each request takes as long as its operation says.
    #[derive(Debug, Default)]
    struct Fixed {
        queue: Vec<(Nanos, Nanos, Request)>,
    }

    impl Device for Fixed {
        fn submit(&mut self, now: Nanos, request: Request) {
            let takes = match request.operation {
                Operation::Read => 10,
                Operation::Flush => 1_000,
                _ => 20,
            };
            self.queue.push((now + Nanos(takes), now, request));
        }

        fn next_event(&self) -> Option<Nanos> {
            self.queue.iter().map(|(at, ..)| *at).min()
        }

        fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
            self.queue.sort_by_key(|(at, ..)| *at);
            while self.queue.first().is_some_and(|(at, ..)| *at <= now) {
                let (at, began, request) = self.queue.remove(0);
                let stages = Stages::new(at.since(began), []);
                done.push(Completion { id: request.id, at, stages });
            }
        }
    }

    fn drive(memory: u64) -> Drive<Fixed> {
        Drive::new(Fixed::default(), 1 << 30, memory, FileSystem::Ext4)
    }

    /// Runs an access to its end; returns how long it took.
    fn whole(
        drive: &mut Drive<Fixed>,
        begin: impl FnOnce(&mut Drive<Fixed>, Nanos) -> Begun,
    ) -> u64 {
        let now = drive.last;
        if begin(drive, now) == Begun::Done {
            return 0;
        }
        let mut ended = Vec::new();
        while let Some(at) = drive.next_event() {
            drive.advance(at, &mut ended);
        }
        let last = ended.last().expect("an end");
        assert_eq!(last.next, None);
        last.at.since(now).get()
    }

    fn read(offset: u64, length: u64, flags: u64) -> FileAccess {
        FileAccess { file: 1, offset, length, flags }
    }

    const TASK: TaskId = TaskId(0);

    /// A database that bypasses the cache pays for each read; one that does not pays once.
    #[test]
    fn the_page_cache_serves_what_it_holds() {
        let mut drive = drive(1 << 20);
        drive.found(1, 8 << 20);
        let once = |drive: &mut Drive<Fixed>, offset, flags| {
            whole(drive, |drive, now| drive.access(TASK, now, read(offset, 4096, flags)))
        };
        assert_eq!(
            [once(&mut drive, 0, access::DIRECT), once(&mut drive, 0, access::DIRECT)],
            [10, 10]
        );
        assert_eq!([once(&mut drive, 0, 0), once(&mut drive, 0, 0)], [10, 0]);
        drive.evict(1, 0, 0);
        assert_eq!([once(&mut drive, 0, 0), once(&mut drive, 0, 0)], [10, 0], "forgotten once");
        let before = drive.totals().hits;
        for round in 0..2 {
            for page in 0..1024 {
                once(&mut drive, page * 3 % 1024 * 8192, 0);
            }
            assert!(round == 0 || drive.totals().hits < before + 600, "8 MiB do not fit in 1 MiB");
        }
    }

    /// A commit that extends its log costs two flushes' worth of journal; one that overwrites it does not.
    #[test]
    fn a_commit_costs_what_the_file_system_does() {
        let mut drive = drive(1 << 30);
        let write = FileAccess { flags: access::WRITE, ..read(0, 4096, 0) };
        let commit = |drive: &mut Drive<Fixed>| {
            assert_eq!(whole(drive, |drive, now| drive.access(TASK, now, write)), 0);
            whole(drive, |drive, now| drive.sync(TASK, now, 1, false))
        };
        assert_eq!(commit(&mut drive), 20 + 20 + 1_000 + 20, "a new size");
        assert_eq!(commit(&mut drive), 20 + 1_000, "the same size");
        let totals = drive.totals();
        assert_eq!((totals.flushes, totals.writes), (2, 4));
        let sync = FileAccess { flags: access::WRITE | access::SYNC, ..write };
        assert_eq!(whole(&mut drive, |drive, now| drive.access(TASK, now, sync)), 20 + 1_000);
        // What was removed is not written.
        whole(&mut drive, |drive, now| drive.access(TASK, now, write));
        drive.remove(1);
        assert_eq!(drive.dirty, 0);
    }

    /// Large requests are split as the kernel does, and the parts run at once.
    #[test]
    fn large_accesses_are_split() {
        let mut drive = drive(1 << 20);
        drive.found(1, 8 << 20);
        let took = whole(&mut drive, |drive, now| {
            drive.access(TASK, now, read(0, 4 << 20, access::DIRECT))
        });
        assert_eq!(took, 10);
        assert_eq!((drive.totals().reads, drive.totals().read_bytes), (4, 4 << 20));
    }
}
