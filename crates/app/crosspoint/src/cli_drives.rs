//! Arguments of `attach` and `power-cuts`. A stable interface.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use study::Descriptor;

#[derive(Debug, Clone, clap::Args)]
pub struct ExecArguments {
    /// Device model: a name from `device list`, or a profile file
    #[arg(long, value_name = "MODEL")]
    pub on: String,
    /// Number of simulated CPU cores
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cores: u32,
    /// Memory shared by the command and the simulated page cache [default: unlimited]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<units::Bytes>,
    /// Directory on the modelled drive; other files take no device time
    #[arg(long, default_value = ".")]
    pub directory: PathBuf,
    /// File system on the modelled drive
    #[arg(long, value_enum, default_value = "ext4")]
    pub file_system: SimulatedFileSystem,
    /// State of a modelled drive: steady, fresh (never written) or filled (written once, in order)
    #[arg(long, default_value = "steady")]
    pub condition: study::Condition,
    /// Random seed of the device model
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}

/// File systems whose commits are modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SimulatedFileSystem {
    /// ext4 with its journal
    Ext4,
    /// ext4 without a journal
    Ext4NoJournal,
    /// No file system: a bare block device
    Raw,
}

#[derive(Debug, Clone, clap::Args)]
pub struct AttachArguments {
    /// Device model: a name from `device list`, or a profile file [default: list attached drives]
    pub model: Option<String>,
    /// Size of the disk, up to the model's capacity
    #[arg(long, default_value = "4GiB")]
    pub size: units::Bytes,
    /// Directory in which the attached disk appears
    #[arg(long, default_value = ".")]
    pub at: PathBuf,
    /// Backing file for the data [default: in memory, lost on detach]
    #[arg(long)]
    pub store: Option<PathBuf>,
    /// Fault plan, a TOML file (docs/FAULTS.md): errors, stalls, dropped flushes, power cuts
    #[arg(long, value_name = "FILE")]
    pub faults: Option<PathBuf>,
    /// Start in preload mode (no modelled latency, no faults); SIGUSR2 toggles the mode
    #[arg(long)]
    pub staged: bool,
    /// Also create a block device; requires root
    #[arg(long)]
    pub block: bool,
    /// Run the device N times slower
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub scale: u32,
    /// State of a modelled drive: steady, fresh (never written) or filled (written once, in order)
    #[arg(long, default_value = "steady")]
    pub condition: study::Condition,
    /// Busy-poll for waits shorter than this [default: measured sleep overshoot, at most 120 us]
    #[arg(long)]
    pub spin: Option<units::Nanos>,
    /// Transport: rings (FUSE over io_uring, Linux 6.14 or later), classic (FUSE over read/write) or auto
    /// (the first that works)
    #[arg(long, default_value = AUTO, value_parser = transport_words())]
    pub transport: String,
    /// The run that owns the drive
    #[arg(long, hide = true)]
    pub owner: Option<u32>,
    /// Stay in the foreground, until Ctrl-C
    #[arg(long)]
    pub foreground: bool,
    /// Print a JSON document
    #[arg(long)]
    pub json: bool,
}

/// Accepts the command of an engine that supports power cuts.
fn cut_engine() -> impl TypedValueParser<Value = &'static Descriptor> {
    let with = || engines::descriptors().filter(|one| one.power_cuts.is_some());
    let values = with().map(|one| PossibleValue::new(one.command));
    PossibleValuesParser::new(values).map(move |name| {
        with().find(|one| one.command == name).expect("invariant: clap accepted one of them")
    })
}

/// A file system with journal recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum CutFileSystem {
    /// ext4
    Ext4,
    /// XFS
    Xfs,
}

#[derive(Debug, Clone, clap::Args)]
pub struct PowerCutsArguments {
    /// Database engine
    #[arg(value_parser = cut_engine())]
    pub engine: &'static Descriptor,
    /// Number of power cuts
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub cuts: u32,
    /// Random seed for choosing the cut points
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Acknowledge but drop this percentage of flushes, so that data loss is expected; 100% without a value
    #[arg(
        long,
        alias = "lying-flush",
        value_name = "SHARE",
        default_value = "0%",
        default_missing_value = "100%",
        num_args = 0..=1
    )]
    pub drop_flushes: units::Share,
    /// Commit durability: with none (no flush) or os (a late one), data loss is expected
    #[arg(long, default_value = "device")]
    pub durability: study::Durability,
    /// Cut power at a random point in the first N writes
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub writes: u64,
    /// Model of the drive: a name from `crosspoint device list`, or a profile file
    #[arg(long, default_value = "intel-s3520")]
    pub model: String,
    /// Use a real file system on a drive that is attached to the kernel instead of a simulated one: needs
    /// root; also for MariaDB
    #[arg(long)]
    pub attach: bool,
    /// Size of the attached drive
    #[arg(long, default_value = "320MiB", requires = "attach")]
    pub size: units::Bytes,
    /// File system to create on the attached drive
    #[arg(long, value_enum, default_value_t = CutFileSystem::Ext4, requires = "attach")]
    pub file_system: CutFileSystem,
    /// Working directory for the attached drive and the database
    #[arg(long, default_value = ".", requires = "attach")]
    pub at: PathBuf,
    /// For each cut that lost data, save what the cut left in this directory: a directory seed-S-cut-N, or
    /// the image of an attached drive (.img), whose lost blocks --json lists
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,
    /// Print a JSON document
    #[arg(long)]
    pub json: bool,
}

/// Selects the first transport that works.
pub const AUTO: &str = "auto";

/// A parser that accepts `auto` or the name of a transport.
fn transport_words() -> PossibleValuesParser {
    PossibleValuesParser::new(std::iter::once(AUTO).chain(attach::transports()))
}
