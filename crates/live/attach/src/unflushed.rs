//! Acknowledged but unflushed writes of a drive, with the earlier contents: a power cut loses some of them.
//!
//! Each 4 KiB block keeps its contents before each write since its last flush. After a cut, a block has one
//! of them, drawn from a seed: blocks are not ordered among each other, as in a drive's cache. A write in
//! flight can be torn between 512-byte sectors.
//!
//! Invariants: data covered by a completed flush stays, and so does unmodified data.

use std::collections::{BTreeMap, HashMap};
use std::io;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use units::Seed;

use crate::store::Store;

const BLOCK: usize = 4096;
const SECTOR: usize = 512;
/// Contents of one block that are kept; beyond that, those between the oldest and the latest are dropped.
const KEPT_MAX: usize = 6;

/// Identifies a request: its token and the server's number.
pub(crate) type Key = (u64, usize);

/// Contents of a block; `None` for zeros.
type Contents = Option<Box<[u8; BLOCK]>>;

#[derive(Debug)]
struct Replaced {
    /// Sequence number of the write that replaced it.
    by: u64,
    /// Sequence number of its acknowledgement; `None` while in flight.
    acknowledged: Option<u64>,
    before: Contents,
}

#[derive(Debug, Clone, Copy)]
enum Pending {
    Change {
        by: u64,
        first: u64,
        last: u64,
    },
    /// Covers the writes acknowledged before it arrived.
    Flush {
        after: u64,
    },
}

/// The effect of a power cut.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerCut {
    /// Blocks of 4 KiB that were written and not flushed.
    pub unflushed: u64,
    /// Blocks that differ from their last write, in disk order.
    pub lost: Vec<LostBlock>,
}

impl PowerCut {
    /// Number of lost blocks that mix two writes.
    #[must_use]
    pub fn torn(&self) -> u64 {
        self.lost.iter().filter(|one| one.sectors_written.is_some()).count() as u64
    }
}

/// A 4 KiB block that differs from its last write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostBlock {
    /// Its number on the disk, from 0.
    pub block: u64,
    /// Sectors of a torn block that the write in flight had reached: bit 0 is the first. The others have
    /// older contents.
    pub sectors_written: Option<u8>,
}

/// The log of unflushed changes.
#[derive(Debug, Default)]
pub(crate) struct Unflushed {
    blocks: BTreeMap<u64, Vec<Replaced>>,
    under_way: HashMap<Key, Pending>,
    changes: u64,
    acknowledgements: u64,
}

/// Contents of a block of the store.
fn held(store: &Store, block: u64) -> io::Result<Contents> {
    let mut space = Box::new([0u8; BLOCK]);
    store.read(block * BLOCK as u64, &mut space[..])?;
    Ok(space.iter().any(|byte| *byte != 0).then_some(space))
}

fn put(store: &Store, block: u64, contents: Option<&[u8; BLOCK]>) -> io::Result<()> {
    let offset = block * BLOCK as u64;
    let room = usize::try_from(store.size().get() - offset).unwrap_or(BLOCK).min(BLOCK);
    match contents {
        Some(bytes) => store.write(offset, &bytes[..room]),
        None => store.discard(offset, room as u64),
    }
}

