//! Summary of held-out figures: the median of each group next to its bar, and the causes of misses.
//!
//! Invariants: a figure's group depends on its job; a miss without a cause, or a cause without a miss, is an
//! error, so that no miss goes unmentioned.

use std::collections::BTreeMap;
use std::fmt::Write;

use device::{Evidence, MissCause, Profile};
use validate::{Check, median_absolute};

/// Groups with a bar: name, and the maximum of the median; `None`: no bar.
const GROUPS: [(&str, Option<f64>); 12] = [
    ("random reads alone, up to 16 KiB: rate, mean, p50", Some(0.10)),
    ("large or sequential reads alone: rate, mean, p50", Some(0.10)),
    ("reads next to writes: mean, p50", Some(0.15)),
    ("writes that the drive's buffer takes at once: mean, p50", Some(0.12)),
    ("throttled writes: mean, p50", Some(0.12)),
    ("writes and mixes: rate, mean of both", Some(0.12)),
    ("durable writes (flush, FUA): rate, mean, p50", None),
    ("p99 of reads", Some(0.25)),
    ("p99 of writes", Some(0.25)),
    ("p99.9 and beyond", None),
    (
        "overwriting a full drive: onset and depth of the performance drop, and the rate after it",
        Some(0.30),
    ),
    ("latency growth near saturation", None),
];

/// Largest request of a random read that counts as small.
const SMALL: u64 = 16 << 10;
/// Time in which a drive's buffer takes a write, ns: throttled ones are predicted to take longer.
const AT_ONCE: f64 = 100_000.0;
/// Predictions that differ by less repeat each other.
const SAME: f64 = 0.02;

/// Indices of the groups that one more row combines, with its name and bar.
const TOGETHER: (&str, [usize; 2], f64) =
    ("p99 of reads and writes together (the two rows above together)", [7, 8], 0.25);

/// The group of a figure, by its place among [`GROUPS`].
fn group(one: &Check) -> usize {
    let Some(shape) = &one.shape else {
        return if one.metric.starts_with("filled, random writes") { 10 } else { 11 };
    };
    let pure = shape.read_percent >= 100.0 && shape.background_writes == 0;
    let (metric, of) = one.metric.split_once(" of ").unwrap_or((one.metric, ""));
    let writes = of == "writes" || shape.read_percent <= 0.0;
    match metric {
        "p99" if of == "reads" || pure => 7,
        "p99" => 8,
        "p99.9" | "p99.99" | "p99.999" => 9,
        _ if !shape.durable.is_empty() => 6,
        // Bandwidth often stands in the data sheet of the same drive that gave the constant.
        _ if pure && (shape.sequential || shape.block_bytes > SMALL) => 1,
        _ if pure => 0,
        _ if of == "reads" || shape.read_percent >= 100.0 => 2,
        "mean" | "p50" if writes && one.predicted < AT_ONCE => 3,
        "mean" | "p50" if writes => 4,
        _ => 5,
    }
}

/// What a figure measures, with the model's value: the rate of a limit in operations and in bytes, or a time.
fn quantities(one: &Check) -> Vec<(String, f64)> {
    let Some(shape) = &one.shape else { return Vec::new() };
    let (metric, of) = one.metric.split_once(" of ").unwrap_or((one.metric, ""));
    let of = match shape.read_percent {
        _ if !of.is_empty() => of.to_owned(),
        percent if percent >= 100.0 => "reads".to_owned(),
        percent if percent <= 0.0 => "writes".to_owned(),
        percent => format!("{percent} % reads"),
    };
    let (bytes, value, durable) = (shape.block_bytes as f64, one.predicted, &shape.durable);
    let rates = |operations: f64| {
        let name = |unit: &str| format!("{unit} {of} {durable}");
        vec![(name("operations"), operations), (name("bytes"), operations * bytes)]
    };
    match metric {
        "IOPS" => rates(value),
        "MB/s" => rates(value * 1e6 / bytes),
        "mean" | "p50" => vec![(format!("time {of} {durable} {bytes}"), value)],
        tail => vec![(format!("{tail} {of} {durable} {bytes}"), value)],
    }
}

/// Whether the model gives a figure the same number as a fitted one of the same quantity: the same constant
/// gives both.
fn is_implied(one: &Check, profile: &[Check]) -> bool {
    let own = quantities(one);
    let same = |other: &Check| {
        quantities(other).iter().any(|(name, value)| {
            own.iter().any(|(own, is)| own == name && (is / value - 1.0).abs() < SAME)
        })
    };
    profile.iter().filter(|other| other.evidence == Evidence::Fitted).any(same)
}

