//! Checksums of a run's files, in one list that grows with the run.
//!
//! A line a file: checksum, bytes, path in the run, and a checksum of the line itself; the last line of a
//! path holds. Invariants: a file's line is durable before the file is there; a line that was cut off by a
//! kill is of a file that is not there; a run whose header promises the list is damaged without it.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::ArchiveError;
use crate::files::read_file;

/// Name of the list in a run folder.
pub(crate) const NAME: &str = "sums.txt";

/// The checksums of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sums(BTreeMap<String, (u32, u64)>);

/// The line of a file with these bytes.
pub(crate) fn line(path: &str, bytes: &[u8]) -> String {
    let start = format!("{:08x} {} {path}", crc32fast::hash(bytes), bytes.len());
    format!("{start} {:08x}\n", crc32fast::hash(start.as_bytes()))
}

impl Sums {
    /// Reads the text of a list.
    ///
    /// # Errors
    /// The number of the line that is not as it was written.
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
                let sum = u32::from_str_radix(parts.next()?, 16).ok()?;
                let (bytes, path) = (parts.next()?.parse().ok()?, parts.next()?);
                let same = own == format!("{:08x}", crc32fast::hash(start.as_bytes()));
                same.then(|| (path.to_owned(), (sum, bytes)))
            };
            match read() {
                Some((path, sum)) => sums.insert(path, sum),
                None if whole == 0 => None,
                None => return Err(format!("line {} is not as it was written", number + 1)),
            };
        }
        Ok(Self(sums))
    }

    /// The list of a run; nothing where none was `promised`: then one that is there is not finished.
    pub(crate) fn read(run: &Path, promised: bool) -> Result<Option<Self>, ArchiveError> {
        if !promised {
            return Ok(None);
        }
        let path = run.join(NAME);
        let text = read_file(&path)?;
        Self::parse(&text).map(Some).map_err(|reason| ArchiveError::damaged(&path, reason))
    }

    /// Whether the list has a file.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    /// Whether a file of the run is what was written.
    pub(crate) fn check(&self, run: &Path, path: &str, bytes: &[u8]) -> Result<(), ArchiveError> {
        let damaged = |reason: &str| Err(ArchiveError::damaged(&run.join(path), reason));
        match self.0.get(path) {
            None => damaged("the run's list of checksums does not have it"),
            Some((_, length)) if *length != bytes.len() as u64 => {
                damaged(&format!("{} bytes, {length} were written", bytes.len()))
            }
            Some((sum, _)) if *sum != crc32fast::hash(bytes) => damaged("its checksum is wrong"),
            Some(_) => Ok(()),
        }
    }
}

/// Adds files, by their paths in the run, durably.
pub(crate) fn add(run: &Path, files: &[(String, &[u8])]) -> Result<(), ArchiveError> {
    let path = run.join(NAME);
    let text: String = files.iter().map(|(path, bytes)| line(path, bytes)).collect();
    let write = || {
        let mut options = OpenOptions::new();
        options.create(true).append(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let mut file = options.open(&path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(ArchiveError::io("write", &path))
}

/// Takes off a line that a kill has cut, so that the next is a line of its own.
pub(crate) fn mend(run: &Path) -> Result<(), ArchiveError> {
    let path = run.join(NAME);
    let text = read_file(&path)?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let cut =
        OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(whole as u64));
    cut.map_err(ArchiveError::io("mend", &path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_the_list_is_found() {
        let text = line("a/b.json", b"one") + &line("c", b"two");
        let sums = Sums::parse(text.as_bytes()).unwrap();
        assert!(sums.check(Path::new("/"), "c", b"two").is_ok());
        assert!(sums.check(Path::new("/"), "c", b"twO").is_err());
        assert!(sums.check(Path::new("/"), "d", b"two").is_err());
        for at in 0..text.len() * 8 {
            let mut bytes = text.clone().into_bytes();
            bytes[at / 8] ^= 1 << (at % 8);
            // A last line without its end is one that a kill has cut: its file is then without a sum.
            let found = Sums::parse(&bytes).map_or(true, |read| read != sums);
            assert!(found, "bit {at}");
        }
    }
}
