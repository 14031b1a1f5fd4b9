//! Colours of stacks: one per drive, the same in every chart and table of a page.
//!
//! Real disks have the colour of the text; a model has the colour of its drive, whatever layers it has. Some
//! drives have fixed colours on every page; others take the next unused one. Invariant: `0` is the colour of
//! the text, [`HUES`] the number of colours in the style sheet; stacks of one colour are numbered, for
//! distinct marks.

use std::collections::BTreeMap;

use archive::{Run, StackRecord};

/// Number of colours in the style sheet.
pub(crate) const HUES: usize = 8;

/// Drives with a fixed colour on every page.
const KNOWN: [(&str, usize); 5] =
    [("p4800x", 1), ("980-pro", 2), ("s3510", 3), ("p4500", 4), ("s3520", 5)];

/// The colours of a run's stacks.
#[derive(Debug, Default)]
pub(crate) struct Hues(BTreeMap<String, (usize, usize)>);

impl Hues {
    /// Assigns the colours of `run`.
    pub fn of(run: &Run) -> Self {
        let drives = || run.header.stacks.iter().filter_map(drive_of);
        let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
        for drive in drives() {
            if let Some((_, hue)) = KNOWN.iter().find(|(known, _)| *known == drive) {
                taken.insert(drive, *hue);
            }
        }
        for drive in drives() {
            if taken.contains_key(drive) {
                continue;
            }
            let free = (1..HUES).rev().find(|hue| taken.values().all(|other| other != hue));
            // With more drives than colours they repeat; labels distinguish them.
            let hue = free.unwrap_or(1 + taken.len() % (HUES - 1));
            taken.insert(drive, hue);
        }
        let hue = |stack: &StackRecord| {
            let hue = drive_of(stack).and_then(|drive| taken.get(drive).copied()).unwrap_or(0);
            (stack.name.clone(), hue)
        };
        let mut seen = [0; HUES];
        let numbered = |(name, hue): (String, usize)| {
            seen[hue] += 1;
            (name, (hue, seen[hue] - 1))
        };
        Self(run.header.stacks.iter().map(hue).map(numbered).collect())
    }

    /// Index of a stack among those of its colour.
    pub fn variant(&self, stack: &str) -> usize {
        self.0.get(stack).map_or(0, |(_, variant)| *variant)
    }

    /// The colour of a stack.
    pub fn get(&self, stack: &str) -> usize {
        self.0.get(stack).map_or(0, |(hue, _)| *hue)
    }
}

/// The drive of a model: its name without vendor and layers. `None` for a real device.
fn drive_of(stack: &StackRecord) -> Option<&str> {
    let path = stack.device.strip_prefix("model:")?;
    let name = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".toml");
    let name = ["-over-", "-in-", "-one-"]
        .iter()
        .fold(name, |name, word| name.split_once(word).map_or(name, |(drive, _)| drive));
    let name = ["cas-", "raid5-3x-"]
        .iter()
        .fold(name, |name, before| name.strip_prefix(before).unwrap_or(name));
    // The vendor is the first of several words, unless it names the drive.
    match name.split_once('-') {
        Some((maker, rest)) if !maker.contains(|c: char| c.is_ascii_digit()) => Some(rest),
        _ => Some(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(name: &str, device: &str) -> StackRecord {
        StackRecord { name: name.into(), device: device.into(), ..StackRecord::default() }
    }

    /// A drive must keep its colour behind caches, RAID and fabrics.
    #[test]
    fn a_drive_is_known_behind_whatever_stands_before_it() {
        for (device, drive) in [
            ("model:intel-p4800x", "p4800x"),
            ("model:p4800x-over-nvmeof-rdma", "p4800x"),
            ("model:900p-in-2-vms", "900p"),
            ("model:intel-900p", "900p"),
            ("model:samsung-980-pro", "980-pro"),
            ("model:cas-p4800x-over-raid5-s3520", "p4800x"),
            ("model:raid5-3x-s3520", "s3520"),
            ("model:some/where/mine.toml", "mine"),
        ] {
            assert_eq!(drive_of(&stack("a", device)), Some(drive));
        }
        assert_eq!(drive_of(&stack("a", "file")), None);
    }
}
