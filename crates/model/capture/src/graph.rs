//! The recording as a graph of dependencies: what each thread does, in order, and what it has to wait for.
//!
//! CPU time stays as recorded; waits are not copied but end when what ended them has happened: another thread
//! reached the same point, a request completed, the same amount of work was done, or the same time passed.
//! The rules follow experiments with MariaDB (November 2026); see docs/method/capture.md.

use crate::breakdown::{Class, classes};
use crate::format::Header;
use crate::segment::{Activity, Point, Request, Segment, ThreadLine, Waiting, WakeSource};
use crate::timeline::{COMPLETION_LAG, Timeline};

/// Waits of background threads that are longer are for work, not for a time, ns. Page cleaners and others
/// wake up by the clock but do what the foreground left them; a fixed period would cap the rate.
const WORK_WAIT: u64 = 300_000;
/// CPU time per request of a cheap I/O path, ns (assumed; 16 KiB read from tmpfs took 3.0 us on a virtual
/// machine in 2026, psync on an Optane drive 3.0 us: CHEOPS 2023).
const CHEAP_PATH: f64 = 3_000.0;

/// What a thread does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Runs for `time`, in a storage call or not; recording it caused `events` events.
    Cpu { time: u64, events: u32, storage: bool },
    /// Submits a request.
    Submit(usize),
    /// Waits until a request is complete.
    Completion(usize),
    /// Has reached the point at which it wakes another thread.
    Signal(usize),
    /// Waits for a signal.
    Await(usize),
    /// Waits until another thread leaves the CPU, in the recorded order.
    Turn(usize),
    /// Waits for a time.
    Pause(u64),
    /// Waits until an idle CPU runs it.
    WakeUp(u64),
    /// Waits until the foreground has made this many steps.
    Progress(u64),
    /// The foreground has made another step.
    Advance,
}

/// The steps of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Track {
    pub steps: Vec<Step>,
    pub class: Class,
}

/// The graph of a recording.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Graph {
    pub tracks: Vec<Track>,
    pub requests: Vec<Request>,
    /// Number of signals.
    pub signals: usize,
    /// Time of each foreground step since the start of the recording, ns, in order.
    pub advances: Vec<u64>,
    /// Mean, and the fastest quarter, of the foreground's CPU time per response; 0 without responses.
    pub cpu: [f64; 2],
    /// Share of the CPU time in storage calls that a cheap I/O path needs.
    pub cheap_path: f64,
    /// Messages of the foreground.
    pub sends: u64,
}

/// Completed requests by time of completion.
type ByEnd = Vec<(u64, usize)>;

struct Builder<'a> {
    timeline: &'a Timeline,
    end: u64,
    by_end: ByEnd,
    /// Steps of the foreground, by time.
    advances: Vec<u64>,
}

impl Graph {
    pub fn new(header: &Header, timeline: &Timeline) -> Self {
        let classes = classes(header, timeline);
        let class = |tid: u32| classes.get(&tid).copied().unwrap_or(Class::Background);
        let mut by_end: ByEnd = Vec::new();
        for (index, request) in timeline.requests.iter().enumerate() {
            by_end.extend(request.completed.map(|at| (at, index)));
        }
        by_end.sort_unstable();
        let mut builder = Builder { timeline, end: header.last(), by_end, advances: Vec::new() };
        let foreground = |tid: &u32| class(*tid) == Class::Foreground;
        let lines =
            || timeline.threads.iter().filter(|(tid, _)| foreground(tid)).map(|(_, line)| line);
        for line in lines() {
            let waits = line.segments.iter().filter(|one| matches!(one.doing, Activity::Waits(..)));
            builder.advances.extend(waits.map(|one| one.to));
            builder.advances.extend(line.points.iter().map(|(at, _)| *at));
        }
        builder.advances.sort_unstable();
        let mut tracks: Vec<Track> = Vec::new();
        for (tid, line) in &timeline.threads {
            let class = class(*tid);
            tracks.push(Track { steps: builder.steps(line, class), class });
        }
        tracks.extend(builder.outsiders());
        let advances = builder.advances.iter().map(|at| at - header.start).collect();
        Self {
            tracks,
            requests: timeline.requests.clone(),
            signals: timeline.wakes.len(),
            advances,
            cpu: cpu_per_response(lines()),
            cheap_path: cheap_path(timeline, CHEAP_PATH),
            sends: lines().map(|line| line.sends).sum(),
        }
    }
}

