//! Address ranges in which files of the drive are mapped, and removed files that are still used.
//!
//! Only the thread with the turn changes them.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use vtime::wire::Call;

use crate::descriptors::is_open;
use crate::shared_memory;
use crate::turn::Turn;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Maximum number of mappings.
pub const MAPS: usize = 64;

/// A mapping; free if `file` is 0. Only the thread with the turn changes it.
pub struct Map {
    pub file: AtomicU64,
    pub start: AtomicUsize,
    pub end: AtomicUsize,
    /// File offset of its start.
    pub offset: AtomicU64,
    /// Flags of `access`.
    pub flags: AtomicU64,
    /// Mapped for writing to the file.
    pub writes: AtomicBool,
    /// Mapped for writing to private pages, which are nowhere else.
    pub keeps: AtomicBool,
}

impl Map {
    /// Takes this entry for a mapping.
    fn set(&self, range: Range<usize>, mapped: Mapped) {
        self.start.store(range.start, Relaxed);
        self.end.store(range.end, Relaxed);
        self.offset.store(mapped.offset, Relaxed);
        self.flags.store(mapped.flags, Relaxed);
        self.writes.store(mapped.writes, Relaxed);
        self.keeps.store(mapped.keeps, Relaxed);
        self.file.store(mapped.file, Relaxed);
    }

    fn mapped(&self) -> Mapped {
        Mapped {
            file: self.file.load(Relaxed),
            offset: self.offset.load(Relaxed),
            flags: self.flags.load(Relaxed),
            writes: self.writes.load(Relaxed),
            keeps: self.keeps.load(Relaxed),
        }
    }
}

/// What is mapped; see [`Map`].
#[derive(Clone, Copy)]
pub struct Mapped {
    pub file: u64,
    pub offset: u64,
    pub flags: u64,
    pub writes: bool,
    pub keeps: bool,
}

pub static REGIONS: [Map; MAPS] = [const {
    Map {
        file: AtomicU64::new(0),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        offset: AtomicU64::new(0),
        flags: AtomicU64::new(0),
        writes: AtomicBool::new(false),
        keeps: AtomicBool::new(false),
    }
}; MAPS];

/// Whether there is any mapping.
pub fn is_any() -> bool {
    REGIONS.iter().any(|map| map.file.load(Relaxed) != 0)
}

/// The mapping that contains an address.
pub fn map_of(address: usize) -> Option<&'static Map> {
    REGIONS.iter().find(|map| {
        map.file.load(Relaxed) != 0
            && (map.start.load(Relaxed)..map.end.load(Relaxed)).contains(&address)
    })
}

/// Notes a mapping; without a free entry the simulation ends.
pub fn note(range: Range<usize>, mapped: Mapped) {
    match REGIONS.iter().find(|map| map.file.load(Relaxed) == 0) {
        Some(free) => free.set(range, mapped),
        None => {
            if let Some(turn) = Turn::enter_file() {
                turn.uncovered("more than 64 mappings of files on the modelled drive");
            }
        }
    }
}

/// Something else is at these addresses now, or nothing. The kernel has accepted them.
pub fn replaced(place: usize, size: usize) {
    shared_memory::forget();
    let range: Range<usize> = place..(place + size).next_multiple_of(PAGE);
    for map in REGIONS.iter().filter(|map| map.file.load(Relaxed) != 0) {
        let (start, end) = (map.start.load(Relaxed), map.end.load(Relaxed));
        if range.end <= start || end <= range.start {
            continue;
        }
        let mapped = map.mapped();
        map.file.store(0, Relaxed);
        // What is left before and behind it.
        let rests = [start..range.start, range.end..end];
        for rest in rests.into_iter().filter(|rest| !rest.is_empty()) {
            let offset = mapped.offset + (rest.start - start) as u64;
            note(rest, Mapped { offset, ..mapped });
        }
        released(mapped.file);
    }
}

/// Removed files that are still open or mapped.
static ORPHANS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

fn is_used(file: u64) -> bool {
    is_open(file) || REGIONS.iter().any(|map| map.file.load(Relaxed) == file)
}

/// Puts off the removal of a file that is still used; returns whether it is.
pub fn defer_removal(turn: &Turn, file: u64) -> bool {
    if !is_used(file) {
        return false;
    }
    match ORPHANS.iter().find(|orphan| orphan.load(Relaxed) == 0) {
        Some(free) => free.store(file, Relaxed),
        None => turn.uncovered("more than 64 removed files that are still open"),
    }
    true
}

/// A descriptor or a mapping of a file is gone.
pub fn released(file: u64) {
    let orphan = ORPHANS.iter().find(|orphan| file != 0 && orphan.load(Relaxed) == file);
    if let Some(orphan) = orphan.filter(|_| !is_used(file)) {
        orphan.store(0, Relaxed);
        if let Some(turn) = Turn::enter_file() {
            turn.call(Call::Remove, &[file]);
        }
    }
}
