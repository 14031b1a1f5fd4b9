//! From the text of a study to the study, with errors that point at the place.
//!
//! Invariant: a study that parses can be planned. What it is not: rendering of errors; the caller
//! underlines `span` in the text it gave.

use std::collections::BTreeSet;
use std::ops::Range;

use thiserror::Error;
use units::Bytes;

use crate::format::{Arrivals, DeviceName, Experiment, Stack, Study};

/// Why a study is refused, and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct StudyError {
    /// What is wrong.
    pub message: String,
    /// Bytes of the text that are wrong, where one place can be named.
    pub span: Option<Range<usize>>,
    /// What to do instead.
    pub help: Option<String>,
}

impl StudyError {
    pub(crate) fn general(message: impl Into<String>) -> Self {
        Self { message: message.into(), span: None, help: None }
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn syntax(error: &toml::de::Error) -> Self {
        Self { message: error.message().to_owned(), span: error.span(), help: None }
    }

    /// Points at the first place of `"literal"` in `text`.
    fn at(self, text: &str, literal: &str) -> Self {
        self.at_quoted(text, |quoted| quoted == literal)
    }

    /// Points at the first string of `text` that `wanted` accepts, quotes included.
    fn at_quoted(mut self, text: &str, wanted: impl Fn(&str) -> bool) -> Self {
        let quotes: Vec<usize> = text.match_indices('"').map(|(at, _)| at).collect();
        let place = quotes.windows(2).find(|pair| wanted(&text[pair[0] + 1..pair[1]]));
        self.span = place.map(|pair| pair[0]..pair[1] + 1);
        self
    }
}

/// Reads and checks a study.
///
/// # Errors
/// [`StudyError`], with the place where one can be named.
pub fn parse(text: &str) -> Result<Study, StudyError> {
    let study: Study = toml::from_str(text).map_err(|error| StudyError::syntax(&error))?;
    check(&study, text)?;
    Ok(study)
}

/// The study with every default written out; itself a valid study.
///
/// # Panics
/// Never: every study can be written as TOML.
#[must_use]
pub fn resolved_text(study: &Study) -> String {
    toml::to_string(study).expect("invariant: a study is representable in TOML")
}

/// The JSON schema of study files.
#[must_use]
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(Study)
}

fn check(study: &Study, text: &str) -> Result<(), StudyError> {
    if study.schema != 1 {
        let message = format!("schema {} is unknown; allowed: 1", study.schema);
        return Err(StudyError::general(message));
    }
    check_name(&study.name, "study", text)?;
    unique(study.stack.iter().map(|stack| stack.name.as_str()), "stack", text)?;
    unique(study.experiment.iter().map(|e| e.name.as_str()), "experiment", text)?;
    for stack in &study.stack {
        check_stack(stack, text)?;
    }
    for experiment in &study.experiment {
        check_experiment(study, experiment, text)?;
    }
    Ok(())
}

fn check_name(name: &str, kind: &str, text: &str) -> Result<(), StudyError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 64 || !name.chars().all(allowed) {
        let message =
            format!("`{name}` is no name of a {kind}; allowed: 1 to 64 letters, digits, `-`, `_`");
        return Err(StudyError::general(message).at(text, name));
    }
    Ok(())
}

fn unique<'a>(
    names: impl Iterator<Item = &'a str>,
    kind: &str,
    text: &str,
) -> Result<(), StudyError> {
    let mut seen = BTreeSet::new();
    for name in names {
        check_name(name, kind, text)?;
        if !seen.insert(name) {
            let message = format!("two {kind}s are named `{name}`; names must differ");
            return Err(StudyError::general(message).at(text, name));
        }
    }
    if seen.is_empty() {
        return Err(StudyError::general(format!("the study has no {kind}"))
            .with_help(format!("add a [[{kind}]] table")));
    }
    Ok(())
}

fn check_stack(stack: &Stack, text: &str) -> Result<(), StudyError> {
    if stack.size < Bytes::mib(1) {
        let message = format!("stack `{}`: size {} is below 1 MiB", stack.name, stack.size);
        let same = |quoted: &str| quoted.parse() == Ok(stack.size);
        return Err(StudyError::general(message).at_quoted(text, same));
    }
    if stack.allow_write && !matches!(stack.device, DeviceName::Path(_)) {
        let message = format!("stack `{}`: allow_write is for block devices only", stack.name);
        return Err(StudyError::general(message).at(text, &stack.device.text()));
    }
    Ok(())
}

