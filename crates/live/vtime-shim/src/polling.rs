//! Waiting for files: poll(2), select(2), epoll_wait(2).

use std::ffi::{c_int, c_short};

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use vtime::wire::{End, KEYS};

use crate::real::{answer, calls, kernel, nanos, real, system_call};
use crate::signals::with_mask;
use crate::turn::{Turn, Wait};

const READS: c_short = libc::POLLIN;
const WRITES: c_short = libc::POLLOUT;

/// Waits for files, or for a time in ns, by a call that does not wait. `None` outside of the simulation.
fn waited(
    name: &str,
    files: &[(c_int, c_short)],
    timeout: Option<u64>,
    call: impl Fn() -> i64,
) -> Option<c_int> {
    let turn = Turn::enter()?;
    turn.tick();
    let deadline = timeout.map(|time| turn.now().saturating_add(time));
    if files.len() > KEYS {
        turn.uncovered(name);
    }
    let mut late = timeout == Some(0);
    loop {
        let found = turn.charged(&call);
        if found != 0 || late {
            return Some(answer(found) as c_int);
        }
        let end = match files {
            [] => turn.block(Wait::Sleep, deadline, None, 0),
            files => turn.wait_files(files, deadline),
        };
        if end == End::Interrupted {
            return Some(answer(-i64::from(libc::EINTR)) as c_int);
        }
        late = end == End::Late;
    }
}

/// Nanoseconds of an optional time limit.
unsafe fn limit(time: *const timespec) -> Option<u64> {
    // SAFETY: the caller passes a valid time, or null for no limit.
    let time = unsafe { time.as_ref() };
    time.map(|time| nanos(*time))
}

/// Nanoseconds of a time limit in ms; none if it is negative.
fn millis(time: c_int) -> Option<u64> {
    u64::try_from(time).ok().map(|time| time * 1_000_000)
}

/// Nanoseconds of an optional time limit of `select`.
unsafe fn micros(time: *const timeval) -> Option<u64> {
    // SAFETY: the caller passes a valid time, or null for no limit.
    let time = unsafe { time.as_ref() };
    time.map(|time| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000)
}

/// Waits as poll(2).
unsafe fn polled(files: *mut pollfd, count: nfds_t, timeout: Option<u64>) -> Option<c_int> {
    if !Turn::is_simulated() {
        return None;
    }
    // SAFETY: the caller passes an array of that length.
    let asked = (0..count as usize).map(|number| unsafe { *files.add(number) });
    let (list, length) = few(asked.filter(|one| one.fd >= 0).map(|one| (one.fd, one.events)));
    let arguments = [files as i64, count as i64, 0, 0, 0, 0];
    let call = || system_call(libc::SYS_poll, arguments);
    waited("poll of many files", &list[..length], timeout, call)
}

/// A list and its length, one more than permitted if there are more. Nothing is allocated, because the
/// caller may be an allocator.
fn few(files: impl Iterator<Item = (c_int, c_short)>) -> ([(c_int, c_short); KEYS + 1], usize) {
    let (mut list, mut length) = ([(0, 0); KEYS + 1], 0);
    for (place, file) in list.iter_mut().zip(files) {
        *place = file;
        length += 1;
    }
    (list, length)
}

