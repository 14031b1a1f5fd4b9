//! Arguments of a job in one line: `run block --rw randread ...`.
//!
//! Invariant: as in `cli`, a stable interface; names are those of fio, db_bench and sysbench where they have
//! one. What it is not: what they do.

/// Options of a job without a study.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "A job in one line: run block|lmdb|rocksdb|sqlite|mariadb TARGET")]
pub struct JobArguments {
    /// Of block: read, write, rw, randread, randwrite, randrw [default: randread]
    #[arg(long, value_name = "WORD")]
    pub rw: Option<String>,
    /// Of block: bytes of an operation, 16k as fio has it or 16KiB [default: 4k]
    #[arg(long, value_name = "SIZE")]
    pub bs: Option<String>,
    /// Of block: operations in flight, a thread [default: 1]
    #[arg(long, value_name = "N")]
    pub iodepth: Option<u32>,
    /// Of block: percent of reads of rw and randrw [default: 50]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub rwmixread: Option<u32>,
    /// Of block: fdatasync after so many writes
    #[arg(long, value_name = "N")]
    pub fdatasync: Option<u32>,
    /// Of block: bytes that are addressed of a file or model [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<String>,
    /// Threads; of databases clients or connections [default: 1, of mariadb 8]
    #[arg(long, visible_alias = "numjobs", value_name = "N")]
    pub threads: Option<u32>,
    /// Of databases: db_bench's, YCSB's or sysbench's workload [default: overwrite, of mariadb read_write]
    #[arg(long, value_name = "WORD")]
    pub workload: Option<String>,
    /// Of embedded databases: records [default: 100000]
    #[arg(long, value_name = "N")]
    pub records: Option<u64>,
    /// Of embedded databases: bytes of a value [default: 400B]
    #[arg(long, value_name = "SIZE")]
    pub value_size: Option<String>,
    /// Of mariadb: rows a table [default: 25000]
    #[arg(long, value_name = "N")]
    pub rows: Option<u64>,
    /// Of mariadb: tables [default: 4]
    #[arg(long, value_name = "N")]
    pub tables: Option<u32>,
    /// Of mariadb: InnoDB's buffer pool, a size or a share of the tables' pages [default: 128MiB]
    #[arg(long, value_name = "SIZE|PERCENT")]
    pub buffer_pool: Option<String>,
    /// Of databases: memory of the process, page cache included, a size, of embedded ones also a share of the
    /// records (20%); root [default: unlimited]
    #[arg(long, value_name = "SIZE|PERCENT")]
    pub memory: Option<String>,
    /// Of databases: none, os or device: what a commit survives [default: os, of mariadb device]
    #[arg(long, value_name = "WORD")]
    pub durability: Option<String>,
    /// Operations a second by a schedule of random (Poisson) arrivals, whatever completes: 5k/s [default: as
    /// fast as it can]
    #[arg(long, value_name = "RATE")]
    pub rate: Option<String>,
    /// Time that is measured [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub runtime: Option<String>,
    /// Print the study that this is, a shipped one too, and do not run it
    #[arg(long, conflicts_with = "resume")]
    pub print: bool,
}

impl JobArguments {
    /// Whether any was given.
    pub const fn any(&self) -> bool {
        self.rw.is_some()
            || self.bs.is_some()
            || self.iodepth.is_some()
            || self.rwmixread.is_some()
            || self.fdatasync.is_some()
            || self.size.is_some()
            || self.threads.is_some()
            || self.workload.is_some()
            || self.records.is_some()
            || self.value_size.is_some()
            || self.rows.is_some()
            || self.tables.is_some()
            || self.buffer_pool.is_some()
            || self.memory.is_some()
            || self.durability.is_some()
            || self.rate.is_some()
            || self.runtime.is_some()
    }
}
