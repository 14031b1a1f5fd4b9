//! Recordings whose breakdown and whose rate on another drive are known by construction.

use crosspoint_capture::{
    Breakdown, Call, Class, Encoder, Event, EventKind, FileKind, Header, Io, Part, Predictor,
    Process, Recording, SwitchOut, Thread, Timeline, Waiting, WokenBy,
};
use device::{Completion, Device, EventQueue, Operation, Request, Stages};
use proptest::prelude::*;
use units::Nanos;

const SERVER: u32 = 10;
const CLIENT: u32 = 20;

fn header(end: u64, tids: &[(u32, u32)]) -> Header {
    let process = |pid, client| Process { pid, name: format!("p{pid}"), client };
    Header {
        cpus: 2,
        end,
        process: vec![process(SERVER, false), process(CLIENT, true)],
        thread: tids
            .iter()
            .map(|(tid, pid)| Thread { tid: *tid, pid: *pid, name: format!("t{tid}") })
            .collect(),
        ..Header::default()
    }
}

/// Writes events in the order in which they are made.
#[derive(Default)]
struct Script {
    at: u64,
    events: Vec<Event>,
    sector: u64,
}

impl Script {
    fn add(&mut self, thread: u32, what: EventKind) {
        self.events.push(Event { at: self.at, thread, what });
    }

    fn wait(&mut self, time: u64) {
        self.at += time;
    }

    fn enter(&mut self, thread: u32, call: Call, file: FileKind) {
        self.add(thread, EventKind::Enters { call, file });
    }

    fn sleep(&mut self, thread: u32) {
        self.add(thread, EventKind::Leaves(SwitchOut::Sleeps));
    }

    /// A synchronous request of `time`; the thread waits in a call.
    fn request(&mut self, thread: u32, (call, operation): (Call, Operation), time: u64) {
        self.enter(thread, call, FileKind::Data);
        self.sector += 32;
        let bytes = if operation == Operation::Flush { 0 } else { 16384 };
        let sector = if operation == Operation::Flush { 0 } else { self.sector };
        let io = Io { drive: 1, operation, durable: false, sector, bytes };
        self.add(thread, EventKind::Submits(io));
        self.add(thread, EventKind::Leaves(SwitchOut::Blocks));
        self.wait(time);
        self.add(0, EventKind::Completes(io));
        self.add(thread, EventKind::Woken { waker: 0, by: WokenBy::Interrupt });
        self.add(thread, EventKind::Runs { after: 0 });
        self.add(thread, EventKind::Returns);
    }

    /// `from` sends a message to `to`, which waits in a call, and then waits for the answer itself.
    fn send(&mut self, from: u32, to: u32) {
        self.enter(from, Call::Write, FileKind::Socket);
        self.add(to, EventKind::Woken { waker: from, by: WokenBy::Thread });
        self.add(from, EventKind::Returns);
        self.enter(from, Call::Read, FileKind::Socket);
        self.sleep(from);
        self.add(to, EventKind::Runs { after: 0 });
        self.add(to, EventKind::Returns);
    }
}

// Long, so that the cost of recording hardly matters.
const READ: u64 = 10_000_000;
const CPU: u64 = 2_000_000;
const CLIENT_CPU: u64 = 500_000;

/// One client; each request reads once.
fn reads(count: u32) -> (Header, Script) {
    let mut script = Script::default();
    script.enter(SERVER, Call::Read, FileKind::Socket);
    script.sleep(SERVER);
    script.add(CLIENT, EventKind::Runs { after: 0 });
    for _ in 0..count {
        script.wait(CLIENT_CPU);
        script.send(CLIENT, SERVER);
        script.wait(CPU / 2);
        script.request(SERVER, (Call::Read, Operation::Read), READ);
        script.wait(CPU / 2);
        script.send(SERVER, CLIENT);
    }
    (header(script.at, &[(SERVER, SERVER), (CLIENT, CLIENT)]), script)
}

fn seen(header: &Header, script: &Script) -> (Timeline, Breakdown) {
    let timeline = Timeline::new(header, &script.events);
    let breakdown = Breakdown::new(header, &timeline);
    (timeline, breakdown)
}

/// A drive that always takes the same time.
struct Constant(u64, EventQueue<u64>);

