//! The event kernel, the arrivals and the recorder together against queues with a closed form: an error here
//! would affect every prediction.

use crosspoint_sim::{BlockPath, HostModel, run};
use device::{
    BUILT_IN, Completion, Condition, Device, EventQueue, Model, Profile, Request, Stages,
};
use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use stats::Timeline;
use units::{Bytes, Nanos, Rate, Seed, Share};
use workload::{Arrivals, BlockGroup, BlockPlan, OpClass, Spacing};

/// Mean service time of a server.
const SERVICE: Nanos = Nanos(100_000);

/// Servers with exponential service times and one queue before them.
struct Servers {
    free: Vec<Nanos>,
    random: Xoshiro256PlusPlus,
    done: EventQueue<u64>,
}

impl Device for Servers {
    fn submit(&mut self, now: Nanos, request: Request) {
        let draw: f64 = Exp1.sample(&mut self.random);
        let server = self.free.iter_mut().min().expect("a server");
        *server = (*server).max(now) + Nanos((draw * SERVICE.get() as f64) as u64);
        self.done.push(*server, request.id);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.done.next_time()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some((at, id)) = self.done.pop_due(now) {
            done.push(Completion { id, at, stages: Stages::default() });
        }
    }
}

/// Mean response time of M/M/c over the mean service time (Erlang's C formula).
fn m_m_c(servers: u32, load: f64) -> f64 {
    let offered = load * f64::from(servers);
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 1..servers {
        term *= offered / f64::from(k);
        sum += term;
    }
    let last = term * offered / f64::from(servers) / (1.0 - load);
    let waits = last / (sum + last);
    1.0 + waits / (f64::from(servers) * (1.0 - load))
}

fn no_host() -> HostModel {
    HostModel::named("none").expect("it is known")
}

#[test]
fn several_servers_wait_as_m_m_c() {
    assert!((m_m_c(1, 0.5) - 2.0).abs() < 1e-12, "M/M/1 is 1 / (1 - load)");
    for (servers, load, seconds) in [(1u32, 0.5, 400), (2, 0.7, 300), (4, 0.8, 250), (16, 0.9, 150)]
    {
        let rate = Rate((f64::from(servers) * load / SERVICE.as_secs_f64()) as u64);
        let second = Nanos::from_secs(1);
        let timeline =
            Timeline { warm_up: second, measure: second * seconds, interval: second * seconds };
        let plan = BlockPlan {
            queue_depth: 100_000,
            arrivals: Arrivals::open(Spacing::Poisson, rate),
            ..BlockPlan::reads(4096, Bytes::mib(64), timeline.end())
        };
        let device = Servers {
            free: vec![Nanos::ZERO; servers as usize],
            random: Xoshiro256PlusPlus::seed_from_u64(7),
            done: EventQueue::default(),
        };
        let target = BlockPath::new(device, no_host(), 1, Seed(3));
        let total = run(target, BlockGroup::new(plan).clients(Seed(3)), timeline).total(None);
        let mean = total.counts.latency_sum.get() as f64 / total.counts.ops as f64;
        let (found, exact) = (mean / SERVICE.get() as f64, m_m_c(servers, load));
        println!(
            "{servers} servers at {load}: {found:.4}, exact {exact:.4}, {} ops",
            total.counts.ops
        );
        assert!((found / exact - 1.0).abs() < 0.01, "{servers} at {load}: {found} against {exact}");
    }
}

/// Bytes of one program.
const PROGRAM_SIZE: u32 = 64 << 10;

/// A flash drive with one program unit and a volatile buffer; everything but programs takes almost no time.
fn volatile_drive(program: Nanos) -> Model {
    let text = BUILT_IN.iter().find(|(name, _)| *name == "samsung-970-pro").expect("it ships").1;
    let set = |text: String, key: &str, value: &str| {
        let line = text.lines().find(|line| line.starts_with(key)).expect("a constant").to_owned();
        let new = format!("{key} = {{ value = {value}, kind = \"assumed\", source = \"test\" }}");
        text.replace(&line, &new)
    };
    let flush =
        text.lines().find(|line| line.starts_with("flush_program_time")).expect("a constant");
    let mut text = text.replace(flush, "");
    for key in
        ["front_time ", "front_time_write ", "controller_time ", "link_time ", "write_ack_time "]
    {
        text = set(text, key, "\"1ns\"");
    }
    for (key, value) in [
        ("program_units ", "1".to_owned()),
        ("program_size ", format!("\"{PROGRAM_SIZE}B\"")),
        ("read_units ", "1".to_owned()),
        ("channels ", "1".to_owned()),
        ("program_time ", format!("\"{}ns\"", program.get())),
        ("collection ", "\"none\"".to_owned()),
        ("erase_time ", "\"0ns\"".to_owned()),
    ] {
        text = set(text, key, &value);
    }
    Model::new(&Profile::parse(&text).expect("a profile"), Condition::Fresh, Seed(1))
}

