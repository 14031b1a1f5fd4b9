//! Activity of the host's disks, from kernel counters.
//!
//! Invariant: rates are between two samples.

use std::collections::HashMap;
use std::time::Instant;

/// Bytes per sector in the kernel's counters, whatever the disk's sector size.
const SECTOR: u64 = 512;

/// Activity of one disk per second, between two samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    /// Its name, as in /dev.
    pub name: String,
    /// Reads.
    pub reads: f64,
    /// Writes.
    pub writes: f64,
    /// Bytes read.
    pub read_bytes: f64,
    /// Bytes written.
    pub written_bytes: f64,
    /// Busy share of the time.
    pub busy: f64,
}

/// Reads, sectors read, writes, sectors written, milliseconds busy.
type Counts = [u64; 5];

/// Samples the counters.
#[derive(Debug, Default)]
pub struct Disks {
    last: Option<(Instant, HashMap<String, Counts>)>,
}

impl Disks {
    /// Activity of each disk since the last sample, most bytes first; idle disks are left out.
    pub fn look(&mut self) -> Vec<Traffic> {
        let text = std::fs::read_to_string("/proc/diskstats").unwrap_or_default();
        let whole = |name: &str| std::path::Path::new("/sys/block").join(name).exists();
        let counts: HashMap<String, Counts> =
            parsed(&text).into_iter().filter(|(name, _)| whole(name)).collect();
        let now = Instant::now();
        let found = self.last.take().map_or_else(Vec::new, |(at, before)| {
            between(&before, &counts, now.duration_since(at).as_secs_f64())
        });
        self.last = Some((now, counts));
        found
    }
}

/// The lines of /proc/diskstats (Documentation/admin-guide/iostats.rst of Linux).
fn parsed(text: &str) -> HashMap<String, Counts> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let count = |place: usize| fields.get(place).and_then(|text| text.parse().ok());
        Some((
            (*fields.get(2)?).to_owned(),
            [count(3)?, count(5)?, count(7)?, count(9)?, count(12)?],
        ))
    };
    text.lines().filter_map(line).collect()
}

fn between(
    before: &HashMap<String, Counts>,
    now: &HashMap<String, Counts>,
    seconds: f64,
) -> Vec<Traffic> {
    let mut all: Vec<Traffic> = now
        .iter()
        .filter_map(|(name, counts)| {
            let before = before.get(name)?;
            let rate = |place: usize| counts[place].saturating_sub(before[place]) as f64 / seconds;
            let traffic = Traffic {
                name: name.clone(),
                reads: rate(0),
                writes: rate(2),
                read_bytes: rate(1) * SECTOR as f64,
                written_bytes: rate(3) * SECTOR as f64,
                busy: (rate(4) / 1000.0).min(1.0),
            };
            (seconds > 0.0 && traffic.reads + traffic.writes > 0.0).then_some(traffic)
        })
        .collect();
    let bytes = |one: &Traffic| one.read_bytes + one.written_bytes;
    all.sort_by(|a, b| bytes(b).total_cmp(&bytes(a)).then_with(|| a.name.cmp(&b.name)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_what_came_between_two_looks() {
        let before = parsed("   8  0 sda 100 0 800 50 10 0 80 5 0 1000 55 0 0 0 0 0 0\n 8 1 x 1\n");
        let now = parsed("   8  0 sda 300 0 2400 90 10 0 80 5 0 2000 95 0 0 0 0 0 0\n");
        let found = between(&before, &now, 2.0);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].reads, found[0].writes), (100.0, 0.0));
        assert!((found[0].read_bytes - 800.0 * 512.0).abs() < 1e-6);
        assert!((found[0].busy - 0.5).abs() < 1e-9);
        assert!(between(&now, &now, 1.0).is_empty(), "an idle disk is left out");
    }
}
