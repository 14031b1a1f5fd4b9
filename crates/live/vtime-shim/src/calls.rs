//! System calls by number, and the dynamic linker.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Acquire;

use libc::{
    epoll_event, fd_set, mode_t, msghdr, pid_t, pollfd, rusage, sigset_t, size_t, sockaddr,
    socklen_t, timespec, timeval,
};
use vtime::wire::End;

use crate::real::{answer, calls, nanos, real, set_errno, system_call};
use crate::turn::{Turn, Wait, key_of};
use crate::{
    children, clock, dispatch, files, handlers, maps, polling, shared_memory, signal_files,
    signals, sockets, timers,
};

/// System calls by number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let arguments = [a, b, c, d, e, f];
    // SAFETY: the caller's arguments.
    let done = unsafe { by_number(number, arguments) };
    done.unwrap_or_else(|| answer(system_call(number, arguments)))
}

/// A system call that waits, uses files, or makes threads, as the function of the C library; `None` for
/// others.
pub unsafe fn by_number(number: i64, arguments: [i64; 6]) -> Option<i64> {
    let [a, b, c, d, ..] = arguments;
    let done = match number {
        libc::SYS_futex => {
            let real = || answer(system_call(number, arguments));
            // SAFETY: the caller's arguments, those of futex(2).
            unsafe { futex(&Turn::enter()?, (a, b, c, d), real) }
        }
        libc::SYS_sched_setattr if Turn::is_simulated() => 0,
        libc::SYS_fork | libc::SYS_vfork | libc::SYS_clone | libc::SYS_clone3 => {
            Turn::enter()?.uncovered("fork or clone by system call");
            -1
        }
        libc::SYS_sync | libc::SYS_syncfs => {
            Turn::enter()?.uncovered("sync by system call");
            -1
        }
        libc::SYS_openat2 | libc::SYS_waitid => {
            Turn::enter()?.uncovered("openat2 or waitid by system call");
            -1
        }
        libc::SYS_rt_sigprocmask if dispatch::is_prepared() => {
            // SAFETY: the caller's arguments.
            answer(unsafe { dispatch::change_mask(a, b as *const u64, c as *mut u64) })
        }
        libc::SYS_rt_sigaction if dispatch::is_prepared() => {
            // SAFETY: the caller's arguments.
            answer(unsafe { handlers::change_action(a, b as *const _, c as *mut _) })
        }
        // Programs fall back to reads, which are simulated.
        libc::SYS_io_uring_setup | libc::SYS_io_setup if Turn::is_simulated() => {
            set_errno(libc::ENOSYS);
            -1
        }
        // SAFETY: the caller's arguments.
        _ => unsafe {
            files_by_number(number, arguments)
                .or_else(|| waits_by_number(number, arguments))
                .or_else(|| sockets_by_number(number, arguments))
                .or_else(|| signals_by_number(number, arguments))
                .or_else(|| timers::by_number(number, arguments))?
        },
    };
    Some(done)
}

/// `FICLONE`, `FICLONERANGE`, `FIDEDUPERANGE` (linux/fs.h).
const CLONES: [i64; 3] = [0x4004_9409, 0x4020_940D, 0xC018_9436];

