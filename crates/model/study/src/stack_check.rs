//! Checks of a stack, by itself and together with others.
//!
//! Invariant: a stack that passes can be opened wherever its device is.

use units::Bytes;

use crate::error::Place;
use crate::{Condition, DeviceName, Experiment, FileSystem, Stack, Study, StudyError, WhatIf};

/// Largest stack: file systems of Linux end at 8 EiB.
const SIZE_MAX: Bytes = Bytes(1 << 60);
/// Maximum time scale.
const SCALE_MAX: u32 = 1000;

/// Checks combinations of keys.
pub(crate) fn check_stack(study: &Study, stack: &Stack, text: Place<'_>) -> Result<(), StudyError> {
    let refuse = |message: &str| StudyError::general(format!("stack `{}`: {message}", stack.name));
    let model = matches!(stack.device, DeviceName::Model(_));
    if stack.size() < Bytes::mib(1) {
        let same = |quoted: &str| quoted.parse() == Ok(stack.size());
        return Err(refuse(&format!("size {} is below 1 MiB", stack.size())).at_quoted(text, same));
    }
    let real = [FileSystem::Xfs, FileSystem::Btrfs];
    if stack.is_virtual() && real.contains(&stack.file_system) {
        let message = "virtual time has ext4, ext4_no_journal and raw; others only with attach";
        return Err(refuse(message).on(text, "device").with_help("add attach = true"));
    }
    let lives =
        [("scale", stack.scale > 1), ("staged", stack.staged), ("faults", stack.faults.is_some())];
    if stack.attach && !model {
        return Err(refuse("attach is for device models only").on(text, "attach"));
    }
    if stack.emulated && stack.device != DeviceName::File {
        return Err(refuse("emulated is for a `file` on an attached drive").on(text, "emulated"));
    }
    if stack.attach && (stack.host != "auto" || stack.cores > 0) {
        return Err(refuse("host does not apply to attached models").on(text, "device"));
    }
    if !(1..=SCALE_MAX).contains(&stack.scale) {
        let message = format!("scale = {}; allowed: 1 to {SCALE_MAX}", stack.scale);
        return Err(refuse(&message).on(text, "scale"));
    }
    if let Some((key, _)) = lives.iter().find(|(_, given)| *given && !stack.attach) {
        let error = refuse(&format!("{key} is for attached models only")).on(text, key);
        return Err(error.with_help("add attach = true"));
    }
    if stack.cores > 1024 {
        let message = format!("cores = {}; allowed: 0 to 1024", stack.cores);
        return Err(refuse(&message).on(text, "cores"));
    }
    if let Some(message) = wrong_cpu_time(stack, model) {
        return Err(refuse(&message).on(text, "cpu_time"));
    }
    let modelled = stack.host != "auto" || stack.cores > 0 || stack.condition != Condition::Steady;
    if modelled && !model {
        let message = "host, cores and condition are for device models only";
        return Err(refuse(message).on(text, "device"));
    }
    if let Some(limit) = stack.limit {
        let rates = [limit.reads, limit.writes].into_iter().flatten().map(units::Rate::get);
        let bytes = [limit.read_bytes, limit.write_bytes].into_iter().flatten().map(Bytes::get);
        let given: Vec<u64> = rates.chain(bytes).collect();
        if given.is_empty() || given.contains(&0) {
            return Err(refuse("a limit; allowed: above 0").on(text, "limit"));
        }
        if model || stack.file_system == FileSystem::AsIs {
            let message = "a limit needs a device of its own; give the stack a file_system";
            return Err(refuse(message).on(text, "limit"));
        }
    }
    check_wal(study, stack, text)?;
    check_variants(study, stack, text)?;
    if stack.allow_write && !matches!(stack.device, DeviceName::Paths(_)) {
        return Err(refuse("allow_write is for block devices only").on(text, "device"));
    }
    Ok(())
}

fn wrong_cpu_time(stack: &Stack, model: bool) -> Option<String> {
    let time = stack.cpu_time?;
    if !model || stack.attach {
        return Some("cpu_time is for device models in virtual time only".into());
    }
    let allowed = (100..=1_000_000).contains(&time.get());
    (!allowed).then(|| format!("cpu_time = {time}; allowed: 100ns to 1ms"))
}

/// The reference must be a stack of the study, and no variant.
pub(crate) fn check_reference(study: &Study, text: Place<'_>) -> Result<(), StudyError> {
    let Some(name) = &study.reference else { return Ok(()) };
    let own = study.stack.iter().filter(|stack| stack.variant_of.is_none());
    let names: Vec<&str> = own.map(|stack| stack.name.as_str()).collect();
    if names.contains(&name.as_str()) {
        return Ok(());
    }
    let message = format!("reference = \"{name}\" is not a stack; stacks: {}", names.join(", "));
    text.refuse("reference", message)
}

