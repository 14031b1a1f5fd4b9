//! Accesses through the page cache, and write-back.

use std::collections::VecDeque;

use device::{Device, Operation, Request};
use sim::PageCacheCosts;
use units::Nanos;

use super::io::{BACKGROUND_PERCENT, DIRTY_PERCENT, WRITE_BACK_DEPTH, WriteBack};
use super::layout::{PAGE, Step};
use super::{Drive, READ_AHEAD};
use crate::file_access::{FileAccess, FileSystem};
use crate::wire::CLEANED;

impl<D: Device> Drive<D> {
    pub(super) fn read_cached(
        &mut self,
        (file, ahead): (u64, bool),
        pages: std::ops::RangeInclusive<u64>,
        steps: &mut VecDeque<Step>,
    ) {
        let (first, last) = (*pages.start(), *pages.end());
        let state = self.files.entry(file).or_default();
        // A read that starts in the last page of the previous one continues it.
        let sequential = ahead && [first, first + 1].contains(&state.next_read);
        state.next_read = last + 1;
        let size = state.size.div_ceil(PAGE).min(self.written(file).div_ceil(PAGE));
        let mut missing: Vec<u64> = Vec::new();
        for page in pages {
            let place = self.place(file, page);
            if self.cache.access(place as u32) || page >= size {
                self.totals.hits += 1;
                self.await_read(place);
            } else {
                self.totals.misses += 1;
                missing.push(page);
            }
        }
        if sequential && missing.last() == Some(&last) {
            for page in last + 1..size.min(last + READ_AHEAD) {
                let place = self.place(file, page) as u32;
                if !self.cache.is_resident(place) {
                    self.cache.access(place);
                    missing.push(page);
                }
            }
        }
        self.work += Nanos(self.costs.missed.get() * missing.len() as u64);
        steps.push_back(self.runs(file, missing.into_iter(), Operation::Read));
    }

    /// The current access waits for a page that another one is reading.
    fn await_read(&mut self, place: u64) {
        self.awaited.extend(self.reading.get(&place));
    }

    /// End of what has to be read from the device; a device has no holes.
    pub(super) fn written(&self, file: u64) -> u64 {
        match self.file_system {
            FileSystem::Raw => u64::MAX,
            _ => self.files.get(&file).map_or(0, |file| file.written),
        }
    }

    /// Pages that are partly overwritten have to be read first.
    pub(super) fn read_for_write(&mut self, what: FileAccess, steps: &mut VecDeque<Step>) {
        let end = what.offset + what.length;
        let written = self.written(what.file);
        let starts = (!what.offset.is_multiple_of(PAGE)).then_some(what.offset / PAGE);
        let ends = (!end.is_multiple_of(PAGE) && end < written).then_some(end / PAGE);
        let mut pages: Vec<u64> = starts.into_iter().chain(ends).collect();
        pages.dedup();
        pages.retain(|page| page * PAGE < written);
        pages.retain(|page| {
            let place = self.place(what.file, *page);
            self.await_read(place);
            !self.cache.is_resident(place as u32)
        });
        self.work += Nanos(self.costs.missed.get() * pages.len() as u64);
        steps.push_back(self.runs(what.file, pages.into_iter(), Operation::Read));
    }

    /// A page fault: reads the missing pages around it, unless the mapping is for random access.
    pub(super) fn fault(
        &mut self,
        (file, around): (u64, bool),
        page: u64,
        steps: &mut VecDeque<Step>,
    ) {
        self.files.entry(file).or_default().mapped = true;
        let end = self.written(file).div_ceil(PAGE);
        let place = self.place(file, page);
        if self.cache.is_resident(place as u32) || page >= end {
            // A fault on a cached page does not mark it as used.
            if page >= end && !self.cache.is_resident(place as u32) {
                self.cache.access(place as u32);
            }
            self.totals.hits += 1;
            return self.await_read(place);
        }
        self.totals.misses += 1;
        let size = self.files[&file].size.div_ceil(PAGE).max(page + 1);
        let first = page - page % READ_AHEAD;
        let last = (first + READ_AHEAD).min(end).min(size);
        let pages = if around { first..last } else { page..page + 1 };
        let mut missing = Vec::new();
        for near in pages {
            let place = self.place(file, near) as u32;
            if near == page || !self.cache.is_resident(place) {
                self.cache.access(place);
                missing.push(near);
            }
        }
        let around = missing.len() as u64 - 1;
        self.work += self.costs.fault_missed + Nanos(self.costs.missed.get() * around);
        steps.push_back(self.runs(file, missing.into_iter(), Operation::Read));
    }

    /// Marks pages as dirty; those of a page fault are cached already.
    pub(super) fn write_cached(
        &mut self,
        file: u64,
        pages: std::ops::RangeInclusive<u64>,
        mapped: bool,
    ) {
        let new_from = self.written(file).div_ceil(PAGE);
        let PageCacheCosts { dirtied, allocated, fault_dirtied, fault_allocated, .. } = self.costs;
        let [dirtied, allocated] =
            if mapped { [fault_dirtied, fault_allocated] } else { [dirtied, allocated] };
        for page in pages {
            let place = self.place(file, page);
            if !mapped {
                self.cache.access(place as u32);
            }
            if self.files.entry(file).or_default().dirty.insert(page) {
                self.dirty += 1;
                self.totals.dirtied_bytes += PAGE;
                self.work += if page >= new_from { allocated } else { dirtied };
            }
        }
    }

    /// The current access waits for write-back if too much is dirty.
    pub(super) fn throttle(&mut self) {
        let writing = self.write_back.as_ref().map_or(0, |one| one.pages);
        if (self.dirty + writing) * 100 > self.frames * DIRTY_PERCENT {
            self.awaited.extend(self.write_back.as_ref().map(|one| one.io));
        }
    }

    /// Starts write-back if more is dirty than the kernel permits.
    pub(super) fn write_behind(&mut self, now: Nanos) {
        if self.write_back.is_some() || self.dirty * 100 <= self.frames * BACKGROUND_PERCENT {
            return;
        }
        let dirty = self.files.iter().filter(|(_, file)| !file.dirty.is_empty());
        let mut files: Vec<u64> = dirty.map(|(file, _)| *file).collect();
        files.sort_unstable();
        let pages = self.dirty;
        let requests: Step = files.iter().flat_map(|file| self.take_dirty(*file)).collect();
        let steps = requests.chunks(WRITE_BACK_DEPTH).map(<[Request]>::to_vec).collect();
        self.write_back = Some(WriteBack { io: self.next_io, files, pages });
        // The write-back does not wait for what the writer waits for.
        let awaited = std::mem::take(&mut self.awaited);
        self.begin(None, now, steps, false);
        self.awaited = awaited;
    }

    /// The requests that write the dirty pages of a file, which are clean from now on.
    pub(super) fn take_dirty(&mut self, file: u64) -> Step {
        let state = self.files.entry(file).or_default();
        let dirty = std::mem::take(&mut state.dirty);
        self.dirty -= dirty.len() as u64;
        if state.mapped_for_writing {
            // The next write through a mapping has to be noticed.
            self.evicted.extend(dirty.iter().map(|page| (file, (page * PAGE) | CLEANED)));
        }
        self.runs(file, dirty.into_iter(), Operation::Write)
    }
}
