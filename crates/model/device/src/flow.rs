//! A device known from measurements alone: how long requests take at each number in flight.
//!
//! # Model
//! A request that finds itself one of `n` in flight takes a time drawn from the distribution that was
//! measured at `n`; between measured numbers each quantile is interpolated on logarithmic axes, beyond the
//! last one it grows with `n` (throughput stays). A request of a size between two measured ones lies on the
//! line through both, at the same quantile; beyond the last one the line goes on.
//! This is the flow-equivalent server of Chandy, Herzog and Woo (IBM J. Res. Dev. 19, 1975), with the
//! measured distribution in place of its mean.
//!
//! Invariant: in a closed loop at a measured depth the mean and the quantiles are the measured ones.
//! What it is not: a mechanism; it knows nothing of what the device is, nor of what it was not shown.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Deserialize;
use units::{Bytes, Nanos, Seed};

use crate::constant::Constant;
use crate::pending::Pending;
use crate::{Completion, Device, Operation, Request, Stage, Stages};

/// What was measured.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowParameters {
    /// Sizes that were measured, rising.
    pub sizes: Constant<Vec<Bytes>>,
    /// `[size]`: numbers in flight that were measured, rising, the first 1.
    pub in_flight: Constant<Vec<Vec<u32>>>,
    /// Percentiles that each row below gives, rising from 0 to 100.
    pub percentiles: Constant<Vec<f64>>,
    /// `[size][number in flight][percentile]`: time of a read.
    pub read_times: Constant<Vec<Vec<Vec<Nanos>>>>,
    /// The same of a write.
    pub write_times: Constant<Vec<Vec<Vec<Nanos>>>>,
}

impl FlowParameters {
    /// Why nothing can have been measured so.
    pub(crate) fn impossible(&self) -> Option<String> {
        let percentiles = &self.percentiles.value;
        let whole = percentiles.first() == Some(&0.0) && percentiles.last() == Some(&100.0);
        if !whole || !percentiles.is_sorted_by(|a, b| a < b) {
            return Some("`percentiles` must rise from 0 to 100".into());
        }
        let (sizes, depths) = (&self.sizes.value, &self.in_flight.value);
        if sizes.is_empty() || !sizes.is_sorted_by(|a, b| a < b) || depths.len() != sizes.len() {
            return Some("`sizes` must rise, with a list in `in_flight` for each".into());
        }
        let tables = [("read_times", &self.read_times), ("write_times", &self.write_times)];
        depths.iter().find_map(|depths| impossible_depths(depths)).or_else(|| {
            tables.iter().find_map(|(name, times)| {
                let rows: Vec<usize> = times.value.iter().map(Vec::len).collect();
                if rows != depths.iter().map(Vec::len).collect::<Vec<usize>>() {
                    return Some(format!("`{name}` needs a row for each number of `in_flight`"));
                }
                let bad = |row: &&Vec<Nanos>| {
                    row.len() != percentiles.len() || !row.is_sorted() || row[0] == Nanos::ZERO
                };
                times.value.iter().flatten().find(bad).map(|_| {
                    format!(
                        "each row of `{name}` needs a rising time above 0 for each of `percentiles`"
                    )
                })
            })
        })
    }
}

fn impossible_depths(depths: &[u32]) -> Option<String> {
    if depths.first() != Some(&1) || !depths.is_sorted_by(|a, b| a < b) {
        return Some("each list of `in_flight` must rise from 1".to_owned());
    }
    (depths.last() > Some(&DEPTH_MAX)).then(|| format!("`in_flight` ends above {DEPTH_MAX}"))
}

/// Most requests in flight that a table speaks of.
const DEPTH_MAX: u32 = 4096;

/// A measured device.
#[derive(Debug, Clone)]
pub struct Flow {
    /// Cumulative probability of each column.
    shares: Vec<f64>,
    /// Of reads and of writes, by size.
    times: [Vec<Table>; 2],
    sizes: Vec<f64>,
    in_flight: usize,
    random: Xoshiro256PlusPlus,
    done: Pending,
}

/// `[number in flight - 1][percentile]`: nanoseconds.
type Table = Vec<Vec<f64>>;

impl Flow {
    /// An idle device.
    #[must_use]
    pub fn new(parameters: &FlowParameters, seed: Seed) -> Self {
        let p = parameters;
        let tables = |times: &[Vec<Vec<Nanos>>]| {
            let depths = p.in_flight.value.iter();
            depths.zip(times).map(|(depths, rows)| filled(depths, rows)).collect()
        };
        Self {
            shares: p.percentiles.value.iter().map(|percent| percent / 100.0).collect(),
            times: [tables(&p.read_times.value), tables(&p.write_times.value)],
            sizes: p.sizes.value.iter().map(|size| size.get() as f64).collect(),
            in_flight: 0,
            random: Xoshiro256PlusPlus::seed_from_u64(seed.derive("flow", 0).0),
            done: Pending::default(),
        }
    }

