//! Which experiments can run on which stacks; others are left out of the plan, with the reason.

use crate::{
    BlockJob, Descriptor, DeviceName, EngineName, Engines, Experiment, FileSystem, Job, Operations,
    Stack, VirtualTime,
};

/// Why this experiment cannot run on that stack, if so.
pub(crate) fn unsupported(
    engines: Engines,
    experiment: &Experiment,
    stack: &Stack,
) -> Option<String> {
    let model = stack.is_virtual();
    let needs_data = |block: &BlockJob| block.verify || block.precondition.is_some();
    if model && experiment.job.of(Job::block).any(needs_data) {
        return Some("a device model holds no data to verify or to precondition".into());
    }
    let database = !experiment.job.first().is_block();
    if !database && (stack.file_system != FileSystem::AsIs || stack.limit.is_some()) {
        return Some("block experiments do not support file_system yet".into());
    }
    let bare = |name: &EngineName| {
        engines.find(name, Operations::KeyValue).is_none_or(|engine| engine.bare_device)
    };
    let key_value = || experiment.job.of(Job::key_value);
    let runs_raw = key_value().next().is_some() && key_value().all(|job| bare(&job.engine));
    let needs_file_system = || needs_file_system(engines);
    match &stack.device {
        _ if !database => None,
        _ if stack.wal.is_some() && !splits_wal(engines, experiment) => {
            Some("its log cannot be on another stack".into())
        }
        DeviceName::Model(_) if stack.attach => match stack.file_system {
            FileSystem::AsIs => {
                Some("an attached model is a bare disk; give the stack a file_system".into())
            }
            FileSystem::Raw if !runs_raw => Some(needs_file_system()),
            _ => None,
        },
        DeviceName::Model(_) if stack.file_system == FileSystem::Raw && !runs_raw => {
            Some(needs_file_system())
        }
        DeviceName::Model(_) => {
            let runs = |one: &&Descriptor| one.virtual_time != VirtualTime::No;
            let known =
                |name, operations| engines.find(name, operations).is_none_or(|one| runs(&one));
            let sql = || experiment.job.of(Job::sql);
            if sql().any(|job| job.race || job.dsn.is_some()) {
                let message = "races and servers of others do not run in virtual time; races need \
                               attach = true, and a server is measured on the disk that it is on";
                return Some(message.into());
            }
            if key_value().all(|job| known(&job.engine, Operations::KeyValue))
                && sql().all(|job| known(&job.engine, Operations::Sql))
            {
                return None;
            }
            let kinds = [Operations::KeyValue, Operations::Sql];
            let names = kinds.into_iter().flat_map(|kind| engines.with(kind)).filter(runs);
            let mut names: Vec<&str> = names.map(|one| one.name).collect();
            names.sort_unstable();
            names.dedup();
            Some(format!(
                "on a device model, virtual time runs {} only; other databases need attach = true",
                names.join(", ")
            ))
        }
        DeviceName::Paths(paths) => {
            let raw = [FileSystem::AsIs, FileSystem::Raw].contains(&stack.file_system);
            if paths.len() > 1 {
                Some("a database needs one device".into())
            } else {
                (raw && !runs_raw).then(needs_file_system)
            }
        }
        DeviceName::File => {
            let raw = stack.file_system == FileSystem::Raw;
            (raw && !runs_raw).then(needs_file_system)
        }
    }
}

/// Whether all databases of an experiment can have their write-ahead log on another stack.
fn splits_wal(engines: Engines, experiment: &Experiment) -> bool {
    let has = |name: &EngineName, operations| {
        engines.find(name, operations).is_none_or(|one| one.wal.is_some())
    };
    experiment.job.of(Job::key_value).all(|job| has(&job.engine, Operations::KeyValue))
        && experiment
            .job
            .of(Job::sql)
            .all(|job| has(&job.engine, Operations::Sql) && job.dsn.is_none() && !job.race)
}

fn needs_file_system(engines: Engines) -> String {
    let bare = engines.with(Operations::KeyValue).filter(|one| one.bare_device);
    let names = bare.map(|one| one.name).collect::<Vec<_>>().join(", ");
    format!("only {names} runs on a device without a file system; give the stack a file_system")
}
