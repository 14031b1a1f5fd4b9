//! Flushes: what they write, and when.

use std::collections::VecDeque;
use std::ops::Range;

use device::{Device, Request};
use sim::scheduler::TaskId;
use units::Nanos;

use super::Drive;
use super::layout::{JOURNAL, PAGE, Step};
use crate::file_access::{AccessStart, FileSystem};
use crate::power_cut::Flushed;

impl<D: Device> Drive<D> {
    /// A thread flushes a file at `now`, with metadata (fsync) or without (fdatasync). Of a range of pages,
    /// only those survive a power cut; all are written.
    pub fn sync(
        &mut self,
        task: TaskId,
        now: Nanos,
        file: (u64, Option<Range<u64>>),
        metadata: bool,
    ) -> AccessStart {
        let mut steps = VecDeque::new();
        self.work = Nanos::ZERO;
        self.sync_steps(file, metadata, &mut steps);
        self.begin(Some(task), now, steps, false)
    }

    pub(super) fn sync_steps(
        &mut self,
        (file, pages): (u64, Option<Range<u64>>),
        metadata: bool,
        steps: &mut VecDeque<Step>,
    ) {
        let dirty = self.dirty;
        steps.push_back(self.take_dirty(file));
        self.work += Nanos(self.costs.written_back.get() * (dirty - self.dirty));
        let before = self.write_back.as_ref().filter(|one| one.files.contains(&file));
        self.awaited.extend(before.map(|one| one.io));
        // Its pages may still be under way, and the commit that has its size.
        self.awaited.extend(self.syncs.get(&file));
        let state = self.files.entry(file).or_default();
        // What was never written is a directory, or a file that others changed.
        let touched = metadata && (state.tick == 0 || std::mem::take(&mut state.is_touched));
        let commits = std::mem::take(&mut state.metadata) || touched;
        self.flushed = Some(Flushed { file, commits, pages });
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
            (false, _) | (_, FileSystem::Raw) => steps.push_back(vec![Request::flush(0)]),
        }
    }
}
