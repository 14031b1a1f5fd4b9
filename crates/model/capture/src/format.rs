//! The recording file: a compressed header in TOML and one stream of events for each CPU and source.
//!
//! It contains thread names, device numbers, offsets and sizes; no file names, no SQL text, no data.
//! Layout after decompression: `CPCAP`, version, length and text of the header, number of streams, length and
//! bytes of each, CRC-32 of everything before. Integers are little-endian, 32 or 64 bits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use units::Nanos;

use crate::event::{Decoder, Encoder, Event};

const MAGIC: &[u8; 5] = b"CPCAP";
const VERSION: u8 = 2;
/// Bytes that a recording may have after decompression.
pub const SIZE_MAX: u64 = 1 << 30;
/// Events that a recording may have: 4 GiB of memory while it is analysed.
pub const EVENTS_MAX: usize = 45_000_000;
/// CPUs that a host may have.
const CPUS_MAX: u32 = 8192;
/// Characters of a name.
const NAME_MAX: usize = 64;
/// Longest recording, ns: 24 h. A damaged one may hold any times.
const LENGTH_MAX: u64 = 86_400_000_000_000;
const LEVEL: i32 = 3;

/// A process of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Its ID.
    pub pid: u32,
    /// Name of its program.
    pub name: String,
    /// It sends requests to the captured process.
    pub client: bool,
}

/// A thread of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thread {
    /// Its ID.
    pub tid: u32,
    /// Process; 0 for a kernel thread.
    pub pid: u32,
    /// Its own name.
    pub name: String,
}

/// A drive of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Device number, as in the events.
    pub number: u32,
    /// Name in /dev.
    pub name: String,
    /// Drives that it is made of: a volume's requests are seen again on these.
    #[serde(default)]
    pub made_of: Vec<u32>,
}

/// What recording cost, from intervals with and without it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overhead {
    /// Share of the rate of context switches that was lost while recording; negative if it was higher.
    pub lost: f64,
    /// Standard error of that share.
    pub error: f64,
}

/// Facts about a recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Linux release.
    pub kernel: String,
    /// Online CPUs.
    pub cpus: u32,
    /// Start of the recorded time, on the clock of the events.
    pub start: u64,
    /// End of it.
    pub end: u64,
    /// Events that the kernel dropped because its buffer was full.
    pub lost: u64,
    /// Requests to drives by programs that are not recorded.
    pub other_requests: u64,
    /// Share of all CPUs that was busy for others than the recorded threads; steal time counts.
    pub other_load: f64,
    /// Absent if nothing that it is derived from happened.
    pub overhead: Option<Overhead>,
    /// Processes.
    #[serde(default)]
    pub process: Vec<Process>,
    /// Threads.
    #[serde(default)]
    pub thread: Vec<Thread>,
    /// Drives.
    #[serde(default)]
    pub disk: Vec<Disk>,
}

impl Header {
    /// Length of the recording, at most 24 h.
    #[must_use]
    pub fn length(&self) -> Nanos {
        Nanos(self.last().saturating_sub(self.start))
    }

    /// The header of a file, whose author may be any user: `None` if its numbers are impossible; names
    /// become short and free of control characters.
    fn checked(mut self) -> Option<Self> {
        // A loss may be measured as a small gain; the error of few switches can be large.
        let cost = self.overhead.is_none_or(|cost| {
            (-100.0..=1.0).contains(&cost.lost) && (0.0..=100.0).contains(&cost.error)
        });
        let load = (0.0..=1.0).contains(&self.other_load);
        if !(1..=CPUS_MAX).contains(&self.cpus) || !cost || !load {
            return None;
        }
        let names = self.process.iter_mut().map(|one| &mut one.name);
        let names = names.chain(self.thread.iter_mut().map(|one| &mut one.name));
        for name in names.chain(self.disk.iter_mut().map(|one| &mut one.name)) {
            let shown = name.chars().filter(|c| !is_control(*c)).take(NAME_MAX).collect();
            *name = shown;
        }
        Some(self)
    }

    /// End of what is analysed.
    pub(crate) fn last(&self) -> u64 {
        self.end.min(self.start.saturating_add(LENGTH_MAX))
    }
}

/// A recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// Facts.
    pub header: Header,
    streams: Vec<Vec<u8>>,
}

