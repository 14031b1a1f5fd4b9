//! What if one part of a simulated stack were free: the stacks that answer it.
//!
//! Invariant: a stack that varies another one runs that stack's database experiments, and no others.

use std::collections::HashSet;

use crate::check::NAME_MAX;
use crate::error::Place;
use crate::{Condition, DeviceName, FileSystem, Stack, Study, StudyError, WhatIf};

/// The drive that takes no time.
const INSTANT: &str = "instant";

/// The variant of a stack with one part free.
fn variant(stack: &Stack, free: WhatIf) -> Stack {
    let own = Stack {
        name: format!("{}-{}", stack.name, free.word()),
        variant_of: Some(stack.name.clone()),
        what_if: Vec::new(),
        is_made: true,
        ..stack.clone()
    };
    match free {
        WhatIf::Drive => Stack {
            title: "an infinitely fast drive".into(),
            device: DeviceName::Model(INSTANT.into()),
            wal: None,
            condition: Condition::default(),
            ..own
        },
        WhatIf::Cores => {
            Stack { title: "twice the cores".into(), cores: stack.cores.saturating_mul(2), ..own }
        }
        WhatIf::Journal => {
            let file_system = FileSystem::Ext4NoJournal;
            Stack { title: "no journal".into(), file_system, ..own }
        }
    }
}

/// Adds the variants that stacks ask for, each after its stack.
///
/// # Errors
/// A variant's name is that of another stack, or too long.
pub(crate) fn add_variants(study: &mut Study, text: Place<'_>) -> Result<(), StudyError> {
    let mut names: HashSet<String> = study.stack.iter().map(|stack| stack.name.clone()).collect();
    let mut all: Vec<Stack> = Vec::new();
    for (number, stack) in std::mem::take(&mut study.stack).into_iter().enumerate() {
        let made: Vec<Stack> = stack.what_if.iter().map(|free| variant(&stack, *free)).collect();
        for Stack { name, .. } in &made {
            let reason = match () {
                () if name.len() > NAME_MAX => "is too long; shorten that of the stack",
                () if !names.insert(name.clone()) => "is taken",
                () => continue,
            };
            let message = format!("the name of its variant, `{name}`, {reason}");
            return text.within("stack", number, |text| text.refuse("what_if", message));
        }
        all.push(stack);
        all.extend(made);
    }
    study.stack = all;
    Ok(())
}

impl Stack {
    /// Whether an experiment with these stacks runs on it.
    pub(crate) fn is_among(&self, stacks: &[String], is_block: bool) -> bool {
        let named = self.variant_of.as_ref().unwrap_or(&self.name);
        (stacks.is_empty() || stacks.contains(named)) && (self.variant_of.is_none() || !is_block)
    }
}

impl Study {
    /// Whether a stack of this name varies another one, and is no storage of its own.
    #[must_use]
    pub fn is_variant(&self, name: &str) -> bool {
        self.stack.iter().any(|stack| stack.name == name && stack.variant_of.is_some())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Engines, parse, plan, resolved_text};

    const STUDY: &str = "schema = 2\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"model:x\"\n\
        cores = 4\nwhat_if = [\"drive\", \"cores\", \"journal\"]\n\
        [[experiment]]\nname = \"kv\"\nstacks = [\"d\"]\n[experiment.job]\nengine = \"lmdb\"\n\
        workload = \"overwrite\"\nrecords = 10\nvalue_size = \"100B\"\n\
        [[experiment]]\nname = \"reads\"\n[experiment.job]\nengine = \"block\"\n";

