//! State shared by the threads that serve one disk: model and clock, data, delivered times.
//!
//! Invariants: a submitted request completes once; nothing is allocated after warm-up; the model is locked
//! only while it computes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use device::{Completion, FaultPlan, Faulty, Model, Operation, Request};
use observe::{ThreadClock, ThreadTimes};
use realtime::RealTime;
use stats::{Histogram, Served};
use units::Nanos;

use crate::failures::lock;
use crate::fidelity::Fidelity;
use crate::medium::Medium;
use crate::readiness::Readiness;
use crate::spin::{Looking, Spin};
use crate::store::Store;
use crate::unflushed::Key;

/// Interval at which a serving thread checks whether to end.
pub(crate) const LOOK: Nanos = Nanos::from_millis(100);

/// A longer wait is not the usual wait for a CPU.
const USUAL_MAX: Nanos = Nanos::from_micros(10);
/// Yields that return sooner have run no other thread.
const SWITCH_MIN: Nanos = Nanos::from_micros(2);
/// A thread that waited for more than 1/`STARVED` of the time was delayed.
const STARVED: u64 = 20;
/// A shorter wait for a CPU met a short task: priority gains nothing then, and costs polling.
const MET: Nanos = Nanos::from_micros(20);

/// Pacing of a serving thread.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Device time is slowed down by this factor; 1 for real time.
    pub scale: u32,
    /// Waits shorter than this are polled.
    pub spin: Spin,
    /// A real device's I/O path, which clients see in addition; it is the host's and not scaled.
    pub path: Nanos,
}

/// The path through the kernel to the disk and back.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct IoPath {
    /// The overhead as a client sees it.
    pub floor: Nanos,
    /// Its part inside the serving threads.
    pub inside: Nanos,
}

/// A request that is with the model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnderWay {
    /// Token by which its thread identifies the request.
    pub token: u64,
    /// The thread that answers it.
    pub server: usize,
    pub operation: Operation,
    pub offset: u64,
    pub length: u32,
    pub arrived: Instant,
    /// When it was submitted to the model.
    submitted: Nanos,
    /// The time that the client should see; known when it is due.
    requested: Nanos,
}

impl UnderWay {
    /// Identifies the request.
    pub const fn key(&self) -> Key {
        (self.token, self.server)
    }

    /// The request, under the name `id`.
    pub const fn request(&self, id: u64) -> Request {
        let (operation, offset, length) = (self.operation, self.offset, self.length);
        Request { id, operation, fua: false, offset, length, queue: 0 }
    }

    pub fn new(
        (token, server): (u64, usize),
        (operation, offset, length): (Operation, u64, u32),
        arrived: Instant,
    ) -> Self {
        let (submitted, requested) = (Nanos::ZERO, Nanos::ZERO);
        Self { token, server, operation, offset, length, arrived, submitted, requested }
    }
}

/// The model and its requests in flight.
#[derive(Debug)]
pub(crate) struct TimedModel {
    clock: RealTime<Faulty<Model>>,
    /// The model before its first request.
    unused: Model,
    pace: Pace,
    slots: Vec<Option<UnderWay>>,
    free: Vec<u32>,
    done: Vec<Completion>,
}

impl TimedModel {
    fn new(device: Model, pace: Pace) -> Self {
        let unused = device.clone();
        let clock = RealTime::new(Faulty::new(device)).stretched(pace.scale);
        let room = 4096;
        let (slots, free) = (Vec::with_capacity(room), Vec::with_capacity(room));
        Self { clock, unused, pace, slots, free, done: Vec::with_capacity(room) }
    }

    /// Restarts the model in its initial state; requests in flight start again.
    fn begin_life(&mut self) {
        self.clock.replace(Faulty::new(self.unused.clone()));
        let Self { clock, slots, done, .. } = self;
        for (place, slot) in slots.iter_mut().enumerate() {
            if let Some(slot) = slot {
                slot.submitted = clock.submit(slot.request(place as u64), done);
            }
        }
    }
}

impl TimedModel {
    /// Sets the overhead to `floor`: answers are sent early by the part that exceeds a real device's I/O
    /// path.
    fn calibrate(&mut self, floor: Nanos) {
        self.clock.lead_by(floor.since(self.pace.path));
    }

    fn begin_faults(&mut self, plan: Option<&FaultPlan>) {
        let now = self.clock.now();
        match plan {
            Some(plan) => self.clock.device().begin(plan, now),
            None => self.clock.device().end(),
        }
    }

