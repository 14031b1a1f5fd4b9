//! A device known from measurements alone: how long requests take at each number in flight.
//!
//! # Model
//! A request that finds itself one of `n` in flight takes a time drawn from the distribution that was
//! measured at `n`; between measured numbers each quantile is interpolated on logarithmic axes, beyond the
//! last one it grows with `n` (throughput stays). A request of a size between two measured ones lies on the
//! line through both, at the same quantile; beyond the last one the line goes on. Between two percentiles
//! times follow a power of the rank that has the mean that was measured there.
//! Reads among writes, and writes among reads, take what was measured in mixes over what was measured of
//! one kind alone, at the same number in flight and quantile: the share of writes among the last requests
//! chooses between mixes; beyond the last number in flight of the mixes that ratio stays. What one client
//! thread alone was measured to get stands apart where it was (`alone`). This is the flow-equivalent server
//! of Chandy, Herzog and Woo (IBM J. Res. Dev. 19, 1975), with the measured distribution in place of its
//! mean.
//!
//! Invariant: in a closed loop at a measured depth and mix the mean and the quantiles are those of its table.
//! What it is not: a mechanism; it knows nothing of what the device is, nor of what it was not shown.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Deserialize;
use units::{Bytes, Nanos, Seed, Share};

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
    /// `[size][number in flight][between two percentiles]`: mean time of a read; absent: half-way.
    pub read_means: Option<Constant<Vec<Vec<Vec<Nanos>>>>>,
    /// The same of a write.
    pub write_means: Option<Constant<Vec<Vec<Vec<Nanos>>>>>,
    /// Time of a client thread for one operation, which the times above contain: it bounds what one thread
    /// can do; absent: not known.
    pub thread_time: Option<Constant<Nanos>>,
    /// The same of a write; absent: as of a read.
    pub thread_time_write: Option<Constant<Nanos>>,
    /// Its time between operations, in no latency.
    pub thread_between: Option<Constant<Nanos>>,
    /// Mixes of the smallest size; absent: not measured, each kind is as if alone.
    pub mixes: Option<FlowMixes>,
    /// What one client thread alone gets, the thread's time within; absent: as the tables above give it. A
    /// thread that is its own limit, or that is put off its processor, is not what several are.
    pub alone: Option<Box<FlowParameters>>,
}

/// What was measured of mixes of the smallest size.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowMixes {
    /// Shares of reads, falling, without the pure ones.
    pub read_shares: Constant<Vec<Share>>,
    /// Numbers in flight, rising from 1.
    pub in_flight: Constant<Vec<u32>>,
    /// `[share][number in flight][percentile]`: time of a read.
    pub read_times: Constant<Vec<Vec<Vec<Nanos>>>>,
    /// `[share][number in flight][between two percentiles]`: its mean.
    pub read_means: Constant<Vec<Vec<Vec<Nanos>>>>,
    /// Times of a write.
    pub write_times: Constant<Vec<Vec<Vec<Nanos>>>>,
    /// Means of a write.
    pub write_means: Constant<Vec<Vec<Vec<Nanos>>>>,
}

impl FlowMixes {
    fn impossible(&self, columns: usize) -> Option<String> {
        let shares = &self.read_shares.value;
        let pure = |share: &Share| [Share::ALL, Share::NONE].contains(share);
        if shares.is_empty() || shares.iter().any(pure) || !shares.is_sorted_by(|a, b| a > b) {
            return Some("`mixes.read_shares` must fall, between 100% and 0%".into());
        }
        let depths = vec![self.in_flight.value.len(); shares.len()];
        let tables = [
            ("mixes.read_times", &self.read_times, columns),
            ("mixes.write_times", &self.write_times, columns),
            ("mixes.read_means", &self.read_means, columns - 1),
            ("mixes.write_means", &self.write_means, columns - 1),
        ];
        impossible_depths(&self.in_flight.value).or_else(|| {
            tables.iter().find_map(|(name, t, n)| bad_table(name, &t.value, &depths, *n))
        })
    }
}

