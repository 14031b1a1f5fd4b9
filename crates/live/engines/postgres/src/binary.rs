//! The server's programs: where they are, and whether they are new enough.
//!
//! Invariant: unsupported programs are refused before anything is created.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use engine::{EngineError, bare_environment};

/// Oldest supported major version: the oldest that its developers still maintain.
const OLDEST: u32 = 14;
/// Time limit for printing the version.
const VERSION_MAX: Duration = Duration::from_secs(30);
/// Where distributions install versions side by side: Debian and Ubuntu, Red Hat's own and the project's.
const VERSIONS: [(&str, &str); 2] = [("/usr/lib/postgresql", ""), ("/usr", "pgsql-")];

/// The programs of an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binary {
    /// The server.
    pub path: PathBuf,
    /// Creates data directories.
    pub initdb: PathBuf,
    /// Version as printed.
    pub version: String,
    /// Its major version.
    pub major: u32,
}

impl Binary {
    /// Path of the server at `wanted`, or of the newest installed one for `auto`; nothing is started.
    ///
    /// # Errors
    /// If it is missing.
    pub fn place(wanted: &str) -> Result<PathBuf, EngineError> {
        if wanted != "auto" {
            let path = Some(PathBuf::from(wanted)).filter(|path| path.is_file());
            return path.ok_or_else(|| {
                EngineError::refused(
                    format!("{wanted} is not a file"),
                    "server = \"auto\" uses the installed one; see crosspoint doctor",
                )
            });
        }
        let found = newest().or_else(|| stack::find_program("postgres"));
        found.ok_or_else(|| {
            EngineError::refused(
                "no PostgreSQL server is installed",
                "apt-get install postgresql, or server = \"/path/of/bin/postgres\"",
            )
        })
    }

    /// The programs at `wanted`, or the newest installed ones for `auto`.
    ///
    /// # Errors
    /// If one is missing, does not run, or is too old.
    pub fn find(wanted: &str) -> Result<Self, EngineError> {
        let path = Self::place(wanted)?;
        let refuse = |reason: String| {
            EngineError::refused(
                format!("{}: {reason}", path.display()),
                "server = \"auto\" uses the installed one; see crosspoint doctor",
            )
        };
        // Distributions link from the search path to wrappers that choose a version.
        let initdb = path.with_file_name("initdb");
        if !initdb.is_file() {
            return Err(refuse("there is no initdb next to it".into()));
        }
        let mut command = Command::new(&path);
        command.arg("--version").stdin(Stdio::null());
        bare_environment(&mut command);
        let output = stack::output_within(&mut command, (VERSION_MAX, None), |_| ());
        let output = output.map_err(|error| refuse(error.to_string()))?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let (major, version) = parse_version(&said)
            .ok_or_else(|| refuse(format!("it is not a PostgreSQL server (`{said}`)")))?;
        check_version(major).map_err(refuse)?;
        Ok(Self { path, initdb, version, major })
    }
}

/// The server of the highest version that is installed next to others.
fn newest() -> Option<PathBuf> {
    let of = |(place, prefix): (&str, &str)| {
        let entries = fs::read_dir(place).into_iter().flatten().flatten();
        let version = |path: &Path| {
            let name = path.file_name()?.to_str()?.strip_prefix(prefix)?;
            name.parse::<u32>().ok()
        };
        let found = entries.map(|entry| entry.path()).filter_map(|path| {
            let server = path.join("bin/postgres");
            Some((version(&path)?, server)).filter(|(_, server)| server.is_file())
        });
        found.collect::<Vec<_>>()
    };
    VERSIONS.into_iter().flat_map(of).max().map(|(_, server)| server)
}

/// `postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)`: the major version, and all of it.
fn parse_version(said: &str) -> Option<(u32, String)> {
    let version = said.strip_prefix("postgres (PostgreSQL) ")?.split_whitespace().next()?;
    Some((major_of(version)?, format!("PostgreSQL {version}")))
}

/// `15.13`, `17beta2`.
pub(crate) fn major_of(version: &str) -> Option<u32> {
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Checks that a server is new enough.
pub(crate) fn check_version(major: u32) -> Result<(), String> {
    if major >= OLDEST {
        return Ok(());
    }
    Err(format!("PostgreSQL {major} is too old; needed: {OLDEST} or later"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_told_from_other_programs_and_old_ones_refused() {
        let debian = parse_version("postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)").unwrap();
        assert_eq!(debian, (15, "PostgreSQL 15.13".into()));
        assert_eq!(parse_version("postgres (PostgreSQL) 18beta2").unwrap().0, 18);
        assert_eq!(parse_version("cat (GNU coreutils) 9.1"), None);
        assert!(check_version(13).unwrap_err().contains("14 or later"));
    }
}
