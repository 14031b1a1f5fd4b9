//! SQL jobs: sysbench's OLTP workloads, and the database's configuration.
//!
//! Invariant: passwords are not part of a study, since it is stored with its run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos, Rate, words};

use crate::defaults::{auto, number, yes};
use crate::parameters::Parameters;
use crate::{Durability, EngineName, Memory, Options, SqlDialect, SqlKeys};

/// sysbench's OLTP transactions on a SQL database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SqlJob {
    /// The database.
    pub engine: EngineName,
    /// Where the private server listens: `auto`, a socket inside its own directory; or `127.0.0.1:PORT` (1024
    /// or above), which includes TCP in the measurement. Its password is random.
    #[serde(default = "auto")]
    pub listen: String,
    /// A running server instead of a private one: `mysql://USER@HOST:PORT/DATABASE` or
    /// `mysql://USER@/path/of/socket:DATABASE`, with `postgresql` for PostgreSQL; the password from the
    /// environment variable CROSSPOINT_SQL_PASSWORD. The connection is not encrypted. The database must be
    /// empty (it is then
    /// marked as ours, and its tables stay for the next run), or carry our mark for the same tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dsn: Option<String>,
    /// Name of the dsn's database, if its tables sbtest1, sbtest2, ... (pgbench_accounts, ...) may be
    /// overwritten. Without it only an
    /// empty database is used, or one that carries this program's mark for the same tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_overwrite: Option<String>,
    /// Statements of a transaction.
    pub workload: SqlWorkload,
    /// Version of the scripts: sysbench `0.5` (one table per transaction, text protocol) or `1.0` (a random
    /// table per kind of statement, prepared statements).
    #[serde(default)]
    pub dialect: SqlDialect,
    /// Statements are prepared on the server; `false`: sent as text each time, as 0.5 always does.
    #[serde(default = "yes")]
    pub prepared: bool,
    /// Tables, 1 to 1000.
    #[serde(default = "number::<DEFAULT_TABLES>")]
    pub tables: u32,
    /// Rows per table, 1 to 2 billion; about 240 bytes each with their index. Of pgbench: accounts, 100,000
    /// for each unit of its scale, 150 bytes each.
    pub records: u64,
    /// Rows of a range, 1 to a million.
    #[serde(default = "number::<DEFAULT_RANGE>")]
    pub range_size: u32,
    /// How rows are drawn, by sysbench's arithmetic; the column `k` is drawn likewise.
    #[serde(default)]
    pub distribution: SqlKeys,
    /// Connections, 1 to 1024.
    #[serde(default = "number::<8>")]
    pub clients: u32,
    /// Transactions per second, Poisson arrivals, all connections together; each goes to whichever connection
    /// is free. Unthrottled by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Transactions of all connections together after which the trial ends, if `duration` does not end it
    /// first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
    /// The stacks of the experiment run at the same time, each with its own server, until each has done its
    /// `operations`.
    #[serde(default)]
    pub race: bool,
    /// What a committed transaction survives: `innodb_flush_log_at_trx_commit` 0, 2 or 1; `fsync` off,
    /// `synchronous_commit` off or on.
    #[serde(default = "default_durability")]
    pub durability: Durability,
    /// Variables that are set during the trial: `[{ at = "20s", set = "innodb_buffer_pool_size=16M" }]`. On a
    /// server of yours they are restored, also by `clean` after a kill.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub change: Vec<SqlChange>,
    /// Memory of the whole server, its page cache included: `unlimited`, or a size of at least 96MiB; no
    /// share. Needs root.
    #[serde(default)]
    pub memory: Memory,
    /// Connections that load the tables, 1 to 256; an interrupted load is continued.
    #[serde(default = "number::<2>")]
    pub load_threads: u32,
    /// Each trial loads its own database; `false`: trials on one stack that need the same tables reuse them,
    /// on a restarted server.
    #[serde(default)]
    pub fresh: bool,
    /// Keep the data directory in the run directory when a trial fails.
    #[serde(default)]
    pub keep_failed: bool,
    /// Options of the engine: see Engines below.
    #[serde(default)]
    pub options: Options,
}

