//! A study of the block I/O in a recording: one closed-loop job for each drive that the database used.
//!
//! Invariant: the text is a valid study.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use capture::{Breakdown, DriveLoad, Header};

/// Sizes that a job keeps; the rest are requests of few kinds each.
const SIZES: usize = 6;
/// Smallest and largest size of a block job.
const SIZE_LIMITS: (u32, u32) = (512, 16 << 20);

/// Longest name of a program in a study's name.
const NAME_MAX: usize = 32;

/// The study of a recording, also on the models `on`; `None` if nothing was read or written.
pub fn text(header: &Header, breakdown: &Breakdown, on: &[String]) -> Option<String> {
    let of =
        header.process.iter().find(|one| !one.client).map_or("database", |one| one.name.as_str());
    let of: String = of.chars().filter(char::is_ascii_alphanumeric).take(NAME_MAX).collect();
    let of = if of.is_empty() { "database".to_owned() } else { of };
    let mut text = format!(
        "# The block I/O of {of}, recorded for {}: sizes, reads, flushes, queue depth; random offsets.\n\
         # `crosspoint capture predict` also keeps the order of CPU time and I/O.\n\
         schema = 2\nname = \"captured-{}\"\nquestion = \"What would {of}'s I/O do on that storage?\"\n\n\
         [[stack]]\nname = \"this-disk\"\ndevice = \"file\"\nsize = \"1GiB\"\n",
        header.length(),
        of.to_lowercase()
    );
    let mut stacks = BTreeSet::from(["this-disk".to_owned()]);
    for model in on {
        let name = model.strip_prefix("model:").unwrap_or(model);
        let stack = unique(&word(name), &mut stacks);
        let device = toml::Value::from(format!("model:{name}"));
        let _ = write!(text, "\n[[stack]]\nname = \"{stack}\"\ndevice = {device}\n");
    }
    let mut experiments = BTreeSet::new();
    for (number, load) in &breakdown.drives {
        let disk = header.disk.iter().find(|disk| disk.number == *number);
        let name = disk.map_or("", |disk| disk.name.as_str());
        if let Some(job) = job(load) {
            let name = unique(&word(name), &mut experiments);
            let _ = write!(text, "\n[[experiment]]\nname = \"{name}\"\n{job}");
        }
    }
    (!experiments.is_empty()).then_some(text)
}

/// A name that is not in `taken` yet, and is then.
fn unique(name: &str, taken: &mut BTreeSet<String>) -> String {
    let name = if name.is_empty() { "drive" } else { name };
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    names.find(|name| taken.insert(name.clone())).unwrap_or_default()
}

/// Letters, digits and `-`: names of a recording may be anything.
fn word(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// The keys of an experiment after its name; `None` without reads and writes.
fn job(load: &DriveLoad) -> Option<String> {
    let [reads, writes, flushes] = &load.kinds;
    let transfers = reads.count + writes.count;
    if transfers == 0 {
        return None;
    }
    let mut sizes: BTreeMap<u32, u64> = BTreeMap::new();
    for (size, count) in reads.sizes.iter().chain(&writes.sizes) {
        let size = size.next_multiple_of(512).clamp(SIZE_LIMITS.0, SIZE_LIMITS.1);
        *sizes.entry(size).or_default() += count;
    }
    let mut common: Vec<(u32, u64)> = sizes.into_iter().collect();
    common.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    common.truncate(SIZES);
    let weight = |count: u64| (count as f64 / transfers as f64 * 1000.0).round().max(1.0);
    let mix = common.iter().map(|(size, count)| {
        format!(
            "{{ size = \"{}\", weight = {:.0} }}",
            units::Bytes(u64::from(*size)).exact(),
            weight(*count)
        )
    });
    let sync = match flushes.count + load.durable {
        0 => String::new(),
        durable => format!("sync_every = {}\n", (writes.count / durable).max(1)),
    };
    // Rounding must not remove the few writes, or reads, that there were.
    let read_share = match (reads.count, writes.count) {
        (0, _) => 0.0,
        (_, 0) => 100.0,
        _ => (reads.count as f64 / transfers as f64 * 100.0).clamp(0.01, 99.99),
    };
    Some(format!(
        "duration = \"20s\"\n\n[experiment.job]\nengine = \"block\"\n\
         read_share = \"{:.2}%\"\nqueue_depth = {:.0}\nalignment = \"4KiB\"\nsize_mix = [{}]\n{sync}",
        read_share,
        load.depth.ceil().clamp(1.0, 4096.0),
        mix.collect::<Vec<_>>().join(", ")
    ))
}
