//! The lines of a cache: which are there, in order of use, and which are dirty.
//!
//! Invariant: every cached line is in the map and in the list once.

use super::{Cache, Line, NONE};
use crate::Request;

impl<D: crate::Device> Cache<D> {
    fn unlink(&mut self, place: u32) {
        let Line { newer, older, .. } = self.lines[place as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.lines[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.lines[older as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, place: u32) {
        let older = self.newest;
        let line = &mut self.lines[place as usize];
        (line.newer, line.older) = (NONE, older);
        match older {
            NONE => self.oldest = place,
            older => self.lines[older as usize].newer = place,
        }
        self.newest = place;
    }

    pub(super) fn touch(&mut self, place: u32) {
        if self.newest != place {
            self.unlink(place);
            self.link_newest(place);
        }
    }

    /// A place for a line that is not there; `None` when every line near the end of the list is dirty.
    fn allocate(&mut self, number: u64) -> Option<u32> {
        /// Dirty lines that a search for a clean one passes over.
        const PATIENCE: usize = 32;
        let fresh = Line { number, newer: NONE, older: NONE, dirty: false };
        let place = if self.lines.len() < self.capacity {
            self.lines.push(fresh);
            (self.lines.len() - 1) as u32
        } else {
            let mut place = self.oldest;
            for _ in 0..PATIENCE {
                if place == NONE || !self.lines[place as usize].dirty {
                    break;
                }
                place = self.lines[place as usize].newer;
            }
            if place == NONE || self.lines[place as usize].dirty {
                return None;
            }
            self.map.remove(&self.lines[place as usize].number);
            self.unlink(place);
            self.lines[place as usize] = fresh;
            place
        };
        self.map.insert(number, place);
        self.misses.remove(&number);
        self.link_newest(place);
        Some(place)
    }

    /// Makes room for every line of a request; `None` when there is none for one.
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
                self.lines[place as usize].dirty = true;
                self.dirty_order.push_back((place, self.dirtied));
                self.dirtied += 1;
                self.dirty += 1;
                changed = true;
            }
        }
        changed
    }
}
