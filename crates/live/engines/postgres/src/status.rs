//! Counters of a server, from its statistics views.
//!
//! Invariants: names have units; a counter that the server's version lacks is left out, not zero.

use std::collections::BTreeMap;
use std::time::Instant;

use engine::EngineError;
use observe::Counter;

use crate::conn::Conn;

/// Size of a page, bytes.
const PAGE: f64 = 8192.0;

/// A column as a counter: view and column, our name with the unit, and whether it only grows. Later versions
/// moved checkpoints from `bgwriter` to `checkpointer` (17).
const COUNTERS: [(&str, &str, bool); 17] = [
    ("database.xact_commit", "commits, 1/s", true),
    ("database.xact_rollback", "rollbacks, 1/s", true),
    ("database.blks_hit", "buffer hits, pages/s", true),
    ("database.blks_read", "buffer misses, pages/s", true),
    ("database.deadlocks", "deadlocks, 1/s", true),
    ("database.numbackends", "connections, 1", false),
    ("bgwriter.buffers_checkpoint", "pages written by checkpoints, 1/s", true),
    ("checkpointer.buffers_written", "pages written by checkpoints, 1/s", true),
    ("bgwriter.buffers_clean", "pages written in background, 1/s", true),
    ("bgwriter.buffers_backend", "pages written by clients, 1/s", true),
    ("bgwriter.checkpoints_timed", "checkpoints by time, 1/s", true),
    ("checkpointer.num_timed", "checkpoints by time, 1/s", true),
    ("bgwriter.checkpoints_req", "checkpoints by log size, 1/s", true),
    ("checkpointer.num_requested", "checkpoints by log size, 1/s", true),
    ("wal.wal_fpi", "full pages logged, 1/s", true),
    ("wal.wal_bytes", "log written, B/s", true),
    ("wal.wal_buffers_full", "waits for log buffers, 1/s", true),
];

/// Reads the counters.
pub(crate) fn counters(conn: &mut Conn) -> Result<Vec<Counter>, EngineError> {
    let sums = sums(conn)?;
    let of = |(theirs, name, sum): &(&str, &'static str, bool)| {
        Some(Counter { name, value: *sums.get(*theirs)?, sum: *sum })
    };
    Ok(COUNTERS.iter().filter_map(of).collect())
}

/// Server totals since its statistics were reset: `view.column`.
pub(crate) fn sums(conn: &mut Conn) -> Result<BTreeMap<String, f64>, EngineError> {
    let mut sums = BTreeMap::new();
    let of = |view: &str, rows: &str| {
        format!("SELECT '{view}.' || key, value FROM {rows} AS v, jsonb_each_text(to_jsonb(v))")
    };
    let database = "(SELECT * FROM pg_stat_database WHERE datname = current_database())";
    let mut views = vec![
        of("wal", "pg_stat_wal"),
        of("bgwriter", "pg_stat_bgwriter"),
        of("database", database),
    ];
    if conn.one("SELECT to_regclass('pg_stat_checkpointer')")?.is_some() {
        views.push(of("checkpointer", "pg_stat_checkpointer"));
    }
    for row in conn.rows(&views.join(" UNION ALL "))? {
        let mut values = row.into_iter().flatten();
        if let (Some(name), Some(value)) = (values.next(), values.next())
            && let Ok(value) = value.parse()
        {
            sums.insert(name, value);
        }
    }
    Ok(sums)
}

/// Seconds between a request that costs the server little and its answer: median of a few.
pub(crate) fn round_trip(conn: &mut Conn) -> Result<f64, EngineError> {
    const PINGS: usize = 15;
    let mut trips = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let began = Instant::now();
        conn.run("")?;
        trips.push(began.elapsed().as_secs_f64());
    }
    trips.sort_by(f64::total_cmp);
    Ok(trips[PINGS / 2])
}

/// Totals between two readings, by metric: pages requested and missed, bytes of pages and of the log written.
pub(crate) fn totals(
    earlier: &BTreeMap<String, f64>,
    now: &BTreeMap<String, f64>,
) -> Vec<(&'static str, f64)> {
    let of = |name: &str| Some(now.get(name)? - earlier.get(name)?);
    let mut out = Vec::new();
    let mut add = |metric, value: Option<f64>| {
        out.extend(value.map(|value| (metric, value)));
    };
    let (hit, missed) = (of("database.blks_hit"), of("database.blks_read"));
    let asked = hit.zip(missed).map(|(hit, missed)| hit + missed);
    add("buffer_pool_requests", asked);
    add("buffer_pool_misses", missed);
    let ratio = hit.zip(asked).filter(|(_, asked)| *asked > 0.0);
    add("buffer_pool_hit_ratio", ratio.map(|(hit, asked)| hit / asked * 100.0));
    let checkpoints =
        of("bgwriter.buffers_checkpoint").or_else(|| of("checkpointer.buffers_written"));
    let others = ["bgwriter.buffers_clean", "bgwriter.buffers_backend"].map(of);
    let pages = checkpoints.map(|pages| pages + others.into_iter().flatten().sum::<f64>());
    add("page_bytes_written", pages.map(|pages| pages * PAGE));
    add("redo_bytes", of("wal.wal_bytes"));
    add("fsyncs", of("wal.wal_sync"));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_differences() {
        let make = |hit: f64, read: f64, pages: f64| {
            let pairs = [
                ("database.blks_hit", hit),
                ("database.blks_read", read),
                ("checkpointer.buffers_written", pages),
                ("bgwriter.buffers_clean", pages),
            ];
            BTreeMap::from(pairs.map(|(name, value)| (name.to_owned(), value)))
        };
        let since = totals(&make(100.0, 10.0, 5.0), &make(1050.0, 60.0, 7.0));
        let of = |metric| since.iter().find(|(name, _)| *name == metric).unwrap().1;
        assert_eq!(of("buffer_pool_hit_ratio"), 95.0);
        assert_eq!(of("page_bytes_written"), 4.0 * 8192.0);
    }
}
