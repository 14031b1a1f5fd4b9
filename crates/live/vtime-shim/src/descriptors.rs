//! Which open files are on the modelled drive.

use std::ffi::{CStr, c_char, c_int};
use std::io::Write as _;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64};

use vtime::wire::{Call, access, file_number, is_shared_memory, resize};

use crate::real::system_call;
pub use crate::streams::status;
use crate::turn::Turn;

/// Highest number of descriptors on the drive.
const FILES: usize = 65_536;
/// The last of them.
pub const LAST: u32 = FILES as u32 - 1;
/// The file behind each descriptor, 0 if it is not on the drive.
static FILE: [AtomicU64; FILES] = [const { AtomicU64::new(0) }; FILES];
/// Per descriptor: flags of `access`.
static FLAGS: [AtomicU8; FILES] = [const { AtomicU8::new(0) }; FILES];

/// The directory of the drive's files, and the beginning of the write-ahead log's paths in it, if that has a
/// drive of its own.
static PLACES: [AtomicPtr<c_char>; 2] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 2];

/// Sets both places, as strings that stay where they are, or null.
pub fn set_places(places: [*mut c_char; 2]) {
    PLACES.iter().zip(places).for_each(|(own, place)| own.store(place, Relaxed));
}

fn places() -> [Option<&'static CStr>; 2] {
    PLACES.each_ref().map(|place| {
        let place = place.load(Relaxed);
        // SAFETY: a string that stays where it is.
        (!place.is_null()).then(|| unsafe { CStr::from_ptr(place) })
    })
}

/// The file behind a descriptor, if it is on the drive, and its flags.
pub fn file_of(descriptor: c_int) -> Option<(u64, u64)> {
    let place = usize::try_from(descriptor).ok()?;
    let file = FILE.get(place)?.load(Relaxed);
    (file != 0).then(|| (file, u64::from(FLAGS[place].load(Relaxed))))
}

/// The number of a file.
pub fn file_id(found: &libc::stat) -> u64 {
    file_number(found.st_ino, found.st_dev)
}

/// Which drive an open file is on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It is not below the simulation's directory.
    None = 0,
    Main = 1,
    /// That of the write-ahead log.
    Wal = 2,
}

fn place_of(descriptor: c_int) -> Place {
    let [Some(folder), wal] = places() else { return Place::None };
    // With the root directory as folder, all files match.
    let folder = folder.to_bytes().strip_suffix(b"/").unwrap_or(folder.to_bytes());
    let mut link = [0_u8; 32];
    let _ = write!(&mut link[..], "/proc/self/fd/{descriptor}\0");
    let mut path = [0_u8; 4096];
    let place = [link.as_ptr() as i64, path.as_mut_ptr() as i64, path.len() as i64, 0, 0, 0];
    let length = system_call(libc::SYS_readlink, place);
    let path = &path[..usize::try_from(length).unwrap_or_default()];
    match path.strip_prefix(folder) {
        _ if is_shared_memory(path) => Place::None,
        Some([]) => Place::Main,
        Some([b'/', rest @ ..]) => {
            let is_wal = wal.is_some_and(|wal| rest.starts_with(wal.to_bytes()));
            if is_wal { Place::Wal } else { Place::Main }
        }
        _ => Place::None,
    }
}

/// Status of an open file that is on the drive.
pub fn on_drive(descriptor: c_int) -> Option<libc::stat> {
    status(descriptor).filter(|_| place_of(descriptor) != Place::None)
}

/// A descriptor was opened.
pub fn note_opened(turn: &Turn, descriptor: c_int, flags: c_int) {
    let Ok(place) = usize::try_from(descriptor) else { return };
    if place >= FILES {
        if place_of(descriptor) != Place::None {
            turn.uncovered("open beyond descriptor 65,535");
        }
        return;
    }
    FILE[place].store(0, Relaxed);
    let Some(found) = status(descriptor) else { return };
    let kind = found.st_mode & libc::S_IFMT;
    if ![libc::S_IFREG, libc::S_IFDIR].contains(&kind) {
        return;
    }
    let on = place_of(descriptor);
    if on == Place::None {
        return;
    }
    if kind == libc::S_IFDIR {
        // Opened only to be flushed.
        FLAGS[place].store(0, Relaxed);
        FILE[place].store(file_id(&found), Relaxed);
        if on == Place::Wal {
            turn.call(Call::Resize, &[file_id(&found), 0, resize::EXISTING, on as u64]);
        }
        return;
    }
    let mut own = 0;
    if flags & libc::O_DIRECT != 0 {
        own |= access::DIRECT;
    }
    if flags & libc::O_DSYNC != 0 {
        own |= access::SYNC;
    }
    let file = file_id(&found);
    FLAGS[place].store(own as u8, Relaxed);
    FILE[place].store(file, Relaxed);
    let size = found.st_size as u64;
    let is_new = size == 0 && flags & (libc::O_CREAT | libc::O_TRUNC) != 0;
    let kind = if is_new { resize::SET } else { resize::EXISTING };
    turn.call(Call::Resize, &[file, size, kind, on as u64]);
}

/// Another descriptor of the same file.
pub fn note_duplicate(from: c_int, to: c_int) -> c_int {
    if let (Ok(from), Ok(to)) = (usize::try_from(from), usize::try_from(to))
        && from.max(to) < FILES
    {
        FILE[to].store(FILE[from].load(Relaxed), Relaxed);
        FLAGS[to].store(FLAGS[from].load(Relaxed), Relaxed);
    }
    to
}

/// Descriptors that a program has when it begins are looked at up to this number.
const INHERITED: c_int = 1024;

/// Notes the descriptors that this program was started with.
pub fn note_inherited() {
    let Some(turn) = Turn::enter() else { return };
    for descriptor in 0..INHERITED {
        let get = [i64::from(descriptor), i64::from(libc::F_GETFL), 0, 0, 0, 0];
        let flags = system_call(libc::SYS_fcntl, get);
        if flags >= 0 {
            let made = libc::O_CREAT | libc::O_TRUNC;
            note_opened(&turn, descriptor, flags as c_int & !made);
        }
    }
}

/// A descriptor is closed; returns its file, 0 if it was not on the drive.
pub fn closed(descriptor: c_int) -> u64 {
    let place = usize::try_from(descriptor).ok().and_then(|place| FILE.get(place));
    place.map_or(0, |file| file.swap(0, Relaxed))
}

/// Whether a file is open.
pub fn is_open(file: u64) -> bool {
    FILE.iter().any(|open| open.load(Relaxed) == file)
}

/// Sets the flags of a descriptor whose file is on the drive.
pub fn set_flags(descriptor: c_int, flags: u64) {
    FLAGS[descriptor as usize].store(flags as u8, Relaxed);
}

/// Sets whether the page cache is bypassed.
pub fn set_direct(descriptor: c_int, direct: bool) {
    if let Some((_, flags)) = file_of(descriptor) {
        let own = if direct { access::DIRECT } else { 0 };
        set_flags(descriptor, (flags & !access::DIRECT) | own);
    }
}
