//! The command line.
//!
//! Invariant: verbs and flags are a stable interface. What it is not: what they do.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::exit;

/// What would my database do on that storage?
#[derive(Debug, Parser)]
#[command(name = "crosspoint", version, after_help = exit::LIST, max_term_width = 100)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a study: measure real stacks, predict on device models, write a run folder and its report
    #[command(
        after_help = "Example: crosspoint run quickstart --set stack.this-disk.directory=/mnt/nvme"
    )]
    Run(RunArguments),
    /// Show what a study would do: trials, time, bytes written, what is skipped and why
    #[command(after_help = "Example: crosspoint plan quickstart")]
    Plan {
        /// Study file, or the name of a built-in study
        study: String,
        /// Change a value of the study: key=value, as in stack.this-disk.size=2GiB
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Print a JSON document
        #[arg(long)]
        json: bool,
    },
    /// Make one self-contained HTML file of one or more runs
    #[command(
        after_help = "Example: crosspoint report runs/quickstart-20260101-120000 -o report.html"
    )]
    Report {
        /// Run folders; the first answers the question
        #[arg(required = true)]
        runs: Vec<PathBuf>,
        /// File to write
        #[arg(short, long, default_value = "report.html")]
        output: PathBuf,
    },
    /// Print every figure of one or more runs
    #[command(
        after_help = "Example: crosspoint figures runs/quickstart-20260101-120000 --format csv"
    )]
    Figures {
        /// Run folders
        #[arg(required = true)]
        runs: Vec<PathBuf>,
        /// Form of the output
        #[arg(long, value_enum, default_value_t = Format::Table)]
        format: Format,
        /// Print the JSON document; the same as --format json
        #[arg(long, conflicts_with = "format")]
        json: bool,
    },
    /// Check what this machine can run, and say what installs the rest
    Doctor {
        /// Directory that would hold the test files
        #[arg(default_value = ".")]
        directory: PathBuf,
        /// Print a JSON document
        #[arg(long)]
        json: bool,
    },
    /// Undo whatever a killed run left on this machine
    Clean {
        /// Print a JSON document
        #[arg(long)]
        json: bool,
    },
    /// Print completions for a shell
    #[command(
        after_help = "Example: crosspoint completions bash > /etc/bash_completion.d/crosspoint"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory
    Man {
        /// Directory, made if need be
        directory: PathBuf,
    },
}

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub struct RunArguments {
    /// Study file, or the name of a built-in study
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    pub study: Option<String>,
    /// Change a value of the study: key=value, as in stack.this-disk.size=2GiB
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "resume")]
    pub set: Vec<String>,
    /// Run folder to make [default: runs/STUDY-TIME]
    #[arg(long, conflicts_with = "resume")]
    pub out: Option<PathBuf>,
    /// Repetitions of every point, instead of what the study says
    #[arg(long, value_name = "N", conflicts_with = "resume")]
    pub repeat: Option<u32>,
    /// Go on with a run that was interrupted or killed: only unfinished trials run
    #[arg(long, value_name = "RUN")]
    pub resume: Option<PathBuf>,
    /// Confirm that everything on the block device with this serial number may be overwritten; once a
    /// device
    #[arg(long, value_name = "SERIAL")]
    pub i_will_lose_data: Vec<String>,
    /// How to show progress
    #[arg(long, value_enum, default_value_t = ProgressKind::Auto)]
    pub progress: ProgressKind,
}

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProgressKind {
    /// A bar on a terminal, lines otherwise
    Auto,
    /// A bar
    Bar,
    /// A line for each interval, at most one a second
    Plain,
    /// Nothing
    None,
}

/// Form of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns
    Table,
    /// Comma-separated values
    Csv,
    /// The versioned JSON document
    Json,
}
