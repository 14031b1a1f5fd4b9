//! Validates a study across fields: names, ranges and combinations.
//!
//! Invariant: a study that passes can be planned and run.

use std::collections::BTreeSet;

use units::{Bytes, Nanos, Share};
use workload::Until;

use crate::error::Place;
use crate::kv_check::check_kv;
use crate::sql_check::check_sql;
use crate::stack_check::{
    check_one_scale, check_reference, check_size_of, check_stack, check_staged,
};
use crate::supported::unsupported;
use crate::times::check_times;
use crate::{
    ActJob, Arrivals, Background, BlockJob, DeviceName, Experiment, Extent, Job, Offsets, Pattern,
    Stack, Study, StudyError, block_groups, plan,
};

pub(crate) fn check(study: &Study, text: &str) -> Result<(), StudyError> {
    let text = Place::whole(text);
    if study.schema != 2 {
        return text.refuse("schema", format!("schema {} is unknown; allowed: 1, 2", study.schema));
    }
    check_name(&study.name, "study", text)?;
    unique(study.stack.iter().map(|stack| stack.name.as_str()), "stack", text)?;
    unique(study.experiment.iter().map(|e| e.name.as_str()), "experiment", text)?;
    for (number, stack) in study.stack.iter().enumerate() {
        text.within("stack", number, |text| check_stack(study, stack, text))?;
    }
    check_words(study, text)?;
    check_reference(study, text)?;
    for (number, one) in study.experiment.iter().enumerate() {
        text.within("experiment", number, |text| check_experiment(study, one, text))?;
    }
    check_shares(study, text)
}

/// Checks that a study can run. Runs of earlier versions may fail it and can still be read.
///
/// # Errors
/// A job that does not fit its stack, or exceeds a limit of this program.
pub fn check_runnable(study: &Study, text: &str) -> Result<(), StudyError> {
    let text = Place::whole(text);
    for (number, stack) in study.stack.iter().enumerate() {
        text.within("stack", number, |text| check_size_of(stack, text))?;
    }
    for (number, one) in study.experiment.iter().enumerate() {
        let check = |job: &Job, text: Place<'_>| match job {
            Job::Block(block) => {
                check_operations(block.operations, text)?;
                if block.bytes == Some(Bytes(0)) {
                    return text.refuse("bytes", "bytes = 0B; allowed: at least 1B");
                }
                check_buffers(block, text)?;
                check_fit(study, one, job)
            }
            Job::Act(_) => check_fit(study, one, job),
            Job::Kv(job) => check_operations(job.operations, text),
            Job::Sql(job) => check_operations(job.operations, text),
        };
        let check_all = |text| check_points(one, |job| check(job, text));
        text.within("experiment", number, check_all)?;
    }
    Ok(())
}

/// Checks every point of an experiment; errors name the experiment.
fn check_points(
    one: &Experiment,
    check: impl Fn(&Job) -> Result<(), StudyError>,
) -> Result<(), StudyError> {
    one.job.points().iter().try_for_each(check).map_err(|error| StudyError {
        message: format!("experiment `{}`: {}", one.name, error.message),
        ..error
    })
}

/// Limits I/O buffers; each operation in flight has one.
fn check_buffers(block: &BlockJob, text: Place<'_>) -> Result<(), StudyError> {
    let own = block.size_mix.iter().map(|one| one.size).fold(block.block_size, Bytes::max);
    let of = |clients: u32, depth: u32, size: Bytes| {
        (u64::from(clients) * u64::from(depth)).saturating_mul(size.get())
    };
    let beside = block.beside.iter().map(|one| of(one.clients, one.queue_depth, one.block_size));
    let buffers = beside.fold(of(block.clients, block.queue_depth, own), u64::saturating_add);
    if buffers <= BUFFERS_MAX {
        return Ok(());
    }
    let message = format!(
        "clients, queue_depth and block_size: {} in flight; allowed: at most {}",
        Bytes(buffers),
        Bytes(BUFFERS_MAX)
    );
    text.refuse("queue_depth", message)
}

