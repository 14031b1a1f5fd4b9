//! A study of the block I/O in a recording: one closed-loop job for each drive that the database used.
//!
//! Invariant: the text is a valid study.

use std::collections::BTreeMap;
use std::fmt::Write;

use capture::{Breakdown, DriveLoad, Header};

/// Sizes that a job keeps; the rest are requests of few kinds each.
const SIZES: usize = 6;
/// Smallest and largest size of a block job.
const SIZE_LIMITS: (u32, u32) = (512, 16 << 20);

/// The study of a recording, also on the models `on`.
pub fn text(header: &Header, breakdown: &Breakdown, on: &[String]) -> String {
    let of =
        header.process.iter().find(|one| !one.client).map_or("database", |one| one.name.as_str());
    let of: String = of.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
    let mut text = format!(
        "# The block I/O of {of}, recorded for {}: sizes, reads, flushes, queue depth; random offsets.\n\
         # `crosspoint capture predict` also keeps the order of CPU time and I/O.\n\
         schema = 2\nname = \"captured-{}\"\nquestion = \"What would {of}'s I/O do on that storage?\"\n\n\
         [[stack]]\nname = \"this-disk\"\ndevice = \"file\"\nsize = \"1GiB\"\n",
        header.length(),
        of.to_lowercase()
    );
    for model in on {
        let name = model.strip_prefix("model:").unwrap_or(model);
        let stack = word(name);
        let device = toml::Value::from(format!("model:{name}"));
        let _ = write!(text, "\n[[stack]]\nname = \"{stack}\"\ndevice = {device}\n");
    }
    for (number, load) in &breakdown.drives {
        let name = header
            .disk
            .iter()
            .find(|disk| disk.number == *number)
            .map_or("disk", |disk| disk.name.as_str());
        text += &job(&word(name), load);
    }
    text
}

/// Letters, digits and `-`: names of a recording may be anything.
fn word(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

fn job(name: &str, load: &DriveLoad) -> String {
    let [reads, writes, flushes] = &load.kinds;
    let transfers = reads.count + writes.count;
    if transfers == 0 {
        return String::new();
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
    format!(
        "\n[[experiment]]\nname = \"{name}\"\nduration = \"20s\"\n\n[experiment.job]\nengine = \"block\"\n\
         read_share = \"{:.0}%\"\nqueue_depth = {:.0}\nalignment = \"4KiB\"\nsize_mix = [{}]\n{sync}",
        reads.count as f64 / transfers as f64 * 100.0,
        load.depth.ceil().clamp(1.0, 4096.0),
        mix.collect::<Vec<_>>().join(", ")
    )
}
