//! The command line.
//!
//! Invariant: verbs and flags are a stable interface.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

pub use crate::cli_advise::{AdviseArguments, CheckArguments};
pub use crate::cli_capture::{CaptureAction, CaptureArguments};
pub use crate::cli_device::{DeviceAction, FitArguments};
pub use crate::cli_drives::{
    AUTO, AttachArguments, CutFileSystem, ExecArguments, PowerCutsArguments,
};
pub use crate::cli_job::JobArguments;
pub use crate::cli_run::RunArguments;
use crate::exit;
pub use crate::progress::ProgressKind;

/// The engines of ad-hoc jobs, and examples.
fn run_help() -> String {
    let engines: Vec<String> = engines::commands()
        .map(|one| {
            format!(
                "  {:<10} {}",
                one.command,
                one.needs.map_or_else(String::new, |needs| format!("needs {needs}"))
            )
        })
        .map(|line| line.trim_end().to_owned())
        .collect();
    format!(
        "Engines for ad-hoc jobs:\n{}\n\nExamples:\n  \
         crosspoint run quickstart --set stack.this-disk.directory=/mnt/nvme\n  \
         crosspoint run block --rw randread --bs 16k --iodepth 4 /mnt/nvme\n  \
         crosspoint run rocksdb --workload overwrite --records 1000000 /mnt/nvme",
        engines.join("\n")
    )
}

