//! Sockets, pipes, and waiting for files.
//!
//! The real call is made without blocking, and its CPU time is charged; a thread whose file is not ready
//! waits in the simulation. The streams that a program was started with lead out of the simulation, so
//! waiting for them is real.

use std::ffi::{c_int, c_short, c_void};

use libc::{
    epoll_event, fd_set, msghdr, nfds_t, pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t,
    timespec, timeval,
};
use vtime::wire::KEYS;

use crate::real::{answer, kernel, real, system_call};
use crate::streams::{self, status};
use crate::turn::{Turn, Wait};

const AGAIN: i64 = -(libc::EAGAIN as i64);
const UNSUPPORTED: i64 = -(libc::EOPNOTSUPP as i64);
const READS: c_short = libc::POLLIN;
const WRITES: c_short = libc::POLLOUT;

/// What waiting for a file means.
enum Kind {
    /// It is always ready.
    Plain,
    /// Threads of the simulation make it ready.
    Socket,
    Pipe,
    /// Other programs do.
    Outside,
}

fn kind_of(descriptor: c_int) -> Kind {
    let Some(file) = status(descriptor) else { return Kind::Plain };
    match file.st_mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK => Kind::Plain,
        _ if streams::is_standard(&file) => Kind::Outside,
        libc::S_IFCHR => Kind::Outside,
        libc::S_IFSOCK => Kind::Socket,
        // An eventfd has no type.
        _ => Kind::Pipe,
    }
}

fn is_ready(descriptor: c_int, events: c_short) -> bool {
    let mut asked = pollfd { fd: descriptor, events, revents: 0 };
    system_call(libc::SYS_poll, [(&raw mut asked) as i64, 1, 0, 0, 0, 0]) != 0
}

fn blocks(descriptor: c_int) -> bool {
    let get = [i64::from(descriptor), i64::from(libc::F_GETFL), 0, 0, 0, 0];
    system_call(libc::SYS_fcntl, get) & i64::from(libc::O_NONBLOCK) == 0
}

/// Waits until the file is ready, unless it does not block.
fn wait_until_ready(turn: &Turn, descriptor: c_int, events: c_short) {
    turn.tick();
    while !is_ready(descriptor, events) && blocks(descriptor) {
        turn.wait_files(&[(descriptor, events)], None);
    }
}

/// A read or write by the system call, of a file that is not on the drive.
pub fn exchange(number: i64, arguments: [i64; 6], writes: bool) -> ssize_t {
    let descriptor = arguments[0] as c_int;
    let events = if writes { WRITES } else { READS };
    let real = || system_call(number, arguments);
    let Some(turn) = Turn::enter() else { return answer(real()) as ssize_t };
    let done = match kind_of(descriptor) {
        Kind::Plain => turn.charged(real),
        Kind::Outside if is_ready(descriptor, events) => turn.charged(real),
        Kind::Outside => turn.outside(real),
        Kind::Socket if number == libc::SYS_write => {
            let [file, data, size, ..] = arguments;
            send_all(&turn, [file, data, size, 0, 0, 0])
        }
        Kind::Pipe if number == libc::SYS_write => write_all(&turn, arguments, real),
        Kind::Socket | Kind::Pipe => {
            wait_until_ready(&turn, descriptor, events);
            let done = turn.charged(real);
            turn.notify(writes);
            done
        }
    };
    answer(done) as ssize_t
}

/// Whether a call with these flags waits.
fn waits(descriptor: i64, flags: i64) -> bool {
    flags & i64::from(libc::MSG_DONTWAIT) == 0 && blocks(descriptor as c_int)
}

/// sendto(2) of all data.
fn send_all(turn: &Turn, arguments: [i64; 6]) -> i64 {
    let [file, data, size, flags, address, length] = arguments;
    let now = flags | i64::from(libc::MSG_DONTWAIT);
    sent_all(turn, (file, size), waits(file, flags), |sent| {
        let rest = [file, data + sent, size - sent, now, address, length];
        system_call(libc::SYS_sendto, rest)
    })
}

