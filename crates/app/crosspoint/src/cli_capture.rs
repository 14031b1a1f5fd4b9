//! Arguments of `capture`. A stable interface.

use std::path::PathBuf;

#[derive(Debug, Clone, clap::Args)]
pub struct CaptureArguments {
    /// What to do with a recording
    #[command(subcommand)]
    pub action: Option<CaptureAction>,
    /// Process to record; repeat for several
    #[arg(long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// Record the processes of this systemd unit, or with this name
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// Record the processes that have files open on this block device or its partitions
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<PathBuf>,
    /// Length of the recording
    #[arg(long = "for", value_name = "TIME", default_value = "60s")]
    pub time: units::Nanos,
    /// Refuse to record if that lowers the rate of context switches by more than this share
    #[arg(long, value_name = "SHARE", default_value = "20%")]
    pub max_overhead: units::Share,
    /// End early when the uncompressed recording has this size
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    pub max_size: units::Bytes,
    /// File to write [default: capture-TIME.cpcap]
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// Overwrite an existing output file even if it was edited, or was not written by Crosspoint
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum CaptureAction {
    /// Show where the time went, what threads waited for, and what the drives did
    Show {
        /// Recording
        recording: PathBuf,
        /// Print a JSON document
        #[arg(long)]
        json: bool,
    },
    /// Make a study of the recorded block I/O: sizes, share of reads, flushes and queue depth of each drive
    Study {
        /// Recording
        recording: PathBuf,
        /// Stack to add: a device model, model:NAME; repeat for several
        #[arg(long, value_name = "MODEL")]
        on: Vec<String>,
        /// Study file to write [default: stdout]
        #[arg(short, long)]
        output: Option<PathBuf>,
        /// Overwrite an existing output file even if it was edited, or was not written by Crosspoint
        #[arg(long)]
        force: bool,
    },
    /// Predict the rate of the recorded database on other drives, by replaying the recording on their models
    Predict {
        /// Recording
        recording: PathBuf,
        /// Device model: a name from `device list`, or a profile file; repeat for several
        #[arg(long, value_name = "MODEL", required = true)]
        on: Vec<String>,
        /// CPU cores [default: as recorded]
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
        cores: Option<u32>,
        /// State of a modelled drive: steady, fresh (never written) or filled (written once, in order)
        #[arg(long, default_value = "steady")]
        condition: study::Condition,
        /// Seed of the device model
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Print a JSON document
        #[arg(long)]
        json: bool,
    },
}
