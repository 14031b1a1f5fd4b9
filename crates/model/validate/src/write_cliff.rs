//! Write cliff: the rate of a flash drive under random overwrites, minute by minute, after a sequential fill
//! or an erase.
//!
//! A drive scaled down by a factor, with the same planes, behaves the same in proportionally less time
//! (garbage collection depends on shares of the drive), so a small one is simulated and its times are
//! multiplied. Invariant: pure.

use device::{Condition, Model, Profile};
use stats::Timeline;
use units::{Bytes, Nanos, Seed, Share};
use workload::{BlockGroup, BlockPlan};

use sim::{BlockPath, HostModel, run};

/// Factor by which the drive is scaled down.
const SMALLER: u64 = 256;
/// Minutes simulated.
const MINUTES: u64 = 60;
/// Submitting threads, and the operations that each keeps in flight.
const WRITERS: (u32, u32) = (4, 128);
/// Share of the initial rate below which the rate has fallen.
const FALLEN: f64 = 2.0 / 3.0;

/// A drop of the write rate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cliff {
    /// Seconds until the fall; the simulated time if there was none.
    pub fall: f64,
    /// Lowest rate of a minute, operations per second.
    pub dip: f64,
    /// Highest rate of a minute after that.
    pub hump: f64,
    /// Seconds until the middle of it.
    pub hump_at: f64,
}

/// Simulates random 4 KiB writes over the whole drive.
pub(crate) fn cliff(profile: &Profile, condition: Condition, seed: Seed) -> Cliff {
    let minute = Nanos(60_000_000_000 / SMALLER);
    let measure = minute * MINUTES;
    // The time of a drop is accurate to a sixth of a minute.
    let timeline = Timeline { warm_up: Nanos::ZERO, measure, interval: Nanos(minute.get() / 6) };
    let small = Profile { capacity: Bytes(profile.capacity.get() / SMALLER), ..profile.clone() };
    let (threads, queue_depth) = WRITERS;
    let plan = BlockPlan {
        read_share: Share::NONE,
        queue_depth,
        ..BlockPlan::reads(4096, small.capacity, timeline.end())
    };
    let group = BlockGroup { clients: threads, ..BlockGroup::new(plan) };
    let clients = group.clients(seed);
    let device = Model::new(&small, condition, seed);
    let host = HostModel::io_uring().to(&small);
    let recording = run(BlockPath::new(device, host, clients.len(), seed), clients, timeline);
    let step = timeline.interval.as_secs_f64();
    let measured = recording.intervals.iter().filter(|i| i.phase == stats::Phase::Measure);
    let rates: Vec<f64> = measured.map(|i| i.counts().ops as f64 / step).collect();
    of_rates(&rates, step * SMALLER as f64)
}

/// The same from rates every `step` seconds, six per minute.
fn of_rates(rates: &[f64], step: f64) -> Cliff {
    let first = rates.first().copied().unwrap_or(0.0);
    let fall = rates.iter().position(|rate| *rate < first * FALLEN).unwrap_or(rates.len());
    let minutes: Vec<f64> =
        rates.chunks(6).map(|m| m.iter().sum::<f64>() / m.len() as f64).collect();
    let ends = |from: usize, sign: f64| {
        let each = minutes.iter().enumerate().skip(from);
        let found = each.max_by(|a, b| (a.1 * sign).total_cmp(&(b.1 * sign)));
        found.map_or((from, f64::NAN), |(at, rate)| (at, *rate))
    };
    let (at, dip) = ends(0, -1.0);
    let (hump_at, hump) = ends(at, 1.0);
    Cliff { fall: fall as f64 * step, dip, hump, hump_at: (hump_at as f64 + 0.5) * 6.0 * step }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_series_are_found() {
        let minutes = [100.0, 100.0, 40.0, 20.0, 21.0, 50.0, 60.0, 40.0];
        let mut rates: Vec<f64> = minutes.iter().flat_map(|rate| [*rate; 6]).collect();
        rates[10] = 60.0;
        let found = of_rates(&rates, 10.0);
        assert_eq!((found.fall, found.dip, found.hump, found.hump_at), (100.0, 20.0, 60.0, 390.0));
    }
}
