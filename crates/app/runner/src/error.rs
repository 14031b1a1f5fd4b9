//! Errors between a study and its run, with exit code and next command.
//!
//! Invariant: every error has exactly one exit code.

use std::io;
use std::path::PathBuf;

use archive::ArchiveError;
use archive::output::{OutputError, Refusal};
use stack::StackError;
use study::StudyError;
use thiserror::Error;

/// Exit classes of the command line, as documented in the README.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitClass {
    /// A bug in this program.
    Internal,
    /// The command line is wrong.
    Usage,
    /// The study is wrong.
    BadStudy,
    /// The safety guard refuses.
    Refused,
    /// A requirement is missing.
    Environment,
    /// The target failed.
    TargetFailed,
    /// Data is not what was written.
    Verification,
}

/// Why a run could not be done.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunnerError {
    /// A study file that cannot be read.
    #[error("cannot read {path}: {source}")]
    StudyFile {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Neither a file nor a built-in study.
    #[error("{path} is neither a file nor a built-in study; built in: {known}")]
    NoStudy {
        /// The path as given.
        path: PathBuf,
        /// Names of the built-in studies.
        known: String,
        /// A similar name.
        near: Option<&'static str>,
    },
    /// A study that is wrong.
    #[error(transparent)]
    Study(#[from] StudyError),
    /// A device profile that is wrong or missing.
    #[error("device model `{name}`: {reason}")]
    Profile {
        /// Its name.
        name: String,
        /// Why not.
        reason: String,
    },
    /// A model stack names a host path that is unknown.
    #[error("stack `{stack}`: {reason}")]
    Host {
        /// The stack.
        stack: String,
        /// The reason, and the known names.
        reason: String,
    },
    /// The fault plan of a stack is invalid.
    #[error("{of}, faults: {reason}")]
    Faults {
        /// The stack, or the file of the plan.
        of: String,
        /// The reason, and what is allowed.
        reason: String,
    },
    /// The stack cannot be used.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The run folder cannot be read or written.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// Results cannot be written to this path.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The run folder exists already.
    #[error("{0} exists already")]
    OutputExists(PathBuf),
    /// The run to be resumed belongs to another plan.
    #[error("{path} was planned with {planned} trials; this version plans {now}")]
    OtherPlan {
        /// The run folder.
        path: PathBuf,
        /// Trials in its header.
        planned: u32,
        /// Trials planned now.
        now: u32,
    },
    /// A trial that the study does not have.
    #[error("the study has no trial {number}; it has {planned}")]
    NoTrial {
        /// Its number.
        number: u32,
        /// The number of planned trials.
        planned: usize,
    },
    /// Load generators have nothing to do.
    #[error("load generators: {0}")]
    NoShare(String),
    /// A part of a run belongs to another study.
    #[error("{path} is of another study, of other values, or by another version of this program")]
    OtherStudy {
        /// The folder.
        path: PathBuf,
    },
    /// The run to be resumed was planned in another order.
    #[error(
        "{path} was planned in another order: trial {slug} has a different number in this version"
    )]
    OtherOrder {
        /// The run folder.
        path: PathBuf,
        /// A finished trial of it.
        slug: String,
    },
    /// The run belongs to another study than required.
    #[error("{path} is a run of the study `{study}`, not of `{wanted}`: {reason}")]
    NotThatStudy {
        /// The run folder.
        path: PathBuf,
        /// Its study.
        study: String,
        /// The one that is needed.
        wanted: &'static str,
        /// What is missing.
        reason: String,
    },
    /// Everything in the study was left out.
    #[error("nothing of this study can run: {}", .0.join("; "))]
    NothingToRun(Vec<String>),
    /// A requirement of a stack is missing, such as io_uring.
    #[error("stack `{stack}`: {reason}")]
    Environment {
        /// The stack.
        stack: String,
        /// What is missing.
        reason: String,
        /// What to do.
        next: String,
    },
    /// The modelled drive of a stack could not be attached: the trial failed, others continue.
    #[error("refused: {device}: {reason}")]
    NotAttached {
        /// The model.
        device: String,
        /// Why not.
        reason: String,
        /// What to do.
        next: String,
        /// A time scale that would help, if any.
        scale: Option<u32>,
    },
    /// A block does not contain what was written; becomes [`RunnerError::WrongData`] with its evidence.
    #[error(transparent)]
    WrongBlock(Box<block::Corruption>),
    /// Data read is not what was written.
    #[error("trial {trial}: wrong data: {reason}; the evidence is kept in {evidence}")]
    WrongData {
        /// The trial.
        trial: String,
        /// What was found.
        reason: String,
        /// Where the database or the block is.
        evidence: PathBuf,
    },
}

impl RunnerError {
    pub(crate) fn environment(
        stack: &str,
        reason: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self::Environment { stack: stack.into(), reason: reason.into(), next: next.into() }
    }

    /// The exit class.
    #[must_use]
    pub fn class(&self) -> ExitClass {
        match self {
            Self::StudyFile { .. }
            | Self::NoStudy { .. }
            | Self::OutputExists(_)
            | Self::NoTrial { .. }
            | Self::NoShare(_)
            | Self::OtherStudy { .. } => ExitClass::Usage,
            Self::Study(_)
            | Self::Profile { .. }
            | Self::Host { .. }
            | Self::Faults { .. }
            | Self::NotThatStudy { .. }
            | Self::NothingToRun(_) => ExitClass::BadStudy,
            Self::Output(OutputError::Refused { reason: Refusal::Exists, .. }) => {
                ExitClass::Environment
            }
            Self::Stack(StackError::Refused { .. })
            | Self::NotAttached { .. }
            | Self::Output(OutputError::Refused { .. })
            | Self::Output(OutputError::Directory(StackError::Refused { .. })) => {
                ExitClass::Refused
            }
            Self::Output(_) => ExitClass::Environment,
            Self::Stack(_) | Self::Environment { .. } => ExitClass::Environment,
            Self::Archive(ArchiveError::Damaged { .. }) => ExitClass::Verification,
            Self::Archive(
                ArchiveError::NotARun(_) | ArchiveError::Format { .. } | ArchiveError::Foreign(_),
            )
            | Self::OtherPlan { .. }
            | Self::OtherOrder { .. } => ExitClass::Usage,
            Self::Archive(_) => ExitClass::Environment,
            Self::WrongData { .. } | Self::WrongBlock(_) => ExitClass::Verification,
        }
    }

