//! Encoded latency histograms: HDR V2 bytes, a few KiB each instead of 270.
//!
//! Invariant: encoding is canonical, so equal histograms have equal bytes.

use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};

use crate::{Histogram, new_histogram, same_bounds};

/// An encoded histogram; empty bytes for one without samples.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredLatency(Vec<u8>);

impl StoredLatency {
    /// Without samples.
    pub(crate) const EMPTY: Self = Self(Vec::new());

    /// Encodes the recorded histogram `latency`.
    ///
    /// # Panics
    /// Never: single increments stay far below the largest count that can be encoded.
    #[must_use]
    pub fn new(latency: &Histogram) -> Self {
        Self::encode(latency).expect("invariant: counted samples can be encoded")
    }

    /// Encodes `latency`, which may come from a damaged file.
    ///
    /// # Errors
    /// A count above `i64::MAX`.
    pub fn encode(latency: &Histogram) -> Result<Self, String> {
        Self::encode_with(&mut V2Serializer::new(), latency)
    }

    /// Encodes, reusing the buffer of `serializer`.
    pub(crate) fn encode_with(
        serializer: &mut V2Serializer,
        latency: &Histogram,
    ) -> Result<Self, String> {
        let mut bytes = Vec::new();
        if !latency.is_empty() {
            let encoded = serializer.serialize(latency, &mut bytes);
            encoded.map_err(|error| format!("{error:?}"))?;
        }
        Ok(Self(bytes))
    }

    /// Whether it has no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its size in bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Adds the samples to `sum`, which has the bounds of [`new_histogram`].
    ///
    /// # Panics
    /// Never: the bytes were made by [`StoredLatency::new`].
    pub fn add_to(&self, sum: &mut Histogram) {
        if !self.is_empty() {
            let stored: Histogram = Deserializer::new()
                .deserialize(&mut self.0.as_slice())
                .expect("invariant: own encoding decodes");
            // The first histogram of a sum is most often the only one.
            if sum.is_empty() && same_bounds(sum, &stored) {
                *sum = stored;
            } else {
                sum.add(&stored).expect("invariant: equal histogram bounds");
            }
        }
    }

    /// Subtracts the samples from `sum`; has no effect if `sum` does not contain them, as in a damaged
    /// archive.
    pub fn take_from(&self, sum: &mut Histogram) {
        if !self.is_empty() {
            let mut left = sum.clone();
            if left.subtract(self.histogram()).is_ok() {
                *sum = left;
            }
        }
    }

    /// The histogram.
    #[must_use]
    pub fn histogram(&self) -> Histogram {
        let mut histogram = new_histogram();
        self.add_to(&mut histogram);
        histogram
    }

    /// Adds the samples of `other`.
    pub fn merge(&mut self, other: &Self) {
        if self.is_empty() {
            self.clone_from(other);
        } else if !other.is_empty() {
            let mut sum = self.histogram();
            other.add_to(&mut sum);
            *self = Self::new(&sum);
        }
    }
}
