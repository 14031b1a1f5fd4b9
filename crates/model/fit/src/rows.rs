//! A row of a fitted profile's tables: quantiles of a job's latencies, and the means between them.
//!
//! Invariant: a mean lies between its quantiles, and quantiles do not decrease.

use units::Nanos;

use crate::points::FitTimes;

/// Columns of the table, percent. Dense around 99: the p99 of a mix is one of these percentiles of its slower
/// class, and a step in the distribution there should not fall between two distant columns.
pub(crate) const PERCENTILES: [f64; 21] = [
    0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 96.5, 97.5, 98.0, 98.4, 98.7, 99.0, 99.15,
    99.4, 99.7, 99.9, 99.99, 100.0,
];

/// Latencies at the columns of the table.
pub(crate) fn times(of: &FitTimes) -> Vec<Nanos> {
    let at = |percent: f64| Nanos(of.latency.value_at_quantile(percent / 100.0));
    PERCENTILES.into_iter().map(at).collect()
}

/// Mean latencies between the columns of the table.
pub(crate) fn means(of: &FitTimes) -> Vec<Nanos> {
    let all = of.latency.len() as f64;
    let ends: Vec<f64> = PERCENTILES.iter().map(|percent| percent / 100.0 * all).collect();
    let mut sums = vec![(0.0, 0.0); PERCENTILES.len() - 1];
    let (mut below, mut place) = (0.0, 0);
    for value in of.latency.iter_recorded() {
        let mut left = value.count_since_last_iteration() as f64;
        let middle = of.latency.median_equivalent(value.value_iterated_to()) as f64;
        // Values of one bucket may belong to several columns.
        while left > 0.0 && place < sums.len() {
            let here = left.min(ends[place + 1] - below);
            sums[place].0 += here * middle;
            sums[place].1 += here;
            (below, left) = (below + here, left - here);
            if left > 0.0 || below >= ends[place + 1] {
                place += 1;
            }
        }
    }
    // Columns without values of their own are interpolated.
    let times = times(of);
    let mut last = Nanos::ZERO;
    let mean = |(place, (sum, count)): (usize, &(f64, f64))| {
        let (low, high) = (times[place], times[place + 1]);
        let mean =
            if *count > 0.0 { Nanos((sum / count) as u64) } else { Nanos((low + high).get() / 2) };
        last = mean.clamp(low, high).max(last);
        last
    };
    sums.iter().enumerate().map(mean).collect()
}
