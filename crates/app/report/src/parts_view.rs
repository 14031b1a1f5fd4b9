//! Where the time of an operation goes: one bar of shares per stack.
//!
//! Time in the drive and waits for it have the drive's colour; the rest is grey. Measured bars are solid,
//! emulated and predicted ones hatched. Invariant: a bar's parts are shares of the mean time next to it.

use std::fmt::Write;

use analysis::Group;
use analysis::background::{background_cpus, background_written};
use analysis::decision::Decision;
use analysis::time_parts::{Part, TimeParts, time_parts};
use serde::Serialize;
use units::Nanos;

use crate::chart::short;
use crate::decision_view::part_words;
use crate::hue::Hues;
use crate::svg::{Scale, cut, escape, open};
use crate::words::{engine_title, experiment_title};

/// Decisions whose time is drawn.
const SHOWN_MAX: usize = 8;
/// Bars of one decision.
const BARS_MAX: usize = 12;
/// Width of a letter, percent of the narrowest picture.
const LETTER: f64 = 1.9;
/// Characters of a storage's name next to its number.
const NAME_MAX: usize = 44;
/// Smallest share of a part that is listed.
const TOLD: f64 = 0.005;
/// CPUs of background threads from which on they are shown.
const CPUS_MIN: f64 = 0.01;
const ROW: f64 = 60.0;
const BAR: f64 = 18.0;

/// The bars of one decision.
#[derive(Serialize)]
pub(crate) struct PartsView {
    title: String,
    svg: String,
    /// Stacks without a time breakdown.
    without: String,
    /// The numbers behind the bars.
    rows: Vec<PartsRow>,
}

#[derive(Serialize)]
struct PartsRow {
    storage: String,
    parts: String,
}

/// The bars of the decisions that have stages.
pub(crate) fn parts_views(decisions: &[Decision<'_>], hues: &Hues) -> Vec<PartsView> {
    decisions.iter().filter_map(|one| view(one, hues)).take(SHOWN_MAX).collect()
}

struct Bar<'a> {
    storage: &'a str,
    hue: usize,
    group: &'a Group<'a>,
    time: TimeParts,
}

fn view(decision: &Decision<'_>, hues: &Hues) -> Option<PartsView> {
    let (mut bars, mut without) = (Vec::new(), Vec::new());
    for choice in &decision.choices {
        let storage = short(choice.group.stack_title());
        match time_parts(&choice.group, decision.counted.ops()) {
            Some(time) => bars.push(Bar {
                storage,
                hue: hues.get(&choice.group.first.stack),
                group: &choice.group,
                time,
            }),
            None => without.push(storage),
        }
    }
    bars.truncate(BARS_MAX);
    bars.first()?;
    let height = bars.len() as f64 * ROW + 4.0;
    let what = engine_title(&decision.here().group);
    let title = match what.as_str() {
        "block" => "one read".to_owned(),
        engine => format!(
            "{engine}, one {}: {}",
            operation(decision),
            experiment_title(&decision.here().group)
        ),
    };
    let mut svg = String::new();
    open(&mut svg, "parts", height, &format!("Time breakdown: {title}"));
    for (bar, place) in bars.iter().zip(0..) {
        draw(&mut svg, bar, f64::from(place) * ROW);
    }
    svg.push_str("</svg>");
    let rows = bars.iter().map(|bar| PartsRow {
        storage: format!("{}, {}", bar.storage, bar.group.first.source.word()),
        parts: words(&bar.time, bar.group) + &background_words(bar.group),
    });
    let rows = rows.collect();
    Some(PartsView { title, svg, without: without.join(", "), rows })
}

