//! Clocks, sleeping, and the number of processors.

use std::ffi::{c_int, c_long, c_uint, c_void};

use libc::{clockid_t, cpu_set_t, pid_t, size_t, time_t, timespec, timeval};
use vtime::wire::{Call, End, Totals, TotalsOf};

use crate::real::{answer, calls, kernel, nanos, real, system_call};
use crate::turn::{Turn, Wait};

/// A time as a struct.
pub fn span(time: u64) -> timespec {
    timespec { tv_sec: (time / 1_000_000_000) as time_t, tv_nsec: (time % 1_000_000_000) as c_long }
}

/// Virtual time, if this thread is in the simulation.
fn virtual_time() -> Option<u64> {
    let turn = Turn::enter()?;
    turn.tick();
    Some(turn.epoch() + turn.now())
}

fn used(of: TotalsOf) -> Option<Totals> {
    Some(Turn::enter()?.totals(of))
}

/// CPU time of this thread, or of the program.
fn used_by(thread: bool) -> Option<Totals> {
    used(if thread { TotalsOf::Thread } else { TotalsOf::Process })
}

/// Counters for a program that is built to run in the simulation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crosspoint_vtime_totals(place: *mut Totals, of: c_int) {
    if let Some(used) = used(TotalsOf::of(of as u64)) {
        // SAFETY: the caller passes a valid pointer.
        unsafe { *place = used };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrusage(who: c_int, place: *mut libc::rusage) -> c_int {
    let arguments = [i64::from(who), place as i64, 0, 0, 0, 0];
    let code = answer(system_call(libc::SYS_getrusage, arguments)) as c_int;
    let own = [libc::RUSAGE_SELF, libc::RUSAGE_THREAD].contains(&who);
    if code == 0
        && own
        && let Some(used) = used_by(who == libc::RUSAGE_THREAD)
    {
        // SAFETY: a valid pointer, just written.
        let found = unsafe { &mut *place };
        let cpu = span(used.cpu);
        found.ru_utime = timeval { tv_sec: cpu.tv_sec, tv_usec: cpu.tv_nsec / 1_000 };
        found.ru_stime = timeval { tv_sec: 0, tv_usec: 0 };
        found.ru_nvcsw = used.waits as c_long;
        found.ru_nivcsw = used.preemptions as c_long;
        found.ru_inblock = (used.reads[1] / 512) as c_long;
        found.ru_oublock = (used.dirtied / 512) as c_long;
    }
    code
}

/// Sleeps in virtual time; returns the time left, 0 unless a signal ended it.
fn sleep_until(turn: &Turn, until: u64) -> u64 {
    match turn.block(Wait::Sleep, Some(until), None, 0) {
        End::Interrupted => until.saturating_sub(turn.now()).max(1),
        _ => 0,
    }
}

/// Sleeps for a time; `None` outside of the simulation.
unsafe fn slept(time: u64, rest: *mut timespec) -> Option<c_int> {
    let turn = Turn::enter()?;
    let left = sleep_until(&turn, turn.now().saturating_add(time));
    // SAFETY: the caller passes a place for it, or null.
    let rest = unsafe { rest.as_mut() }.filter(|_| left > 0);
    rest.into_iter().for_each(|rest| *rest = span(left));
    Some(if left > 0 { libc::EINTR } else { 0 })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    let cpu = [libc::CLOCK_PROCESS_CPUTIME_ID, libc::CLOCK_THREAD_CPUTIME_ID];
    // Other values are clocks of other threads and of devices.
    let of_day = (0..=11).contains(&clock) && !cpu.contains(&clock);
    let now = match (of_day, cpu.contains(&clock)) {
        (true, _) => virtual_time(),
        (_, true) => used_by(clock == libc::CLOCK_THREAD_CPUTIME_ID).map(|used| used.cpu),
        _ => None,
    };
    if let Some(now) = now {
        // SAFETY: the caller passes a valid pointer.
        unsafe { *time = span(now) };
        return 0;
    }
    let real = real!(clock_gettime: unsafe extern "C" fn(clockid_t, *mut timespec) -> c_int);
    // SAFETY: the caller's arguments.
    unsafe { real(clock, time) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(time: *mut timeval, zone: *mut c_void) -> c_int {
    let Some(now) = virtual_time() else {
        let real = real!(gettimeofday: unsafe extern "C" fn(*mut timeval, *mut c_void) -> c_int);
        // SAFETY: the caller's arguments.
        return unsafe { real(time, zone) };
    };
    let now = span(now);
    // SAFETY: the caller passes a valid pointer.
    unsafe { *time = timeval { tv_sec: now.tv_sec, tv_usec: now.tv_nsec / 1_000 } };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(place: *mut time_t) -> time_t {
    let mut now = span(0);
    // SAFETY: a local variable.
    unsafe { clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    if !place.is_null() {
        // SAFETY: the caller passes a valid pointer.
        unsafe { *place = now.tv_sec };
    }
    now.tv_sec
}

kernel! {
    nanosleep(time: *const timespec, left: *mut timespec) -> c_int = SYS_nanosleep, {
        // SAFETY: the caller passes a valid time.
        let time = unsafe { *time };
        if !(0..1_000_000_000).contains(&time.tv_nsec) || time.tv_sec < 0 {
            return answer(-i64::from(libc::EINVAL)) as c_int;
        }
        // SAFETY: the caller's place.
        unsafe { slept(nanos(time), left) }.map(|error| answer(-i64::from(error)) as c_int)
    };
    sched_yield() -> c_int = SYS_sched_yield, {
        Turn::enter().map(|turn| {
            if !turn.is_alone() {
                turn.call(Call::Yield, &[1]);
            }
            0
        })
    };
    /// The simulation runs on one real core; the program's choice is ignored.
    sched_setaffinity(process: pid_t, size: size_t, set: *const cpu_set_t) -> c_int
        = SYS_sched_setaffinity, Turn::is_simulated().then_some(0);
    /// Real priorities are not simulated.
    sched_setscheduler(process: pid_t, policy: c_int, how: *const libc::sched_param) -> c_int
        = SYS_sched_setscheduler, Turn::is_simulated().then_some(0);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    if let Some(turn) = Turn::enter() {
        // SAFETY: the caller passes a valid time.
        let time = unsafe { *time };
        if flags & libc::TIMER_ABSTIME == 0 {
            drop(turn);
            // SAFETY: the caller's arguments.
            return unsafe { slept(nanos(time), left) }.unwrap_or_default();
        }
        let left = sleep_until(&turn, turn.deadline(time));
        return if left > 0 { libc::EINTR } else { 0 };
    }
    let arguments = [i64::from(clock), i64::from(flags), time as i64, left as i64, 0, 0];
    -(system_call(libc::SYS_clock_nanosleep, arguments) as c_int)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sysconf(name: c_int) -> c_long {
    if matches!(name, libc::_SC_NPROCESSORS_ONLN | libc::_SC_NPROCESSORS_CONF)
        && let Some(turn) = Turn::enter()
    {
        return c_long::from(turn.cores());
    }
    // SAFETY: the caller's argument.
    unsafe { real!(sysconf: unsafe extern "C" fn(c_int) -> c_long)(name) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_getaffinity(
    process: pid_t,
    size: size_t,
    set: *mut cpu_set_t,
) -> c_int {
    if let Some(turn) = Turn::enter() {
        let cores = (turn.cores() as usize).min(size * 8);
        // SAFETY: the caller passes buffers of that size.
        unsafe {
            std::ptr::write_bytes(set.cast::<u8>(), 0, size);
            (0..cores).for_each(|core| *set.cast::<u8>().add(core / 8) |= 1 << (core % 8));
        }
        return 0;
    }
    let arguments = [i64::from(process), size as i64, set as i64, 0, 0, 0];
    let got = answer(system_call(libc::SYS_sched_getaffinity, arguments));
    got.min(0) as c_int
}

calls! {
    usleep(time: c_uint) -> c_int = {
        let time = span(u64::from(time) * 1_000);
        // SAFETY: a local variable.
        unsafe { nanosleep(&raw const time, std::ptr::null_mut()) }
    };
    sleep(seconds: c_uint) -> c_uint = {
        let (time, mut left) = (span(u64::from(seconds) * 1_000_000_000), span(0));
        // SAFETY: local variables.
        unsafe { nanosleep(&raw const time, &raw mut left) };
        nanos(left).div_ceil(1_000_000_000) as c_uint
    };
    get_nprocs() -> c_int = {
        // SAFETY: a known name.
        unsafe { sysconf(libc::_SC_NPROCESSORS_ONLN) as c_int }
    };
}
