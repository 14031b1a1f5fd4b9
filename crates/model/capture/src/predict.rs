//! How the recorded minute would have gone on another drive.
//!
//! A prediction is a ratio of two replays, so errors that both have cancel. Invariant: it exists only if the
//! replay on the recorded drive takes the recorded time, within [`IDENTITY_MAX`].

use device::Device;

use crate::breakdown::{Class, classes};
use crate::format::Header;
use crate::graph::Graph;
use crate::replay::{Assume, MEASURED, Outcome, Recorded, Settings, ZeroLatency, replay};
use crate::segment::{Activity, Waiting};
use crate::timeline::Timeline;

/// Measured rates over expected ones, fitted to 21 comparisons with MariaDB; in a later run 17 of 21 were
/// inside (docs/VALIDATION.md).
const ERRORS: [f64; 2] = [0.90, 1.28];
/// How far the replay on the recorded drive may be off.
pub const IDENTITY_MAX: f64 = 0.10;
/// Share of the time that may be unattributed.
const UNATTRIBUTED_MAX: f64 = 0.1;

/// Rate on a drive over that on the recorded drive, both without recording.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gain {
    /// With the recorded order of threads on each CPU, or the lowest of the three.
    pub least: f64,
    /// Any thread on any CPU.
    pub expected: f64,
    /// Also with warm caches, no wake-up of an idle CPU and a cheap I/O path: threads that sleep less run
    /// faster.
    pub most: f64,
    /// Waits that had to be ended because the recording is imprecise, as a share of the foreground's steps.
    pub forced: f64,
}

/// Share of the foreground's time that is not classed.
fn unattributed(header: &Header, timeline: &Timeline) -> f64 {
    let classes = classes(header, timeline);
    let foreground =
        timeline.threads.iter().filter(|(tid, _)| classes.get(tid) == Some(&Class::Foreground));
    let (mut all, mut other) = (0, 0);
    for segment in foreground.flat_map(|(_, line)| &line.segments) {
        let time = segment.to - segment.from;
        all += time;
        if matches!(segment.doing, Activity::Waits(Waiting::Other, _)) {
            other += time;
        }
    }
    other as f64 / all.max(1) as f64
}

/// Replays a recording.
#[derive(Debug)]
pub struct Predictor {
    graph: Graph,
    settings: Settings,
    recorded: f64,
    /// Replays on the recorded drive, with recorded and with undisturbed CPU times.
    same: [Outcome; 2],
    unattributed: f64,
}

impl Predictor {
    /// Prepares, and replays on the recorded drive. Costs about 1 us an event.
    #[must_use]
    pub fn new(header: &Header, timeline: &Timeline, cores: Option<u32>) -> Self {
        let graph = Graph::new(header, timeline);
        let cores = cores.unwrap_or(header.cpus).max(1) as usize;
        let settings = Settings { cores, assume: Assume::Recorded, capacity: u64::MAX };
        let here = Settings { cores: header.cpus.max(1) as usize, ..settings };
        let same = [Assume::Recorded, Assume::Undisturbed].map(|assume| {
            replay(&graph, &mut Recorded::new(&graph.requests), Settings { assume, ..here })
        });
        let target = (graph.advances.len() as f64 * MEASURED) as usize;
        let recorded = graph.advances.get(target.saturating_sub(1)).copied().unwrap_or_default();
        let unattributed = unattributed(header, timeline);
        Self { graph, settings, recorded: recorded as f64, same, unattributed }
    }

    /// Time of the replay on the recorded drive over the recorded time, less 1: what the replay cannot
    /// explain.
    #[must_use]
    pub fn identity_error(&self) -> f64 {
        self.same[0].time / self.recorded.max(1.0) - 1.0
    }

    /// Whether no foreground thread did anything.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.graph.advances.is_empty()
    }

    /// Share of the foreground's time that is not classed, because events were lost.
    #[must_use]
    pub const fn unattributed(&self) -> f64 {
        self.unattributed
    }

    /// Whether the recording can be replayed: few events were lost, and waits have known causes.
    #[must_use]
    pub fn is_faithful(&self) -> bool {
        let runs = self.same.iter().all(|one| one.time > 0.0);
        !self.is_idle()
            && runs
            && self.identity_error().abs() <= IDENTITY_MAX
            && self.unattributed <= UNATTRIBUTED_MAX
    }

    /// Responses of the foreground in the recording.
    #[must_use]
    pub const fn responses(&self) -> u64 {
        self.graph.sends
    }

    /// On the drives that `make` makes, of `capacity` bytes. The range covers the assumptions about CPUs and
    /// the errors of predictions that were compared with measurements.
    pub fn on<D: Device>(&self, capacity: u64, mut make: impl FnMut() -> D) -> Gain {
        let mut run = |assume| {
            let settings = Settings { assume, capacity, ..self.settings };
            replay(&self.graph, &mut make(), settings)
        };
        let gain = self.gain([Assume::Undisturbed, Assume::AnyCpu, Assume::Fast].map(&mut run));
        if self.graph.requests.is_empty() {
            return gain;
        }
        let [low, high] = ERRORS.map(|error| error * gain.expected);
        Gain { least: gain.least.min(low), most: gain.most.max(high), ..gain }
    }

    /// On a drive that takes no time, which makes nothing slower.
    #[must_use]
    pub fn on_ideal_drive(&self) -> Gain {
        let gain = self.on(u64::MAX, ZeroLatency::default);
        Gain { least: gain.least.max(1.0), expected: gain.expected.max(1.0), ..gain }
    }

    /// The rate without recording over the recorded rate.
    #[must_use]
    pub fn undisturbed(&self) -> f64 {
        self.same[0].time / self.same[1].time
    }

    fn gain(&self, outcomes: [Outcome; 3]) -> Gain {
        let gains = outcomes.map(|one| self.same[1].time / one.time);
        Gain {
            least: gains.iter().copied().fold(f64::INFINITY, f64::min),
            expected: gains[1],
            most: gains.iter().copied().fold(0.0, f64::max),
            forced: outcomes[1].forced as f64 / outcomes[1].steps.max(1) as f64,
        }
    }
}