/// Why a table has not so many rows for each of its parts, of so many rising times above 0.
fn bad_table(
    name: &str,
    times: &[Vec<Vec<Nanos>>],
    depths: &[usize],
    columns: usize,
) -> Option<String> {
    let rows: Vec<usize> = times.iter().map(Vec::len).collect();
    if rows != depths {
        return Some(format!("`{name}` needs a row for each number of `in_flight`"));
    }
    let bad = |row: &&Vec<Nanos>| row.len() != columns || !row.is_sorted() || row[0] == Nanos::ZERO;
    times.iter().flatten().find(bad).map(|_| {
        format!("each row of `{name}` needs {columns} rising times above 0, as `percentiles` asks")
    })
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
        let rows: Vec<usize> = depths.iter().map(Vec::len).collect();
        let columns = percentiles.len();
        let means = |name, table: &Option<Constant<Vec<Vec<Vec<Nanos>>>>>| {
            let table = table.as_ref()?;
            bad_table(name, &table.value, &rows, columns - 1)
        };
        let depths = depths.iter().find_map(|depths| impossible_depths(depths));
        depths
            .or_else(|| bad_table("read_times", &self.read_times.value, &rows, columns))
            .or_else(|| bad_table("write_times", &self.write_times.value, &rows, columns))
            .or_else(|| means("read_means", &self.read_means))
            .or_else(|| means("write_means", &self.write_means))
            .or_else(|| self.mixes.as_ref()?.impossible(columns))
            .or_else(|| self.impossible_alone())
    }

    fn impossible_alone(&self) -> Option<String> {
        let alone = self.alone.as_ref()?;
        if alone.alone.is_some() {
            return Some("`alone` has no `alone` of its own".into());
        }
        alone.impossible().map(|reason| format!("`alone`: {reason}"))
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

/// Share of the last request in what is known of the mix: about so many of the last ones count.
const MIX_MEMORY: f64 = 1.0 / 512.0;

/// A measured device.
#[derive(Debug, Clone)]
pub struct Flow {
    /// Cumulative probability of each column.
    shares: Vec<f64>,
    /// Of reads and of writes, by size.
    times: [Vec<Table>; 2],
    sizes: Vec<f64>,
    mixes: Option<Mixes>,
    /// Share of writes among the last requests, and how many there were at most.
    written: f64,
    seen: u32,
    in_flight: usize,
    random: Xoshiro256PlusPlus,
    done: Pending,
}

/// Mixes by their share of writes, rising.
#[derive(Debug, Clone)]
struct Mixes {
    shares: Vec<f64>,
    /// Of reads and of writes, by share.
    times: [Vec<Table>; 2],
}

/// Times at one number in flight, nanoseconds.
#[derive(Debug, Clone)]
struct Row {
    /// `[percentile]`.
    at: Vec<f64>,
    /// `[between two]`: power of the rank.
    power: Vec<f64>,
}

/// `[number in flight - 1]`.
type Table = Vec<Row>;

impl Row {
    /// `means` as many as there are between the percentiles; none: half-way.
    fn new(at: Vec<f64>, means: &[f64]) -> Self {
        let power = |(place, pair): (usize, &[f64])| {
            let (low, high) = (pair[0], pair[1]);
            let mean = means.get(place).copied().unwrap_or((low + high) / 2.0);
            let above = ((mean - low) / (high - low)).clamp(1e-6, 1.0 - 1e-6);
            if high > low { 1.0 / above - 1.0 } else { 1.0 }
        };
        let power = at.windows(2).enumerate().map(power).collect();
        Self { at, power }
    }

    /// The time between percentiles `above - 1` and `above`, at `part` of the way.
    #[inline]
    fn time(&self, above: usize, part: f64) -> f64 {
        let (low, high) = (self.at[above - 1], self.at[above]);
        let power = self.power[above - 1];
        // Half-way needs no power, which takes longer than the rest of the draw.
        let part = if power == 1.0 { part } else { part.powf(power) };
        low + part * (high - low)
    }
}

impl Flow {
    /// An idle device.
    #[must_use]
    pub fn new(parameters: &FlowParameters, seed: Seed) -> Self {
        let p = parameters;
        let tables = |times: &[Vec<Vec<Nanos>>], means: Option<&[Vec<Vec<Nanos>>]>| {
            let one = |(size, depths): (usize, &Vec<u32>)| {
                filled(depths, &times[size], means.map(|means| means[size].as_slice()))
            };
            p.in_flight.value.iter().enumerate().map(one).collect()
        };
        let means = |means: &Option<Constant<Vec<Vec<Vec<Nanos>>>>>| {
            means.as_ref().map(|means| means.value.clone())
        };
        let (read_means, write_means) = (means(&p.read_means), means(&p.write_means));
        Self {
            shares: p.percentiles.value.iter().map(|percent| percent / 100.0).collect(),
            times: [
                tables(&p.read_times.value, read_means.as_deref()),
                tables(&p.write_times.value, write_means.as_deref()),
            ],
            sizes: p.sizes.value.iter().map(|size| size.get() as f64).collect(),
            mixes: p.mixes.as_ref().map(Mixes::new),
            written: 0.0,
            seen: 0,
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
        let time_at = |rows: &Table, in_flight: usize| {
            let beyond = (in_flight as f64 / rows.len() as f64).max(1.0);
            rows[in_flight.min(rows.len()) - 1].time(above, part) * beyond
        };
        let time = |rows: &Table| time_at(rows, in_flight);
        let kind = usize::from(operation.changes());
        let tables = &self.times[kind];
        let mixed = self.mixes.as_ref().map_or(1.0, |mixes| {
            let within = in_flight.min(mixes.times[kind][0].len());
            let alone = time_at(&tables[0], within);
            mixes.time(kind, self.written, alone, |rows| time_at(rows, within)) / alone
        });
        let length = f64::from(length);
        // The two measured sizes around it, or the last two; one alone stands for all.
        let after = self.sizes.partition_point(|size| *size < length).clamp(1, self.sizes.len());
        let after = after.min(self.sizes.len() - 1);
        let before = after.saturating_sub(1);
        let (from, to) = (self.sizes[before], self.sizes[after]);
        let size = if to > from { ((length - from) / (to - from)).max(0.0) } else { 0.0 };
        let alone = time(&tables[before]);
        let alone = if size == 0.0 { alone } else { alone + size * (time(&tables[after]) - alone) };
        Nanos((alone * mixed).max(1.0) as u64)
    }

    /// One more request: what the mix is now.
    fn note(&mut self, operation: Operation) {
        self.seen = self.seen.saturating_add(1);
        let weight = MIX_MEMORY.max(1.0 / f64::from(self.seen));
        let own = if operation.changes() { 1.0 } else { 0.0 };
        self.written += (own - self.written) * weight;
    }
}

impl Mixes {
    fn new(p: &FlowMixes) -> Self {
        let tables = |times: &[Vec<Vec<Nanos>>], means: &[Vec<Vec<Nanos>>]| {
            let both = times.iter().zip(means);
            both.map(|(times, means)| filled(&p.in_flight.value, times, Some(means))).collect()
        };
        Self {
            shares: p.read_shares.value.iter().map(|share| 1.0 - share.fraction()).collect(),
            times: [
                tables(&p.read_times.value, &p.read_means.value),
                tables(&p.write_times.value, &p.write_means.value),
            ],
        }
    }

    /// The time where `written` of the requests are writes; `alone` where all are of this kind. Between
    /// measured shares on the line; beyond the last one that was measured it stays.
    fn time(&self, kind: usize, written: f64, alone: f64, time: impl Fn(&Table) -> f64) -> f64 {
        let pure = kind as f64;
        let last = self.shares.len() - 1;
        let after = self.shares.partition_point(|share| *share < written);
        let mix = |place: usize| (self.shares[place], time(&self.times[kind][place]));
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

/// A row for every number from 1 to the last measured one.
fn filled(measured: &[u32], rows: &[Vec<Nanos>], means: Option<&[Vec<Nanos>]>) -> Table {
    let plain = |row: &Vec<Nanos>| row.iter().map(|time| time.get() as f64).collect::<Vec<f64>>();
    let of_place = |place: usize| {
        (plain(&rows[place]), means.map_or_else(Vec::new, |means| plain(&means[place])))
    };
    let mut out = Vec::new();
    for (place, pair) in measured.windows(2).enumerate() {
        let (low, high) = (of_place(place), of_place(place + 1));
        let [from, to] = [f64::from(pair[0]), f64::from(pair[1])];
        for number in pair[0]..pair[1] {
            let part = (f64::from(number).ln() - from.ln()) / (to.ln() - from.ln());
            let between =
                |(low, high): (&f64, &f64)| (low.ln() + part * (high.ln() - low.ln())).exp();
            let at = low.0.iter().zip(&high.0).map(between).collect();
            let means: Vec<f64> = low.1.iter().zip(&high.1).map(between).collect();
            out.push(Row::new(at, &means));
        }
    }
    let (at, means) = of_place(rows.len() - 1);
    out.push(Row::new(at, &means));
    out
}

impl Device for Flow {
    fn submit(&mut self, now: Nanos, request: Request) {
        self.in_flight += 1;
        // Flushes were not measured; studies that need them are refused on such a profile.
        if request.operation == Operation::Flush {
            return self.done.at_once(now, request.id);
        }
        self.note(request.operation);
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
            read_means: None,
            write_means: None,
            thread_time: None,
            thread_time_write: None,
            thread_between: None,
            mixes: None,
            alone: None,
        }
    }

    /// A thread that has no table of its own inside of its own.
    #[test]
    fn one_thread_alone_has_tables_that_are_tested_as_the_others_are() {
        let mut p = parameters();
        p.alone = Some(Box::new(parameters()));
        assert_eq!(p.impossible(), None);
        p.alone.as_mut().unwrap().read_times.value[0][0].reverse();
        assert!(p.impossible().unwrap().contains("`alone`: each row of `read_times`"));
        p.alone.as_mut().unwrap().alone = Some(Box::new(parameters()));
        assert!(p.impossible().unwrap().contains("of its own"));
    }

    /// One outlier at the end of the last part must not pull all of it.
    #[test]
    fn the_mean_between_two_percentiles_is_the_measured_one() {
        let mut p = parameters();
        let means = |low: u64, high: u64| {
            vec![vec![low, high].into_iter().map(Nanos::from_micros).collect::<Vec<Nanos>>()]
        };
        let both = vec![[means(52, 65), means(105, 130)].concat(), means(152, 165)];
        p.read_means = Some(constant(both));
        assert_eq!(p.impossible(), None);
        let mut flow = Flow::new(&p, Seed(1));
        let sum: u64 = (0..100_000).map(|_| flow.draw(Operation::Read, 4096, 1).get()).sum();
        let mean = sum as f64 / 100_000.0;
        assert!((mean / 58_500.0 - 1.0).abs() < 0.005, "{mean}");
    }

    /// Reads take what was measured among as many writes, and as if alone once the writes have ended.
    #[test]
    fn mixes_take_what_was_measured_of_them() {
        let mut p = parameters();
        let times = |us: u64| constant(vec![vec![vec![Nanos::from_micros(us); 3]; 1]; 1]);
        let means = |us: u64| constant(vec![vec![vec![Nanos::from_micros(us); 2]; 1]; 1]);
        p.mixes = Some(FlowMixes {
            read_shares: constant(vec!["50%".parse().unwrap()]),
            in_flight: constant(vec![1]),
            read_times: times(400),
            read_means: means(400),
            write_times: times(30),
            write_means: means(30),
        });
        assert_eq!(p.impossible(), None);
        let mut flow = Flow::new(&p, Seed(1));
        let mut ends = Vec::new();
        let mut one = |flow: &mut Flow, write: bool| {
            flow.submit(
                Nanos::ZERO,
                if write { Request::write(0, 0, 4096) } else { Request::read(0, 0, 4096) },
            );
            ends.clear();
            flow.advance(Nanos::from_secs(1), &mut ends);
            ends[0].at.get() / 1000
        };
        let mixed: Vec<u64> = (0..8000).map(|n| one(&mut flow, n % 2 == 0)).collect();
        assert!(mixed[4000..].iter().all(|time| (28..=32).contains(time) || *time > 390));
        let after: Vec<u64> = (0..8000).map(|_| one(&mut flow, false)).collect();
        assert!(after[7900..].iter().all(|time| (50..=101).contains(time)), "{after:?}");
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
        let rows = filled(&[1, 4], &parameters().read_times.value[0], None);
        assert_eq!(rows.len(), 4);
        // Two is half-way from one to four on a logarithmic axis.
        assert!((rows[1].at[1] / (60e3f64 * 120e3).sqrt() - 1.0).abs() < 1e-9);
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
