//! Growth of latency towards the highest rate, from a few points of a closed loop.
//!
//! There are few points (depths that double), and latency is convex in the rate, so linear interpolation can
//! give 89 % where 48 is true. The curve is therefore that of a closed queueing network of one serial station
//! and a delay, by exact mean value analysis (M. Reiser and S. S. Lavenberg, JACM 27, 1980): fitted to the
//! logarithms of all rates if it describes them within [`RESIDUAL_MAX`], otherwise drawn through the two
//! points around the target. Invariant: a function of the points.

/// Share of the highest rate at which the growth is reported.
pub const NEARLY_ALL: f64 = 0.95;
/// Minimum number of points.
pub const POINTS_MIN: usize = 4;
/// Largest relative residual of a fit to all points.
pub const RESIDUAL_MAX: f64 = 0.05;
/// Maximum number of fitting steps.
const STEPS: usize = 60;

/// A point of a closed loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoopPoint {
    /// Operations in flight.
    pub in_flight: f64,
    /// Operations per second.
    pub rate: f64,
}

/// Mean latency at [`NEARLY_ALL`] of the highest rate over that at the lowest load, minus 1; `points` sorted
/// by load. `None` with fewer than [`POINTS_MIN`] points, or if the lowest load is beyond the target.
#[must_use]
pub fn growth(points: &[LoopPoint]) -> Option<f64> {
    let sound = |point: &LoopPoint| point.in_flight >= 1.0 && point.rate > 0.0;
    if points.len() < POINTS_MIN || !points.iter().all(sound) {
        return None;
    }
    let all = Network::fit(points);
    if all.residual(points) <= RESIDUAL_MAX {
        let deepest = points.iter().map(|point| point.in_flight).fold(0.0, f64::max);
        let target = NEARLY_ALL * all.rate(deepest);
        let at = all.load_of(target, (1.0, deepest))?;
        return Some(all.latency(at) / all.latency(points[0].in_flight) - 1.0);
    }
    let most = points.iter().map(|point| point.rate).fold(0.0, f64::max);
    let target = NEARLY_ALL * most;
    let above = points.iter().position(|point| point.rate >= target)?;
    let two = &points[above.checked_sub(1)?..=above];
    let local = Network::fit(two);
    let at = local.load_of(target, (two[0].in_flight, two[1].in_flight))?;
    let lowest = points[0].in_flight / points[0].rate;
    Some(at / target / lowest - 1.0)
}

/// A delay and a serial station, in seconds.
#[derive(Debug, Clone, Copy)]
struct Network {
    delay: f64,
    serial: f64,
}

impl Network {
    /// Operations per second at queue depth `load`; linear between whole numbers.
    fn rate(&self, load: f64) -> f64 {
        let (mut queue, mut rate, mut before) = (0.0, 0.0, 0.0);
        let whole = load.ceil() as u64;
        for n in 1..=whole {
            before = rate;
            let wait = self.serial * (1.0 + queue);
            rate = n as f64 / (self.delay + wait);
            queue = rate * wait;
        }
        let part = load - (whole as f64 - 1.0);
        before + (rate - before) * part
    }

    /// Seconds, by Little's law.
    fn latency(&self, load: f64) -> f64 {
        load / self.rate(load)
    }

    /// The queue depth at which the rate is `target`, by bisection.
    fn load_of(&self, target: f64, (mut low, mut high): (f64, f64)) -> Option<f64> {
        if self.rate(low) > target || self.rate(high) < target * (1.0 - 1e-9) {
            return None;
        }
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if self.rate(middle) < target { low = middle } else { high = middle }
        }
        Some((low + high) / 2.0)
    }

    fn residual(&self, points: &[LoopPoint]) -> f64 {
        let off = |point: &LoopPoint| (self.rate(point.in_flight) / point.rate - 1.0).abs();
        points.iter().map(off).fold(0.0, f64::max)
    }

    fn squares(&self, points: &[LoopPoint]) -> f64 {
        points.iter().map(|point| (self.rate(point.in_flight) / point.rate).ln().powi(2)).sum()
    }

    /// Least squares of the logarithms, by coordinate search with shrinking steps.
    fn fit(points: &[LoopPoint]) -> Self {
        let most = points.iter().map(|point| point.rate).fold(0.0, f64::max);
        let lone = points[0].in_flight / points[0].rate;
        let mut best = Self { serial: 1.0 / most, delay: (lone - 1.0 / most).max(0.01 / most) };
        let (mut least, mut step) = (best.squares(points), 0.3f64);
        for _ in 0..STEPS {
            let tries =
                [(1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0), (1.0, -1.0), (-1.0, 1.0)];
            let mut moved = false;
            for (a, b) in tries {
                let one = Self {
                    serial: best.serial * (step * a).exp(),
                    delay: best.delay * (step * b).exp(),
                };
                let squares = one.squares(points);
                if squares < least {
                    (best, least, moved) = (one, squares, true);
                }
            }
            if !moved {
                step /= 2.0;
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(network: Network, loads: impl IntoIterator<Item = u32>) -> Vec<LoopPoint> {
        let point =
            |n: u32| LoopPoint { in_flight: f64::from(n), rate: network.rate(f64::from(n)) };
        loads.into_iter().map(point).collect()
    }

    /// Published growths of 25, 54 and 80 % are compared with this.
    #[test]
    fn growth_from_doubling_depths_is_that_of_all_depths() {
        for (delay, serial) in [(10.0, 1.7), (80.0, 1.5), (80.0, 5.0), (8.0, 8.0)] {
            let network = Network { delay: delay * 1e-6, serial: serial * 1e-6 };
            let most = network.rate(256.0);
            let at = (1..=256).find(|n| network.rate(f64::from(*n)) >= NEARLY_ALL * most).unwrap();
            let truth = network.load_of(NEARLY_ALL * most, (f64::from(at) - 1.0, f64::from(at)));
            let truth = network.latency(truth.unwrap()) / network.latency(1.0) - 1.0;
            let found = growth(&of(network, (0..=8).map(|power| 1 << power))).unwrap();
            assert!((found - truth).abs() < 0.012, "{delay} {serial}: {found} for {truth}");
        }
    }

    /// A device with several servers is not such a network; its growth is interpolated between the points
    /// around the target.
    #[test]
    fn another_device_is_read_between_its_points() {
        // Four servers of 80 us: latency is constant up to depth 4, then the rate is.
        let rate = |n: u32| f64::from(n.min(4)) / 80e-6;
        let points: Vec<LoopPoint> =
            [1, 2, 4, 8, 16].map(|n| LoopPoint { in_flight: f64::from(n), rate: rate(n) }).into();
        let found = growth(&points).unwrap();
        assert!((-0.01..0.15).contains(&found), "{found}");
        assert_eq!(growth(&points[..3]), None);
        assert_eq!(growth(&[LoopPoint { in_flight: 1.0, rate: 0.0 }; 5]), None);
    }
}