/// Bytes of a row with its share of the secondary index, InnoDB 16 KiB pages, 100 000 rows loaded in order
/// (measured with MariaDB 10.11: 242).
const ROW_BYTES: u64 = 242;
/// Tables of a job that names no number of them.
pub(crate) const DEFAULT_TABLES: u32 = 4;
/// The same for rows of a range.
pub(crate) const DEFAULT_RANGE: u32 = 100;
/// Bytes of one of pgbench's accounts with its index (measured with PostgreSQL 15: 150).
const ACCOUNT_BYTES: u64 = 150;

impl SqlJob {
    /// Approximate bytes of the tables.
    #[must_use]
    pub const fn data(&self) -> Bytes {
        let row = if self.workload.is_of_pgbench() { ACCOUNT_BYTES } else { ROW_BYTES };
        Bytes((self.tables as u64).saturating_mul(self.records).saturating_mul(row))
    }

    /// The job as it runs: pgbench has one table of accounts.
    pub(crate) fn in_effect(self) -> Self {
        let by_default = self.workload.is_of_pgbench() && self.tables == DEFAULT_TABLES;
        let tables = if by_default { 1 } else { self.tables };
        Self { tables, ..self }
    }

    /// Bytes of a row's columns, declared sizes.
    #[must_use]
    pub const fn row_bytes(&self) -> u64 {
        match self.workload.is_of_pgbench() {
            // aid, bid, abalance and filler.
            true => 4 + 4 + 4 + 84,
            false => workload::changed_bytes(workload::OpClass::Insert) as u64,
        }
    }

    /// What process `index` of `of` runs of this job: its share of the clients, and their part of the rate.
    /// The first one sets the variables.
    #[must_use]
    pub fn part(&self, index: u32, of: u32) -> Self {
        // The clients of the processes before `index`.
        let before = |index: u32| {
            let (index, of) = (u64::from(index), u64::from(of.max(1)));
            let all = u64::from(self.clients);
            index * (all / of) + index.min(all % of)
        };
        let (first, next) = (before(index), before(index + 1));
        let rate_before = |clients: u64, rate: u64| rate * clients / u64::from(self.clients.max(1));
        let of_rate = |rate: Rate| Rate(rate_before(next, rate.0) - rate_before(first, rate.0));
        Self {
            clients: (next - first) as u32,
            rate: self.rate.map(of_rate),
            change: if index == 0 { self.change.clone() } else { Vec::new() },
            ..self.clone()
        }
    }

    /// Names of the workload's tables in a database.
    #[must_use]
    pub fn table_names(&self) -> Vec<String> {
        if self.workload.is_of_pgbench() {
            let kinds = ["accounts", "branches", "tellers", "history"];
            return kinds.map(|kind| format!("pgbench_{kind}")).to_vec();
        }
        (1..=self.tables).map(|number| format!("sbtest{number}")).collect()
    }

    /// Whether statements are prepared; in the old dialect they never are.
    #[must_use]
    pub fn is_prepared(&self) -> bool {
        self.prepared && self.dialect == SqlDialect::Sysbench10
    }

    /// Identifies loaded tables: jobs with equal keys can reuse each other's.
    #[must_use]
    pub fn tables_key(&self) -> String {
        let of_pgbench = if self.workload.is_of_pgbench() { "pgbench " } else { "" };
        let checksums = if self.options.is_set("data_checksums") { " checksums" } else { "" };
        format!(
            "{} {of_pgbench}{} x {} rows, k {}, pages {} {}{checksums}, {}",
            self.engine.word(),
            self.tables,
            self.records,
            self.distribution,
            self.options.text("page_size"),
            self.options.text("compression"),
            self.dsn.as_deref().unwrap_or_else(|| self.options.text("server"))
        )
    }

    /// Identifies the tables on a user's server, whichever DSN leads to it.
    #[must_use]
    pub fn identity(&self) -> String {
        Self { dsn: Some("a server supplied by the user".into()), ..self.clone() }.tables_key()
    }