impl Device for Constant {
    fn submit(&mut self, now: Nanos, request: Request) {
        self.1.push(now + Nanos(self.0), request.id);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.1.next_time()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some((at, id)) = self.1.pop_due(now) {
            done.push(Completion { id, at, stages: Stages::new(Nanos(self.0), []) });
        }
    }
}

fn ratio_on(predictor: &Predictor, time: u64) -> f64 {
    let gain = predictor.on(u64::MAX, || Constant(time, EventQueue::default()));
    assert!(gain.least < gain.expected && gain.expected < gain.most, "{gain:?}");
    gain.expected
}

/// Otherwise users buy a drive for a wait that is something else.
#[test]
fn each_wait_is_named_and_the_parts_sum_to_the_time() {
    let (header, script) = reads(1000);
    let (_, breakdown) = seen(&header, &script);
    let server = &breakdown.classes[&Class::Foreground];
    let whole = (CLIENT_CPU + CPU + READ) as f64;
    for (part, time) in [
        (Part::Wait(Waiting::Read), READ),
        (Part::Wait(Waiting::Message), CLIENT_CPU),
        (Part::Cpu, CPU),
    ] {
        let share = server.share(part);
        assert!((share - time as f64 / whole).abs() < 0.001, "{part:?}: {share}");
    }
    assert_eq!(server.sends, 1000);
    assert_eq!(server.total(), header.length().get());
    let client = &breakdown.classes[&Class::Client];
    assert_eq!(client.total(), header.length().get());
    assert_eq!(breakdown.drives[&1].kinds[0].percentile(0.5), Some(READ));
    assert_eq!(breakdown.intervals.len(), 12);
}

/// The rate on another drive follows from the dependencies: 12.5 ms per request, of which the drive takes 10.
#[test]
fn another_drive_changes_only_what_waits_for_it() {
    let (header, script) = reads(1000);
    let timeline = seen(&header, &script).0;
    let predictor = Predictor::new(&header, &timeline, None);
    assert!(predictor.identity_error().abs() < 0.001, "{}", predictor.identity_error());
    let whole = (CLIENT_CPU + CPU + READ) as f64;
    for time in [0, READ / 2, READ * 10] {
        let expected = whole / (whole - READ as f64 + time as f64);
        let ratio = ratio_on(&predictor, time);
        assert!((ratio / expected - 1.0).abs() < 0.01, "{time}: {ratio}, not {expected}");
    }
    let free = predictor.on_ideal_drive();
    assert!((free.expected / 5.0 - 1.0).abs() < 0.01 && free.forced == 0.0, "{free:?}");
}

/// Two connections; the second waits until the first has flushed for both: group commit.
#[test]
fn a_wait_for_another_thread_is_followed_to_what_that_did() {
    let mut script = Script::default();
    let threads = [(SERVER, SERVER), (11, SERVER)];
    for tid in [SERVER, 11] {
        script.add(tid, EventKind::Runs { after: 0 });
    }
    for _ in 0..100 {
        script.wait(10_000);
        script.enter(11, Call::Lock, FileKind::Data);
        script.sleep(11);
        script.request(SERVER, (Call::Flush, Operation::Flush), 1_000_000);
        script.add(11, EventKind::Woken { waker: SERVER, by: WokenBy::Thread });
        script.add(11, EventKind::Runs { after: 0 });
        script.add(11, EventKind::Returns);
        for tid in [SERVER, 11] {
            script.enter(tid, Call::Write, FileKind::Socket);
            script.add(tid, EventKind::Returns);
        }
    }
    let header = header(script.at, &threads);
    let (timeline, breakdown) = seen(&header, &script);
    let time = &breakdown.classes[&Class::Foreground];
    let behind = &time.behind;
    let flush = behind[&Part::Wait(Waiting::Flush)] as f64 / behind.values().sum::<u64>() as f64;
    assert!(flush > 0.99, "{behind:?}");
    assert!(time.share(Part::Wait(Waiting::Lock)) > 0.49);
    let predictor = Predictor::new(&header, &timeline, None);
    // The batch stays: a flush of half the time nearly doubles the rate of both.
    let ratio = ratio_on(&predictor, 500_000);
    assert!((ratio / (1010.0 / 510.0) - 1.0).abs() < 0.01, "{ratio}");
}

