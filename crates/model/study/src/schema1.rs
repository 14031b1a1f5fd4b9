//! Converts studies of schema 1 to schema 2.
//!
//! Schema 1 had four tables for jobs, `[experiment.block]`, `act`, `kv` and `sql`, with other names for the
//! same things, and engine options among their keys. No other module knows about that.

use std::borrow::Cow;

use serde::Deserialize;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Table};

use crate::error::StudyError;

/// SQL job options that were axes, in the order of expansion.
pub(crate) const SQL_OPTIONS: [&str; 4] =
    ["page_size", "compression", "doublewrite", "flush_method"];

/// Keys of jobs and of points in stored runs: name in schema 1, name now.
const RENAMED: [(&str, &str); 6] = [
    ("threads", "clients"),
    ("readers", "clients"),
    ("offsets", "distribution"),
    ("keys", "distribution"),
    ("rows", "records"),
    ("transactions", "operations"),
];

/// Keys that are options of engines now.
const OPTIONS: [(&str, &[&str]); 2] = [
    ("kv", &["write_map", "read_ahead", "map_size", "library"]),
    (
        "sql",
        &[
            "server", "buffer_pool", "page_size", "compression", "doublewrite", "flush_method",
            "redo_log", "settings",
        ],
    ),
];

/// Options that schema 1 accepted for every engine and ignored for all but this one.
const IGNORED_ELSEWHERE: [(&str, &str); 8] = [
    ("write_map", "lmdb"),
    ("read_ahead", "lmdb"),
    ("map_size", "lmdb"),
    ("library", "rocksdb"),
    ("server", "mysql"),
    ("doublewrite", "mysql"),
    ("flush_method", "mysql"),
    ("redo_log", "mysql"),
];

/// Where a text is from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A study that is to run.
    Author,
    /// A stored run, whose trials are fixed.
    Run,
}

/// Tables of a job in schema 1.
pub(crate) const KINDS: [&str; 4] = ["block", "act", "kv", "sql"];

/// Today's name of a parameter.
#[must_use]
pub fn parameter(name: &str) -> &str {
    let renamed = RENAMED.iter().find(|(old, _)| *old == name);
    renamed.map_or(name, |(_, new)| new)
}

/// Today's name of a key of a job of `kind`.
pub(crate) fn key(kind: &str, name: &str) -> String {
    match (kind, name) {
        ("kv", "options") => "options.settings".into(),
        ("act", "duration") => "test_duration".into(),
        _ if OPTIONS.iter().any(|(of, all)| *of == kind && all.contains(&name)) => {
            format!("options.{name}")
        }
        _ => parameter(name).into(),
    }
}

/// Converts a study of schema 1 to schema 2; returns whether it was one.
///
/// # Errors
/// An experiment that has not exactly one job, or has a key by both of its names.
pub(crate) fn upgrade(study: &mut DeTable<'_>, origin: Origin) -> Result<bool, StudyError> {
    let schema = study.get("schema").and_then(|schema| schema.get_ref().as_integer());
    if schema.is_none_or(|schema| schema.as_str() != "1") {
        return Ok(false);
    }
    if let Some(schema) = study.get_mut("schema") {
        let two = DeTable::parse("two = 2").map_err(|error| StudyError::syntax(&error))?;
        let two = two.into_inner().remove("two").map(Spanned::into_inner);
        *schema.get_mut() = two.ok_or_else(|| StudyError::general("invariant: a number"))?;
    }
    if let Some(DeValue::Array(all)) = study.get_mut("experiment").map(Spanned::get_mut) {
        for one in all.iter_mut() {
            if let DeValue::Table(experiment) = one.get_mut() {
                upgrade_experiment(experiment, origin)?;
            }
        }
    }
    Ok(true)
}

/// The text of a study in schema 2; one of schema 1 loses its comments.
///
/// # Errors
/// [`StudyError`], if the text is not TOML, an experiment has not exactly one job, or it has a key by both of
/// its names.
pub fn upgraded_text(text: &str) -> Result<Cow<'_, str>, StudyError> {
    let syntax = |error| StudyError::syntax(&error);
    let mut root = DeTable::parse(text).map_err(syntax)?;
    if !upgrade(root.get_mut(), Origin::Author)? {
        return Ok(Cow::Borrowed(text));
    }
    let root = Spanned::new(root.span(), DeValue::Table(root.into_inner()));
    let table = Table::deserialize(ValueDeserializer::from(root)).map_err(syntax)?;
    let text = toml::to_string(&table).map_err(|error| StudyError::general(error.to_string()))?;
    Ok(Cow::Owned(text))
}

