//! Which system calls of a thread the kernel passes to a handler: Syscall User Dispatch (Linux 5.11).

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::real::system_call;

/// `PR_SET_SYSCALL_USER_DISPATCH` (linux/prctl.h).
const DISPATCH: i64 = 59;
const OFF: i64 = 0;
const ON: i64 = 1;
/// Values of the selector.
const ALLOW: u8 = 0;
const BLOCK: u8 = 1;
/// Size of the kernel's signal set.
pub const SET: i64 = 8;
const OWN_RESTORER: u64 = 0x0400_0000;

/// The code of this library, whose system calls are not caught; 0: none are.
static START: AtomicUsize = AtomicUsize::new(0);
static LENGTH: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    /// Read by the kernel at each system call of this thread.
    static SELECTOR: Cell<u8> = const { Cell::new(ALLOW) };
}

std::arch::global_asm!(
    ".hidden crosspoint_restore", ".globl crosspoint_restore", "crosspoint_restore:",
    "mov rax, 15", "syscall",
);

unsafe extern "C" {
    /// rt_sigreturn(2), from the code of this library.
    fn crosspoint_restore();
}

/// The kernel's `struct sigaction`.
#[repr(C)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// Installs a handler that returns by this library's own code; returns whether it is installed.
pub fn install(signal: c_int, handler: usize, flags: c_int) -> bool {
    let action = KernelAction {
        handler,
        flags: flags as u64 | OWN_RESTORER,
        restorer: crosspoint_restore as *const () as usize,
        mask: 0,
    };
    let place = (&raw const action) as i64;
    system_call(libc::SYS_rt_sigaction, [i64::from(signal), place, 0, SET, 0, 0]) == 0
}

/// Sets the code whose system calls are not caught; none if it starts at 0.
pub fn prepare((start, length): (usize, usize)) {
    START.store(start, Relaxed);
    LENGTH.store(length, Relaxed);
}

/// Whether system calls of threads in the simulation are caught.
pub fn is_prepared() -> bool {
    START.load(Relaxed) != 0
}

/// System calls of this thread are caught from now on; returns whether they are.
pub fn begin() -> bool {
    let (start, length) = (START.load(Relaxed) as i64, LENGTH.load(Relaxed) as i64);
    if start == 0 {
        return false;
    }
    let own = 1_u64 << (libc::SIGSYS - 1);
    let unblock = [i64::from(libc::SIG_UNBLOCK), (&raw const own) as i64, 0, SET, 0, 0];
    system_call(libc::SYS_rt_sigprocmask, unblock);
    let selector = SELECTOR.with(|selector| {
        selector.set(BLOCK);
        selector.as_ptr() as i64
    });
    system_call(libc::SYS_prctl, [DISPATCH, ON, start, length, selector, 0]) == 0
}

/// System calls of this thread are not caught any more.
pub fn end() {
    system_call(libc::SYS_prctl, [DISPATCH, OFF, 0, 0, 0, 0]);
}

/// Lets all system calls through while this thread is `inside` the library, whose functions call the C
/// library.
pub fn open(inside: bool) {
    SELECTOR.with(|selector| selector.set(if inside { ALLOW } else { BLOCK }));
}