/// A recording of another version, a damaged or a cut one must be refused, not shown as another minute.
#[test]
fn a_damaged_file_is_refused() {
    let (header, script) = reads(50);
    let mut stream = Encoder::default();
    script.events.iter().for_each(|event| stream.push(event));
    let recording = Recording::new(header, &[stream]);
    let bytes = recording.to_bytes().unwrap();
    let again = Recording::parse(&bytes).unwrap();
    assert_eq!(again, recording);
    assert_eq!(again.events().unwrap(), script.events);
    for cut in 0..bytes.len() {
        assert!(Recording::parse(&bytes[..cut]).is_err(), "{cut}");
    }
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let parsed = Recording::parse(&damaged).and_then(|one| one.events());
        assert!(parsed.is_err() || parsed.is_ok_and(|all| all == script.events), "{at}");
    }
}

fn any_what() -> impl Strategy<Value = EventKind> {
    let io = (any::<bool>(), 0u64..8).prop_map(|(flush, place)| Io {
        drive: 1,
        operation: if flush { Operation::Flush } else { Operation::Read },
        durable: flush,
        sector: if flush { 0 } else { place * 8 },
        bytes: if flush { 0 } else { 4096 },
    });
    let leave = prop::sample::select(vec![
        SwitchOut::Preempted,
        SwitchOut::Sleeps,
        SwitchOut::Blocks,
        SwitchOut::Ends,
    ]);
    let call =
        prop::sample::select(vec![Call::Read, Call::Write, Call::Flush, Call::Lock, Call::AsyncIo]);
    let file = prop::sample::select(vec![FileKind::Data, FileKind::Log, FileKind::Socket]);
    prop_oneof![
        (0u32..6).prop_map(|after| EventKind::Runs { after }),
        leave.prop_map(EventKind::Leaves),
        (0u32..6, prop::sample::select(vec![WokenBy::Thread, WokenBy::Deferred]))
            .prop_map(|(waker, by)| EventKind::Woken { waker, by }),
        (call, file).prop_map(|(call, file)| EventKind::Enters { call, file }),
        Just(EventKind::Returns),
        io.clone().prop_map(EventKind::Submits),
        io.prop_map(EventKind::Completes),
        Just(EventKind::Lost),
        Just(EventKind::Recovered),
    ]
}

proptest! {
    /// Events in any order, as after losses: times still sum up, and a replay ends.
    #[test]
    fn nothing_hangs_and_nothing_is_counted_twice(
        raw in prop::collection::vec((0u64..400_000, 1u32..6, any_what()), 0..300),
    ) {
        let mut at = 0;
        let events: Vec<Event> = raw.into_iter().map(|(since, thread, what)| {
            at += since;
            Event { at, thread, what }
        }).collect();
        let tids: Vec<(u32, u32)> = (1..6).map(|tid| (tid, SERVER)).collect();
        let header = header(at, &tids);
        let timeline = Timeline::new(&header, &events);
        for line in timeline.threads.values() {
            for pair in line.segments.windows(2) {
                prop_assert!(pair[0].to <= pair[1].from && pair[1].from < pair[1].to);
            }
        }
        let breakdown = Breakdown::new(&header, &timeline);
        let threads = timeline.threads.len() as u64;
        let total: u64 = breakdown.classes.values().map(crosspoint_capture::ClassTime::total).sum();
        prop_assert!(total <= threads * at);
        let predictor = Predictor::new(&header, &timeline, None);
        let _ = predictor.on_ideal_drive();
    }
}

/// A database whose data is in memory gains nothing from a drive; a range up to 5x would sell one.
#[test]
fn without_requests_no_drive_helps() {
    let mut script = Script::default();
    script.enter(SERVER, Call::Read, FileKind::Socket);
    script.sleep(SERVER);
    script.add(CLIENT, EventKind::Runs { after: 0 });
    for round in 0..1000 {
        script.wait(CLIENT_CPU);
        script.send(CLIENT, SERVER);
        // Reads that the page cache serves; one response in ten is long.
        for _ in 0..20 {
            script.enter(SERVER, Call::Read, FileKind::Data);
            script.wait(2_000);
            script.add(SERVER, EventKind::Returns);
        }
        script.wait(if round % 10 == 0 { 50 * CPU } else { CPU });
        script.send(SERVER, CLIENT);
    }
    let header = header(script.at, &[(SERVER, SERVER), (CLIENT, CLIENT)]);
    let timeline = seen(&header, &script).0;
    let free = Predictor::new(&header, &timeline, None).on_ideal_drive();
    assert!(free.least > 0.99 && free.expected < 1.01 && free.most < 1.7, "{free:?}");
}