unsafe fn files_by_number(number: i64, arguments: [i64; 6]) -> Option<i64> {
    let [a, b, c, d, e, f] = arguments;
    let (file, path, other) = (a as c_int, a as *const c_char, b as *const c_char);
    let reads = [libc::SYS_read, libc::SYS_readv];
    let writes = [libc::SYS_write, libc::SYS_writev];
    let at = [libc::SYS_pread64, libc::SYS_preadv, libc::SYS_pwrite64, libc::SYS_pwritev];
    if reads.contains(&number) || writes.contains(&number) || at.contains(&number) {
        let offset = at.contains(&number).then_some(d);
        let is_write = writes.contains(&number) || at[2..].contains(&number);
        return Some(files::transfer(number, arguments, offset, is_write) as i64);
    }
    // SAFETY: the caller's arguments.
    let done = unsafe {
        match number {
            libc::SYS_open => files::open(path, b as c_int, c as mode_t),
            libc::SYS_openat => files::openat(file, other, c as c_int, d as mode_t),
            libc::SYS_creat => files::creat(path, b as mode_t),
            libc::SYS_close => files::close(file),
            libc::SYS_dup => files::dup(file),
            libc::SYS_dup2 => files::dup2(file, b as c_int),
            libc::SYS_dup3 => files::dup3(file, b as c_int, c as c_int),
            libc::SYS_fcntl => files::fcntl(file, b as c_int, c),
            libc::SYS_fsync => files::fsync(file),
            libc::SYS_fdatasync => files::fdatasync(file),
            libc::SYS_ftruncate => files::ftruncate(file, b),
            libc::SYS_fallocate => files::fallocate(file, b as c_int, c, d),
            libc::SYS_truncate => files::truncate(path, b),
            libc::SYS_unlink => files::unlink(path),
            libc::SYS_unlinkat => files::unlinkat(file, other, c as c_int),
            libc::SYS_rename => files::rename(path, other),
            libc::SYS_renameat => files::renameat(file, other, c as c_int, d as *const c_char),
            libc::SYS_renameat2 if e == 0 => {
                files::renameat(file, other, c as c_int, d as *const c_char)
            }
            libc::SYS_mmap if e as c_int >= 0 => {
                let (place, protection) = (a as *mut c_void, c as c_int);
                return Some(
                    maps::mmap(place, b as size_t, protection, d as c_int, e as c_int, f) as i64
                );
            }
            libc::SYS_munmap => maps::munmap(a as *mut c_void, b as size_t),
            libc::SYS_msync => maps::msync(a as *mut c_void, b as size_t, c as c_int),
            libc::SYS_fadvise64 => {
                let error = files::posix_fadvise(file, b, c, d as c_int);
                return Some(answer(-i64::from(error)));
            }
            libc::SYS_close_range => files::close_range(a as c_uint, b as c_uint, c as c_int),
            libc::SYS_madvise => maps::madvise(a as *mut c_void, b as size_t, c as c_int),
            libc::SYS_mprotect => maps::mprotect(a as *mut c_void, b as size_t, c as c_int),
            libc::SYS_mremap => {
                let (place, size) = (a as *mut c_void, b as size_t);
                let to = (d as c_int, e as *mut c_void);
                return Some(maps::mremap(place, size, c as size_t, to.0, to.1) as i64);
            }
            // Clones, which a file system would make at once.
            libc::SYS_ioctl if CLONES.contains(&b) => {
                return files::copies([file, c as c_int], libc::EOPNOTSUPP).map(|done| done as i64);
            }
            libc::SYS_preadv2 | libc::SYS_pwritev2 => {
                files::refuse_flags("preadv2 or pwritev2", file);
                return None;
            }
            _ => return None,
        }
    };
    Some(i64::from(done))
}