    /// A variant that runs another load than its stack would answer another question.
    #[test]
    fn variants_run_the_database_experiments_of_their_stack() {
        let study = parse(STUDY, Engines::ANY).unwrap();
        let of = |name: &str| study.stack.iter().find(|stack| stack.name == name).unwrap();
        assert_eq!(of("d-drive").device.text(), "model:instant");
        assert_eq!((of("d-cores").cores, of("d-journal").cores), (8, 4));
        assert_eq!(of("d-journal").variant_of.as_deref(), Some("d"));
        let trials = plan(&study).trials;
        let on = |experiment: &str| -> Vec<&str> {
            let own = trials.iter().filter(|trial| trial.experiment == experiment);
            own.map(|trial| trial.stack.as_str()).collect()
        };
        assert_eq!(on("kv"), ["d", "d-drive", "d-cores", "d-journal"]);
        assert_eq!(on("reads"), ["d"]);
        let again = parse(&resolved_text(&study), Engines::ANY).unwrap();
        assert_eq!((&study, trials), (&again, plan(&again).trials));
    }

    #[test]
    fn what_cannot_be_free_is_refused() {
        for (from, to, message) in [
            ("cores = 4\n", "", "set its cores"),
            ("model:x\"\ncores = 4\n", "file\"\n", "for device models in virtual time only"),
            ("cores = 4\n", "cores = 4\nfile_system = \"raw\"\n", "has no journal"),
            ("[\"drive\", ", "[\"drive\", \"drive\", ", "is taken"),
            (
                "[[experiment]]\nname = \"kv\"",
                "[[stack]]\nname = \"d-cores\"\ndevice = \"file\"\n[[experiment]]\nname = \"kv\"",
                "`d-cores`, is taken",
            ),
            (
                "\"d\"",
                "\"a-name-that-is-too-long-together-with-those-of-its-variants\"",
                "too long",
            ),
            ("cores = 4", "cores = 600", "at most 512"),
            ("what_if = [", "variant_of = \"e\"\nwhat_if = [", "is not another stack"),
            ("schema = 2", "reference = \"d-cores\"\nschema = 2", "is not a stack"),
        ] {
            let error = parse(&STUDY.replace(from, to), Engines::ANY).unwrap_err();
            assert!(error.message.contains(message) && error.span.is_some(), "{to}: {error}");
        }
        let own = "[[stack]]\nname = \"v\"\ntitle = \"another drive\"\nvariant_of = \"d\"\n\
                   device = \"model:y\"\n[[experiment]]\nname = \"kv\"";
        let text = STUDY.replace("[[experiment]]\nname = \"kv\"", own);
        assert!(parse(&text, Engines::ANY).is_ok());
        for (from, to, message) in [
            ("title = \"another drive\"\n", "", "needs a `title`"),
            ("model:y", "file", "in virtual time only"),
            ("variant_of = \"d\"", "variant_of = \"v\"", "is not another stack"),
            ("stacks = [\"d\"]", "stacks = [\"d\", \"v\"]", "varies another one"),
            ("schema = 2", "reference = \"v\"\nschema = 2", "is not a stack"),
        ] {
            let error = parse(&text.replace(from, to), Engines::ANY).unwrap_err();
            assert!(error.message.contains(message) && error.span.is_some(), "{to}: {error}");
        }
        let (reads, _) = STUDY.split_once("[[experiment]]").unwrap();
        let reads =
            format!("{reads}[[experiment]]\nname = \"r\"\n[experiment.job]\nengine = \"block\"\n");
        let error = parse(&reads, Engines::ANY).unwrap_err();
        assert!(error.message.contains("no database experiment"), "{error}");
    }

    /// An untrusted study must not fill the memory: the limit counts variants, and only where they run.
    #[test]
    fn variants_count_as_trials() {
        let repeated =
            |times: &str| STUDY.replace("name = \"kv\"\n", &format!("name = \"kv\"\n{times}"));
        let clients = |most: u32| {
            let all: Vec<String> = (1..=most).map(|one| one.to_string()).collect();
            repeated("repeat = 100\n")
                .replace("records = 10", &format!("records = [{}]", all.join(", ")))
        };
        assert_eq!(plan(&parse(&clients(249), Engines::ANY).unwrap()).trials.len(), 99_601);
        let error = parse(&clients(250), Engines::ANY).unwrap_err();
        assert!(error.message.contains("100001 trials"), "{error}");
    }
}
