//! Parses a study, with errors that point at the position. A study that parses can be planned.

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::check::{check, check_runnable};
use crate::error::{Place, StudyError};
use crate::expand::{Matrix, Rules, TRIALS_MAX, Written, too_many};
use crate::schema1::{self, Origin};
use crate::what_if::add_variants;
use crate::{Engines, Stack, Study};

/// Maximum size of a study, job file or profile, bytes.
pub const LONGEST_TEXT: usize = 4 << 20;

/// Reads and checks a study whose engines are among `engines`.
///
/// # Errors
/// [`StudyError`], with the place where one can be named.
pub fn parse(text: &str, engines: Engines) -> Result<Study, StudyError> {
    parse_as(text, engines, Origin::Author)
}

/// Parses the study of a stored run: it plans the trials that the run has, even where the same text would
/// plan fewer today.
///
/// # Errors
/// As [`parse`].
pub fn parse_stored(text: &str, engines: Engines) -> Result<Study, StudyError> {
    parse_as(text, engines, Origin::Run)
}

fn parse_as(text: &str, engines: Engines, origin: Origin) -> Result<Study, StudyError> {
    if text.len() > LONGEST_TEXT {
        let most = LONGEST_TEXT >> 20;
        return Err(StudyError::general(format!("longer than {most} MiB")));
    }
    units::check_toml_size(text).map_err(StudyError::general)?;
    let syntax = |error| StudyError::syntax(&error);
    let mut root = DeTable::parse(text).map_err(syntax)?;
    let of_schema_1 = schema1::upgrade(root.get_mut(), origin)?;
    let rules = match (origin, of_schema_1) {
        (Origin::Author, _) => Rules::Author,
        (Origin::Run, false) => Rules::Run,
        (Origin::Run, true) => Rules::RunOfSchema1,
    };
    let jobs = written(root.get_ref(), rules);
    let root = Spanned::new(root.span(), DeValue::Table(root.into_inner()));
    let mut study = Study::deserialize(ValueDeserializer::from(root)).map_err(syntax)?;
    study.engines = engines;
    study.upgraded = of_schema_1;
    let within = |number, job: &Written<'_>| {
        Place::whole(text).within("experiment", number, |_| job.matrix(engines))
    };
    let matrices = jobs.iter().enumerate().map(|(number, job)| within(number, job));
    let matrices: Vec<Matrix> = matrices.collect::<Result<_, _>>()?;
    check_count(&study, &matrices)?;
    for (number, (job, matrix)) in jobs.iter().zip(&matrices).enumerate() {
        let expand = |_: Place<'_>| job.expand(engines, matrix);
        study.experiment[number].job = Place::whole(text).within("experiment", number, expand)?;
    }
    check(&study, text)?;
    if origin == Origin::Author {
        check_runnable(&study, text)?;
    }
    add_variants(&mut study, Place::whole(text))?;
    Ok(study)
}

/// Limits the trials of all experiments before the first job is made: a billion would not fit into memory.
fn check_count(study: &Study, matrices: &[Matrix]) -> Result<(), StudyError> {
    let mut sum = 0u64;
    for (one, matrix) in study.experiment.iter().zip(matrices) {
        let own = study.stack.iter().filter(|stack| stack.is_among(&one.stacks, matrix.is_block()));
        let made = |stack: &Stack| if matrix.is_block() { 0 } else { stack.what_if.len() as u64 };
        let stacks: u64 = own.map(|stack| 1 + made(stack)).sum();
        let repeated = matrix.points.saturating_mul(u64::from(one.repeat.max(1)));
        let count = repeated.saturating_mul(stacks.max(1));
        sum = sum.saturating_add(count);
        if sum > TRIALS_MAX {
            return Err(too_many(&one.name, sum));
        }
    }
    Ok(())
}

/// The job of each experiment, as written.
fn written<'i>(root: &DeTable<'i>, rules: Rules) -> Vec<Written<'i>> {
    let experiments = root.get("experiment").and_then(|all| all.get_ref().as_array());
    let tables = experiments.into_iter().flat_map(|all| all.iter());
    tables
        .map(|one| {
            let of = |key| one.get_ref().as_table().and_then(|table| table.get(key));
            let name = of("name").and_then(|name| name.get_ref().as_str());
            let table = of("job").and_then(|job| job.get_ref().as_table());
            Written {
                experiment: name.unwrap_or_default().chars().take(100).collect(),
                table: table.cloned().unwrap_or_default(),
                rules,
            }
        })
        .collect()
}

/// The study with every default written out; itself a valid study.
///
/// # Panics
/// Never: every study can be written as TOML.
#[must_use]
pub fn resolved_text(study: &Study) -> String {
    let mut written = study.clone();
    written.stack.retain(|stack| !stack.is_made);
    toml::to_string(&written).expect("invariant: a study is representable in TOML")
}

