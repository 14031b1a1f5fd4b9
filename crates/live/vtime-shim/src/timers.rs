//! Timers that send a signal, in virtual time: alarm(2), setitimer(2), timer_create(2).

use std::ffi::c_int;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use libc::{itimerspec, itimerval, sigevent, timespec, timeval};
use vtime::wire::{Call, NEVER};

use crate::clock::span;
use crate::real::{answer, nanos};
use crate::turn::Turn;

/// Timers of a process at once.
const TIMERS: usize = 1024;
/// The number of the timer of alarm(2) and setitimer(2); others follow.
const ALARM: usize = 0;

/// A timer that was made.
struct Timer {
    /// Its signal, with [`MADE`]; 0: it is free.
    signal: AtomicU32,
    thread: AtomicU32,
    value: AtomicU64,
}

const MADE: u32 = 1 << 16;
/// `SIGEV_THREAD_ID` (asm-generic/siginfo.h).
const THREAD_ID: c_int = 4;

static MADE_TIMERS: [Timer; TIMERS] = [const {
    Timer { signal: AtomicU32::new(0), thread: AtomicU32::new(0), value: AtomicU64::new(0) }
}; TIMERS];

/// What a timer is set to, ns.
#[derive(Clone, Copy)]
struct Setting {
    /// Virtual time of the first signal.
    at: u64,
    interval: u64,
}

/// Sets a timer, or only looks if there is no setting; returns the time left and the interval before.
fn set(turn: &Turn, number: usize, new: Option<Setting>) -> [u64; 2] {
    turn.tick();
    let timer = &MADE_TIMERS[number];
    let signal = match number {
        ALARM => libc::SIGALRM as u32,
        _ => timer.signal.load(Relaxed) & !MADE,
    };
    let Setting { at, interval } = new.unwrap_or(Setting { at: NEVER, interval: 0 });
    let [thread, value] = [u64::from(timer.thread.load(Relaxed)), timer.value.load(Relaxed)];
    let looks = u64::from(new.is_none());
    let place = number as u64;
    turn.call(Call::Timer, &[place, at, interval, signal.into(), thread, value, looks]);
    let (at, interval) = (turn.argument(1), turn.argument(2));
    // A timer that is due has not expired yet.
    [if at == NEVER { 0 } else { at.saturating_sub(turn.now()).max(1) }, interval]
}

/// The setting of a first and an interval; 0 disarms.
fn setting(turn: &Turn, first: u64, interval: u64) -> Setting {
    let at = if first == 0 { NEVER } else { turn.now().saturating_add(first) };
    Setting { at, interval }
}

/// Whether a setting is one that the kernel refuses.
fn is_invalid(time: timespec) -> bool {
    time.tv_sec < 0 || !(0..1_000_000_000).contains(&time.tv_nsec)
}

/// Seconds left, rounded as Linux does: never to 0 from more.
fn alarm(turn: &Turn, seconds: u64) -> i64 {
    let new = setting(turn, seconds.saturating_mul(1_000_000_000), 0);
    let [left, _] = set(turn, ALARM, Some(new));
    let seconds = left.saturating_add(500_000_000) / 1_000_000_000;
    seconds.max(u64::from(left > 0)) as i64
}

fn exact(time: timeval) -> timespec {
    timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_usec.saturating_mul(1_000) }
}

/// setitimer(2) or getitimer(2); a negative error number.
unsafe fn set_interval(
    turn: &Turn,
    which: c_int,
    new: *const itimerval,
    old: *mut itimerval,
) -> i64 {
    if which != libc::ITIMER_REAL {
        turn.uncovered("a timer of CPU time");
        return -i64::from(libc::EINVAL);
    }
    // SAFETY: the caller passes a valid setting and a place for one, or null.
    let (new, old) = unsafe { (new.as_ref(), old.as_mut()) };
    let new = new.map(|new| [new.it_value, new.it_interval].map(exact));
    if new.is_some_and(|new| new.into_iter().any(is_invalid)) {
        return -i64::from(libc::EINVAL);
    }
    let new = new.map(|[first, interval]| setting(turn, nanos(first), nanos(interval)));
    let before = set(turn, ALARM, new);
    if let Some(old) = old {
        let [it_value, it_interval] = before.map(|time| {
            let time = span(time);
            timeval { tv_sec: time.tv_sec, tv_usec: time.tv_nsec / 1_000 }
        });
        *old = itimerval { it_interval, it_value };
    }
    0
}

