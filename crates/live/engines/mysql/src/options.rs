//! Arguments of a private server, and options of its tables.
//!
//! Invariant: everything that affects I/O is set, so that two servers differ by the study alone.

use engine::{DATA, Home, TEMPORARY};
use serde::Deserialize;
use study::{Descriptor, Durability, Memory, Operations, OptionKind, Options, SqlJob, VirtualTime};
use units::Bytes;

use crate::binary::{Binary, Flavour};
use crate::settings::{check_setting, check_value};

pub(crate) static MYSQL: Descriptor = Descriptor {
    command: "mariadb",
    products: &[("MariaDB", "MariaDB")],
    server: Some("mysql"),
    needs: Some("MariaDB"),
    install: "apt-get install mariadb-server",
    durability: [
        "innodb_flush_log_at_trx_commit = 0: redo log written and flushed once per second",
        "innodb_flush_log_at_trx_commit = 2: redo log written at commit, flushed once per second",
        "innodb_flush_log_at_trx_commit = 1: redo log flushed at every commit",
    ],
    options: study::option_docs! {
        page_size: OptionKind::Sizes(&[4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10]),
            Some("16KiB"), Differs,
            "innodb_page_size; tables are loaded again for each";
        compression: OptionKind::Words(&COMPRESSIONS), Some("none"), Differs,
            "Of pages, by the server's plugins; `table`: ROW_FORMAT=COMPRESSED to half a page";
        doublewrite: OptionKind::Flag, Some("true"), Differs,
            "innodb_doublewrite: each page is written twice, to repair torn pages";
        flush_method: OptionKind::Words(&FLUSH_METHODS), Some("O_DIRECT"), Differs,
            "innodb_flush_method: how InnoDB opens its files";
        buffer_pool: OptionKind::Pool(5 << 20, 1 << 50), Some("128MiB"), Always,
            "innodb_buffer_pool_size; servers have a minimum, the result shows the value used";
        redo_log: OptionKind::Size(1 << 20, 1 << 42), Some("96MiB"), Never, "innodb_log_file_size";
        settings: OptionKind::Text(check_settings, "name=value;name=value"), Some(""), Differs,
            "Other variables: of InnoDB and Aria, caches, buffers, threads, the optimizer, \
                  isolation and packets; none that is an option itself, and no path";
        server: OptionKind::Text(|_| Ok(()), "a path, or `auto`"), Some("auto"), Never,
            "Program of the private server; `auto`: the installed mariadbd or mysqld";
    },
    check: check_together,
    check_change,
    power_cuts: Some(
        "workload = \"read_write\"\nrecords = 1\ntables = 4\nclients = 4\ndurability = \"device\"\n\
         options = { buffer_pool = \"8MiB\", redo_log = \"8MiB\" }\n",
    ),
    virtual_time: VirtualTime::AnyDirectory,
    ..Descriptor::new("mysql", "MySQL", Operations::Sql)
};

/// Page compression algorithms.
const COMPRESSIONS: [&str; 8] = ["none", "zlib", "lz4", "lzo", "lzma", "bzip2", "snappy", "table"];
/// Values of `innodb_flush_method`.
const FLUSH_METHODS: [&str; 4] = ["O_DIRECT", "fsync", "O_DIRECT_NO_FSYNC", "O_DSYNC"];

/// MySQL's own options.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Own {
    pub page_size: Bytes,
    pub compression: String,
    pub doublewrite: bool,
    pub flush_method: String,
    pub buffer_pool: Memory,
    pub redo_log: Bytes,
    pub settings: String,
    pub server: String,
}

impl Own {
    pub fn of(job: &SqlJob) -> Self {
        job.options.typed()
    }

    /// Program of a job's private server, or `auto`.
    pub fn server(job: &SqlJob) -> &str {
        Some(job.options.text("server")).filter(|server| !server.is_empty()).unwrap_or("auto")
    }
}

fn check_settings(settings: &str) -> Result<(), String> {
    settings.split(';').filter(|pair| !pair.is_empty()).try_for_each(check_setting)
}

fn check_together(options: &Options) -> Result<(), (&'static str, String)> {
    let large = options.size("page_size").is_some_and(|size| size.get() > 16 << 10);
    if large && options.text("compression") == "table" {
        return Err(("compression", "compression = table needs pages of at most 16 KiB".into()));
    }
    Ok(())
}

/// Checks a `name=value` that is set at run time: like a setting at start-up, but variables that have an
/// option are allowed, too.
fn check_change(pair: &str) -> Result<(), String> {
    let name = pair.split('=').next().unwrap_or_default().to_ascii_lowercase().replace('-', "_");
    let of_options =
        ["innodb_buffer_pool_size", "innodb_flush_log_at_trx_commit", "innodb_log_file_size"];
    if of_options.contains(&name.as_str()) {
        let value = pair.split_once('=').map_or("", |(_, value)| value);
        return check_value(value).map_err(|why| format!("{name}: {why}"));
    }
    check_setting(pair)
}

