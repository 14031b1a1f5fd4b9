//! Error handling: locks after a panic, errors as errno values.
//!
//! Invariant: nothing fails here.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks even if poisoned: latencies and counters are still the best available.
pub(crate) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or_else(|| rustix::io::Errno::IO.raw_os_error())
}
