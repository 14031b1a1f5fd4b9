//! Signals: a handler runs while its thread has the turn, at once if the thread runs the program. Otherwise
//! the signal ends the wait of its thread, and the handler runs when that leaves this library.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use libc::{pid_t, sigset_t, timespec};
use vtime::wire::{Call, End, PREEMPTION, PREEMPTION_CODE, signal_key};

use crate::clock::span;
use crate::code;
use crate::dispatch::{self, change_mask};
use crate::handlers;
use crate::real::{answer, calls, errno, nanos, set_errno, system_call};
use crate::signal_files;
use crate::turn::{self, Turn, Wait};

const PREEMPTED: c_int = PREEMPTION as c_int;
const REG_RIP: usize = libc::REG_RIP as usize;
/// Signals that the kernel sends for an instruction, if their code is above 0.
const FAULTS: [c_int; 4] = [libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];
/// Size of the kernel's signal set.
const SET_SIZE: i64 = 8;

extern "C" fn arrived(signal: c_int, about: *mut libc::siginfo_t, context: *mut c_void) {
    let before = errno();
    // SAFETY: the kernel passes it.
    let code = unsafe { (*about).si_code };
    if signal == PREEMPTED && code == PREEMPTION_CODE {
        let is_running = turn::is_preempted();
        // SAFETY: as above.
        let at = unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[REG_RIP] };
        // The C library may hold its own locks, also below the handler of a caught system call; they are real
        // for other threads inside this library.
        if is_running
            && !code::is_c_library(at as usize)
            && !dispatch::is_own_code(at as usize)
            && let Some(turn) = Turn::enter()
        {
            turn.tick();
        }
    } else if signal == PREEMPTED && code == libc::SI_TIMER {
        turn::end_if_abandoned();
    // SAFETY: the kernel passes it.
    } else if unsafe { signal_files::takes(signal, about) } {
        turn::tell_arrival();
    } else if !(code > 0 && FAULTS.contains(&signal))
        && (turn::is_inside() || HOLDS.with(Cell::get))
    {
        handlers::remember(signal, about, context);
        turn::interrupt();
    } else {
        handlers::handle(signal, about, context);
    }
    set_errno(before);
}

/// Takes over the handlers of this process.
pub fn prepare() {
    handlers::prepare(arrived);
}

/// A new process has no timer.
pub fn begin_child() {
    signal_files::begin_child();
    handlers::begin_child();
    if dispatch::is_prepared() {
        watch();
    }
}

/// Looks every two seconds of CPU time whether the simulation of this process still runs, as a program may
/// make no calls.
pub fn watch() {
    // SAFETY: all zeros is a valid value of this struct.
    let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
    (event.sigev_notify, event.sigev_signo) = (libc::SIGEV_SIGNAL, PREEMPTED);
    let every = timespec { tv_sec: 2, tv_nsec: 0 };
    let every = libc::itimerspec { it_interval: every, it_value: every };
    let mut timer: c_int = 0;
    let make =
        [libc::CLOCK_PROCESS_CPUTIME_ID.into(), (&raw mut event) as i64, (&raw mut timer) as i64];
    if system_call(libc::SYS_timer_create, [make[0], make[1], make[2], 0, 0, 0]) == 0 {
        let place = (&raw const every) as i64;
        system_call(libc::SYS_timer_settime, [i64::from(timer), 0, place, 0, 0, 0]);
    }
}

