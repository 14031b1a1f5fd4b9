//! Calls on files, carried out on the drive; in virtual and in real time.

use std::sync::atomic::Ordering::Relaxed;

use device::Device;
use sim::scheduler::TaskId;
use units::Nanos;

use crate::drive::Drive;
use crate::file_access::{AccessStart, FileAccess};
use crate::wire::{self, Call, Slot, resize};

/// Carries out the call in `slot` for a thread at a time; `None` if it takes no time and is not an access.
pub(crate) fn handle<D: Device>(
    drive: &mut Drive<D>,
    slot: &Slot,
    (task, now): (TaskId, Nanos),
    call: Call,
) -> Option<AccessStart> {
    let argument = |place: usize| slot.arguments[place].load(Relaxed);
    match call {
        Call::Access => {
            let access = FileAccess {
                file: argument(0),
                offset: argument(1),
                length: argument(2),
                flags: argument(3),
            };
            let begun = drive.access(task, now, access);
            tell_evicted(drive, slot);
            return Some(begun);
        }
        Call::Sync => {
            let pages = Some(argument(2)..argument(3)).filter(|pages| pages.end > 0);
            let begun = drive.sync(task, now, (argument(0), pages), argument(1) == 1);
            tell_evicted(drive, slot);
            return Some(begun);
        }
        Call::Resize => match argument(2) {
            resize::EXISTING => drive.add_existing(argument(0), argument(1)),
            resize::ALLOCATED => drive.touch(argument(0), true),
            resize::RENAMED => drive.touch(argument(0), false),
            _ => drive.resize(argument(0), argument(1)),
        },
        Call::Remove => drive.remove(argument(0)),
        Call::Evicted => tell_evicted(drive, slot),
        Call::Evict => drive.evict(argument(0), argument(1), argument(2)),
        _ => {}
    }
    None
}

/// Fills the thread's arguments with mapped pages that were evicted or written back.
pub(crate) fn tell_evicted<D: Device>(drive: &mut Drive<D>, slot: &Slot) {
    let mut count = 0;
    while count < wire::EVICTED
        && let Some((file, at)) = drive.next_evicted()
    {
        slot.arguments[1 + 2 * count].store(file, Relaxed);
        slot.arguments[2 + 2 * count].store(at, Relaxed);
        count += 1;
    }
    slot.arguments[0].store(count as u64, Relaxed);
}
