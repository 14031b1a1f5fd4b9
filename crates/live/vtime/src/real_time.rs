//! The modelled drive in real time: threads, locks and the clock are real, only the drive is simulated.
//!
//! The reference that simulations are validated against: both have the same drive, and differ in CPU time,
//! scheduling and wake-ups. Polls on a CPU of its own.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Instant;

use device::Device;
use sim::scheduler::TaskId;
use units::Nanos;

use crate::drive::Drive;
use crate::error::VtimeError;
use crate::file_access::{AccessStart, DriveTotals};
use crate::file_calls;
use crate::process::Process;
use crate::wire::{Call, Shared};

/// Interval of checking whether the program has ended.
const CHECK_INTERVAL: Nanos = Nanos::from_millis(2);

/// Serves the drive until the program ends.
///
/// # Errors
/// The program uses something that is not simulated, or its process cannot be watched.
pub(crate) fn serve<D: Device>(
    shared: &Shared,
    mut drive: Drive<D>,
    process: &Process,
) -> Result<DriveTotals, VtimeError> {
    let began = Instant::now();
    let now = || Nanos(began.elapsed().as_nanos() as u64);
    let (mut steps, mut checked) = (Vec::new(), Nanos::ZERO);
    loop {
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
        // The CPUs may share a core: a tight loop would slow the program down.
        std::hint::spin_loop();
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
