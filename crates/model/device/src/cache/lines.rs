//! The lines of a cache: presence, recency and dirtiness.
//!
//! Invariant: every cached line is in the map and in exactly one list, the dirty one if it is dirty; a free
//! slot is in neither.

use super::{Cache, Line, NONE};
use crate::Request;

/// Head and tail of a list from most to least recently used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    newest: u32,
    oldest: u32,
}

impl Ends {
    pub const EMPTY: Self = Self { newest: NONE, oldest: NONE };
}

/// Lines cleaned at once to free space (Open CAS).
const ROOM: usize = 32;

impl<D: crate::Device> Cache<D> {
    fn list_of(&mut self, place: u32) -> &mut Ends {
        let dirty = self.lines[place as usize].dirty;
        if dirty { &mut self.dirty_lines } else { &mut self.clean_lines }
    }

    fn unlink(&mut self, place: u32) {
        let Line { newer, older, .. } = self.lines[place as usize];
        match newer {
            NONE => self.list_of(place).newest = older,
            newer => self.lines[newer as usize].older = older,
        }
        match older {
            NONE => self.list_of(place).oldest = newer,
            older => self.lines[older as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, place: u32) {
        let older = self.list_of(place).newest;
        let line = &mut self.lines[place as usize];
        (line.newer, line.older) = (NONE, older);
        match older {
            NONE => self.list_of(place).oldest = place,
            older => self.lines[older as usize].newer = place,
        }
        self.list_of(place).newest = place;
    }

    pub(super) fn touch(&mut self, place: u32) {
        if self.list_of(place).newest != place {
            self.unlink(place);
            self.link_newest(place);
        }
    }

    /// Makes a line dirty or clean, and the most recently used of its list.
    pub(super) fn turn(&mut self, place: u32, dirty: bool) {
        self.unlink(place);
        self.lines[place as usize].dirty = dirty;
        self.link_newest(place);
        if dirty {
            self.dirty += 1;
        } else {
            self.dirty -= 1;
        }
    }

    /// Removes a line from the cache.
    pub(super) fn forget(&mut self, number: u64) {
        if let Some(place) = self.map.remove(&number) {
            self.unlink(place);
            self.dirty -= usize::from(std::mem::take(&mut self.lines[place as usize].dirty));
            self.free.push(place);
        }
    }

    /// A slot for a missing line; `None` if all are dirty, some of which are then cleaned.
    fn allocate(&mut self, number: u64) -> Option<u32> {
        let fresh = Line { number, newer: NONE, older: NONE, dirty: false };
        let place = if let Some(place) = self.free.pop() {
            place
        } else if self.lines.len() < self.capacity {
            self.lines.push(fresh);
            (self.lines.len() - 1) as u32
        } else {
            let place = self.clean_lines.oldest;
            if place == NONE {
                self.to_clean = ROOM;
                return None;
            }
            self.map.remove(&self.lines[place as usize].number);
            self.unlink(place);
            place
        };
        self.lines[place as usize] = fresh;
        self.map.insert(number, place);
        self.misses.remove(&number);
        self.link_newest(place);
        Some(place)
    }

    /// Allocates every line of a request; `None` if that fails for one.
    pub(super) fn allocate_all(&mut self, request: Request) -> Option<u32> {
        let mut first = None;
        for number in self.numbers(request) {
            let place = match self.map.get(&number).copied() {
                Some(place) => {
                    self.touch(place);
                    place
                }
                None => self.allocate(number)?,
            };
            first = first.or(Some(place));
        }
        first
    }

    pub(super) fn mark_dirty(&mut self, request: Request) -> bool {
        let mut changed = false;
        for number in self.numbers(request) {
            if let Some(&place) = self.map.get(&number)
                && !self.lines[place as usize].dirty
            {
                self.turn(place, true);
                self.dirty_order.push_back((place, self.dirtied));
                self.dirtied += 1;
                changed = true;
            }
        }
        changed
    }
}