/// A log is on another stack of the same kind, which has its own.
fn check_wal(study: &Study, stack: &Stack, text: Place<'_>) -> Result<(), StudyError> {
    let Some(name) = &stack.wal else { return Ok(()) };
    let other = study.stack.iter().find(|other| other.name == *name && other.name != stack.name);
    let reason = match other {
        None => format!("`{name}` is not another stack"),
        Some(other) if other.wal.is_some() => format!("`{name}` has its log on a third stack"),
        Some(other) if other.is_virtual() != stack.is_virtual() => {
            "a log is in virtual time if its database is, and only then".into()
        }
        Some(other) => match wrong_wal(study, stack, other) {
            Some(reason) => reason.into(),
            None => return Ok(()),
        },
    };
    text.refuse("wal", format!("stack `{}`: {reason}", stack.name))
}

/// Why a stack of the same kind cannot have the log of another one.
fn wrong_wal(study: &Study, stack: &Stack, log: &Stack) -> Option<&'static str> {
    let has_own = matches!(log.device, DeviceName::Paths(_)) || log.file_system != FileSystem::AsIs;
    let users = study.stack.iter().filter(|other| other.wal.as_ref() == Some(&log.name)).count();
    let runs = study.experiment.iter().any(|one| log.is_among(&one.stacks, false));
    match () {
        () if stack.attach || log.attach => Some("a log is not supported with attach"),
        () if log.limit.is_some() => Some("a limit of the log's stack is not supported"),
        () if log.file_system == FileSystem::Raw => Some("the log needs a file system"),
        () if log.is_virtual() => None,
        () if !has_own && log.device == stack.device && log.directory == stack.directory => {
            Some("the log is in the same directory; give its stack another")
        }
        () if !has_own => None,
        () if matches!(&log.device, DeviceName::Paths(paths) if paths.len() > 1) => {
            Some("the log needs one device")
        }
        () if log.device == stack.device && log.device != DeviceName::File => {
            Some("the log is on the same device")
        }
        // Its file system is made again for each database.
        () if users > 1 || runs => {
            Some("the log's file system is for one stack, and no experiment; list their stacks")
        }
        () => None,
    }
}

/// Only a simulated part can be free, and a variant varies another stack that is none.
fn check_variants(study: &Study, stack: &Stack, text: Place<'_>) -> Result<(), StudyError> {
    let refuse =
        |key: &str, reason: String| text.refuse(key, format!("stack `{}`: {reason}", stack.name));
    if let Some(name) = &stack.variant_of {
        let is = |other: &&Stack| other.name == *name && other.variant_of.is_none();
        let base = study.stack.iter().find(is).filter(|_| stack.what_if.is_empty());
        let reason = match base {
            None => format!("`{name}` is not another stack, or varies one"),
            Some(base) if !base.is_virtual() || !stack.is_virtual() => {
                "variants are for device models in virtual time only".into()
            }
            Some(_) if stack.title.is_empty() => {
                "a variant needs a `title`, such as \"twice the memory\"".into()
            }
            Some(_) => return Ok(()),
        };
        return refuse("variant_of", reason);
    }
    let has = |one| stack.what_if.contains(&one);
    let journals = [FileSystem::AsIs, FileSystem::Ext4].contains(&stack.file_system);
    let runs = |one: &Experiment| !one.job.first().is_block() && stack.is_among(&one.stacks, false);
    let reason = match () {
        () if stack.what_if.is_empty() => return Ok(()),
        () if !stack.is_virtual() => "what_if is for device models in virtual time only",
        () if has(WhatIf::Cores) && stack.cores == 0 => "set its cores, for twice as many",
        () if has(WhatIf::Cores) && stack.cores > 512 => "cores: at most 512, for twice as many",
        () if has(WhatIf::Journal) && stack.wal.is_some() => "its log has a journal of its own",
        () if has(WhatIf::Journal) && !journals => "its file system has no journal",
        () if !study.experiment.iter().any(runs) => "no database experiment runs on it",
        () => return Ok(()),
    };
    refuse("what_if", reason.into())
}

/// Checks that a file system can have this size.
pub(crate) fn check_size_of(stack: &Stack, text: Place<'_>) -> Result<(), StudyError> {
    if stack.size() <= SIZE_MAX {
        return Ok(());
    }
    let message =
        format!("stack `{}`: size {}; allowed: at most {SIZE_MAX}", stack.name, stack.size());
    let same = |quoted: &str| quoted.parse() == Ok(stack.size());
    Err(StudyError::general(message).at_quoted(text, same))
}

/// Only a job that loads tables separately from the measurement can be staged.
pub(crate) fn check_staged(
    study: &Study,
    one: &Experiment,
    text: Place<'_>,
) -> Result<(), StudyError> {
    let named = |stack: &&Stack| one.stacks.is_empty() || one.stacks.contains(&stack.name);
    let staged = study.stack.iter().filter(named).find(|stack| stack.staged);
    let Some(stack) = staged.filter(|_| one.job.first().sql().is_none()) else { return Ok(()) };
    let message = format!(
        "experiment `{}`: stack `{}` is staged; only SQL tables can be staged",
        one.name, stack.name
    );
    text.refuse("staged", message)
}