fn check_experiment(study: &Study, one: &Experiment, text: &str) -> Result<(), StudyError> {
    let refuse =
        |message: String| StudyError::general(format!("experiment `{}`: {message}", one.name));
    if one.block.is_some() == one.kv.is_some() {
        let message = "needs exactly one of [experiment.block] and [experiment.kv]".to_owned();
        return Err(refuse(message).at(text, &one.name));
    }
    for name in &one.stacks {
        let Some(stack) = study.stack.iter().find(|stack| stack.name == *name) else {
            let known: Vec<_> = study.stack.iter().map(|s| s.name.as_str()).collect();
            return Err(refuse(format!("no stack is named `{name}`"))
                .at(text, name)
                .with_help(format!("stacks of this study: {}", known.join(", "))));
        };
        if let Some(reason) = unsupported(one, stack) {
            return Err(refuse(format!("stack `{name}`: {reason}")).at(text, name));
        }
    }
    if one.interval.get() == 0 || one.measure < one.interval {
        let message =
            format!("measure ({}) must be at least interval ({})", one.measure, one.interval);
        let same = |quoted: &str| quoted.parse() == Ok(one.interval);
        return Err(refuse(message).at_quoted(text, same));
    }
    if one.measure.get() / one.interval.get() > 1_000_000 {
        return Err(refuse("more than a million intervals; lengthen `interval`".into()));
    }
    if !(1..=100).contains(&one.repeat) {
        return Err(refuse(format!("repeat = {}; allowed: 1 to 100", one.repeat)));
    }
    check_block(one, text)?;
    check_kv(one)
}

fn check_block(one: &Experiment, text: &str) -> Result<(), StudyError> {
    let Some(block) = &one.block else {
        return Ok(());
    };
    let refuse =
        |message: String| StudyError::general(format!("experiment `{}`: {message}", one.name));
    for size in block.block_size.values() {
        let bytes = size.get();
        if bytes == 0 || bytes % 512 != 0 || bytes > 1 << 24 {
            let message = format!("block_size {}: a multiple of 512 B up to 16 MiB", size.exact());
            return Err(refuse(message).at_quoted(text, |quoted| quoted.parse() == Ok(*size)));
        }
    }
    for depth in block.queue_depth.values() {
        if !(1..=4096).contains(depth) {
            return Err(refuse(format!("queue_depth = {depth}; allowed: 1 to 4096")));
        }
    }
    for threads in block.threads.values() {
        if !(1..=256).contains(threads) {
            return Err(refuse(format!("threads = {threads}; allowed: 1 to 256")));
        }
    }
    if !(1..=4096).contains(&block.batch) {
        return Err(refuse(format!("batch = {}; allowed: 1 to 4096", block.batch)));
    }
    let open = block.arrivals != Arrivals::Closed;
    match &block.rate {
        None if open => {
            let word = block.arrivals.word();
            return Err(refuse(format!("arrivals = \"{word}\" need a `rate`, such as \"1k/s\""))
                .at(text, word));
        }
        Some(rates) if open => {
            if let Some(rate) =
                rates.values().iter().find(|r| !(1..=100_000_000).contains(&r.get()))
            {
                return Err(refuse(format!("rate {}; allowed: 1/s to 100M/s", rate.exact())));
            }
        }
        Some(_) => {
            return Err(refuse(
                "`rate` is for open loops; add arrivals = \"poisson\" or \"constant\"".into(),
            ));
        }
        None => {}
    }
    if open && block.think_time.get() > 0 {
        return Err(refuse("`think_time` is for closed loops; an open loop has a `rate`".into()));
    }
    Ok(())
}

fn check_kv(one: &Experiment) -> Result<(), StudyError> {
    let Some(kv) = &one.kv else { return Ok(()) };
    let refuse =
        |message: String| StudyError::general(format!("experiment `{}`: {message}", one.name));
    if !(1..=10_000_000_000).contains(&kv.records) {
        return Err(refuse(format!("records = {}; allowed: 1 to 10 billion", kv.records)));
    }
    if kv.load_batch == 0 {
        return Err(refuse("load_batch = 0; allowed: at least 1".into()));
    }
    if kv.value_size < Bytes(16) || kv.value_size > Bytes::mib(1) {
        return Err(refuse(format!("value_size {}; allowed: 16 B to 1 MiB", kv.value_size)));
    }
    for readers in kv.readers.values() {
        if !(1..=256).contains(readers) {
            return Err(refuse(format!("readers = {readers}; allowed: 1 to 256")));
        }
    }
    Ok(())
}

