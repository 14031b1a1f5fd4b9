//! Recordings as HDR histogram logs, the text format that the HdrHistogram tools read.
//!
//! One line an interval and class; the tag says both (`7-measure-read`, and `7-measure-read-service` for
//! service times); what was carried over the end of the warm-up has `carried-read`. Counts that a histogram
//! does not hold (bytes, errors, exact sums) live in the trial's own document beside the log. Invariant:
//! what is written reads back equal. What it is not: our own histogram encoding.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::interval_log::{
    IntervalLogIterator, IntervalLogWriterBuilder, LogEntry, Tag,
};
use hdrhistogram::serialization::{Deserializer, V2DeflateSerializer, V2Serializer};
use thiserror::Error;
use units::Nanos;
use workload::OpClass;

use crate::phase::Phase;
use crate::recording::{Recording, Tallies};
use crate::{Histogram, StoredLatency, new_histogram, same_bounds};

/// Why a log could not be written or read.
#[derive(Debug, Error)]
#[error("histogram log: {0}")]
pub struct LogError(String);

impl Phase {
    /// The word in archives.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::WarmUp => "warm-up",
            Self::Measure => "measure",
            Self::Drain => "drain",
        }
    }
}

/// End of the tag of a histogram of service times.
const SERVICE: &str = "-service";
/// Begin of the tag of what was carried over the end of the warm-up.
const CARRIED: &str = "carried";

/// Writes every non-empty histogram of `recording`.
///
/// # Errors
/// When encoding fails, which says what failed.
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

/// Puts the histograms of a log into `recording`, whose intervals are already there.
///
/// # Errors
/// When the log is damaged, or speaks of an interval that `recording` does not have.
pub fn read_log(bytes: &[u8], recording: &mut Recording) -> Result<(), LogError> {
    let (mut deserializer, mut serializer) = (Deserializer::new(), V2Serializer::new());
    let plain = new_histogram();
    for entry in IntervalLogIterator::new(bytes) {
        let entry = entry.map_err(|error| LogError(format!("unreadable line: {error:?}")))?;
        let LogEntry::Interval(line) = entry else {
            continue;
        };
        let tag = line.tag().map(|tag| tag.as_str().to_owned()).unwrap_or_default();
        let missing = || LogError(format!("line tagged `{tag}` belongs to no interval"));
        let mut words = tag.splitn(2, '-');
        let place = words.next().unwrap_or_default();
        let tallies = match place.parse::<usize>() {
            Ok(at) => &mut recording.intervals.get_mut(at).ok_or_else(missing)?.tallies,
            Err(_) if place == CARRIED => &mut recording.carried,
            Err(_) => return Err(missing()),
        };
        let rest = words.next().unwrap_or_default();
        let (rest, service) = match rest.strip_suffix(SERVICE) {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        let class = OpClass::ALL
            .into_iter()
            .find(|class| {
                let phase = rest.strip_suffix(class.word());
                phase.is_some_and(|phase| phase.is_empty() || phase.ends_with('-'))
            })
            .ok_or_else(missing)?;
        let encoded = STANDARD
            .decode(line.encoded_histogram())
            .map_err(|error| LogError(format!("`{tag}`: {error}")))?;
        let stored: Histogram = deserializer
            .deserialize(&mut encoded.as_slice())
            .map_err(|error| LogError(format!("`{tag}`: {error:?}")))?;
        let latency = if same_bounds(&stored, &plain) {
            stored
        } else {
            let mut latency = new_histogram();
            latency.add(&stored).map_err(|error| LogError(format!("`{tag}`: {error:?}")))?;
            latency
        };
        let tally = tallies.of(class);
        let place = if service { &mut tally.service } else { &mut tally.latency };
        *place = StoredLatency::encode_with(&mut serializer, &latency)
            .map_err(|error| LogError(format!("`{tag}`: {error}")))?;
    }
    Ok(())
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

    /// Percentiles asked later must be those of the trial.
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
        read_log(&bytes, &mut copy).unwrap();
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
        assert!(read_log(&bytes, &mut Recording::default()).is_err());
    }
}