impl Builder<'_> {
    /// Foreground steps up to a time.
    fn done_by(&self, at: u64) -> u64 {
        self.advances.partition_point(|one| *one <= at) as u64
    }

    fn steps(&self, line: &ThreadLine, class: Class) -> Vec<Step> {
        let mut steps = Vec::with_capacity(line.segments.len() + line.points.len());
        let busy = line
            .segments
            .iter()
            .filter(|one| is_cpu(one))
            .map(|one| one.to - one.from)
            .sum::<u64>();
        let mut events = Events { density: line.events as f64 / busy.max(1) as f64, carried: 0.0 };
        let (mut points, mut own) = (line.points.iter().peekable(), Vec::new());
        for segment in &line.segments {
            let mut from = segment.from;
            while let Some((at, point)) =
                points.next_if(|(at, _)| *at < segment.to || is_cpu(segment) && *at == segment.to)
            {
                if is_cpu(segment) {
                    steps.extend(events.cpu(segment, (*at).max(from) - from));
                }
                from = (*at).max(from);
                self.point((*at, *point), class, &mut own, &mut steps);
            }
            match segment.doing {
                Activity::Cpu | Activity::CpuInCall | Activity::CpuInStorageCall => {
                    steps.extend(events.cpu(segment, segment.to - from));
                }
                Activity::RunQueue(Some(index)) => steps.push(Step::Turn(index)),
                Activity::RunQueue(None) => {}
                Activity::WakeUp => steps.push(Step::WakeUp(segment.to - segment.from)),
                Activity::Neighbour => steps.push(Step::Pause(segment.to - segment.from)),
                Activity::Waits(..) if segment.to >= self.end => break,
                Activity::Waits(waiting, ended) => {
                    self.wait(segment, (waiting, ended), class, &mut own, &mut steps);
                    if class == Class::Foreground {
                        steps.push(Step::Advance);
                    }
                }
            }
        }
        steps
    }

    fn point(
        &self,
        (at, point): (u64, Point),
        class: Class,
        own: &mut Vec<usize>,
        steps: &mut Vec<Step>,
    ) {
        match point {
            Point::Wakes(index) => steps.push(Step::Signal(index)),
            Point::Submits(index) => {
                own.push(index);
                steps.push(Step::Submit(index));
            }
            Point::Sends => {}
            // What completed in the call without a wait still has to complete; read-ahead does not.
            Point::Synchronous => {
                let requests = &self.timeline.requests;
                let complete =
                    |index: &usize| requests[*index].completed.is_some_and(|end| end <= at);
                steps.extend(own.drain(..).filter(complete).map(Step::Completion));
            }
        }
        if class == Class::Foreground {
            steps.push(Step::Advance);
        }
    }

    fn wait(
        &self,
        segment: &Segment,
        (waiting, ended): (Waiting, WakeSource),
        class: Class,
        own: &mut Vec<usize>,
        steps: &mut Vec<Step>,
    ) {
        let length = segment.to - segment.from;
        if let WakeSource::By(wake) = ended {
            return steps.push(Step::Await(wake));
        }
        // From a completion until the thread is ready again.
        let mut last = None;
        // Its own requests that completed by now; they ended the wait if that was just now.
        own.retain(|index| {
            let Some(end) = self.timeline.requests[*index].completed else { return true };
            if end <= segment.to && end + COMPLETION_LAG >= segment.to && end >= segment.from {
                steps.push(Step::Completion(*index));
                last = last.max(Some(end));
            }
            end > segment.to
        });
        if let Some(last) = last {
            return steps.push(Step::Pause(segment.to - last));
        }
        if waiting.may_be_for_a_drive()
            && let Some(index) = self.completed_at(segment)
        {
            if !self.timeline.threads.contains_key(&self.timeline.requests[index].thread) {
                return self.chain(segment, steps);
            }
            let end = self.timeline.requests[index].completed.unwrap_or(segment.to);
            return steps.extend([Step::Completion(index), Step::Pause(segment.to - end)]);
        }
        match class {
            Class::Background | Class::FileSystem if length > WORK_WAIT => {
                steps.push(Step::Progress(self.done_by(segment.to)));
            }
            _ => steps.push(Step::Pause(length)),
        }
    }

    /// The request whose completion ended a wait.
    fn completed_at(&self, segment: &Segment) -> Option<usize> {
        let after = self.by_end.partition_point(|(at, _)| *at <= segment.to);
        let since = segment.to.saturating_sub(COMPLETION_LAG).max(segment.from);
        let (at, index) = self.by_end[..after].last()?;
        (*at >= since).then_some(*index)
    }

    /// Requests of threads that were not recorded, made on behalf of a waiting one: in the recorded order.
    fn chain(&self, segment: &Segment, steps: &mut Vec<Step>) {
        let first = self.by_end.partition_point(|(at, _)| *at <= segment.from);
        let during = self.by_end[first..].iter().take_while(|(at, _)| *at <= segment.to);
        let foreign = during.filter(|(_, index)| {
            let request = &self.timeline.requests[*index];
            request.submitted >= segment.from
                && !self.timeline.threads.contains_key(&request.thread)
        });
        let mut at = segment.from;
        for (completed, index) in foreign {
            let submitted = self.timeline.requests[*index].submitted;
            if submitted > at {
                steps.push(Step::Pause(submitted - at));
            }
            steps.extend([Step::Submit(*index), Step::Completion(*index)]);
            at = *completed;
        }
        steps.push(Step::Pause(segment.to.saturating_sub(at)));
    }

    /// Write-back and other requests that nobody recorded submitted: load, at the same progress.
    fn outsiders(&self) -> Option<Track> {
        let mut steps = Vec::new();
        for (index, request) in self.timeline.requests.iter().enumerate() {
            let foreign = !self.timeline.threads.contains_key(&request.thread);
            if foreign {
                steps.push(Step::Progress(self.done_by(request.submitted)));
                steps.push(Step::Submit(index));
            }
        }
        (!steps.is_empty()).then_some(Track { steps, class: Class::Background })
    }
}

