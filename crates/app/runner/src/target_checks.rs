//! Checks of a stack before its targets are created.
//!
//! Invariant: read-only, except for the probes of engines.

use std::path::Path;

use device::Profile;
use stack::{Journal, StackError};
use study::{DeviceName, FileSystem, Job, Stack};
use units::{Bytes, Nanos};

use crate::databases::probe;
use crate::{RunnerError, predicted};

/// Checks that the host of a model stack exists and its model covers the jobs.
///
/// # Errors
/// [`RunnerError::Host`] with the known paths; [`RunnerError::Profile`] with what is unknown.
pub fn check_model<'a>(
    stack: &Stack,
    profile: &Profile,
    jobs: impl Iterator<Item = &'a Job>,
) -> Result<(), RunnerError> {
    let refuse = |reason| RunnerError::Host { stack: stack.name.clone(), reason };
    predicted::host_of(stack, profile, None).map_err(refuse)?;
    known((stack, predicted::size_of(stack, profile)), profile, jobs)
}

/// Refuses an emulated drive as a real one, whose figures would be labelled measured, and the reverse.
pub(crate) fn check_real(stack: &Stack, place: &Path) -> Result<(), RunnerError> {
    match (stack::on_a_model(place), stack.emulated) {
        (false, false) | (true, true) => return Ok(()),
        (false, true) => {
            return Err(RunnerError::Stack(StackError::refused(
                &place.display(),
                "it does not lie on an attached model; results would be labelled emulated",
                format!("take `emulated` out of stack `{}`", stack.name),
            )));
        }
        (true, false) => {}
    }
    Err(RunnerError::Stack(StackError::refused(
        &place.display(),
        "it lies on an attached model; results would be labelled measured",
        format!(
            "let the study attach the model itself: stack `{}` with device = \"model:NAME\" and \
             attach = true; or label the results: emulated = true",
            stack.name
        ),
    )))
}

/// Any duration: whether operations fit does not depend on it.
const ANY_TIME: Nanos = Nanos::from_secs(60);

/// Checks that a model covers the jobs and is large enough.
pub(crate) fn known<'a>(
    (stack, size): (&Stack, Bytes),
    profile: &Profile,
    jobs: impl Iterator<Item = &'a Job>,
) -> Result<(), RunnerError> {
    for job in jobs {
        if let Some(reason) = predicted::unknown(profile, job) {
            return Err(RunnerError::Profile { name: profile.name.clone(), reason });
        }
        if matches!(job, Job::Block(_) | Job::Act(_)) {
            study::check_fit_of(job, (stack, size), (1, ANY_TIME.into()))?;
        }
    }
    Ok(())
}

/// Probes every engine that the jobs need.
pub(crate) fn check_engines(
    stack: &Stack,
    jobs: &[&Job],
    journal: &Journal,
) -> Result<(), RunnerError> {
    let own = matches!(stack.device, DeviceName::Paths(_));
    // A simulated device is a file.
    let raw = (stack.file_system == FileSystem::Raw && !stack.is_virtual())
        || (own && stack.file_system == FileSystem::AsIs);
    let (mut asked, mut servers) = (Vec::new(), Vec::new());
    for job in jobs {
        if let Job::Sql(job) = job {
            let what = (&job.dsn, &job.listen, &job.options);
            if !servers.contains(&what) {
                crate::servers::probe(&stack.name, job)?;
                servers.push(what);
            }
            continue;
        }
        let Job::Kv(job) = job else { continue };
        let what = (&job.engine, &job.options, job.workload);
        if !asked.contains(&what) {
            probe(journal, &stack.name, (job, raw))?;
            asked.push(what);
        }
    }
    Ok(())
}
