//! signalfd(2): a socket into which this library's handler writes what the kernel would.
//!
//! The kernel's own file shows the signals of whoever polls it, which is the coordinator. The signals are
//! not blocked in reality; the program only sees that they do not run handlers.

use std::ffi::c_int;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicI32, AtomicU64};

use crate::dispatch;
use crate::handlers;
use crate::real::system_call;

/// The signals that go to the file, one bit each; and the two ends, -1 without one. A process has one
/// such file: a second one with other signals replaces the first.
static SIGNALS: AtomicU64 = AtomicU64::new(0);
static READ: AtomicI32 = AtomicI32::new(-1);
static WRITE: AtomicI32 = AtomicI32::new(-1);

/// Signals that no file takes: those that the kernel does not block, and those that this library needs.
const NEVER: u64 = {
    1 << (libc::SIGKILL - 1)
        | 1 << (libc::SIGSTOP - 1)
        | 1 << (libc::SIGSEGV - 1)
        | 1 << (libc::SIGBUS - 1)
        | 1 << (libc::SIGFPE - 1)
        | 1 << (libc::SIGILL - 1)
        | 1 << (libc::SIGTRAP - 1)
        | dispatch::CAUGHT_SET
};
/// Least number of the descriptor that is written to, out of the program's way.
const HIGH: i64 = 900;

/// The kernel's `struct signalfd_siginfo`.
#[repr(C)]
struct Arrival {
    signal: u32,
    error: i32,
    code: i32,
    process: u32,
    user: u32,
    places: [u32; 5],
    status: i32,
    value: i32,
    pointer: u64,
    rest: [u64; 9],
}

/// signalfd4(2); a negative error number.
pub unsafe fn open(file: c_int, signals: *const u64, flags: i64) -> i64 {
    // SAFETY: the caller passes a set of 8 bytes.
    let signals = unsafe { *signals } & !NEVER;
    if file >= 0 && file == READ.load(Relaxed) {
        SIGNALS.store(signals, Relaxed);
    } else if file >= 0 {
        return -i64::from(libc::EINVAL);
    } else {
        let mut ends: [c_int; 2] = [0; 2];
        let place = (&raw mut ends) as i64;
        // The values of these flags are the same. What is sent never goes to another kind of file.
        let kind = i64::from(libc::SOCK_STREAM) | flags;
        let unix = i64::from(libc::AF_UNIX);
        let made = system_call(libc::SYS_socketpair, [unix, kind, 0, place, 0, 0]);
        if made < 0 {
            return made;
        }
        let [read, write] = ends;
        let copy = [i64::from(write), i64::from(libc::F_DUPFD_CLOEXEC), HIGH, 0, 0, 0];
        let write = match system_call(libc::SYS_fcntl, copy) {
            high if high >= 0 => {
                close(write);
                high as c_int
            }
            _ => write,
        };
        close(WRITE.swap(write, AcqRel));
        READ.store(read, Relaxed);
        SIGNALS.store(signals, Relaxed);
    }
    dispatch::keep(signals);
    bits(signals).for_each(handlers::catch);
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
    let (code, process, user, value) = unsafe {
        let about = &*about;
        (about.si_code, about.si_pid() as u32, about.si_uid(), about.si_value().sival_ptr as u64)
    };
    let status = if signal == libc::SIGCHLD { value as i32 } else { 0 };
    let arrival = Arrival {
        signal: signal as u32,
        error: 0,
        code,
        process,
        user,
        places: [0; 5],
        status,
        value: value as i32,
        pointer: value,
        rest: [0; 9],
    };
    let (write, place) = (i64::from(WRITE.load(Relaxed)), (&raw const arrival) as i64);
    let flags = i64::from(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    // Without space the signal is lost: others of its kind are there.
    system_call(libc::SYS_sendto, [write, place, size_of::<Arrival>() as i64, flags, 0, 0]);
    true
}

/// A descriptor is closed.
pub fn closed(file: c_int) {
    if file >= 0 && file == READ.load(Relaxed) {
        end();
    }
}

/// A new process has its parent's file open, but its signals do not go there.
pub fn begin_child() {
    end();
}

fn end() {
    let signals = SIGNALS.swap(0, AcqRel);
    READ.store(-1, Relaxed);
    close(WRITE.swap(-1, AcqRel));
    dispatch::drop_kept(signals);
    bits(signals).for_each(handlers::restore);
}

fn bits(signals: u64) -> impl Iterator<Item = c_int> {
    (1..=64).filter(move |signal| signals >> (signal - 1) & 1 == 1)
}
