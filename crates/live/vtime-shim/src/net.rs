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

use libc::{sigset_t, size_t};

use crate::calls::by_number;
use crate::dispatch::{self, SET, install};
use crate::real::{answer, calls, errno, real, set_errno, system_call};
use crate::turn::{skip, ticks};

/// Ticks that catching a system call takes, which are not charged.
static OVERHEAD: AtomicU64 = AtomicU64::new(0);

/// The range of this library's code.
fn code() -> Option<(usize, usize)> {
    extern "C" fn look(about: *mut libc::dl_phdr_info, _: size_t, found: *mut c_void) -> c_int {
        let own = caught as *const () as usize;
        // SAFETY: the dynamic linker passes its list, and `code` a place for the result.
        let (about, found) = unsafe { (&*about, &mut *found.cast::<Option<(usize, usize)>>()) };
        for number in 0..usize::from(about.dlpi_phnum) {
            // SAFETY: an entry of the list.
            let part = unsafe { &*about.dlpi_phdr.add(number) };
            let start = (about.dlpi_addr + part.p_vaddr) as usize;
            let length = part.p_memsz as usize;
            if part.p_type == libc::PT_LOAD && (start..start + length).contains(&own) {
                *found = Some((start, length));
                return 1;
            }
        }
        0
    }
    let mut found: Option<(usize, usize)> = None;
    // SAFETY: the callback has the type that is asked for.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}

/// Prepares the net of this process, if the kernel has it. No thread is in the simulation yet.
pub fn prepare() {
    let Some((start, length)) = code() else { return };
    if !install(libc::SIGSYS, caught as *const () as usize, libc::SA_SIGINFO | libc::SA_NODEFER) {
        return;
    }
    dispatch::prepare((start, length));
    if !dispatch::begin() {
        return dispatch::prepare((0, 0));
    }
    OVERHEAD.store(measure(), Relaxed);
    dispatch::end();
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

extern "C" fn caught(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    skip(OVERHEAD.load(Relaxed));
    // SAFETY: the kernel passes it to the handler alone.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let number = registers[libc::REG_RAX as usize];
    if number == libc::SYS_rt_sigreturn {
        // The handler of another signal returns: again, and not caught.
        dispatch::open(true);
        registers[libc::REG_RIP as usize] -= 2;
        return;
    }
    let places =
        [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9];
    let arguments = places.map(|place| registers[place as usize]);
    let before = errno();
    // SAFETY: the program's arguments.
    let done = unsafe { by_number(number, arguments) };
    let done = match done {
        Some(-1) => -i64::from(errno()),
        Some(done) => done,
        None => system_call(number, arguments),
    };
    set_errno(before);
    registers[libc::REG_RAX as usize] = done;
}

/// A set of signals without SIGSYS.
unsafe fn without(signals: *const sigset_t) -> Option<sigset_t> {
    // SAFETY: the caller passes a valid set, or null.
    let mut signals = unsafe { *signals.as_ref()? };
    // SAFETY: a local variable.
    unsafe { libc::sigdelset(&raw mut signals, libc::SIGSYS) };
    Some(signals)
}

/// Changes the signal mask; returns the error number of the kernel, negative.
unsafe fn mask(how: c_int, signals: *const sigset_t, old: *mut sigset_t) -> i64 {
    // SAFETY: the caller's arguments.
    let own = unsafe { without(signals) };
    let place = own.as_ref().map_or(0, |own| std::ptr::from_ref(own) as i64);
    system_call(libc::SYS_rt_sigprocmask, [i64::from(how), place, old as i64, SET, 0, 0])
}

calls! {
    pthread_sigmask(how: c_int, signals: *const sigset_t, old: *mut sigset_t) -> c_int = {
        // SAFETY: the caller's arguments.
        -(unsafe { mask(how, signals, old) } as c_int)
    };
    sigprocmask(how: c_int, signals: *const sigset_t, old: *mut sigset_t) -> c_int = {
        // SAFETY: the caller's arguments.
        answer(unsafe { mask(how, signals, old) }) as c_int
    };
    sigaction(signal: c_int, action: *const libc::sigaction, old: *mut libc::sigaction) -> c_int = {
        type Real = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
        if signal == libc::SIGSYS && dispatch::is_prepared() {
            return 0;
        }
        // SAFETY: the caller's arguments.
        let own = unsafe { action.as_ref() }.map(|action| {
            // SAFETY: the set of a valid action.
            let mask = unsafe { without(&raw const action.sa_mask) };
            libc::sigaction { sa_mask: mask.unwrap_or(action.sa_mask), ..*action }
        });
        let action = own.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: as above.
        unsafe { real!(sigaction: Real)(signal, action, old) }
    };
}
