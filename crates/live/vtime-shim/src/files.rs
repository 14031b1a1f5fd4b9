//! Files on the modelled drive: the real operation is done at once, then its simulated time is waited for.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use libc::{iovec, mode_t, off_t, size_t, ssize_t};
use vtime::wire::{Call, access, resize};

use crate::descriptors::{self, file_id, file_of, note_duplicate, note_opened, status};
use crate::dispatch;
use crate::maps;
use crate::real::{answer, calls, errno, kernel, real, same, system_call};
use crate::regions::{defer_removal, released};
use crate::signal_files;
use crate::sockets;
use crate::turn::Turn;

/// How often a call is repeated whose buffers are not accessible.
const TRIES: usize = 8;

/// Flags that would make a file of the drive wait for this machine's disk.
const REAL: c_int = libc::O_DIRECT | libc::O_SYNC | libc::O_DSYNC;

unsafe fn open_at(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let open = |flags: c_int| {
        let arguments = [i64::from(folder), path as i64, i64::from(flags), i64::from(mode), 0, 0];
        system_call(libc::SYS_openat, arguments)
    };
    let Some(turn) = Turn::enter_file() else { return answer(open(flags)) as c_int };
    let mut descriptor = open(flags & !REAL);
    if descriptor >= 0 {
        note_opened(&turn, descriptor as c_int, flags);
        if flags & REAL != 0 && file_of(descriptor as c_int).is_none() {
            system_call(libc::SYS_close, [descriptor, 0, 0, 0, 0, 0]);
            descriptor = open(flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC));
        }
    }
    answer(descriptor) as c_int
}

/// Defines functions that open a file, relative to a directory or not; those without a mode are used by
/// programs compiled with `_FORTIFY_SOURCE`.
macro_rules! opens {
    ($($name:ident($($folder:ident)? $(; $mode:ident)?);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($folder: c_int,)? path: *const c_char, flags: c_int, $($mode: mode_t)?
        ) -> c_int {
            let folder = [$($folder,)? libc::AT_FDCWD][0];
            let mode = [$($mode,)? 0][0];
            // SAFETY: the caller's arguments.
            unsafe { open_at(folder, path, flags, mode) }
        }
    )*};
}
opens! {
    open(; mode);
    open64(; mode);
    openat(folder; mode);
    openat64(folder; mode);
    __open_2();
    __open64_2();
    __openat_2(folder);
    __openat64_2(folder);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(descriptor: c_int) -> c_int {
    released(descriptors::closed(descriptor));
    signal_files::closed(descriptor);
    sockets::close(descriptor, || {
        answer(system_call(libc::SYS_close, [i64::from(descriptor), 0, 0, 0, 0, 0])) as c_int
    })
}

/// Reads or writes by the system call, and waits for its simulated time. `offset` is `None` for the file's
/// own offset.
pub fn transfer(number: i64, arguments: [i64; 6], offset: Option<i64>, writes: bool) -> ssize_t {
    let descriptor = arguments[0] as c_int;
    let found = file_of(descriptor);
    let Some(((file, flags), mut turn)) =
        found.and_then(|found| Some((found, Turn::enter_file()?)))
    else {
        return sockets::exchange(number, arguments, writes);
    };
    turn.tick();
    let mut done = system_call(number, arguments);
    // A later fault can evict a page that an earlier one brought.
    for _ in 0..TRIES {
        if done != -i64::from(libc::EFAULT) {
            break;
        }
        // The faults of the buffer are the program's.
        drop(turn);
        let touched = maps::touch_buffers(number, arguments, !writes);
        let Some(again) = Turn::enter_file() else { return answer(done) as ssize_t };
        turn = again;
        if !touched {
            break;
        }
        done = system_call(number, arguments);
    }
    let done = answer(done);
    if done > 0 {
        let here = || {
            let ask = [arguments[0], 0, i64::from(libc::SEEK_CUR), 0, 0, 0];
            system_call(libc::SYS_lseek, ask) - done
        };
        let offset = offset.unwrap_or_else(here) as u64;
        let flags = flags | if writes { access::WRITE } else { 0 };
        turn.call(Call::Access, &[file, offset, done as u64, flags]);
        maps::unmap(&turn);
    }
    done as ssize_t
}

/// Defines a function that reads or writes: its name, its system call, whether it writes, its parameters, and
/// the offset.
macro_rules! transfers {
    ($($name:ident = $number:ident, $writes:literal, ($($argument:ident: $type:ty),*), $offset:expr;)*) => {$(
        #[allow(clippy::cast_lossless, reason = "pointers and integers of several sizes")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(descriptor: c_int, $($argument: $type),*) -> ssize_t {
            let mut arguments = [i64::from(descriptor), 0, 0, 0, 0, 0];
            let given = [$($argument as i64),*];
            arguments[1..=given.len()].copy_from_slice(&given);
            transfer(libc::$number, arguments, $offset, $writes)
        }
    )*};
}
transfers! {
    read = SYS_read, false, (data: *mut c_void, size: size_t), None;
    write = SYS_write, true, (data: *const c_void, size: size_t), None;
    pread = SYS_pread64, false, (data: *mut c_void, size: size_t, offset: off_t), Some(offset);
    pread64 = SYS_pread64, false, (data: *mut c_void, size: size_t, offset: off_t), Some(offset);
    pwrite = SYS_pwrite64, true, (data: *const c_void, size: size_t, offset: off_t), Some(offset);
    pwrite64 = SYS_pwrite64, true, (data: *const c_void, size: size_t, offset: off_t), Some(offset);
    readv = SYS_readv, false, (parts: *const iovec, count: c_int), None;
    writev = SYS_writev, true, (parts: *const iovec, count: c_int), None;
    preadv = SYS_preadv, false, (parts: *const iovec, count: c_int, offset: off_t), Some(offset);
    preadv64 = SYS_preadv, false, (parts: *const iovec, count: c_int, offset: off_t), Some(offset);
    pwritev = SYS_pwritev, true, (parts: *const iovec, count: c_int, offset: off_t), Some(offset);
    pwritev64 = SYS_pwritev, true, (parts: *const iovec, count: c_int, offset: off_t), Some(offset);
}