/// The JSON schema of study files.
#[must_use]
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(Study)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::ENGINES;
    use crate::plan;

    const MINIMAL: &str = r#"
schema = 2
name = "small"
[[stack]]
name = "here"
device = "file"
[[experiment]]
name = "mix"
[experiment.job]
engine = "block"
read_share = ["100%", "70%"]
queue_depth = [1, 4]
"#;

    fn error(from: &str, to: &str) -> (StudyError, String) {
        let text = MINIMAL.replace(from, to);
        assert_ne!(text, MINIMAL);
        (parse(&text, ENGINES).unwrap_err(), text)
    }

    /// Asserts that the error points at `place`.
    fn points_at(from: &str, to: &str, place: &str) -> StudyError {
        let (error, text) = error(from, to);
        let span = error.span.clone().unwrap_or_else(|| panic!("no place: {error}"));
        assert_eq!(&text[span], place, "{error}");
        error
    }

    /// A deadline within the time for late operations would lose the trial.
    #[test]
    fn a_deadline_leaves_a_schedule_its_late_time() {
        let with = |deadline: &str, more: &str| {
            let times = format!("warm_up = \"1s\"\nduration = \"2s\"\ndeadline = \"{deadline}\"\n");
            let text = MINIMAL.replace("name = \"mix\"\n", &format!("name = \"mix\"\n{times}"));
            parse(&format!("{text}{more}"), ENGINES)
        };
        let scheduled = "arrivals = \"constant\"\nrate = \"1k/s\"\n";
        assert!(with("2s", "").unwrap_err().to_string().contains("deadline must be"));
        assert!(with("3s", "").is_ok());
        assert!(with("3s", scheduled).unwrap_err().to_string().contains("2 x duration"));
        assert!(with("5s", scheduled).is_ok());
    }

    #[test]
    fn the_resolved_study_is_a_study_and_plans_the_same() {
        let study = parse(MINIMAL, ENGINES).unwrap();
        let resolved = resolved_text(&study);
        assert!(resolved.contains("queue_depth = [1, 4]") && resolved.contains("interval"));
        let again = parse(&resolved, ENGINES).unwrap();
        assert_eq!(study, again);
        assert_eq!(plan(&study).trials, plan(&again).trials);
    }

    /// Each of these ended in a panic, in gigabytes of buffers or in healthy data reported as lost.
    #[test]
    fn a_job_that_cannot_run_on_its_stack_is_refused() {
        let with = |stack: &str, job: &str| {
            let text = MINIMAL.replace("[experiment.job]\n", &format!("[experiment.job]\n{job}"));
            let device = format!("device = \"file\"\n{stack}");
            let text = text.replace("device = \"file\"\n", &device);
            parse(&text.replace("queue_depth = [1, 4]\n", ""), ENGINES).map(|_| ())
        };
        for (stack, job, message) in [
            ("size = \"1MiB\"\n", "block_size = \"16MiB\"\n", "does not fit a device of 1 MiB"),
            ("size = \"1MiB\"\n", "alignment = \"1GiB\"\n", "larger than a device"),
            ("", "verify = true\nclients = 65\nblock_size = \"16MiB\"\n", "65 clients, 64 blocks"),
            ("", "queue_depth = 4096\nblock_size = \"16MiB\"\n", "at most 16.0 GiB"),
            ("", "operations = 18446744073709551615\n", "allowed: 1 to 1000000000000000"),
            ("size = \"18446744073709551615B\"\n", "", "allowed: at most 1048576 TiB"),
            ("", "clients = [1, 2, 1]\n", "listed twice"),
            (
                "",
                "block_size = [\"4KiB\", \"8KiB\", \"4096B\"]\n",
                "block_size: a value is listed twice",
            ),
            ("", "batch = [1, 2]\n", "expected u32"),
        ] {
            let error = with(stack, job).unwrap_err();
            assert!(error.message.contains(message), "{stack}{job}: {error}");
        }
        // A run that an earlier version made with such a job can still be read.
        let text = MINIMAL.replace("[experiment.job]\n", "[experiment.job]\nclients = [1, 2, 1]\n");
        let text =
            text.replace("queue_depth = [1, 4]", "queue_depth = 4096\nblock_size = \"16MiB\"");
        assert!(parse_stored(&text, ENGINES).is_ok() && parse(&text, ENGINES).is_err());
        let verified = "verify = true\nclients = 64\nblock_size = \"16MiB\"\n";
        assert!(with("", verified).is_ok(), "a block for each client");
        let help = with("", "batch = [1, 2]\n").unwrap_err().help.unwrap_or_default();
        assert!(help.contains("`batch` takes one value"), "{help}");
    }

    /// An untrusted study must not fill the memory before it is rejected.
    #[test]
    fn trials_of_all_experiments_are_counted_before_one_is_made() {
        let list = |most: u32| {
            let all: Vec<String> = (1..=most).map(|number| number.to_string()).collect();
            format!("[{}]", all.join(", "))
        };
        let (head, _) = MINIMAL.split_once("[[experiment]]").unwrap();
        let ten = list(10);
        let mut text = head.to_owned();
        for number in 0..30 {
            text += &format!(
                "[[experiment]]\nname = \"e{number}\"\n[experiment.job]\nengine = \"block\"\n\
                 queue_depth = {ten}\nclients = {ten}\nsync_every = {ten}\n\
                 read_share = [\"1%\", \"2%\", \"3%\", \"4%\"]\n"
            );
        }
        let error = parse(&text, ENGINES).unwrap_err();
        assert!(error.message.contains("at most 100000"), "{error}");
        let error = parse(&text.replace(&ten, &list(1000)), ENGINES).unwrap_err();
        assert!(error.message.contains("4000000000 trials"), "{error}");
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
        points_at("[experiment.job]", "stacks = [\"there\"]\n[experiment.job]", "\"there\"");
        points_at("queue_depth", "block_size = \"1000B\"\nqueue_depth", "\"1000B\"");
        points_at("schema = 2", "schema = 9", "schema = 9");
        points_at("\"mix\"", "\"mix\"\nrepeat = 0", "repeat = 0");
        points_at("[1, 4]", "4096\nblock_size = \"16MiB\"", "queue_depth = 4096");
        let oracle = points_at("\"block\"", "\"oracle\"", "\"oracle\"");
        assert!(oracle.message.contains("\"oracle\"; allowed: block"), "{oracle}");
        points_at("engine = \"block\"", "", "name = \"mix\"");
        let old = points_at("queue_depth", "threads = 4\nqueue_depth", "threads");
        assert_eq!(old.help.as_deref(), Some("`threads` of schema 1 is `clients` in schema 2"));
    }

    /// An error at the first of several equal keys would send the user to a correct experiment.
    #[test]
    fn errors_point_into_the_experiment_and_the_stack_that_are_wrong() {
        let (head, experiment) = MINIMAL.split_once("[[experiment]]").unwrap();
        let (top, stack) = head.split_once("[[stack]]").unwrap();
        let again = |text: &str, name: &str| text.replace(name, &format!("{name}2"));
        let text = format!(
            "{top}question = \"\"\"\nWhat is # queue_depth = [1, 4]?\n\"\"\"\n[[stack]]{stack}[[stack]]{}\
             # queue_depth = [1, 4]\n[[experiment]]{experiment}[[experiment]]{}",
            again(stack, "here"),
            again(experiment, "mix"),
        );
        parse(&text, ENGINES).unwrap();
        let second = |from: &str, to: &str| {
            let at = text.rfind(from).unwrap();
            let wrong = format!("{}{to}{}", &text[..at], &text[at + from.len()..]);
            let error = parse(&wrong, ENGINES).unwrap_err();
            let span = error.span.clone().unwrap_or_else(|| panic!("no place: {error}"));
            assert!(
                span.start + 20 > at && span.start < at + to.len(),
                "{span:?}, not {at}: {error}"
            );
        };
        second("[1, 4]", "4096\nclients = 4096");
        second("[1, 4]", "0");
        second("[1, 4]", "1\nrate = \"5k/s\"");
        second("mix2", "mix");
        second("\"mix2\"", "\"mix2\"\nstacks = [\"nowhere\"]");
        second("\"file\"", "\"file\"\nscale = 3");
        second("\"file\"", "\"file\"\nsize = \"4KiB\"");
    }

    #[test]
    fn out_of_range_is_told_with_the_range() {
        let poisson = "[1, 4]\narrivals = \"poisson\"";
        assert!(error("[1, 4]", poisson).0.message.contains("need a `rate`"));
        assert!(error("[1, 4]", "1\nrate = \"5k/s\"").0.message.contains("open loops"));
        assert!(error("[1, 4]", "0").0.message.contains("1 to 4096"));
        assert!(error("schema = 2", "schema = 9").0.message.contains("allowed: 1, 2"));
        assert!(
            error("name = \"mix\"", "name = \"mix\"\nrepeat = 0").0.message.contains("1 to 100")
        );
        let (error, _) = error("engine = \"block\"\n", "engine=\"lmdb\"\n");
        assert!(error.message.contains("needs a `workload`"), "{error}");
        assert!(error.span.is_some());
    }

    #[test]
    fn a_database_on_a_model_is_refused_with_the_reason() {
        let text = MINIMAL.replace("\"file\"", "\"model:x\"").replace(
            "[experiment.job]\nengine = \"block\"\nread_share = [\"100%\", \"70%\"]\nqueue_depth = [1, 4]",
            "stacks = [\"here\"]\n[experiment.job]\nengine = \"lmdb\"\nworkload = \"read_random\"\nrecords \
             = 10\nvalue_size = \"100B\"",
        );
        assert!(parse(&text, ENGINES).unwrap_err().message.contains("device model"));
    }
}