/// Waits as select(2).
unsafe fn selected(count: c_int, sets: [*mut fd_set; 3], timeout: Option<u64>) -> Option<c_int> {
    if !Turn::is_simulated() {
        return None;
    }
    // A set may be shorter than the type: only whole words up to `count` are used.
    let words = (count.clamp(0, libc::FD_SETSIZE as c_int) as usize).div_ceil(64);
    let sets = sets.map(<*mut fd_set>::cast::<u64>);
    let before = sets.map(|set| {
        let mut copy = [0_u64; libc::FD_SETSIZE / 64];
        for (number, word) in copy[..words].iter_mut().enumerate().filter(|_| !set.is_null()) {
            // SAFETY: the caller passes sets of that many words, or null.
            *word = unsafe { *set.add(number) };
        }
        copy
    });
    let kinds = before.iter().zip([READS, WRITES, libc::POLLPRI]);
    let asked = kinds.flat_map(|(words, events)| {
        let is_in = |file: &c_int| words[*file as usize / 64] >> (*file % 64) & 1 == 1;
        (0..count.min(libc::FD_SETSIZE as c_int)).filter(is_in).map(move |file| (file, events))
    });
    let (list, length) = few(asked);
    let mut none = timeval { tv_sec: 0, tv_usec: 0 };
    let none = &raw mut none;
    let call = || {
        for (set, before) in sets.iter().zip(&before).filter(|(set, _)| !set.is_null()) {
            for (number, word) in before[..words].iter().enumerate() {
                // SAFETY: as above.
                unsafe { *set.add(number) = *word };
            }
        }
        let [read, write, except] = sets.map(|set| set as i64);
        system_call(libc::SYS_select, [i64::from(count), read, write, except, none as i64, 0])
    };
    waited("select of many files", &list[..length], timeout, call)
}

/// Waits as epoll_wait(2).
fn awaited(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: Option<u64>,
) -> Option<c_int> {
    let arguments = [i64::from(epoll), events as i64, i64::from(most), 0, 0, 0];
    let call = || system_call(libc::SYS_epoll_wait, arguments);
    waited("epoll_wait", &[(epoll, READS | WRITES)], timeout, call)
}

kernel! {
    poll(files: *mut pollfd, count: nfds_t, wait: c_int) -> c_int
        // SAFETY: the caller's arguments.
        = SYS_poll, unsafe { polled(files, count, millis(wait)) };
    ppoll(
        files: *mut pollfd, count: nfds_t, time: *const timespec, mask: *const sigset_t
        // SAFETY: the caller's arguments.
    ) -> c_int = SYS_ppoll + 8, unsafe { with_mask(mask, || polled(files, count, limit(time))) };
    epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, wait: c_int) -> c_int
        = SYS_epoll_wait, awaited(epoll, events, most, millis(wait));
    epoll_pwait2(
        epoll: c_int, events: *mut epoll_event, most: c_int, time: *const timespec,
        mask: *const sigset_t
        // SAFETY: the caller's arguments.
    ) -> c_int = SYS_epoll_pwait2 + 8, unsafe {
        with_mask(mask, || awaited(epoll, events, most, limit(time)))
    };
    epoll_pwait(
        epoll: c_int, events: *mut epoll_event, most: c_int, wait: c_int, mask: *const sigset_t
    ) -> c_int = SYS_epoll_pwait + 8, unsafe {
        // SAFETY: the caller's mask.
        with_mask(mask, || awaited(epoll, events, most, millis(wait)))
    };
    select(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, time: *mut timeval
        // SAFETY: the caller's arguments.
    ) -> c_int = SYS_select, unsafe { selected(count, [read, write, except], micros(time)) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    type Real = unsafe extern "C" fn(
        c_int,
        *mut fd_set,
        *mut fd_set,
        *mut fd_set,
        *const timespec,
        *const sigset_t,
    ) -> c_int;
    // SAFETY: the caller's arguments.
    let wait = || unsafe { selected(count, [read, write, except], limit(time)) };
    // SAFETY: the caller's mask.
    if let Some(answer) = unsafe { with_mask(mask, wait) } {
        return answer;
    }
    // SAFETY: the caller's arguments.
    unsafe { real!(pselect: Real)(count, read, write, except, time, mask) }
}

calls! {
    __poll_chk(files: *mut pollfd, count: nfds_t, wait: c_int, _room: size_t) -> c_int = {
        // SAFETY: the caller's arguments.
        unsafe { poll(files, count, wait) }
    };
    __ppoll_chk(files: *mut pollfd, count: nfds_t, time: *const timespec,
        mask: *const sigset_t, _room: size_t) -> c_int = {
        // SAFETY: the caller's arguments.
        unsafe { ppoll(files, count, time, mask) }
    };
}
