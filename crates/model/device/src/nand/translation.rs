//! The flash translation layer: what garbage collection owes for host writes.
//!
//! Two ways to know it, behind one call: the closed form for uniform random writes, in a few bytes,
//! and an explicit page-level layer ([`PageLevel`]) that must agree with it.
//!
//! # Closed form
//! With a share `u` of the pages of a collected block still valid, `u = exp(-(1 - u)(1 + OP))` for
//! first-in-first-out collection of uniform random writes, and write amplification is `1 / (1 - u)`
//! (Desnoyers, SYSTOR 2012; the approximation of a Poisson overwrite count). A fresh drive owes nothing
//! until its raw pages are used up once, then moves to the steady value over one more drive write.
//! Writes that continue another one amplify by a constant of their own.
//!
//! Invariant: no time in here. What it is not: wear levelling, trim, or a mapping cache.

use serde::Deserialize;
use units::Share;

use super::PageLevel;

/// How garbage collection is modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Collection {
    /// Free blocks throughout: nothing is ever moved.
    None,
    /// By formula; no memory.
    ClosedForm,
    /// Page by page; 9 bytes for each 4 KiB page of the drive, some seconds to reach steady state.
    PageLevel,
}

/// State of a drive before the first request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// Overwritten at random until nothing changes any more.
    #[default]
    Steady,
    /// Erased.
    Fresh,
}

/// What is owed for host data that was written.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Owed {
    /// Pages of 4 KiB to move.
    pub moved_pages: f64,
    /// Blocks to erase.
    pub erases: f64,
}

/// Write amplification of uniform random 4 KiB writes in steady state with spare area
/// `over_provisioning` (0.07: 7 % more than is addressable); infinite at 0.
#[must_use]
pub fn steady_write_amplification(over_provisioning: f64) -> f64 {
    let mut valid = 0.0f64;
    // From below, the iteration ends at the smaller root; the other one is 1.
    for _ in 0..10_000 {
        let next = (-(1.0 - valid) * (1.0 + over_provisioning)).exp();
        if (next - valid).abs() < 1e-12 {
            break;
        }
        valid = next;
    }
    1.0 / (1.0 - valid)
}

/// Streams of sequential writes that are followed at once.
const STREAMS: usize = 8;

/// The formula, with how much was written.
#[derive(Debug, Clone)]
pub(crate) struct ClosedForm {
    steady: f64,
    sequential: f64,
    /// Pages that can be written before the first collection.
    raw_pages: f64,
    /// Pages over which amplification grows from none to steady.
    ramp_pages: f64,
    written_pages: f64,
    pages_per_block: f64,
    /// Where recent writes ended.
    ends: [u64; STREAMS],
    next_end: usize,
}

impl ClosedForm {
    fn new(drive: Drive, condition: Condition) -> Self {
        let raw = drive.pages as f64 * (1.0 + drive.over_provisioning);
        Self {
            steady: steady_write_amplification(drive.over_provisioning),
            sequential: drive.sequential_amplification,
            raw_pages: raw,
            ramp_pages: drive.pages as f64,
            written_pages: match condition {
                Condition::Steady => f64::INFINITY,
                Condition::Fresh => 0.0,
            },
            pages_per_block: f64::from(drive.pages_per_block),
            ends: [u64::MAX; STREAMS],
            next_end: 0,
        }
    }

    /// Whether a write goes on where another one ended.
    fn continues(&mut self, page: u64, pages: u64) -> bool {
        match self.ends.iter().position(|end| *end == page) {
            Some(stream) => {
                self.ends[stream] = page + pages;
                true
            }
            None => {
                self.ends[self.next_end] = page + pages;
                self.next_end = (self.next_end + 1) % STREAMS;
                false
            }
        }
    }

    fn write(&mut self, page: u64, pages: u64) -> Owed {
        let target = if self.continues(page, pages) { self.sequential } else { self.steady };
        self.written_pages += pages as f64;
        let grown = ((self.written_pages - self.raw_pages) / self.ramp_pages).clamp(0.0, 1.0);
        let amplification = 1.0 + (target - 1.0) * grown;
        let moved_pages = pages as f64 * (amplification - 1.0);
        let erased = if grown > 0.0 { pages as f64 + moved_pages } else { 0.0 };
        Owed { moved_pages, erases: erased / self.pages_per_block }
    }
}

/// What a translation layer knows of its drive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drive {
    /// Addressable pages of 4 KiB.
    pub pages: u64,
    /// Spare share beyond them.
    pub over_provisioning: f64,
    /// Pages that are erased together.
    pub pages_per_block: u32,
    /// Amplification of sequential writes in steady state.
    pub sequential_amplification: f64,
}

impl Drive {
    pub fn new(capacity: u64, spare: Share, pages_per_block: u32, sequential: f64) -> Self {
        Self {
            pages: capacity.div_ceil(crate::CHUNK),
            over_provisioning: spare.fraction(),
            pages_per_block: pages_per_block.max(1),
            sequential_amplification: sequential,
        }
    }
}

/// One of the two.
#[derive(Debug, Clone)]
pub(crate) enum Translation {
    /// Nothing is moved; blocks are erased as they are filled: so many pages each.
    None(f64),
    ClosedForm(ClosedForm),
    PageLevel(Box<PageLevel>),
}