const fn is_cpu(segment: &Segment) -> bool {
    matches!(segment.doing, Activity::Cpu | Activity::CpuInCall | Activity::CpuInStorageCall)
}

/// Spreads a thread's events over its CPU time, in which they were made.
struct Events {
    density: f64,
    carried: f64,
}

impl Events {
    fn cpu(&mut self, segment: &Segment, time: u64) -> Option<Step> {
        self.carried += time as f64 * self.density;
        let events = self.carried.floor();
        self.carried -= events;
        let storage = segment.doing == Activity::CpuInStorageCall;
        (time > 0).then_some(Step::Cpu { time, events: events as u32, storage })
    }
}

/// The share of the CPU time in storage calls that remains if submitting a request takes at most `cheap` ns;
/// calls that submit nothing (page-cache hits) stay as they are.
fn cheap_path(timeline: &Timeline, cheap: f64) -> f64 {
    let storage = |one: &&Segment| one.doing == Activity::CpuInStorageCall;
    let lines = timeline.threads.values();
    let segments = lines.flat_map(|line| line.segments.iter().filter(storage));
    let all: u64 = segments.map(|one| one.to - one.from).sum();
    let saved = |line: &ThreadLine| (line.io_cpu as f64 - cheap * line.io_requests as f64).max(0.0);
    1.0 - timeline.threads.values().map(saved).sum::<f64>() / all.max(1) as f64
}

/// Mean CPU time per response, and that of the fastest quarter.
fn cpu_per_response<'a>(lines: impl Iterator<Item = &'a ThreadLine>) -> [f64; 2] {
    let mut all = Vec::new();
    for line in lines {
        let mut sends = line
            .points
            .iter()
            .filter(|(_, point)| *point == Point::Sends)
            .map(|(at, _)| *at)
            .peekable();
        let mut busy = 0;
        for segment in line.segments.iter().filter(|one| is_cpu(one)) {
            busy += segment.to - segment.from;
            if sends.next_if(|at| *at <= segment.to).is_some() {
                all.push(busy);
                busy = 0;
            }
        }
    }
    if all.len() < 100 {
        return [0.0; 2];
    }
    let mean = all.iter().sum::<u64>() as f64 / all.len() as f64;
    all.sort_unstable();
    [mean, all[all.len() / 4] as f64]
}