unsafe fn waits_by_number(number: i64, arguments: [i64; 6]) -> Option<i64> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the caller's arguments.
    let done = unsafe {
        match number {
            libc::SYS_nanosleep => clock::nanosleep(a as *const timespec, b as *mut timespec),
            libc::SYS_clock_nanosleep if Turn::is_simulated() => {
                let time = (c as *const timespec, d as *mut timespec);
                let error = clock::clock_nanosleep(a as c_int, b as c_int, time.0, time.1);
                return Some(answer(-i64::from(error)));
            }
            libc::SYS_gettimeofday if Turn::is_simulated() => {
                clock::gettimeofday(a as *mut timeval, b as *mut c_void)
            }
            libc::SYS_time if Turn::is_simulated() => {
                return Some(clock::time(a as *mut libc::time_t));
            }
            libc::SYS_getrusage => clock::getrusage(a as c_int, b as *mut rusage),
            libc::SYS_sched_setaffinity => {
                clock::sched_setaffinity(a as pid_t, b as size_t, c as *const libc::cpu_set_t)
            }
            libc::SYS_sched_getaffinity if Turn::is_simulated() => {
                // The system call returns how many bytes it wrote.
                let size = (b as size_t).min(size_of::<libc::cpu_set_t>());
                clock::sched_getaffinity(a as pid_t, size, c as *mut libc::cpu_set_t);
                return Some(size as i64);
            }
            libc::SYS_epoll_pwait2 if Turn::is_simulated() => {
                let (events, time) = (b as *mut epoll_event, d as *const timespec);
                polling::epoll_pwait2(a as c_int, events, c as c_int, time, e as *const sigset_t)
            }
            libc::SYS_sched_yield => clock::sched_yield(),
            libc::SYS_clock_gettime if Turn::is_simulated() && (0..=11).contains(&a) => {
                clock::clock_gettime(a as c_int, b as *mut timespec)
            }
            libc::SYS_poll => polling::poll(a as *mut pollfd, b as u64, c as c_int),
            libc::SYS_ppoll if Turn::is_simulated() => {
                let (time, mask) = (c as *const timespec, d as *const sigset_t);
                polling::ppoll(a as *mut pollfd, b as u64, time, mask)
            }
            libc::SYS_select => {
                let [read, write, except] = [b, c, d].map(|set| set as *mut fd_set);
                polling::select(a as c_int, read, write, except, e as *mut timeval)
            }
            libc::SYS_pselect6 if Turn::is_simulated() => {
                let [read, write, except] = [b, c, d].map(|set| set as *mut fd_set);
                // The sixth argument points to the mask and its size.
                let mask = (f as *const *const sigset_t).as_ref();
                let mask = mask.map_or(std::ptr::null(), |mask| *mask);
                polling::pselect(a as c_int, read, write, except, e as *const timespec, mask)
            }
            libc::SYS_epoll_wait => {
                polling::epoll_wait(a as c_int, b as *mut epoll_event, c as c_int, d as c_int)
            }
            libc::SYS_epoll_pwait if Turn::is_simulated() => {
                let (events, mask) = (b as *mut epoll_event, e as *const sigset_t);
                polling::epoll_pwait(a as c_int, events, c as c_int, d as c_int, mask)
            }
            libc::SYS_wait4 => {
                children::wait4(a as pid_t, b as *mut c_int, c as c_int, d as *mut rusage)
            }
            libc::SYS_exit_group if Turn::is_simulated() => children::_exit(a as c_int),
            _ => return None,
        }
    };
    Some(i64::from(done))
}

unsafe fn sockets_by_number(number: i64, arguments: [i64; 6]) -> Option<i64> {
    let [a, b, c, d, e, f] = arguments;
    let (file, data, size) = (a as c_int, b as *mut c_void, c as size_t);
    let (address, length) = (b as *mut sockaddr, c as *mut socklen_t);
    // SAFETY: the caller's arguments.
    let done = unsafe {
        match number {
            libc::SYS_recvfrom => {
                let from = (e as *mut sockaddr, f as *mut socklen_t);
                return Some(sockets::recvfrom(file, data, size, d as c_int, from.0, from.1) as i64);
            }
            libc::SYS_sendto => {
                let to = (e as *const sockaddr, f as socklen_t);
                return Some(sockets::sendto(file, data, size, d as c_int, to.0, to.1) as i64);
            }
            libc::SYS_recvmsg => {
                return Some(sockets::recvmsg(file, b as *mut msghdr, c as c_int) as i64);
            }
            libc::SYS_sendmsg => {
                return Some(sockets::sendmsg(file, b as *const msghdr, c as c_int) as i64);
            }
            libc::SYS_accept => sockets::accept(file, address, length),
            libc::SYS_accept4 => sockets::accept4(file, address, length, d as c_int),
            libc::SYS_connect => sockets::connect(file, address, c as socklen_t),
            libc::SYS_shutdown => sockets::shutdown(file, b as c_int),
            libc::SYS_timerfd_create => sockets::timerfd_create(a as c_int, b as c_int),
            libc::SYS_copy_file_range => {
                return files::copies([file, c as c_int], libc::EXDEV).map(|done| done as i64);
            }
            libc::SYS_sendfile => {
                return files::copies([file, b as c_int], libc::EINVAL).map(|done| done as i64);
            }
            _ => return None,
        }
    };
    Some(i64::from(done))
}

