//! The program's beginning and its end by `exit`.

use crate::descriptors::note_inherited;
use crate::{net, turn};

extern "C" fn join() {
    if turn::is_wanted() {
        net::prepare();
    }
    if turn::join() {
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
static JOIN: extern "C" fn() = join;
#[used]
#[unsafe(link_section = ".fini_array")]
static LEAVE: extern "C" fn() = leave;
