//! The program's beginning and its end by `exit`.

use std::os::fd::FromRawFd as _;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use vtime::wire::{self, PROCESSES, SLOTS, Shared, Slot};

use crate::descriptors::{self, note_inherited};
use crate::real::system_call;
use crate::{net, signals, streams, timers, turn};

extern "C" fn begin() {
    if is_wanted() {
        net::prepare();
    }
    if join() {
        signals::watch();
        timers::begin_program();
        note_inherited();
    }
}

/// The process ends by `exit`.
extern "C" fn leave() {
    if turn::Turn::is_simulated() {
        // The C library would write them after the end of the simulation.
        // SAFETY: all streams.
        unsafe { libc::fflush(std::ptr::null_mut()) };
    }
    turn::end(true, 0);
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
#[used]
#[unsafe(link_section = ".fini_array")]
static LEAVE: extern "C" fn() = leave;

/// Whether this program was started for a simulation.
fn is_wanted() -> bool {
    // SAFETY: single-threaded so far, and a string with a terminating 0.
    unsafe { !libc::getenv(c"CROSSPOINT_VTIME".as_ptr()).is_null() }
}

/// Joins the simulation when the library is loaded; returns whether this process is in it.
fn join() -> bool {
    // SAFETY: single-threaded so far, and strings with a terminating 0.
    let path = unsafe { libc::getenv(c"CROSSPOINT_VTIME".as_ptr()) };
    if path.is_null() {
        return false;
    }
    let flags = i64::from(libc::O_RDWR | libc::O_CLOEXEC);
    let here = i64::from(libc::AT_FDCWD);
    let file = system_call(libc::SYS_openat, [here, path as i64, flags, 0, 0, 0]);
    if file < 0 {
        return false;
    }
    // SAFETY: just opened, and owned by nobody else.
    let file = unsafe { std::fs::File::from_raw_fd(file as i32) };
    let Ok(shared) = Shared::map(&file) else { return false };
    if shared.header.magic.load(Acquire) != wire::MAGIC {
        return false;
    }
    let process = system_call(libc::SYS_getpid, [0; 6]) as u32;
    // A copy, because a program may write its title over the environment (as PostgreSQL does).
    // SAFETY: single-threaded so far, and strings with a terminating 0, or null.
    let places = [c"CROSSPOINT_VTIME_DIR", c"CROSSPOINT_VTIME_WAL"].map(|name| unsafe {
        let value = libc::getenv(name.as_ptr());
        if value.is_null() { value } else { libc::strdup(value) }
    });
    descriptors::set_places(places);
    let attach = || turn::attach(shared, process);
    shared.header.joined.store(1, Release);
    if turn::is_real_time(shared) {
        attach();
        return false;
    }
    // A program that called execve keeps its turn.
    let own = |slot: &&Slot| slot.process.load(Relaxed) == process && slot.ended.load(Relaxed) == 0;
    if let Some(slot) = shared.slots[..SLOTS].iter().find(own) {
        attach();
        turn::keep(slot);
        true
    } else if let Some(slot) = admitted(shared) {
        attach();
        streams::note_standard();
        slot.process.store(process, Relaxed);
        slot.rejoin(&shared.header);
        turn::begin(slot);
        true
    } else {
        false
    }
}

/// The slot that this program was started for, if no other has taken it.
fn admitted(shared: &'static Shared) -> Option<&'static Slot> {
    // SAFETY: single-threaded so far, and a string with a terminating 0.
    let number = unsafe { libc::getenv(c"CROSSPOINT_VTIME_SLOT".as_ptr()) };
    if number.is_null() {
        return None;
    }
    // SAFETY: as above.
    let number = unsafe { libc::atoi(number) };
    let slot = shared.slots[..PROCESSES].get(usize::try_from(number).ok()?)?;
    (slot.process.load(Acquire) == 0).then_some(slot)
}