/// Why this experiment can not run on that stack, if so.
pub(crate) fn unsupported(experiment: &Experiment, stack: &Stack) -> Option<String> {
    match (&experiment.kv, &stack.device) {
        (Some(_), DeviceName::Model(_)) => Some(
            "databases can not be predicted on a device model yet; only block experiments can"
                .into(),
        ),
        (Some(_), DeviceName::Path(_)) => Some(
            "databases need a file system; use device = \"file\" with a directory on it".into(),
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan;

    const MINIMAL: &str = r#"
schema = 1
name = "small"
[[stack]]
name = "here"
device = "file"
[[experiment]]
name = "mix"
[experiment.block]
read_share = ["100%", "70%"]
queue_depth = [1, 4]
"#;

    fn error(from: &str, to: &str) -> (StudyError, String) {
        let text = MINIMAL.replace(from, to);
        assert_ne!(text, MINIMAL);
        (parse(&text).unwrap_err(), text)
    }

    /// Asserts that the error points at `place`.
    fn points_at(from: &str, to: &str, place: &str) -> StudyError {
        let (error, text) = error(from, to);
        let span = error.span.clone().unwrap_or_else(|| panic!("no place: {error}"));
        assert_eq!(&text[span], place, "{error}");
        error
    }

    #[test]
    fn the_resolved_study_is_a_study_and_plans_the_same() {
        let study = parse(MINIMAL).unwrap();
        let resolved = resolved_text(&study);
        assert!(resolved.contains("queue_depth = [1, 4]") && resolved.contains("interval"));
        let again = parse(&resolved).unwrap();
        assert_eq!(study, again);
        assert_eq!(plan(&study).trials, plan(&again).trials);
    }

    #[test]
    fn errors_point_at_the_place_and_list_what_is_allowed() {
        let unknown = points_at("queue_depth", "queue_dpeth", "queue_dpeth");
        assert!(unknown.message.contains("queue_depth"), "{unknown}");
        let unit = points_at("\"70%\"", "\"70 parts\"", "\"70 parts\"");
        assert!(unit.message.contains('%'), "{unit}");
        let empty = points_at("[1, 4]", "[]", "[]");
        assert!(empty.message.contains("empty"), "{empty}");
        points_at("\"file\"", "\"disk\"", "\"disk\"");
        points_at("[experiment.block]", "stacks = [\"there\"]\n[experiment.block]", "\"there\"");
        points_at("queue_depth", "block_size = \"1000B\"\nqueue_depth", "\"1000B\"");
    }

    #[test]
    fn out_of_range_is_told_with_the_range() {
        let poisson = "[1, 4]\narrivals = \"poisson\"";
        assert!(error("[1, 4]", poisson).0.message.contains("need a `rate`"));
        assert!(error("[1, 4]", "1\nrate = \"5k/s\"").0.message.contains("open loops"));
        assert!(error("[1, 4]", "0").0.message.contains("1 to 4096"));
        assert!(error("schema = 1", "schema = 9").0.message.contains("allowed: 1"));
        assert!(
            error("name = \"mix\"", "name = \"mix\"\nrepeat = 0").0.message.contains("1 to 100")
        );
        let (error, _) = error("[experiment.block]", "[experiment.kv]\nengine=\"lmdb\"\n#");
        assert!(error.span.is_some());
    }

    #[test]
    fn a_database_on_a_model_is_refused_with_the_reason() {
        let text = MINIMAL.replace("\"file\"", "\"model:x\"").replace(
            "[experiment.block]\nread_share = [\"100%\", \"70%\"]\nqueue_depth = [1, 4]",
            "stacks = [\"here\"]\n[experiment.kv]\nengine = \"lmdb\"\nrecords = 10\nvalue_size = \
             \"100B\"\nreaders = 1",
        );
        assert!(parse(&text).unwrap_err().message.contains("device model"));
    }
}
