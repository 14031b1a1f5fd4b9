//! The standard streams, which lead out of the simulation.

use std::ffi::c_int;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::real::system_call;

/// Device and inode of each at the start, combined.
static STREAMS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// fstat(2) of an open file.
pub fn status(descriptor: c_int) -> Option<libc::stat> {
    // SAFETY: all zeros is a valid value of this struct.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    let place = &raw mut found as i64;
    let code = system_call(libc::SYS_fstat, [i64::from(descriptor), place, 0, 0, 0, 0]);
    (code == 0).then_some(found)
}

fn identity(file: &libc::stat) -> u64 {
    (file.st_dev << 40) ^ file.st_ino
}

/// Remembers the streams that the program was started with.
pub fn note_standard() {
    for (place, descriptor) in STREAMS.iter().zip(0..) {
        place.store(status(descriptor).as_ref().map_or(0, identity), Relaxed);
    }
}

/// Whether a file is one of these streams.
pub fn is_standard(file: &libc::stat) -> bool {
    STREAMS.iter().any(|stream| stream.load(Relaxed) == identity(file))
}