    pub fn submit(&mut self, mut slot: UnderWay) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        slot.submitted = self.clock.submit(slot.request(u64::from(place)), &mut self.done);
        self.slots[place as usize] = Some(slot);
    }

    /// Returns due completions, in the model's order.
    pub fn due(&mut self, mut out: impl FnMut(UnderWay)) {
        self.clock.advance(&mut self.done);
        for completion in self.done.drain(..) {
            let place = completion.id as usize;
            let Some(mut slot) = self.slots.get_mut(place).and_then(Option::take) else { continue };
            self.free.push(place as u32);
            let device = completion.at.since(slot.submitted).get() * u64::from(self.pace.scale);
            slot.requested = Nanos(device) + self.pace.path;
            out(slot);
        }
    }

    /// Time until something is due; `None` with nothing in flight.
    pub fn left(&mut self) -> Option<Nanos> {
        let idle = self.free.len() == self.slots.len();
        if idle { None } else { self.clock.left() }
    }
}

/// Statistics of one serving thread.
#[derive(Debug)]
pub(crate) struct Serving {
    clock: ThreadClock,
    fidelity: Mutex<Fidelity>,
    /// Time for which it yielded its CPU, nanoseconds.
    given: AtomicU64,
    /// Time for which requests waited unread, nanoseconds.
    away: AtomicU64,
    /// Processor times when it ended.
    last: Mutex<Option<ThreadTimes>>,
}

impl Serving {
    fn times(&self) -> ThreadTimes {
        let times = lock(&self.last).or_else(|| self.clock.times()).unwrap_or_default();
        let given = Nanos(self.given.load(Ordering::Relaxed));
        let away = Nanos(self.away.load(Ordering::Relaxed));
        ThreadTimes { waited: times.waited.since(given), away, ..times }
    }

    /// Adds time for which requests waited unread.
    pub fn was_away(&self, time: Nanos) {
        self.away.fetch_add(time.get(), Ordering::Relaxed);
    }

    /// Yields to other threads, such as a client that was just answered; their time does not count as a delay
    /// of this thread. If no other thread ran, no time was yielded.
    pub fn give_way(&self) {
        let began = Instant::now();
        rustix::thread::sched_yield();
        let given = Nanos::from(began.elapsed());
        if given >= SWITCH_MIN {
            self.given.fetch_add(given.get(), Ordering::Relaxed);
        }
    }
}

/// State at the last reset.
#[derive(Debug, Clone, Copy)]
struct Mark {
    number: u32,
    at: Instant,
    times: ThreadTimes,
}

/// State shared between serving threads and the attaching one.
#[derive(Debug)]
pub(crate) struct ServeState {
    /// Whether the model times requests; before, they are answered at once, to measure the overhead.
    timed: AtomicBool,
    /// The part of the overhead outside of the serving threads, nanoseconds.
    outside: AtomicU64,
    /// Latencies inside the server while the overhead was measured.
    inside: Mutex<Histogram>,
    /// Usual wait for a CPU, nanoseconds.
    usual: AtomicU64,
    /// Whether to end, even if still mounted elsewhere.
    pub stop: AtomicBool,
    serving: Mutex<Vec<Arc<Serving>>>,
    mark: Mutex<Mark>,
}

impl ServeState {
    fn new() -> Self {
        let mark = Mark { number: 0, at: Instant::now(), times: ThreadTimes::default() };
        Self {
            timed: AtomicBool::new(false),
            outside: AtomicU64::new(0),
            inside: Mutex::new(stats::new_histogram()),
            usual: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            serving: Mutex::default(),
            mark: Mutex::new(mark),
        }
    }

    /// Registers the calling thread as a serving thread.
    pub fn enter(&self) -> Arc<Serving> {
        let own = Arc::new(Serving {
            clock: ThreadClock::of_this_thread(),
            fidelity: Mutex::new(Fidelity::new()),
            given: AtomicU64::new(0),
            away: AtomicU64::new(0),
            last: Mutex::new(None),
        });
        lock(&self.serving).push(Arc::clone(&own));
        own
    }

    /// Records the final CPU times of the calling thread, which serves no longer.
    pub fn leave(&self, serving: &Serving) {
        *lock(&serving.last) = serving.clock.times();
    }

