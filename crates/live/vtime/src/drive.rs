//! The modelled drive under the files of a simulation: page cache, file system, device.
//!
//! The contents are in real files, read and written at once; this module only computes times. Files are laid
//! out on the device in the order in which they are first accessed.
//!
//! Invariant: an access is a sequence of steps; the requests of a step run in parallel, and the next step
//! starts when the last of them has completed.

mod cached;
mod flush;
mod io;
mod layout;
mod power;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::RangeInclusive;

use device::{Completion, Device, EventQueue, Operation, Request};
use sim::scheduler::{TaskId, Wait};
use sim::{PageCache, PageCacheCosts};
use units::Nanos;

use io::{Io, WriteBack};
use layout::{Layout, PAGE, Step};

use crate::file_access::{AccessStart, DriveTotals, FileAccess, FileSystem, StepEnd};
use crate::power_cut::{Flushed, Medium};
use crate::wire::access;

/// Read-ahead of a sequential buffered read, pages: 128 KiB (`VM_READAHEAD_PAGES`).
const READ_AHEAD: u64 = 32;

/// Interval of the clock for times of modification: `CONFIG_HZ` of 250.
const TICK: Nanos = Nanos::from_millis(4);

#[derive(Debug, Default)]
struct File {
    size: u64,
    /// End of what was ever written: pages beyond it are holes, which are not read.
    written: u64,
    dirty: BTreeSet<u64>,
    /// Its size or its directory entry changed since the last flush.
    metadata: bool,
    /// Its time of modification changed since the last flush, and the tick of the clock that it has.
    is_touched: bool,
    tick: u64,
    /// Page at which a sequential read would continue.
    next_read: u64,
    /// The program has mapped pages of it, or mapped them for writing.
    mapped: bool,
    mapped_for_writing: bool,
    /// The process that has mapped it; 0 if none.
    mapper: u32,
}

/// Page cache, file system and device.
#[derive(Debug)]
pub struct Drive<D> {
    device: D,
    file_system: FileSystem,
    files: HashMap<u64, File>,
    cache: PageCache,
    /// Time between two steps of one access: interrupt, wake-up and the next submission.
    gap: Nanos,
    /// CPU times of accesses, and that of the current one.
    costs: PageCacheCosts,
    work: Nanos,
    /// Capacity of memory and of the page cache, pages.
    memory: u64,
    frames: u64,
    /// The programs are in the same memory.
    is_shared: bool,
    layout: Layout,
    /// Mapped pages that were evicted or written back and not reported yet, by file and byte.
    evicted: VecDeque<(u64, u64)>,
    journal: u64,
    dirty: u64,
    pending: HashMap<u64, Io>,
    /// Pages on the device that are being read, with the access that reads them.
    reading: HashMap<u64, u64>,
    /// What the current access waits for: reads by others, and write-back by the kernel.
    awaited: BTreeSet<u64>,
    write_back: Option<WriteBack>,
    /// Accesses whose next step is submitted at a later time.
    delayed: EventQueue<u64>,
    next_io: u64,
    /// The latest flush of each file.
    syncs: HashMap<u64, u64>,
    done: Vec<Completion>,
    last: Nanos,
    totals: DriveTotals,
    /// What survives a power cut, if one is to come.
    medium: Option<Box<Medium>>,
    /// What the current access flushes, or writes directly.
    flushed: Option<Flushed>,
    written: Option<(u64, RangeInclusive<u64>)>,
}

impl<D: Device> Drive<D> {
    /// An idle device of `capacity` bytes, with a cold page cache in `memory` bytes.
    pub fn new(device: D, capacity: u64, memory: u64, file_system: FileSystem) -> Self {
        let frames = (memory / PAGE).clamp(1, u64::from(u32::MAX));
        Self {
            device,
            file_system,
            gap: Nanos::ZERO,
            files: HashMap::new(),
            cache: PageCache::new(0, frames as u32, sim::Recency::Marks),
            costs: PageCacheCosts::VM_2026,
            work: Nanos::ZERO,
            memory: frames,
            frames,
            is_shared: false,
            layout: Layout::new(capacity),
            evicted: VecDeque::new(),
            journal: 0,
            dirty: 0,
            pending: HashMap::new(),
            reading: HashMap::new(),
            awaited: BTreeSet::new(),
            write_back: None,
            delayed: EventQueue::default(),
            next_io: 1,
            syncs: HashMap::new(),
            done: Vec::new(),
            last: Nanos::ZERO,
            totals: DriveTotals::default(),
            medium: None,
            flushed: None,
            written: None,
        }
    }

