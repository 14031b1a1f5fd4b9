//! Names of engines, parameters and repetitions on a page.
//!
//! Invariant: the same name in all views.

use analysis::{Group, groups, is_sql};
use archive::Run;
use units::Bytes;

use crate::chart::short;

/// Name of an engine.
pub(crate) fn engine_title(group: &Group<'_>) -> String {
    engines::title(&group.first.engine, &group.first.result.path).to_owned()
}

/// The same without a known version.
pub(crate) fn engine_word(engine: &str) -> &str {
    engines::title(engine, "")
}

/// Name of a stack within a sentence.
pub(crate) fn storage_words(title: &str) -> String {
    let short = short(title);
    short.strip_prefix("This ").map_or_else(|| short.to_owned(), |rest| format!("this {rest}"))
}

/// Title of an experiment.
pub(crate) fn experiment_title<'a>(group: &Group<'a>) -> &'a str {
    let (study, name) = (&group.run.study, &group.first.experiment);
    let found = study.experiment.iter().find(|one| one.name == *name);
    found.map_or(name.as_str(), |one| if one.title.is_empty() { &one.name } else { &one.title })
}

/// The job in few words: `read-write, 4 connections, buffer pool 20%, fsync at each commit`.
pub(crate) fn point_words(group: &Group<'_>) -> String {
    let of = |name: &str| group.first.point.get(name).map(String::as_str);
    let mut words: Vec<String> = Vec::new();
    if group.first.engine == "block" {
        let size = of("block_size").and_then(|text| text.parse::<Bytes>().ok());
        words.extend(size.map(|size| size.to_string()));
        words.extend(of("pattern").map(str::to_owned));
        words.push("reads".into());
        let threads = of("clients").filter(|threads| *threads != "1");
        words.extend(threads.map(|threads| format!("with {threads} threads")));
        return words.join(" ");
    }
    words.extend(of("workload").map(|word| word.replace('_', "-")));
    if is_sql(group.first) {
        words.extend(of("clients").map(|count| counted(count, "connection")));
        words.extend(of("buffer_pool").map(|pool| format!("buffer pool {pool}")));
    } else if of("clients").is_some_and(|count| count != "0" && count != "1") {
        words.extend(of("clients").map(|count| counted(count, clients_word(group))));
    }
    for (name, what) in
        [("page_size", "pages of"), ("compression", "compression"), ("flush_method", "")]
    {
        words.extend(of(name).map(|value| format!("{what} {value}").trim().to_owned()));
    }
    words
        .extend(of("doublewrite").filter(|on| *on == "false").map(|_| "no doublewrite".to_owned()));
    words.extend(of("memory").filter(|m| *m != "unlimited").map(|m| format!("memory {m}")));
    // Lookups make nothing durable.
    let writes = of("workload").is_none_or(|word| word != "read_random");
    words.extend(of("durability").filter(|_| writes).map(|word| match word {
        "device" => "fsync at each commit".to_owned(),
        "os" => "no fsync at commit".to_owned(),
        other => format!("durability {other}"),
    }));
    words.extend(Some(varied_words(group)).filter(|words| !words.is_empty()));
    words.join(", ")
}

/// Parameters that a job's description or its place on the page already tells.
const TOLD: [&str; 16] = [
    "workload", "clients", "buffer_pool", "page_size", "compression", "flush_method",
    "doublewrite", "memory", "durability", "op", "rate", "write_rate", "records", "value_size",
    "tables", "distribution",
];

/// Other parameters that vary within the job's experiment: `write_map true`.
pub(crate) fn varied_words(group: &Group<'_>) -> String {
    let first = group.first;
    if first.engine == "block" {
        return String::new();
    }
    let alike = |name: &str, value: &str| {
        let own = group
            .run
            .trials
            .iter()
            .filter(|one| one.experiment == first.experiment && one.engine == first.engine);
        own.into_iter().all(|one| one.point.get(name).is_some_and(|other| other == value))
    };
    let told = |name: &str| TOLD.contains(&name);
    let varied = first.point.iter().filter(|(name, value)| !told(name) && !alike(name, value));
    varied.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

/// What the clients of a key-value job are called: readers if there is a writer.
pub(crate) fn clients_word(group: &Group<'_>) -> &'static str {
    match group.first.point.get("workload").map(String::as_str) {
        None | Some("read_while_writing" | "read_while_scanning") => "reader",
        Some(_) => "client",
    }
}

/// The load of a job: `with 4 connections`.
pub(crate) fn with_clients(group: &Group<'_>) -> String {
    let count = group.first.point.get("clients").map_or("1", String::as_str);
    let what = if is_sql(group.first) { "connection" } else { clients_word(group) };
    format!("with {}", counted(count, what))
}

/// `1 reader`, `4 readers`.
fn counted(count: &str, what: &str) -> String {
    let plural = if count == "1" { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// Runs per point: `n = 1`, `n = 2 to 5`.
pub(crate) fn runs_each(run: &Run) -> String {
    let counts: Vec<usize> = groups(run).iter().map(|group| group.trials.len()).collect();
    match (counts.iter().min(), counts.iter().max()) {
        (Some(1) | None, Some(1) | None) => "n = 1".into(),
        (Some(least), Some(most)) if least < most => format!("n = {least} to {most}"),
        (_, most) => format!("n = {}", most.copied().unwrap_or_default()),
    }
}

/// How often and for how long: `n = 1, 4 s`, with the scale of an emulated drive's time.
pub(crate) fn runs_words(group: &Group<'_>) -> String {
    let seconds = group.first.result.recording.seconds();
    let seconds = match seconds < 1.0 {
        true => format!("{:.0} ms", seconds * 1e3),
        false => format!("{seconds:.0} s"),
    };
    let virtual_time = match group.first.source {
        study::Source::Predicted => " of virtual time",
        _ => "",
    };
    let stretched = match group.time_scale() {
        1 => String::new(),
        scale => format!(", drives time-scaled {scale}x"),
    };
    format!("n = {}, {seconds}{virtual_time}{stretched}", group.trials.len())
}