/// Defines the variants used by programs compiled with `_FORTIFY_SOURCE`, with the buffer size as an
/// argument.
macro_rules! checked {
    ($($name:ident = $plain:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            descriptor: c_int, data: *mut c_void, size: size_t, $($argument: $type,)* room: size_t
        ) -> ssize_t {
            assert!(size <= room, "buffer overflow");
            // SAFETY: the caller's arguments.
            unsafe { $plain(descriptor, data, size $(, $argument)*) }
        }
    )*};
}
checked! {
    __read_chk = read();
    __pread_chk = pread(offset: off_t);
    __pread64_chk = pread64(offset: off_t);
}

/// Only the simulated flush takes place: the contents need not survive this machine.
pub fn flush(descriptor: c_int, number: i64, metadata: bool) -> c_int {
    let found = file_of(descriptor);
    let Some(((file, _), turn)) = found.and_then(|found| Some((found, Turn::enter_file()?))) else {
        return answer(system_call(number, [i64::from(descriptor), 0, 0, 0, 0, 0])) as c_int;
    };
    turn.tick();
    turn.call(Call::Sync, &[file, u64::from(metadata), 0, 0]);
    maps::unmap(&turn);
    0
}

/// The size of a file may have changed, or something else of that kind ([`resize`]).
fn resized(descriptor: c_int, code: i64, kind: u64) -> i64 {
    let found = file_of(descriptor).and_then(|found| Some((found, Turn::enter_file()?)));
    if let Some(((file, _), turn)) = found
        && code == 0
        && let Some(found) = status(descriptor)
    {
        turn.call(Call::Resize, &[file, found.st_size as u64, kind, 0]);
    }
    code
}

