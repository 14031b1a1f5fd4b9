//! Arguments of `device`.

use std::path::PathBuf;

use clap::Subcommand;

use crate::progress::ProgressKind;

/// What to do with device models.
#[derive(Debug, Subcommand)]
pub enum DeviceAction {
    /// List the built-in device models
    #[command(after_help = "Example: crosspoint device list")]
    List {
        /// Print a JSON document
        #[arg(long)]
        json: bool,
    },
    /// Show a device model: its parts (drive, cache, RAID, fabric) and every constant with its source
    #[command(after_help = "Example: crosspoint device show raid5-3x-s3520")]
    Show {
        /// Name of a built-in profile, or a profile file
        name: String,
        /// Print the profile as TOML, as a template for your own
        #[arg(long)]
        toml: bool,
    },
    /// Simulate published benchmarks on device models, and show the models' errors
    #[command(after_help = "Example: crosspoint device check intel-p4800x")]
    Check {
        /// Names of built-in profiles, or profile files
        #[arg(required_unless_present = "all")]
        names: Vec<String>,
        /// Check every built-in profile
        #[arg(long, conflicts_with = "names")]
        all: bool,
        /// Print a JSON document
        #[arg(long)]
        json: bool,
    },
    /// Measure a device (up to 10 min), fit a profile, and validate it on held-out jobs
    #[command(after_help = "Example: crosspoint device fit /var/tmp --name my-disk\n\n\
                            Then, in a study: device = \"model:my-disk.toml\"")]
    Fit(FitArguments),
}

#[derive(Debug, clap::Args)]
pub struct FitArguments {
    /// Directory on the device, for a temporary file; block device, read-only without --i-will-lose-data; or
    /// model:NAME, to test the fit on a known model
    #[arg(required_unless_present = "from", conflicts_with = "from")]
    pub target: Option<PathBuf>,
    /// Fit to an earlier run of the device-fit study instead of measuring
    #[arg(long, value_name = "RUN")]
    pub from: Option<PathBuf>,
    /// Name of the profile
    #[arg(long, default_value = "fitted")]
    pub name: String,
    /// Size of the tested address range [default: 2GiB]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<units::Bytes>,
    /// Run folder [default: runs/device-fit-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Profile file to write [default: NAME.toml]; a plot of the fit is written next to it
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite output files even if they were edited or not written by Crosspoint
    #[arg(long)]
    pub force: bool,
    /// Serial number of a block device that may be overwritten; all its data is lost
    #[arg(long, value_name = "SERIAL")]
    pub i_will_lose_data: Vec<String>,
    /// How to show progress
    #[arg(long, value_enum, default_value = "auto")]
    pub progress: ProgressKind,
    /// Print a JSON document
    #[arg(long)]
    pub json: bool,
}