unsafe fn signals_by_number(number: i64, arguments: [i64; 6]) -> Option<i64> {
    let [a, b, c, d, ..] = arguments;
    let sent = match number {
        libc::SYS_kill | libc::SYS_rt_sigqueueinfo => Some((a, b)),
        libc::SYS_tkill => Some((0, b)),
        libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo => Some((a, c)),
        libc::SYS_pidfd_send_signal => Some((0, b)),
        _ => None,
    };
    if let Some(to) = sent {
        return signals::send(number, arguments, to);
    }
    if !Turn::is_simulated() {
        return None;
    }
    // SAFETY: the caller's arguments.
    let done = unsafe {
        match number {
            libc::SYS_rt_sigsuspend => signals::sigsuspend(a as *const sigset_t),
            libc::SYS_pause => signals::pause(),
            libc::SYS_rt_sigtimedwait => {
                let (signals, found) = (a as *const sigset_t, b as *mut libc::siginfo_t);
                signals::sigtimedwait(signals, found, c as *const timespec)
            }
            libc::SYS_signalfd | libc::SYS_signalfd4 => {
                let _turn = Turn::enter()?;
                let flags = if number == libc::SYS_signalfd4 { d } else { 0 };
                return Some(answer(signal_files::open(a as c_int, b as *const u64, flags)));
            }
            _ => return None,
        }
    };
    Some(i64::from(done))
}

unsafe fn futex(
    turn: &Turn,
    (word, operation, value, time): (c_long, c_long, c_long, c_long),
    real: impl FnOnce() -> c_long,
) -> c_long {
    let word_at = word as *const u8;
    let is_shared = operation as c_int & libc::FUTEX_PRIVATE_FLAG == 0;
    let key = if is_shared { shared_memory::key(word_at) } else { key_of(word_at) };
    let plain = libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME;
    match operation as c_int & !plain {
        command @ (libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET) => {
            turn.tick();
            // SAFETY: the caller passes a valid futex word.
            let now = unsafe { AtomicI32::from_ptr(word as *mut i32) }.load(Acquire);
            if now != value as i32 {
                set_errno(libc::EAGAIN);
                return -1;
            }
            // SAFETY: the caller passes a valid time, or null for no limit.
            let time = unsafe { (time as *const timespec).as_ref() };
            let deadline = time.map(|time| match command {
                libc::FUTEX_WAIT => turn.now().saturating_add(nanos(*time)),
                _ => turn.deadline(*time),
            });
            let error = match turn.block(Wait::Lock, deadline, Some(key), 0) {
                End::Woken => return 0,
                End::Late => libc::ETIMEDOUT,
                End::Interrupted => libc::EINTR,
            };
            set_errno(error);
            -1
        }
        libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => {
            let most = u64::try_from(value as i32).unwrap_or(u64::MAX);
            let woken = turn.wake(key, most);
            // Threads outside of the simulation wait in the kernel.
            if (woken as u64) < most { woken + real().max(0) } else { woken }
        }
        // Waiters are in the simulation, not in the kernel.
        libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE | libc::FUTEX_WAKE_OP => {
            turn.uncovered("futex operation");
            -1
        }
        _ => real(),
    }
}

calls! {
    /// The dynamic linker holds its own lock during the call, so the turn must not be given up.
    dlopen(name: *const c_char, flags: c_int) -> *mut c_void = {
        let _turn = Turn::enter();
        // SAFETY: the caller's arguments.
        unsafe { real!(dlopen: unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void)(name, flags) }
    };
    dlclose(library: *mut c_void) -> c_int = {
        let _turn = Turn::enter();
        // SAFETY: the caller's argument.
        unsafe { real!(dlclose: unsafe extern "C" fn(*mut c_void) -> c_int)(library) }
    };
}
