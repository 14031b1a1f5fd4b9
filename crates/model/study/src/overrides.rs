//! `--set key=value`: changes to a study from the command line, through the same parser.
//!
//! Keys are dotted; stacks and experiments are addressed by name: `stack.this-disk.size=4GiB`,
//! `experiment.mix.duration=10s`; `*` stands for all of them. Invariants: the result is checked exactly like
//! a file; a stack with another device loses the title of the old one.

use toml::{Table, Value};

use crate::error::StudyError;
use crate::schema1;

/// The text of the study with every `key=value` applied.
///
/// # Errors
/// If an override has no `=`, or its key does not exist; valid names are listed.
pub fn apply_overrides(text: &str, overrides: &[String]) -> Result<String, StudyError> {
    if overrides.is_empty() {
        return Ok(text.to_owned());
    }
    let text = schema1::upgraded_text(text)?;
    let mut root: Table = text.parse().map_err(|error| StudyError::syntax(&error))?;
    // A title that is also set stays, in any order.
    let devices_first = {
        let is_device = |one: &&String| one.split_once('=').is_some_and(|(key, _)| of_device(key));
        let (devices, others): (Vec<_>, Vec<_>) = overrides.iter().partition(is_device);
        devices.into_iter().chain(others)
    };
    for one in devices_first {
        let (key, value) = one.split_once('=').ok_or_else(|| {
            StudyError::general(format!("--set `{one}` has no `=`"))
                .with_help("example: --set stack.this-disk.size=2GiB")
        })?;
        set(&mut root, key.trim(), value.trim())?;
    }
    toml::to_string(&root).map_err(|error| StudyError::general(error.to_string()))
}

fn of_device(key: &str) -> bool {
    key.trim().starts_with("stack.") && key.trim().ends_with(".device")
}

fn set(root: &mut Table, key: &str, value: &str) -> Result<(), StudyError> {
    let parts: Vec<&str> = key.split('.').collect();
    set_in(root, &parts, key, value)
}

/// Keys of an experiment itself.
const OF_EXPERIMENTS: [&str; 11] = [
    "name", "title", "stacks", "warm_up", "duration", "interval", "repeat", "on_error", "deadline",
    "objectives", "optional",
];

/// Sets the rest of a key in `table`.
fn set_in(table: &mut Table, parts: &[&str], key: &str, value: &str) -> Result<(), StudyError> {
    let names_a_table = || {
        StudyError::general(format!("--set `{key}` names a table, not a key in it"))
            .with_help("example: --set stack.this-disk.size=2GiB")
    };
    match parts {
        [] => Err(names_a_table()),
        [last] => {
            if last.is_empty() || *last == "job" {
                return Err(names_a_table());
            }
            if table.contains_key("job") && !OF_EXPERIMENTS.contains(last) {
                let new = match *last {
                    "measure" => "duration".to_owned(),
                    other => format!("job.{}", schema1::parameter(other)),
                };
                let right = format!("{}{new}", key.strip_suffix(last).unwrap_or_default());
                let allowed = OF_EXPERIMENTS.join(", ");
                let message = format!(
                    "--set `{key}`: an experiment has no `{last}`; allowed: {allowed}, and keys of `job`"
                );
                return Err(StudyError::general(message)
                    .with_help(format!("example: --set {right}={value}")));
            }
            if of_device(key) {
                table.remove("title");
            }
            table.insert((*last).to_owned(), value_of(value));
            Ok(())
        }
        [kind, last] if table.contains_key("job") && schema1::KINDS.contains(kind) => {
            let before = key.strip_suffix(&format!("{kind}.{last}")).unwrap_or_default();
            let right = format!("{before}job.{}", schema1::key(kind, last));
            Err(StudyError::general(format!("--set `{key}`: an experiment has no `{kind}`"))
                .with_help(format!("since schema 2 it is --set {right}={value}")))
        }
        [part, rest @ ..] => {
            let next = table.entry(*part).or_insert_with(|| Value::Table(Table::new()));
            match next {
                Value::Table(table) => set_in(table, rest, key, value),
                Value::Array(items) if rest[0] == "*" => {
                    let tables = items.iter_mut().filter_map(Value::as_table_mut);
                    for table in tables {
                        set_in(table, &rest[1..], key, value)?;
                    }
                    Ok(())
                }
                Value::Array(items) => {
                    set_in(named(items, part, rest[0], key)?, &rest[1..], key, value)
                }
                _ => Err(StudyError::general(format!(
                    "--set `{key}`: `{part}` is a value, not a table"
                ))),
            }
        }
    }
}