impl Translation {
    pub fn new(collection: Collection, drive: Drive, condition: Condition, seed: u64) -> Self {
        match collection {
            Collection::None => Self::None(f64::from(drive.pages_per_block)),
            Collection::ClosedForm => Self::ClosedForm(ClosedForm::new(drive, condition)),
            Collection::PageLevel => {
                Self::PageLevel(Box::new(PageLevel::new(&drive, condition, seed)))
            }
        }
    }

    /// The host wrote `length` bytes at `offset`.
    pub fn write(&mut self, offset: u64, length: u32) -> Owed {
        let (page, pages) = (offset / crate::CHUNK, chunks(offset, length));
        match self {
            Self::None(per_block) => Owed { moved_pages: 0.0, erases: pages as f64 / *per_block },
            Self::ClosedForm(form) => form.write(page, pages),
            Self::PageLevel(layer) => (page..page + pages).map(|page| layer.write(page)).fold(
                Owed::default(),
                |sum, owed| Owed {
                    moved_pages: sum.moved_pages + owed.moved_pages,
                    erases: sum.erases + owed.erases,
                },
            ),
        }
    }

    /// The host needs `length` bytes at `offset` no longer. The closed form takes no notice: its spare
    /// area is a constant.
    pub fn discard(&mut self, offset: u64, length: u32) {
        if let Self::PageLevel(layer) = self {
            // Only pages that lie within it whole.
            let first = offset.div_ceil(crate::CHUNK);
            let after = (offset + u64::from(length)) / crate::CHUNK;
            (first..after).for_each(|page| layer.discard(page));
        }
    }
}

/// Number of 4 KiB pages that a range touches.
fn chunks(offset: u64, length: u32) -> u64 {
    (offset + u64::from(length) - 1) / crate::CHUNK - offset / crate::CHUNK + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_closed_form_has_its_known_values() {
        for (spare, published) in [(0.07, 7.82), (0.125, 4.68), (0.28, 2.48), (0.50, 1.72)] {
            let computed = steady_write_amplification(spare);
            assert!((computed / published - 1.0).abs() < 0.005, "{spare}: {computed}");
        }
    }

    fn drive(spare: f64, pages: u64, pages_per_block: u32) -> Drive {
        Drive { pages, over_provisioning: spare, pages_per_block, sequential_amplification: 1.0 }
    }

    /// Amplification over `pages` uniform random writes of one page each.
    fn amplification(translation: &mut Translation, drive: &Drive, pages: u64, seed: u64) -> f64 {
        let mut moved = 0.0;
        for number in 0..pages {
            let page = units::Seed(seed).derive("write", number).0 % drive.pages;
            moved += translation.write(page * 4096, 4096).moved_pages;
        }
        1.0 + moved / pages as f64
    }

    /// If the explicit layer and the formula disagree, one of them predicts a write rate that no drive
    /// has. Four spare areas, each after the drive was overwritten to steady state.
    #[test]
    fn page_level_collection_agrees_with_the_closed_form() {
        for spare in [0.07, 0.125, 0.28, 0.50] {
            let drive = drive(spare, 1 << 19, 256);
            let steady = Condition::Steady;
            let mut explicit = Translation::new(Collection::PageLevel, drive, steady, 1);
            let mut formula = Translation::new(Collection::ClosedForm, drive, steady, 1);
            let found = amplification(&mut explicit, &drive, 1 << 20, 2);
            let expected = amplification(&mut formula, &drive, 1 << 10, 2);
            let error = found / expected - 1.0;
            println!("spare {spare}: explicit {found:.3}, formula {expected:.3}, {error:+.3}");
            assert!(error.abs() < 0.04, "{spare}: {found} against {expected}");
        }
    }

    /// The cliff: a fresh drive owes nothing until it was filled once, then as much as a used one.
    #[test]
    fn a_fresh_drive_meets_its_cliff_when_its_raw_pages_are_used_up() {
        for collection in [Collection::ClosedForm, Collection::PageLevel] {
            let drive = drive(0.28, 1 << 17, 256);
            let mut fresh = Translation::new(collection, drive, Condition::Fresh, 1);
            let first = amplification(&mut fresh, &drive, (1 << 17) * 6 / 5, 3);
            assert!((first - 1.0).abs() < 0.01, "{collection:?} {first}");
            let _ = amplification(&mut fresh, &drive, 1 << 19, 4);
            let last = amplification(&mut fresh, &drive, 1 << 18, 5);
            assert!((last / 2.48 - 1.0).abs() < 0.04, "{collection:?} {last}");
        }
    }

    /// Whole blocks become invalid together, so nothing is moved.
    #[test]
    fn sequential_overwrites_move_nothing() {
        for collection in [Collection::ClosedForm, Collection::PageLevel] {
            let drive = drive(0.28, 1 << 15, 256);
            let mut fresh = Translation::new(collection, drive, Condition::Fresh, 1);
            let mut moved = 0.0;
            for page in (0..4).flat_map(|_| 0..1u64 << 15) {
                moved += fresh.write(page * 4096, 4096).moved_pages;
            }
            assert!(moved <= 4.0, "{collection:?} {moved}");
        }
    }

    proptest! {
        #[test]
        fn less_spare_never_amplifies_less(a in 0.02f64..2.0, b in 0.02f64..2.0) {
            let (low, high) = (a.min(b), a.max(b));
            let (more, less) = (steady_write_amplification(low), steady_write_amplification(high));
            prop_assert!(more >= less && less >= 1.0, "{more} {less}");
        }
    }
}
