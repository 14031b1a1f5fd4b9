//! Arguments of `advise` and `check`. A stable interface.

use std::path::PathBuf;

use crate::progress::ProgressKind;

#[derive(Debug, Clone, clap::Args)]
pub struct AdviseArguments {
    /// Database engine; without it, asks for what is not given
    #[arg(value_name = "ENGINE")]
    pub engine: Option<String>,
    /// Size of the data [default: 100GB]
    #[arg(long, value_name = "SIZE")]
    pub data: Option<units::Bytes>,
    /// Memory of the database server [default: 16GB]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<units::Bytes>,
    /// Share of reads; selects the workload [default: 50%; PostgreSQL: pgbench's TPC-B-like script]
    #[arg(long, value_name = "SHARE", conflicts_with = "workload")]
    pub reads: Option<units::Share>,
    /// Workload, named as in db_bench, YCSB, sysbench or pgbench
    #[arg(long, value_name = "WORD")]
    pub workload: Option<String>,
    /// Required rate: transactions (SQL) or operations per second, e.g. 200/s [default: as fast as possible]
    #[arg(long, value_name = "RATE")]
    pub rate: Option<units::Rate>,
    /// LMDB, RocksDB, SQLite: required bytes of updates per second, e.g. 50MB, without reads
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["rate", "reads", "workload"])]
    pub ingest: Option<units::Bytes>,
    /// Required p99 latency at that rate, e.g. 5ms
    #[arg(long, value_name = "TIME")]
    pub p99: Option<units::Nanos>,
    /// Connections or threads
    #[arg(
        long,
        visible_alias = "threads",
        value_name = "N",
        default_value_t = 8,
        value_parser = clap::value_parser!(u32).range(1..=256)
    )]
    pub clients: u32,
    /// CPU cores of the database server
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8,
        value_parser = clap::value_parser!(u32).range(1..=1024)
    )]
    pub cores: u32,
    /// LMDB, RocksDB, SQLite: value size
    #[arg(long, value_name = "SIZE", default_value = "1000B")]
    pub value_size: units::Bytes,
    /// Commit durability: none, os (survives a process crash) or device (survives power loss)
    #[arg(long, default_value = "device")]
    pub durability: study::Durability,
    /// Drives and volumes to consider [default: ten of the catalogue]
    #[arg(long, value_name = "MODELS", value_delimiter = ',')]
    pub on: Vec<String>,
    /// Print the study instead of running it
    #[arg(long)]
    pub print: bool,
    /// Run folder to create [default: runs/advise-TIME]
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// How to show progress
    #[arg(long, value_enum, default_value_t = ProgressKind::Auto)]
    pub progress: ProgressKind,
}

#[derive(Debug, Clone, clap::Args)]
pub struct CheckArguments {
    /// Directory on the storage
    #[arg(default_value = ".")]
    pub directory: PathBuf,
    /// Size of the temporary file
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub size: units::Bytes,
    /// Run folder to create [default: runs/check-TIME]
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// How to show progress
    #[arg(long, value_enum, default_value_t = ProgressKind::Auto)]
    pub progress: ProgressKind,
    /// Print a JSON document
    #[arg(long)]
    pub json: bool,
}