    fn times(&self) -> ThreadTimes {
        let serving = lock(&self.serving);
        serving.iter().fold(ThreadTimes::default(), |sum, one| sum.plus(one.times()))
    }

    /// Answers requests at once again.
    pub fn end_timing(&self) {
        self.timed.store(false, Ordering::Release);
        lock(&self.inside).reset();
        self.begin_anew();
    }

    /// Switches timing on or off; switching it on resets delivered times.
    fn time(&self, timed: bool) {
        if timed {
            self.count_from_now(0);
        }
        self.timed.store(timed, Ordering::Release);
    }

    /// Usual wait for a CPU.
    fn usual(&self) -> Nanos {
        Nanos(self.usual.load(Ordering::Relaxed))
    }

    /// Median time inside the serving threads, of requests since the last call.
    pub fn inside(&self) -> Nanos {
        let mut inside = lock(&self.inside);
        let median = Nanos(inside.value_at_quantile(0.5));
        inside.reset();
        median
    }

    /// Resets delivered times.
    pub fn begin_anew(&self) {
        self.count_from_now(1);
    }

    fn count_from_now(&self, marks: u32) {
        for one in lock(&self.serving).iter() {
            lock(&one.fidelity).reset();
        }
        let times = self.times();
        let mut mark = lock(&self.mark);
        *mark = Mark { number: mark.number + marks, at: Instant::now(), times };
    }

    /// Delivered times and CPU use since the last reset.
    pub fn served(&self, floor: Nanos, scale: u32) -> Served {
        let mut all = Fidelity::new();
        for one in lock(&self.serving).iter() {
            all.add(&lock(&one.fidelity));
        }
        let mark = *lock(&self.mark);
        let times = self.times().since(mark.times);
        let wall = mark.at.elapsed().as_secs_f64().max(1e-9);
        let [reads, writes, flushes] = all.kinds();
        let mut served = Served {
            marks: mark.number,
            floor_ns: floor.get(),
            scale,
            reads,
            writes,
            flushes,
            cpu_share: times.ran.as_secs_f64() / wall,
            starved_share: times.away.as_secs_f64() / wall,
        };
        served.note_waits(times.starved(self.usual()), times.turns);
        served
    }
}

/// A sleep until the next event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pause {
    pub time: Nanos,
    /// Whether a completion is due at its end.
    due: bool,
}

/// Scheduling state of a serving thread.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Time of the last check, and the counters at that time.
    pub looked: Instant,
    times: ThreadTimes,
    readiness: Readiness,
    looking: Looking,
}

impl Turn {
    /// For the calling thread, which starts without priority.
    pub fn new(spin: Spin) -> Self {
        observe::give_way();
        let times = ThreadTimes::default();
        let (readiness, looking) = (Readiness::new(), Looking::new(spin));
        Self { looked: Instant::now(), times, readiness, looking }
    }

    /// Called after a complete sleep of `pause` that began at `began`.
    pub fn slept(&mut self, began: Instant, pause: Pause) {
        if pause.due {
            self.looking.overslept(Nanos::from(began.elapsed()).since(pause.time));
        }
    }
}

/// State shared by the threads that serve one disk.
#[derive(Debug)]
pub(crate) struct ServedDisk {
    pub medium: Medium,
    pub pace: Pace,
    pub state: ServeState,
    model: Mutex<TimedModel>,
}

impl ServedDisk {
    pub fn new(store: Store, device: Model, pace: Pace) -> Self {
        let model = Mutex::new(TimedModel::new(device, pace));
        let medium = Medium::new(store);
        Self { medium, pace, state: ServeState::new(), model }
    }

    /// Starts or ends the preload: requests take no time and do not reach the model; at its end the model
    /// restarts without faults.
    pub fn stage(&self, staging: bool) {
        if !staging {
            self.model().begin_life();
        }
        self.state.time(!staging);
    }
}

