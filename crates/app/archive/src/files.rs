//! Names of the files of a run, and reading them in bounded memory.
//!
//! Invariants: a link or anything but a regular file is damage; lengths are checked against the format's
//! maximum before anything is allocated.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::marker::PhantomData;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};

use crate::ArchiveError;

/// Folder of the trials.
pub(crate) const TRIALS: &str = "trials";
/// Folder of trials that were set aside when a run was resumed.
pub(crate) const ASIDE: &str = "aside";
/// Header; a folder with this file is a run.
pub(crate) const HEADER: &str = "run.json";
/// The resolved study.
pub(crate) const STUDY: &str = "study.toml";
/// The study as given.
pub(crate) const ORIGINAL: &str = "study.original.toml";
/// List of checksums.
pub(crate) const SUMS: &str = "sums.txt";
/// Locked by the writer.
pub(crate) const LOCK: &str = ".lock";
/// Document of a trial, without histograms.
pub(crate) const TRIAL: &str = "trial.json";
/// Histograms of a trial.
pub(crate) const LOG: &str = "latency.hlog";
/// Prefix of trial folders that are being written.
pub(crate) const UNFINISHED: &str = ".writing-";
/// Prefix of trial folders that are being set aside.
pub(crate) const SETTING_ASIDE: &str = ".leaving-";
/// File name prefix of blocks that held wrong data.
const EVIDENCE: &str = "evidence-";

/// Whether a run folder can have a top-level entry of this name that is part of the run.
#[must_use]
pub fn is_run_file(name: &str) -> bool {
    [TRIALS, ASIDE, HEADER, STUDY, ORIGINAL, SUMS, LOCK, ".live"].contains(&name)
        || [EVIDENCE, HEADER, SUMS].iter().any(|prefix| name.starts_with(prefix))
}

/// Limits of a kind of file: bytes, and JSON values. A value takes up to about 100 bytes of memory, however
/// short its text; larger ones (maps, counters) are bounded separately.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SizeLimit {
    pub bytes: u64,
    pub values: u64,
}

impl SizeLimit {
    /// `study::check_size` permits no trial with more intervals than fit.
    pub const TRIAL: Self = Self { bytes: 64 << 20, values: 4_000_000 };
    /// Contains every published figure of each stack.
    pub const HEADER: Self = Self { bytes: 8 << 20, values: 250_000 };
    pub const STUDY: Self = Self { bytes: study::LONGEST_TEXT as u64, values: u64::MAX };
    /// About 100 bytes for each file, and two files for each trial.
    pub const SUMS: Self = Self { bytes: 16 << 20, values: u64::MAX };
    /// Read line by line.
    pub const LOG: Self = Self { bytes: 1 << 30, values: u64::MAX };

    /// Whether a document can be written and read again.
    pub fn fits(self, document: &[u8]) -> bool {
        document.len() as u64 <= self.bytes && values(document) <= self.values
    }
}

/// Opens a regular file without following a link or waiting for a pipe.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let opened = fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => io::Error::other("it is a symbolic link"),
        _ => error,
    })?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

/// Length and checksum of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digest {
    pub bytes: u64,
    pub crc32: u32,
}

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, crc32: crc32fast::hash(bytes) }
    }
}

/// A file of a run that is read once, from its start to its end.
pub(crate) struct RunFile {
    path: PathBuf,
    reader: BufReader<Checked>,
    expected: Option<Digest>,
}