/// fstatat(2) of a path in a directory, without following a link.
fn status_at([folder, path]: [i64; 2]) -> Option<libc::stat> {
    // SAFETY: all zeros is a valid value of this struct.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    let place = &raw mut found as i64;
    let ask = [folder, path, place, i64::from(libc::AT_SYMLINK_NOFOLLOW), 0, 0];
    (system_call(libc::SYS_newfstatat, ask) == 0).then_some(found)
}

/// A call that removes the file at a path in a directory, if there is one.
fn removes(number: i64, arguments: [i64; 6], file: [i64; 2]) -> c_int {
    let turn = Turn::enter_file();
    let found = turn.as_ref().and_then(|_| status_at(file)).filter(|found| found.st_nlink == 1);
    let code = answer(system_call(number, arguments)) as c_int;
    if let (Some(turn), Some(found), 0) = (turn, found, code)
        // A file that was renamed to its own name is still there.
        && status_at(file).is_none_or(|now| file_id(&now) != file_id(&found))
        && !defer_removal(&turn, file_id(&found))
    {
        turn.call(Call::Remove, &[file_id(&found)]);
    }
    code
}

/// Advice on a file: disables read-ahead, or drops pages. Explicit read-ahead is not simulated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_fadvise(
    descriptor: c_int,
    offset: off_t,
    size: off_t,
    advice: c_int,
) -> c_int {
    let found = file_of(descriptor).and_then(|found| Some((found, Turn::enter_file()?)));
    let Some(((file, flags), turn)) = found else {
        let arguments = [i64::from(descriptor), offset, size, i64::from(advice), 0, 0];
        return -(system_call(libc::SYS_fadvise64, arguments) as c_int);
    };
    match advice {
        libc::POSIX_FADV_RANDOM => descriptors::set_flags(descriptor, flags | access::RANDOM),
        libc::POSIX_FADV_NORMAL | libc::POSIX_FADV_SEQUENTIAL => {
            descriptors::set_flags(descriptor, flags & !access::RANDOM);
        }
        libc::POSIX_FADV_DONTNEED => {
            turn.call(Call::Evict, &[file, offset as u64, size as u64]);
        }
        _ => {}
    }
    0
}

/// Whether system calls of the C library are caught, which then need no preparation.
fn is_caught() -> bool {
    dispatch::is_prepared() && Turn::is_simulated()
}

/// Copies within the kernel fail as between file systems, so programs copy by reads and writes.
pub fn copies(files: [c_int; 2], error: c_int) -> Option<ssize_t> {
    files.iter().find(|file| file_of(**file).is_some())?;
    let _turn = Turn::enter_file()?;
    Some(answer(-i64::from(error)) as ssize_t)
}

/// Reads and writes with flags are not simulated.
pub fn refuse_flags(name: &str, file: c_int) {
    if file_of(file).is_some()
        && let Some(turn) = Turn::enter_file()
    {
        turn.uncovered(name);
    }
}

kernel! {
    copy_file_range(
        from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, size: size_t, flags: c_uint
    ) -> ssize_t = SYS_copy_file_range, copies([from, to], libc::EXDEV);
    sendfile(to: c_int, from: c_int, offset: *mut off_t, size: size_t) -> ssize_t
        = SYS_sendfile, copies([from, to], libc::EINVAL);
    /// Requested write-back ahead of a flush is charged to the flush.
    sync_file_range(descriptor: c_int, offset: off_t, size: off_t, flags: c_uint) -> c_int
        = SYS_sync_file_range, (file_of(descriptor).is_some() && Turn::is_simulated()).then_some(0);
}

