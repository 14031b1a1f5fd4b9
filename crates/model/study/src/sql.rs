//! SQL experiments: servers, what sysbench's OLTP does to them, and how they are set up.
//!
//! Invariants: every job holds all that its trial needs; passwords are not in a study, since a study is
//! kept with its run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos, Rate};

use crate::many::each;
use crate::parameters::Parameters;
use crate::words::words;
use crate::{Durability, EngineName, Many, Memory, SqlKeys};

/// sysbench's OLTP transactions on a SQL database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SqlMatrix {
    /// The databases.
    #[serde(default = "default_engine")]
    pub engine: Many<EngineName>,
    /// Program of the private server, a path; `auto`: the `mariadbd` or `mysqld` of this machine.
    #[serde(default = "default_auto")]
    pub server: String,
    /// Where the private server listens: `auto`, a socket inside its own directory; or `127.0.0.1:PORT`
    /// (1024 or above), which puts TCP into what is measured. Nobody else has its password.
    #[serde(default = "default_auto")]
    pub listen: String,
    /// A server that runs already, instead of a private one: `mysql://USER@HOST:PORT/DATABASE` or
    /// `mysql://USER@/path/of/socket:DATABASE`; the password from the environment variable
    /// CROSSPOINT_SQL_PASSWORD. The connection is not encrypted. The database must be empty (it is then
    /// marked as ours, and its tables stay for the next run), or carry our mark for the same tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dsn: Option<String>,
    /// Name of the dsn's database, if the tables sbtest1, sbtest2, ... that are in it may be lost. Without it
    /// only an empty database is used, or one that carries this program's mark for the same tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_overwrite: Option<String>,
    /// What a transaction does.
    #[serde(default = "default_workload")]
    pub workload: Many<SqlWorkload>,
    /// Whose scripts: sysbench `0.5` (one table a transaction, text) or `1.0` (a table for each kind of
    /// statement, prepared).
    #[serde(default)]
    pub dialect: SqlDialect,
    /// Statements are prepared on the server; `false`: sent as text each time, as 0.5 always does.
    #[serde(default = "default_true")]
    pub prepared: bool,
    /// Tables, 1 to 1000.
    #[serde(default = "default_tables")]
    pub tables: u32,
    /// Rows a table, 1 to 2 billion; about 240 bytes each with their index.
    pub rows: u64,
    /// Rows of a range, 1 to a million.
    #[serde(default = "default_range_size")]
    pub range_size: u32,
    /// How rows are drawn, by sysbench's arithmetic; the column `k` is drawn likewise.
    #[serde(default)]
    pub keys: SqlKeys,
    /// Connections, 1 to 1024.
    #[serde(default = "default_threads")]
    pub threads: Many<u32>,
    /// Transactions a second that are due, Poisson, all connections together; the next one goes to whichever
    /// connection is free. Without it, unthrottled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Many<Rate>>,
    /// Transactions of all connections together after which the trial ends, if `measure` does not end it
    /// before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactions: Option<u64>,
    /// The stacks of the experiment run at the same time, each with a server of its own, until each has done
    /// its `transactions`.
    #[serde(default)]
    pub race: bool,
    /// What a committed transaction survives: `innodb_flush_log_at_trx_commit` 0, 2 or 1.
    #[serde(default = "default_durability")]
    pub durability: Many<Durability>,
    /// InnoDB's buffer pool, SQLite's page cache: a size of at least 5MiB, or a share of the loaded
    /// database's bytes; never `unlimited`. A server has a least size of its own: of small tables a share
    /// may be more than it says, and the result says what it was.
    #[serde(default = "default_buffer_pool")]
    pub buffer_pool: Many<Memory>,
    /// Page size: 4, 8, 16, 32 or 64 KiB; each needs tables of its own.
    #[serde(default = "default_page_size")]
    pub page_size: Many<Bytes>,
    /// Compression: `none`, of pages by `zlib`, `lz4`, `lzo`, `lzma`, `bzip2` or `snappy` (with the
    /// server's plugins), or of the table (`table`, InnoDB's ROW_FORMAT=COMPRESSED to half a page).
    #[serde(default = "default_compression")]
    pub compression: Many<SqlCompression>,
    /// InnoDB writes each page twice, so that a torn one can be mended.
    #[serde(default = "default_doublewrite")]
    pub doublewrite: Many<bool>,
    /// How InnoDB opens its files: `O_DIRECT`, `fsync`, `O_DIRECT_NO_FSYNC`, `O_DSYNC`.
    #[serde(default = "default_flush_method")]
    pub flush_method: Many<String>,
    /// InnoDB's redo log.
    #[serde(default = "default_redo_log")]
    pub redo_log: Bytes,
    /// Other variables of the private server, `name=value;name=value`; they count over what is set here:
    /// those of InnoDB and Aria, caches, buffers, threads, the optimizer, isolation and packets; none that
    /// is a key of its own, and no path.
    #[serde(default)]
    pub settings: String,
    /// Variables that are set while it runs: `[{ at = "20s", set = "innodb_buffer_pool_size=16M" }]`. On a
    /// server of yours they are set back, also by `clean` after a kill.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub change: Vec<SqlChange>,
    /// Memory of the whole server, its page cache included: `unlimited`, or a size of at least 96MiB; no
    /// share. Needs root.
    #[serde(default)]
    pub memory: Memory,
    /// Connections that load the tables, 1 to 256; a load goes on where one was cut off.
    #[serde(default = "default_load_threads")]
    pub load_threads: u32,
    /// Each trial loads a database of its own; `false`: trials on one stack that need the same tables go on
    /// with those, on a server that is started anew.
    #[serde(default)]
    pub fresh: bool,
    /// Keep the data directory in the run folder when a trial fails.
    #[serde(default)]
    pub keep_failed: bool,
}

