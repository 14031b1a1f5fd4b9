//! Signals and timers.
//!
//! Signals are the kernel's. A thread that gets one while it waits for its turn says so in its slot; its wait
//! ends if it can be interrupted, and the handler runs once the thread has the turn. The coordinator sends
//! the signals of timers, and waits until those that it or a program has sent have arrived: when a handler
//! runs does not depend on how busy this machine is.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use device::Device;
use sim::scheduler::TaskId;
use units::Nanos;

use super::{Coordinator, POLL_INTERVAL};
use crate::process::{Process, cpu_of};
use crate::wire::{self, End, NEVER, Slot};

/// Real time in which a signal that was sent must have arrived.
const ARRIVAL_MAX: Duration = Duration::from_millis(20);
/// Shortest real time between two attempts to preempt a thread.
pub(super) const STRETCH_MIN: Duration = Duration::from_micros(500);
/// Number that stands for all timers of a process but that of alarm(2) and setitimer(2), which is 0.
const ALL_MADE: u64 = NEVER;

/// A signal to be sent at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timer {
    process: u32,
    number: u64,
    at: Nanos,
    /// Time to the next; zero if there is none.
    interval: Nanos,
    pub signal: u32,
    /// The thread that gets it; 0: the process.
    pub thread: u32,
    pub value: u64,
}

/// The armed timers.
#[derive(Debug, Default)]
pub(super) struct Timers(Vec<Timer>);

impl Timers {
    /// The time of the first signal.
    pub fn next(&self) -> Option<Nanos> {
        self.0.iter().map(|timer| timer.at).min()
    }

    fn find(&self, process: u32, number: u64) -> Option<Timer> {
        let own = |timer: &&Timer| timer.process == process && timer.number == number;
        self.0.iter().find(own).copied()
    }

    fn set(&mut self, new: Timer) {
        self.disarm(new.process, new.number);
        if new.at != Nanos(NEVER) {
            self.0.push(new);
        }
    }

    fn disarm(&mut self, process: u32, number: u64) {
        let is_meant = |one: u64| if number == ALL_MADE { one != 0 } else { one == number };
        self.0.retain(|timer| timer.process != process || !is_meant(timer.number));
    }

    /// The timers of a process that has ended.
    pub fn forget(&mut self, process: u32) {
        self.0.retain(|timer| timer.process != process);
    }

    /// The first that is due; it is set again if it repeats.
    fn take(&mut self, at: Nanos) -> Option<Timer> {
        let due = self.0.iter().position(|timer| timer.at <= at)?;
        let timer = self.0[due];
        if timer.interval == Nanos::ZERO {
            self.0.remove(due);
        } else {
            self.0[due].at += timer.interval;
        }
        Some(timer)
    }
}