same! {
    ftruncate64 = ftruncate(descriptor: c_int, size: off_t) -> c_int;
    fallocate64 = fallocate(descriptor: c_int, mode: c_int, offset: off_t, size: off_t) -> c_int;
    posix_fadvise64 = posix_fadvise(descriptor: c_int, offset: off_t, size: off_t, advice: c_int) -> c_int;
    sendfile64 = sendfile(to: c_int, from: c_int, offset: *mut off_t, size: size_t) -> ssize_t;
    posix_fallocate64 = posix_fallocate(descriptor: c_int, offset: off_t, size: off_t) -> c_int;
    truncate64 = truncate(path: *const c_char, size: off_t) -> c_int;
    fcntl64 = fcntl(descriptor: c_int, command: c_int, argument: c_long) -> c_int;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(descriptor: c_int, command: c_int, argument: c_long) -> c_int {
    // A file of the drive does not wait for this machine's disk.
    let on_drive = command == libc::F_SETFL && file_of(descriptor).is_some();
    let real = if on_drive { argument & !c_long::from(REAL) } else { argument };
    let arguments = [i64::from(descriptor), i64::from(command), real, 0, 0, 0];
    let code = answer(system_call(libc::SYS_fcntl, arguments)) as c_int;
    match command {
        libc::F_GETFL if code >= 0 => match file_of(descriptor) {
            Some((_, flags)) if flags & access::DIRECT != 0 => code | libc::O_DIRECT,
            _ => code,
        },
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => note_duplicate(descriptor, code),
        libc::F_SETFL if code == 0 => {
            descriptors::set_direct(descriptor, argument as c_int & libc::O_DIRECT != 0);
            code
        }
        _ => code,
    }
}

/// Reads and writes with flags are not simulated yet.
macro_rules! with_flags {
    ($($name:ident = $number:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            descriptor: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int
        ) -> ssize_t {
            refuse_flags(stringify!($name), descriptor);
            let (file, count) = (i64::from(descriptor), i64::from(count));
            let arguments = [file, parts as i64, count, offset, 0, i64::from(flags)];
            answer(system_call(libc::$number, arguments)) as ssize_t
        }
    )*};
}
with_flags! {
    preadv2 = SYS_preadv2;
    preadv64v2 = SYS_preadv2;
    pwritev2 = SYS_pwritev2;
    pwritev64v2 = SYS_pwritev2;
}