thread_local! {
    /// Signals that arrive now interrupt the wait that begins.
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

/// Runs a wait with another signal mask, if there is one, and the handlers that end it.
pub unsafe fn with_mask<T>(mask: *const sigset_t, wait: impl FnOnce() -> T) -> T {
    if mask.is_null() || !Turn::is_simulated() {
        return wait();
    }
    let (mut old, set) = (0, i64::from(libc::SIG_SETMASK));
    HOLDS.with(|holds| holds.set(true));
    // SAFETY: the caller's mask, of which the kernel uses 8 bytes; and a local variable.
    unsafe { change_mask(set, mask.cast(), &raw mut old) };
    HOLDS.with(|holds| holds.set(false));
    let done = wait();
    // SAFETY: as above.
    unsafe { change_mask(set, &raw const old, std::ptr::null_mut()) };
    done
}

/// Waits until a handler has run.
unsafe fn suspend(mask: *const sigset_t) -> Option<c_int> {
    if !Turn::is_simulated() {
        return None;
    }
    let wait = || {
        let Some(turn) = Turn::enter() else { return };
        turn.tick();
        while turn.block(Wait::Sleep, None, None, 0) != End::Interrupted {}
    };
    // SAFETY: the caller's mask.
    unsafe { with_mask(mask, wait) };
    Some(answer(-i64::from(libc::EINTR)) as c_int)
}

/// Waits for one of `signals`, which are blocked.
unsafe fn wait_for(
    signals: *const sigset_t,
    found: *mut libc::siginfo_t,
    limit: Option<u64>,
) -> c_int {
    let none = timespec { tv_sec: 0, tv_nsec: 0 };
    let call = |time: i64| {
        let arguments = [signals as i64, found as i64, time, SET_SIZE, 0, 0];
        system_call(libc::SYS_rt_sigtimedwait, arguments)
    };
    let attempt = || call((&raw const none) as i64);
    let Some(turn) = Turn::enter() else {
        let time = limit.map(span);
        return answer(call(time.as_ref().map_or(0, |time| std::ptr::from_ref(time) as i64)))
            as c_int;
    };
    turn.tick();
    let deadline = limit.map(|time| turn.now().saturating_add(time));
    let mut done = attempt();
    while done == -i64::from(libc::EAGAIN) {
        let Some(deadline) = deadline else {
            // It may come from outside.
            done = turn.outside(|| call(0));
            break;
        };
        let key = signal_key(turn::process());
        match turn.block(Wait::Sleep, Some(deadline), Some(key), 0) {
            End::Late => {
                done = attempt();
                break;
            }
            End::Interrupted => done = -i64::from(libc::EINTR),
            End::Woken => done = attempt(),
        }
    }
    answer(done) as c_int
}

/// Sends a signal, and lets it arrive. `target` is a process, or 0.
pub fn send(number: i64, arguments: [i64; 6], (target, signal): (i64, i64)) -> Option<i64> {
    let turn = Turn::enter()?;
    let seen = turn.arrivals();
    let done = system_call(number, arguments);
    if done == 0 && signal != 0 {
        let process = u64::try_from(target).unwrap_or(0);
        turn.call(Call::Signal, &[process, signal as u64, u64::from(seen)]);
    }
    Some(answer(done))
}

calls! {
    sigsuspend(mask: *const sigset_t) -> c_int = {
        let real = || answer(system_call(libc::SYS_rt_sigsuspend, [mask as i64, SET_SIZE, 0, 0, 0, 0]));
        // SAFETY: the caller's mask.
        unsafe { suspend(mask) }.unwrap_or_else(|| real() as c_int)
    };
    pause() -> c_int = {
        let real = || answer(system_call(libc::SYS_pause, [0; 6])) as c_int;
        // SAFETY: no mask.
        unsafe { suspend(std::ptr::null()) }.unwrap_or_else(real)
    };
    sigwait(signals: *const sigset_t, found: *mut c_int) -> c_int = {
        // SAFETY: the caller's arguments.
        unsafe {
            let mut signal = wait_for(signals, std::ptr::null_mut(), None);
            while signal < 0 && errno() == libc::EINTR {
                signal = wait_for(signals, std::ptr::null_mut(), None);
            }
            if signal < 0 {
                return errno();
            }
            *found = signal;
        }
        0
    };
    sigwaitinfo(signals: *const sigset_t, found: *mut libc::siginfo_t) -> c_int = {
        // SAFETY: the caller's arguments.
        unsafe { wait_for(signals, found, None) }
    };
    sigtimedwait(
        signals: *const sigset_t, found: *mut libc::siginfo_t, limit: *const timespec
    ) -> c_int = {
        // SAFETY: the caller's arguments.
        unsafe { wait_for(signals, found, limit.as_ref().map(|time| nanos(*time))) }
    };
    kill(process: pid_t, signal: c_int) -> c_int = {
        let arguments = [i64::from(process), i64::from(signal), 0, 0, 0, 0];
        let real = || answer(system_call(libc::SYS_kill, arguments));
        let target = (process.into(), signal.into());
        send(libc::SYS_kill, arguments, target).unwrap_or_else(real) as c_int
    };
}