fn upgrade_experiment(experiment: &mut DeTable<'_>, origin: Origin) -> Result<(), StudyError> {
    rename(experiment, "measure", "duration")?;
    let kinds: Vec<&str> =
        KINDS.into_iter().filter(|kind| experiment.contains_key(*kind)).collect();
    let &[kind] = kinds.as_slice() else {
        let name = experiment.get("name").and_then(|name| name.get_ref().as_str());
        let message = format!(
            "experiment `{}`: needs exactly one of [experiment.block], [experiment.act], \
             [experiment.kv] and [experiment.sql]",
            name.unwrap_or_default()
        );
        return Err(StudyError::general(message).with_help("or one [experiment.job] of schema 2"));
    };
    rename(experiment, kind, "job")?;
    let Some(DeValue::Table(job)) = experiment.get_mut("job").map(Spanned::get_mut) else {
        return Ok(());
    };
    let old: Vec<String> = job.keys().map(|name| name.get_ref().to_string()).collect();
    let mut options = DeTable::new();
    for name in old {
        let new = key(kind, &name);
        match new.strip_prefix("options.") {
            Some(option) => {
                if let Some(value) = job.remove(name.as_str()).filter(|value| !is_unset(value)) {
                    options.insert(named(option), value);
                }
            }
            None => rename(job, &name, &new)?,
        }
    }
    match kind {
        "kv" => set_default(job, "workload", "read_while_writing"),
        "sql" => {
            set_default(job, "engine", "mysql");
            set_default(job, "workload", "read_write");
        }
        other => {
            set_default(job, "engine", "block");
            if other == "act" {
                set_default(job, "workload", "act");
            }
            for beside in tables(job.get_mut("beside")) {
                rename(beside, "threads", "clients")?;
                rename(beside, "offsets", "distribution")?;
            }
        }
    }
    let engines = words(job.get("engine"));
    for (option, engine) in IGNORED_ELSEWHERE {
        // A stored run has a trial for each value of a list.
        let list = |one: &Spanned<DeValue<'_>>| one.get_ref().is_array();
        let trials =
            origin == Origin::Run && kind == "sql" && options.get(option).is_some_and(list);
        if !trials && !engines.iter().any(|one| one == engine) {
            options.remove(option);
        }
    }
    let uncompressed = options.get("compression").and_then(|one| one.get_ref().as_str());
    if uncompressed == Some("none") && !engines.iter().any(|one| one == "mysql") {
        options.remove("compression");
    }
    if !options.is_empty() {
        job.insert(named("options"), Spanned::new(0..0, DeValue::Table(options)));
    }
    Ok(())
}

/// The words of a value: one, or a list.
fn words(value: Option<&Spanned<DeValue<'_>>>) -> Vec<String> {
    let Some(value) = value.map(Spanned::get_ref) else { return Vec::new() };
    let list = value.as_array().into_iter().flat_map(|all| all.iter());
    let list = list.filter_map(|one| one.get_ref().as_str());
    value.as_str().into_iter().chain(list).map(str::to_owned).collect()
}

fn is_unset(value: &Spanned<DeValue<'_>>) -> bool {
    value.get_ref().as_str() == Some("")
}

fn tables<'t, 'i>(
    array: Option<&'t mut Spanned<DeValue<'i>>>,
) -> impl Iterator<Item = &'t mut DeTable<'i>> {
    let array = array.and_then(|array| match array.get_mut() {
        DeValue::Array(array) => Some(array),
        _ => None,
    });
    array.into_iter().flat_map(|array| array.iter_mut()).filter_map(|one| match one.get_mut() {
        DeValue::Table(table) => Some(table),
        _ => None,
    })
}

fn named<'i>(name: &str) -> Spanned<Cow<'i, str>> {
    Spanned::new(0..0, Cow::Owned(name.to_owned()))
}

fn set_default(table: &mut DeTable<'_>, key: &str, value: &'static str) {
    if !table.contains_key(key) {
        table.insert(named(key), Spanned::new(0..0, DeValue::String(value.into())));
    }
}

/// Renames a key, in place.
fn rename(table: &mut DeTable<'_>, from: &str, to: &str) -> Result<(), StudyError> {
    if from == to {
        return Ok(());
    }
    let Some((key, value)) = table.remove_entry(from) else { return Ok(()) };
    if table.contains_key(to) {
        let message = format!("`{from}` is the schema-1 name of `{to}`; use one of them");
        return Err(StudyError { span: Some(key.span()), ..StudyError::general(message) });
    }
    table.insert(Spanned::new(key.span(), Cow::Owned(to.to_owned())), value);
    Ok(())
}
