//! Child processes; and functions that are refused whatever their arguments.

use std::ffi::{c_char, c_int, c_void};

use libc::pid_t;
use vtime::wire::{Call, End, child_key};

use crate::maps;
use crate::real::{answer, calls, kernel, real, set_errno, system_call};
use crate::turn::{self, Turn, Wait};
use crate::{regions, signals, timers};

/// Defines refused functions: name, parameters, type, and the return value of a failure.
macro_rules! refused {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty = $failed:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            type Real = unsafe extern "C" fn($($type),*) -> $result;
            if let Some(turn) = Turn::enter() {
                turn.uncovered(stringify!($name));
                set_errno(libc::ENOSYS);
                return $failed;
            }
            // SAFETY: the caller upholds the contract of the function.
            unsafe { real!($name: Real)($($argument),*) }
        }
    )*};
}
refused! {
    _Fork() -> libc::pid_t = -1;
    daemon(stays: c_int, keeps: c_int) -> c_int = -1;
    pthread_cancel(thread: libc::pthread_t) -> c_int = libc::ENOSYS;
    pthread_timedjoin_np(
        thread: libc::pthread_t, value: *mut *mut c_void, until: *const libc::timespec
    ) -> c_int = libc::ENOSYS;
    pthread_clockjoin_np(
        thread: libc::pthread_t, value: *mut *mut c_void, clock: libc::clockid_t,
        until: *const libc::timespec
    ) -> c_int = libc::ENOSYS;
    thrd_create(thread: *mut c_void, main: *mut c_void, argument: *mut c_void) -> c_int = 2;
    syncfs(descriptor: c_int) -> c_int = -1;
    system(command: *const c_char) -> c_int = -1;
    popen(command: *const c_char, mode: *const c_char) -> *mut c_void = std::ptr::null_mut();
    posix_spawn(
        process: *mut libc::pid_t, path: *const c_char, actions: *const c_void,
        attributes: *const c_void, arguments: *const *mut c_char, environment: *const *mut c_char
    ) -> c_int = libc::ENOSYS;
    posix_spawnp(
        process: *mut libc::pid_t, path: *const c_char, actions: *const c_void,
        attributes: *const c_void, arguments: *const *mut c_char, environment: *const *mut c_char
    ) -> c_int = libc::ENOSYS;
}

type Fork = unsafe extern "C" fn() -> pid_t;

/// The child takes part in the simulation as a process of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> pid_t {
    let Some(turn) = Turn::enter() else {
        // SAFETY: it has no arguments.
        let child = unsafe { real!(fork: Fork)() };
        if child == 0 {
            turn::begin_real_child();
        }
        return child;
    };
    if regions::is_any() {
        turn.uncovered("fork of a program that maps files of the drive");
    }
    let slot = turn.call(Call::Spawn, &[]);
    // SAFETY: it has no arguments.
    let child = unsafe { real!(fork: Fork)() };
    match child {
        0 => {
            // Its thread begins in the slot of its own.
            std::mem::forget(turn);
            maps::begin_child();
            signals::begin_child();
            timers::begin_child();
            turn::begin_child(slot);
        }
        1.. => _ = turn.call(Call::Start, &[slot as u64, child as u64]),
        _ => _ = turn.call(Call::Cancel, &[slot as u64]),
    }
    child
}

/// Ends the process without the functions that run at its exit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(code: c_int) -> ! {
    turn::end(true, 0);
    loop {
        system_call(libc::SYS_exit_group, [i64::from(code), 0, 0, 0, 0, 0]);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(code: c_int) -> ! {
    // SAFETY: the caller's argument.
    unsafe { _exit(code) }
}

/// Waits for a child by `attempt`, which does not block and returns 0 if none has ended.
fn reaped(attempt: impl Fn() -> i64, blocks: bool) -> Option<c_int> {
    let turn = Turn::enter()?;
    turn.tick();
    let mut found = turn.charged(&attempt);
    while found == 0 && blocks {
        let key = child_key(turn::process());
        if turn.block(Wait::Sleep, None, Some(key), 0) == End::Interrupted && !turn.run_handlers() {
            return Some(answer(-i64::from(libc::EINTR)) as c_int);
        }
        found = turn.charged(&attempt);
    }
    Some(answer(found) as c_int)
}

kernel! {
    wait4(child: pid_t, status: *mut c_int, options: c_int, usage: *mut libc::rusage) -> pid_t
        = SYS_wait4, {
            let flags = i64::from(options | libc::WNOHANG);
            let arguments = [i64::from(child), status as i64, flags, usage as i64, 0, 0];
            let attempt = || system_call(libc::SYS_wait4, arguments);
            reaped(attempt, options & libc::WNOHANG == 0)
        };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sync() {
    if let Some(turn) = Turn::enter() {
        turn.uncovered("sync");
    }
    // SAFETY: it has no arguments.
    unsafe { real!(sync: unsafe extern "C" fn())() }
}

calls! {
    /// A plain fork, because vfork cannot be wrapped: a function cannot return twice.
    vfork() -> pid_t = {
        // SAFETY: the caller upholds the contract of vfork.
        unsafe { fork() }
    };
    waitpid(child: pid_t, status: *mut c_int, options: c_int) -> pid_t = {
        // SAFETY: the caller's arguments.
        unsafe { wait4(child, status, options, std::ptr::null_mut()) }
    };
    wait3(status: *mut c_int, options: c_int, usage: *mut libc::rusage) -> pid_t = {
        // SAFETY: the caller's arguments.
        unsafe { wait4(-1, status, options, usage) }
    };
    wait(status: *mut c_int) -> pid_t = {
        // SAFETY: the caller's argument.
        unsafe { wait4(-1, status, 0, std::ptr::null_mut()) }
    };
}
