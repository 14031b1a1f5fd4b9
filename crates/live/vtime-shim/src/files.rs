//! Files on the modelled drive: the real operation at once, then the time that it takes.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};

use libc::{iovec, mode_t, off_t, size_t, ssize_t};
use vtime::wire::{Call, access};

use crate::real::{answer, real, system_call};
use crate::turn::Turn;

/// Descriptors that can be on the drive.
const FILES: usize = 65_536;
/// The file behind each descriptor, 0 if it is not on the drive.
static FILE: [AtomicU64; FILES] = [const { AtomicU64::new(0) }; FILES];
/// Its flags of `access`.
static FLAGS: [AtomicU8; FILES] = [const { AtomicU8::new(0) }; FILES];

fn file_of(descriptor: c_int) -> Option<(u64, u64)> {
    let place = usize::try_from(descriptor).ok()?;
    let file = FILE.get(place)?.load(Relaxed);
    (file != 0).then(|| (file, u64::from(FLAGS[place].load(Relaxed))))
}

fn status(descriptor: c_int) -> Option<libc::stat> {
    // SAFETY: a plain structure.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    let place = &raw mut found as i64;
    let code = system_call(libc::SYS_fstat, [i64::from(descriptor), place, 0, 0, 0, 0]);
    (code == 0).then_some(found)
}

fn name_of(found: &libc::stat) -> u64 {
    found.st_ino ^ (found.st_dev << 48)
}

/// Whether an open file is below the simulation's directory.
fn is_on_drive(descriptor: c_int) -> bool {
    // SAFETY: names that end with 0.
    let folder = unsafe { libc::getenv(c"CROSSPOINT_VTIME_DIR".as_ptr()) };
    if folder.is_null() {
        return false;
    }
    // SAFETY: not null, ends with 0.
    let folder = unsafe { CStr::from_ptr(folder) }.to_bytes();
    let mut link = [0_u8; 32];
    write_link(&mut link, descriptor);
    let mut path = [0_u8; 4096];
    let place = [link.as_ptr() as i64, path.as_mut_ptr() as i64, path.len() as i64, 0, 0, 0];
    let length = system_call(libc::SYS_readlink, place);
    let path = &path[..usize::try_from(length).unwrap_or_default()];
    // SQLite's index of a log is shared memory, not storage.
    let below = path.strip_prefix(folder).is_some_and(|rest| rest.starts_with(b"/"));
    below && !path.ends_with(b"-shm")
}

