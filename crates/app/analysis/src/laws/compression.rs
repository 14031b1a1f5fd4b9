//! When compression pays: reading a page packed and unpacking it, against reading it as it is.
//!
//! A codec that makes pages `ratio` times smaller and unpacks `decode` bytes per second pays on drives that
//! give fewer than `decode (1 - 1 / ratio)` bytes per second, if reading is all there is. Codecs are
//! measured on this host with pages of the workload's own rows; next to that stands what it did to the
//! database. Invariant: the measured effect is of one stack, that codec over none.

use archive::Run;
use stats::estimate::{Estimate, ratio};
use study::Source;
use workload::OpClass;

use crate::groups::{Group, Ops, groups, is_sql};

const COMPRESSION: &str = "compression";
/// Codecs with what the slides print, MB/s: decoding, encoding.
pub const PUBLISHED: [(&str, f64, f64); 3] =
    [("lz4", 2013.0, 356.0), ("snappy", 915.0, 269.0), ("zlib", 133.0, 23.0)];

/// What a codec does here.
#[derive(Debug, Clone, PartialEq)]
pub struct CodecRow {
    /// The codec's word.
    pub codec: String,
    /// Bytes before over bytes after.
    pub ratio: f64,
    /// Bytes per second.
    pub encode: f64,
    /// Bytes per second.
    pub decode: f64,
    /// What it did to the database on each stack: transactions with it over those without.
    pub effects: Vec<Effect>,
}

impl CodecRow {
    /// Bytes per second that a drive gives below which reading packed pages pays.
    #[must_use]
    pub fn break_even(&self) -> f64 {
        self.decode * (1.0 - 1.0 / self.ratio.max(1.0))
    }
}

/// What a codec did on one stack.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// Name of the stack.
    pub stack: String,
    /// Where it comes from.
    pub source: Source,
    /// Transactions with the codec over those without one.
    pub times: Estimate,
}

/// The codecs that were measured in a run, in the order of [`PUBLISHED`], others after them.
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

    /// At the break-even a page takes as long packed as not.
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