/// The command line of a private server in `home`, with a buffer pool of `pool`. The study's settings come
/// after our defaults and before the fixed arguments, which override them.
#[must_use]
pub fn arguments(binary: &Binary, job: &SqlJob, home: &Home, pool: Bytes) -> Vec<String> {
    let flush = match job.durability {
        Durability::Device => 1,
        Durability::Os => 2,
        Durability::None => 0,
    };
    let own = Own::of(job);
    let on = |is: bool| if is { "ON" } else { "OFF" };
    let mut all: Vec<String> = [
        "--no-defaults",
        "--innodb-buffer-pool-dump-at-shutdown=OFF",
        "--innodb-buffer-pool-load-at-startup=OFF",
        "--innodb-adaptive-hash-index=OFF",
        "--innodb-flush-neighbors=0",
        "--innodb-stats-persistent=OFF",
        "--performance-schema=OFF",
        "--max-prepared-stmt-count=1048576",
        "--table-open-cache=4000",
    ]
    .map(str::to_owned)
    .to_vec();
    match binary.flavour {
        Flavour::MariaDb => all.push("--log-warnings=2".into()),
        Flavour::MySql => {
            all.push("--innodb-buffer-pool-chunk-size=1048576".into());
            all.push("--mysqlx=OFF".into());
        }
    }
    let settings = own.settings.split(';').filter(|pair| !pair.is_empty());
    all.extend(settings.map(|pair| format!("--{}", pair.trim())));
    all.extend([
        format!("--innodb-buffer-pool-size={}", pool.get()),
        format!("--innodb-flush-log-at-trx-commit={flush}"),
        format!("--innodb-doublewrite={}", on(own.doublewrite)),
        format!("--innodb-flush-method={}", own.flush_method),
        format!("--innodb-log-file-size={}", own.redo_log.get()),
        "--skip-log-bin".into(),
        "--skip-name-resolve".into(),
        format!("--max-connections={}", job.clients.max(job.load_threads) + 10),
    ]);
    if let (Flavour::MariaDb, Some(word)) = (binary.flavour, page_algorithm(&own.compression)) {
        all.push(format!("--innodb-compression-algorithm={word}"));
        if word != "zlib" {
            all.push(format!("--plugin-load-add=provider_{word}"));
        }
    }
    all.extend(place(home, own.page_size));
    all
}

/// Arguments for the data directory and page size.
fn place(home: &Home, page_size: Bytes) -> [String; 2] {
    [format!("--datadir={}", home.seen(DATA)), format!("--innodb-page-size={}", page_size.get())]
}

/// Arguments for creating the data directory.
pub(crate) fn base(home: &Home, page_size: Bytes) -> Vec<String> {
    let mut all = vec!["--no-defaults".to_owned()];
    all.extend(place(home, page_size));
    all.push(format!("--tmpdir={}", home.seen(TEMPORARY)));
    all
}

fn page_algorithm(compression: &str) -> Option<&str> {
    Some(compression).filter(|word| !["none", "table"].contains(word))
}

/// Options after the columns of a table.
pub(crate) fn table_options(flavour: Flavour, job: &SqlJob) -> String {
    let own = Own::of(job);
    let half = own.page_size.get() / 2048;
    match (own.compression.as_str(), page_algorithm(&own.compression), flavour) {
        ("table", ..) => format!(" ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE={half}"),
        (_, Some(_), Flavour::MariaDb) => " PAGE_COMPRESSED=1".into(),
        (_, Some(word), Flavour::MySql) => format!(" COMPRESSION='{word}'"),
        (_, None, _) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use study::OptionValue;

    use super::*;

    /// An option that does not reach the server would be claimed by the report without being true.
    #[test]
    fn the_descriptor_has_the_options_that_servers_are_started_with() {
        let own: Own = Options::of(MYSQL.options).typed();
        assert_eq!((own.page_size, own.server.as_str()), (Bytes(16 << 10), "auto"));
        assert!(check_settings("innodb_io_capacity=1;b").unwrap_err().contains("name=value"));
        assert!(check_settings("datadir=/x").unwrap_err().contains("setting `datadir=/x`"));
        let text = |text: &str| OptionValue::Text(text.into());
        let both = Options::of(MYSQL.options)
            .with("compression", text("table"))
            .with("page_size", text("64KiB"));
        assert!(check_together(&both).is_err());
    }
}
