//! The modelled drive in real time: threads, locks and the clock are real, only the drive is simulated.
//!
//! The reference that simulations are validated against: both have the same drive, and differ in CPU time,
//! scheduling and wake-ups. It polls on a CPU of its own, or, where the program may use all CPUs, sleeps and
//! takes one of them like an interrupt.

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::time::{Duration, Instant};

use device::Device;
use sim::scheduler::TaskId;
use units::Nanos;

use crate::drive::Drive;
use crate::error::VtimeError;
use crate::file_access::{AccessStart, DriveTotals};
use crate::file_calls;
use crate::process::Process;
use crate::wire::{self, Call, Shared};

/// Interval of checking whether the program has ended.
const CHECK_INTERVAL: Nanos = Nanos::from_millis(2);

/// How the drive waits for its next event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idle {
    /// On a CPU of its own.
    Polls,
    /// On the program's CPUs, before all its threads.
    Sleeps,
}

/// Serves the drive until the program ends.
///
/// # Errors
/// The program uses something that is not simulated, or its process cannot be watched.
pub(crate) fn serve<D: Device>(
    shared: &Shared,
    mut drive: Drive<D>,
    (process, idle): (&Process, Idle),
) -> Result<DriveTotals, VtimeError> {
    let began = Instant::now();
    let now = || Nanos(began.elapsed().as_nanos() as u64);
    let (mut steps, mut checked) = (Vec::new(), Nanos::ZERO);
    loop {
        let calls = shared.header.calls.load(SeqCst);
        let used = shared.header.used.load(Acquire) as usize;
        for (number, slot) in shared.slots.iter().take(used).enumerate() {
            if slot.pending.load(Acquire) == 0 {
                continue;
            }
            slot.pending.store(0, Relaxed);
            let task = TaskId(number as u32);
            let call = Call::of(slot.call.load(Relaxed)).unwrap_or(Call::Yield);
            if call == Call::Uncovered {
                let call = slot.uncovered_name();
                return Err(VtimeError::Uncovered { thread: task.0, call });
            }
            let begun = file_calls::handle(&mut drive, slot, (task, now()), call);
            match begun {
                Some(AccessStart::Waits(_)) => slot.let_sleep(),
                _ => {
                    slot.answer.store(0, Relaxed);
                    slot.give_turn(task.0, None);
                }
            }
        }
        if idle == Idle::Sleeps {
            sleep(shared, calls, drive.next_event().unwrap_or(Nanos::MAX).since(now()));
        } else {
            // The CPUs may share a core: a tight loop would slow the program down.
            std::hint::spin_loop();
        }
        let time = now();
        if drive.next_event().is_some_and(|at| at <= time) {
            drive.advance(time, &mut steps);
            for end in steps.drain(..).filter(|end| end.next.is_none()) {
                shared.slots[end.task.0 as usize].give_turn(end.task.0, None);
            }
        }
        if time.since(checked) > CHECK_INTERVAL {
            checked = time;
            if process.has_ended()? {
                return Ok(drive.totals());
            }
        }
    }
}

/// Sleeps until the next call after the first `calls`, or for `most`.
fn sleep(shared: &Shared, calls: u32, most: Nanos) {
    let header = &shared.header;
    header.asleep.store(1, SeqCst);
    let most = Duration::from_nanos(most.min(CHECK_INTERVAL).get());
    if !most.is_zero() {
        wire::wait(&header.calls, calls, Some(most));
    }
    header.asleep.store(0, SeqCst);
}
