//! Latencies of a measured device at each number of requests in flight.
//!
//! Invariant: a row reproduces the measured quantiles and the means between them. Rows are selected
//! elsewhere.

use units::Nanos;

/// Position of a latency in a distribution.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quantile {
    /// Index of the column above it, at least 1.
    above: usize,
    /// Position between the column below and that one, 0 to 1.
    part: f64,
}

impl Quantile {
    /// The quantile `share`, with columns at `shares`.
    pub fn new(share: f64, shares: &[f64]) -> Self {
        let above = shares.partition_point(|column| *column <= share).clamp(1, shares.len() - 1);
        let (low, high) = (shares[above - 1], shares[above]);
        Self { above, part: (share - low) / (high - low) }
    }
}

/// Times at one number in flight, nanoseconds.
#[derive(Debug, Clone)]
pub(super) struct Row {
    /// `[percentile]`.
    at: Vec<f64>,
    /// `[percentile range]`: power of the rank.
    power: Vec<f64>,
    mean: f64,
}

/// Squared coefficient of variation above which a remaining time is unknown.
const EVEN: f64 = 0.25;

impl Row {
    /// `means` of the ranges between the percentiles at `shares`; if empty, the midpoints.
    pub fn new(at: Vec<f64>, means: &[f64], shares: &[f64]) -> Self {
        let power = |(place, pair): (usize, &[f64])| {
            let (low, high) = (pair[0], pair[1]);
            let mean = means.get(place).copied().unwrap_or((low + high) / 2.0);
            let above = ((mean - low) / (high - low)).clamp(1e-6, 1.0 - 1e-6);
            if high > low { 1.0 / above - 1.0 } else { 1.0 }
        };
        let power = at.windows(2).enumerate().map(power).collect();
        let mut row = Self { at, power, mean: 0.0 };
        row.mean = row.over(shares, |low, rise, power| low + rise / (power + 1.0));
        row
    }

    /// From plain times.
    pub fn of(at: &[Nanos], means: &[Nanos], shares: &[f64]) -> Self {
        Self::new(plain(at), &plain(means), shares)
    }

    /// Sum over all ranges of a moment, given `(lower end, rise, power)`, weighted by their shares.
    fn over(&self, shares: &[f64], moment: impl Fn(f64, f64, f64) -> f64) -> f64 {
        let part = |place: usize| {
            let (low, high) = (self.at[place], self.at[place + 1]);
            (shares[place + 1] - shares[place]) * moment(low, high - low, self.power[place])
        };
        (0..self.power.len()).map(part).sum()
    }

    /// Evenness of times: 1 if all are equal, 0 if their squared coefficient of variation is [`EVEN`] or
    /// more.
    fn evenness(&self, shares: &[f64]) -> f64 {
        let squares = self.over(shares, |low, rise, power| {
            low * low + 2.0 * low * rise / (power + 1.0) + rise * rise / (2.0 * power + 1.0)
        });
        (1.0 - (squares / (self.mean * self.mean) - 1.0) / EVEN).clamp(0.0, 1.0)
    }

    /// The mean.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// The time at a quantile.
    #[inline]
    pub fn time(&self, quantile: Quantile) -> f64 {
        let Quantile { above, part } = quantile;
        let (low, high) = (self.at[above - 1], self.at[above]);
        let power = self.power[above - 1];
        // A power of 1 is common, and `powf` the most expensive part of a draw.
        let part = if power == 1.0 { part } else { part.powf(power) };
        low + part * (high - low)
    }
}

/// `[number in flight - 1]`.
#[derive(Debug, Clone)]
pub(super) struct Table(Vec<Row>);

impl Table {
    /// Rows for every number from 1 to the last measured one, each quantile interpolated on logarithmic axes.
    pub fn new(
        measured: &[u32],
        rows: &[Vec<Nanos>],
        means: Option<&[Vec<Nanos>]>,
        shares: &[f64],
    ) -> Self {
        let of_place = |place: usize| {
            let means = means.map_or_else(Vec::new, |means| plain(&means[place]));
            (plain(&rows[place]), means)
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
                out.push(Row::new(at, &means, shares));
            }
        }
        let (at, means) = of_place(rows.len() - 1);
        out.push(Row::new(at, &means, shares));
        Self(out)
    }

    /// The last number in flight.
    pub fn last(&self) -> f64 {
        self.0.len() as f64
    }

    /// A value of the rows at a number in flight: interpolated linearly; beyond the last one proportional to
    /// the number.
    #[inline]
    fn value(&self, in_flight: f64, value: impl Fn(&Row) -> f64) -> f64 {
        let last = self.last();
        let within = in_flight.clamp(1.0, last);
        let (whole, further) = (within as usize, within.fract());
        let own = value(&self.0[whole - 1]);
        let own = match further > 0.0 {
            true => own + further * (value(&self.0[whole]) - own),
            false => own,
        };
        own * (in_flight / last).max(1.0)
    }

    /// The latency at a quantile with this many in flight.
    #[inline]
    pub fn time(&self, in_flight: f64, quantile: Quantile) -> f64 {
        self.value(in_flight, |row| row.time(quantile))
    }

    /// The mean latency with this many in flight.
    #[inline]
    pub fn mean(&self, in_flight: f64) -> f64 {
        self.value(in_flight, |row| row.mean)
    }

    /// Service time at the highest rate: the least time between completions.
    pub fn least(&self) -> f64 {
        let each = |(place, row): (usize, &Row)| row.mean / (place + 1) as f64;
        self.0.iter().enumerate().map(each).fold(f64::INFINITY, f64::min)
    }

    /// Evenness of latencies at one request in flight, 0 to 1.
    pub fn evenness(&self, shares: &[f64]) -> f64 {
        self.0[0].evenness(shares)
    }
}

fn plain(times: &[Nanos]) -> Vec<f64> {
    times.iter().map(|time| time.get() as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARES: [f64; 3] = [0.0, 0.5, 1.0];

    fn row(times: [u64; 3]) -> Vec<Nanos> {
        times.map(Nanos::from_micros).to_vec()
    }

    #[test]
    fn between_measured_numbers_times_lie_between_and_beyond_them_throughput_stays() {
        let table = Table::new(&[1, 4], &[row([50, 60, 100]), row([100, 120, 200])], None, &SHARES);
        assert_eq!(table.0.len(), 4);
        // Two is half-way from one to four on a logarithmic axis.
        assert!((table.0[1].at[1] / (60e3f64 * 120e3).sqrt() - 1.0).abs() < 1e-9);
        assert!(table.time(40.0, Quantile::new(0.0, &SHARES)) >= 1e6);
        let (one, two) = (table.mean(1.0), table.mean(2.0));
        assert!((table.mean(1.5) - (one + two) / 2.0).abs() < 1e-6);
        assert!((table.least() - table.mean(4.0) / 4.0).abs() < 1e-6);
    }

    /// The remaining time of a request is known only if all take the same time.
    #[test]
    fn evenness_is_that_of_the_times() {
        let even = |times| Table::new(&[1], &[row(times)], None, &SHARES).evenness(&SHARES);
        assert!((even([100, 100, 100]) - 1.0).abs() < 1e-9);
        assert!(even([90, 100, 110]) > 0.97);
        assert_eq!(even([1, 10, 1000]), 0.0);
    }
}
