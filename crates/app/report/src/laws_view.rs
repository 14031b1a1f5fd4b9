//! The three laws of Zhang et al. next to measurements, each with its error.
//!
//! Invariant: a law that does not hold is labelled so.

use std::fmt::Write;

use analysis::laws::compression::{CodecRow, PUBLISHED, codecs};
use analysis::laws::file_cache::{CacheLaw, cache_laws};
use analysis::laws::granularity::{GranularityLaw, granularity_laws};
use archive::Run;
use serde::Serialize;
use units::{Bytes, Nanos};

use crate::chart::short;
use crate::decision_view::times;
use crate::hue::Hues;
use crate::svg::{Scale, below, escape, levels, marks, open, path};

const HEIGHT: f64 = 220.0;
const BOTTOM: f64 = 22.0;
const TOP: f64 = 10.0;

/// All results about the laws in a run.
#[derive(Serialize)]
pub(crate) struct LawsView {
    cache: Vec<CacheView>,
    granularity: Vec<GranularityRow>,
    granularity_finding: String,
    codecs: Vec<CodecView>,
    codecs_finding: String,
    /// Titles of the stacks that codecs ran on.
    codec_stacks: Vec<String>,
}

#[derive(Serialize)]
struct CacheView {
    storage: String,
    hue: usize,
    source: &'static str,
    finding: String,
    left: String,
    picture: String,
    rows: Vec<CacheRow>,
}

#[derive(Serialize)]
struct CacheRow {
    memory: String,
    hits: String,
    t_io: String,
    measured: String,
    law: String,
    error: String,
}

#[derive(Serialize)]
struct GranularityRow {
    storage: String,
    hue: usize,
    source: &'static str,
    workload: String,
    terms: String,
    law: String,
    measured: String,
    off: String,
}

#[derive(Serialize)]
struct CodecView {
    codec: String,
    ratio: String,
    speeds: String,
    published: String,
    break_even: String,
    /// One line per stack.
    effects: Vec<String>,
}

/// The laws; `None` if a run has no matching sweep.
pub(crate) fn laws_view(run: &Run, hues: &Hues) -> Option<LawsView> {
    let title = |stack: &str| {
        let found = run.header.stacks.iter().find(|one| one.name == stack);
        found.map_or(stack, |one| short(&one.title)).to_owned()
    };
    let cache: Vec<CacheView> =
        cache_laws(run).iter().filter_map(|law| cache_view(law, hues, &title)).collect();
    let found = granularity_laws(run);
    let granularity: Vec<GranularityRow> =
        found.iter().map(|law| granularity_row(law, hues, &title)).collect();
    let rows = codecs(run);
    let mut stacks: Vec<&str> =
        rows.iter().flat_map(|row| row.effects.iter().map(|one| one.stack.as_str())).collect();
    stacks.sort_unstable();
    stacks.dedup();
    if cache.is_empty() && granularity.is_empty() && rows.is_empty() {
        return None;
    }
    Some(LawsView {
        cache,
        granularity,
        granularity_finding: granularity_finding(&found),
        codecs: rows.iter().map(|row| codec_view(row, &stacks)).collect(),
        codecs_finding: codecs_finding(&rows),
        codec_stacks: stacks.iter().map(|stack| title(stack)).collect(),
    })
}

/// Relative error above which the law is reported as failed.
const HOLDS: f64 = 0.25;

fn cache_view(law: &CacheLaw, hues: &Hues, title: &dyn Fn(&str) -> String) -> Option<CacheView> {
    let hue = hues.get(&law.stack);
    let (left, picture) = cache_picture(law, hue)?;
    let (measured, of_law) = law.gains();
    let worst = law.worst();
    let verdict = match worst.abs() <= HOLDS {
        true => "The law holds within a quarter",
        false => "The law does not hold here",
    };
    let last = law.points.len() - 1;
    let rows = law.points.iter().enumerate().map(|(at, point)| CacheRow {
        memory: point.memory.clone(),
        hits: format!("{:.2} %", point.hits * 100.0),
        t_io: point.t_io.to_string(),
        measured: Nanos(point.measured as u64).to_string(),
        law: Nanos(point.law as u64).to_string(),
        error: match at == last {
            true => "set here".into(),
            false => format!("{:+.0} %", point.error() * 100.0),
        },
    });
    Some(CacheView {
        storage: title(&law.stack),
        hue,
        source: law.source.word(),
        finding: format!(
            "From the least to the most memory, transaction time falls by {measured:.1}x (law: \
             {of_law:.1}x). {verdict}: worst error {:+.0} %. t_load is {} for each of {:.0} pages.",
            worst * 100.0,
            law.t_load,
            law.pages
        ),
        left,
        picture,
        rows: rows.collect(),
    })
}

