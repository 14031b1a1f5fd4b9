//! Creates an empty data directory with the server itself, without the scripts around it.
//!
//! Those start processes that outlive them, and change files of the installation under root. Invariant: one
//! process, confined like the server, ended with this one.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use engine::{EngineError, Home, bare_environment};
use stack::{Mark, output_within};
use units::Bytes;

use crate::binary::{Binary, Flavour};
use crate::options::base;

/// Statements that make the system tables of MariaDB, in their order; the second name is that of later
/// versions.
const TABLES: [[&str; 2]; 3] = [
    ["mysql_system_tables.sql", "mariadb_system_tables.sql"],
    ["mysql_performance_tables.sql", "mariadb_performance_tables.sql"],
    ["mysql_system_tables_data.sql", "mariadb_system_tables_data.sql"],
];
/// Locations in Linux distributions.
const SHARES: [&str; 4] =
    ["/usr/share/mysql", "/usr/share/mariadb", "/usr/local/share/mysql", "/usr/local/mysql/share"];

/// Time limit for creating the system tables, which takes a quarter of a second here.
const INITIALISE_MAX: Duration = Duration::from_secs(300);

fn refused(reason: String, next: &str) -> EngineError {
    EngineError::refused(reason, next)
}

/// Creates an empty data directory without accounts; each start creates its own.
///
/// # Errors
/// The server's message.
pub fn initialise(
    binary: &Binary,
    home: &Home,
    (mark, stop): (&Mark, &AtomicBool),
    page_size: Bytes,
) -> Result<(), EngineError> {
    let mut command = Command::new(&binary.path);
    command.args(base(home, page_size));
    bare_environment(&mut command);
    mark.put_on(&mut command);
    let confined = home.confine(&mut command, Vec::new(), None);
    confined.map_err(|error| EngineError::disconnected(error.to_string()))?;
    let statements = match binary.flavour {
        Flavour::MySql => {
            command.arg("--initialize-insecure");
            Vec::new()
        }
        Flavour::MariaDb => {
            command.args([
                "--bootstrap",
                "--log-warnings=0",
                "--enforce-storage-engine=",
                "--max-allowed-packet=8M",
                "--net-buffer-length=16K",
                "--innodb-buffer-pool-size=32M",
                "--skip-innodb-buffer-pool-dump-at-shutdown",
                // The system tables need not survive a crash.
                "--innodb-flush-method=nosync",
            ]);
            system_tables(binary)?
        }
    };
    command.stdin(Stdio::piped());
    let program = binary.path.display();
    let failed = |error: std::io::Error| {
        refused(format!("cannot create the data directory: {program}: {error}"), DOCTOR)
    };
    let output = output_within(&mut command, (INITIALISE_MAX, Some(stop)), |child| {
        let input = child.stdin.take();
        // On a separate thread: neither side may block the other.
        std::thread::spawn(move || input.map(|mut input| input.write_all(&statements)));
    });
    let output = output.map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stderr, output.stdout].concat();
    let said = first_error(&String::from_utf8_lossy(&said));
    Err(refused(
        format!("cannot create the data directory: {said}"),
        "see the server's message, and crosspoint doctor",
    ))
}

const DOCTOR: &str = "crosspoint doctor";

/// The statements for MariaDB's bootstrap. Accounts that they make are removed again.
fn system_tables(binary: &Binary) -> Result<Vec<u8>, EngineError> {
    let beside = binary.path.parent().into_iter().flat_map(|dir| {
        ["../share/mysql", "../share/mariadb", "../share", "../scripts"]
            .map(|share| dir.join(share))
    });
    let shares: Vec<PathBuf> = beside.chain(SHARES.map(PathBuf::from)).collect();
    let find = |names: [&str; 2]| {
        let mut places = shares.iter().flat_map(|dir| names.map(|name| dir.join(name)));
        places.find(|path| path.is_file()).ok_or_else(|| {
            let reason = format!("{}, which makes the system tables, is not installed", names[0]);
            refused(reason, "apt-get install mariadb-server")
        })
    };
    let mut text =
        b"CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n\
                     SET @skip_auth_anonymous=1;\n"
            .to_vec();
    for names in TABLES {
        let path = find(names)?;
        let bytes = fs::read(&path);
        text.extend(
            bytes.map_err(|error| refused(format!("{}: {error}", path.display()), DOCTOR))?,
        );
        text.push(b'\n');
    }
    text.extend(b"DELETE FROM mysql.global_priv;\nDELETE FROM mysql.proxies_priv;\n");
    Ok(text)
}

/// The first two errors in a server's output, otherwise its last lines.
fn first_error(text: &str) -> String {
    let mut errors = text.lines().filter(|line| line.contains("ERROR"));
    match (errors.next(), errors.next()) {
        (Some(first), Some(second)) => format!("{} | {}", first.trim(), second.trim()),
        (Some(first), None) => first.trim().to_owned(),
        (None, _) => crate::server::last_words(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Help that a program prints after its error must not hide the error.
    #[test]
    fn the_first_error_is_what_is_said() {
        let text =
            "Note: x\n2026 0 [ERROR] InnoDB: no space\n[ERROR] Aborting\nsee the manual\nbye\n";
        assert_eq!(first_error(text), "2026 0 [ERROR] InnoDB: no space | [ERROR] Aborting");
        assert_eq!(first_error("a\nb\n"), "a | b");
    }
}