    /// Why a trial failed, for its record.
    #[must_use]
    pub fn failure(&self) -> String {
        match self {
            Self::NotAttached { device, reason, next, .. } => {
                format!("{device} is {reason}; help: {next}")
            }
            other => other.to_string(),
        }
    }

    /// The help text: the next command.
    #[must_use]
    pub fn next(&self) -> String {
        match self {
            Self::StudyFile { source, .. } => match source.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => after(source),
                _ => "give a text file: a study, or a fio job file for crosspoint import".into(),
            },
            Self::NoStudy { near: Some(near), .. } => format!("did you mean {near}?"),
            Self::NoStudy { .. } => "list studies: crosspoint studies".into(),
            Self::Study(error) => error.help.clone().unwrap_or_else(|| {
                "correct the study, then check it with: crosspoint plan STUDY".into()
            }),
            Self::NotThatStudy { wanted, .. } => {
                format!("a run of {wanted}: crosspoint run {wanted} makes one")
            }
            Self::NoTrial { .. } => "list them: crosspoint plan STUDY".into(),
            Self::NoShare(_) => "change --load-generator: crosspoint run --help".into(),
            Self::OtherStudy { .. } => {
                "merge runs of one study with the same values, or choose another --out".into()
            }Self::NothingToRun(_) => "check the study: crosspoint plan STUDY".into(),
            Self::Profile { name, .. } if name.ends_with(".toml") => {
                "correct the file; crosspoint device show intel-p3700 --toml prints one to start from".into()
            }
            Self::Profile { .. } => "list built-in models: crosspoint device list".into(),
            Self::Faults { .. } => "see docs/FAULTS.md for all keys and examples".into(),
            Self::Host { stack, .. } => format!("--set stack.{stack}.host=auto"),
            Self::Stack(StackError::Refused { next, .. })
            | Self::NotAttached { next, .. }
            | Self::Environment { next, .. } => next.clone(),
            Self::Stack(StackError::NoSpace { .. }) => {
                "use another disk: --set stack.NAME.directory=/path, or less: --set stack.NAME.size=256MiB"
                    .into()
            }
            Self::Stack(StackError::NoDirectIo { .. }) => {
                "use a directory on another file system: --set stack.NAME.directory=/path; or measure \
                 the page cache on purpose: --set stack.NAME.direct=false"
                    .into()
            }
            Self::Stack(StackError::Io { source, .. }) => after(source),
            Self::Stack(_) => "crosspoint doctor".into(),
            Self::Archive(error) => after_archive(error),
            Self::Output(OutputError::Directory(error)) => match error {
                StackError::Refused { next, .. } => next.clone(),
                StackError::Io { source, .. } => after(source),
                _ => "choose another directory".into(),
            },
            Self::Output(OutputError::Refused { reason, .. }) => reason.next().into(),
            Self::Output(_) => "choose another file or directory; the directory of a file must exist".into(),
            Self::OutputExists(path) => {
                let path = path.display();
                format!("choose another --out, or resume the run in it: crosspoint run --resume {path}")
            }
            Self::OtherPlan { .. } | Self::OtherOrder { .. } => {
                "start a new run of the study; the finished trials of this one stay readable".into()
            }
            Self::WrongData { .. } | Self::WrongBlock(_) => {
                "inspect the evidence: the storage or the engine lost data".into()
            }
        }
    }
}

/// Help for errors of a run folder.
fn after_archive(error: &ArchiveError) -> String {
    match error {
        ArchiveError::Damaged { path, .. }
            if !path.components().any(|part| part.as_os_str() == "trials") =>
        {
            "restore it from a copy of the run; without it, none of the results can be trusted"
                .into()
        }
        ArchiveError::Damaged { path, .. } => format!(
            "re-run it: crosspoint run --resume {}; or leave it out of report and figures with \
             --skip-damaged",
            run_folder(path).display()
        ),
        ArchiveError::Foreign(_) => "choose another --out: a new directory".into(),
        ArchiveError::Format { .. } => "update Crosspoint to the version that wrote it".into(),
        ArchiveError::Busy(_) => "wait until it ends".into(),
        ArchiveError::Io { source, .. } => after(source),
        ArchiveError::TooLarge(_) => {
            "split the study, or lengthen `interval`: count its trials: crosspoint plan STUDY"
                .into()
        }
        _ => {
            "give the folder that crosspoint run printed, as runs/quickstart-20260101-120000".into()
        }
    }
}

/// Help for errors of the system.
fn after(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "check the path; for a stack's directory: --set stack.NAME.directory=/path".into()
        }
        io::ErrorKind::PermissionDenied => "use a directory that you can write to, or sudo".into(),
        io::ErrorKind::StorageFull => "free space, or use another disk".into(),
        _ => "crosspoint doctor".into(),
    }
}

/// The run folder that a file inside it belongs to.
fn run_folder(file: &std::path::Path) -> PathBuf {
    let in_run = file.ancestors().skip(1).find(|dir| dir.join("run.json").exists());
    in_run.unwrap_or(file).to_owned()
}