    /// A time drawn for a request of `length` bytes that is one of `in_flight`.
    fn draw(&mut self, operation: Operation, length: u32, in_flight: usize) -> Nanos {
        let share = self.random.next_u64() as f64 / 2f64.powi(64);
        let above = self.shares.partition_point(|column| *column <= share);
        let above = above.clamp(1, self.shares.len() - 1);
        let (low, high) = (self.shares[above - 1], self.shares[above]);
        let part = (share - low) / (high - low);
        let time = |rows: &Table| {
            let row = &rows[in_flight.min(rows.len()) - 1];
            let beyond = (in_flight as f64 / rows.len() as f64).max(1.0);
            (row[above - 1] + part * (row[above] - row[above - 1])) * beyond
        };
        let tables = &self.times[usize::from(operation.changes())];
        let length = f64::from(length);
        // The two measured sizes around it, or the last two; one alone stands for all.
        let after = self.sizes.partition_point(|size| *size < length).clamp(1, self.sizes.len());
        let after = after.min(self.sizes.len() - 1);
        let before = after.saturating_sub(1);
        let (from, to) = (self.sizes[before], self.sizes[after]);
        let size = if to > from { ((length - from) / (to - from)).max(0.0) } else { 0.0 };
        let alone = time(&tables[before]);
        if size == 0.0 {
            return Nanos(alone as u64);
        }
        Nanos((alone + size * (time(&tables[after]) - alone)).max(1.0) as u64)
    }
}

/// A row for every number from 1 to the last measured one.
fn filled(measured: &[u32], rows: &[Vec<Nanos>]) -> Vec<Vec<f64>> {
    let plain = |row: &Vec<Nanos>| row.iter().map(|time| time.get() as f64).collect::<Vec<f64>>();
    let mut out = Vec::new();
    for (pair, both) in measured.windows(2).zip(rows.windows(2)) {
        let (low, high) = (plain(&both[0]), plain(&both[1]));
        let [from, to] = [f64::from(pair[0]), f64::from(pair[1])];
        for number in pair[0]..pair[1] {
            let part = (f64::from(number).ln() - from.ln()) / (to.ln() - from.ln());
            let between =
                |(low, high): (&f64, &f64)| (low.ln() + part * (high.ln() - low.ln())).exp();
            out.push(low.iter().zip(&high).map(between).collect());
        }
    }
    out.extend(rows.last().map(plain));
    out
}

impl Device for Flow {
    fn submit(&mut self, now: Nanos, request: Request) {
        self.in_flight += 1;
        // Flushes were not measured; studies that need them are refused on such a profile.
        if request.operation == Operation::Flush {
            return self.done.at_once(now, request.id);
        }
        let takes = self.draw(request.operation, request.length, self.in_flight);
        let stages = Stages::new(takes, [(Stage::Media, takes)]);
        self.done.push(Completion { id: request.id, at: now + takes, stages });
    }

    fn next_event(&self) -> Option<Nanos> {
        self.done.next_time()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        self.in_flight -= self.done.take_due(now, done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constant::ConstantKind;

    fn constant<T>(value: T) -> Constant<T> {
        Constant { value, kind: ConstantKind::Measured, source: "test".into() }
    }

    fn parameters() -> FlowParameters {
        let row = |times: [u64; 3]| times.map(Nanos::from_micros).to_vec();
        FlowParameters {
            sizes: constant(vec![Bytes(4096), Bytes(128 << 10)]),
            in_flight: constant(vec![vec![1, 4], vec![1]]),
            percentiles: constant(vec![0.0, 50.0, 100.0]),
            read_times: constant(vec![
                vec![row([50, 60, 100]), row([100, 120, 200])],
                vec![row([150, 160, 200])],
            ]),
            write_times: constant(vec![
                vec![row([10, 10, 10]), row([10, 10, 10])],
                vec![row([10, 10, 10])],
            ]),
        }
    }

    #[test]
    fn times_at_a_measured_number_are_the_measured_ones() {
        let mut flow = Flow::new(&parameters(), Seed(1));
        let mut times: Vec<u64> =
            (0..100_000).map(|_| flow.draw(Operation::Read, 4096, 1).get()).collect();
        times.sort_unstable();
        assert!(times[0] >= 50_000 && *times.last().unwrap() <= 100_000);
        assert!(times[50_000].abs_diff(60_000) < 300, "{}", times[50_000]);
        assert!(times[75_000].abs_diff(80_000) < 600, "{}", times[75_000]);
    }

    #[test]
    fn between_measured_numbers_times_lie_between_and_beyond_them_throughput_stays() {
        let rows = filled(&[1, 4], &parameters().read_times.value[0]);
        assert_eq!(rows.len(), 4);
        // Two is half-way from one to four on a logarithmic axis.
        assert!((rows[1][1] / (60e3f64 * 120e3).sqrt() - 1.0).abs() < 1e-9);
        let mut flow = Flow::new(&parameters(), Seed(1));
        assert!(flow.draw(Operation::Read, 4096, 40) >= Nanos::from_micros(1000));
    }

    #[test]
    fn sizes_lie_on_the_line_through_both() {
        let mut flow = Flow::new(&parameters(), Seed(1));
        // Half-way between 4 KiB and 128 KiB: 50 us more than the small one.
        let length = (4096 + (128 << 10)) / 2;
        let times: Vec<u64> =
            (0..10_000).map(|_| flow.draw(Operation::Read, length, 1).get()).collect();
        let least = times.iter().min().unwrap();
        assert!((100_000..100_500).contains(least), "{least}");
    }

    #[test]
    fn what_nobody_can_measure_is_refused() {
        assert_eq!(parameters().impossible(), None);
        let mut falling = parameters();
        falling.read_times.value[0][0].reverse();
        assert!(falling.impossible().unwrap().contains("read_times"));
        let mut depths = parameters();
        depths.in_flight.value[0] = vec![2, 4];
        assert!(depths.impossible().unwrap().contains("in_flight"));
    }
}
