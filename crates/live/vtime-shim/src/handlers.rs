//! The program's signal handlers, which one of this library stands for.
//!
//! It calls the program's handler at once, or remembers the signal until the thread leaves this library.
//! A remembered signal is blocked meanwhile, so that the kernel queues others of its kind. Signals that the
//! kernel sends for an instruction are handled at once.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU64, AtomicUsize};

use vtime::wire::PREEMPTION;

use crate::dispatch::{CAUGHT_SET, KernelAction, action_of, change_mask, install, kept, restorer};
use crate::real::{errno, set_errno};

/// Signals are numbered from 1 to 64.
const SIGNALS: usize = 65;
/// Its handler is that of mapped files (see `maps`), or the program's own.
const SIGBUS: i64 = libc::SIGBUS as i64;
const PREEMPTED: c_int = PREEMPTION as c_int;
/// Flags of an action that the kernel needs to know.
const KERNEL_FLAGS: c_int =
    libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_NOCLDSTOP | libc::SA_NOCLDWAIT;

/// What the program does about a signal; without a handler the kernel knows.
struct Action {
    handler: AtomicUsize,
    flags: AtomicU64,
    mask: AtomicU64,
}

static ACTIONS: [Action; SIGNALS] = [const {
    Action { handler: AtomicUsize::new(0), flags: AtomicU64::new(0), mask: AtomicU64::new(0) }
}; SIGNALS];

/// A `siginfo_t`.
type About = [u64; 16];

thread_local! {
    /// Signals whose handlers have yet to run, one bit each.
    static WAITING: Cell<u64> = const { Cell::new(0) };
    /// Those of them that this library blocks until then.
    static HELD: Cell<u64> = const { Cell::new(0) };
    /// What is known of each of them.
    static ABOUT: [Cell<About>; SIGNALS] = const { [const { Cell::new([0; 16]) }; SIGNALS] };
}

/// The handler that the kernel calls.
static ARRIVED: AtomicUsize = AtomicUsize::new(0);

/// A type of handlers.
pub type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Remembers a signal, whose handler runs later; `context` is the interrupted one.
pub fn remember(signal: c_int, about: *const libc::siginfo_t, context: *mut c_void) {
    let bit = 1_u64 << (signal - 1);
    // SAFETY: the kernel passes 128 bytes, and a context with its mask of 8 bytes.
    let (known, mask) = unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        (*about.cast::<About>(), &mut *(&raw mut context.uc_sigmask).cast::<u64>())
    };
    *mask |= bit & !kept();
    HELD.with(|held| held.set(held.get() | *mask & bit));
    ABOUT.with(|places| places[signal as usize].set(known));
    WAITING.with(|waiting| waiting.set(waiting.get() | bit));
}

/// Calls the program's handler; returns whether calls that it interrupted are restarted.
pub fn handle(signal: c_int, about: *mut libc::siginfo_t, context: *mut c_void) -> bool {
    let action = &ACTIONS[signal as usize];
    let (handler, flags) = (action.handler.load(Acquire), action.flags.load(Relaxed));
    let has = |flag: c_int| flags & flag as u64 != 0;
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // The program has changed its mind since.
        return true;
    }
    if has(libc::SA_RESETHAND) {
        action.handler.store(libc::SIG_DFL, Relaxed);
        let default = KernelAction::default();
        // SAFETY: a valid action.
        unsafe { action_of(signal.into(), &raw const default, std::ptr::null_mut()) };
    }
    // SAFETY: the program installed it with this type.
    unsafe {
        if has(libc::SA_SIGINFO) {
            type Long = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            std::mem::transmute::<usize, Long>(handler)(signal, about, context);
        } else {
            type Short = unsafe extern "C" fn(c_int);
            std::mem::transmute::<usize, Short>(handler)(signal);
        }
    }
    has(libc::SA_RESTART)
}

/// Whether a handler has yet to run.
pub fn is_waiting() -> bool {
    WAITING.with(|waiting| waiting.get() != 0)
}

/// Runs the handlers that have yet to run, outside of this library; returns whether the calls that they
/// interrupted are restarted.
pub fn run_waiting() -> bool {
    let (before, mut restarts) = (errno(), true);
    while let Some(signal) = take_waiting() {
        let mut about = ABOUT.with(|places| places[signal as usize].get());
        let action = &ACTIONS[signal as usize];
        let (bit, flags) = (1_u64 << (signal - 1), action.flags.load(Relaxed));
        let own = if flags & libc::SA_NODEFER as u64 == 0 { bit } else { 0 };
        let (blocked, mut old) = (action.mask.load(Relaxed) | own, 0);
        // What its handler blocks does not run within it, remembered or not.
        let held = HELD.with(|held| held.replace(held.get() & !blocked & !bit));
        // SAFETY: local variables; all zeros is a valid value of the context.
        unsafe {
            change_mask(libc::SIG_BLOCK.into(), &raw const blocked, &raw mut old);
            let mut context: libc::ucontext_t = std::mem::zeroed();
            restarts &= handle(signal, about.as_mut_ptr().cast(), (&raw mut context).cast());
            let waiting = WAITING.with(Cell::get);
            HELD.with(|now| now.set(now.get() | held & waiting));
            // The next of its kind may arrive.
            if held & bit != 0 && waiting & bit == 0 {
                old &= !bit;
            }
            change_mask(libc::SIG_SETMASK.into(), &raw const old, std::ptr::null_mut());
        }
    }
    set_errno(before);
    restarts
}