/// A large request completes in pieces, and merged ones together.
#[test]
fn requests_complete_when_their_last_piece_does() {
    let mut script = Script::default();
    let io =
        |sector, bytes| Io { drive: 1, operation: Operation::Read, durable: false, sector, bytes };
    script.add(SERVER, EventKind::Runs { after: 0 });
    script.add(SERVER, EventKind::Submits(io(0, 1 << 20)));
    script.add(SERVER, EventKind::Submits(io(4096, 4096)));
    script.add(SERVER, EventKind::Submits(io(4104, 4096)));
    script.wait(1000);
    script.add(0, EventKind::Completes(io(0, 512 << 10)));
    script.add(0, EventKind::Completes(io(4096, 8192)));
    script.wait(1000);
    script.add(0, EventKind::Completes(io(1024, 512 << 10)));
    script.wait(1000);
    let header = header(script.at, &[(SERVER, SERVER)]);
    let requests = seen(&header, &script).0.requests;
    let ends: Vec<Option<u64>> = requests.iter().map(|one| one.completed).collect();
    assert_eq!(ends, [Some(2000), Some(1000), Some(1000)]);
}

/// Over loopback a message wakes its receiver in a deferred interrupt of the sender.
#[test]
fn a_local_tcp_client_is_a_client() {
    let (header, mut script) = reads(200);
    for event in &mut script.events {
        if let EventKind::Woken { by, .. } = &mut event.what
            && *by == WokenBy::Thread
        {
            *by = WokenBy::Deferred;
        }
    }
    let timeline = seen(&header, &script).0;
    let free = Predictor::new(&header, &timeline, None).on_ideal_drive();
    assert!((free.expected / 5.0 - 1.0).abs() < 0.02, "{free:?}");
}

/// A damaged recording may hold any times; analysing it must end.
#[test]
fn centuries_of_cpu_time_are_replayed_at_once() {
    let mut script = Script::default();
    for tid in [SERVER, 11] {
        script.add(tid, EventKind::Runs { after: 0 });
    }
    for tid in [SERVER, 11, SERVER, 11] {
        script.wait(1 << 60);
        script.request(tid, (Call::Read, Operation::Read), 1000);
    }
    let header = header(script.at, &[(SERVER, SERVER), (11, SERVER)]);
    let timeline = seen(&header, &script).0;
    let _ = Predictor::new(&header, &timeline, None).on_ideal_drive();
}

