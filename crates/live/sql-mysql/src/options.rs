//! What a private server is started with, and what its tables are made with.
//!
//! Invariant: everything that decides about I/O is set, so that two servers differ by the study alone. What
//! it is not: a tuning guide.

use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use sql::{Address, Flavour, Refusal, SqlError};
use study::{Durability, SqlCompression, SqlJob};
use units::Bytes;

use crate::binary::Binary;

/// Where a private server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A socket in its data directory.
    Own,
    /// A socket at a path.
    Socket(PathBuf),
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
        if text == "auto" {
            return Ok(Self::Own);
        }
        if text.starts_with('/') {
            return Ok(Self::Socket(PathBuf::from(text)));
        }
        let port = text.strip_prefix("127.0.0.1:").and_then(|port| port.parse().ok());
        port.map(Self::Port).ok_or_else(|| {
            format!("listen = \"{text}\"; allowed: auto, /path/of/socket, 127.0.0.1:PORT")
        })
    }

    /// Whether nobody is there.
    ///
    /// # Errors
    /// Who is in the way.
    pub fn check_free(&self) -> Result<(), SqlError> {
        let refused = |reason: String| {
            let next = "choose another place to listen, or listen = \"auto\"".into();
            Err(SqlError::Refused(Refusal { reason, next }))
        };
        match self {
            Self::Socket(path) if UnixStream::connect(path).is_ok() => {
                refused(format!("{}: another server listens there", path.display()))
            }
            Self::Socket(path) if path.exists() => {
                refused(format!("{} is there already", path.display()))
            }
            Self::Port(port) => match TcpListener::bind(("127.0.0.1", *port)) {
                Ok(_) => Ok(()),
                Err(error) => refused(format!("127.0.0.1:{port} can not be had: {error}")),
            },
            Self::Own | Self::Socket(_) => Ok(()),
        }
    }

    /// Where clients find the server that runs as `process`. Its own socket is reached through its working
    /// directory: a path of the stack under test may be longer than a socket's may be.
    pub(crate) fn address(&self, process: u32) -> Address {
        match self {
            Self::Own => Address::Socket(PathBuf::from(format!("/proc/{process}/cwd/{SOCKET}"))),
            Self::Socket(path) => Address::Socket(path.clone()),
            Self::Port(port) => Address::Tcp { host: "127.0.0.1".into(), port: *port },
        }
    }
}

/// The command line of a private server on `data`, with a buffer pool of `pool`.
#[must_use]
pub fn arguments(binary: &Binary, job: &SqlJob, data: &Path, pool: Bytes) -> Vec<String> {
    let flush = match job.durability {
        Durability::Device => 1,
        Durability::Os => 2,
        Durability::None => 0,
    };
    let on = |is: bool| if is { "ON" } else { "OFF" };
    let mut all = base(binary, data, job.page_size);
    all.extend([
        format!("--innodb-buffer-pool-size={}", pool.get()),
        format!("--innodb-flush-log-at-trx-commit={flush}"),
        format!("--innodb-doublewrite={}", on(job.doublewrite)),
        format!("--innodb-flush-method={}", job.flush_method),
        format!("--innodb-log-file-size={}", job.redo_log.get()),
        "--innodb-buffer-pool-dump-at-shutdown=OFF".into(),
        "--innodb-buffer-pool-load-at-startup=OFF".into(),
        "--innodb-adaptive-hash-index=OFF".into(),
        "--innodb-flush-neighbors=0".into(),
        "--innodb-stats-persistent=OFF".into(),
        "--performance-schema=OFF".into(),
        "--skip-log-bin".into(),
        "--skip-name-resolve".into(),
        format!("--max-connections={}", job.threads.max(job.load_threads) + 10),
        "--max-prepared-stmt-count=1048576".into(),
        "--table-open-cache=4000".into(),
    ]);
    match binary.flavour {
        Flavour::MariaDb => {
            if let Some(word) = page_algorithm(job.compression) {
                all.push(format!("--innodb-compression-algorithm={word}"));
                if word != "zlib" {
                    all.push(format!("--plugin-load-add=provider_{word}"));
                }
            }
        }
        Flavour::MySql => {
            all.push("--innodb-buffer-pool-chunk-size=1048576".into());
            all.push("--mysqlx=OFF".into());
        }
    }
    let own = job.settings.split(';').filter(|pair| !pair.is_empty());
    all.extend(own.map(|pair| format!("--{}", pair.trim())));
    all
}

/// What every start needs, that which makes the data directory included.
pub(crate) fn base(binary: &Binary, data: &Path, page_size: Bytes) -> Vec<String> {
    let mut all = vec![
        "--no-defaults".to_owned(),
        format!("--datadir={}", data.display()),
        format!("--innodb-page-size={}", page_size.get()),
    ];
    // A server refuses to run as root unless it is told to. It is private to this user either way.
    if rustix::process::geteuid().is_root() {
        all.push("--user=root".into());
    }
    if binary.flavour == Flavour::MariaDb {
        all.push("--log-warnings=2".into());
    }
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
        assert_eq!(Listen::parse("/run/x.sock"), Ok(Listen::Socket("/run/x.sock".into())));
        assert_eq!(Listen::parse("127.0.0.1:3399"), Ok(Listen::Port(3399)));
        assert!(Listen::parse("0.0.0.0:3306").unwrap_err().contains("allowed"));
    }
}
