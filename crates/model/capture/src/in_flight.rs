//! Matches completions with requests: the kernel merges requests, splits them, and completes them by sector.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use device::Operation;

use crate::event::{Event, EventKind, Io};
use crate::format::Header;

/// Requests in flight that are compared with the end of a completed one.
const LOOK_BACK: usize = 8;

/// A request by its index, and its sectors.
type Entry = (usize, u64);

/// Requests in flight.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// By drive, whether they are flushes, and first sector; the last of a queue is the latest.
    requests: BTreeMap<(u32, bool, u64), VecDeque<Entry>>,
    /// Sectors of requests that are not complete: large ones complete in pieces.
    left: HashMap<usize, u64>,
}

impl InFlight {
    /// Adds a submitted request.
    pub fn add(&mut self, index: usize, io: Io) {
        let flush = io.operation == Operation::Flush;
        let place = (io.drive, flush, if flush { 0 } else { io.sector });
        self.requests.entry(place).or_default().push_back((index, u64::from(io.bytes) / 512));
    }

    /// Forgets all requests; returns their indices.
    pub fn clear(&mut self) -> Vec<usize> {
        self.left.clear();
        let all = std::mem::take(&mut self.requests).into_values().flatten();
        all.map(|(index, _)| index).collect()
    }

    /// The requests that the driver gets as one.
    pub fn issued(&self, io: Io) -> impl Iterator<Item = usize> + '_ {
        let end = io.sector.saturating_add(u64::from(io.bytes) / 512);
        let inside = self.requests.range((io.drive, false, io.sector)..(io.drive, false, end));
        inside.filter_map(|(_, queue)| queue.back()).map(|(index, _)| *index)
    }

    /// The requests that a completion completes: several that the kernel merged, or one that it split.
    /// `open` tells whether a request is not complete yet.
    pub fn complete(&mut self, io: Io, open: impl Fn(usize) -> bool) -> Vec<usize> {
        // The kernel completes an empty flush as a write of nothing.
        if io.operation == Operation::Flush || (io.bytes == 0 && io.sector == 0) {
            let queue = self.requests.get_mut(&(io.drive, true, 0));
            let oldest =
                queue.into_iter().flat_map(|queue| std::iter::from_fn(|| queue.pop_front()));
            return oldest.map(|(index, _)| index).find(|index| open(*index)).into_iter().collect();
        }
        let end = io.sector.saturating_add(u64::from(io.bytes) / 512);
        let start = (io.drive, false, io.sector);
        let inside = self.requests.range(start..(io.drive, false, end));
        // A piece of an earlier one, or the sector after the last one of a request.
        let before = self.requests.range((io.drive, false, 0)..start).rev().take(LOOK_BACK);
        let mut found = Vec::new();
        for (place, queue) in inside.chain(before) {
            let Some((index, sectors)) = queue.back() else { continue };
            let last = place.2.saturating_add(*sectors);
            let covered = match io.bytes {
                0 if last == io.sector => *sectors,
                _ => last.min(end).saturating_sub(place.2.max(io.sector)),
            };
            if covered > 0 || *sectors == 0 {
                found.push((*place, *index, *sectors, covered));
            }
        }
        let mut complete = Vec::new();
        for (place, index, sectors, covered) in found {
            let left = self.left.entry(index).or_insert(sectors);
            *left = left.saturating_sub(covered);
            if *left == 0 {
                self.left.remove(&index);
                // Older requests of the same place: their completion was lost.
                self.requests.remove(&place);
                complete.push(index);
            }
        }
        complete
    }
}

/// Drives to which threads of the recorded processes submitted requests.
pub(crate) fn drives_of_processes(header: &Header, events: &[Event]) -> HashSet<u32> {
    let own = header.thread.iter().filter(|one| one.pid != 0).map(|one| one.tid);
    let own: HashSet<u32> = own.collect();
    let drive = |event: &Event| match event.what {
        EventKind::Submits(io) if own.contains(&event.thread) => Some(io.drive),
        _ => None,
    };
    let mut used: HashSet<u32> = events.iter().filter_map(drive).collect();
    // A volume's requests are seen again on the drives that it is made of.
    let volumes = header.disk.iter().filter(|disk| used.contains(&disk.number));
    let below: Vec<u32> = volumes.flat_map(|disk| &disk.made_of).copied().collect();
    used.retain(|number| !below.contains(number));
    used
}