/// The split below the system call is shown as a waterfall: a phase that swallows another one blames the
/// wrong layer.
#[test]
fn the_path_of_a_request_has_the_parts_that_it_was_made_of() {
    let mut script = Script::default();
    let io =
        |sector| Io { drive: 1, operation: Operation::Read, durable: false, sector, bytes: 4096 };
    for sector in [8, 16, 24] {
        let io = io(sector);
        script.enter(SERVER, Call::Read, FileKind::Data);
        script.wait(3_000);
        script.add(SERVER, EventKind::Submits(io));
        script.wait(2_000);
        script.add(SERVER, EventKind::Issues(io));
        script.add(SERVER, EventKind::Leaves(SwitchOut::Blocks));
        script.wait(70_000);
        script.add(0, EventKind::Completes(io));
        script.add(SERVER, EventKind::Woken { waker: 0, by: WokenBy::Interrupt });
        script.wait(5_000);
        script.add(SERVER, EventKind::Runs { after: 0 });
        script.wait(1_000);
        script.add(SERVER, EventKind::Returns);
        script.wait(500);
    }
    // Two asynchronous requests, reaped when the thread looks.
    script.enter(SERVER, Call::AsyncIo, FileKind::Data);
    for sector in [100, 200] {
        script.wait(4_000);
        script.add(SERVER, EventKind::Submits(io(sector)));
        script.add(SERVER, EventKind::Issues(io(sector)));
    }
    script.add(SERVER, EventKind::Returns);
    script.wait(50_000);
    script.add(0, EventKind::Completes(io(100)));
    script.add(0, EventKind::Completes(io(200)));
    script.wait(6_000);
    script.enter(SERVER, Call::AsyncIo, FileKind::Data);
    script.add(SERVER, EventKind::Returns);
    // A write and a flush in one call: the second begins when the first is over.
    let durable = Io { operation: Operation::Write, ..io(300) };
    let flush = Io { operation: Operation::Flush, sector: 0, bytes: 0, ..io(0) };
    script.enter(SERVER, Call::Flush, FileKind::Data);
    for (before, io, time) in [(1_000, durable, 10_000), (500, flush, 20_000)] {
        script.wait(before);
        script.add(SERVER, EventKind::Submits(io));
        script.add(SERVER, EventKind::Leaves(SwitchOut::Blocks));
        script.wait(time);
        script.add(0, EventKind::Completes(io));
        script.add(SERVER, EventKind::Woken { waker: 0, by: WokenBy::Interrupt });
        script.wait(2_000);
        script.add(SERVER, EventKind::Runs { after: 0 });
    }
    script.wait(100);
    script.add(SERVER, EventKind::Returns);
    let header = header(script.at, &[(SERVER, SERVER)]);
    let [reads, writes, flushes] = Timeline::new(&header, &script.events).paths;
    assert_eq!((reads.count, writes.count, flushes.count), (5, 1, 1));
    let parts = |path: crosspoint_capture::RequestPath| {
        [path.submission, path.queue, path.drive, path.wake, path.completion]
    };
    assert_eq!(parts(writes), [1_000, 0, 10_000, 2_000, 0]);
    assert_eq!(parts(flushes), [500, 0, 20_000, 2_000, 100]);
    assert_eq!(reads.submission, 3 * 3_000 + 2 * 4_000);
    assert_eq!(reads.queue, 3 * 2_000);
    assert_eq!(reads.drive, 3 * 70_000 + 54_000 + 50_000);
    assert_eq!(reads.wake, 3 * 5_000);
    assert_eq!(reads.completion, 3 * 1_000 + 2 * 6_000);
}

/// Time in which events were lost would count as whatever a thread did before the gap.
#[test]
fn a_gap_is_not_classed() {
    let mut script = Script::default();
    script.enter(SERVER, Call::Read, FileKind::Data);
    script.wait(2_000_000);
    script.add(0, EventKind::Lost);
    script.wait(1_000_000);
    // Another CPU reports that the thread runs; what it did there is lost.
    script.add(SERVER, EventKind::Runs { after: 0 });
    script.wait(5_000_000);
    script.add(0, EventKind::Recovered);
    script.sleep(SERVER);
    script.wait(3_000_000);
    script.add(SERVER, EventKind::Runs { after: 0 });
    script.add(SERVER, EventKind::Leaves(SwitchOut::Ends));
    let header = header(script.at, &[(SERVER, SERVER)]);
    let breakdown = Breakdown::new(&header, &Timeline::new(&header, &script.events));
    let parts: Vec<(Part, u64)> =
        breakdown.classes.values().flat_map(|time| time.parts.clone()).collect();
    let of = |wanted| parts.iter().find(|(part, _)| *part == wanted).map(|(_, time)| *time);
    // The gap, and a sleep in a call whose entry was lost.
    assert_eq!(of(Part::Wait(Waiting::Other)), Some(9_000_000), "{parts:?}");
    assert_eq!(parts.iter().map(|(_, time)| time).sum::<u64>(), 11_000_000);
}

/// Whoever opens a stranger's recording would have a terminal steered, or gigabytes allocated.
#[test]
fn impossible_facts_are_refused_and_names_are_cleaned() {
    let written = |header: Header| Recording::new(header, &[]).to_bytes().unwrap();
    let many = Header { cpus: u32::MAX, ..header(1, &[]) };
    assert!(Recording::parse(&written(many)).is_err());
    let load = Header { other_load: f64::NAN, ..header(1, &[]) };
    assert!(Recording::parse(&written(load)).is_err());
    let mut named = header(1, &[]);
    named.process[0].name = format!("a\u{1b}[31m\n\u{202e}b{}", "x".repeat(10_000));
    let name = Recording::parse(&written(named)).unwrap().header.process[0].name.clone();
    assert!(name.starts_with("a[31mbx") && name.len() == 64, "{name:?}");
}
