//! Recordings as HDR histogram logs, the text format of the HdrHistogram tools.
//!
//! One line per interval and class; the tag names both (`7-measure-read`, and `7-measure-read-service` for
//! service times); operations carried over the end of the warm-up have `carried-read`. Counts that a
//! histogram does not hold (bytes, errors, exact sums) are in the trial's document next to the log.
//! Invariant: a written log reads back equal.

use std::io::{BufRead, Read};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::serialization::interval_log::{
    IntervalLogIterator, IntervalLogWriterBuilder, LogEntry, Tag,
};
use hdrhistogram::serialization::{Deserializer, V2DeflateSerializer, V2Serializer};
use thiserror::Error;
use units::Nanos;
use workload::OpClass;

use crate::recording::{Recording, Tallies};
use crate::{Histogram, StoredLatency, new_histogram, same_bounds};

/// Why a log could not be written or read.
#[derive(Debug, Error)]
#[error("histogram log: {0}")]
pub struct LogError(String);

/// End of the tag of a histogram of service times.
const SERVICE: &str = "-service";
/// Tag prefix of operations carried over the end of the warm-up.
const CARRIED: &str = "carried";

/// Writes every non-empty histogram of `recording`.
///
/// # Errors
/// A message, if encoding fails.
pub fn write_log(recording: &Recording) -> Result<Vec<u8>, LogError> {
    let failed = |error: &dyn std::fmt::Debug| LogError(format!("{error:?}"));
    let mut bytes = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("Crosspoint: response times in nanoseconds")
        .begin_log_with(&mut bytes, &mut serializer)
        .map_err(|error| failed(&error))?;
    let mut write = |tallies: &Tallies, (start, end): (Nanos, Nanos), name: &str| {
        for (class, tally) in tallies.iter() {
            for (kind, latency) in [("", &tally.latency), (SERVICE, &tally.service)] {
                if latency.is_empty() {
                    continue;
                }
                let tag = format!("{name}-{}{kind}", class.word());
                let tag = Tag::new(&tag).ok_or_else(|| LogError("bad tag".into()))?;
                let (start, length) = (Duration::from(start), Duration::from(end.since(start)));
                log.write_histogram(&latency.histogram(), start, length, Some(tag))
                    .map_err(|error| failed(&error))?;
            }
        }
        Ok(())
    };
    for (position, interval) in recording.intervals.iter().enumerate() {
        let name = format!("{position}-{}", interval.phase.word());
        write(&interval.tallies, (interval.start, interval.end), &name)?;
    }
    write(&recording.carried, (Nanos::ZERO, Nanos::ZERO), CARRIED)?;
    drop(log);
    Ok(bytes)
}

/// Longest line of a log, bytes: a histogram with a nine-byte count in every bin, in base64.
const LINE_MAX: u64 = 1 << 20;
/// First four bytes of a compressed and of a plain histogram, and the length of the plain header
/// (HdrHistogram, encoding version 2).
const COMPRESSED: [u8; 4] = 0x1c84_9314_u32.to_be_bytes();
const PLAIN: [u8; 4] = 0x1c84_9313_u32.to_be_bytes();
const HEADER: usize = 40;
/// Most significant digits and bytes of a plain histogram. Three digits need at most 54 buckets of 1,024
/// bins, and a count at most nine bytes.
const DIGITS_MAX: u32 = 3;
const PLAIN_MAX: u64 = HEADER as u64 + 55 * 1024 * 9;
/// Maximum size of a recording: this multiple of its encoded histograms, plus this many bytes. Real
/// histograms are encoded to about half of their size; constant counts, as in forged ones, to a
/// five-hundredth.
const EXPANSION_MAX: usize = 16;
const EXPANSION_FREE: usize = 256 << 10;

