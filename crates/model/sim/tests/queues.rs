//! The event kernel, the arrivals and the recorder together against a queue that has a closed form: if they
//! are off here, they are off everywhere.

use crosspoint_sim::{BlockRun, Client, HostModel, run_block};
use device::{Completion, Device, EventQueue, Request};
use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use stats::Timeline;
use units::{Bytes, Nanos, Rate, Seed};
use workload::{Arrivals, BlockPlan, Spacing};

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
            done.push(Completion { id, at });
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
        let run = BlockRun {
            device: Servers {
                free: vec![Nanos::ZERO; servers as usize],
                random: Xoshiro256PlusPlus::seed_from_u64(7),
                done: EventQueue::default(),
            },
            host: HostModel::named("none").expect("it is known"),
            clients: Client::group(&plan, 1, Seed(3)),
            timeline,
            seed: Seed(3),
        };
        let total = run_block(run).total(None);
        let mean = total.counts.latency_sum.get() as f64 / total.counts.ops as f64;
        let (found, exact) = (mean / SERVICE.get() as f64, m_m_c(servers, load));
        println!(
            "{servers} servers at {load}: {found:.4}, exact {exact:.4}, {} ops",
            total.counts.ops
        );
        assert!((found / exact - 1.0).abs() < 0.01, "{servers} at {load}: {found} against {exact}");
    }
}