/// Rejects titles with terminal control characters.
fn check_words(study: &Study, text: Place<'_>) -> Result<(), StudyError> {
    let long = [("question", &study.question), ("about", &study.about)];
    let stacks = study.stack.iter().flat_map(|stack| {
        [("title", &stack.title), ("directory", &stack.directory), ("host", &stack.host)]
    });
    let titles = study.experiment.iter().map(|one| ("title", &one.title));
    for (key, words) in long.into_iter().chain(stacks).chain(titles) {
        let lines = matches!(key, "question" | "about");
        let bad = |c: char| c.is_control() && !(lines && matches!(c, '\n' | '\t'));
        if let Some(c) = words.chars().find(|c| bad(*c)) {
            let code = u32::from(c);
            let message = format!("{key}: holds the control character U+{code:04X}; leave it out");
            return Err(StudyError::general(message).at(text, words));
        }
        let most = if lines { 20_000 } else { 1000 };
        if words.len() > most {
            let message = format!("{key}: longer than {most} bytes");
            return Err(StudyError::general(message).at(text, words));
        }
    }
    Ok(())
}

/// A share of the highest rate needs an earlier closed loop of the same operations on the same stack.
fn check_shares(study: &Study, text: Place<'_>) -> Result<(), StudyError> {
    let wants = |one: &Experiment| one.job.of(Job::block).any(|job| job.rate_of_max.is_some());
    if !study.experiment.iter().any(wants) {
        return Ok(());
    }
    let mut known = BTreeSet::new();
    for trial in &plan(study).trials {
        let Job::Block(job) = &trial.job else { continue };
        let operations = (trial.stack.clone(), job.operations_key());
        if job.arrivals == Arrivals::Closed {
            known.insert(operations);
        } else if job.rate_of_max.is_some() && !known.contains(&operations) {
            let message = format!(
                "experiment `{}`: `rate_of_max` needs an experiment before it with a closed loop of the \
                 same operations on stack `{}`",
                trial.experiment, trial.stack
            );
            let is = |one: &Experiment| one.name == trial.experiment;
            let number = study.experiment.iter().position(is).unwrap_or_default();
            let refuse = |text: Place<'_>| text.refuse("rate_of_max", message);
            return text.within("experiment", number, refuse);
        }
    }
    Ok(())
}

/// Bytes of a name.
pub(crate) const NAME_MAX: usize = 64;

fn check_name(name: &str, kind: &str, text: Place<'_>) -> Result<(), StudyError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(allowed) {
        let message = format!(
            "`{name}` is not a valid {kind} name; allowed: 1 to 64 letters, digits, `-`, `_`"
        );
        return text.refuse("name", message);
    }
    Ok(())
}

fn unique<'a>(
    names: impl Iterator<Item = &'a str>,
    kind: &'static str,
    text: Place<'_>,
) -> Result<(), StudyError> {
    let mut seen = BTreeSet::new();
    for (number, name) in names.enumerate() {
        text.within(kind, number, |text| {
            check_name(name, kind, text)?;
            if seen.insert(name) {
                return Ok(());
            }
            let message = format!("two {kind}s are named `{name}`; names must differ");
            Err(StudyError::general(message))
        })?;
    }
    if seen.is_empty() {
        return Err(StudyError::general(format!("the study has no {kind}"))
            .with_help(format!("add a [[{kind}]] table")));
    }
    Ok(())
}

/// Intervals of a trial.
fn intervals(one: &Experiment) -> u64 {
    one.warm_up.get().saturating_add(one.duration.get()) / one.interval.get().max(1)
}

/// Rejects a study whose trials could not be read back: a trial's document has counts per class and interval,
/// and is limited to 64 MiB and four million values. Runs of earlier versions may have more.
///
/// # Errors
/// The experiment, and the number of intervals allowed.
pub fn check_size(study: &Study) -> Result<(), StudyError> {
    let most = |one: &Experiment| match one.job.first() {
        Job::Sql(_) => 20_000,
        Job::Kv(_) => 50_000,
        Job::Block(_) | Job::Act(_) => 100_000,
    };
    let Some(one) = study.experiment.iter().find(|one| intervals(one) > most(one)) else {
        return Ok(());
    };
    let message = format!(
        "experiment `{}`: {} intervals; allowed: at most {}",
        one.name,
        intervals(one),
        most(one)
    );
    Err(StudyError::general(message).with_help("lengthen `interval`"))
}

/// Whether its own operations follow a schedule.
fn is_scheduled(one: &Experiment) -> bool {
    one.job.points().iter().any(|job| match job {
        Job::Block(job) => job.arrivals != Arrivals::Closed,
        Job::Act(_) => false,
        Job::Kv(job) => job.rate.is_some(),
        Job::Sql(job) => job.rate.is_some(),
    })
}