/// A variable that is set while the clients run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SqlChange {
    /// When, since the clients began (warm-up included).
    pub at: Nanos,
    /// `name=value`, as in `SET GLOBAL`.
    pub set: String,
}

/// Whose scripts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum SqlDialect {
    /// `oltp.lua` of sysbench 0.5.
    #[serde(rename = "0.5")]
    Sysbench05,
    /// `oltp_*.lua` of sysbench 1.0.
    #[default]
    #[serde(rename = "1.0")]
    Sysbench10,
}

words!(SqlDialect { Sysbench05 => "0.5", Sysbench10 => "1.0" });

/// What a transaction does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SqlWorkload {
    /// `oltp_read_write`: 10 points, 4 ranges, 2 updates, delete and insert.
    ReadWrite,
    /// `oltp_read_only`: the points and ranges of it.
    ReadOnly,
    /// `oltp_write_only`: the rest of it.
    WriteOnly,
    /// `oltp_point_select`: one point, without a transaction.
    PointSelect,
    /// `oltp_update_index`: one update of the indexed column.
    UpdateIndex,
    /// `oltp_update_non_index`: one update of a column without an index.
    UpdateNonIndex,
}

words!(SqlWorkload {
    ReadWrite => "read_write", ReadOnly => "read_only", WriteOnly => "write_only",
    PointSelect => "point_select", UpdateIndex => "update_index",
    UpdateNonIndex => "update_non_index",
});

impl SqlWorkload {
    /// The statements of a transaction.
    #[must_use]
    pub const fn mix(self) -> workload::SqlMix {
        use workload::SqlMix;
        match self {
            Self::ReadWrite => SqlMix::READ_WRITE,
            Self::ReadOnly => SqlMix::READ_ONLY,
            Self::WriteOnly => SqlMix::WRITE_ONLY,
            Self::PointSelect => SqlMix { point_selects: 1, ..SqlMix::EMPTY },
            Self::UpdateIndex => SqlMix { index_updates: 1, ..SqlMix::EMPTY },
            Self::UpdateNonIndex => SqlMix { non_index_updates: 1, ..SqlMix::EMPTY },
        }
    }
}

/// How pages are made smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SqlCompression {
    /// Not at all.
    None,
    /// Pages, zlib.
    Zlib,
    /// Pages, LZ4.
    Lz4,
    /// Pages, LZO.
    Lzo,
    /// Pages, LZMA.
    Lzma,
    /// Pages, bzip2.
    Bzip2,
    /// Pages, Snappy.
    Snappy,
    /// InnoDB's compressed row format, to half a page; up to 16 KiB pages.
    Table,
}

words!(SqlCompression {
    None => "none", Zlib => "zlib", Lz4 => "lz4", Lzo => "lzo", Lzma => "lzma",
    Bzip2 => "bzip2", Snappy => "snappy", Table => "table",
});