/// Benchmark block devices and databases on real storage and on models of drives you do not have
#[derive(Debug, Parser)]
#[command(name = "crosspoint", version, after_help = exit::LIST, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a study (a set of benchmarks) or a single job on real or modelled storage; write results and a
    /// report
    #[command(after_help = run_help())]
    Run(Box<RunArguments>),
    /// Find out which drives and cloud volumes are enough for a database, by simulating it on each
    #[command(
        after_help = "Examples: crosspoint advise postgres --data 500GB --rate 200/s --p99 5ms\n          \
            crosspoint advise mariadb --reads 80% --on gp3,gp3+iops=6000+throughput=250MiB\n          \
            crosspoint advise rocksdb --ingest 50MB\n\n\
            Nothing is written to a drive: databases run in virtual time.\n\
            Exit code 8: no candidate is enough; 10: none is surely enough."
    )]
    Advise(Box<AdviseArguments>),
    /// Check whether the storage of a directory is fit for a database (2 min): flushes, write cache,
    /// throttling, latency under load
    #[command(after_help = "Example: crosspoint check /mnt/nvme\n\n\
            Writes a temporary file, no existing data. Exit code 8: a check failed.")]
    Check(CheckArguments),
    /// Watch a run in progress: rate, latencies, disks, time left; quitting does not stop the run
    #[command(
        after_help = "Examples: crosspoint watch runs/quickstart-20260101-120000\n          \
            crosspoint run quickstart --detach\n\n\
            Press q to quit. Without a terminal, prints one line per second."
    )]
    Watch {
        /// Run folder [default: the run in progress in ./runs, if there is exactly one]
        run: Option<PathBuf>,
    },
    /// Serve all runs to a browser on this host: reports, trends and runs in progress
    #[command(after_help = "Example: crosspoint serve runs\n\n\
            Listens on 127.0.0.1 only; every request needs the printed access token.")]
    Serve {
        /// Directory that contains the run folders
        #[arg(default_value = "runs")]
        folder: PathBuf,
        /// Port; 0 picks a free port
        #[arg(long, default_value_t = 0)]
        port: u16,
    },
    /// List the built-in studies: question, run time and requirements
    #[command(after_help = "Example: crosspoint studies")]
    Studies {
        /// Print a JSON document
        #[arg(long)]
        json: bool,
    },
    /// Show what a study would do: trials, time, bytes written, what is skipped and why
    #[command(after_help = "Example: crosspoint plan quickstart")]
    Plan {
        /// Study file, or the name of a built-in study
        study: String,
        /// Change a value of the study: key=value, e.g. stack.this-disk.size=2GiB
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Print a JSON document
        #[arg(long)]
        json: bool,
    },
    /// Merge runs of parts of one study (`run --only`), also of several machines, to one run
    #[command(after_help = "Example: crosspoint merge runs/whole part-1 part-2")]
    Merge {
        /// Run folder to create
        out: PathBuf,
        /// Run folders
        #[arg(required = true)]
        parts: Vec<PathBuf>,
    },
    /// Write a self-contained HTML report of one or more runs, or the tables or objectives of one for CI
    #[command(
        after_help = "Examples: crosspoint report runs/quickstart-20260101-120000 -o report.html\n          \
            crosspoint report runs/quickstart-20260101-120000 --format junit -o objectives.xml"
    )]
    Report {
        /// Run folders; the first one supplies the headline
        #[arg(required = true)]
        runs: Vec<PathBuf>,
        /// Output format; markdown and junit take one run
        #[arg(long, value_enum, default_value = "html")]
        format: ReportFormat,
        /// File to write; - for stdout [default: report.html; markdown, junit: stdout]
        #[arg(short, long)]
        output: Option<PathBuf>,
        /// Overwrite an existing output file even if it was edited, or was not written by Crosspoint
        #[arg(long)]
        force: bool,
        /// Skip damaged and missing trials, and list them [default: fail with exit code 7]
        #[arg(long)]
        skip_damaged: bool,
    },
    /// Print or export every metric of one or more runs
    #[command(
        after_help = "Examples: crosspoint figures runs/quickstart-20260101-120000 --format csv\n          \
            crosspoint figures runs/quickstart-20260101-120000 --of series --format parquet -o series.parquet"
    )]
    Figures {
        /// Run folders
        #[arg(required = true)]
        runs: Vec<PathBuf>,
        /// Table to export
        #[arg(long, value_enum, default_value_t = Rows::Figures)]
        of: Rows,
        /// Output format [default: table; csv for series and histograms]
        #[arg(long, value_enum)]
        format: Option<Format>,
        /// File to write instead of stdout
        #[arg(short, long)]
        output: Option<PathBuf>,
        /// Overwrite an existing output file even if it was edited, or was not written by Crosspoint
        #[arg(long)]
        force: bool,
        /// Print the JSON document; the same as --format json
        #[arg(long, conflicts_with = "format")]
        json: bool,
        /// Skip damaged and missing trials, and list them [default: fail with exit code 7]
        #[arg(long)]
        skip_damaged: bool,
    },
    /// Compare two stacks of one run, or two runs: differences, confidence intervals and verdicts
    #[command(
        after_help = "Examples: crosspoint compare runs/quickstart-20260101-120000 --stacks \
            this-disk,aws-gp3\n          crosspoint compare runs/before runs/after --margin 3%\n\n\
            A verdict requires at least three repetitions; five are better (run --repeat 5). Exit code 9: \
            the candidate is worse on at least one metric; 10: a metric is inconclusive, or the runs are \
            not comparable (different workload, host or storage; see --allow-mismatch)."
    )]
    Compare(CompareArguments),
    /// Pack a run, its report, its metrics and the related published results into one archive, or verify
    /// such an archive
    #[command(
        after_help = "Examples: crosspoint bundle runs/quickstart-20260101-120000\n          \
            crosspoint bundle --check quickstart-20260101-120000.tar.gz\n\n\
            --check verifies every checksum, regenerates the report and metrics, and compares them with the \
            archived copies. Exit code 7: a checksum, the report or a metric does not match."
    )]
    Bundle {
        /// Run folder, or with --check a bundle
        run: PathBuf,
        /// File to write [default: NAME.tar.gz in the current directory]
        #[arg(short, long, conflicts_with = "check")]
        output: Option<PathBuf>,
        /// Verify a bundle instead of creating one
        #[arg(long)]
        check: bool,
        /// Overwrite an existing output file even if it was edited, or was not written by Crosspoint
        #[arg(long, conflicts_with = "check")]
        force: bool,
    },
    /// Run an Aerospike ACT storage test from an ACT configuration file, with act_storage's load, log,
    /// latency table and verdict
    #[command(
        after_help = "Example: crosspoint act act_storage.conf --duration 60s --phase both\n\n\
            Warning: a test that writes destroys all data on the tested devices: those in the file, or given \
            with --device."
    )]
    Act(ActArguments),
    /// Convert fio job files to studies, and report every unsupported option
    #[command(after_help = "Example: crosspoint import job.fio -o job.toml")]
    Import {
        /// Job files, or directories of *.fio files
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Study file to write [default: stdout]; for several job files, a directory
        #[arg(short, long)]
        output: Option<PathBuf>,
        /// Overwrite output files even if they were edited or not written by Crosspoint
        #[arg(long)]
        force: bool,
    },
    /// List, show, validate and fit device models
    Device {
        /// What to do
        #[command(subcommand)]
        action: DeviceAction,
    },
    /// Check what this machine can run, and show how to install what is missing
    #[command(after_help = "Example: crosspoint doctor /mnt/nvme")]
    Doctor {
        /// Directory that would hold the test files
        #[arg(default_value = ".")]
        directory: PathBuf,
        /// Measure run-to-run noise of block I/O and LMDB lookups (1 min); `compare` shows it next to
        /// matching metrics
        #[arg(long)]
        noise: bool,
        /// Print a JSON document
        #[arg(long)]
        json: bool,
    },
    /// Measure this host's I/O submission and wake-up costs for predictions and simulations (takes 20 s)
    #[command(after_help = "Example: crosspoint calibrate /mnt/nvme\n\n\
            Without a calibration, predictions assume a published host (2020 Xeon, Linux 5.15), and\n\
            simulations also the wake-up costs of a virtual machine.")]
    Calibrate {
        /// Directory for a 64 MiB temporary file; must be on a disk, not tmpfs
        #[arg(default_value = ".")]
        directory: PathBuf,
        /// Delete the calibration and use the reference host
        #[arg(long)]
        forget: bool,
        /// Print a JSON document
        #[arg(long)]
        json: bool,
    },
    /// Measure how far off simulations of databases are on this machine: fits a model to a disk, runs
    /// databases on both, and keeps the errors for the reports of later runs (5 min)
    #[command(after_help = "Example: crosspoint validate /mnt/nvme\n\n\
            Runs `calibrate` first if this host has no calibration. As root, memory is limited, so that\n\
            lookups read from the disk; otherwise they are left out.")]
    Validate {
        /// Directory on the disk; 4 GiB are written and removed
        #[arg(default_value = ".")]
        directory: PathBuf,
        /// How to show progress
        #[arg(long, value_enum, default_value = "auto")]
        progress: ProgressKind,
        /// Print a JSON document
        #[arg(long)]
        json: bool,
    },
    /// Expose a modelled device in real time as a file (through FUSE) or a block device, or list attached
    /// devices
    #[command(after_help = "Examples: crosspoint attach samsung-pm9a3 --size 64GiB\n          \
            sudo crosspoint attach samsung-pm9a3 --size 8GiB --block\n\n\
            With --block, run mkfs.ext4 on the printed block device, then mount it.")]
    Attach(AttachArguments),
    /// Run a command in virtual time, with its files on a modelled drive
    #[command(
        after_help = "Example: crosspoint exec --on samsung-990-pro --cores 8 -- \\\n             \
            db_bench --benchmarks=fillrandom,readrandom --db=db --use_direct_reads\n\n\
            No root required. Child processes share the virtual clock, so a script can start a server and\n\
            its clients. Keep files that the program maps with mmap on tmpfs (--directory /dev/shm/...).\n\
            Unsupported calls (posix_spawn, system, sync, timerfd_create, ...) stop the command with an\n\
            error. MariaDB needs --innodb-use-native-aio=OFF. CPU time is measured on this machine.\n\
            Exit code 6 if the command fails. Accuracy: docs/VALIDATION.md."
    )]
    Exec(ExecArguments),
    /// Record a database that is running now, and show where its time goes (requires root)
    #[command(
        subcommand_negates_reqs = true,
        args_conflicts_with_subcommands = true,
        after_help = "Examples: crosspoint capture --service mariadb --for 60s -o monday.cpcap\n          \
            crosspoint capture show monday.cpcap\n          \
            crosspoint capture predict monday.cpcap --on model:samsung-990-pro\n\n\
            Records scheduling, system calls and block I/O of the process and of its clients on this host\n\
            by the kernel's event tracing. A recording contains no data, SQL text or file names."
    )]
    Capture(CaptureArguments),
    /// Detach an attached device
    #[command(after_help = "Example: crosspoint detach --all")]
    Detach {
        /// File or block device printed by `attach`
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        disk: Option<PathBuf>,
        /// Detach all attached devices
        #[arg(long)]
        all: bool,
        /// Print a JSON document
        #[arg(long)]
        json: bool,
    },
    /// Simulate power loss under a database on a modelled drive and report lost acknowledged writes
    #[command(after_help = "Example: crosspoint power-cuts lmdb --cuts 20\n\n\
            Exit code 7: acknowledged data was lost. With --drop-flushes that is expected.")]
    PowerCuts(PowerCutsArguments),
    /// Undo the changes that killed runs left on this machine: mounts, attached devices, temporary files and
    /// server settings
    #[command(after_help = "Example: crosspoint clean")]
    Clean {
        /// Print a JSON document
        #[arg(long)]
        json: bool,
    },
    /// Host a database engine for another process of this program; JSON lines on stdin and stdout
    #[command(hide = true)]
    Engine,
    /// Measure in a simulation how long waking a thread takes; prints nanoseconds
    #[command(hide = true, name = runner::WAKING_VERB)]
    Waking {
        /// Through a socket instead of a futex
        #[arg(long)]
        socket: bool,
    },
    /// Clean up if the process at the other end of stdin is killed
    #[command(hide = true, name = crate::guard::VERB)]
    Guard,
    /// Serve a modelled drive for another process of this program; JSON lines on stdin and stdout
    #[command(hide = true, name = runner::drives::DRIVE_VERB)]
    ServeDrive,
    /// Print completions for a shell
    #[command(
        after_help = "Example: crosspoint completions bash > /etc/bash_completion.d/crosspoint"
    )]
    Completions {
        /// Shell to generate completions for
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory
    #[command(after_help = "Example: crosspoint man pages")]
    Man {
        /// Output directory; created if missing
        directory: PathBuf,
        /// Overwrite output files even if they were edited or not written by Crosspoint
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, clap::Args)]
pub struct CompareArguments {
    /// One run folder (compares its stacks) or two (baseline, then candidate)
    #[arg(required = true, num_args = 1..=2)]
    pub runs: Vec<PathBuf>,
    /// Stacks of one run: BASELINE,CANDIDATE [default: both, if there are two]
    #[arg(long, value_name = "BASELINE,CANDIDATE", value_delimiter = ',')]
    pub stacks: Vec<String>,
    /// Equivalence margin (greater than 1%): a metric is equivalent if the confidence interval of its
    /// relative difference lies within plus or minus the margin
    #[arg(long, value_name = "SHARE", default_value = "5%")]
    pub margin: units::Share,
    /// Metrics to compare: rate, latency_mean, latency_p50, latency_p99, latency_p99_9 [default: rate and
    /// latency_p99; open loop: latency_p50 and latency_p99]
    #[arg(long, value_name = "METRIC", value_delimiter = ',')]
    pub metric: Vec<String>,
    /// Compare despite these host or storage mismatches, as named in the error message
    #[arg(long, alias = "although", value_name = "WORD", value_delimiter = ',')]
    pub allow_mismatch: Vec<String>,
    /// Print a JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
pub struct ActArguments {
    /// Configuration file of act_storage, release 6.6
    pub file: PathBuf,
    /// Device to use instead of those in the file: a path, comma-separated paths, or model:NAME
    #[arg(long)]
    pub device: Option<String>,
    /// Arrival pattern of requests
    #[arg(long, value_enum, default_value_t = PhaseKind::Independent)]
    pub phase: PhaseKind,
    /// Rating: multiple of 2000 reads and 1000 writes per second per device; overrides the file's rates
    #[arg(long, value_name = "N")]
    pub rating: Option<u32>,
    /// Number of service threads with --phase act; overrides the file
    #[arg(long, value_name = "N")]
    pub service_threads: Option<u32>,
    /// Test duration (per test with --search), e.g. 60s or 24h; overrides the file
    #[arg(long, value_name = "TIME")]
    pub duration: Option<units::Nanos>,
    /// Length of the time slices that must each meet the latency limits
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub slice: units::Nanos,
    /// Precondition: write each device end to end twice, as act_prep does; never-written blocks read too fast
    #[arg(long)]
    pub prep: bool,
    /// Find the highest passing rating: double from --rating (or 1) until a test fails, then bisect
    #[arg(long)]
    pub search: bool,
    /// Idle time between the tests of a search, to let the drive recover from overload
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub rest: units::Nanos,
    /// After a search, run at the highest passing rating for this long
    #[arg(long, value_name = "TIME", requires = "search")]
    pub sustain: Option<units::Nanos>,
    /// Also write the log to this file; - for stdout
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Overwrite an existing log file
    #[arg(long)]
    pub force: bool,
    /// Directory to create for the runs [default: runs/act-TIME]
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Print a JSON document
    #[arg(long)]
    pub json: bool,
    /// Serial number of a block device that may be overwritten (all its data is lost); repeat for each
    #[arg(long, value_name = "SERIAL")]
    pub i_will_lose_data: Vec<String>,
    /// How to show progress
    #[arg(long, value_enum, default_value_t = ProgressKind::Auto)]
    pub progress: ProgressKind,
}

/// Arrival pattern of an ACT test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PhaseKind {
    /// Independent random arrivals per thread
    Independent,
    /// All threads in phase, as in Aerospike's ACT
    Act,
    /// One test of each
    Both,
}

/// Form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// A self-contained page
    Html,
    /// The answer and its tables, for a pull request
    Markdown,
    /// Objectives as test cases (JUnit XML)
    Junit,
}

/// Data to export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Rows {
    /// One row per metric
    Figures,
    /// One row per interval and kind of operation: rate and latencies over time
    Series,
    /// One row per bucket of each trial's latency histograms
    Histograms,
}

/// Form of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns
    Table,
    /// Comma-separated values
    Csv,
    /// JSON with a versioned schema
    Json,
    /// A Parquet file
    Parquet,
}