/// The label of the vertical axis, and the chart.
fn cache_picture(law: &CacheLaw, hue: usize) -> Option<(String, String)> {
    let missed = law.points.iter().map(|point| 1.0 - point.hits).filter(|x| *x > 0.0);
    let x = Scale::over(missed, true)?;
    let y = Scale::over(law.points.iter().flat_map(|one| [one.measured, one.law]), true)?;
    let at_y = |value: f64| HEIGHT - BOTTOM - y.at(value) / 100.0 * (HEIGHT - BOTTOM - TOP);
    let mut picture = String::new();
    let label = "Time of a transaction over the buffer pool's miss ratio";
    open(&mut picture, "panel", HEIGHT, label);
    levels(&mut picture, y.ticks().into_iter().map(at_y));
    let percent = |tick: f64| (x.at(tick), format!("{} %", crate::svg::short(tick * 100.0)));
    below(&mut picture, HEIGHT, x.ticks().into_iter().map(percent));
    let shown = || law.points.iter().filter(|point| point.hits < 1.0);
    let of_law: Vec<(f64, f64)> =
        shown().map(|point| (x.at(1.0 - point.hits), at_y(point.law))).collect();
    path(&mut picture, &format!("line law h{hue}"), HEIGHT, &of_law);
    for point in shown() {
        let _ = write!(
            picture,
            "<circle class=\"mark h{hue} {}\" cx=\"{:.1}%\" cy=\"{:.1}\" r=\"4\"><title>{}: \
             {}</title></circle>",
            law.source.word(),
            x.at(1.0 - point.hits),
            at_y(point.measured),
            escape(&point.memory),
            Nanos(point.measured as u64)
        );
    }
    picture.push_str("</svg>");
    let words = y.ticks().into_iter().map(|tick| (at_y(tick), Nanos(tick as u64).to_string()));
    Some((marks(HEIGHT, words), picture))
}

fn granularity_row(
    law: &GranularityLaw,
    hues: &Hues,
    title: &dyn Fn(&str) -> String,
) -> GranularityRow {
    let (m, n) = law.accesses;
    GranularityRow {
        storage: title(&law.stack),
        hue: hues.get(&law.stack),
        source: law.source.word(),
        workload: law.workload.replace('_', "-"),
        terms: format!(
            "m {m:.1}, n {n:.1}, range {}, t_app {}, t_seek {}, {:.2} \u{b5}s a KiB (line off by at most \
             {:.0} %)",
            law.range,
            law.t_app,
            Nanos(law.line.fixed as u64),
            law.line.per_byte * 1.024,
            law.line.worst * 100.0
        ),
        law: match n > 0.0 {
            true => law.best.to_string(),
            false => "the smallest".into(),
        },
        measured: law.measured.to_string(),
        off: match n > 0.0 {
            true => times(law.best.get() as f64 / law.measured.get() as f64),
            false => match law.measured <= Bytes(4 << 10) {
                true => "as measured".into(),
                false => "not as measured".into(),
            },
        },
    }
}

/// Page sizes within this factor are neighbours.
const NEIGHBOUR: f64 = 2.0;

fn granularity_finding(laws: &[GranularityLaw]) -> String {
    let near = |law: &&GranularityLaw| {
        let ratio = law.best.get().max(4 << 10) as f64 / law.measured.get() as f64;
        (1.0 / NEIGHBOUR..=NEIGHBOUR).contains(&ratio)
    };
    let count = laws.iter().filter(near).count();
    format!(
        "In {count} of {} cases the law predicts the fastest page size or its neighbour. It assumes \
         that every access is an I/O; a buffer pool avoids most.",
        laws.len()
    )
}

fn codec_view(row: &CodecRow, stacks: &[&str]) -> CodecView {
    let mb = |bytes: f64| format!("{:.0}", bytes / 1e6);
    let published = PUBLISHED.iter().find(|(codec, ..)| *codec == row.codec);
    let effect = |stack: &&str| {
        let found = row.effects.iter().find(|one| one.stack == **stack);
        found.map_or_else(
            || "not run".to_owned(),
            |one| format!("{} ({})", times(one.times.value), one.source.word()),
        )
    };
    CodecView {
        codec: row.codec.clone(),
        ratio: format!("{:.2}", row.ratio),
        speeds: format!("{} / {}", mb(row.decode), mb(row.encode)),
        published: published
            .map_or_else(|| "-".into(), |(_, decode, encode)| format!("{decode} / {encode}")),
        break_even: match row.break_even() {
            value if value > 0.0 => mb(value),
            _ => "never".into(),
        },
        effects: stacks.iter().map(effect).collect(),
    }
}

fn codecs_finding(rows: &[CodecRow]) -> String {
    let all: Vec<f64> =
        rows.iter().flat_map(|row| row.effects.iter().map(|one| one.times.value)).collect();
    let slower = all.iter().filter(|value| **value < 0.95).count();
    format!(
        "Compression pays for reads on drives slower than the break-even. In {slower} of {} cases it \
         cost more than 5 % of the transactions.",
        all.len()
    )
}