fn operation(decision: &Decision<'_>) -> &'static str {
    match decision.counted {
        analysis::decision::DecisionMetric::Transactions
        | analysis::decision::DecisionMetric::TimeAtRate(workload::OpClass::Transaction) => {
            "transaction"
        }
        analysis::decision::DecisionMetric::TimeAtRate(workload::OpClass::Read) => "lookup",
        analysis::decision::DecisionMetric::Lookups => "lookup",
        analysis::decision::DecisionMetric::ReadTime => "read",
        _ => "update",
    }
}

fn words(time: &TimeParts, group: &Group<'_>) -> String {
    let part = |(part, of): &(Part, Nanos)| {
        let share = of.get() as f64 / time.whole.get().max(1) as f64 * 100.0;
        format!("{} {of} ({share:.0} %)", part_words(*part, group))
    };
    let told = |(_, of): &&(Part, Nanos)| of.get() as f64 >= TOLD * time.whole.get() as f64;
    time.parts.iter().filter(told).map(part).collect::<Vec<_>>().join(", ")
}

/// What background work takes next to it.
fn background_words(group: &Group<'_>) -> String {
    let cpus = group.over_trials(background_cpus).filter(|cpus| cpus.value >= CPUS_MIN);
    let cpus = cpus.map(|cpus| format!("{:.2} CPUs", cpus.value));
    let written = group.over_trials(background_written).filter(|share| share.value > 0.0);
    let written = written.map(|share| format!("{:.0} % of the bytes written", share.value * 100.0));
    let all: Vec<String> = cpus.into_iter().chain(written).collect();
    match all.len() {
        0 => String::new(),
        _ => format!("; background threads: {}", all.join(", ")),
    }
}

fn draw(svg: &mut String, bar: &Bar<'_>, top: f64) {
    let scale = Scale::new(0.0, bar.time.whole.get() as f64, false);
    let _ = write!(
        svg,
        "<text class=\"name h{}\" x=\"0\" y=\"{:.0}\">{}</text><text class=\"note\" x=\"0\" y=\"{:.0}\">{}, \
         {}</text>",
        bar.hue,
        top + 14.0,
        escape(&cut(bar.storage, NAME_MAX)),
        top + 29.0,
        bar.time.whole,
        bar.group.first.source.word()
    );
    let mut from = 0.0;
    for (part, time) in &bar.time.parts {
        let to = from + time.get() as f64;
        let (x, width) = (scale.at(from), scale.at(to) - scale.at(from));
        let (class, label) = drawn(*part);
        let _ = write!(
            svg,
            "<rect class=\"part {} h{} {}\" x=\"{x:.2}%\" y=\"{:.0}\" width=\"{width:.2}%\" height=\"{BAR}\">\
             <title>{}: {time}</title></rect>",
            class,
            bar.hue,
            bar.group.first.source.word(),
            top + 35.0,
            escape(part_words(*part, bar.group)),
        );
        // A label if it fits, also on a phone.
        if width > label.len() as f64 * LETTER + 2.0 {
            let _ = write!(
                svg,
                "<text class=\"inside {}\" x=\"{:.2}%\" dx=\"5\" y=\"{:.0}\">{}</text>",
                class,
                x,
                top + 48.0,
                escape(label)
            );
        }
        from = to;
    }
}

/// CSS class, and a label short enough for a bar.
const fn drawn(part: Part) -> (&'static str, &'static str) {
    match part {
        Part::Cpu => ("host-1", "on CPU"),
        Part::RunQueue => ("host-2", "run queue"),
        Part::Locks => ("host-3", "locks"),
        Part::Network => ("host-3", "network"),
        Part::Background => ("host-1", "background"),
        Part::WakeUps => ("host-2", "wake-up"),
        Part::HostPath => ("host-2", "kernel I/O"),
        Part::Submission => ("host-1", "submission"),
        Part::BlockLayer => ("host-3", "block layer"),
        Part::Completion => ("host-3", "completion"),
        Part::Backlog => ("host-3", "client thread"),
        Part::Hop => ("host-1", "fabric"),
        Part::DriveQueue => ("drive-2", "queue"),
        Part::DriveLimit => ("drive-3", "throttling"),
        Part::DriveReads => ("drive-1", "reads"),
        Part::DriveWrites => ("drive-2", "writes"),
        Part::DriveFlushes => ("drive-3", "flushes"),
        Part::Drive => ("drive-1", "drive"),
        Part::DriveAndLayers => ("drive-1", "drive and layers"),
        Part::Selects => ("host-1", "selects"),
        Part::Changes => ("host-2", "changes"),
        Part::Commit => ("mixed-1", "commit"),
        Part::BlockReads => ("mixed-1", "block reads"),
        Part::BlockReadsBesides => ("host-1", "block reads"),
        Part::Log => ("mixed-1", "log"),
        Part::Memtable => ("host-1", "memtable"),
        Part::Stalls => ("mixed-2", "write stalls"),
        Part::OtherWriters => ("host-2", "other writers"),
        Part::Rest => ("host-3", "unattributed"),
    }
}