/// Mean latency in seconds, and operations per second, of a class.
fn of(device: Model, plan: BlockPlan, timeline: Timeline, class: OpClass) -> (f64, f64) {
    let target = BlockPath::new(device, no_host(), 1, Seed(3));
    let recording = run(target, BlockGroup::new(plan).clients(Seed(3)), timeline);
    let total = recording.total(Some(class));
    let mean = total.counts.latency_sum.get() as f64 / total.counts.ops as f64 / 1e9;
    (mean, total.counts.ops as f64 / recording.seconds())
}

/// Each FUA write is two programs of a fixed time at one unit, its data and the mapping: random arrivals must
/// wait as in M/D/1 (Pollaczek-Khinchine).
#[test]
fn forced_writes_wait_as_m_d_1() {
    let (program, second) = (Nanos::from_micros(200), Nanos::from_secs(1));
    for load in [0.3, 0.6, 0.8] {
        let rate = Rate((load / (2.0 * program.as_secs_f64())) as u64);
        let timeline = Timeline { warm_up: second, measure: second * 600, interval: second * 600 };
        let plan = BlockPlan {
            queue_depth: 10_000,
            read_share: Share::NONE,
            dsync: true,
            arrivals: Arrivals::open(Spacing::Poisson, rate),
            ..BlockPlan::reads(4096, Bytes::mib(64), timeline.end())
        };
        let (mean, _) = of(volatile_drive(program), plan, timeline, OpClass::Write);
        let exact = 2.0 * program.as_secs_f64() * (1.0 + load / (2.0 * (1.0 - load)));
        assert!((mean / exact - 1.0).abs() < 0.015, "{load}: {mean} against {exact}");
    }
}

/// A FUA write is durable when it completes: one that fills a program waits for it and then for the mapping,
/// as does one that fills none or more than one.
#[test]
fn a_forced_write_waits_for_its_data_whatever_its_size() {
    let (program, second) = (Nanos::from_micros(200), Nanos::from_secs(1));
    let size = PROGRAM_SIZE;
    for bytes in [4096, size - 4096, size, size + 4096, 2 * size, 2 * size + 4096] {
        let timeline = Timeline { warm_up: second, measure: second * 5, interval: second };
        let plan = BlockPlan {
            read_share: Share::NONE,
            dsync: true,
            ..BlockPlan::reads(bytes, Bytes::mib(64), timeline.end())
        };
        let (mean, _) = of(volatile_drive(program), plan, timeline, OpClass::Write);
        let programs = f64::from(bytes.div_ceil(size) + 1);
        let exact = programs * program.as_secs_f64();
        assert!((mean / exact - 1.0).abs() < 0.001, "{bytes}: {mean} against {exact}");
    }
}

/// A log whose groups of `k` appends end with a flush: each group is one program of the buffered data with
/// the mapping, so the rate of appends is `k / program time`.
#[test]
fn a_group_commit_costs_one_program() {
    let (program, second) = (Nanos::from_micros(200), Nanos::from_secs(1));
    for group in [1u32, 2, 4] {
        let timeline = Timeline { warm_up: second, measure: second * 5, interval: second };
        let plan = BlockPlan {
            read_share: Share::NONE,
            sync_every: group,
            ..BlockPlan::reads(4096, Bytes::mib(64), timeline.end())
        };
        let of = |class| of(volatile_drive(program), plan.clone(), timeline, class);
        let ((flush, _), (_, rate)) = (of(OpClass::Sync), of(OpClass::Write));
        assert!((flush / program.as_secs_f64() - 1.0).abs() < 0.001, "{group}: {flush}");
        let exact = f64::from(group) / program.as_secs_f64();
        assert!((rate / exact - 1.0).abs() < 0.002, "{group}: {rate} against {exact}");
    }
}
