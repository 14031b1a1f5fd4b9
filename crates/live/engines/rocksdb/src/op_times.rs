//! Step times of single RocksDB operations, from its perf context.
//!
//! RocksDB can read the clock between the steps of an operation, at a cost for every operation, so one of
//! [`EACH`] is timed; counts are per thread, collected when its session ends. Invariants: untimed operations
//! pay for a counter only; sums cover timed operations alone.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::sync::Mutex;
use std::time::Instant;

use crate::api::Api;
use crate::{Object, Owned};

/// One of this many operations of each kind in a session is timed; a prime, so that no pattern of a
/// workload beats with it.
pub(crate) const EACH: u32 = 127;
/// RocksDB's perf level that disables counting; the default counts.
const NOTHING: c_int = 1;
/// RocksDB's level for step times: 4 excludes mutex times in every version (from 8.7 on with one step less,
/// before with CPU time as well).
const TIMES: c_int = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    Put,
}

/// `(RocksDB's name of a step, counter name, kind of operation)`.
const STEPS: [(&str, &str, Kind); 5] = [
    ("block_read_time", "get_block_read_time", Kind::Get),
    ("write_wal_time", "put_log_time", Kind::Put),
    ("write_memtable_time", "put_memtable_time", Kind::Put),
    ("write_delay_time", "put_stall_time", Kind::Put),
    ("write_thread_wait_nanos", "put_wait_time", Kind::Put),
];

/// Sums over all sessions of a database.
#[derive(Debug, Default)]
pub(crate) struct OpTimes(Mutex<Sums>);

#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    gets: Timed,
    puts: Timed,
    /// Per step, nanoseconds.
    steps: [u64; STEPS.len()],
    /// Steps that this RocksDB lacks.
    absent: [bool; STEPS.len()],
}

/// Timed operations of a kind.
#[derive(Debug, Default, Clone, Copy)]
struct Timed {
    count: u64,
    /// Their times from call to return, nanoseconds.
    whole: u64,
}

impl Timed {
    fn add(&mut self, more: Self) {
        self.count += more.count;
        self.whole += more.whole;
    }

    /// The share of a sum per timed operation, seconds.
    fn mean(self, sum: u64) -> Option<f64> {
        (self.count > 0).then(|| sum as f64 / self.count as f64 / 1e9)
    }
}

impl OpTimes {
    /// Mean seconds per timed operation by counter, and the number timed; without kinds that were not timed,
    /// and steps that this RocksDB lacks.
    pub fn means(&self) -> Vec<(&'static str, f64)> {
        let sums = *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let of = |kind| match kind {
            Kind::Get => sums.gets,
            Kind::Put => sums.puts,
        };
        let steps = STEPS.iter().zip(sums.steps).zip(sums.absent).filter(|(_, absent)| !absent);
        let steps = steps.map(|(((_, total, kind), sum), _)| (*total, of(*kind).mean(sum)));
        let wholes = [("get_time", sums.gets), ("put_time", sums.puts)];
        let wholes = wholes.map(|(total, timed)| (total, timed.mean(timed.whole)));
        let counts = [("gets_timed", sums.gets.count), ("puts_timed", sums.puts.count)];
        let counts = counts.map(|(total, count)| (total, (count > 0).then_some(count as f64)));
        let all = wholes.into_iter().chain(counts).chain(steps);
        all.filter_map(|(total, mean)| Some((total, mean?))).collect()
    }

    fn add(&self, gets: Timed, puts: Timed, report: &str) {
        let mut sums = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        sums.gets.add(gets);
        sums.puts.add(puts);
        for (place, (name, ..)) in STEPS.iter().enumerate() {
            match step(report, name) {
                Some(time) => sums.steps[place] += time,
                None => sums.absent[place] = true,
            }
        }
    }
}