/// Puts the histograms of a log into `recording`, whose intervals exist already. Memory is bounded by the
/// length of the log, whatever sizes it claims.
///
/// # Errors
/// If the log cannot be read or is damaged, or has an interval that `recording` does not have.
pub fn read_log(mut log: impl BufRead, recording: &mut Recording) -> Result<(), LogError> {
    let (mut deserializer, mut serializer) = (Deserializer::new(), V2Serializer::new());
    let plain = new_histogram();
    let (mut line, mut read, mut stored) = (Vec::new(), 0, 0);
    loop {
        line.clear();
        let length = log.by_ref().take(LINE_MAX).read_until(b'\n', &mut line);
        let length = length.map_err(|error| LogError(error.to_string()))?;
        if length == 0 {
            return Ok(());
        }
        if length as u64 == LINE_MAX {
            return Err(LogError(format!("a line is longer than {LINE_MAX} bytes")));
        }
        for entry in IntervalLogIterator::new(&line) {
            let entry = entry.map_err(|error| LogError(format!("unreadable line: {error:?}")))?;
            let LogEntry::Interval(line) = entry else { continue };
            let tag = line.tag().map(|tag| tag.as_str().to_owned()).unwrap_or_default();
            let damaged = |reason: &str| LogError(format!("`{tag}`: {reason}"));
            let slot = slot(recording, &tag)?;
            if !slot.is_empty() {
                return Err(damaged("occurs twice"));
            }
            read += line.encoded_histogram().len();
            let encoded = inflated(line.encoded_histogram()).map_err(|error| damaged(&error))?;
            let latency: Histogram = deserializer
                .deserialize(&mut encoded.as_slice())
                .map_err(|error| damaged(&format!("{error:?}")))?;
            let latency = if same_bounds(&latency, &plain) {
                latency
            } else {
                let mut sum = new_histogram();
                sum.add(&latency).map_err(|error| damaged(&error.to_string()))?;
                sum
            };
            *slot = StoredLatency::encode_with(&mut serializer, &latency)
                .map_err(|error| damaged(&error))?;
            stored += slot.bytes();
            if stored > read * EXPANSION_MAX + EXPANSION_FREE {
                return Err(damaged("expands beyond the limit of a histogram"));
            }
        }
    }
}

/// Where the histogram with this tag belongs.
fn slot<'a>(recording: &'a mut Recording, tag: &str) -> Result<&'a mut StoredLatency, LogError> {
    let missing = || LogError(format!("line tagged `{tag}` has no interval"));
    let (place, rest) = tag.split_once('-').unwrap_or((tag, ""));
    let tallies = match place.parse::<usize>() {
        Ok(at) => &mut recording.intervals.get_mut(at).ok_or_else(missing)?.tallies,
        Err(_) if place == CARRIED => &mut recording.carried,
        Err(_) => return Err(missing()),
    };
    let (rest, service) = match rest.strip_suffix(SERVICE) {
        Some(rest) => (rest, true),
        None => (rest, false),
    };
    let is_of = |class: &OpClass| {
        let phase = rest.strip_suffix(class.word());
        phase.is_some_and(|phase| phase.is_empty() || phase.ends_with('-'))
    };
    let class = OpClass::ALL.into_iter().find(is_of).ok_or_else(missing)?;
    let tally = tallies.of(class);
    Ok(if service { &mut tally.service } else { &mut tally.latency })
}

