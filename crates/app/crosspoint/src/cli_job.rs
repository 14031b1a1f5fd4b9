//! Arguments of ad-hoc jobs: `run block --rw randread ...`. A stable interface; names are those of fio,
//! db_bench and sysbench where these have one.

/// Options of a job without a study.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Ad-hoc job: run ENGINE TARGET")]
pub struct JobArguments {
    /// Block: I/O pattern: read, write, rw, randread, randwrite or randrw [default: randread]
    #[arg(long, value_name = "WORD")]
    pub rw: Option<String>,
    /// Block: block size, e.g. 16k or 16KiB [default: 4k]
    #[arg(long, value_name = "SIZE")]
    pub bs: Option<String>,
    /// Block: queue depth per thread, or a list: 1,4,16 [default: 1]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub iodepth: Vec<u32>,
    /// Block: percentage of reads in rw and randrw [default: 50]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub rwmixread: Option<u32>,
    /// Block: fdatasync after every N writes
    #[arg(long, value_name = "N")]
    pub fdatasync: Option<u32>,
    /// Block: size of the test file or of the modelled drive [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<String>,
    /// All engines: number of client threads, or a list: 1,2,4; MariaDB, PostgreSQL: of connections
    /// [default: 1; these: 8]
    #[arg(long, visible_aliases = ["threads", "numjobs"], value_name = "N", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<u32>,
    /// Databases: workload, named as in db_bench, YCSB, sysbench or pgbench [default: overwrite; MariaDB,
    /// PostgreSQL: read_write]
    #[arg(long, value_name = "WORD")]
    pub workload: Option<String>,
    /// Databases: number of records; MariaDB, PostgreSQL: rows per table; of pgbench: accounts, 100000 for
    /// each unit of its scale [default: 100000; sysbench: 25000]
    #[arg(long, visible_alias = "rows", value_name = "N")]
    pub records: Option<u64>,
    /// LMDB, RocksDB, SQLite: value size [default: 400B]
    #[arg(long, value_name = "SIZE")]
    pub value_size: Option<String>,
    /// MariaDB, PostgreSQL: number of sysbench's tables [default: 4]
    #[arg(long, value_name = "N")]
    pub tables: Option<u32>,
    /// MariaDB, PostgreSQL: buffer pool (shared_buffers), a size or a percentage of the tables' size
    /// [default: 128MiB]
    #[arg(long, value_name = "SIZE|PERCENT")]
    pub buffer_pool: Option<String>,
    /// Databases: memory limit, including page cache; a size or, for LMDB, RocksDB and SQLite, a percentage
    /// of the data; requires root [default: unlimited]
    #[arg(long, value_name = "SIZE|PERCENT")]
    pub memory: Option<String>,
    /// Databases: commit durability: none, os (survives a process crash) or device (survives power loss)
    /// [default: os; MariaDB, PostgreSQL: device]
    #[arg(long, value_name = "WORD")]
    pub durability: Option<String>,
    /// Open loop: offered load with Poisson arrivals, e.g. 5k/s [default: closed loop]
    #[arg(long, value_name = "RATE")]
    pub rate: Option<String>,
    /// Measurement time, excluding warm-up [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub runtime: Option<String>,
    /// Databases: engine option; see `[experiment.job.options]` in docs/STUDY.md
    #[arg(long = "option", value_name = "NAME=VALUE")]
    #[serde(rename = "option", skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Print the study instead of running it; works for built-in studies too
    #[arg(long, conflicts_with = "resume")]
    pub print: bool,
}

impl JobArguments {
    /// Whether any argument besides `--print` was given.
    pub fn any(&self) -> bool {
        *self != Self { print: self.print, ..Self::default() }
    }
}
