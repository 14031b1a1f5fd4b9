//! What a private server is started with, and what its tables are made with.
//!
//! Invariant: everything that decides about I/O is set, so that two servers differ by the study alone. What
//! it is not: a tuning guide.

use std::net::TcpListener;
use std::path::PathBuf;

use engine::{Address, EngineError, Flavour};
use study::{Durability, SqlCompression, SqlJob};
use units::Bytes;

use crate::binary::Binary;
use crate::home::{DATA, Home};

/// Where a private server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A socket in its data directory.
    Own,
    /// A port of this machine's loopback.
    Port(u16),
}

/// Name of the socket in the data directory.
pub(crate) const SOCKET: &str = "crosspoint.sock";

impl Listen {
    /// From the study's words.
    ///
    /// # Errors
    /// What is allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        Ok(study::listen_port(text)?.map_or(Self::Own, Self::Port))
    }

    /// Whether nobody is there.
    ///
    /// # Errors
    /// Who is in the way.
    pub fn check_free(&self) -> Result<(), EngineError> {
        let refused = |reason: String| {
            let next = "choose another place to listen, or listen = \"auto\"";
            Err(EngineError::refused(reason, next))
        };
        match self {
            Self::Port(port) => match TcpListener::bind(("127.0.0.1", *port)) {
                Ok(_) => Ok(()),
                Err(error) => refused(format!("127.0.0.1:{port} is not available: {error}")),
            },
            Self::Own => Ok(()),
        }
    }

    /// Where clients find the server that runs as `process`. Its own socket is reached through its working
    /// directory: a path of the stack under test may be longer than a socket's may be.
    pub(crate) fn address(&self, process: u32) -> Address {
        match self {
            Self::Own => Address::Socket(PathBuf::from(format!("/proc/{process}/cwd/{SOCKET}"))),
            Self::Port(port) => Address::Tcp { host: "127.0.0.1".into(), port: *port },
        }
    }
}

/// The command line of a private server in `home`, with a buffer pool of `pool`. The study's own settings
/// come first: what is decided here stands above them.
#[must_use]
pub fn arguments(binary: &Binary, job: &SqlJob, home: &Home, pool: Bytes) -> Vec<String> {
    let flush = match job.durability {
        Durability::Device => 1,
        Durability::Os => 2,
        Durability::None => 0,
    };
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
    let own = job.settings.split(';').filter(|pair| !pair.is_empty());
    all.extend(own.map(|pair| format!("--{}", pair.trim())));
    all.extend([
        format!("--innodb-buffer-pool-size={}", pool.get()),
        format!("--innodb-flush-log-at-trx-commit={flush}"),
        format!("--innodb-doublewrite={}", on(job.doublewrite)),
        format!("--innodb-flush-method={}", job.flush_method),
        format!("--innodb-log-file-size={}", job.redo_log.get()),
        "--skip-log-bin".into(),
        "--skip-name-resolve".into(),
        format!("--max-connections={}", job.threads.max(job.load_threads) + 10),
    ]);
    if let (Flavour::MariaDb, Some(word)) = (binary.flavour, page_algorithm(job.compression)) {
        all.push(format!("--innodb-compression-algorithm={word}"));
        if word != "zlib" {
            all.push(format!("--plugin-load-add=provider_{word}"));
        }
    }
    all.extend(place(home, job.page_size));
    all
}

/// Where a server's data are, and what they are made of.
fn place(home: &Home, page_size: Bytes) -> [String; 2] {
    [format!("--datadir={}", home.seen(DATA)), format!("--innodb-page-size={}", page_size.get())]
}

/// What the start that makes the data directory needs.
pub(crate) fn base(home: &Home, page_size: Bytes) -> Vec<String> {
    let mut all = vec!["--no-defaults".to_owned()];
    all.extend(place(home, page_size));
    all.push(format!("--tmpdir={}", home.seen(crate::home::TEMPORARY)));
    all
}

const fn page_algorithm(compression: SqlCompression) -> Option<&'static str> {
    match compression {
        SqlCompression::None | SqlCompression::Table => None,
        other => Some(other.word()),
    }
}

/// What stands after the columns of a table.
#[must_use]
pub fn table_options(flavour: Flavour, job: &SqlJob) -> String {
    let half = job.page_size.get() / 2048;
    match (job.compression, page_algorithm(job.compression), flavour) {
        (SqlCompression::Table, ..) => format!(" ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE={half}"),
        (_, Some(_), Flavour::MariaDb) => " PAGE_COMPRESSED=1".into(),
        (_, Some(word), Flavour::MySql) => format!(" COMPRESSION='{word}'"),
        (_, None, _) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_to_listen_are_told_apart() {
        assert_eq!(Listen::parse("auto"), Ok(Listen::Own));
        assert!(Listen::parse("/run/x.sock").is_err());
        assert_eq!(Listen::parse("127.0.0.1:3399"), Ok(Listen::Port(3399)));
        assert!(Listen::parse("0.0.0.0:3306").unwrap_err().contains("allowed"));
    }
}