/// `/proc/self/fd/N`, ended by 0.
fn write_link(link: &mut [u8; 32], descriptor: c_int) {
    let start = b"/proc/self/fd/";
    link[..start.len()].copy_from_slice(start);
    let (mut end, mut rest, mut digits) = (start.len(), descriptor, [0_u8; 10]);
    let mut count = 0;
    loop {
        digits[count] = b'0' + (rest % 10) as u8;
        count += 1;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    for digit in digits[..count].iter().rev() {
        link[end] = *digit;
        end += 1;
    }
}

/// A descriptor was opened.
fn opened(turn: &Turn, descriptor: c_int, flags: c_int) {
    let Ok(place) = usize::try_from(descriptor) else { return };
    if place >= FILES {
        return;
    }
    FILE[place].store(0, Relaxed);
    let Some(found) = status(descriptor) else { return };
    if found.st_mode & libc::S_IFMT != libc::S_IFREG || !is_on_drive(descriptor) {
        return;
    }
    let mut own = 0;
    if flags & libc::O_DIRECT != 0 {
        own |= access::DIRECT;
    }
    if flags & libc::O_DSYNC != 0 {
        own |= access::SYNC;
    }
    let file = name_of(&found);
    FLAGS[place].store(own as u8, Relaxed);
    FILE[place].store(file, Relaxed);
    let size = found.st_size as u64;
    let is_new = size == 0 && flags & (libc::O_CREAT | libc::O_TRUNC) != 0;
    turn.call(Call::Resize, &[file, size, u64::from(!is_new)]);
}

unsafe fn open_at(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let turn = Turn::enter();
    let arguments = [i64::from(folder), path as i64, i64::from(flags), i64::from(mode), 0, 0];
    let descriptor = answer(system_call(libc::SYS_openat, arguments)) as c_int;
    if let Some(turn) = turn
        && descriptor >= 0
    {
        opened(&turn, descriptor, flags);
    }
    descriptor
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { open_at(libc::AT_FDCWD, path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { open_at(libc::AT_FDCWD, path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { open_at(folder, path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { open_at(folder, path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn creat(path: *const c_char, mode: mode_t) -> c_int {
    let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
    // SAFETY: the caller's arguments.
    unsafe { open_at(libc::AT_FDCWD, path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(descriptor: c_int) -> c_int {
    if let Ok(place) = usize::try_from(descriptor)
        && let Some(file) = FILE.get(place)
    {
        file.store(0, Relaxed);
    }
    // SAFETY: the caller's argument.
    unsafe { real!(close: unsafe extern "C" fn(c_int) -> c_int)(descriptor) }
}

/// Another descriptor of the same file.
fn copied(from: c_int, to: c_int) -> c_int {
    if let (Ok(from), Ok(to)) = (usize::try_from(from), usize::try_from(to))
        && from.max(to) < FILES
    {
        FILE[to].store(FILE[from].load(Relaxed), Relaxed);
        FLAGS[to].store(FLAGS[from].load(Relaxed), Relaxed);
    }
    to
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(from: c_int) -> c_int {
    let made = answer(system_call(libc::SYS_dup, [i64::from(from), 0, 0, 0, 0, 0]));
    copied(from, made as c_int)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    let arguments = [i64::from(from), i64::from(to), 0, 0, 0, 0];
    copied(from, answer(system_call(libc::SYS_dup2, arguments)) as c_int)
}

/// Reads or writes by the system call, and waits for its time. `offset` is `None` for the file's own.
fn transfer(number: i64, arguments: [i64; 6], offset: Option<i64>, writes: bool) -> ssize_t {
    let descriptor = arguments[0] as c_int;
    let found = file_of(descriptor);
    let Some(((file, flags), turn)) = found.and_then(|found| Some((found, Turn::enter()?))) else {
        return answer(system_call(number, arguments)) as ssize_t;
    };
    turn.tick();
    let done = answer(system_call(number, arguments));
    if done > 0 {
        let here = || {
            let ask = [arguments[0], 0, i64::from(libc::SEEK_CUR), 0, 0, 0];
            system_call(libc::SYS_lseek, ask) - done
        };
        let offset = offset.unwrap_or_else(here) as u64;
        let flags = flags | if writes { access::WRITE } else { 0 };
        turn.call(Call::Access, &[file, offset, done as u64, flags]);
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

/// The contents need not survive this machine: only the simulated flush takes place.
fn flush(descriptor: c_int, number: i64, metadata: bool) -> c_int {
    let found = file_of(descriptor);
    let Some(((file, _), turn)) = found.and_then(|found| Some((found, Turn::enter()?))) else {
        return answer(system_call(number, [i64::from(descriptor), 0, 0, 0, 0, 0])) as c_int;
    };
    turn.tick();
    turn.call(Call::Sync, &[file, u64::from(metadata)]);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(descriptor: c_int) -> c_int {
    flush(descriptor, libc::SYS_fsync, true)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(descriptor: c_int) -> c_int {
    flush(descriptor, libc::SYS_fdatasync, false)
}

/// The size of a file may have changed.
fn resized(descriptor: c_int, code: i64) -> i64 {
    let found = file_of(descriptor).and_then(|found| Some((found, Turn::enter()?)));
    if let Some(((file, _), turn)) = found
        && code == 0
        && let Some(found) = status(descriptor)
    {
        turn.call(Call::Resize, &[file, found.st_size as u64, 0]);
    }
    code
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate(descriptor: c_int, size: off_t) -> c_int {
    let arguments = [i64::from(descriptor), size, 0, 0, 0, 0];
    resized(descriptor, answer(system_call(libc::SYS_ftruncate, arguments))) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate64(descriptor: c_int, size: off_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { ftruncate(descriptor, size) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fallocate(
    descriptor: c_int,
    mode: c_int,
    offset: off_t,
    size: off_t,
) -> c_int {
    let arguments = [i64::from(descriptor), i64::from(mode), offset, size, 0, 0];
    resized(descriptor, answer(system_call(libc::SYS_fallocate, arguments))) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fallocate64(
    descriptor: c_int,
    mode: c_int,
    offset: off_t,
    size: off_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { fallocate(descriptor, mode, offset, size) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller's argument.
    unsafe { unlinkat(libc::AT_FDCWD, path, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlinkat(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
    let turn = Turn::enter();
    // SAFETY: a plain structure.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    let place = &raw mut found as i64;
    let follow = i64::from(libc::AT_SYMLINK_NOFOLLOW);
    let ask = [i64::from(folder), path as i64, place, follow, 0, 0];
    let known = turn.is_some() && system_call(libc::SYS_newfstatat, ask) == 0;
    let arguments = [i64::from(folder), path as i64, i64::from(flags), 0, 0, 0];
    let code = answer(system_call(libc::SYS_unlinkat, arguments)) as c_int;
    if let Some(turn) = turn
        && known
        && code == 0
        && found.st_nlink == 1
    {
        turn.call(Call::Remove, &[name_of(&found)]);
    }
    code
}

/// Write-back that was asked for ahead of a flush: the flush pays for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sync_file_range(
    descriptor: c_int,
    offset: off_t,
    size: off_t,
    flags: c_uint,
) -> c_int {
    if file_of(descriptor).is_some() && Turn::is_simulated() {
        return 0;
    }
    let arguments = [i64::from(descriptor), offset, size, i64::from(flags), 0, 0];
    answer(system_call(libc::SYS_sync_file_range, arguments)) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    place: *mut c_void,
    size: size_t,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: off_t,
) -> *mut c_void {
    if flags & libc::MAP_SHARED != 0
        && file_of(descriptor).is_some()
        && let Some(turn) = Turn::enter()
    {
        turn.uncovered("mmap of a shared file on the modelled drive");
    }
    let arguments = [
        place as i64,
        size as i64,
        i64::from(protection),
        i64::from(flags),
        i64::from(descriptor),
        offset,
    ];
    answer(system_call(libc::SYS_mmap, arguments)) as *mut c_void
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    place: *mut c_void,
    size: size_t,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's arguments.
    unsafe { mmap(place, size, protection, flags, descriptor, offset) }
}
