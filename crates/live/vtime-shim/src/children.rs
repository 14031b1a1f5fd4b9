//! Functions that are refused whatever their arguments: above all child processes, which would not be in the
//! simulation.

use std::ffi::{c_char, c_int, c_void};

use crate::real::{real, set_errno};
use crate::turn::Turn;

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
    fork() -> libc::pid_t = -1;
    _Fork() -> libc::pid_t = -1;
    daemon(stays: c_int, keeps: c_int) -> c_int = -1;
    pthread_cancel(thread: libc::pthread_t) -> c_int = libc::ENOSYS;
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

/// Outside of the simulation a plain fork, because vfork cannot be wrapped: a function cannot return twice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> libc::pid_t {
    if let Some(turn) = Turn::enter() {
        turn.uncovered("vfork");
        set_errno(libc::ENOSYS);
        return -1;
    }
    // SAFETY: the caller upholds the contract of vfork.
    unsafe { fork() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sync() {
    if let Some(turn) = Turn::enter() {
        turn.uncovered("sync");
    }
    // SAFETY: it has no arguments.
    unsafe { real!(sync: unsafe extern "C" fn())() }
}