impl Unflushed {
    /// Saves a range before it is changed by `key`.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn changes(
        &mut self,
        key: Key,
        store: &Store,
        (offset, length): (u64, u64),
    ) -> io::Result<()> {
        let end = offset.saturating_add(length).min(store.size().get());
        if offset >= end {
            return Ok(());
        }
        let (first, last) = (offset / BLOCK as u64, (end - 1) / BLOCK as u64);
        self.changes += 1;
        let by = self.changes;
        for block in first..=last {
            let before = held(store, block)?;
            let kept = self.blocks.entry(block).or_default();
            if kept.len() == KEPT_MAX {
                kept.remove(1);
            }
            kept.push(Replaced { by, acknowledged: None, before });
        }
        self.under_way.insert(key, Pending::Change { by, first, last });
        Ok(())
    }

    /// A flush arrives.
    pub fn flush_comes(&mut self, key: Key) {
        self.under_way.insert(key, Pending::Flush { after: self.acknowledgements });
    }

    /// The request `key` is acknowledged; a `protected` change (FUA) survives from now on.
    pub fn acknowledge(&mut self, key: Key, protected: bool) {
        match self.under_way.remove(&key) {
            None => {}
            Some(Pending::Flush { after }) => {
                self.blocks.retain(|_, kept| {
                    let safe = |one: &Replaced| one.acknowledged.is_some_and(|at| at <= after);
                    let drop = kept.iter().rposition(safe).map_or(0, |last| last + 1);
                    kept.drain(..drop);
                    !kept.is_empty()
                });
            }
            Some(Pending::Change { by, first, last }) => {
                self.acknowledgements += 1;
                for (_, kept) in self.blocks.range_mut(first..=last) {
                    let Some(place) = kept.iter().position(|one| one.by == by) else { continue };
                    kept[place].acknowledged = Some(self.acknowledgements);
                    if protected {
                        kept.drain(..=place);
                    }
                }
                if protected {
                    self.blocks.retain(|_, kept| !kept.is_empty());
                }
            }
        }
    }

    /// Cuts the power: gives the store one of the possible contents after it.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn cut(&mut self, store: &Store, seed: Seed) -> io::Result<PowerCut> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed.derive("power cut", 0).0);
        // Some cuts lose everything, some next to nothing.
        let mode = random.random_range(0..6u32);
        let keeps = f64::from(mode.saturating_sub(1)) / 4.0;
        let blocks = std::mem::take(&mut self.blocks);
        self.under_way.clear();
        let mut done = PowerCut { unflushed: blocks.len() as u64, ..PowerCut::default() };
        for (block, kept) in blocks {
            let state = match mode {
                0 => 0,
                _ if random.random_bool(keeps) => kept.len(),
                _ => random.random_range(0..kept.len()),
            };
            if state == kept.len() {
                continue;
            }
            let mut lost = LostBlock { block, sectors_written: None };
            let mut contents = kept[state].before.clone();
            if kept[state].acknowledged.is_none() && random.random_bool(0.5) {
                let after = match kept.get(state + 1) {
                    Some(next) => next.before.clone(),
                    None => held(store, block)?,
                };
                let after = after.unwrap_or_else(|| Box::new([0; BLOCK]));
                let torn = contents.get_or_insert_with(|| Box::new([0; BLOCK]));
                let mut written = 0;
                for sector in 0..BLOCK / SECTOR {
                    if random.random_bool(0.5) {
                        let whole = sector * SECTOR..(sector + 1) * SECTOR;
                        torn[whole.clone()].copy_from_slice(&after[whole]);
                        written |= 1 << sector;
                    }
                }
                lost.sectors_written = Some(written);
            }
            done.lost.push(lost);
            put(store, block, contents.as_deref())?;
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use units::Bytes;

    use super::*;

    const SIZE: u64 = 1 << 20;

    struct Drive {
        store: Store,
        log: Unflushed,
    }

    impl Drive {
        fn new() -> Self {
            Self { store: Store::in_memory(Bytes(SIZE)).unwrap(), log: Unflushed::default() }
        }

        fn write(&mut self, id: u64, block: u64, value: u8) {
            let range = (block * 4096, 4096);
            self.log.changes((id, 0), &self.store, range).unwrap();
            self.store.write(range.0, &[value; 4096]).unwrap();
        }

        fn acknowledge(&mut self, id: u64) {
            self.log.acknowledge((id, 0), false);
        }

        fn flush(&mut self, id: u64) {
            self.log.flush_comes((id, 0));
            self.acknowledge(id);
        }

        fn block(&self, block: u64) -> Vec<u8> {
            let mut found = vec![0; 4096];
            self.store.read(block * 4096, &mut found).unwrap();
            found
        }
    }

    /// A cut that loses flushed data would blame engines for faults that no drive has; one that loses nothing
    /// would let every engine pass.
    #[test]
    fn what_was_flushed_stays_and_what_was_not_may_go() {
        let (mut lost, mut kept) = (0, 0);
        for seed in 0..200 {
            let mut drive = Drive::new();
            drive.write(1, 0, 1);
            drive.acknowledge(1);
            drive.flush(2);
            drive.write(3, 0, 2);
            drive.acknowledge(3);
            drive.write(4, 1, 3);
            drive.acknowledge(4);
            let cut = drive.log.cut(&drive.store, Seed(seed)).unwrap();
            assert_eq!((cut.unflushed, cut.torn()), (2, 0));
            let (first, second) = (drive.block(0), drive.block(1));
            assert!(first == [1; 4096] || first == [2; 4096], "an older one, or the last");
            assert!(second == [0; 4096] || second == [3; 4096]);
            let gone = u64::from(first[0] == 1) + u64::from(second[0] == 0);
            assert_eq!(gone, cut.lost.len() as u64);
            lost += gone;
            kept += 2 - gone;
        }
        assert!(lost > 100 && kept > 100, "{lost} lost, {kept} kept");
    }

    /// A write in flight during a flush is not covered by it and may be torn.
    #[test]
    fn a_write_beside_a_flush_is_not_promised_and_may_be_torn() {
        let (mut old, mut torn) = (0, 0);
        for seed in 0..200 {
            let mut drive = Drive::new();
            drive.write(1, 5, 7);
            drive.log.flush_comes((2, 0));
            drive.acknowledge(2);
            let cut = drive.log.cut(&drive.store, Seed(seed)).unwrap();
            let found = drive.block(5);
            old += u64::from(found == [0; 4096]);
            torn += cut.torn();
            for (number, sector) in found.chunks(512).enumerate() {
                assert!(sector == [0; 512] || sector == [7; 512], "sectors are whole");
                let Some(written) = cut.lost.first().and_then(|one| one.sectors_written) else {
                    continue;
                };
                assert_eq!(sector[0] == 7, written >> number & 1 == 1, "the cut says which");
            }
        }
        assert!(old > 20 && torn > 20, "{old} as before, {torn} torn");
    }

    /// A flush covers only what was acknowledged when it arrived; otherwise an engine that flushes too early
    /// would pass.
    #[test]
    fn a_write_that_is_acknowledged_while_a_flush_is_under_way_is_not_promised() {
        let lost = (0..200).filter(|seed| {
            let mut drive = Drive::new();
            drive.write(1, 5, 7);
            drive.log.flush_comes((2, 0));
            drive.acknowledge(1);
            drive.acknowledge(2);
            let cut = drive.log.cut(&drive.store, Seed(*seed)).unwrap();
            assert_eq!((cut.unflushed, cut.torn()), (1, 0));
            drive.block(5) == [0; 4096]
        });
        let lost = lost.count();
        assert!((20..180).contains(&lost), "{lost} of 200 lost");
    }

    #[test]
    fn capacitors_keep_what_was_acknowledged() {
        let mut drive = Drive::new();
        drive.write(1, 0, 1);
        drive.log.acknowledge((1, 0), true);
        drive.log.changes((2, 0), &drive.store, (0, SIZE)).unwrap();
        drive.store.discard(0, SIZE).unwrap();
        drive.log.acknowledge((2, 0), true);
        let cut = drive.log.cut(&drive.store, Seed(1)).unwrap();
        assert_eq!(cut, PowerCut::default());
        assert_eq!(drive.block(0), [0; 4096]);
    }

    /// Overwriting a block without a flush must not grow memory.
    #[test]
    fn the_oldest_and_the_latest_contents_are_kept() {
        let mut found = std::collections::BTreeSet::new();
        for seed in 0..300 {
            let mut drive = Drive::new();
            for value in 1..=20 {
                drive.write(value, 0, value as u8);
                drive.acknowledge(value);
            }
            assert_eq!(drive.log.blocks[&0].len(), KEPT_MAX);
            drive.log.cut(&drive.store, Seed(seed)).unwrap();
            found.insert(drive.block(0)[0]);
        }
        assert!(found.contains(&0) && found.contains(&20) && found.contains(&19), "{found:?}");
        assert!(found.len() <= KEPT_MAX + 1);
    }
}