    /// The parameters of every SQL job, and non-default ones.
    pub(crate) fn parameters(&self) -> Parameters {
        let mut point = vec![
            ("workload", self.workload.word().to_owned()),
            ("tables", self.tables.to_string()),
            ("records", self.records.to_string()),
            ("clients", self.clients.to_string()),
        ];
        // A user's server has its own settings.
        if self.dsn.is_none() {
            point.push(("durability", self.durability.word().into()));
        }
        let mut parameters = Parameters::of(point);
        let mut add = |differs, name: &'static str, value| parameters.add(differs, name, value);
        add(self.distribution != SqlKeys::Uniform, "distribution", self.distribution.to_string());
        let old = self.dialect == SqlDialect::Sysbench05;
        add(old, "dialect", self.dialect.word().into());
        let prepared = self.is_prepared();
        add(!prepared && !old, "prepared", prepared.to_string());
        add(self.range_size != DEFAULT_RANGE, "range_size", self.range_size.to_string());
        let open = self.rate.is_some();
        add(open, "arrivals", if open { "poisson" } else { "closed" }.into());
        if let Some(rate) = self.rate {
            add(true, "rate", rate.exact());
        }
        add(self.race, "race", self.race.to_string());
        if let Some(operations) = self.operations {
            add(true, "operations", operations.to_string());
        }
        add(self.memory != Memory::Unlimited, "memory", self.memory.text());
        let changes: Vec<String> =
            self.change.iter().map(|one| format!("{} {}", one.at.exact(), one.set)).collect();
        add(!changes.is_empty(), "change", changes.join("; "));
        self.options.add_to(&mut parameters);
        if self.dsn.is_some() {
            parameters.point.retain(|(name, _)| name != "buffer_pool");
        }
        parameters
    }
}

/// A variable that is set while the clients run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SqlChange {
    /// Time since the clients started (warm-up included).
    pub at: Nanos,
    /// `name=value`, as in `SET GLOBAL`.
    pub set: String,
}

/// Statements of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SqlWorkload {
    /// `oltp_read_write`: 10 points, 4 ranges, 2 updates, delete and insert.
    ReadWrite,
    /// `oltp_read_only`: the point selects and ranges of it.
    ReadOnly,
    /// `oltp_write_only`: the writes of it.
    WriteOnly,
    /// `oltp_point_select`: one point, without a transaction.
    PointSelect,
    /// `oltp_update_index`: one update of the indexed column.
    UpdateIndex,
    /// `oltp_update_non_index`: one update of a column without an index.
    UpdateNonIndex,
    /// pgbench's `tpcb-like`: 5 statements; 100,000 `records` for each branch, one table. PostgreSQL alone.
    TpcbLike,
    /// pgbench's `simple-update`: `tpcb_like` without tellers and branches.
    SimpleUpdate,
    /// pgbench's `select-only`: one account by its primary key.
    SelectOnly,
}

words!(SqlWorkload {
    ReadWrite => "read_write", ReadOnly => "read_only", WriteOnly => "write_only",
    PointSelect => "point_select", UpdateIndex => "update_index",
    UpdateNonIndex => "update_non_index", TpcbLike => "tpcb_like",
    SimpleUpdate => "simple_update", SelectOnly => "select_only",
});

impl SqlWorkload {
    /// Whether it is a script of pgbench, with its tables.
    #[must_use]
    pub const fn is_of_pgbench(self) -> bool {
        matches!(self, Self::TpcbLike | Self::SimpleUpdate | Self::SelectOnly)
    }

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
            Self::TpcbLike => SqlMix::TPCB_LIKE,
            Self::SimpleUpdate => SqlMix::SIMPLE_UPDATE,
            Self::SelectOnly => SqlMix::SELECT_ONLY,
        }
    }
}

fn default_durability() -> Durability {
    Durability::Device
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lost client or arrival would be another load than the study's.
    #[test]
    fn parts_of_a_job_are_the_whole_job() {
        let text = "schema = 2\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
                    [[experiment]]\nname = \"e\"\n[experiment.job]\nengine = \"mariadb\"\n\
                    workload = \"point_select\"\nrecords = 100\nclients = 5\nrate = \"301/s\"\n";
        let study = crate::parse(text, crate::Engines::ANY).expect("a study");
        let crate::Job::Sql(job) = crate::plan(&study).trials[0].job.clone() else {
            panic!("a SQL job")
        };
        for of in 1..=5 {
            let parts: Vec<SqlJob> = (0..of).map(|index| job.part(index, of)).collect();
            assert_eq!(parts.iter().map(|part| part.clients).sum::<u32>(), 5);
            let rate = |part: &SqlJob| part.rate.expect("a rate").0;
            assert_eq!(parts.iter().map(rate).sum::<u64>(), 301);
            // Each client has as much to do, up to rounding.
            assert!(
                parts
                    .iter()
                    .all(|part| rate(part).abs_diff(301 * u64::from(part.clients) / 5) <= 1)
            );
            assert!(parts.iter().all(|part| part.clients > 0));
        }
    }
}
