//! Plan, execute, record: from a study file to a run folder.
//!
//! Invariants: the archive is written trial by trial; everything created on the host is in the undo journal;
//! watchers are notified, never queried.

mod ahead;
pub mod attached;
mod bench;
mod block_trial;
mod calibrate;
mod calibrate_scheduler;
mod catalog;
mod context;
mod cut_databases;
mod cut_records;
mod database_trial;
mod databases;
mod devices;
mod doctor;
pub mod drives;
mod emulated;
mod error;
mod estimate;
mod execute;
mod host;
mod lacks;
mod load_generators;
mod measured;
mod options;
mod parts;
mod power_cuts;
mod precondition;
mod predicted;
mod race;
mod reached;
mod record;
#[cfg(test)]
mod scenarios;
mod schedule;
mod servers;
mod simulated;
mod simulated_cuts;
mod sql_trial;
mod target_checks;
mod together;
mod traced;
mod watch;
mod watched;

pub use calibrate::{calibrate, host_name};
pub use calibrate_scheduler::{FittedScheduler, WAKING_VERB, WakingCheck, fit_scheduler, waking};
pub use catalog::{
    StudyText, built_in_profiles, built_in_studies, load_study, overwrites, profile, profile_text,
    read_text,
};
pub use cut_databases::Kept;
pub use cut_records::{AttachedDrive, CutRecord, PowerCuts};
pub use databases::HOST_VERB;
pub use doctor::{Check, Status, doctor};
pub use drives::check_faults;
pub use error::{ExitClass, RunnerError};
pub use estimate::{Estimate, estimate};
pub use execute::{Resumed, default_folder, execute, resume, with_time};
pub use lacks::{MissingRequirement, lacks, possible, privileges};
pub use options::{LoadGenerator, Options};
pub use parts::{Merged, Part, merge, parts};
pub use power_cuts::{power_cuts, study_of};
pub use predicted::{check_profile, condition_of};
pub use schedule::{Ending, RunEnd};
pub(crate) use simulated::library;
pub use simulated::{SimulatedHost, psync_path};
pub use target_checks::check_model;
pub use watch::{Event, Watcher};

/// Checks that the private server of a SQL job can be started.
///
/// # Errors
/// [`RunnerError::Environment`] names what is missing.
pub fn server_of(job: &study::SqlJob) -> Result<(), RunnerError> {
    servers::probe("drive", job)
}
