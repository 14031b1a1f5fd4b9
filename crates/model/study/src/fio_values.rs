//! Converts values of fio options: numbers, distributions, names, and which options do not affect the load.
//!
//! Invariant: a value without an exact equivalent gives `None`, never an approximation.

use toml::{Table, Value};

/// Engines with one operation in flight.
pub(crate) const SYNCHRONOUS: [&str; 5] = ["psync", "sync", "vsync", "pvsync", "pvsync2"];

/// Other engines that read and write storage, whose load is carried over to io_uring.
pub(crate) const STORAGE: [&str; 9] = [
    "libaio", "posixaio", "mmap", "splice", "sg", "io_uring_cmd", "xnvme", "libblkio", "solarisaio",
];

/// Options that only say how fio reports or starts, or that are how this program works anyway.
pub(crate) const WITHOUT_EFFECT: [&str; 22] = [
    "group_reporting", "thread", "description", "name", "invalidate", "norandommap", "randrepeat",
    "time_based", "stonewall", "wait_for_previous", "lat_percentiles", "clat_percentiles",
    "percentile_list", "disable_lat", "disable_clat", "disable_slat", "gtod_reduce",
    "registerfiles", "fixedbufs", "refill_buffers", "allow_mounted_write", "random_generator",
];

/// The equivalent of fio's distribution, if there is one.
pub(crate) fn offsets(text: &str) -> Option<String> {
    let (kind, parameter) = text.split_once(':').unwrap_or((text, ""));
    match kind {
        "random" => Some("uniform".into()),
        "zipf" if !parameter.is_empty() => Some(format!("zipf:{parameter}")),
        "normal" | "gauss" if !parameter.is_empty() => {
            Some(format!("gaussian:{}%", parameter.trim_end_matches('%')))
        }
        "zoned" => {
            let (access, space) = parameter.split(':').next()?.split_once('/')?;
            // Two zones are a hot spot; more are not.
            (parameter.split(':').count() == 2).then(|| format!("hot-spot:{access}%/{space}%"))
        }
        _ => None,
    }
}

/// A whole number with fio's suffixes.
pub(crate) fn scaled(text: &str, base: u64) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let split = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (number, suffix) = lower.split_at(split);
    let number: u64 = number.parse().ok()?;
    let power = match suffix.trim_end_matches("ib").trim_end_matches(['b', 'i']) {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return None,
    };
    number.checked_mul(base.checked_pow(power)?)
}

/// A name that a study accepts.
pub(crate) fn identifier(name: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = name.chars().map(allowed).take(64).collect();
    if name.is_empty() { "job".into() } else { name }
}

/// Keys of background load.
pub(crate) const BESIDE: [&str; 12] = [
    "pattern", "distribution", "block_size", "read_share", "queue_depth", "clients", "arrivals",
    "rate", "burst", "think_time", "sync_every", "dsync",
];

/// Sizes of `bssplit` with their weights: `4k/60:64k/40`.
pub(crate) fn size_mix(split: &str) -> Option<Value> {
    let one = |part: &str| {
        let (size, share) = part.split_once('/')?;
        let mut table = Table::new();
        let size = units::Bytes(scaled(size, 1024)?).exact();
        table.insert("size".into(), Value::String(size));
        table.insert("weight".into(), Value::Integer(share.parse().ok()?));
        Some(Value::Table(table))
    };
    let parts: Option<Vec<Value>> = split.split(':').map(one).collect();
    parts.map(Value::Array)
}

/// Whether an experiment writes, by its own or background clients.
pub(crate) fn writes(experiment: &Table) -> bool {
    let Some(block) = experiment.get("job").and_then(Value::as_table) else { return false };
    let reads_only =
        |table: &Table| table.get("read_share").and_then(Value::as_str) == Some("100%");
    let beside = block.get("beside").and_then(Value::as_array).into_iter().flatten();
    !reads_only(block) || beside.filter_map(Value::as_table).any(|table| !reads_only(table))
}

/// Lines as comments of a study.
pub(crate) fn comments(what: &str, lines: &[String]) -> String {
    // Comments of TOML hold no control characters.
    let line = |line: &String| format!("# {what}: {}\n", line.replace(char::is_control, " "));
    lines.iter().map(line).collect()
}

/// A time; a bare number counts `unit` nanoseconds.
pub(crate) fn time(text: &str, unit: u64) -> Option<units::Nanos> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, word) = text.split_at(split);
    let factor = match word.trim() {
        "" => unit,
        "us" | "usec" => 1_000,
        "ms" | "msec" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor).map(units::Nanos)
}

/// Rates of reads and writes; one applies to each.
pub(crate) fn rates(text: &str) -> Option<(u64, u64)> {
    let mut parts = text.split(',').map(|part| match part.trim() {
        "" => Some(0),
        part => scaled(part, 1000),
    });
    let read = parts.next().flatten()?;
    Some((read, parts.next().unwrap_or(Some(read))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_fios_suffixes() {
        assert_eq!(scaled("4k", 1024), Some(4096));
        assert_eq!(scaled("1MiB", 1024), Some(1 << 20));
        assert_eq!(scaled("2g", 1000), Some(2_000_000_000));
        assert_eq!(scaled("x", 1024), None);
    }
}