fn check_experiment(study: &Study, one: &Experiment, text: Place<'_>) -> Result<(), StudyError> {
    let refuse =
        |message: String| StudyError::general(format!("experiment `{}`: {message}", one.name));
    for name in &one.stacks {
        let Some(stack) = study.stack.iter().find(|stack| stack.name == *name) else {
            let known: Vec<_> = study.stack.iter().map(|s| s.name.as_str()).collect();
            return Err(refuse(format!("no stack is named `{name}`"))
                .at(text, name)
                .with_help(format!("stacks of this study: {}", known.join(", "))));
        };
        if stack.variant_of.is_some() {
            return Err(refuse(format!("`{name}` varies another one; name that")).at(text, name));
        }
        if let Some(reason) = unsupported(study.engines, one, stack) {
            return Err(refuse(format!("stack `{name}`: {reason}")).at(text, name));
        }
    }
    check_one_scale(study, one, text)?;
    check_staged(study, one, text)?;
    check_times(one, text)?;
    if one.interval.get() == 0 || one.duration < one.interval {
        let message =
            format!("duration ({}) must be at least interval ({})", one.duration, one.interval);
        return Err(refuse(message).on(text, "duration"));
    }
    // A schedule that fell behind issues late operations for a further measurement's duration.
    let late = if is_scheduled(one) { one.duration.get() } else { 0 };
    let least = one.warm_up.get().saturating_add(one.duration.get()).saturating_add(late);
    if one.deadline.is_some_and(|deadline| deadline.get() < least) {
        let message = "deadline must be at least warm_up + duration, or warm_up + 2 x duration for open \
        loops";
        return Err(refuse(message.into()).on(text, "deadline"));
    }
    if intervals(one) > 1_000_000 {
        let message = "more than a million intervals; lengthen `interval`";
        return Err(refuse(message.into()).on(text, "interval"));
    }
    if !(1..=100).contains(&one.repeat) {
        let message = format!("repeat = {}; allowed: 1 to 100", one.repeat);
        return Err(refuse(message).on(text, "repeat"));
    }
    let check = |job: &Job| match job {
        Job::Block(job) => {
            check_block(job, text)?;
            check_verify(one, job, study, text)
        }
        Job::Act(job) => check_act(job, text),
        Job::Kv(job) => check_kv(job, text),
        Job::Sql(job) => check_sql(study, one, job, text),
    };
    check_points(one, check)?;
    let blocks = || one.job.of(Job::block);
    let drawn = blocks().any(|job| job.distribution != Offsets::Uniform);
    if drawn && blocks().all(|job| job.pattern == Pattern::Sequential) {
        let message = "`distribution` is for random operations; leave out pattern = \"sequential\"";
        return Err(refuse(message.into()).on(text, "distribution"));
    }
    Ok(())
}

fn check_block(block: &BlockJob, text: Place<'_>) -> Result<(), StudyError> {
    let mixed = block.size_mix.iter().map(|one| one.size);
    let beside = block.beside.iter().map(|beside| beside.block_size);
    for size in std::iter::once(block.block_size).chain(mixed).chain(beside) {
        let bytes = size.get();
        if bytes == 0 || bytes % 512 != 0 || bytes > 1 << 24 {
            let message = format!("block_size {}: a multiple of 512 B up to 16 MiB", size.exact());
            return Err(
                StudyError::general(message).at_quoted(text, |quoted| quoted.parse() == Ok(size))
            );
        }
    }
    if let Some(alignment) = block.alignment.filter(|a| a.get() == 0 || a.get() % 512 != 0) {
        let message = format!("alignment {}: a multiple of 512 B", alignment.exact());
        return text.refuse("alignment", message);
    }
    if block.size_mix.iter().any(|one| one.weight == 0) {
        return text.refuse("weight", "weight = 0; allowed: at least 1");
    }
    if !block.size_mix.is_empty() && block.block_size != Bytes(4096) {
        let message = "`size_mix` and `block_size` exclude each other; leave one out";
        return text.refuse("block_size", message);
    }
    check_numbers(block, text)?;
    check_arrivals(block, text)
}

