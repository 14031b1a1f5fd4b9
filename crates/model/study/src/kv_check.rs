//! What a key-value experiment must hold to.
//!
//! Invariant: one that passes can be planned and run.

use units::Bytes;

use crate::kv::job_of;
use crate::{
    Arrivals, EngineName, Engines, Experiment, KvMatrix, KvWorkload, Memory, Offsets, Operations,
    StudyError,
};

/// Largest value.
const VALUE_MAX: Bytes = Bytes(1 << 20);

/// Whether what goes together does.
///
/// # Errors
/// [`StudyError`] with what is allowed.
pub(crate) fn check_kv(engines: Engines, one: &Experiment, text: &str) -> Result<(), StudyError> {
    let Some(kv) = &one.kv else { return Ok(()) };
    let refuse = |key: &str, message: String| {
        let message = format!("experiment `{}`: {message}", one.name);
        Err(StudyError::general(message).at_key(text, key, |_| true))
    };
    for engine in kv.engine.values() {
        if let Some(allowed) = engines.unknown(engine, Operations::KeyValue) {
            let name: String = engine.word().chars().take(100).collect();
            return refuse("engine", format!("engine = \"{name}\"; allowed: {allowed}"));
        }
    }
    if !(1..=10_000_000_000).contains(&kv.records) {
        return refuse("records", format!("records = {}; allowed: 1 to 10 billion", kv.records));
    }
    if !(16..=64).contains(&kv.key_size) {
        return refuse("key_size", format!("key_size = {}; allowed: 16 to 64", kv.key_size));
    }
    if kv.value_size < Bytes(16) || kv.value_size > VALUE_MAX {
        let message = format!("value_size {}; allowed: 16 B to 1 MiB", kv.value_size);
        return refuse("value_size", message);
    }
    if let Some(most) = kv.value_size_max.filter(|most| *most < kv.value_size || *most > VALUE_MAX)
    {
        let message = format!("value_size_max {most}; allowed: value_size to 1 MiB");
        return refuse("value_size_max", message);
    }
    let job = job_of(kv);
    if let Some(limit) = kv.memory.bytes(job.data()).filter(|limit| *limit < Memory::LEAST) {
        let (wanted, least) = (kv.memory.text(), Memory::LEAST);
        let message =
            format!("memory = {wanted} is {limit}; allowed: at least {least}, or unlimited");
        return refuse("memory", message);
    }
    for (key, value) in [
        ("load_batch", kv.load_batch),
        ("seek_records", kv.seek_records),
        ("write_burst", kv.write_burst),
    ] {
        if value == 0 {
            return refuse(key, format!("{key} = 0; allowed: at least 1"));
        }
    }
    check_clients(kv, engines, refuse)
}

/// Whether the clients can do what is asked of them.
fn check_clients(
    kv: &KvMatrix,
    engines: Engines,
    refuse: impl Fn(&str, String) -> Result<(), StudyError>,
) -> Result<(), StudyError> {
    for &workload in kv.workload.values() {
        let least = u32::from(!workload.has_another());
        for &readers in kv.readers.values() {
            if !(least..=256).contains(&readers) {
                let message = format!("readers = {readers}; allowed: {least} to 256");
                return refuse("readers", message);
            }
            let word = workload.word();
            if workload.fills() && readers != 1 {
                return refuse("readers", format!("{word} has one client; leave out readers"));
            }
            let alone = workload == KvWorkload::ReadWhileWriting
                || (workload == KvWorkload::Overwrite && readers == 1);
            if kv.verify && !alone {
                return refuse(
                    "verify",
                    format!(
                        "verify needs one writer: read_while_writing, or overwrite with readers = 1; \
                             not {word}"
                    ),
                );
            }
        }
        if workload.is_ycsb() && kv.keys != Offsets::Uniform {
            return refuse("keys", "YCSB's workloads have a distribution of their own".into());
        }
    }
    match (kv.arrivals, &kv.rate) {
        (Arrivals::Closed, None) => {}
        (Arrivals::Closed, Some(_)) => {
            return refuse("rate", "a rate needs arrivals = \"constant\" or \"poisson\"".into());
        }
        (_, None) => return refuse("arrivals", "arrivals that are not closed need a rate".into()),
        (_, Some(rates)) => {
            if rates.values().iter().any(|rate| !(1..=100_000_000).contains(&rate.get())) {
                return refuse("rate", "rate; allowed: 1/s to 100M/s".into());
            }
            if kv.workload.values().iter().any(|workload| workload.fills()) {
                return refuse("rate", "a workload that fills a database has no rate".into());
            }
        }
    }
    if kv.write_rate.is_some_and(|rate| !(1..=100_000_000).contains(&rate.get())) {
        return refuse("write_rate", "write_rate; allowed: 1/s to 100M/s".into());
    }
    let takes = |name: &EngineName| {
        let engine = engines.find(name, Operations::KeyValue);
        engine.is_none_or(|engine| engine.has_option("options"))
    };
    if !kv.options.is_empty() && !kv.engine.values().iter().any(takes) {
        let with = engines.with(Operations::KeyValue).filter(|one| one.has_option("options"));
        let names: Vec<&str> = with.map(|one| one.name).collect();
        let message = format!("options need an engine that has them: {}", names.join(", "));
        return refuse("options", message);
    }
    if let Some(name) = elsewhere(&kv.options) {
        return refuse(
            "options",
            format!(
                "`{name}` puts files where the stack is not: what they cost would be counted as its"
            ),
        );
    }
    Ok(())
}

/// The option of RocksDB's that leads out of the database's directory, if there is one.
fn elsewhere(options: &str) -> Option<&'static str> {
    const PATHS: [&str; 4] = ["wal_dir", "db_log_dir", "db_paths", "cf_paths"];
    let names = options.split([';', '{', '}']).filter_map(|part| part.split_once('='));
    let names: Vec<&str> = names.map(|(name, _)| name.trim()).collect();
    PATHS.into_iter().find(|path| names.contains(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A write-ahead log on another disk makes the measured one look as fast as that.
    #[test]
    fn no_option_leads_out_of_the_stack() {
        assert_eq!(elsewhere("write_buffer_size=65536; wal_dir =/tmp"), Some("wal_dir"));
        assert_eq!(elsewhere("db_paths={{path=/tmp;target_size=1}}"), Some("db_paths"));
        assert_eq!(elsewhere("block_based_table_factory={block_size=8192}"), None);
    }
}
