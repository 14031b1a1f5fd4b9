//! The server's program: which one, and whether it is new enough.
//!
//! Invariant: unsupported programs are refused before anything is created.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use engine::{EngineError, bare_environment};

/// The server product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// MariaDB.
    MariaDb,
    /// MySQL, or a server that reports itself as MySQL.
    MySql,
}

/// Oldest supported version: MariaDB 10.4, MySQL 5.7.
const fn oldest(flavour: Flavour) -> (u32, u32) {
    match flavour {
        Flavour::MariaDb => (10, 4),
        Flavour::MySql => (5, 7),
    }
}

const fn word(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::MariaDb => "MariaDB",
        Flavour::MySql => "MySQL",
    }
}

/// A server executable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binary {
    /// Where it is.
    pub path: PathBuf,
    /// The server product.
    pub flavour: Flavour,
    /// Its version as printed.
    pub version: String,
}

/// Time limit for printing the version.
const VERSION_MAX: Duration = Duration::from_secs(30);
/// Names of servers' programs.
const NAMES: [&str; 2] = ["mariadbd", "mysqld"];

impl Binary {
    /// Path of the program at `wanted`, or of the installed one for `auto`; nothing is started.
    ///
    /// # Errors
    /// If it is missing.
    pub fn place(wanted: &str) -> Result<PathBuf, EngineError> {
        let path = match wanted {
            "auto" => NAMES.iter().find_map(|name| stack::find_program(name)),
            path => Some(PathBuf::from(path)).filter(|path| path.is_file()),
        };
        path.ok_or_else(|| {
            EngineError::refused(
                match wanted {
                    "auto" => "no MariaDB or MySQL server is installed".to_owned(),
                    path => format!("{path} is not a file"),
                },
                match wanted {
                    "auto" => "apt-get install mariadb-server, or server = \"/path/of/mariadbd\"",
                    _ => "server = \"auto\" uses the installed one; see crosspoint doctor",
                },
            )
        })
    }

    /// The program at `wanted`, or the installed one for `auto`.
    ///
    /// # Errors
    /// If it is missing, does not run, or is too old.
    pub fn find(wanted: &str) -> Result<Self, EngineError> {
        let path = Self::place(wanted)?;
        let refuse = |reason: String| {
            EngineError::refused(
                format!("{}: {reason}", path.display()),
                "server = \"auto\" uses the installed one; see crosspoint doctor",
            )
        };
        let mut command = Command::new(&path);
        command.args(["--no-defaults", "--version"]).stdin(Stdio::null());
        bare_environment(&mut command);
        let output = stack::output_within(&mut command, (VERSION_MAX, None), |_| ());
        let output = output.map_err(|error| refuse(error.to_string()))?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let (flavour, version) = parse_version(&said)
            .ok_or_else(|| refuse(format!("it is not a MariaDB or MySQL server (`{said}`)")))?;
        check_version(flavour, &version).map_err(refuse)?;
        Ok(Self { path, flavour, version: format!("{} {version}", word(flavour)) })
    }
}

/// `mariadbd  Ver 10.11.19-MariaDB-... for ...` or `mysqld  Ver 8.0.36 for Linux ...`.
fn parse_version(said: &str) -> Option<(Flavour, String)> {
    let after = said.split_once("Ver ")?.1;
    let version = after.split_whitespace().next()?;
    version.split('.').next()?.parse::<u32>().ok()?;
    Some((flavour_of(said), version.to_owned()))
}

/// The product that reports this version.
pub(crate) fn flavour_of(version: &str) -> Flavour {
    if version.contains("MariaDB") { Flavour::MariaDb } else { Flavour::MySql }
}

/// Checks that a server's version is new enough.
pub(crate) fn check_version(flavour: Flavour, version: &str) -> Result<(), String> {
    // MariaDB 10 prefixes `5.5.5-` for old clients.
    let plain = version.strip_prefix("5.5.5-").unwrap_or(version);
    let mut numbers = plain.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse().ok());
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (major, minor) = oldest(flavour);
    if found < (major, minor) {
        let whose = word(flavour);
        return Err(format!("{whose} {version} is too old; needed: {major}.{minor} or later"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_told_apart_and_old_ones_refused() {
        let maria = "mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64";
        let (flavour, version) = parse_version(maria).unwrap();
        assert_eq!(flavour, Flavour::MariaDb);
        assert!(check_version(flavour, &version).is_ok());
        let (flavour, version) = parse_version("mysqld  Ver 8.0.36 for Linux on x86_64").unwrap();
        assert_eq!((flavour, version.as_str()), (Flavour::MySql, "8.0.36"));
        assert!(check_version(flavour, "5.6.51").unwrap_err().contains("5.7 or later"));
        assert!(check_version(Flavour::MariaDb, "5.5.5-10.3.39-MariaDB").is_err());
        assert!(check_version(Flavour::MariaDb, "5.5.5-10.6.1-MariaDB").is_ok());
        assert_eq!(parse_version("cat (GNU coreutils) 9.1"), None);
    }
}