/// The decompressed histogram in `encoded`; its lengths are checked against the input before anything is
/// allocated.
fn inflated(encoded: &str) -> Result<Vec<u8>, String> {
    let bytes = STANDARD.decode(encoded).map_err(|error| error.to_string())?;
    let word =
        |bytes: &[u8], at: usize| -> Option<[u8; 4]> { bytes.get(at..at + 4)?.try_into().ok() };
    let number = |bytes: &[u8], at: usize| word(bytes, at).map(u32::from_be_bytes);
    if word(&bytes, 0) != Some(COMPRESSED) {
        return Err("not a compressed histogram".into());
    }
    let mut plain = Vec::new();
    let mut inflater = ZlibDecoder::new(bytes.get(8..).unwrap_or_default()).take(PLAIN_MAX);
    inflater.read_to_end(&mut plain).map_err(|error| error.to_string())?;
    let counts = plain.len().checked_sub(HEADER);
    if word(&plain, 0) != Some(PLAIN) || number(&plain, 4).map(|length| length as usize) != counts {
        return Err("its length is wrong".into());
    }
    if number(&plain, 12).is_none_or(|digits| digits > DIGITS_MAX) {
        return Err(format!("more than {DIGITS_MAX} significant digits"));
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Recorder, Sample, Timeline};
    use workload::Outcome;

    fn recording() -> Recording {
        let timeline =
            Timeline { warm_up: Nanos(1000), measure: Nanos(5000), interval: Nanos(1000) };
        let mut recorder = Recorder::with_service(timeline, &OpClass::ALL);
        for step in 1..800u64 {
            let now = Nanos(step * 8);
            while recorder.poll(now).is_some() {}
            recorder.record(Sample {
                class: OpClass::ALL[step as usize % OpClass::COUNT],
                intended: Nanos(step * 8 - step.min(7)),
                issued: Nanos(step * 8 - step.min(3)),
                completed: now,
                bytes: 1,
                outcome: Outcome::Done,
                position: 0,
            });
        }
        recorder.finish(Nanos(7000))
    }

    /// Percentiles of a stored log must equal those of the trial.
    #[test]
    fn a_log_reads_back_equal() {
        let original = recording();
        let bytes = write_log(&original).unwrap();
        let mut copy = original.clone();
        assert!(!original.carried.is_empty());
        let all = copy.intervals.iter_mut().map(|interval| &mut interval.tallies);
        for tallies in all.chain([&mut copy.carried]) {
            for (_, tally) in tallies.iter_mut() {
                tally.latency = StoredLatency::default();
                tally.service = StoredLatency::default();
            }
        }
        read_log(bytes.as_slice(), &mut copy).unwrap();
        assert!(original.intervals == copy.intervals, "what was read differs");
        assert!(original.carried == copy.carried, "what was read differs");
        assert_eq!(bytes, write_log(&original).unwrap(), "same recording, same bytes");
    }

    #[test]
    fn damage_is_told_not_swallowed() {
        let mut original = recording();
        let bytes = write_log(&original).unwrap();
        let cut = &bytes[..bytes.len() - 30];
        assert!(read_log(cut, &mut original).is_err());
        assert!(read_log(bytes.as_slice(), &mut Recording::default()).is_err());
    }

    /// A length in a header must not allocate memory that the file cannot fill: 3.7 KB once allocated 4.1 GB.
    #[test]
    fn lengths_are_checked_before_they_are_allocated() {
        let mut compressed = COMPRESSED.to_vec();
        let mut plain = PLAIN.to_vec();
        plain.extend(u32::MAX.to_be_bytes());
        plain.extend(0_u32.to_be_bytes());
        plain.extend(3_u32.to_be_bytes());
        plain.resize(HEADER, 0);
        let pack = |plain: &[u8], compressed: &mut Vec<u8>| {
            compressed.truncate(4);
            let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
            std::io::Write::write_all(&mut zlib, plain).unwrap();
            let packed = zlib.finish().unwrap();
            compressed.extend((packed.len() as u32).to_be_bytes());
            compressed.extend(packed);
            inflated(&STANDARD.encode(compressed))
        };
        assert_eq!(pack(&plain, &mut compressed).unwrap_err(), "its length is wrong");
        plain[4..8].copy_from_slice(&0_u32.to_be_bytes());
        assert!(pack(&plain, &mut compressed).is_ok());
        plain[12..16].copy_from_slice(&5_u32.to_be_bytes());
        assert!(pack(&plain, &mut compressed).unwrap_err().contains("digits"));
        let bomb = vec![0; 64 << 20];
        assert_eq!(pack(&bomb, &mut compressed).unwrap_err(), "its length is wrong");
        let endless = [b'a'; LINE_MAX as usize + 1];
        let error = read_log(endless.as_slice(), &mut Recording::default()).unwrap_err();
        assert!(error.to_string().contains("longer than"), "{error}");
    }

    /// A duplicate histogram must be reported as damage: the second one once replaced the first.
    #[test]
    fn a_histogram_that_occurs_twice_is_damage() {
        let mut copy = recording();
        let log = String::from_utf8(write_log(&copy).unwrap()).unwrap();
        let last = log.lines().last().unwrap();
        let twice = format!("{log}{last}\n");
        copy.intervals.iter_mut().for_each(|one| {
            one.tallies.iter_mut().for_each(|(_, tally)| {
                (tally.latency, tally.service) = Default::default();
            });
        });
        copy.carried = Tallies::default();
        assert!(read_log(twice.as_bytes(), &mut copy).unwrap_err().to_string().contains("twice"));
    }
}
