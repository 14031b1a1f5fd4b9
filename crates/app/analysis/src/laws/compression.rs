//! Break-even of compression: reading and decompressing a page against reading it uncompressed.
//!
//! A codec that shrinks pages by `ratio` and decompresses `decode` bytes per second pays on drives slower
//! than `decode (1 - 1 / ratio)` bytes per second, counting reads only. Codecs are measured on this host with
//! pages of the workload's rows, next to their effect on the database. Invariant: an effect compares codec
//! and no codec on one stack.

use archive::Run;
use stats::estimate::{Estimate, ratio};
use study::Source;
use workload::OpClass;

use crate::groups::{Group, Ops, groups, is_sql};

const COMPRESSION: &str = "compression";
/// Codecs with the published speeds, MB/s: decoding, encoding.
pub const PUBLISHED: [(&str, f64, f64); 3] =
    [("lz4", 2013.0, 356.0), ("snappy", 915.0, 269.0), ("zlib", 133.0, 23.0)];

/// A codec measured on this host.
#[derive(Debug, Clone, PartialEq)]
pub struct CodecRow {
    /// Name of the codec.
    pub codec: String,
    /// Uncompressed over compressed size.
    pub ratio: f64,
    /// Compression, bytes per second.
    pub encode: f64,
    /// Decompression, bytes per second.
    pub decode: f64,
    /// Its effect on each stack: transactions with it over transactions without.
    pub effects: Vec<Effect>,
}

impl CodecRow {
    /// Drive throughput in bytes per second below which reading compressed pages is faster.
    #[must_use]
    pub fn break_even(&self) -> f64 {
        self.decode * (1.0 - 1.0 / self.ratio.max(1.0))
    }
}

/// Effect of a codec on one stack.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// Name of the stack.
    pub stack: String,
    /// Source of the values.
    pub source: Source,
    /// Transactions with the codec over transactions without.
    pub times: Estimate,
}

/// The codecs measured in a run, in the order of [`PUBLISHED`], then others.
#[must_use]
pub fn codecs(run: &Run) -> Vec<CodecRow> {
    let all = groups(run);
    let swept: Vec<&Group<'_>> = all
        .iter()
        .filter(|group| is_sql(group.first) && group.is_sound())
        .filter(|group| group.first.point.contains_key(COMPRESSION))
        .collect();
    let totals = swept.iter().map(|group| &group.first.result.totals);
    let names = ["lz4", "snappy", "zlib", "zstd"];
    let with = |name: &str| {
        let get = |what: &str| {
            let key = format!("codec_{name}_{what}");
            let mut values: Vec<f64> =
                totals.clone().filter_map(|totals| totals.get(&key).copied()).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied()
        };
        Some(CodecRow {
            codec: name.to_owned(),
            ratio: get("ratio")?,
            encode: get("encode")?,
            decode: get("decode")?,
            effects: effects(&all, &swept, name),
        })
    };
    names.into_iter().filter_map(with).collect()
}

fn effects(all: &[Group<'_>], swept: &[&Group<'_>], codec: &str) -> Vec<Effect> {
    let whole = Ops::Only(OpClass::Transaction);
    let of = |group: &&&Group<'_>| {
        let mut plain = group.first.point.clone();
        plain.remove(COMPRESSION);
        let without = all.iter().find(|other| {
            let mut point = other.first.point.clone();
            let none = point.remove(COMPRESSION).is_none_or(|word| word == "none");
            none && point == plain
                && other.first.stack == group.first.stack
                && other.first.experiment == group.first.experiment
        })?;
        Some(Effect {
            stack: group.first.stack.clone(),
            source: group.first.source,
            times: ratio(&group.rate(whole)?, &without.rate(whole)?),
        })
    };
    let own = swept.iter().filter(|group| group.first.point[COMPRESSION] == codec);
    own.filter_map(|group| of(&group)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At the break-even throughput, a page must take equally long compressed and uncompressed.
    #[test]
    fn at_the_break_even_both_ways_take_as_long() {
        let row = CodecRow {
            codec: "zlib".into(),
            ratio: 2.5,
            encode: 20e6,
            decode: 300e6,
            effects: Vec::new(),
        };
        let (page, drive) = (16384.0, row.break_even());
        let packed = page / row.ratio / drive + page / row.decode;
        assert!((packed - page / drive).abs() < 1e-12, "{drive}");
        assert_eq!(CodecRow { ratio: 0.9, ..row }.break_even(), 0.0, "nothing is gained");
    }
}