/// Limit on the total size of I/O buffers; every operation in flight has one.
const BUFFERS_MAX: u64 = 16 << 30;
/// Maximum number of operations of a trial.
const OPERATIONS_MAX: u64 = 1_000_000_000_000_000;

/// Checks that numbers are within physical limits and those of this program.
fn check_numbers(block: &BlockJob, text: Place<'_>) -> Result<(), StudyError> {
    let beside_all = || block.beside.iter();
    let with = |own: u32, of: fn(&Background) -> u32| -> Vec<u32> {
        std::iter::once(own).chain(beside_all().map(of)).collect()
    };
    let rounds = block.precondition.iter().map(|p| p.rounds_max.max(p.fills)).collect();
    let ranges: [(&str, Vec<u32>, u32, u32); 6] = [
        ("queue_depth", with(block.queue_depth, |beside| beside.queue_depth), 1, 4096),
        ("clients", with(block.clients, |beside| beside.clients), 1, 256),
        ("batch", vec![block.batch], 1, 4096),
        ("burst", with(block.burst, |beside| beside.burst), 1, 1_000_000),
        ("sync_every", vec![block.sync_every], 0, 1_000_000),
        ("rounds_max", rounds, 0, 1000),
    ];
    for (key, values, low, high) in ranges {
        if let Some(wrong) = values.into_iter().find(|value| !(low..=high).contains(value)) {
            let has = |value: &str| {
                let numbers = value.split(|c: char| !c.is_ascii_digit() && c != '_');
                numbers.into_iter().any(|n| n.replace('_', "").parse() == Ok(wrong))
            };
            let message = format!("{key} = {wrong}; allowed: {low} to {high}");
            return Err(StudyError::general(message).at_key(text, key, has));
        }
    }
    for (key, count, most) in [
        ("beside", block.beside.len(), 64),
        ("size_mix", block.size_mix.len(), 64),
        ("rate_step", block.rate_step.len(), 10_000),
    ] {
        if count > most {
            return Err(StudyError::general(format!("{count} x {key}; allowed: at most {most}")));
        }
    }
    Ok(())
}

fn check_operations(operations: Option<u64>, text: Place<'_>) -> Result<(), StudyError> {
    let Some(wrong) = operations.filter(|count| !(1..=OPERATIONS_MAX).contains(count)) else {
        return Ok(());
    };
    text.refuse("operations", format!("operations = {wrong}; allowed: 1 to {OPERATIONS_MAX}"))
}

fn check_arrivals(block: &BlockJob, text: Place<'_>) -> Result<(), StudyError> {
    if let Some(share) = block.rate_of_max {
        let refuse = |message: &str| StudyError::general(message).on(text, "rate_of_max");
        if block.rate.is_some() || block.arrivals == Arrivals::Closed {
            return Err(refuse("`rate_of_max` replaces `rate` and needs arrivals"));
        }
        if share == Share::NONE {
            return Err(refuse("a share of 0 % offers nothing; allowed: 0.01% to 100%"));
        }
    }
    // For this check, a share of the highest rate stands in for a rate.
    let stands_in = block.rate_of_max.as_ref().map(|_| units::Rate(1));
    let own: Vec<units::Rate> = block.rate.into_iter().chain(stands_in).collect();
    let clients = std::iter::once((block.arrivals, own, block.think_time, block.burst)).chain(
        block.beside.iter().map(|beside| {
            (beside.arrivals, beside.rate.into_iter().collect(), beside.think_time, beside.burst)
        }),
    );
    for (arrivals, rates, think_time, burst) in clients {
        let open = arrivals != Arrivals::Closed;
        if open && rates.is_empty() {
            let word = arrivals.word();
            let message = format!("arrivals = \"{word}\" need a `rate`, such as \"1k/s\"");
            return text.refuse("arrivals", message);
        }
        if !open && !rates.is_empty() {
            let message = "`rate` is for open loops; add arrivals = \"poisson\" or \"constant\"";
            return text.refuse("rate", message);
        }
        if let Some(rate) = rates.iter().find(|r| !(1..=100_000_000).contains(&r.get())) {
            return text.refuse("rate", format!("rate {}; allowed: 1/s to 100M/s", rate.exact()));
        }
        if open && think_time.get() > 0 {
            let message = "`think_time` is for closed loops; an open loop has a `rate`";
            return text.refuse("think_time", message);
        }
        if !open && burst > 1 {
            return text.refuse("burst", "`burst` is for open loops; add arrivals and a `rate`");
        }
    }
    let steps = &block.rate_step;
    if !steps.is_empty() && block.arrivals == Arrivals::Closed {
        let message = "`rate_step` is for open loops; add arrivals and a `rate`";
        return text.refuse("rate_step", message);
    }
    if steps.windows(2).any(|pair| pair[0].at >= pair[1].at)
        || steps.first().is_some_and(|step| step.at == Nanos::ZERO)
    {
        return text.refuse("at", "rate_step: `at` must be above zero and ascend");
    }
    Ok(())
}

