//! System calls by number, and the dynamic linker.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Acquire;

use libc::timespec;

use crate::files::{flush, transfer};
use crate::real::{answer, calls, nanos, real, set_errno, system_call};
use crate::turn::{Turn, Wait, key_of};

/// System calls by number: futexes are simulated, asynchronous I/O is not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let real = || answer(system_call(number, [a, b, c, d, e, f]));
    match number {
        libc::SYS_futex => match Turn::enter() {
            // SAFETY: the caller's arguments, those of futex(2).
            Some(turn) => unsafe { futex(&turn, (a, b, c, d), real) },
            None => real(),
        },
        libc::SYS_sched_setattr if Turn::is_simulated() => 0,
        // The library's own versions of these know the drive.
        libc::SYS_read | libc::SYS_write | libc::SYS_pread64 | libc::SYS_pwrite64 => {
            let offset = [libc::SYS_pread64, libc::SYS_pwrite64].contains(&number).then_some(d);
            let writes = [libc::SYS_write, libc::SYS_pwrite64].contains(&number);
            transfer(number, [a, b, c, d, 0, 0], offset, writes) as c_long
        }
        libc::SYS_fsync | libc::SYS_fdatasync => {
            c_long::from(flush(a as c_int, number, number == libc::SYS_fsync))
        }
        libc::SYS_fork | libc::SYS_vfork | libc::SYS_clone | libc::SYS_clone3
            if Turn::is_simulated() =>
        {
            if let Some(turn) = Turn::enter() {
                turn.uncovered("fork by system call");
            }
            -1
        }
        // Programs fall back to reads, which are simulated.
        libc::SYS_io_uring_setup | libc::SYS_io_setup if Turn::is_simulated() => {
            set_errno(libc::ENOSYS);
            -1
        }
        _ => real(),
    }
}

unsafe fn futex(
    turn: &Turn,
    (word, operation, value, time): (c_long, c_long, c_long, c_long),
    real: impl FnOnce() -> c_long,
) -> c_long {
    let key = key_of(word as *const u8);
    let plain = libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME;
    match operation as c_int & !plain {
        command @ (libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET) => {
            turn.tick();
            // SAFETY: the caller passes a valid futex word.
            let now = unsafe { AtomicI32::from_ptr(word as *mut i32) }.load(Acquire);
            if now != value as i32 {
                set_errno(libc::EAGAIN);
                return -1;
            }
            // SAFETY: the caller passes a valid time, or null for no limit.
            let time = unsafe { (time as *const timespec).as_ref() };
            let deadline = time.map(|time| match command {
                libc::FUTEX_WAIT => turn.now().saturating_add(nanos(*time)),
                _ => turn.deadline(*time),
            });
            if turn.block(Wait::Lock, deadline, Some(key), 0) {
                set_errno(libc::ETIMEDOUT);
                return -1;
            }
            0
        }
        libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => {
            let most = u64::try_from(value as i32).unwrap_or(u64::MAX);
            turn.wake(key, most)
        }
        // Waiters are in the simulation, not in the kernel.
        libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE | libc::FUTEX_WAKE_OP => {
            turn.uncovered("futex operation");
            -1
        }
        _ => real(),
    }
}

calls! {
    /// The dynamic linker holds its own lock during the call, so the turn must not be given up.
    dlopen(name: *const c_char, flags: c_int) -> *mut c_void = {
        let _turn = Turn::enter();
        // SAFETY: the caller's arguments.
        unsafe { real!(dlopen: unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void)(name, flags) }
    };
    dlclose(library: *mut c_void) -> c_int = {
        let _turn = Turn::enter();
        // SAFETY: the caller's argument.
        unsafe { real!(dlclose: unsafe extern "C" fn(*mut c_void) -> c_int)(library) }
    };
}