/// One point of a SQL matrix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SqlJob {
    /// The database.
    pub engine: EngineName,
    /// Program of the private server, or `auto`.
    pub server: String,
    /// Where it listens, or `auto`.
    pub listen: String,
    /// A server that runs already.
    pub dsn: Option<String>,
    /// Its database, if that may be overwritten.
    #[serde(default)]
    pub allow_overwrite: Option<String>,
    /// What a transaction does.
    pub workload: SqlWorkload,
    /// Whose scripts.
    pub dialect: SqlDialect,
    /// Statements are prepared.
    pub prepared: bool,
    /// Tables.
    pub tables: u32,
    /// Rows a table.
    pub rows: u64,
    /// Rows of a range.
    pub range_size: u32,
    /// How rows are drawn.
    pub keys: SqlKeys,
    /// Connections.
    pub threads: u32,
    /// Transactions a second.
    pub rate: Option<Rate>,
    /// Transactions after which the trial ends.
    pub transactions: Option<u64>,
    /// It runs beside the same job on the other stacks.
    pub race: bool,
    /// What a commit survives.
    pub durability: Durability,
    /// The buffer pool.
    pub buffer_pool: Memory,
    /// Page size.
    pub page_size: Bytes,
    /// How pages are made smaller.
    pub compression: SqlCompression,
    /// Pages are written twice.
    pub doublewrite: bool,
    /// How InnoDB opens its files.
    pub flush_method: String,
    /// The redo log.
    pub redo_log: Bytes,
    /// Other variables.
    pub settings: String,
    /// Variables that are set on the way.
    pub change: Vec<SqlChange>,
    /// Memory of the server.
    pub memory: Memory,
    /// Connections that load.
    pub load_threads: u32,
    /// It loads a database of its own.
    pub fresh: bool,
    /// Its database is kept if it fails.
    pub keep_failed: bool,
}

/// Bytes of a row with its share of the secondary index, InnoDB 16 KiB pages, 100 000 rows loaded in order
/// (measured with MariaDB 10.11: 242).
const ROW_BYTES: u64 = 242;

impl SqlJob {
    /// About the bytes of the tables.
    #[must_use]
    pub const fn data(&self) -> Bytes {
        Bytes((self.tables as u64).saturating_mul(self.rows).saturating_mul(ROW_BYTES))
    }

    /// What tables were loaded for: jobs with equal ones can go on with each other's.
    #[must_use]
    pub fn tables_key(&self) -> String {
        format!(
            "{} {} x {} rows, k {}, pages {} {}, {}",
            self.engine.word(),
            self.tables,
            self.rows,
            self.keys,
            self.page_size.exact(),
            self.compression.word(),
            self.dsn.as_deref().unwrap_or(&self.server)
        )
    }

    /// What tables on a server of the user's are known by, whichever way leads to it.
    #[must_use]
    pub fn identity(&self) -> String {
        Self { dsn: Some("a server of the user's".into()), ..self.clone() }.tables_key()
    }

    /// What every SQL job has, and of the rest what is not its default.
    pub(crate) fn parameters(&self) -> Parameters {
        let mut point = vec![
            ("workload", self.workload.word().to_owned()),
            ("tables", self.tables.to_string()),
            ("rows", self.rows.to_string()),
            ("threads", self.threads.to_string()),
        ];
        // A server of the user's has its own.
        if self.dsn.is_none() {
            point.push(("buffer_pool", self.buffer_pool.text()));
            point.push(("durability", self.durability.word().into()));
        }
        let mut parameters = Parameters::of(point);
        let mut add = |differs, name, value| parameters.add(differs, name, value);
        add(self.keys != SqlKeys::Uniform, "keys", self.keys.to_string());
        let old = self.dialect == SqlDialect::Sysbench05;
        add(old, "dialect", self.dialect.word().into());
        add(!self.prepared && !old, "prepared", self.prepared.to_string());
        add(self.range_size != default_range_size(), "range_size", self.range_size.to_string());
        let open = self.rate.is_some();
        add(open, "arrivals", if open { "poisson" } else { "closed" }.into());
        if let Some(rate) = self.rate {
            add(true, "rate", rate.exact());
        }
        add(self.race, "race", self.race.to_string());
        if let Some(transactions) = self.transactions {
            add(true, "transactions", transactions.to_string());
        }
        add(self.page_size != Bytes(16 << 10), "page_size", self.page_size.exact());
        let compressed = self.compression != SqlCompression::None;
        add(compressed, "compression", self.compression.word().into());
        add(!self.doublewrite, "doublewrite", self.doublewrite.to_string());
        add(self.flush_method != FLUSH_METHODS[0], "flush_method", self.flush_method.clone());
        add(!self.settings.is_empty(), "settings", self.settings.clone());
        add(self.memory != Memory::Unlimited, "memory", self.memory.text());
        let changes: Vec<String> =
            self.change.iter().map(|one| format!("{} {}", one.at.exact(), one.set)).collect();
        add(!changes.is_empty(), "change", changes.join("; "));
        parameters
    }
}

