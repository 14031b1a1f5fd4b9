//! Counter samples of an engine, thinned to a bounded number.
//!
//! Engines are sampled every 250 ms, 345,600 times a day. Invariant: a trial keeps at most [`SAMPLES_MAX`]
//! samples, evenly spaced, when written and when read.

use std::collections::BTreeMap;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use stats::CounterSample;

use crate::files::bounded_map;

/// Maximum number of samples of a trial: one per 4.3 s over a day.
const SAMPLES_MAX: usize = 20_000;
/// Limit on values in all samples while reading.
const VALUES_MAX: usize = 1_000_000;
/// Bytes of the names in one sample.
const NAMES_MAX: usize = 64 << 10;

/// A stored sample.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sample {
    at_ns: u64,
    #[serde(deserialize_with = "bounded_map::<_, _, NAMES_MAX>")]
    values: BTreeMap<String, f64>,
}

/// Every n-th sample and the last one, for the smallest n that leaves at most [`SAMPLES_MAX`].
pub(crate) fn thinned(samples: &[CounterSample]) -> Vec<CounterSample> {
    let step = samples.len().div_ceil(SAMPLES_MAX).max(1);
    let mut kept: Vec<CounterSample> = samples.iter().step_by(step).cloned().collect();
    if let (Some(last), Some(end)) = (kept.last_mut(), samples.last()) {
        last.clone_from(end);
    }
    kept
}

/// Reads samples and thins them on the fly, so memory does not depend on their number.
pub(crate) fn thinned_counters<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<CounterSample>, D::Error> {
    struct Thinned;
    impl<'de> Visitor<'de> for Thinned {
        type Value = Vec<CounterSample>;

        fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            out.write_str("a list of counter samples")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let (mut kept, mut step, mut values) = (Vec::<CounterSample>::new(), 1, 0);
            let mut last = None;
            let mut at = 0_usize;
            while let Some(Sample { at_ns, values: own }) = seq.next_element()? {
                let sample = CounterSample { at_ns, values: own };
                if at.is_multiple_of(step) {
                    values += sample.values.len();
                    kept.push(sample);
                    last = None;
                } else {
                    last = Some(sample);
                }
                at += 1;
                if kept.len() > 2 * SAMPLES_MAX || (values > VALUES_MAX && kept.len() > 1) {
                    let mut odd = false;
                    kept.retain(|_| {
                        odd = !odd;
                        odd
                    });
                    values = kept.iter().map(|sample| sample.values.len()).sum();
                    step *= 2;
                }
            }
            kept.extend(last);
            Ok(thinned(&kept))
        }
    }
    deserializer.deserialize_seq(Thinned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Document {
        #[serde(deserialize_with = "thinned_counters")]
        counters: Vec<CounterSample>,
    }

    fn samples(count: u64) -> Vec<CounterSample> {
        let sample = |at_ns| CounterSample { at_ns, values: [("a".to_owned(), 1.0)].into() };
        (0..count).map(sample).collect()
    }

    /// A day of counter samples must not make a trial too large to be read again.
    #[test]
    fn long_trials_keep_evenly_spread_samples_with_the_first_and_the_last() {
        for count in [1, 2, 19_999, 20_000, 20_001, 345_600] {
            let all = samples(count);
            let text = serde_json::json!({ "counters": all }).to_string();
            let read: Document = serde_json::from_str(&text).unwrap();
            for kept in [thinned(&all), read.counters] {
                assert!(kept.len() <= SAMPLES_MAX && kept.len() * 4 >= all.len().min(SAMPLES_MAX));
                let ends = (kept[0].at_ns, kept[kept.len() - 1].at_ns);
                assert_eq!(ends, (0, count - 1), "{count}");
                assert!(kept.is_sorted_by(|a, b| a.at_ns < b.at_ns), "{count}");
            }
        }
        assert!(thinned(&[]).is_empty());
        assert_eq!(thinned(&samples(100)), samples(100), "short trials keep all");
    }
}