/// Makes a timer; a negative error number.
unsafe fn make(turn: &Turn, clock: i64, event: *const sigevent, made: *mut c_int) -> i64 {
    if !(0..=11).contains(&clock) || [2, 3].contains(&clock) {
        turn.uncovered("a timer of CPU time");
    }
    // SAFETY: the caller passes a valid event, or null.
    let event = unsafe { event.as_ref() };
    let is_free = |timer: &Timer| timer.signal.load(Relaxed) == 0;
    let Some(number) = (ALARM + 1..TIMERS).find(|number| is_free(&MADE_TIMERS[*number])) else {
        return -i64::from(libc::EAGAIN);
    };
    let (signal, thread, value) = match event {
        None => (libc::SIGALRM, 0, number as u64),
        Some(event) if event.sigev_notify == libc::SIGEV_NONE => (0, 0, 0),
        Some(event) => {
            let is_threads = event.sigev_notify == THREAD_ID;
            let thread = if is_threads { event.sigev_notify_thread_id as u32 } else { 0 };
            (event.sigev_signo, thread, event.sigev_value.sival_ptr as u64)
        }
    };
    if !(0..=64).contains(&signal) {
        return -i64::from(libc::EINVAL);
    }
    let timer = &MADE_TIMERS[number];
    timer.thread.store(thread, Relaxed);
    timer.value.store(value, Relaxed);
    timer.signal.store(signal as u32 | MADE, Relaxed);
    // SAFETY: the caller passes a place for it.
    unsafe { *made = number as c_int };
    0
}

/// timer_settime(2) or timer_gettime(2); a negative error number.
unsafe fn change(
    turn: &Turn,
    number: usize,
    (absolute, new): (bool, *const itimerspec),
    old: *mut itimerspec,
) -> i64 {
    // SAFETY: the caller passes a valid setting and a place for one, or null.
    let (new, old) = unsafe { (new.as_ref(), old.as_mut()) };
    if new.is_some_and(|new| is_invalid(new.it_value) || is_invalid(new.it_interval)) {
        return -i64::from(libc::EINVAL);
    }
    let new = new.map(|new| {
        let interval = nanos(new.it_interval);
        match nanos(new.it_value) {
            first if first > 0 && absolute => {
                Setting { at: turn.deadline(new.it_value).max(turn.now()), interval }
            }
            first => setting(turn, first, interval),
        }
    });
    let before = set(turn, number, new);
    if let Some(old) = old {
        let [it_value, it_interval] = before.map(span);
        *old = itimerspec { it_interval, it_value };
    }
    0
}

/// A system call on timers; `None` for others, and outside of the simulation.
pub unsafe fn by_number(number: i64, arguments: [i64; 6]) -> Option<i64> {
    // SAFETY: the caller's arguments.
    let done = unsafe {
        match number {
            libc::SYS_alarm | libc::SYS_setitimer | libc::SYS_getitimer => {
                of_process(number, &Turn::enter()?, arguments)
            }
            libc::SYS_timer_create
            | libc::SYS_timer_settime
            | libc::SYS_timer_gettime
            | libc::SYS_timer_delete
            | libc::SYS_timer_getoverrun => of_made(number, &Turn::enter()?, arguments),
            _ => return None,
        }
    };
    Some(answer(done))
}

/// The timer that each process has.
unsafe fn of_process(number: i64, turn: &Turn, [a, b, c, ..]: [i64; 6]) -> i64 {
    let off = timeval { tv_sec: 0, tv_usec: 0 };
    let off = itimerval { it_interval: off, it_value: off };
    // SAFETY: the caller's arguments.
    unsafe {
        match number {
            libc::SYS_alarm => alarm(turn, u64::from(a as u32)),
            libc::SYS_setitimer => {
                let new = if b == 0 { &raw const off } else { b as *const itimerval };
                set_interval(turn, a as c_int, new, c as *mut itimerval)
            }
            _ => set_interval(turn, a as c_int, std::ptr::null(), b as *mut itimerval),
        }
    }
}

/// Timers that were made.
unsafe fn of_made(number: i64, turn: &Turn, [a, b, c, d, ..]: [i64; 6]) -> i64 {
    if number == libc::SYS_timer_create {
        // SAFETY: the caller's arguments.
        return unsafe { make(turn, a, b as *const sigevent, c as *mut c_int) };
    }
    let place = usize::try_from(a).unwrap_or(TIMERS);
    let made = MADE_TIMERS.get(place).filter(|timer| timer.signal.load(Relaxed) != 0);
    let Some(timer) = made else { return -i64::from(libc::EINVAL) };
    // SAFETY: the caller's arguments.
    unsafe {
        match number {
            libc::SYS_timer_settime => {
                let absolute = b as c_int & libc::TIMER_ABSTIME != 0;
                change(turn, place, (absolute, c as *const itimerspec), d as *mut itimerspec)
            }
            libc::SYS_timer_gettime => {
                change(turn, place, (false, std::ptr::null()), b as *mut itimerspec)
            }
            libc::SYS_timer_delete => {
                set(turn, place, Some(Setting { at: NEVER, interval: 0 }));
                timer.signal.store(0, Relaxed);
                0
            }
            // Signals that the kernel merges are not counted.
            _ => 0,
        }
    }
}

/// A new process has none.
pub fn begin_child() {
    MADE_TIMERS.iter().for_each(|timer| timer.signal.store(0, Relaxed));
}

/// A program that calls execve keeps only the timer that each process has.
pub fn begin_program() {
    if let Some(turn) = Turn::enter() {
        turn.call(Call::Timer, &[NEVER, NEVER, 0, 0, 0, 0, 0]);
    }
}