/// Why a file is not a recording.
#[derive(Debug, Error)]
pub enum FormatError {
    /// Cannot be decompressed.
    #[error("not a recording, or truncated: {0}")]
    Compression(#[from] std::io::Error),
    /// Damaged.
    #[error("the recording is damaged: {0}")]
    Damaged(&'static str),
    /// Written by another version.
    #[error("the recording has format {0}; this version reads {VERSION}")]
    Version(u8),
    /// The header does not parse.
    #[error("the recording's header is damaged: {0}")]
    Header(String),
}

impl Recording {
    /// A recording of encoded streams.
    #[must_use]
    pub fn new(header: Header, streams: &[Encoder]) -> Self {
        Self { header, streams: streams.iter().map(|one| one.bytes().to_vec()).collect() }
    }

    /// Bytes of all streams, uncompressed.
    #[must_use]
    pub fn size(&self) -> usize {
        self.streams.iter().map(Vec::len).sum()
    }

    /// The file's bytes.
    ///
    /// # Errors
    /// If compression fails.
    pub fn to_bytes(&self) -> std::io::Result<Vec<u8>> {
        let header = toml::to_string(&self.header).map_err(std::io::Error::other)?;
        let mut raw = Vec::with_capacity(self.size() + 4096);
        raw.extend_from_slice(MAGIC);
        raw.push(VERSION);
        raw.extend((header.len() as u32).to_le_bytes());
        raw.extend_from_slice(header.as_bytes());
        raw.extend((self.streams.len() as u32).to_le_bytes());
        for stream in &self.streams {
            raw.extend((stream.len() as u64).to_le_bytes());
            raw.extend_from_slice(stream);
        }
        raw.extend(crc32fast::hash(&raw).to_le_bytes());
        zstd::encode_all(raw.as_slice(), LEVEL)
    }

    /// Reads a file's bytes.
    ///
    /// # Errors
    /// If they are not an undamaged recording of this version.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut raw = Vec::new();
        zstd::Decoder::new(bytes)?.take(SIZE_MAX + 1).read_to_end(&mut raw)?;
        if raw.len() as u64 > SIZE_MAX {
            return Err(FormatError::Damaged("larger than 1 GiB"));
        }
        let (mut rest, sum) = raw.split_last_chunk().ok_or(FormatError::Damaged("too short"))?;
        if rest.get(..MAGIC.len()) != Some(MAGIC) {
            return Err(FormatError::Damaged("not written by crosspoint capture"));
        }
        match rest.get(MAGIC.len()) {
            Some(&VERSION) => {}
            other => return Err(FormatError::Version(other.copied().unwrap_or_default())),
        }
        if crc32fast::hash(rest) != u32::from_le_bytes(*sum) {
            return Err(FormatError::Damaged("wrong checksum"));
        }
        rest = &rest[MAGIC.len() + 1..];
        let short = FormatError::Damaged("a length is wrong");
        let length = take(&mut rest, 4).map(|raw| number(raw) as usize);
        let Some(header) = length.and_then(|length| take(&mut rest, length)) else {
            return Err(short);
        };
        let text =
            std::str::from_utf8(header).map_err(|error| FormatError::Header(error.to_string()))?;
        let header: Header =
            toml::from_str(text).map_err(|error| FormatError::Header(error.to_string()))?;
        let header = header.checked().ok_or(FormatError::Damaged("impossible facts"))?;
        let Some(count) = take(&mut rest, 4).map(number) else { return Err(short) };
        let mut streams = Vec::new();
        // One for each CPU of each instance, and one more.
        if count > u64::from(2 * CPUS_MAX + 1) {
            return Err(FormatError::Damaged("too many streams"));
        }
        for _ in 0..count {
            let length = take(&mut rest, 8).map(|raw| number(raw) as usize);
            let Some(stream) = length.and_then(|length| take(&mut rest, length)) else {
                return Err(short);
            };
            streams.push(stream.to_vec());
        }
        Ok(Self { header, streams })
    }

    /// All events in order of time.
    ///
    /// # Errors
    /// If a stream is damaged.
    pub fn events(&self) -> Result<Vec<Event>, FormatError> {
        let mut decoders: Vec<Decoder<'_>> =
            self.streams.iter().map(|one| Decoder::new(one)).collect();
        let mut heads: Vec<Option<Event>> = Vec::with_capacity(decoders.len());
        let mut next = |at: usize| {
            let event = decoders[at].next().transpose();
            event.map_err(|()| FormatError::Damaged("an event cannot be decoded"))
        };
        let mut order = BinaryHeap::new();
        for stream in 0..self.streams.len() {
            heads.push(next(stream)?);
            order.extend(heads[stream].map(|event| Reverse((event.at, stream))));
        }
        let mut events = Vec::new();
        while let Some(Reverse((_, stream))) = order.pop() {
            events.extend(heads[stream].take());
            if events.len() > EVENTS_MAX {
                return Err(FormatError::Damaged("more than 45 million events"));
            }
            heads[stream] = next(stream)?;
            order.extend(heads[stream].map(|event| Reverse((event.at, stream))));
        }
        Ok(events)
    }
}

/// Control characters and marks of writing direction.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(count)?;
    *rest = tail;
    Some(head)
}

/// A little-endian integer of up to eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