impl RunFile {
    /// Opens a file, checked against `expected` if that is known.
    ///
    /// # Errors
    /// [`ArchiveError::Damaged`] if it is longer than `limit` or than expected, or not a regular file.
    pub fn open(
        path: &Path,
        limit: SizeLimit,
        expected: Option<Digest>,
    ) -> Result<Self, ArchiveError> {
        let damaged = |reason: String| ArchiveError::damaged(path, reason);
        let file = open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => damaged("it is missing".into()),
            _ => damaged(error.to_string()),
        })?;
        let length = file.metadata().map_err(|error| damaged(error.to_string()))?.len();
        if length > limit.bytes {
            return Err(damaged(format!("{length} bytes; no run has more than {}", limit.bytes)));
        }
        if let Some(Digest { bytes, .. }) = expected.filter(|expected| expected.bytes != length) {
            return Err(damaged(format!("it has {length} bytes, expected {bytes}")));
        }
        let checked = Checked {
            file: file.take(limit.bytes),
            hasher: crc32fast::Hasher::new(),
            bytes: 0,
            values: 0,
            values_max: limit.values,
        };
        Ok(Self { path: path.to_owned(), reader: BufReader::new(checked), expected })
    }

    /// Reads the whole file.
    ///
    /// # Errors
    /// [`ArchiveError::Damaged`] if size or checksum differ.
    pub fn bytes(mut self) -> Result<Vec<u8>, ArchiveError> {
        let mut bytes = Vec::new();
        self.reader.read_to_end(&mut bytes).map_err(|error| self.damaged(error))?;
        self.finish()?;
        Ok(bytes)
    }

    /// The JSON document in it.
    ///
    /// # Errors
    /// As [`RunFile::bytes`].
    pub fn json<T: DeserializeOwned>(mut self) -> Result<T, ArchiveError> {
        let value = serde_json::from_reader(&mut self.reader);
        let value = value.map_err(|error| self.damaged(error))?;
        self.finish()?;
        Ok(value)
    }

    /// Reader for reading in parts, before [`RunFile::finish`].
    pub const fn reader(&mut self) -> &mut impl BufRead {
        &mut self.reader
    }

    /// Reads the rest and compares the whole with the expected digest.
    ///
    /// # Errors
    /// As [`RunFile::bytes`].
    pub fn finish(mut self) -> Result<Digest, ArchiveError> {
        io::copy(&mut self.reader, &mut io::sink()).map_err(|error| self.damaged(error))?;
        let Checked { hasher, bytes, .. } = self.reader.into_inner();
        let found = Digest { bytes, crc32: hasher.finalize() };
        match self.expected {
            Some(expected) if expected != found => {
                Err(ArchiveError::damaged(&self.path, "checksum mismatch"))
            }
            _ => Ok(found),
        }
    }

    fn damaged(&self, reason: impl std::fmt::Display) -> ArchiveError {
        ArchiveError::damaged(&self.path, reason)
    }
}

/// Counts and checksums the bytes read.
struct Checked {
    file: io::Take<File>,
    hasher: crc32fast::Hasher,
    bytes: u64,
    values: u64,
    values_max: u64,
}

impl Read for Checked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        let read = &buffer[..count];
        self.hasher.update(read);
        self.bytes += count as u64;
        if self.values_max < u64::MAX {
            self.values += values(read);
            if self.values > self.values_max {
                return Err(io::Error::other("it has more values than any run"));
            }
        }
        Ok(count)
    }
}

/// Upper bound of the values in a JSON document: one per comma, list and object.
pub(crate) fn values(text: &[u8]) -> u64 {
    text.iter().filter(|byte| b",[{".contains(byte)).count() as u64
}

/// Maximum entries of a map in a trial; a server has about 1,000 settings.
const ENTRIES_MAX: usize = 10_000;

/// Size of a map entry without its key.
pub(crate) trait Length {
    /// Bytes of text.
    fn length(&self) -> usize {
        0
    }
}

impl Length for f64 {}
impl Length for (f64, f64) {}
impl Length for u64 {}

impl Length for String {
    fn length(&self) -> usize {
        self.len()
    }
}

/// A map of at most [`ENTRIES_MAX`] entries and `TEXT` bytes of text: a four-byte entry takes about a hundred
/// bytes of memory, and points are repeated for each figure.
pub(crate) fn bounded_map<
    'de,
    D: Deserializer<'de>,
    T: Deserialize<'de> + Length,
    const TEXT: usize,
>(
    deserializer: D,
) -> Result<BTreeMap<String, T>, D::Error> {
    struct Bounded<T, const TEXT: usize>(PhantomData<T>);
    impl<'de, T: Deserialize<'de> + Length, const TEXT: usize> Visitor<'de> for Bounded<T, TEXT> {
        type Value = BTreeMap<String, T>;

        fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(out, "a map of at most {ENTRIES_MAX} entries and {TEXT} bytes")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let (mut entries, mut text) = (BTreeMap::new(), 0);
            while let Some((key, value)) = map.next_entry::<String, T>()? {
                text += key.len() + value.length();
                if entries.len() >= ENTRIES_MAX || text > TEXT {
                    return Err(serde::de::Error::invalid_length(entries.len() + 1, &self));
                }
                entries.insert(key, value);
            }
            Ok(entries)
        }
    }
    deserializer.deserialize_map(Bounded::<T, TEXT>(PhantomData))
}