calls! {
    creat(path: *const c_char, mode: mode_t) -> c_int = {
        let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
        // SAFETY: the caller's arguments.
        unsafe { open_at(libc::AT_FDCWD, path, flags, mode) }
    };
    dup(from: c_int) -> c_int = {
        let made = answer(system_call(libc::SYS_dup, [i64::from(from), 0, 0, 0, 0, 0]));
        note_duplicate(from, made as c_int)
    };
    dup2(from: c_int, to: c_int) -> c_int = {
        let arguments = [i64::from(from), i64::from(to), 0, 0, 0, 0];
        note_duplicate(from, answer(system_call(libc::SYS_dup2, arguments)) as c_int)
    };
    fsync(descriptor: c_int) -> c_int = flush(descriptor, libc::SYS_fsync, true);
    fdatasync(descriptor: c_int) -> c_int = flush(descriptor, libc::SYS_fdatasync, false);
    ftruncate(descriptor: c_int, size: off_t) -> c_int = {
        let arguments = [i64::from(descriptor), size, 0, 0, 0, 0];
        resized(descriptor, answer(system_call(libc::SYS_ftruncate, arguments)), resize::SET) as c_int
    };
    fallocate(descriptor: c_int, mode: c_int, offset: off_t, size: off_t) -> c_int = {
        let arguments = [i64::from(descriptor), i64::from(mode), offset, size, 0, 0];
        let keeps = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let kind = if keeps { resize::ALLOCATED } else { resize::SET };
        resized(descriptor, answer(system_call(libc::SYS_fallocate, arguments)), kind) as c_int
    };
    unlink(path: *const c_char) -> c_int = {
        // SAFETY: the caller's argument.
        unsafe { unlinkat(libc::AT_FDCWD, path, 0) }
    };
    unlinkat(folder: c_int, path: *const c_char, flags: c_int) -> c_int = {
        let file = [i64::from(folder), path as i64];
        removes(libc::SYS_unlinkat, [file[0], file[1], i64::from(flags), 0, 0, 0], file)
    };
    /// The C library's own calls of these are not replaced.
    remove(path: *const c_char) -> c_int = {
        // SAFETY: the caller's argument.
        match unsafe { unlink(path) } {
            // SAFETY: the caller's argument.
            -1 if errno() == libc::EISDIR => unsafe { libc::rmdir(path) },
            code => code,
        }
    };
    truncate(path: *const c_char, size: off_t) -> c_int = {
        let code = answer(system_call(libc::SYS_truncate, [path as i64, size, 0, 0, 0, 0])) as c_int;
        if code == 0 && let Some(turn) = Turn::enter_file() {
            let here = i64::from(libc::AT_FDCWD);
            let flags = i64::from(libc::O_PATH | libc::O_CLOEXEC);
            let file = system_call(libc::SYS_openat, [here, path as i64, flags, 0, 0, 0]);
            if let Some(found) = descriptors::on_drive(file as c_int) {
                turn.call(Call::Resize, &[file_id(&found), size as u64, resize::SET, 0]);
            }
            system_call(libc::SYS_close, [file, 0, 0, 0, 0, 0]);
        }
        code
    };
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = {
        if flags as c_uint & libc::CLOSE_RANGE_CLOEXEC == 0 {
            let closed = |one| released(descriptors::closed(one as c_int));
            (first..=last.min(descriptors::LAST)).for_each(closed);
        }
        let arguments = [i64::from(first), i64::from(last), i64::from(flags), 0, 0, 0];
        answer(system_call(libc::SYS_close_range, arguments)) as c_int
    };
    closedir(directory: *mut libc::DIR) -> c_int = {
        if !is_caught() {
            // SAFETY: the caller passes an open directory.
            released(descriptors::closed(unsafe { libc::dirfd(directory) }));
        }
        // SAFETY: the caller passes an open directory.
        unsafe { real!(closedir: unsafe extern "C" fn(*mut libc::DIR) -> c_int)(directory) }
    };
    rename(from: *const c_char, to: *const c_char) -> c_int = {
        // SAFETY: the caller's arguments.
        unsafe { renameat(libc::AT_FDCWD, from, libc::AT_FDCWD, to) }
    };
    renameat(old: c_int, from: *const c_char, new: c_int, to: *const c_char) -> c_int = {
        let replaced = [i64::from(new), to as i64];
        let arguments = [i64::from(old), from as i64, replaced[0], replaced[1], 0, 0];
        let code = removes(libc::SYS_renameat2, arguments, replaced);
        if code == 0
            && let Some(turn) = Turn::enter_file()
            && let Some(found) = status_at(replaced)
        {
            turn.call(Call::Resize, &[file_id(&found), 0, resize::RENAMED, 0]);
        }
        code
    };
    posix_fallocate(descriptor: c_int, offset: off_t, size: off_t) -> c_int = {
        let arguments = [i64::from(descriptor), 0, offset, size, 0, 0];
        let code = system_call(libc::SYS_fallocate, arguments);
        -(resized(descriptor, code, resize::SET) as c_int)
    };
    dup3(from: c_int, to: c_int, flags: c_int) -> c_int = {
        let arguments = [i64::from(from), i64::from(to), i64::from(flags), 0, 0, 0];
        note_duplicate(from, answer(system_call(libc::SYS_dup3, arguments)) as c_int)
    };
    /// fclose writes and closes inside the C library.
    fclose(stream: *mut libc::FILE) -> c_int = {
        if !is_caught() {
            // SAFETY: the caller passes a valid stream.
            released(descriptors::closed(unsafe { libc::fileno(stream) }));
        }
        // SAFETY: the caller passes a valid stream.
        unsafe { real!(fclose: unsafe extern "C" fn(*mut libc::FILE) -> c_int)(stream) }
    };
}
