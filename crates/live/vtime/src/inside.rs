//! For programs that are built to run in a simulation: whether they are in one, and their counters.

use std::sync::OnceLock;

use crate::wire::{TOTALS_FUNCTION, Totals, TotalsOf};

type Fill = unsafe extern "C" fn(*mut Totals, libc::c_int);

/// The function of the preloaded library, if loaded.
fn fill() -> Option<Fill> {
    static FOUND: OnceLock<Option<Fill>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: a string with a terminating 0.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, TOTALS_FUNCTION.as_ptr()) };
        // SAFETY: the library defines it with this type.
        (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut libc::c_void, Fill>(found) })
    })
}

/// Whether this process runs in virtual time.
#[must_use]
pub fn is_simulated() -> bool {
    totals().is_some()
}

/// Counters of this process in its simulation; `None` outside of one.
#[must_use]
pub fn totals() -> Option<Totals> {
    ask(TotalsOf::Process)
}

/// Counters of the calling thread; requests to the drive are those of all threads.
#[must_use]
pub fn thread_totals() -> Option<Totals> {
    ask(TotalsOf::Thread)
}

/// Counters of the threads that serve this process: those of other processes that have waited for a message.
#[must_use]
pub fn server_totals() -> Option<Totals> {
    ask(TotalsOf::Servers)
}

fn ask(of: TotalsOf) -> Option<Totals> {
    let fill = fill()?;
    // In real time the library leaves it as it is.
    let mut totals = Totals { cpu: u64::MAX, ..Totals::default() };
    // SAFETY: a local variable of that type.
    unsafe { fill(&raw mut totals, of as libc::c_int) };
    (totals.cpu != u64::MAX).then_some(totals)
}