impl<D: Device> Coordinator<'_, D> {
    /// Sets a timer, or only looks at it.
    pub(super) fn set_timer(&mut self, slot: &Slot) {
        let argument = |place: usize| slot.arguments[place].load(Relaxed);
        let process = slot.process.load(Relaxed);
        let new = Timer {
            process,
            number: argument(0),
            at: Nanos(argument(1)),
            interval: Nanos(argument(2)),
            signal: argument(3) as u32,
            thread: argument(4) as u32,
            value: argument(5),
        };
        let before = self.timers.find(process, new.number);
        if argument(6) == 0 {
            self.timers.set(new);
        }
        let (at, interval) = before.map_or((NEVER, 0), |old| (old.at.get(), old.interval.get()));
        slot.arguments[1].store(at, Relaxed);
        slot.arguments[2].store(interval, Relaxed);
    }

    /// Sends the signals of timers that are due.
    pub(super) fn send_due(&mut self, at: Nanos) {
        while let Some(timer) = self.timers.take(at) {
            self.latest = self.latest.max(at);
            let seen = self.shared.header.returns.load(Acquire);
            if let Some(process) = self.processes.iter().find(|one| one.number == timer.process) {
                process.send(timer.signal, timer.thread, libc::SI_TIMER, timer.value);
            }
            self.await_arrival(timer.process, timer.signal, seen);
        }
    }

    /// A thread has sent a signal.
    pub(super) fn sent(&mut self, task: TaskId) {
        let slot = &self.shared.slots[task.0 as usize];
        let argument = |place: usize| slot.arguments[place].load(Relaxed);
        let (process, signal) = (argument(0) as u32, argument(1) as u32);
        self.latest = self.latest.max(self.scheduler.time_of(task));
        self.await_arrival(process, signal, argument(2) as u32);
        self.wake_by_files(Some(task), Duration::ZERO);
    }

    /// Waits until a signal has reached its handler or ended its process, if it does one of the two. `seen`
    /// is the number of arrivals before it was sent.
    pub(super) fn await_arrival(&mut self, process: u32, signal: u32, seen: u32) {
        let meant = |one: &&Process| process == 0 || one.number == process;
        let mut meant = self.processes.iter().filter(meant);
        if meant.any(|one| one.reacts_to(signal)) {
            let began = Instant::now();
            while self.shared.header.returns.load(Acquire) == seen && !self.find_ended() {
                if began.elapsed() > ARRIVAL_MAX {
                    break;
                }
                std::thread::yield_now();
            }
        }
        self.interrupt_waits();
    }

    /// Ends the waits of threads whose signal handlers have to run, or that wait for blocked signals.
    pub(super) fn interrupt_waits(&mut self) {
        let at = self.scheduler.now().max(self.latest);
        for number in 0..self.threads.len() {
            let slot = &self.shared.slots[number];
            let key = wire::signal_key(slot.process.load(Relaxed));
            let thread = &mut self.threads[number];
            let is_signaled = slot.signaled.load(Acquire) == 1;
            if thread.blocked && (is_signaled || thread.keys.contains(&key)) {
                // Unless its wait has ended already.
                thread.interrupted |=
                    self.scheduler.complete(TaskId(number as u32), at) && is_signaled;
            }
        }
    }

    /// How a thread's wait ended.
    pub(super) fn end_of_wait(&mut self, task: TaskId) -> End {
        let interrupted = std::mem::take(&mut self.threads[task.0 as usize].interrupted);
        match (interrupted, self.scheduler.timed_out(task)) {
            (true, _) => End::Interrupted,
            (_, true) => End::Late,
            _ => End::Woken,
        }
    }

    /// Real time after which a thread that makes no call is to be preempted, because others are due.
    pub(super) fn stretch_of(&self, slot: &Slot) -> Duration {
        let (at, until) = (slot.at.load(Relaxed), slot.until.load(Relaxed));
        Duration::from_nanos(until.saturating_sub(at)).clamp(STRETCH_MIN, POLL_INTERVAL)
    }

    /// Asks the thread that has the turn to give it up if others are due.
    pub(super) fn preempt(&self, slot: &Slot) {
        let (process, thread) = (slot.process.load(Relaxed), slot.thread.load(Relaxed));
        let process = self.processes.iter().find(|one| one.number == process);
        // A fixed CPU time does not depend on how long a stretch took.
        let needed = slot.until.load(Relaxed) != NEVER && self.host.cpu_time.is_none();
        // One that sleeps in a system call is not interrupted.
        let needed = needed && cpu_of(slot.process.load(Relaxed), thread).is_none();
        if let Some(process) = process.filter(|_| needed && slot.may_preempt()) {
            process.send(wire::PREEMPTION, thread, wire::PREEMPTION_CODE, 0);
        }
    }

    /// Whether a thread waits for nothing but a signal.
    pub(super) fn awaits_signal(&self) -> bool {
        self.threads.iter().any(|thread| thread.blocked && thread.awaits_signal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timer(number: u64, at: u64, interval: u64) -> Timer {
        let (at, interval) = (Nanos(at), Nanos(interval));
        Timer { process: 7, number, at, interval, signal: 14, thread: 0, value: 0 }
    }

    /// A program's time limit would pass unnoticed, or a second one replace it.
    #[test]
    fn timers_fire_in_order_and_repeat_until_they_are_disarmed() {
        let mut timers = Timers::default();
        timers.set(timer(0, 50, 0));
        timers.set(timer(1, 20, 20));
        assert_eq!(timers.next(), Some(Nanos(20)));
        assert_eq!(timers.take(Nanos(19)), None);
        assert_eq!(timers.take(Nanos(20)).map(|one| one.number), Some(1));
        assert_eq!(timers.find(7, 1).map(|one| one.at), Some(Nanos(40)));
        timers.set(timer(0, 45, 0));
        timers.disarm(7, ALL_MADE);
        assert_eq!(timers.next(), Some(Nanos(45)));
        assert_eq!(timers.take(Nanos(45)).map(|one| one.number), Some(0));
        assert_eq!(timers.next(), None);
        timers.set(timer(0, 60, 0));
        timers.set(timer(0, NEVER, 0));
        assert_eq!(timers.next(), None);
        timers.set(timer(2, 60, 5));
        timers.forget(7);
        assert_eq!(timers.next(), None);
    }
}
