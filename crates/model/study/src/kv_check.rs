//! Checks of a key-value experiment.
//!
//! Invariant: an experiment that passes can be planned and run.

use units::Bytes;

use crate::error::Place;
use crate::{Arrivals, KvJob, KvWorkload, Memory, Offsets, StudyError};

/// Largest value.
const VALUE_MAX: Bytes = Bytes(1 << 20);

/// Checks combinations of settings.
pub(crate) fn check_kv(kv: &KvJob, text: Place<'_>) -> Result<(), StudyError> {
    let refuse = |key: &str, message: String| text.refuse(key, message);
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
    if let Some(limit) = kv.memory.bytes(kv.data()).filter(|limit| *limit < Memory::LEAST) {
        let (wanted, least) = (kv.memory.text(), Memory::LEAST);
        let message =
            format!("memory = {wanted} is {limit}; allowed: at least {least}, or unlimited");
        return refuse("memory", message)
            .map_err(|error| error.with_help("increase memory or records"));
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
    check_clients(kv, refuse)
}

/// Checks that the workload fits its clients.
fn check_clients(
    kv: &KvJob,
    refuse: impl Fn(&str, String) -> Result<(), StudyError>,
) -> Result<(), StudyError> {
    let (workload, clients) = (kv.workload, kv.clients);
    let word = workload.word();
    let least = u32::from(!workload.has_another());
    if !(least..=256).contains(&clients) {
        return refuse("clients", format!("clients = {clients}; allowed: {least} to 256"));
    }
    if workload.fills() && clients != 1 {
        return refuse("clients", format!("{word} has one client; leave out clients"));
    }
    let alone = workload == KvWorkload::ReadWhileWriting
        || (workload == KvWorkload::Overwrite && clients == 1);
    if kv.verify && !alone {
        let message = format!(
            "verify needs one writer: read_while_writing, or overwrite with clients = 1; not {word}"
        );
        return refuse("verify", message);
    }
    if workload.is_ycsb() && kv.distribution != Offsets::Uniform {
        let message = "YCSB workloads define their own distribution";
        return refuse("distribution", message.into());
    }
    match (kv.arrivals, kv.rate) {
        (Arrivals::Closed, None) => {}
        (Arrivals::Closed, Some(_)) => {
            return refuse("rate", "a rate needs arrivals = \"constant\" or \"poisson\"".into());
        }
        (_, None) => return refuse("arrivals", "open-loop arrivals need a rate".into()),
        (_, Some(rate)) => {
            if !(1..=100_000_000).contains(&rate.get()) {
                return refuse("rate", "rate; allowed: 1/s to 100M/s".into());
            }
            if workload.fills() {
                return refuse("rate", "a fill workload has no rate".into());
            }
        }
    }
    if kv.write_rate.is_some_and(|rate| !(1..=100_000_000).contains(&rate.get())) {
        return refuse("write_rate", "write_rate; allowed: 1/s to 100M/s".into());
    }
    Ok(())
}
