//! What client threads, and the server's threads behind them, spend their time on.
//!
//! In virtual time the simulation knows it exactly; of a measured program the preloaded library times the
//! waits, and the kernel CPU time and run-queue delay.

use std::collections::HashMap;

use observe::waits::{WaitReader, WaitTimes};
use stats::{OBSERVING_COST, TIME_KINDS, TimedBy};

/// Times by kind, ns.
type Times = [u64; TIME_KINDS.len()];

/// Counters at one moment: of the calling thread, and of the server's threads if they are wanted.
#[derive(Debug)]
pub(crate) enum Reading {
    /// Nobody times this program.
    None,
    Simulated([Option<Times>; 2]),
    Observed(WaitTimes, Option<HashMap<u32, WaitTimes>>),
}

/// Times between two readings, ns: of the client's thread and of the server's threads.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spent {
    by: Option<TimedBy>,
    times: [Option<Times>; 2],
    /// Time that observing took, ns.
    cost: f64,
}

impl Reading {
    /// Reads the counters of the calling thread.
    pub fn of_thread(with_server: bool) -> Self {
        if let Some(own) = vtime::thread_totals() {
            let server = with_server.then(vtime::server_totals).flatten();
            return Self::Simulated([Some(own.times), server.map(|server| server.times)]);
        }
        WaitReader::of_this_process().map_or(Self::None, |reader| {
            let server = with_server.then(|| reader.of_servers());
            Self::Observed(reader.of_this_thread(), server)
        })
    }

    /// The times since `earlier`.
    pub fn since(&self, earlier: &Self) -> Spent {
        match (self, earlier) {
            (Self::Simulated(now), Self::Simulated(before)) => Spent {
                by: Some(TimedBy::Simulation),
                times: std::array::from_fn(|of| {
                    let (now, before) = now[of].zip(before[of])?;
                    Some(std::array::from_fn(|kind| now[kind].saturating_sub(before[kind])))
                }),
                cost: 0.0,
            },
            (Self::Observed(now, servers), Self::Observed(before, earlier)) => {
                // Thread by thread: one that is idle would hide that the calls of another overlap.
                let servers = servers.as_ref().zip(earlier.as_ref()).map(|(now, before)| {
                    let since = |(thread, now): (&u32, &WaitTimes)| {
                        now.since(&before.get(thread).copied().unwrap_or_default())
                    };
                    WaitTimes::sum(now.iter().map(since))
                });
                let spent = [Some(now.since(before)), servers];
                let calls: u64 = spent.iter().flatten().map(|one| one.calls).sum();
                let cost = WaitReader::of_this_process().map_or(0.0, WaitReader::cost);
                Spent {
                    by: Some(TimedBy::Observation),
                    times: spent.map(|one| one.map(|one| one.times)),
                    cost: calls as f64 * cost,
                }
            }
            _ => Spent::default(),
        }
    }
}

impl Spent {
    /// Totals of a trial, in seconds; of a server only if there is one.
    pub fn totals(&self) -> impl Iterator<Item = (String, f64)> {
        let named = move |by: TimedBy| {
            let of = self.times.into_iter().zip([false, true]);
            let any = |times: &Times| times.iter().any(|time| *time > 0);
            let of =
                of.map(move |(times, server)| (times.filter(|one| !server || any(one)), server));
            of.flat_map(move |(times, server)| {
                let times = TIME_KINDS.iter().zip(times.into_iter().flatten());
                times.map(move |(kind, time)| (by.name(kind, server), time as f64 / 1e9))
            })
        };
        let cost = (self.by == Some(TimedBy::Observation))
            .then(|| (OBSERVING_COST.to_owned(), self.cost / 1e9));
        self.by.into_iter().flat_map(named).chain(cost)
    }
}
