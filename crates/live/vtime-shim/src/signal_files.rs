//! signalfd(2): a pipe into which this library's handler writes what the kernel would.
//!
//! The kernel's own file shows the signals of whoever polls it, which is the coordinator. The signals are
//! not blocked in reality; the program only sees that they do not run handlers.

use std::ffi::c_int;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicI32, AtomicU64};

use crate::dispatch;
use crate::handlers;
use crate::real::system_call;

/// The signals that go to the file, one bit each; and the ends of the pipe, -1 without one. A process has one
/// such file: a second one with other signals replaces the first.
static SIGNALS: AtomicU64 = AtomicU64::new(0);
static READ: AtomicI32 = AtomicI32::new(-1);
static WRITE: AtomicI32 = AtomicI32::new(-1);

/// The kernel's `struct signalfd_siginfo`.
#[repr(C)]
struct Arrival {
    signal: u32,
    error: i32,
    code: i32,
    process: u32,
    user: u32,
    rest: [u32; 27],
}

/// signalfd4(2); a negative error number.
pub unsafe fn open(file: i64, signals: *const u64, flags: i64) -> i64 {
    // SAFETY: the caller passes a set of 8 bytes.
    let signals = unsafe { *signals };
    if file == i64::from(READ.load(Relaxed)) && file >= 0 {
        SIGNALS.store(signals, Relaxed);
    } else if file >= 0 {
        return -i64::from(libc::EINVAL);
    } else {
        let mut ends: [c_int; 2] = [0; 2];
        let place = (&raw mut ends) as i64;
        // The values of these flags are the same.
        let made = system_call(libc::SYS_pipe2, [place, flags, 0, 0, 0, 0]);
        if made < 0 {
            return made;
        }
        let [read, write] = ends;
        let set = i64::from(libc::O_NONBLOCK);
        let change = [i64::from(write), i64::from(libc::F_SETFL), set, 0, 0, 0];
        system_call(libc::SYS_fcntl, change);
        close(WRITE.swap(write, AcqRel));
        READ.store(read, Relaxed);
        SIGNALS.store(signals, Relaxed);
    }
    dispatch::keep(signals);
    for signal in (1..=64).filter(|signal| signals >> (signal - 1) & 1 == 1) {
        handlers::catch(signal);
    }
    i64::from(READ.load(Relaxed))
}

fn close(end: c_int) {
    if end >= 0 {
        system_call(libc::SYS_close, [i64::from(end), 0, 0, 0, 0, 0]);
    }
}

/// Writes an arrived signal to the file; returns whether it belongs there.
pub unsafe fn takes(signal: c_int, about: *const libc::siginfo_t) -> bool {
    if SIGNALS.load(Acquire) >> (signal - 1) & 1 == 0 {
        return false;
    }
    // SAFETY: the kernel passes it.
    let (code, process, user) =
        unsafe { ((*about).si_code, (*about).si_pid() as u32, (*about).si_uid()) };
    let arrival = Arrival { signal: signal as u32, error: 0, code, process, user, rest: [0; 27] };
    let (write, place) = (i64::from(WRITE.load(Relaxed)), (&raw const arrival) as i64);
    // Pending signals of a kind are one; the pipe may be full of them.
    system_call(libc::SYS_write, [write, place, size_of::<Arrival>() as i64, 0, 0, 0]);
    true
}

/// A new process has its parent's file open, but its signals do not go there.
pub fn begin_child() {
    SIGNALS.store(0, Relaxed);
    READ.store(-1, Relaxed);
    close(WRITE.swap(-1, AcqRel));
}
