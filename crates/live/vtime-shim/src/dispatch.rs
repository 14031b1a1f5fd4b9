//! Which system calls of a thread the kernel passes to a handler: Syscall User Dispatch (Linux 5.11).

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use vtime::wire::PREEMPTION;

use crate::real::system_call;

/// `PR_SET_SYSCALL_USER_DISPATCH` (linux/prctl.h).
const DISPATCH: i64 = 59;
const OFF: i64 = 0;
const ON: i64 = 1;
/// Values of the selector.
const ALLOW: u8 = 0;
const BLOCK: u8 = 1;
/// Size of the kernel's signal set.
const SET_SIZE: i64 = 8;
/// `SA_RESTORER` (asm/signal.h).
const SA_RESTORER: u64 = 0x0400_0000;

/// The signals that this library needs: those of caught system calls and of preemption.
pub const CAUGHT_SET: u64 = 1 << (libc::SIGSYS - 1) | 1 << (PREEMPTION - 1);
/// The signals that are never blocked.
static KEPT: AtomicU64 = AtomicU64::new(CAUGHT_SET);

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

/// The address of [`crosspoint_restore`].
pub fn restorer() -> usize {
    crosspoint_restore as *const () as usize
}

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct KernelAction {
    pub handler: usize,
    pub flags: u64,
    pub restorer: usize,
    pub mask: u64,
}

impl KernelAction {
    /// A handler that returns by this library's own code.
    pub fn new(handler: usize, flags: u64, mask: u64) -> Self {
        Self { handler, flags: flags | SA_RESTORER, restorer: restorer(), mask }
    }
}

/// rt_sigaction(2); a negative error number.
pub unsafe fn action_of(signal: i64, new: *const KernelAction, old: *mut KernelAction) -> i64 {
    system_call(libc::SYS_rt_sigaction, [signal, new as i64, old as i64, SET_SIZE, 0, 0])
}

/// Installs a handler; returns whether it is installed.
pub fn install(signal: c_int, handler: usize, flags: c_int) -> bool {
    let action = KernelAction::new(handler, flags as u64, 0);
    // SAFETY: a valid action.
    unsafe { action_of(signal.into(), &raw const action, std::ptr::null_mut()) == 0 }
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

/// The signals that are never blocked.
pub fn kept() -> u64 {
    KEPT.load(Relaxed)
}

/// More signals are never blocked.
pub fn keep(signals: u64) {
    KEPT.fetch_or(signals, Relaxed);
    let now = [i64::from(libc::SIG_UNBLOCK), (&raw const KEPT) as i64, 0, SET_SIZE, 0, 0];
    system_call(libc::SYS_rt_sigprocmask, now);
}

/// These signals are blocked again, as the program wants.
pub fn drop_kept(signals: u64) {
    let own = signals & !CAUGHT_SET;
    KEPT.fetch_and(!own, Relaxed);
    let block = [i64::from(libc::SIG_BLOCK), (&raw const own) as i64, 0, SET_SIZE, 0, 0];
    system_call(libc::SYS_rt_sigprocmask, block);
}

/// Whether an address is in this library.
pub fn is_own_code(address: usize) -> bool {
    let start = START.load(Relaxed);
    (start..start + LENGTH.load(Relaxed)).contains(&address)
}

/// System calls of this thread are caught from now on; returns whether they are.
pub fn begin() -> bool {
    let (start, length) = (START.load(Relaxed) as i64, LENGTH.load(Relaxed) as i64);
    if start == 0 {
        return false;
    }
    let unblock = [i64::from(libc::SIG_UNBLOCK), (&raw const KEPT) as i64, 0, SET_SIZE, 0, 0];
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
pub fn let_through(inside: bool) {
    SELECTOR.with(|selector| selector.set(if inside { ALLOW } else { BLOCK }));
}

/// rt_sigprocmask(2) that never blocks [`kept`] signals; a negative error number.
pub unsafe fn change_mask(how: i64, signals: *const u64, old: *mut u64) -> i64 {
    // SAFETY: the caller passes a valid set, or null.
    let own = unsafe { signals.as_ref() }.map(|signals| signals & !kept());
    let place = own.as_ref().map_or(0, |own| std::ptr::from_ref(own) as i64);
    system_call(libc::SYS_rt_sigprocmask, [how, place, old as i64, SET_SIZE, 0, 0])
}
