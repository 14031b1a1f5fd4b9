//! Slowdown of reads and writes by each other.
//!
//! Invariant: at a measured size, share and depth the ratio is the measured one.

use units::Nanos;

use super::kinds::Kind;
use super::parameters::{FlowMixes, FlowParameters};
use super::rows::Table;

/// Mixes by their share of writes, rising.
#[derive(Debug, Clone)]
pub(super) struct Mixes {
    /// Index and position of the size, and its bytes.
    size: (usize, f64),
    shares: Vec<f64>,
    /// Tables of reads and of writes, by share of reads.
    times: [Vec<Table>; 2],
}

impl Mixes {
    pub fn new(p: &FlowMixes, of: &FlowParameters, shares: &[f64]) -> Self {
        let sizes = &of.sizes.value;
        let size = p.size.as_ref().map_or(sizes[0], |size| size.value);
        let place = sizes.iter().position(|one| *one == size).unwrap_or(0);
        let tables = |times: &[Vec<Vec<Nanos>>], means: &[Vec<Vec<Nanos>>]| {
            let table = |(times, means): (&Vec<Vec<Nanos>>, &Vec<Vec<Nanos>>)| {
                Table::new(&p.in_flight.value, times, Some(means), shares)
            };
            times.iter().zip(means).map(table).collect()
        };
        Self {
            size: (place, size.get() as f64),
            shares: p.read_shares.value.iter().map(|share| 1.0 - share.fraction()).collect(),
            times: [
                tables(&p.read_times.value, &p.read_means.value),
                tables(&p.write_times.value, &p.write_means.value),
            ],
        }
    }

    /// Position of a size between these mixes and `others`, 0 to 1, on a logarithmic axis.
    pub fn towards(&self, others: &Self, size: f64) -> f64 {
        ((size / self.size.1).ln() / (others.size.1 / self.size.1).ln()).clamp(0.0, 1.0)
    }

    /// Ratio of a value in a mix to the value without the other kind, at this work in flight.
    pub fn ratio(
        &self,
        kind: usize,
        written: f64,
        (own, load): (&Kind, f64),
        value: impl Fn(&Table, f64) -> f64,
    ) -> f64 {
        let (size, _) = self.size;
        let within = (load / own.work((size, 0.0))).min(self.times[kind][0].last());
        let alone = value(&own.times[size], within);
        self.value(kind, written, alone, |table| value(table, within)) / alone
    }

    /// A table value where `written` of the work is writes; `alone` if all is of this kind. Linear between
    /// measured shares; constant beyond the last.
    pub fn value(
        &self,
        kind: usize,
        written: f64,
        alone: f64,
        value: impl Fn(&Table) -> f64,
    ) -> f64 {
        let pure = kind as f64;
        let last = self.shares.len() - 1;
        let after = self.shares.partition_point(|share| *share < written);
        let mix = |place: usize| (self.shares[place], value(&self.times[kind][place]));
        let (from, to) = match after {
            0 if kind == 0 => ((pure, alone), mix(0)),
            0 => return mix(0).1,
            after if after <= last => (mix(after - 1), mix(after)),
            _ if kind == 0 => return mix(last).1,
            _ => (mix(last), (pure, alone)),
        };
        from.1 + (written - from.0) / (to.0 - from.0) * (to.1 - from.1)
    }
}