    /// Sets the `gap` that a thread needs between two steps of one access.
    #[must_use]
    pub fn with_gap(self, gap: Nanos) -> Self {
        Self { gap, ..self }
    }

    /// Sets the CPU times of accesses.
    #[must_use]
    pub fn with_costs(self, costs: PageCacheCosts) -> Self {
        Self { costs, ..self }
    }

    /// The programs that use the drive are in the same memory as the page cache.
    #[must_use]
    pub fn with_shared_memory(self) -> Self {
        Self { is_shared: true, ..self }
    }

    /// Whether the size of the page cache depends on what programs use.
    pub fn has_shared_memory(&self) -> bool {
        self.is_shared && self.memory < self.layout.capacity()
    }

    /// CPU time of the last access, apart from that of device requests.
    pub fn work(&self) -> Nanos {
        self.work
    }

    /// Programs use `bytes` of the memory; the rest is page cache, but at least 1/32 of it.
    pub fn reserve(&mut self, bytes: u64) {
        let rest = self.memory.saturating_sub(bytes / PAGE);
        self.totals.out_of_memory |= rest == 0;
        let rest = rest.max(self.memory / 32);
        self.frames = rest.max(1);
        self.cache.set_frames(self.frames as u32);
    }

    /// Counters so far.
    pub fn totals(&self) -> DriveTotals {
        self.totals
    }

    /// Time of the next event of the device, or of the next step's submission.
    pub fn next_event(&mut self) -> Option<Nanos> {
        let delayed = self.delayed.peek().map(|(at, _)| at);
        [self.device.next_event(), delayed].into_iter().flatten().min()
    }

    /// A thread reads or writes at `now`.
    pub fn access(&mut self, task: TaskId, now: Nanos, what: FileAccess) -> AccessStart {
        self.work = Nanos::ZERO;
        let writes = what.flags & access::WRITE != 0;
        let mut steps = VecDeque::new();
        let first = what.offset / PAGE;
        let last = (what.offset + what.length.max(1) - 1) / PAGE;
        if writes {
            let mut end = what.offset + what.length;
            if what.flags & access::MAPPED != 0 {
                // A fault is for a whole page, but does not change the size.
                end = end.min(self.files.get(&what.file).map_or(0, |file| file.size));
            }
            if what.flags & (access::DIRECT | access::MAPPED) == 0 {
                self.read_for_write(what, &mut steps);
            }
            let file = self.files.entry(what.file).or_default();
            file.metadata |= end > file.size;
            let tick = now.get() / TICK.get() + 1;
            file.is_touched |= tick != file.tick;
            file.tick = tick;
            file.size = file.size.max(end);
        }
        let pages = first..=last;
        let new_from = self.written(what.file).div_ceil(PAGE);
        let ahead = what.flags & access::RANDOM == 0;
        let [direct, mapped] = [access::DIRECT, access::MAPPED].map(|flag| what.flags & flag != 0);
        if direct {
            let operation = if writes { Operation::Write } else { Operation::Read };
            let there = pages.clone().filter(|page| writes || *page < new_from);
            steps.push_back(self.runs(what.file, there, operation));
        } else if mapped {
            self.fault((what.file, ahead), first, &mut steps);
        } else if !writes {
            self.read_cached((what.file, ahead), pages.clone(), &mut steps);
        }
        self.work += match (direct, mapped, writes) {
            (true, ..) => Nanos::ZERO,
            (_, true, _) => self.costs.fault,
            (_, _, true) => self.costs.write + self.costs.copy(what.length),
            (_, _, false) => self.costs.read + self.costs.copy(what.length),
        };
        if writes {
            if direct {
                self.totals.dirtied_bytes += what.length;
            } else {
                // The pages of this access are not among those that it starts to write back.
                self.write_behind(now);
                self.write_cached(what.file, pages, mapped);
                self.throttle();
            }
            let file = self.files.entry(what.file).or_default();
            // The first write to a hole allocates it.
            file.metadata |= last >= new_from;
            file.written = file.written.max(what.offset + what.length);
            file.mapped_for_writing |= mapped;
            match &mut self.medium {
                Some(_) if direct => self.written = Some((what.file, first..=last)),
                Some(medium) => medium.wrote(what.file, first..=last),
                None => {}
            }
        }
        if writes && what.flags & access::SYNC != 0 {
            self.sync_steps((what.file, Some(first..last + 1)), false, &mut steps);
        }
        self.note_evicted();
        self.begin(Some(task), now, steps, what.flags & access::DIRECT == 0)
    }

