//! Counters of a server, and the kernel's counters of its process.
//!
//! Invariants: names have units; a counter that the server lacks is left out, not zero.

use std::collections::BTreeMap;

use mysql::Conn;
use mysql::prelude::Queryable;
use observe::Counter;

/// A status variable as a counter: its name, ours with the unit, and whether it only grows.
const COUNTERS: [(&str, &str, bool); 22] = [
    ("Innodb_buffer_pool_pages_total", "buffer pool, pages", false),
    ("Innodb_buffer_pool_pages_free", "buffer pool free, pages", false),
    ("Innodb_buffer_pool_pages_dirty", "buffer pool dirty, pages", false),
    ("Innodb_buffer_pool_read_requests", "buffer pool requests, pages/s", true),
    ("Innodb_buffer_pool_reads", "buffer pool misses, pages/s", true),
    ("Innodb_buffer_pool_wait_free", "waits for a free page, 1/s", true),
    ("Innodb_buffer_pool_pages_flushed", "pages flushed, 1/s", true),
    ("Innodb_pages_read", "pages read, 1/s", true),
    ("Innodb_pages_written", "pages written, 1/s", true),
    ("Innodb_dblwr_pages_written", "doublewrite pages, 1/s", true),
    ("Innodb_data_read", "data read, B/s", true),
    ("Innodb_data_written", "data written, B/s", true),
    ("Innodb_data_fsyncs", "fsyncs, 1/s", true),
    ("Innodb_os_log_written", "redo written, B/s", true),
    ("Innodb_log_waits", "waits for the redo log, 1/s", true),
    ("Innodb_checkpoint_age", "checkpoint age, B", false),
    ("Innodb_checkpoint_max_age", "checkpoint age limit, B", false),
    ("Innodb_row_lock_waits", "row lock waits, 1/s", true),
    ("Innodb_row_lock_time", "row lock wait time, ms/s", true),
    ("Innodb_history_list_length", "history list, 1", false),
    ("Threads_running", "threads running, 1", false),
    ("Com_commit", "commits, 1/s", true),
];

/// Reads the counters.
pub(crate) fn counters(conn: &mut Conn) -> mysql::Result<Vec<Counter>> {
    let status = status(conn)?;
    let of = |(theirs, name, sum): &(&str, &'static str, bool)| {
        Some(Counter { name, value: *status.get(*theirs)?, sum: *sum })
    };
    Ok(COUNTERS.iter().filter_map(of).collect())
}

fn status(conn: &mut Conn) -> mysql::Result<BTreeMap<String, f64>> {
    let rows: Vec<(String, String)> = conn.query("SHOW GLOBAL STATUS LIKE 'Innodb%'")?;
    let more = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_running', 'Com_commit')";
    let more: Vec<(String, String)> = conn.query(more)?;
    let number = |(name, value): (String, String)| Some((name, value.parse().ok()?));
    Ok(rows.into_iter().chain(more).filter_map(number).collect())
}

/// Seconds between a request that costs the server nothing and its answer: median of a few.
pub(crate) fn round_trip(conn: &mut Conn) -> mysql::Result<f64> {
    const PINGS: usize = 15;
    let mut trips = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let began = std::time::Instant::now();
        conn.ping()?;
        trips.push(began.elapsed().as_secs_f64());
    }
    trips.sort_by(f64::total_cmp);
    Ok(trips[PINGS / 2])
}

/// Server totals since its start, by its names.
pub(crate) fn sums(conn: &mut Conn) -> mysql::Result<BTreeMap<String, f64>> {
    status(conn)
}

/// Totals between two readings, by metric: pages requested and missed, bytes written to data files,
/// doublewrite area and redo log. `page` is the page size in bytes.
pub(crate) fn totals(
    earlier: &BTreeMap<String, f64>,
    now: &BTreeMap<String, f64>,
    page: u64,
) -> Vec<(&'static str, f64)> {
    let of = |name: &str| Some(now.get(name)? - earlier.get(name)?);
    let mut out = Vec::new();
    let mut add = |metric, value: Option<f64>| {
        out.extend(value.map(|value| (metric, value)));
    };
    let (asked, missed) = (of("Innodb_buffer_pool_read_requests"), of("Innodb_buffer_pool_reads"));
    add("buffer_pool_requests", asked);
    add("buffer_pool_misses", missed);
    let ratio = asked.zip(missed).filter(|(asked, _)| *asked > 0.0);
    add("buffer_pool_hit_ratio", ratio.map(|(asked, missed)| (1.0 - missed / asked) * 100.0));
    let pages = of("Innodb_pages_written").map(|pages| pages * page as f64);
    let twice = of("Innodb_dblwr_pages_written").map(|pages| pages * page as f64);
    add("page_bytes_written", pages);
    add("doublewrite_bytes", twice);
    add("data_bytes_written", of("Innodb_data_written"));
    add("redo_bytes", of("Innodb_os_log_written"));
    add("fsyncs", of("Innodb_data_fsyncs"));
    add("row_lock_waits", of("Innodb_row_lock_waits"));
    out
}

/// Parses a number with the suffixes of the servers' command line: `64M`.
pub(crate) fn bytes_of(text: &str) -> Option<u64> {
    let (number, shift) = match text.trim().char_indices().last()? {
        (end, 'K' | 'k') => (&text[..end], 10),
        (end, 'M' | 'm') => (&text[..end], 20),
        (end, 'G' | 'g') => (&text[..end], 30),
        _ => (text, 0),
    };
    number.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_servers_suffixes() {
        assert_eq!(bytes_of("64M"), Some(64 << 20));
        assert_eq!(bytes_of("1000"), Some(1000));
        assert_eq!(bytes_of("ON"), None);
        assert_eq!(bytes_of("99999999999999G"), None);
    }

    /// The check of write counters depends on these differences.
    #[test]
    fn totals_are_differences() {
        let make = |requests: f64, reads: f64, pages: f64| {
            let pairs = [
                ("Innodb_buffer_pool_read_requests", requests),
                ("Innodb_buffer_pool_reads", reads),
                ("Innodb_pages_written", pages),
            ];
            BTreeMap::from(pairs.map(|(name, value)| (name.to_owned(), value)))
        };
        let since = totals(&make(100.0, 10.0, 5.0), &make(1100.0, 60.0, 7.0), 4096);
        let of = |metric| since.iter().find(|(name, _)| *name == metric).unwrap().1;
        assert_eq!(of("buffer_pool_hit_ratio"), 95.0);
        assert_eq!(of("page_bytes_written"), 8192.0);
    }
}