fn named<'a>(
    items: &'a mut [Value],
    kind: &str,
    name: &str,
    key: &str,
) -> Result<&'a mut Table, StudyError> {
    let name_of = |item: &Value| item.get("name").and_then(Value::as_str).map(str::to_owned);
    let names: Vec<_> = items.iter().filter_map(name_of).collect();
    items
        .iter_mut()
        .find(|item| name_of(item).as_deref() == Some(name))
        .and_then(Value::as_table_mut)
        .ok_or_else(|| {
            StudyError::general(format!("--set `{key}`: no {kind} is named `{name}`"))
                .with_help(format!("names of {kind}s: {}", names.join(", ")))
        })
}

fn value_of(text: &str) -> Value {
    let parsed = format!("v = {text}").parse::<Table>().ok();
    parsed.and_then(|mut table| table.remove("v")).unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "schema = 2\nseed = 1\n[[stack]]\nname = \"a\"\nsize = \"1GiB\"\n";

    fn with(one: &str) -> Result<String, StudyError> {
        apply_overrides(TEXT, &[one.to_owned()])
    }

    #[test]
    fn values_are_toml_or_text() {
        assert!(with("seed=7").unwrap().contains("seed = 7"));
        assert!(with("stack.a.size=4GiB").unwrap().contains("size = \"4GiB\""));
        assert!(with("stack.a.x=[1, 2]").unwrap().contains("x = [1, 2]"));
    }

    /// Figures of another device must not keep the title "this disk".
    #[test]
    fn another_device_does_not_keep_the_title() {
        let text = format!("{TEXT}title = \"This disk\"\ndevice = \"file\"\n");
        let with = |all: &[&str]| {
            let all: Vec<String> = all.iter().map(|&one| one.to_owned()).collect();
            apply_overrides(&text, &all).unwrap()
        };
        assert!(!with(&["stack.a.device=model:ram-disk"]).contains("This disk"));
        assert!(!with(&["stack.*.device=model:ram-disk"]).contains("This disk"));
        assert!(with(&["stack.a.size=4GiB"]).contains("This disk"));
        let both = ["stack.a.title=Mine", "stack.a.device=model:ram-disk"];
        assert!(with(&both).contains("Mine"));
    }

    #[test]
    fn a_star_stands_for_all() {
        let text = format!("{TEXT}[[stack]]\nname = \"b\"\n");
        let changed = apply_overrides(&text, &["stack.*.size=4GiB".to_owned()]).unwrap();
        assert_eq!(changed.matches("4GiB").count(), 2);
    }

    #[test]
    fn a_wrong_name_lists_the_right_ones() {
        let error = with("stack.b.size=4GiB").unwrap_err();
        assert!(error.help.unwrap().contains("a"));
        assert!(with("seed").is_err() && with("stack.a=1").is_err() && with("seed.x=1").is_err());
    }

    /// The error for a key of schema 1 must name the new key.
    #[test]
    fn an_old_key_is_answered_with_the_new_one() {
        let text =
            format!("{TEXT}[[experiment]]\nname = \"e\"\n[experiment.job]\nengine = \"lmdb\"\n");
        for (old, new) in [
            ("experiment.e.kv.readers=4", "experiment.e.job.clients=4"),
            ("experiment.e.kv.options=x", "experiment.e.job.options.settings=x"),
            ("experiment.e.act.duration=1s", "experiment.e.job.test_duration=1s"),
            ("experiment.e.rows=4", "experiment.e.job.records=4"),
            ("experiment.e.measure=1s", "experiment.e.duration=1s"),
        ] {
            let help = apply_overrides(&text, &[old.to_owned()]).unwrap_err().help.unwrap();
            assert!(help.contains(new), "{old}: {help}");
        }
    }
}