    /// Whether a file is mapped by another process than this one, which maps it if `maps`: only one process
    /// is notified of evicted pages.
    pub fn is_mapped_by_other(&mut self, file: u64, process: u32, maps: bool) -> bool {
        let Some(state) = self.files.get_mut(&file) else { return false };
        if maps && state.mapper == 0 {
            state.mapper = process;
        }
        state.mapper != 0 && state.mapper != process
    }

    /// The next mapped page that was evicted, or written back ([`crate::wire::CLEANED`]), as file and byte.
    pub fn next_evicted(&mut self) -> Option<(u64, u64)> {
        self.evicted.pop_front()
    }

    fn note_evicted(&mut self) {
        for page in self.cache.take_evicted() {
            let Some((file, page)) = self.layout.owner(u64::from(page)) else { continue };
            if self.files.get(&file).is_some_and(|file| file.mapped) {
                self.evicted.push_back((file, page * PAGE));
            }
        }
    }

    /// The size of a file was set, or a file was made.
    pub fn resize(&mut self, file: u64, size: u64) {
        self.medium.iter_mut().for_each(|medium| medium.resized(file, size));
        let file = self.files.entry(file).or_default();
        file.metadata = true;
        let kept = file.dirty.split_off(&size.div_ceil(PAGE));
        self.dirty -= kept.len() as u64;
        file.size = size;
        file.written = file.written.min(size);
    }

    /// Something else than the size of a file changed: what even fdatasync writes, or only fsync.
    pub fn touch(&mut self, file: u64, for_data: bool) {
        let file = self.files.entry(file).or_default();
        file.metadata |= for_data;
        file.is_touched = true;
    }

    /// Adds a file that existed before the simulation.
    pub fn add_existing(&mut self, file: u64, size: u64) {
        let file = self.files.entry(file).or_default();
        if size > file.size {
            (file.size, file.written) = (size, size);
        }
    }

    /// Removes a file with its dirty pages.
    pub fn remove(&mut self, file: u64) {
        self.medium.iter_mut().for_each(|medium| medium.removed(file));
        self.syncs.remove(&file);
        let Some(state) = self.files.remove(&file) else { return };
        self.dirty -= state.dirty.len() as u64;
        self.layout.pages(file).for_each(|(_, place)| self.cache.forget(place as u32));
        self.layout.remove(file);
    }

    /// Clean pages of a file leave the page cache; a length of 0 is to its end.
    pub fn evict(&mut self, file: u64, offset: u64, length: u64) {
        let Some(state) = self.files.get(&file) else { return };
        let end = if length == 0 { state.size } else { offset.saturating_add(length) };
        let pages = offset.div_ceil(PAGE)..end.min(state.size).div_ceil(PAGE);
        for (page, place) in self.layout.pages(file) {
            if pages.contains(&page) && !state.dirty.contains(&page) {
                self.cache.forget(place as u32);
            }
        }
    }

    /// Advances the device; appends the steps that ended.
    pub fn advance(&mut self, now: Nanos, ended: &mut Vec<StepEnd>) {
        while let Some((at, id)) = self.delayed.pop_due(now) {
            self.advance_device(at, ended);
            self.submit(id);
        }
        self.advance_device(now, ended);
    }

    fn advance_device(&mut self, now: Nanos, ended: &mut Vec<StepEnd>) {
        self.last = self.last.max(now);
        let mut done = std::mem::take(&mut self.done);
        self.device.advance(self.last, &mut done);
        for completion in done.drain(..) {
            let Some(io) = self.pending.get(&completion.id) else { continue };
            self.totals.stages.add(io.kind, &completion.stages);
            self.arrived(completion.id, completion.at, ended);
        }
        self.done = done;
    }

