//! What if one part of a simulated stack were free: the stacks that answer it.
//!
//! Invariant: a stack that varies another one runs that stack's database experiments, and no others.

use crate::check::NAME_MAX;
use crate::error::Place;
use crate::{Condition, DeviceName, FileSystem, Job, Stack, Study, StudyError, WhatIf};

/// The drive that takes no time.
const INSTANT: &str = "instant";

/// The variant of a stack with one part free.
fn variant(stack: &Stack, free: WhatIf) -> Stack {
    let own = Stack {
        name: format!("{}-{}", stack.name, free.word()),
        variant_of: Some(stack.name.clone()),
        what_if: Vec::new(),
        ..stack.clone()
    };
    match free {
        WhatIf::Drive => Stack {
            title: "an infinitely fast drive".into(),
            device: DeviceName::Model(INSTANT.into()),
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
    let mut all: Vec<Stack> = Vec::new();
    for (number, stack) in study.stack.iter().enumerate() {
        all.push(Stack { what_if: Vec::new(), ..stack.clone() });
        for made in stack.what_if.iter().map(|free| variant(stack, *free)) {
            let is_taken = study.stack.iter().chain(&all).any(|other| other.name == made.name);
            text.within("stack", number, |text| match is_taken || made.name.len() > NAME_MAX {
                true => text.refuse(
                    "what_if",
                    format!("its variant `{}` needs a name of its own", made.name),
                ),
                false => Ok(()),
            })?;
            all.push(made);
        }
    }
    study.stack = all;
    Ok(())
}

impl Stack {
    /// Whether an experiment with these stacks and this first job runs on it.
    pub(crate) fn is_among(&self, stacks: &[String], job: &Job) -> bool {
        let named = self.variant_of.as_ref().unwrap_or(&self.name);
        let asked = stacks.is_empty() || stacks.contains(named) || stacks.contains(&self.name);
        asked && (self.variant_of.is_none() || !job.is_block())
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
            ("[\"drive\", ", "[\"drive\", \"drive\", ", "needs a name of its own"),
            (
                "[[experiment]]\nname = \"kv\"",
                "[[stack]]\nname = \"d-cores\"\ndevice = \"file\"\n[[experiment]]\nname = \"kv\"",
                "`d-cores` needs a name",
            ),
            ("what_if = [", "variant_of = \"e\"\nwhat_if = [", "is not another stack"),
        ] {
            let error = parse(&STUDY.replace(from, to), Engines::ANY).unwrap_err();
            assert!(error.message.contains(message) && error.span.is_some(), "{to}: {error}");
        }
    }
}
