//! Handling failures elsewhere: a lock after a panic, an error as the kernel's number.
//!
//! Invariant: nothing fails here.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks despite a panic elsewhere: times and counters are still the best available.
pub(crate) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or_else(|| rustix::io::Errno::IO.raw_os_error())
}
