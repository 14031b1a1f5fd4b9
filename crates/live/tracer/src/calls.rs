//! The system calls that are recorded.

use capture::{Call, FileKind};

use crate::processes::Descriptors;

/// A recorded system call.
#[derive(Debug, Clone, Copy)]
pub struct Recorded {
    /// Its number.
    pub number: i64,
    /// What it does.
    pub call: Call,
    /// Whether its first argument is a descriptor of any kind.
    pub descriptor: bool,
    /// It is always about messages.
    pub message: bool,
}

impl Recorded {
    /// Kind of file that a call of thread `tid` with this first argument acts on.
    pub fn file(&self, tid: u32, first: u64, descriptors: &mut Descriptors) -> FileKind {
        match (self.message, self.descriptor) {
            (true, _) => FileKind::Socket,
            (_, true) => descriptors.kind(tid, first as u32),
            _ => FileKind::Data,
        }
    }
}

const fn file(number: i64, call: Call) -> Recorded {
    Recorded { number, call, descriptor: true, message: false }
}

const fn message(number: i64, call: Call) -> Recorded {
    Recorded { number, call, descriptor: false, message: true }
}

const fn other(number: i64, call: Call) -> Recorded {
    Recorded { number, call, descriptor: false, message: false }
}

/// Common to all architectures.
const COMMON: &[Recorded] = &[
    file(libc::SYS_read, Call::Read),
    file(libc::SYS_pread64, Call::Read),
    file(libc::SYS_readv, Call::Read),
    file(libc::SYS_preadv, Call::Read),
    file(libc::SYS_preadv2, Call::Read),
    file(libc::SYS_write, Call::Write),
    file(libc::SYS_pwrite64, Call::Write),
    file(libc::SYS_writev, Call::Write),
    file(libc::SYS_pwritev, Call::Write),
    file(libc::SYS_pwritev2, Call::Write),
    file(libc::SYS_fsync, Call::Flush),
    file(libc::SYS_fdatasync, Call::Flush),
    file(libc::SYS_sync_file_range, Call::Write),
    file(libc::SYS_syncfs, Call::Flush),
    other(libc::SYS_msync, Call::Flush),
    other(libc::SYS_io_submit, Call::AsyncIo),
    other(libc::SYS_io_getevents, Call::AsyncIo),
    other(libc::SYS_io_uring_enter, Call::AsyncIo),
    message(libc::SYS_recvfrom, Call::Read),
    message(libc::SYS_recvmsg, Call::Read),
    message(libc::SYS_accept4, Call::Read),
    message(libc::SYS_sendto, Call::Write),
    message(libc::SYS_sendmsg, Call::Write),
    message(libc::SYS_ppoll, Call::Poll),
    message(libc::SYS_pselect6, Call::Poll),
    message(libc::SYS_epoll_pwait, Call::Poll),
    message(libc::SYS_epoll_pwait2, Call::Poll),
    other(libc::SYS_futex, Call::Lock),
    other(libc::SYS_semop, Call::Lock),
    other(libc::SYS_semtimedop, Call::Lock),
    other(libc::SYS_nanosleep, Call::Sleep),
    other(libc::SYS_clock_nanosleep, Call::Sleep),
    other(libc::SYS_rt_sigtimedwait, Call::Sleep),
    other(libc::SYS_wait4, Call::Sleep),
    // Continues the call before.
    other(libc::SYS_restart_syscall, Call::None),
];

/// Calls of x86-64 that newer architectures left out.
#[cfg(target_arch = "x86_64")]
const OLDER: &[Recorded] = &[
    message(libc::SYS_poll, Call::Poll),
    message(libc::SYS_select, Call::Poll),
    message(libc::SYS_epoll_wait, Call::Poll),
    message(libc::SYS_accept, Call::Read),
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[Recorded] = &[];

/// Every recorded call.
pub fn all() -> impl Iterator<Item = &'static Recorded> {
    COMMON.iter().chain(OLDER)
}
