//! Sockets and pipes.
//!
//! The real call is made without blocking, and its CPU time is charged; a thread whose file is not ready
//! waits in the simulation. The streams that a program was started with lead out of the simulation, so
//! waiting for them is real.

use std::ffi::{c_int, c_short, c_void};

use libc::{iovec, msghdr, pollfd, size_t, sockaddr, socklen_t, ssize_t};

use crate::maps::touch_buffers;
use crate::real::{answer, calls, kernel, system_call};
use crate::regions;
use crate::streams::{self, status};
use crate::turn::Turn;

const AGAIN: i64 = -(libc::EAGAIN as i64);
const INTERRUPTED: i64 = -(libc::EINTR as i64);
const UNSUPPORTED: i64 = -(libc::EOPNOTSUPP as i64);
/// Major number of /dev/null, /dev/zero, /dev/random (Documentation/admin-guide/devices.txt).
const MEMORY: u32 = 1;
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
    /// It is always ready, but a signal may end a transfer early: /dev/zero, /dev/urandom.
    Memory,
}

fn kind_of(descriptor: c_int) -> Kind {
    let Some(file) = status(descriptor) else { return Kind::Plain };
    match file.st_mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK => Kind::Plain,
        _ if streams::is_standard(&file) => Kind::Outside,
        libc::S_IFCHR if libc::major(file.st_rdev) == MEMORY => Kind::Memory,
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

/// Waits until the file is ready, unless it does not block; false if a signal ended that.
fn wait_until_ready(turn: &Turn, descriptor: c_int, events: c_short) -> bool {
    turn.tick();
    while !is_ready(descriptor, events) && blocks(descriptor) {
        if !turn.await_file(descriptor, events) {
            return false;
        }
    }
    true
}

/// A read or write by the system call, of a file that is not on the drive.
pub fn exchange(number: i64, arguments: [i64; 6], writes: bool) -> ssize_t {
    let descriptor = arguments[0] as c_int;
    let events = if writes { WRITES } else { READS };
    let real = || system_call(number, arguments);
    if regions::is_any() {
        touch_buffers(number, arguments, !writes);
    }
    let Some(turn) = Turn::enter() else { return answer(real()) as ssize_t };
    let kind = kind_of(descriptor);
    let done = match kind {
        Kind::Plain => turn.charged(real),
        Kind::Memory => turn.charged(|| whole_read(number, arguments)),
        Kind::Outside if is_ready(descriptor, events) => turn.charged(real),
        Kind::Outside => turn.outside(real),
        Kind::Socket | Kind::Pipe => match whole(&turn, (number, &kind), arguments) {
            Some(done) if done != UNSUPPORTED => done,
            _ if !wait_until_ready(&turn, descriptor, events) => INTERRUPTED,
            _ => {
                let done = turn.charged(real);
                turn.notify(writes);
                done
            }
        },
    };
    answer(done) as ssize_t
}

/// Reads again what a signal of this library has cut off.
fn whole_read(number: i64, [file, data, size, rest @ ..]: [i64; 6]) -> i64 {
    let mut sum = 0;
    loop {
        let [c, d, e] = rest;
        let done = system_call(number, [file, data + sum, size - sum, c, d, e]);
        if done > 0 {
            sum += done;
        }
        if number != libc::SYS_read || done <= 0 || sum >= size {
            return if sum > 0 { sum } else { done };
        }
    }
}

/// A write of all data by calls that do not block; `None` for other calls.
fn whole(turn: &Turn, (number, kind): (i64, &Kind), arguments: [i64; 6]) -> Option<i64> {
    let [file, data, size, ..] = arguments;
    let is_socket = matches!(kind, Kind::Socket);
    let parts = |parts: i64, count: i64| match is_socket {
        true => send_parts([file, parts, count], libc::MSG_DONTWAIT),
        false => write_parts([file, parts, count]),
    };
    match number {
        libc::SYS_write if is_socket => Some(send_all(turn, [file, data, size, 0, 0, 0])),
        libc::SYS_write => Some(write_all(turn, arguments)),
        libc::SYS_writev => {
            let all = (data as *const iovec, size as usize);
            Some(all_parts(turn, (file, waits(file, 0)), all, (|| parts(data, size), &parts)))
        }
        _ => None,
    }
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
fn write_all(turn: &Turn, arguments: [i64; 6]) -> i64 {
    let [file, data, size, ..] = arguments;
    sent_all(turn, (file, size), waits(file, 0), |sent| {
        let rest =
            iovec { iov_base: (data + sent) as *mut c_void, iov_len: (size - sent) as usize };
        write_parts([file, (&raw const rest) as i64, 1])
    })
}

/// Writes parts to a pipe without waiting, if the kernel can (since Linux 6.4).
fn write_parts([file, parts, count]: [i64; 3]) -> i64 {
    // At the file's own offset.
    let (here, now) = (-1, i64::from(libc::RWF_NOWAIT));
    system_call(libc::SYS_pwritev2, [file, parts, count, here, here, now])
}

/// Sends parts to a socket.
fn send_parts([file, parts, count]: [i64; 3], flags: c_int) -> i64 {
    // SAFETY: all zeros is a valid value of this struct.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (parts as *mut iovec, count as usize);
    let message = (&raw const message) as i64;
    system_call(libc::SYS_sendmsg, [file, message, i64::from(flags), 0, 0, 0])
}

/// The kernel's limit of parts.
const PARTS_MAX: usize = libc::UIO_MAXIOV as usize;

/// Sends parts by calls that do not block: `first` as the caller made it, and one for what is left of them.
fn all_parts(
    turn: &Turn,
    (file, waits): (i64, bool),
    (parts, count): (*const iovec, usize),
    (first, further): (impl Fn() -> i64, impl Fn(i64, i64) -> i64),
) -> i64 {
    turn.tick();
    let mut begun = turn.charged(&first);
    while begun == AGAIN && waits {
        if !turn.await_file(file as c_int, WRITES) {
            return INTERRUPTED;
        }
        begun = turn.charged(&first);
    }
    if begun > 0 {
        turn.notify(true);
    }
    if begun <= 0 || !waits || count > PARTS_MAX {
        return begun;
    }
    // SAFETY: the kernel has just read these parts.
    let given = unsafe { std::slice::from_raw_parts(parts, count) };
    let size = given.iter().fold(0, |sum: usize, part| sum.saturating_add(part.iov_len)) as i64;
    if begun >= size {
        return begun;
    }
    // Not on the heap: the caller may be an allocator.
    let mut left = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS_MAX];
    left[..count].copy_from_slice(given);
    let mut gone = 0;
    let rest = sent_all(turn, (file, size - begun), true, |sent| {
        for part in &mut left[..count] {
            let skip = part.iov_len.min((begun + sent) as usize - gone);
            part.iov_base = part.iov_base.wrapping_byte_add(skip);
            (part.iov_len, gone) = (part.iov_len - skip, gone + skip);
        }
        further(left.as_ptr() as i64, count as i64)
    });
    begun + rest.max(0)
}

/// Repeats a call that does not block, given how much it has sent, until all is sent.
fn sent_all(
    turn: &Turn,
    (file, size): (i64, i64),
    waits: bool,
    mut call: impl FnMut(i64) -> i64,
) -> i64 {
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
            AGAIN if waits && turn.await_file(file as c_int, WRITES) => {}
            0.. => return sent,
            _ if sent > 0 => return sent,
            AGAIN if waits => return INTERRUPTED,
            error => return error,
        }
    }
}