/// write(2) of all data to a pipe.
fn write_all(turn: &Turn, arguments: [i64; 6], real: impl Fn() -> i64) -> i64 {
    let [file, data, size, ..] = arguments;
    sent_all(turn, (file, size), waits(file, 0), |sent| {
        let rest =
            libc::iovec { iov_base: (data + sent) as *mut c_void, iov_len: (size - sent) as usize };
        // At the file's own offset.
        let (parts, here) = ((&raw const rest) as i64, -1);
        let now = i64::from(libc::RWF_NOWAIT);
        match system_call(libc::SYS_pwritev2, [file, parts, 1, here, here, now]) {
            UNSUPPORTED => real(),
            done => done,
        }
    })
}

/// Repeats a call that does not block, given how much it has sent, until all is sent.
fn sent_all(turn: &Turn, (file, size): (i64, i64), waits: bool, call: impl Fn(i64) -> i64) -> i64 {
    turn.tick();
    let mut sent = 0;
    loop {
        let done = turn.charged(|| call(sent));
        if done > 0 {
            sent += done;
            turn.notify(true);
        }
        match done {
            0.. if sent < size && waits => {}
            AGAIN if waits => {
                turn.wait_files(&[(file as c_int, WRITES)], None);
            }
            0.. => return sent,
            error => return if sent > 0 { sent } else { error },
        }
    }
}

/// A call that receives, given the flags that it is made with.
fn receive(turn: &Turn, (file, flags): (i64, i64), call: impl Fn(i64) -> i64) -> i64 {
    turn.tick();
    let mut done = turn.charged(|| call(flags | i64::from(libc::MSG_DONTWAIT)));
    while done == AGAIN && waits(file, flags) {
        turn.wait_files(&[(file as c_int, READS)], None);
        done = turn.charged(|| call(flags | i64::from(libc::MSG_DONTWAIT)));
    }
    turn.notify(false);
    done
}

/// recvfrom(2) in the simulation.
fn received(arguments: [i64; 6]) -> Option<ssize_t> {
    let [file, data, size, flags, address, length] = arguments;
    let turn = Turn::enter()?;
    if flags & i64::from(libc::MSG_WAITALL) != 0 {
        turn.uncovered("recv with MSG_WAITALL");
    }
    let call = |flags| system_call(libc::SYS_recvfrom, [file, data, size, flags, address, length]);
    Some(answer(receive(&turn, (file, flags), call)) as ssize_t)
}