/// The lowest of them that is not blocked.
fn take_waiting() -> Option<c_int> {
    let waiting = WAITING.with(Cell::get);
    if waiting == 0 {
        return None;
    }
    let mut mask = 0;
    // SAFETY: a local variable.
    unsafe { change_mask(libc::SIG_BLOCK.into(), std::ptr::null(), &raw mut mask) };
    let ready = waiting & !(mask & !HELD.with(Cell::get));
    let number = ready.trailing_zeros();
    WAITING.with(|all| all.set(waiting & !1_u64.checked_shl(number).unwrap_or_default()));
    (ready != 0).then_some(number as c_int + 1)
}

/// The kernel does about a signal what the program wants.
pub fn restore(signal: c_int) {
    let action = &ACTIONS[signal as usize];
    let handler = action.handler.load(Relaxed);
    if [libc::SIG_DFL, libc::SIG_IGN].contains(&handler) {
        let own = KernelAction { handler, ..KernelAction::default() };
        // SAFETY: a valid action.
        unsafe { action_of(signal.into(), &raw const own, std::ptr::null_mut()) };
    }
}

/// The kernel calls this library's handler for a signal, whatever the program does about it.
pub fn catch(signal: c_int) {
    install(signal, ARRIVED.load(Relaxed), libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART);
}

/// A new process has none of them.
pub fn begin_child() {
    WAITING.with(|waiting| waiting.set(0));
    HELD.with(|held| held.set(0));
}

/// rt_sigaction(2) that leaves SIGSYS alone, and installs this library's handler for the program's; a
/// negative error number.
pub unsafe fn change_action(signal: i64, new: *const KernelAction, old: *mut KernelAction) -> i64 {
    // SAFETY: the caller passes a place for it, or null.
    let old = unsafe { old.as_mut() };
    if signal == i64::from(libc::SIGSYS) {
        old.into_iter().for_each(|old| *old = KernelAction::default());
        return 0;
    }
    // SAFETY: the caller passes a valid action, or null.
    let new = unsafe { new.as_ref() };
    let number = usize::try_from(signal).unwrap_or(SIGNALS);
    let action = ACTIONS.get(number).filter(|_| signal != SIGBUS);
    let before = action.map(|action| KernelAction {
        handler: action.handler.load(Relaxed),
        flags: action.flags.load(Relaxed),
        restorer: restorer(),
        mask: action.mask.load(Relaxed),
    });
    let own = new.map(|new| {
        let mask = new.mask & !CAUGHT_SET;
        if action.is_none() || [libc::SIG_DFL, libc::SIG_IGN].contains(&new.handler) {
            return KernelAction { mask, ..*new };
        }
        let kept = new.flags & KERNEL_FLAGS as u64;
        KernelAction::new(ARRIVED.load(Relaxed), kept | libc::SA_SIGINFO as u64, mask)
    });
    if let (Some(action), Some(new)) = (action, new) {
        action.mask.store(new.mask & !CAUGHT_SET, Relaxed);
        action.flags.store(new.flags, Relaxed);
        action.handler.store(new.handler, Relaxed);
    }
    // Its handler stays, whatever the program does about it.
    if (1..=64).contains(&signal) && kept() >> (signal - 1) & 1 == 1 {
        old.into_iter().zip(before).for_each(|(old, before)| *old = before);
        return 0;
    }
    let mut known = KernelAction::default();
    let place = own.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: a valid action or null, and a local variable.
    let code = unsafe { action_of(signal, place, &raw mut known) };
    if let (Some(old), 0) = (old, code) {
        *old = before.filter(|_| known.handler == ARRIVED.load(Relaxed)).unwrap_or(known);
    }
    code
}

/// Takes over the handlers that are installed already, and installs that of preemption.
pub fn prepare(arrived: Handler) {
    ARRIVED.store(arrived as usize, Relaxed);
    for signal in 1..SIGNALS as i64 {
        let mut known = KernelAction::default();
        // SAFETY: a local variable; and the action that is installed.
        unsafe {
            let code = action_of(signal, std::ptr::null(), &raw mut known);
            if code == 0 && ![libc::SIG_DFL, libc::SIG_IGN].contains(&known.handler) {
                change_action(signal, &raw const known, std::ptr::null_mut());
            }
        }
    }
    catch(PREEMPTED);
}
