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

/// Bytes of the log since the server was made.
const WAL: &str = "wal.position";

/// A column as a counter: view and column, our name with the unit, and whether it only grows. Later versions
/// moved checkpoints from `bgwriter` to `checkpointer` (17). Backends report theirs once a second at most.
const COUNTERS: [(&str, &str, bool); 26] = [
    ("database.xact_commit", "commits, 1/s", true),
    ("database.xact_rollback", "rollbacks, 1/s", true),
    ("database.blks_hit", "buffer hits, pages/s", true),
    ("database.blks_read", "buffer misses, pages/s", true),
    ("database.deadlocks", "deadlocks, 1/s", true),
    ("database.numbackends", "connections, 1", false),
    ("bgwriter.buffers_checkpoint", "checkpoint writes, pages/s", true),
    ("checkpointer.buffers_written", "checkpoint writes, pages/s", true),
    ("bgwriter.buffers_clean", "background writer, pages/s", true),
    ("bgwriter.buffers_backend", "backend writes, pages/s", true),
    ("bgwriter.checkpoints_timed", "timed checkpoints, 1/s", true),
    ("checkpointer.num_timed", "timed checkpoints, 1/s", true),
    ("bgwriter.checkpoints_req", "requested checkpoints, 1/s", true),
    ("checkpointer.num_requested", "requested checkpoints, 1/s", true),
    ("wal.wal_fpi", "full pages logged, 1/s", true),
    (WAL, "log written, B/s", true),
    ("io.pages", "pages written, 1/s", true),
    ("wal.wal_buffers_full", "log writes forced by full buffers, 1/s", true),
    ("vacuum.running", "vacuums running, 1", false),
    ("checkpoint.running", "checkpoints running, 1", false),
    ("activity.running", "backends running or ready, 1", false),
    ("activity.log", "backends waiting for the log, 1", false),
    ("activity.locks", "backends waiting for locks, 1", false),
    ("activity.reads", "backends waiting for reads, 1", false),
    ("activity.writes", "backends waiting for writes, 1", false),
    ("activity.others", "backends waiting for something else, 1", false),
];

/// Clients' backends that run a statement, by what they wait for at this moment. 17 renamed `WAL...` to
/// `Wal...` and `BufferIO`; reads ahead of 18 are `Aio...`.
const ACTIVITY: &str = "(SELECT count(*) FILTER (WHERE kind = 'running') AS running, \
    count(*) FILTER (WHERE kind = 'log') AS log, count(*) FILTER (WHERE kind = 'locks') AS locks, \
    count(*) FILTER (WHERE kind = 'reads') AS reads, count(*) FILTER (WHERE kind = 'writes') AS writes, \
    count(*) FILTER (WHERE kind = 'others') AS others \
    FROM (SELECT CASE WHEN wait_event IS NULL THEN 'running' WHEN wait_event ILIKE 'wal%' THEN 'log' \
    WHEN wait_event_type = 'Lock' THEN 'locks' \
    WHEN wait_event IN ('DataFileRead', 'DataFilePrefetch') OR wait_event ILIKE 'bufferio' \
    OR wait_event LIKE 'Aio%' THEN 'reads' WHEN wait_event LIKE 'DataFile%' THEN 'writes' \
    ELSE 'others' END AS kind FROM pg_stat_activity \
    WHERE state = 'active' AND backend_type = 'client backend' \
    AND datname = current_database() AND pid <> pg_backend_pid()) AS one)";

/// The checkpointer sleeps as `CheckpointerMain` between checkpoints. Whoever may not see it sees none.
const CHECKPOINTS: &str = "(SELECT count(*) AS running FROM pg_stat_activity \
    WHERE backend_type = 'checkpointer' AND wait_event IS DISTINCT FROM 'CheckpointerMain')";

/// Vacuums of this database.
const VACUUMS: &str = "(SELECT count(*) AS running FROM pg_stat_progress_vacuum \
    WHERE datname = current_database())";

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
        of("activity", ACTIVITY),
        of("checkpoint", CHECKPOINTS),
        of("vacuum", VACUUMS),
    ];
    views
        .push(format!("SELECT '{WAL}', pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::text"));
    let version = conn.one("SHOW server_version_num")?.and_then(|text| text.parse().ok());
    let version: u32 = version.unwrap_or(0);
    if version >= 170_000 {
        views.push(of("checkpointer", "pg_stat_checkpointer"));
    }
    // Since 18 every row has bytes of its own.
    if version >= 160_000 {
        let pages = match version >= 180_000 {
            true => format!("(write_bytes + extend_bytes) / {PAGE}"),
            false => "writes + extends".to_owned(),
        };
        views.push(format!(
            "SELECT 'io.pages', coalesce(sum({pages}), 0)::text FROM pg_stat_io WHERE object = 'relation'"
        ));
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
    add("page_bytes_written", of("io.pages").or(pages).map(|pages| pages * PAGE));
    add("redo_bytes", of(WAL));
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