/// Rates of stacks with different time scales must not be compared.
pub(crate) fn check_one_scale(
    study: &Study,
    one: &Experiment,
    text: Place<'_>,
) -> Result<(), StudyError> {
    let named = |stack: &&Stack| one.stacks.is_empty() || one.stacks.contains(&stack.name);
    let mut stacks = study.stack.iter().filter(named);
    let Some(first) = stacks.next() else { return Ok(()) };
    let Some(other) = stacks.find(|stack| stack.scale != first.scale) else { return Ok(()) };
    let message = format!(
        "experiment `{}`: stack `{}` has scale = {} and stack `{}` has {}; their results would not be \
         comparable",
        one.name, first.name, first.scale, other.name, other.scale
    );
    Err(StudyError::general(message).on(text, "scale").with_help(
        "use one scale for all stacks of the experiment, or select stacks: stacks = [...]",
    ))
}

#[cfg(test)]
mod tests {
    use crate::descriptor::ENGINES;
    use crate::parse;

    const STUDY: &str = r#"
schema = 1
name = "small"
[[stack]]
name = "fast"
device = "model:intel-p4800x"
attach = true
scale = 10
[[stack]]
name = "slow"
device = "model:intel-s3520"
attach = true
scale = 10
[[experiment]]
name = "mix"
[experiment.block]
queue_depth = 1
"#;

    /// A drive at a tenth of its speed would lose a comparison with one at full speed.
    #[test]
    fn stacks_of_an_experiment_share_one_scale() {
        assert_eq!(parse(STUDY, ENGINES).map(|study| study.stack[0].scale), Ok(10));
        let refused = |from: &str, to: &str| {
            let text = STUDY.replacen(from, to, 1);
            assert_ne!(text, STUDY);
            parse(&text, ENGINES).expect_err("refused").to_string()
        };
        assert!(refused("scale = 10", "scale = 2").contains("would not be comparable"));
        assert!(refused("scale = 10", "scale = 0").contains("allowed: 1 to 1000"));
        assert!(refused("attach = true\n", "").contains("attached models only"));
        assert!(refused("scale = 10", "scale = 10\nstaged = true").contains("only SQL tables"));
        let alone = STUDY.replacen("scale = 10", "scale = 2", 1);
        let alone = alone.replace("\"mix\"", "\"mix\"\nstacks = [\"slow\"]");
        assert!(parse(&alone, ENGINES).is_ok());
    }

    /// A log in real time under a database in virtual time would be written at once.
    #[test]
    fn a_log_is_on_another_stack_of_the_same_kind() {
        let study = |data: &str, log: &str, engine: &str| {
            let text = format!(
                "schema = 2\nname = \"s\"\n[[stack]]\nname = \"data\"\n{data}\n[[stack]]\n\
                 name = \"log\"\n{log}\n[[experiment]]\nname = \"e\"\nstacks = [\"data\"]\n\
                 [experiment.job]\nengine = \"{engine}\"\nworkload = \"read_write\"\nrecords = 9\n"
            );
            parse(&text, ENGINES).map(|study| crate::plan(&study).trials.len())
        };
        let refused =
            |data: &str, log: &str| study(data, log, "mysql").expect_err("refused").to_string();
        let file = "device = \"file\"";
        let on = |log: &str| format!("{file}\nwal = \"{log}\"");
        let elsewhere = format!(
            "{file}
directory = \"/x\""
        );
        assert_eq!(study(&on("log"), &elsewhere, "mysql"), Ok(1));
        assert!(refused(&on("log"), file).contains("the same directory"));
        // SQLite keeps its log next to the database.
        let embedded = study(&on("log"), &elsewhere, "sqlite").expect_err("refused").to_string();
        assert!(embedded.contains("cannot be on another stack"), "{embedded}");
        assert!(refused(&on("data"), file).contains("not another stack"));
        assert!(refused(&on("log"), "device = \"model:x\"").contains("in virtual time"));
        assert!(refused(&on("log"), &on("data")).contains("a third stack"));
        let with = |key: &str| format!("{file}\n{key}");
        for (log, reason) in [
            (with("limit = { reads = \"5/s\" }\nfile_system = \"ext4\""), "limit"),
            (with("file_system = \"raw\""), "needs a file system"),
            ("device = \"/dev/disk/by-id/a,/dev/disk/by-id/b\"".into(), "one device"),
        ] {
            assert!(refused(&on("log"), &log).contains(reason), "{reason}");
        }
        // Two users, or trials of its own, would make its file system again under a database.
        let shared = format!("{}\n[[stack]]\nname = \"more\"\n{}", on("log"), on("log"));
        assert_eq!(study(&shared, &elsewhere, "mysql"), Ok(1));
        assert!(refused(&shared, &with("file_system = \"ext4\"")).contains("one stack"));
    }
}
