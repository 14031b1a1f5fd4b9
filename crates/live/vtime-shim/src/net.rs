//! The net below the replaced functions: system calls that bypass them, such as those of stdio.
//!
//! A thread of the simulation may make system calls from this library only (Syscall User Dispatch,
//! Linux 5.11); others raise SIGSYS. The handler carries out what waits, uses files or makes threads as the
//! replaced function does, and everything else at once.
//!
//! Invariants: nothing is caught while a thread is inside this library, or outside of the simulation; SIGSYS
//! is never blocked, because the kernel would end the program.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use libc::sigset_t;

use crate::calls::by_number;
use crate::code;
use crate::dispatch::{self, change_mask, install};
use crate::real::{answer, calls, errno, set_errno, system_call};
use crate::signals;
use crate::turn::{skip, ticks, undisturbed};

/// Ticks that catching a system call takes, which are not charged.
static OVERHEAD: AtomicU64 = AtomicU64::new(0);

/// Prepares the net of this process, if the kernel has it. No thread is in the simulation yet.
pub fn prepare() {
    let Some((start, length)) = code::find(caught as *const () as usize) else { return };
    if !install(libc::SIGSYS, caught as *const () as usize, libc::SA_SIGINFO | libc::SA_NODEFER) {
        return;
    }
    dispatch::prepare((start, length));
    if !dispatch::begin() {
        return dispatch::prepare((0, 0));
    }
    OVERHEAD.store(measure(), Relaxed);
    dispatch::end();
    signals::prepare();
}

/// Least ticks of a caught call over those of one that is not, of several.
fn measure() -> u64 {
    let least = |call: &dyn Fn()| {
        let timed = (0..32).map(|_| {
            let began = ticks();
            call();
            ticks().wrapping_sub(began)
        });
        timed.min().unwrap_or_default()
    };
    let own = least(&|| _ = system_call(libc::SYS_getppid, [0; 6]));
    // SAFETY: it has no arguments.
    least(&|| _ = unsafe { libc::getppid() }).saturating_sub(own)
}

/// `SYS_USER_DISPATCH` (asm-generic/siginfo.h).
const USER_DISPATCH: c_int = 2;

extern "C" fn caught(_: c_int, about: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes both to the handler alone.
    let (code, context) = unsafe { ((*about).si_code, &mut *context.cast::<libc::ucontext_t>()) };
    if code != USER_DISPATCH {
        // Sent by a process, or from a filter: the next one does what it does without this library.
        install(libc::SIGSYS, libc::SIG_DFL, 0);
        return;
    }
    skip(OVERHEAD.load(Relaxed));
    let registers = &mut context.uc_mcontext.gregs;
    let number = registers[libc::REG_RAX as usize];
    if number == libc::SYS_rt_sigreturn {
        // The handler of another signal returns: by this library's code.
        registers[libc::REG_RIP as usize] = dispatch::restorer() as i64;
        return;
    }
    let places =
        [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9];
    let arguments = places.map(|place| registers[place as usize]);
    let before = errno();
    let done = if number == libc::SYS_rt_sigprocmask {
        // The return from this handler restores the context's mask.
        // SAFETY: the program's arguments, and the kernel's set of 8 bytes.
        unsafe { mask_of((&raw mut context.uc_sigmask).cast(), arguments) }
    } else {
        // SAFETY: the program's arguments.
        match unsafe { by_number(number, arguments) } {
            Some(-1) => -i64::from(errno()),
            Some(done) => done,
            None => undisturbed(|| system_call(number, arguments)),
        }
    };
    set_errno(before);
    // The return from this handler restores the mask.
    let mask = (&raw mut context.uc_sigmask).cast::<u64>();
    // SAFETY: the kernel's set has 8 bytes.
    unsafe { *mask &= !dispatch::kept() };
    context.uc_mcontext.gregs[libc::REG_RAX as usize] = done;
}

/// rt_sigprocmask(2) on a mask in memory.
unsafe fn mask_of(mask: *mut u64, [how, signals, old, ..]: [i64; 6]) -> i64 {
    // SAFETY: the caller's places, or null.
    unsafe {
        let before = *mask;
        if let Some(signals) = (signals as *const u64).as_ref() {
            let after = match how as c_int {
                libc::SIG_BLOCK => before | signals,
                libc::SIG_UNBLOCK => before & !signals,
                libc::SIG_SETMASK => *signals,
                _ => return -i64::from(libc::EINVAL),
            };
            *mask = after & !dispatch::kept();
        }
        if let Some(old) = (old as *mut u64).as_mut() {
            *old = before;
        }
    }
    0
}

calls! {
    pthread_sigmask(how: c_int, signals: *const sigset_t, old: *mut sigset_t) -> c_int = {
        // SAFETY: the caller's arguments; the kernel's sets are the first 8 bytes.
        -(unsafe { change_mask(how.into(), signals.cast(), old.cast()) } as c_int)
    };
    sigprocmask(how: c_int, signals: *const sigset_t, old: *mut sigset_t) -> c_int = {
        // SAFETY: as above.
        answer(unsafe { change_mask(how.into(), signals.cast(), old.cast()) }) as c_int
    };
}