    /// Something that an access waits for completed at `at`.
    fn arrived(&mut self, id: u64, at: Nanos, ended: &mut Vec<StepEnd>) {
        let Some(io) = self.pending.get_mut(&id) else { return };
        io.outstanding -= 1;
        if io.outstanding > 0 || io.delayed {
            return;
        }
        let (task, reads) = (io.task, std::mem::take(&mut io.reads));
        let mut followers = std::mem::take(&mut io.followers);
        for page in reads {
            if self.reading.get(&page) == Some(&id) {
                self.reading.remove(&page);
            }
        }
        let next = self.next_step(id, at + self.gap);
        match (task, next) {
            (Some(task), next) => ended.push(StepEnd { task, at, next }),
            (None, None) => {
                self.write_back = None;
                self.write_behind(at);
            }
            // Waiters for write-back wait for all of it.
            (None, Some(_)) => {
                let later = std::mem::take(&mut followers);
                self.pending.get_mut(&id).into_iter().for_each(|io| io.followers = later.clone());
            }
        }
        followers.into_iter().for_each(|other| self.arrived(other, at, ended));
    }

    /// Starts an access. If it is `cached`, others that need the same pages wait for it.
    fn begin(
        &mut self,
        task: Option<TaskId>,
        now: Nanos,
        steps: VecDeque<Step>,
        cached: bool,
    ) -> AccessStart {
        let id = self.next_io;
        self.next_io += 1;
        let (flushed, written) = (self.flushed.take(), self.written.take());
        if let Some(flushed) = &flushed {
            self.syncs.insert(flushed.file, id);
        }
        if let Some(medium) = &mut self.medium {
            written.into_iter().for_each(|written| medium.direct_begins(id, written));
            flushed.iter().for_each(|flushed| medium.flush_begins(id, flushed));
        }
        let first = steps.front().filter(|_| cached).into_iter().flatten();
        let own = first.filter(|request| request.operation == Operation::Read);
        let pages =
            own.flat_map(|one| (0..u64::from(one.length) / PAGE).map(|n| one.offset / PAGE + n));
        let reads: Vec<u64> = pages.collect();
        self.reading.extend(reads.iter().map(|page| (*page, id)));
        let awaited = std::mem::take(&mut self.awaited);
        // Only pending accesses can end the wait.
        let mut outstanding = 0;
        for other in &awaited {
            if let Some(io) = self.pending.get_mut(other) {
                io.followers.push(id);
                outstanding += 1;
            }
        }
        let followers = Vec::new();
        let waits = outstanding > 0 && reads.is_empty();
        let io = Io { task, steps, outstanding, delayed: false, reads, followers, kind: 0 };
        self.pending.insert(id, io);
        if waits {
            let written = self.write_back.as_ref().is_some_and(|one| awaited.contains(&one.io));
            return AccessStart::Waits(match flushed {
                _ if written => Wait::Write,
                Some(_) => Wait::Flush,
                None => Wait::Read,
            });
        }
        self.next_step(id, now).map_or(AccessStart::Done, AccessStart::Waits)
    }

    /// Submits the next step of an access at `at`; returns what it waits for, or forgets the access.
    fn next_step(&mut self, id: u64, at: Nanos) -> Option<Wait> {
        let io = self.pending.get_mut(&id)?;
        while io.steps.front().is_some_and(Vec::is_empty) {
            io.steps.pop_front();
        }
        let Some(step) = io.steps.front() else {
            self.pending.remove(&id);
            self.medium.iter_mut().for_each(|medium| medium.ended(id));
            return None;
        };
        let (wait, kind) = match step[0].operation {
            Operation::Read => (Wait::Read, 0),
            Operation::Flush => (Wait::Flush, 2),
            // It flushes what it writes.
            _ if step[0].fua => (Wait::Flush, 2),
            _ => (Wait::Write, 1),
        };
        (io.kind, io.delayed) = (kind, true);
        self.delayed.push(at, id);
        Some(wait)
    }

    /// Submits the next step of an access.
    fn submit(&mut self, id: u64) {
        let Some(io) = self.pending.get_mut(&id) else { return };
        let Some(step) = io.steps.pop_front() else { return };
        io.outstanding += step.len();
        io.delayed = false;
        let queue = io.task.map_or(0, |task| task.0 % 64) as u16;
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
    }

    /// Address of a file's page on the device, in pages.
    fn place(&mut self, file: u64, page: u64) -> u64 {
        let place = self.layout.place(file, page);
        self.cache.grow(self.layout.end());
        place
    }

    fn runs(&mut self, file: u64, pages: impl Iterator<Item = u64>, operation: Operation) -> Step {
        let step = self.layout.runs(file, pages, operation);
        self.cache.grow(self.layout.end());
        step
    }
}

#[cfg(test)]
mod tests;