/// Checks that operations fit the stacks whose size is known.
fn check_fit(study: &Study, one: &Experiment, job: &Job) -> Result<(), StudyError> {
    let used = |stack: &&Stack| one.stacks.is_empty() || one.stacks.contains(&stack.name);
    for stack in study.stack.iter().filter(used) {
        let file = stack.device == DeviceName::File;
        let Some(size) = stack.size.or_else(|| file.then(|| stack.size())) else { continue };
        let devices = match &stack.device {
            DeviceName::Paths(paths) => u32::try_from(paths.len()).unwrap_or(u32::MAX),
            _ => 1,
        };
        check_fit_of(job, (stack, size), (devices, one.duration.into()))?;
    }
    Ok(())
}

/// Whether the operations of a job fit `devices` devices of `size`.
///
/// # Errors
/// Why they do not, with the name of the stack.
pub fn check_fit_of(
    job: &Job,
    (stack, size): (&Stack, Bytes),
    (devices, until): (u32, Until),
) -> Result<(), StudyError> {
    let extent = Extent { device: size, devices, smallest_request: 512, cpus: 1, until };
    let fit = block_groups(job, extent).map(|_| ());
    fit.map_err(|reason| StudyError::general(format!("stack `{}`: {reason}", stack.name)))
}

/// Verification and flushes need to know which operation is on which block of which device.
fn check_verify(
    one: &Experiment,
    block: &BlockJob,
    study: &Study,
    text: Place<'_>,
) -> Result<(), StudyError> {
    let refuse = |message: &str| StudyError::general(message);
    let stacks =
        study.stack.iter().filter(|s| one.stacks.is_empty() || one.stacks.contains(&s.name));
    let mut names = stacks.map(|stack| &stack.device);
    let many = |name: &DeviceName| matches!(name, DeviceName::Paths(paths) if paths.len() > 1);
    let flushes = block.sync_every > 0 || block.beside.iter().any(|beside| beside.sync_every > 0);
    if flushes && names.any(many) {
        return Err(refuse("`sync_every` needs a stack of one device").on(text, "sync_every"));
    }
    if block.trace && block.arrivals != Arrivals::Closed {
        return Err(refuse("`trace` needs a closed loop").on(text, "trace"));
    }
    if !block.verify {
        return Ok(());
    }
    if block.trace {
        return Err(refuse("`trace` repeats the job without verification").on(text, "trace"));
    }
    let aligned = block.alignment.is_none_or(|a| block.block_size == a);
    let reason = if !block.size_mix.is_empty() || !aligned {
        "`verify` needs one block size, and no alignment but that"
    } else if block.beside.iter().any(|beside| beside.read_share != Share::ALL) {
        "`verify` does not support background clients"
    } else {
        return Ok(());
    };
    Err(refuse(reason).on(text, "verify"))
}

fn check_act(act: &ActJob, text: Place<'_>) -> Result<(), StudyError> {
    let config = act::Config::parse(&act.config)
        .map_err(|error| StudyError::general(format!("config, {error}")).on(text, "config"))?;
    let interval = Nanos::from_secs(u64::from(config.report_interval_sec));
    let from_file = Nanos::from_secs(u64::from(config.test_duration_sec));
    let duration = act.test_duration.unwrap_or(from_file);
    if duration < interval {
        let message =
            format!("the test ({duration}) is shorter than its report interval ({interval})");
        return text.refuse("test_duration", message);
    }
    for (key, value, most) in
        [("rating", act.rating, 10_000), ("service_threads", act.service_threads, 4096)]
    {
        if let Some(wrong) = value.filter(|value| !(1..=most).contains(value)) {
            return text.refuse(key, format!("{key} = {wrong}; allowed: 1 to {most}"));
        }
    }
    Ok(())
}