/// sendto(2) in the simulation.
fn sent(arguments: [i64; 6]) -> Option<ssize_t> {
    Some(answer(send_all(&Turn::enter()?, arguments)) as ssize_t)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(
    file: c_int,
    data: *mut c_void,
    size: size_t,
    flags: c_int,
) -> ssize_t {
    let none = std::ptr::null_mut();
    // SAFETY: the caller's arguments.
    unsafe { recvfrom(file, data, size, flags, none, none.cast()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(
    file: c_int,
    data: *const c_void,
    size: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe { sendto(file, data, size, flags, std::ptr::null(), 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recv_chk(
    file: c_int,
    data: *mut c_void,
    size: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    assert!(size <= room, "buffer overflow");
    // SAFETY: the caller's arguments.
    unsafe { recv(file, data, size, flags) }
}

/// A connection is accepted.
fn accepted(file: c_int, call: impl Fn() -> i64) -> Option<c_int> {
    let turn = Turn::enter()?;
    wait_until_ready(&turn, file, READS);
    Some(answer(turn.charged(call)) as c_int)
}

/// A call after which others may find a file ready.
fn notified(call: impl Fn() -> i64) -> Option<c_int> {
    let turn = Turn::enter()?;
    let done = turn.charged(call);
    turn.notify(true);
    Some(answer(done) as c_int)
}

kernel! {
    recvfrom(
        file: c_int, data: *mut c_void, size: size_t, flags: c_int, address: *mut sockaddr,
        length: *mut socklen_t
    ) -> ssize_t = SYS_recvfrom, received([
        i64::from(file), data as i64, size as i64, i64::from(flags), address as i64, length as i64,
    ]);
    sendto(
        file: c_int, data: *const c_void, size: size_t, flags: c_int, address: *const sockaddr,
        length: socklen_t
    ) -> ssize_t = SYS_sendto, sent([
        i64::from(file), data as i64, size as i64, i64::from(flags), address as i64, i64::from(length),
    ]);
    recvmsg(file: c_int, message: *mut msghdr, flags: c_int) -> ssize_t = SYS_recvmsg, {
        Turn::enter().map(|turn| {
            let call = |flags| {
                system_call(libc::SYS_recvmsg, [i64::from(file), message as i64, flags, 0, 0, 0])
            };
            answer(receive(&turn, (i64::from(file), i64::from(flags)), call)) as ssize_t
        })
    };
    sendmsg(file: c_int, message: *const msghdr, flags: c_int) -> ssize_t = SYS_sendmsg, {
        Turn::enter().map(|turn| {
            if flags & libc::MSG_DONTWAIT == 0 {
                wait_until_ready(&turn, file, WRITES);
            }
            let arguments = [i64::from(file), message as i64, i64::from(flags), 0, 0, 0];
            let done = turn.charged(|| system_call(libc::SYS_sendmsg, arguments));
            turn.notify(true);
            answer(done) as ssize_t
        })
    };
    accept(file: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int = SYS_accept, {
        let arguments = [i64::from(file), address as i64, length as i64, 0, 0, 0];
        accepted(file, || system_call(libc::SYS_accept, arguments))
    };
    accept4(
        file: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int
    ) -> c_int = SYS_accept4, {
        let arguments = [i64::from(file), address as i64, length as i64, i64::from(flags), 0, 0];
        accepted(file, || system_call(libc::SYS_accept4, arguments))
    };
    /// On this machine a connection is made at once.
    connect(file: c_int, address: *const sockaddr, length: socklen_t) -> c_int = SYS_connect, {
        let arguments = [i64::from(file), address as i64, i64::from(length), 0, 0, 0];
        notified(|| system_call(libc::SYS_connect, arguments))
    };
    shutdown(file: c_int, how: c_int) -> c_int = SYS_shutdown, {
        notified(|| system_call(libc::SYS_shutdown, [i64::from(file), i64::from(how), 0, 0, 0, 0]))
    };
    /// Real timers are not simulated.
    timerfd_create(clock: libc::clockid_t, flags: c_int) -> c_int = SYS_timerfd_create, {
        if let Some(turn) = Turn::enter() {
            turn.uncovered("timerfd_create");
        }
        None
    };
}

/// Closes a descriptor, for which its peer may wait.
pub fn close(descriptor: c_int, close: impl FnOnce() -> c_int) -> c_int {
    let turn = Turn::enter();
    let turn = turn.filter(|turn| turn.is_file_awaited(true));
    let turn = turn.filter(|_| !matches!(kind_of(descriptor), Kind::Plain));
    let code = close();
    if let Some(turn) = turn {
        turn.notify(true);
    }
    code
}

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
        late = match files {
            [] => turn.block(Wait::Sleep, deadline, None, 0),
            files => turn.wait_files(files, deadline),
        };
    }
}

/// Nanoseconds of an optional time limit.
unsafe fn limit(time: *const timespec) -> Option<u64> {
    // SAFETY: the caller passes a valid time, or null for no limit.
    let time = unsafe { time.as_ref() };
    time.map(|time| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
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
    // SAFETY: the caller passes an array of that length.
    let asked = (0..count as usize).map(|number| unsafe { *files.add(number) });
    let asked = asked.filter(|one| one.fd >= 0).map(|one| (one.fd, one.events));
    let arguments = [files as i64, count as i64, 0, 0, 0, 0];
    waited("poll of many files", &few(asked), timeout, || system_call(libc::SYS_poll, arguments))
}

/// A short list, one element longer than permitted if there are more.
fn few(files: impl Iterator<Item = (c_int, c_short)>) -> Vec<(c_int, c_short)> {
    files.take(KEYS + 1).collect()
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
        // SAFETY: the caller passes sets of that many words, or null.
        let word = |number| if set.is_null() { 0 } else { unsafe { *set.add(number) } };
        (0..words).map(word).collect::<Vec<u64>>()
    });
    let kinds = before.iter().zip([READS, WRITES, libc::POLLPRI]);
    let asked = kinds.flat_map(|(words, events)| {
        let is_in = |file: &c_int| words[*file as usize / 64] >> (*file % 64) & 1 == 1;
        (0..count.min(words.len() as c_int * 64)).filter(is_in).map(move |file| (file, events))
    });
    let mut none = timeval { tv_sec: 0, tv_usec: 0 };
    let none = &raw mut none;
    let call = || {
        for (set, before) in sets.iter().zip(&before).filter(|(set, _)| !set.is_null()) {
            for (number, word) in before.iter().enumerate() {
                // SAFETY: as above.
                unsafe { *set.add(number) = *word };
            }
        }
        let [read, write, except] = sets.map(|set| set as i64);
        system_call(libc::SYS_select, [i64::from(count), read, write, except, none as i64, 0])
    };
    waited("select of many files", &few(asked), timeout, call)
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
    ) -> c_int = SYS_ppoll + 8, unsafe { polled(files, count, limit(time)) };
    epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, wait: c_int) -> c_int
        = SYS_epoll_wait, awaited(epoll, events, most, millis(wait));
    epoll_pwait2(
        epoll: c_int, events: *mut epoll_event, most: c_int, time: *const timespec,
        mask: *const sigset_t
        // SAFETY: the caller's arguments.
    ) -> c_int = SYS_epoll_pwait2 + 8, awaited(epoll, events, most, unsafe { limit(time) });
    epoll_pwait(
        epoll: c_int, events: *mut epoll_event, most: c_int, wait: c_int, mask: *const sigset_t
    ) -> c_int = SYS_epoll_pwait + 8, awaited(epoll, events, most, millis(wait));
    select(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, time: *mut timeval
        // SAFETY: the caller's arguments.
    ) -> c_int = SYS_select, unsafe { selected(count, [read, write, except], micros(time)) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __poll_chk(
    files: *mut pollfd,
    count: nfds_t,
    wait: c_int,
    _room: size_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { poll(files, count, wait) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __ppoll_chk(
    files: *mut pollfd,
    count: nfds_t,
    time: *const timespec,
    mask: *const sigset_t,
    _room: size_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { ppoll(files, count, time, mask) }
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
    if let Some(answer) = unsafe { selected(count, [read, write, except], limit(time)) } {
        return answer;
    }
    // SAFETY: the caller's arguments.
    unsafe { real!(pselect: Real)(count, read, write, except, time, mask) }
}

/// Waits for a signal, which comes from outside.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigwait(signals: *const sigset_t, found: *mut c_int) -> c_int {
    // SAFETY: the caller's arguments.
    let signal = unsafe { sigwaitinfo(signals, std::ptr::null_mut()) };
    if signal < 0 {
        return crate::real::errno();
    }
    // SAFETY: the caller passes a valid pointer.
    unsafe { *found = signal };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigwaitinfo(
    signals: *const sigset_t,
    found: *mut libc::siginfo_t,
) -> c_int {
    let wait = || {
        let arguments = [signals as i64, found as i64, 0, 8, 0, 0];
        system_call(libc::SYS_rt_sigtimedwait, arguments)
    };
    answer(Turn::enter().map_or_else(wait, |turn| turn.outside(wait))) as c_int
}
