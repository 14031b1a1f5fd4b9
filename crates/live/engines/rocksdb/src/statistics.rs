//! RocksDB's statistics, parsed from its texts and properties.

/// RocksDB's names of write stall causes, and their totals.
pub(crate) const CAUSES: [(&str, &str); 6] = [
    ("level0_slowdown", "stalls_by_level0_files_slowing"),
    ("level0_numfiles", "stalls_by_level0_files_stopping"),
    ("slowdown_for_pending_compaction_bytes", "stalls_by_compaction_debt_slowing"),
    ("stop_for_pending_compaction_bytes", "stalls_by_compaction_debt_stopping"),
    ("memtable_slowdown", "stalls_by_memtables_slowing"),
    ("memtable_compaction", "stalls_by_memtables_stopping"),
];

pub(crate) const DATABASE_STATISTICS: &str = "rocksdb.dbstats";
pub(crate) const COLUMN_STATISTICS: &str = "rocksdb.cfstats-no-file-histogram";

/// `(name, property, divisor)`: current values. Tickers have more, at a cost for every operation.
pub(crate) const PROPERTIES: [(&str, &str, f64); 7] = [
    ("writes throttled to, MB/s", "rocksdb.actual-delayed-write-rate", 1e6),
    ("writes stopped, 1 or 0", "rocksdb.is-write-stopped", 1.0),
    ("memtables waiting to be flushed", "rocksdb.num-immutable-mem-table", 1.0),
    ("files at level 0", "rocksdb.num-files-at-level0", 1.0),
    ("compaction debt, MB", "rocksdb.estimate-pending-compaction-bytes", 1e6),
    ("flushes that run", "rocksdb.num-running-flushes", 1.0),
    ("compactions that run", "rocksdb.num-running-compactions", 1.0),
];

/// Seconds that writes were stalled: `Cumulative stall: 00:01:2.345 H:M:S, 3.4 percent`.
pub(crate) fn stalled_seconds(statistics: &str) -> Option<f64> {
    let rest = statistics.lines().find_map(|line| line.strip_prefix("Cumulative stall: "))?;
    let (time, _) = rest.split_once(" H:M:S")?;
    time.split(':').try_fold(0.0, |sum, part| Some(sum * 60.0 + part.parse::<f64>().ok()?))
}

/// The number after `word` on the line that begins with `line`.
pub(crate) fn number_after(statistics: &str, line: &str, word: &str) -> Option<f64> {
    let rest = statistics.lines().find_map(|found| found.strip_prefix(line))?;
    let (_, rest) = rest.split_once(word)?;
    rest.split_whitespace().next()?.trim_end_matches(',').parse().ok()
}

/// How often `cause` stalled writes; none where that was not counted.
pub(crate) fn stalls_by(statistics: &str, cause: &str) -> Option<f64> {
    let line = statistics.lines().find_map(|line| line.strip_prefix("Stalls(count): "))?;
    let counts = line.split(", ").filter_map(|part| part.trim().split_once(' '));
    let (count, _) = counts.into_iter().find(|(_, name)| *name == cause)?;
    count.parse().ok()
}

/// The causes that a stall line names with a count above 0: `Stalls(count): 3 level0_slowdown, ...`.
pub(crate) fn stall_causes(statistics: &str) -> String {
    let line = statistics.lines().find_map(|line| line.strip_prefix("Stalls(count): "));
    let parts = line.unwrap_or_default().split(", ").filter_map(|part| {
        let (count, cause) = part.trim().split_once(' ')?;
        let told = count.parse::<u64>().is_ok_and(|count| count > 0);
        told.then(|| format!("{count} x {}", cause.replace('_', " ")))
    });
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_read_as_rocksdb_prints_them() {
        let text = "Uptime(secs): 1.0 total\nCumulative writes: 10 writes, 10 keys, ingest: 1.25 GB, 9 MB/s\n\
                    Cumulative stall: 00:01:2.500 H:M:S, 3.4 percent\n";
        assert_eq!(stalled_seconds(text), Some(62.5));
        assert_eq!(stalled_seconds("Uptime"), None);
        assert_eq!(number_after(text, "Cumulative writes:", "ingest: "), Some(1.25));
        let text =
            "Cumulative compaction: 0.75 GB write, 3 MB/s write\nFlush(GB): cumulative 0.125, x";
        assert_eq!(number_after(text, "Cumulative compaction:", ""), Some(0.75));
        assert_eq!(number_after(text, "Flush(GB):", "cumulative "), Some(0.125));
        let stalls = "Uptime\nStalls(count): 2 level0_slowdown, 0 level0_numfiles, 5 memtable_compaction, \
                      interval 3 total count\n";
        assert_eq!(stall_causes(stalls), "2 x level0 slowdown, 5 x memtable compaction");
        assert_eq!(stalls_by(stalls, "memtable_compaction"), Some(5.0));
        assert_eq!(stalls_by(stalls, "no such cause"), None);
    }
}