/// A step's time in RocksDB's words: `user_key_comparison_count = 3, block_read_time = 1234, `.
fn step(report: &str, name: &str) -> Option<u64> {
    let (_, value) =
        report.split(", ").filter_map(|one| one.split_once(" = ")).find(|(of, _)| *of == name)?;
    value.parse().ok()
}

/// Timer of one thread's operations; it stays on that thread.
#[derive(Debug)]
pub(crate) struct ThreadTimes<'a> {
    api: &'static Api,
    sums: &'a OpTimes,
    /// RocksDB's handle of the thread's counts.
    context: Owned,
    /// Per kind, operations since the last timed one.
    since: [u32; 2],
    gets: Timed,
    puts: Timed,
    thread: PhantomData<*const ()>,
}

impl<'a> ThreadTimes<'a> {
    /// Starts the counters of the calling thread.
    pub fn begin(api: &'static Api, sums: &'a OpTimes) -> Self {
        // SAFETY: sets variables of the calling thread, and makes a handle of them.
        let context: Object = unsafe {
            (api.set_perf_level)(NOTHING);
            let context = (api.perfcontext_create)();
            (api.perfcontext_reset)(context);
            context
        };
        let context = Owned::new(context, api.perfcontext_destroy);
        let (gets, puts) = (Timed::default(), Timed::default());
        Self { api, sums, context, since: [0; 2], gets, puts, thread: PhantomData }
    }

    /// Begins an operation; returns its start time if it is timed.
    #[inline]
    pub fn begin_one(&mut self, kind: Kind) -> Option<Instant> {
        let since = &mut self.since[kind as usize];
        *since += 1;
        if *since < EACH {
            return None;
        }
        *since = 0;
        // SAFETY: sets a variable of the calling thread.
        unsafe { (self.api.set_perf_level)(TIMES) };
        Some(Instant::now())
    }

    /// Ends an operation; `timed` is its start if it is one of the sample.
    #[inline]
    pub fn end_one(&mut self, kind: Kind, timed: Option<Instant>) {
        let Some(began) = timed else { return };
        let whole = began.elapsed().as_nanos() as u64;
        // SAFETY: as above.
        unsafe { (self.api.set_perf_level)(NOTHING) };
        match kind {
            Kind::Get => self.gets.add(Timed { count: 1, whole }),
            Kind::Put => self.puts.add(Timed { count: 1, whole }),
        }
    }
}

impl Drop for ThreadTimes<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is alive, and this is its thread; the text is RocksDB's, taken once.
        let report =
            unsafe { self.api.take((self.api.perfcontext_report)(self.context.object, 0)) };
        self.sums.add(self.gets, self.puts, &report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step read under a wrong name would give a wrong cause for a slow database.
    #[test]
    fn steps_are_read_by_their_whole_names_and_divided_by_their_kind() {
        let report = "get_block_read_time = 7, block_read_time = 3000, write_wal_time = 500, \
                      write_memtable_time = 0, write_thread_wait_nanos = 0, ";
        assert_eq!(step(report, "block_read_time"), Some(3000));
        assert_eq!(step(report, "write_delay_time"), None);
        let times = OpTimes::default();
        assert!(times.means().is_empty());
        let timed = |count, whole| Timed { count, whole };
        times.add(timed(2, 8000), timed(0, 0), report);
        let later = report.replace("3000", "600");
        times.add(timed(1, 1000), timed(0, 0), &later);
        let means = times.means();
        assert_eq!(means[0], ("get_time", 3000.0 / 1e9));
        assert_eq!(means[1], ("gets_timed", 3.0));
        assert_eq!(means[2], ("get_block_read_time", 1200.0 / 1e9));
        assert_eq!(means.len(), 3, "no update was timed: {means:?}");
        times.add(timed(0, 0), timed(4, 8000), report);
        let means = times.means();
        let has = |name| means.iter().any(|(total, _)| *total == name);
        assert!(has("put_memtable_time") && !has("put_stall_time"), "what is not counted is not 0");
    }
}