/// Both tables.
///
/// # Errors
/// Every held-out figure outside its bar without a cause, and every cause of a figure inside it.
pub fn tables(out: &mut String, profiles: &[(Profile, Vec<Check>)]) -> Result<(), String> {
    let all =
        || profiles.iter().flat_map(|(profile, checks)| checks.iter().map(move |c| (profile, c)));
    let wrong: Vec<String> = all()
        .filter(|(_, one)| {
            let missed = one.evidence == Evidence::HeldOut && !one.within();
            missed != one.missed.is_some()
        })
        .map(|(profile, one)| {
            let what =
                if one.within() { "a cause, and is inside" } else { "no cause, and is outside" };
            format!("{}: {} has {what}", profile.name, one.what())
        })
        .collect();
    if !wrong.is_empty() {
        return Err(format!("`missed` of the profiles is out of date:\n{}", wrong.join("\n")));
    }
    errors(out, profiles);
    let held_out = all().filter(|(_, one)| one.evidence == Evidence::HeldOut);
    let held_out: Vec<(&str, &Check)> =
        held_out.map(|(profile, one)| (profile.name.as_str(), one)).collect();
    causes(out, &held_out);
    Ok(())
}

/// The median of each group, next to its bar.
fn errors(out: &mut String, profiles: &[(Profile, Vec<Check>)]) {
    let _ = writeln!(out, "\n## Held-out error, all devices\n");
    let _ = writeln!(
        out,
        "The targets are our own choice. Figures given only as a range have no error and are excluded. Most \
         come from one source (see below), so the median over sources, each with the median of its figures, \
         stands next to that over figures. *Not implied*: without figures for which the model gives the same \
         number (within {:.0} %) as for a fitted figure of the same quantity: one constant gives both.\n",
        SAME * 100.0
    );
    let _ = writeln!(
        out,
        "| figures | count | median error | target | within 10 % | within 25 % | sources | median over \
         sources | not implied | their median error |"
    );
    let _ = writeln!(out, "|---|---|---|---|---|---|---|---|---|---|");
    let held_out: Vec<(&Check, bool)> = profiles
        .iter()
        .flat_map(|(_, all)| all.iter().map(move |one| (one, is_implied(one, all))))
        .filter(|(one, _)| one.evidence == Evidence::HeldOut)
        .collect();
    let single = GROUPS.iter().enumerate().map(|(place, (name, bar))| (*name, vec![place], *bar));
    let (name, places, bar) = TOGETHER;
    for (name, places, bar) in single.chain([(name, places.to_vec(), Some(bar))]) {
        let own = || held_out.iter().filter(|(one, _)| places.contains(&group(one)));
        let errors: Vec<f64> = own().filter_map(|(one, _)| one.error()).collect();
        let strict: Vec<f64> =
            own().filter(|(_, implied)| !implied).filter_map(|(one, _)| one.error()).collect();
        let mut sources: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (one, _) in own() {
            // Authors, or the first words of a link.
            let source = one.source.split(',').next().unwrap_or_default();
            sources.entry(source).or_default().extend(one.error());
        }
        let medians: Vec<f64> = sources.values().filter_map(|all| median_absolute(all)).collect();
        let within = |band: f64| errors.iter().filter(|error| error.abs() <= band).count();
        let bar_text = bar.map_or("-".to_owned(), |bar| format!("{:.0} %", bar * 100.0));
        let _ = writeln!(
            out,
            "| {name} | {} | {} | {bar_text} | {} | {} | {} | {} | {} | {} |",
            errors.len(),
            against(&errors, bar),
            within(0.10),
            within(0.25),
            medians.len(),
            against(&medians, None),
            strict.len(),
            against(&strict, bar)
        );
    }
}

/// The median, marked if it is above the bar.
fn against(errors: &[f64], bar: Option<f64>) -> String {
    let Some(middle) = median_absolute(errors) else { return "-".to_owned() };
    let more = if bar.is_some_and(|bar| middle > bar) { " (**above target**)" } else { "" };
    format!("{:.1} %{more}", middle * 100.0)
}

/// Causes of held-out figures outside their tolerance: for each the number of figures, their errors and the
/// worst; most figures first.
fn causes(out: &mut String, held_out: &[(&str, &Check)]) {
    let _ = writeln!(out, "\n## Known misses by cause\n");
    let _ = writeln!(
        out,
        "Each held-out figure outside its tolerance has one of these causes in validation.csv. They are \
         inferred from the sources' figures and were not verified on the drives.\n"
    );
    let _ = writeln!(out, "| cause | figures | errors | the drive, and the model | largest |");
    let _ = writeln!(out, "|---|---|---|---|---|");
    let of = |cause| held_out.iter().filter(move |(_, one)| one.missed == Some(cause));
    let mut found: Vec<MissCause> = MissCause::ALL.to_vec();
    found.retain(|cause| of(*cause).next().is_some());
    found.sort_by_key(|cause| std::cmp::Reverse(of(*cause).count()));
    for cause in found {
        let mut errors: Vec<(f64, String)> = of(cause)
            .filter_map(|(name, one)| Some((one.error()?, format!("{name} {}", one.what()))))
            .collect();
        errors.sort_by(|a, b| a.0.total_cmp(&b.0));
        let percent = |error: f64| format!("{:+.0} %", error * 100.0);
        let range = match errors.as_slice() {
            [] => "-".to_owned(),
            [one] => percent(one.0),
            [first, .., last] => format!("{} to {}", percent(first.0), percent(last.0)),
        };
        let largest = errors.iter().max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
        let largest = largest.map_or("-", |(_, what)| what);
        let _ = writeln!(
            out,
            "| {} | {} | {range} | {} | {largest} |",
            cause.word(),
            of(cause).count(),
            cause.because()
        );
    }
}
