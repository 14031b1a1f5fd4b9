//! Options of `crosspoint run`.
//!
//! Invariant: verbs and flags are a stable interface.

use std::path::PathBuf;

use clap::ValueEnum;

pub use crate::cli_job::JobArguments;
use crate::progress::ProgressKind;

#[derive(Debug, clap::Args)]
pub struct RunArguments {
    /// Study file, built-in study, or engine name (for an ad-hoc job)
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    pub study: Option<String>,
    /// Target of an ad-hoc job: directory, block device or model:NAME [default: .]
    #[arg(conflicts_with = "resume")]
    pub target: Option<String>,
    /// Several targets of an ad-hoc job: drives of `device list`, directories, or this-disk, e.g.
    /// gp3,990-pro,this-disk
    #[arg(long, value_name = "TARGETS", value_delimiter = ',', conflicts_with_all = ["resume", "target"])]
    pub on: Vec<String>,
    /// Change a value of the study: key=value, e.g. stack.this-disk.size=2GiB
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "resume")]
    pub set: Vec<String>,
    /// Run folder to create [default: runs/STUDY-TIME]
    #[arg(long, conflicts_with = "resume")]
    pub out: Option<PathBuf>,
    /// Number of times to run each test; overrides the study's `repeat`
    #[arg(long, value_name = "N", conflicts_with = "resume")]
    pub repeat: Option<u32>,
    /// Run only these trials, by their numbers in `crosspoint plan`: 3,5; `crosspoint merge` joins such runs
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', conflicts_with = "resume")]
    pub only: Option<Vec<u32>>,
    /// Run simulations and predictions by this many processes at once; measured trials run alone, first
    #[arg(long, value_name = "N", conflicts_with_all = ["resume", "only", "detach"])]
    pub workers: Option<std::num::NonZeroU8>,
    /// Run the parts of the study on a Dask cluster with this scheduler, such as tcp://host:8786 (needs the
    /// Python package `crosspoint` there and here)
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["resume", "only", "detach", "workers"])]
    pub dask: Option<String>,
    /// Run a share of the clients of SQL jobs in another process: `local`, or a program with arguments that
    /// starts the same build elsewhere and gets the server's password: 'ssh -o BatchMode=yes client2
    /// crosspoint'; repeat for each. Nothing is kept of an interrupted trial
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["workers", "dask"])]
    pub load_generator: Vec<runner::LoadGenerator>,
    /// Resume an interrupted or killed run: only unfinished trials run
    #[arg(long, value_name = "RUN", conflicts_with = "JobArguments")]
    pub resume: Option<PathBuf>,
    /// With --resume: also rerun these trials
    #[arg(long, value_enum, requires = "resume")]
    pub again: Option<Again>,
    /// Serial number of a block device that may be overwritten (all its data is lost); repeat for each
    #[arg(long, value_name = "SERIAL")]
    pub i_will_lose_data: Vec<String>,
    /// Start the run in the background and show its live view; q closes the view, `crosspoint watch` reopens
    /// it
    #[arg(long)]
    pub detach: bool,
    /// How to show progress
    #[arg(long, value_enum, default_value_t = ProgressKind::Auto)]
    pub progress: ProgressKind,
    /// Options of an ad-hoc job
    #[command(flatten)]
    pub job: JobArguments,
}

/// Trials that a resumed run repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Again {
    /// Failed trials
    Failed,
}
