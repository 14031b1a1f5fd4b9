//! Costs of scheduling.

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
