//! Costs of scheduling.

use serde::{Deserialize, Serialize};
use units::Nanos;

/// What ends a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waker {
    /// A thread, through a futex.
    Futex,
    /// A thread, through a socket.
    Socket,
    /// A timer or a device.
    Interrupt,
}

/// Cost of waking a thread. The waker pays for an interrupt to the idle core, which needs some time to leave
/// idle, and the woken thread pays for what the core does until it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WakeCost {
    /// CPU time of the waker if the core was idle.
    pub waker: Nanos,
    /// Latency of leaving idle.
    pub latency: Nanos,
    /// CPU time of the woken thread after that.
    pub wakee: Nanos,
    /// CPU time of the waker if the core is busy.
    pub busy: Nanos,
}

/// Constants of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerCosts {
    /// CPU time of a switch to another thread.
    pub switch: Nanos,
    /// CPU time of going to sleep.
    pub block: Nanos,
    /// Delay of a thread that moves to another core.
    pub migration: Nanos,
    /// Virtual time that a thread may run before others get the core.
    pub slice: Nanos,
    /// Interval of load balancing.
    pub balance: Nanos,
    /// Waking by a futex.
    pub futex: WakeCost,
    /// Waking by a socket.
    pub socket: WakeCost,
    /// Waking by an interrupt.
    pub interrupt: WakeCost,
}

impl SchedulerCosts {
    /// No cost at all, with Linux's slice and balancing interval.
    pub const FREE: Self = {
        let none = WakeCost { waker: Nanos(0), latency: Nanos(0), wakee: Nanos(0), busy: Nanos(0) };
        Self {
            switch: Nanos(0),
            block: Nanos(0),
            migration: Nanos(0),
            slice: Nanos(1_400_000),
            balance: Nanos(4_000_000),
            futex: none,
            socket: none,
            interrupt: none,
        }
    };

    /// A virtual machine with two CPUs (AMD EPYC, Linux 6.18, 2026), measured by ping-pong between two
    /// threads and two processes, on one core and on two; `block`, `busy` and `migration` are assumed.
    pub const VM_2026: Self = Self {
        switch: Nanos(700),
        block: Nanos(500),
        migration: Nanos(3_000),
        futex: WakeCost {
            waker: Nanos(7_000),
            latency: Nanos(5_500),
            wakee: Nanos(6_900),
            busy: Nanos(600),
        },
        socket: WakeCost {
            waker: Nanos(7_500),
            latency: Nanos(5_400),
            wakee: Nanos(10_000),
            busy: Nanos(600),
        },
        interrupt: WakeCost {
            waker: Nanos(0),
            latency: Nanos(14_600),
            wakee: Nanos(0),
            busy: Nanos(0),
        },
        ..Self::FREE
    };

    /// Costs with which simulated threads that only wake each other take as long as real ones. What cannot be
    /// told apart (switching, sleeping, waking a busy core) is divided as in [`Self::VM_2026`].
    #[must_use]
    pub fn fitted(futex: &WakeTimes, socket: &WakeTimes) -> Self {
        let Self { switch, block, .. } = Self::VM_2026;
        let busy = Self::VM_2026.futex.busy;
        let rest = |of: &WakeTimes| of.same_core.since(of.same_core_free);
        let shared = rest(futex).min(rest(socket));
        let part = |of: Nanos| {
            let whole = (switch + block + busy).get();
            Nanos(shared.get() * of.get() / whole)
        };
        let block = part(block);
        let wake = |of: &WakeTimes, before: WakeCost| {
            let busy = part(busy) + rest(of).since(shared);
            let Some(split) = of.split else { return WakeCost { busy, ..before } };
            let all = split.hop.since(split.hop_free);
            // The CPU time includes the waker's way to sleep, which no one waits for.
            let latency = (split.hop + block).since(split.cpu).min(all);
            let waker = split.waker.min(all.since(latency));
            WakeCost { waker, latency, wakee: all.since(latency + waker), busy }
        };
        Self {
            switch: part(switch),
            block,
            futex: wake(futex, Self::VM_2026.futex),
            socket: wake(socket, Self::VM_2026.socket),
            ..Self::VM_2026
        }
    }

    /// All its times.
    #[must_use]
    pub fn times(&self) -> Vec<Nanos> {
        let wakes = [self.futex, self.socket, self.interrupt];
        let wakes = wakes.into_iter().flat_map(|w| [w.waker, w.latency, w.wakee, w.busy]);
        let own = [self.switch, self.block, self.migration, self.slice, self.balance];
        own.into_iter().chain(wakes).collect()
    }

    /// Cost of one kind of waking.
    #[must_use]
    pub const fn of(&self, waker: Waker) -> WakeCost {
        match waker {
            Waker::Futex => self.futex,
            Waker::Socket => self.socket,
            Waker::Interrupt => self.interrupt,
        }
    }
}

/// How long two threads take that only wake each other, in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WakeTimes {
    /// On one core of the host.
    pub same_core: Nanos,
    /// On one simulated core without any costs: the system calls themselves.
    pub same_core_free: Nanos,
    /// On two cores; `None` if the host has one.
    pub split: Option<SplitTimes>,
}

/// The same on two cores, of which one is idle whenever a thread is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitTimes {
    /// Time on the host.
    pub hop: Nanos,
    /// CPU time of both threads in it.
    pub cpu: Nanos,
    /// How much longer the waking call takes than one that wakes nobody.
    pub waker: Nanos,
    /// Time on two simulated cores without any costs.
    pub hop_free: Nanos,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise simulated threads wake each other faster or slower than on the host that was measured.
    #[test]
    fn fitted_costs_sum_to_what_was_measured() {
        let times = |same: u64, hop: u64, cpu: u64| WakeTimes {
            same_core: Nanos(same),
            same_core_free: Nanos(400),
            split: Some(SplitTimes {
                hop: Nanos(hop),
                cpu: Nanos(cpu),
                waker: Nanos(6_000),
                hop_free: Nanos(500),
            }),
        };
        let costs =
            SchedulerCosts::fitted(&times(2_200, 19_000, 14_000), &times(3_400, 27_000, 21_000));
        assert_eq!((costs.switch, costs.block), (Nanos(700), Nanos(500)));
        for (wake, same, hop) in [(costs.futex, 1_800, 18_500), (costs.socket, 3_000, 26_500)] {
            assert_eq!((costs.switch + costs.block + wake.busy).get(), same);
            assert_eq!((wake.waker + wake.latency + wake.wakee).get(), hop);
            assert_eq!(wake.waker, Nanos(6_000));
        }
        assert_eq!((costs.futex.latency, costs.socket.latency), (Nanos(5_500), Nanos(6_500)));
        // A clock that is too coarse, or a busy host, must not give negative costs.
        let odd = SchedulerCosts::fitted(&times(100, 300, 900), &times(3_000, 400, 100));
        assert_eq!((odd.switch, odd.futex.busy, odd.futex.wakee), (Nanos(0), Nanos(0), Nanos(0)));
    }
}
