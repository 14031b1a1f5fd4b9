//! Layout of files on the device.
//!
//! Invariant: a chunk is allocated when one of its pages is first accessed; chunks of removed files are
//! reused.

use std::collections::{BTreeMap, HashMap};

use device::{Operation, Request};

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;
/// Pages per chunk.
const CHUNK: u64 = 256;
/// Largest request, pages: 1,280 KiB (`BLK_DEF_MAX_SECTORS_CAP`, Linux 6.18).
const REQUEST_MAX: u64 = 320;
/// Size of the journal at the start of the device, pages: 128 MiB, the default of mke2fs(8) on most disks.
pub(crate) const JOURNAL: u64 = 32_768;

/// Requests that are submitted at once.
pub(crate) type Step = Vec<Request>;

/// Maps pages of files to pages of the device.
#[derive(Debug)]
pub(crate) struct Layout {
    capacity: u64,
    /// First device page of each chunk, by file; sorted, so that identical runs give the same layout.
    places: HashMap<u64, BTreeMap<u64, u64>>,
    /// File and chunk at each first page.
    owners: HashMap<u64, (u64, u64)>,
    next_free: u64,
    /// Chunks of removed files.
    free: Vec<u64>,
}

impl Layout {
    /// An empty device of `capacity` bytes with a journal.
    pub fn new(capacity: u64) -> Self {
        Self {
            capacity: (capacity / PAGE).clamp(JOURNAL + CHUNK, u64::from(u32::MAX)),
            places: HashMap::new(),
            owners: HashMap::new(),
            next_free: JOURNAL,
            free: Vec::new(),
        }
    }

    /// Pages of the device.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Number of device pages up to the end of the last allocated chunk.
    pub fn end(&self) -> u32 {
        self.next_free as u32
    }

    /// Device page of a file's page.
    pub fn place(&mut self, file: u64, page: u64) -> u64 {
        let (chunk, places) = (page / CHUNK, self.places.entry(file).or_default());
        if let Some(first) = places.get(&chunk) {
            return first + page % CHUNK;
        }
        if self.next_free + CHUNK > self.capacity {
            self.next_free = JOURNAL;
        }
        let first = self.free.pop().unwrap_or(self.next_free);
        if first == self.next_free {
            self.next_free += CHUNK;
        }
        places.insert(chunk, first);
        self.owners.insert(first, (file, chunk));
        first + page % CHUNK
    }

    /// File and page at a device page.
    pub fn owner(&self, place: u64) -> Option<(u64, u64)> {
        let (file, chunk) = self.owners.get(&(place / CHUNK * CHUNK))?;
        Some((*file, chunk * CHUNK + place % CHUNK))
    }

    /// Allocated pages of a file with their device pages.
    pub fn pages(&self, file: u64) -> impl Iterator<Item = (u64, u64)> {
        let chunks = self.places.get(&file).into_iter().flatten();
        chunks.flat_map(|(chunk, first)| (0..CHUNK).map(move |n| (chunk * CHUNK + n, first + n)))
    }

    /// Removes a file and frees its chunks.
    pub fn remove(&mut self, file: u64) {
        for first in self.places.remove(&file).unwrap_or_default().into_values() {
            self.owners.remove(&first);
            self.free.push(first);
        }
    }

    /// One request for each run of pages that are next to each other on the device.
    pub fn runs(
        &mut self,
        file: u64,
        pages: impl Iterator<Item = u64>,
        operation: Operation,
    ) -> Step {
        let mut step = Step::new();
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
}
