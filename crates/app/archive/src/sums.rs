//! Checksums of a run's files, in one list that grows with the run.
//!
//! One line per file: checksum, length, path in the run, and a checksum of the line; the last line of a path
//! is valid. Invariants: a file's line is durable before the file exists; a line cut off by a kill belongs to
//! a missing file; a run whose header promises the list is damaged without it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use crate::ArchiveError;
use crate::files::{Digest, RunFile, SUMS, SizeLimit, TRIALS};
use crate::output::{append, replace_durably};

/// The checksums of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sums(BTreeMap<String, Digest>);

/// The line of a file with this digest.
pub(crate) fn line(path: &str, digest: Digest) -> String {
    let start = format!("{:08x} {} {path}", digest.crc32, digest.bytes);
    format!("{start} {:08x}\n", crc32fast::hash(start.as_bytes()))
}

impl Sums {
    /// Parses a list.
    ///
    /// # Errors
    /// The number of the corrupt line.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let mut sums = BTreeMap::new();
        for (number, one) in text[..whole].split(|byte| *byte == b'\n').enumerate() {
            if number > 0 && one.is_empty() {
                continue;
            }
            let read = || {
                let one = std::str::from_utf8(one).ok()?;
                let (start, own) = one.rsplit_once(' ')?;
                let mut parts = start.splitn(3, ' ');
                let crc32 = u32::from_str_radix(parts.next()?, 16).ok()?;
                let (bytes, path) = (parts.next()?.parse().ok()?, parts.next()?);
                let same = own == format!("{:08x}", crc32fast::hash(start.as_bytes()));
                same.then(|| (path.to_owned(), Digest { bytes, crc32 }))
            };
            match read() {
                Some((path, sum)) => sums.insert(path, sum),
                None if whole == 0 => None,
                None => return Err(format!("line {} is corrupt", number + 1)),
            };
        }
        Ok(Self(sums))
    }

    /// Reads the checksum list of a run; `None` unless the header `promised` one, because a list without that
    /// is unfinished.
    pub(crate) fn read(run: &Path, promised: bool) -> Result<Option<Self>, ArchiveError> {
        if !promised {
            return Ok(None);
        }
        let path = run.join(SUMS);
        let text = RunFile::open(&path, SizeLimit::SUMS, None)?.bytes()?;
        Self::parse(&text).map(Some).map_err(|reason| ArchiveError::damaged(&path, reason))
    }

    /// Whether the list has a file.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    /// The expected digest of a file of the run.
    pub(crate) fn expected(&self, run: &Path, path: &str) -> Result<Digest, ArchiveError> {
        let missing = || {
            let reason = "it is not listed in sums.txt";
            ArchiveError::damaged(&run.join(path), reason)
        };
        self.0.get(path).copied().ok_or_else(missing)
    }

    /// Names of the trial folders in the list.
    pub(crate) fn trials(&self) -> BTreeSet<&str> {
        self.0.keys().filter_map(|path| slug(path)).collect()
    }

    /// Rewrites the list for the remaining files: those of the trials in the folders `kept`, and those
    /// outside of any trial.
    pub(crate) fn rewrite(
        &self,
        run: &Path,
        kept: &BTreeMap<String, u32>,
    ) -> Result<(), ArchiveError> {
        let stays = |path: &str| slug(path).is_none_or(|slug| kept.contains_key(slug));
        let lines = self.0.iter().filter(|(path, _)| stays(path));
        let text: String = lines.map(|(path, digest)| line(path, *digest)).collect();
        let path = run.join(SUMS);
        replace_durably(&path, text.as_bytes()).map_err(ArchiveError::io("replace", &path))
    }
}

/// The trial folder that a path in a run is in.
fn slug(path: &str) -> Option<&str> {
    path.strip_prefix(TRIALS)?.strip_prefix('/')?.split('/').next()
}

/// Adds files, by their paths in the run, durably.
pub(crate) fn add(run: &Path, files: &[(String, &[u8])]) -> Result<(), ArchiveError> {
    let path = run.join(SUMS);
    let text: String = files.iter().map(|(path, bytes)| line(path, Digest::of(bytes))).collect();
    let write = || {
        let mut file = append(&path, true)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(ArchiveError::io("write", &path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_the_list_is_found() {
        let two = Digest::of(b"two");
        let text = line("a/b.json", Digest::of(b"one")) + &line("c", two);
        let sums = Sums::parse(text.as_bytes()).unwrap();
        assert_eq!(sums.expected(Path::new("/"), "c").unwrap(), two);
        assert_ne!(Digest::of(b"twO"), two);
        assert!(sums.expected(Path::new("/"), "d").is_err());
        for at in 0..text.len() * 8 {
            let mut bytes = text.clone().into_bytes();
            bytes[at / 8] ^= 1 << (at % 8);
            // A last line without a newline was cut off by a kill; its file then has no checksum.
            let found = Sums::parse(&bytes).map_or(true, |read| read != sums);
            assert!(found, "bit {at}");
        }
    }
}