/// The points of a matrix, those with the same tables beside each other.
pub(crate) fn sql_jobs(matrix: &SqlMatrix) -> Vec<SqlJob> {
    let mut jobs = vec![first(matrix)];
    jobs = each(jobs, matrix.engine.values(), |job, value| job.engine = value.clone());
    jobs = each(jobs, matrix.page_size.values(), |job, value| job.page_size = *value);
    jobs = each(jobs, matrix.compression.values(), |job, value| job.compression = *value);
    jobs = each(jobs, matrix.doublewrite.values(), |job, value| job.doublewrite = *value);
    jobs =
        each(jobs, matrix.flush_method.values(), |job, value| job.flush_method.clone_from(value));
    jobs = each(jobs, matrix.durability.values(), |job, value| job.durability = *value);
    jobs = each(jobs, matrix.buffer_pool.values(), |job, value| job.buffer_pool = *value);
    jobs = each(jobs, matrix.workload.values(), |job, value| job.workload = *value);
    jobs = each(jobs, matrix.threads.values(), |job, value| job.threads = *value);
    if let Some(rates) = &matrix.rate {
        jobs = each(jobs, rates.values(), |job, value| job.rate = Some(*value));
    }
    jobs
}

fn first(matrix: &SqlMatrix) -> SqlJob {
    SqlJob {
        engine: matrix.engine.values()[0].clone(),
        server: matrix.server.clone(),
        listen: matrix.listen.clone(),
        dsn: matrix.dsn.clone(),
        allow_overwrite: matrix.allow_overwrite.clone(),
        workload: matrix.workload.values()[0],
        dialect: matrix.dialect,
        prepared: matrix.prepared && matrix.dialect == SqlDialect::Sysbench10,
        tables: matrix.tables,
        rows: matrix.rows,
        range_size: matrix.range_size,
        keys: matrix.keys,
        threads: matrix.threads.values()[0],
        rate: None,
        transactions: matrix.transactions,
        race: matrix.race,
        durability: matrix.durability.values()[0],
        buffer_pool: matrix.buffer_pool.values()[0],
        page_size: matrix.page_size.values()[0],
        compression: matrix.compression.values()[0],
        doublewrite: matrix.doublewrite.values()[0],
        flush_method: matrix.flush_method.values()[0].clone(),
        redo_log: matrix.redo_log,
        settings: matrix.settings.clone(),
        change: matrix.change.clone(),
        memory: matrix.memory,
        load_threads: matrix.load_threads,
        fresh: matrix.fresh,
        keep_failed: matrix.keep_failed,
    }
}

/// What `flush_method` may be; the first is the default.
pub(crate) const FLUSH_METHODS: [&str; 4] = ["O_DIRECT", "fsync", "O_DIRECT_NO_FSYNC", "O_DSYNC"];

fn default_engine() -> Many<EngineName> {
    Many::one(EngineName::new("mysql"))
}
fn default_auto() -> String {
    "auto".into()
}
fn default_workload() -> Many<SqlWorkload> {
    Many::one(SqlWorkload::ReadWrite)
}
fn default_true() -> bool {
    true
}
fn default_tables() -> u32 {
    4
}
fn default_range_size() -> u32 {
    100
}
fn default_threads() -> Many<u32> {
    Many::one(8)
}
fn default_durability() -> Many<Durability> {
    Many::one(Durability::Device)
}
fn default_buffer_pool() -> Many<Memory> {
    Many::one(Memory::Size(Bytes::mib(128)))
}
fn default_page_size() -> Many<Bytes> {
    Many::one(Bytes(16 << 10))
}
fn default_compression() -> Many<SqlCompression> {
    Many::one(SqlCompression::None)
}
fn default_doublewrite() -> Many<bool> {
    Many::one(true)
}
fn default_flush_method() -> Many<String> {
    Many::one(FLUSH_METHODS[0].into())
}
fn default_redo_log() -> Bytes {
    Bytes::mib(96)
}
fn default_load_threads() -> u32 {
    2
}