/// A call that receives, given the flags that it is made with.
fn receive(turn: &Turn, (file, flags): (i64, i64), call: impl Fn(i64) -> i64) -> i64 {
    turn.tick();
    let mut done = turn.charged(|| call(flags | i64::from(libc::MSG_DONTWAIT)));
    while done == AGAIN && waits(file, flags) {
        if !turn.await_file(file as c_int, READS) {
            return INTERRUPTED;
        }
        done = turn.charged(|| call(flags | i64::from(libc::MSG_DONTWAIT)));
    }
    if done > 0 {
        turn.notify(false);
    }
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

/// A connection is accepted.
fn accepted(file: c_int, call: impl Fn() -> i64) -> Option<c_int> {
    let turn = Turn::enter()?;
    let ready = wait_until_ready(&turn, file, READS);
    let done = if ready { turn.charged(call) } else { INTERRUPTED };
    Some(answer(done) as c_int)
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
            let (descriptor, now) = (i64::from(file), flags | libc::MSG_DONTWAIT);
            // Addresses and control data go with the first part.
            let first = || {
                let whole = [descriptor, message as i64, i64::from(now), 0, 0, 0];
                system_call(libc::SYS_sendmsg, whole)
            };
            let further = |parts: i64, count: i64| send_parts([descriptor, parts, count], now);
            let none = (std::ptr::null(), 0);
            // SAFETY: the caller's message; null is left to the kernel.
            let parts = unsafe { message.as_ref() };
            let parts = parts.map_or(none, |one| (one.msg_iov.cast_const(), one.msg_iovlen));
            let waits = waits(descriptor, i64::from(flags));
            answer(all_parts(&turn, (descriptor, waits), parts, (first, further))) as ssize_t
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
    /// A connection to this machine is made at once, unless too many wait to be accepted.
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

calls! {
    recv(file: c_int, data: *mut c_void, size: size_t, flags: c_int) -> ssize_t = {
        let none = std::ptr::null_mut();
        // SAFETY: the caller's arguments.
        unsafe { recvfrom(file, data, size, flags, none, none.cast()) }
    };
    send(file: c_int, data: *const c_void, size: size_t, flags: c_int) -> ssize_t = {
        // SAFETY: the caller's arguments.
        unsafe { sendto(file, data, size, flags, std::ptr::null(), 0) }
    };
    __recv_chk(file: c_int, data: *mut c_void, size: size_t, room: size_t,
        flags: c_int) -> ssize_t = {
        assert!(size <= room, "buffer overflow");
        // SAFETY: the caller's arguments.
        unsafe { recv(file, data, size, flags) }
    };
}