impl ServedDisk {
    pub fn model(&self) -> MutexGuard<'_, TimedModel> {
        lock(&self.model)
    }

    /// Sets the measured I/O path: requests are timed from now on.
    pub fn begin_timing(&self, way: IoPath) {
        self.model().calibrate(way.floor);
        self.state.outside.store(way.floor.since(way.inside).get(), Ordering::Relaxed);
        let mark = *lock(&self.state.mark);
        let probing = self.state.times().since(mark.times);
        let usual = (probing.waited.get() / probing.turns.max(1)).min(USUAL_MAX.get());
        self.state.usual.store(usual, Ordering::Relaxed);
        self.state.begin_anew();
        lock(&self.state.mark).number = 0;
        self.state.timed.store(true, Ordering::Release);
    }

    /// Starts a fault plan; without one there are no faults, and power is restored.
    pub fn begin_faults(&self, plan: Option<FaultPlan>) {
        self.model().begin_faults(plan.as_ref());
        self.medium.begin(plan, self.pace.scale);
    }

    #[inline]
    pub fn is_timed(&self) -> bool {
        self.state.timed.load(Ordering::Acquire)
    }

    /// Records the time of a request that was answered at once.
    pub fn note_inside(&self, arrived: Instant) {
        lock(&self.state.inside).saturating_record(Nanos::from(arrived.elapsed()).get());
    }

    /// Records requests that were answered together: each as late as the last.
    pub fn note(&self, serving: &Serving, slots: &[UnderWay]) {
        if slots.is_empty() {
            return;
        }
        let now = Instant::now();
        let outside = Nanos(self.state.outside.load(Ordering::Relaxed));
        let mut fidelity = lock(&serving.fidelity);
        for slot in slots {
            let delivered = Nanos::from(now.saturating_duration_since(slot.arrived)) + outside;
            fidelity.note(slot.operation, slot.requested, delivered);
        }
    }

    /// How long to sleep if something is due in `left`; `None` to poll again immediately. While other threads
    /// use the CPUs, no CPU is idle and sleeps do not oversleep.
    pub fn pause(&self, left: Option<Nanos>, turn: &Turn) -> Option<Pause> {
        let spin = if turn.readiness.is_first() { Nanos::ZERO } else { turn.looking.time() };
        match left {
            Some(left) if left <= spin => None,
            Some(left) if left.since(spin) <= LOOK => {
                Some(Pause { time: left.since(spin), due: true })
            }
            // Background work of a model takes effect with the next request.
            _ => Some(Pause { time: LOOK, due: false }),
        }
    }

    /// Checks whether other threads delay the calling thread, and gives it priority while they do. Returns
    /// whether it has priority from now on.
    pub fn look(&self, serving: &Serving, turn: &mut Turn) -> bool {
        let passed = Nanos::from(turn.looked.elapsed());
        // A stopped thread, or one whose machine was stopped, was not even waiting for a CPU.
        if passed > LOOK * 2 {
            serving.was_away(passed.since(LOOK));
        }
        let times = serving.times();
        let since = times.since(turn.times);
        let waited = since.starved(self.state.usual().max(MET)) + since.away;
        let kept = waited.get() * STARVED > passed.get();
        let was = turn.readiness.is_first();
        let first = turn.readiness.look(kept);
        match (was, first) {
            (false, true) => observe::go_first(),
            (true, false) => observe::give_way(),
            _ => {}
        }
        (turn.looked, turn.times) = (Instant::now(), times);
        first
    }

    pub fn is_to_end(&self) -> bool {
        self.state.stop.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::{Constant, ConstantKind, Ram, RamParameters};

    /// A device with a latency of one millisecond.
    fn disk() -> TimedModel {
        let constant =
            |value| Constant { value, kind: ConstantKind::Assumed, source: "test".into() };
        let device = Ram::new(&RamParameters {
            serial_time: constant(Nanos::from_millis(1)),
            copy_time: constant(Nanos::ZERO),
            fixed_time: constant(Nanos::ZERO),
        });
        TimedModel::new(
            Model::Ram(device),
            Pace { scale: 1, spin: Spin::Exactly(Nanos::ZERO), path: Nanos::ZERO },
        )
    }

    /// A request in flight when staging ends must still be answered, once.
    #[test]
    fn what_is_under_way_ends_once_in_the_new_life() {
        let mut model = disk();
        for token in 0..3 {
            let what = (Operation::Write, token * (64 << 20), 4096);
            model.submit(UnderWay::new((token, 0), what, Instant::now()));
        }
        model.begin_life();
        let mut ended = Vec::new();
        while let Some(_left) = model.left() {
            model.due(|slot| ended.push((slot.token, slot.requested)));
        }
        ended.sort_unstable();
        let tokens: Vec<u64> = ended.iter().map(|(token, _)| *token).collect();
        assert_eq!(tokens, [0, 1, 2]);
        assert!(ended.iter().all(|(_, requested)| *requested > Nanos::ZERO), "{ended:?}");
    }
}
