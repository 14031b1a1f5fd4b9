//! How each thing that a run creates on the host is undone.
//!
//! Invariants: an entry names only things with its journal's mark, and only this user's directories; others
//! are refused, whatever the journal says. Undoing twice does nothing.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::StackError;
use crate::mark::{Mark, not_ours};
use crate::mounts::{PATIENCE, detach, holds_mount, unmount, unmount_left};
use crate::tracefs::remove_instance;
use crate::ungroup::remove_group;

/// Restores a variable of a shared server: `(dsn, name, value)`; returns the error.
pub type Restore = fn(&str, &str, &str) -> Result<(), String>;

/// How to undo one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "undo", rename_all = "snake_case", deny_unknown_fields)]
pub enum Undo {
    /// Remove a work area with everything in it.
    RemoveTree {
        /// The directory.
        path: PathBuf,
    },
    /// Detach the loop devices over a file in a work area.
    DetachLoop {
        /// The file.
        backing: PathBuf,
    },
    /// Unmount a file system in a work area.
    Unmount {
        /// Path to undo.
        path: PathBuf,
    },
    /// Remove a control group, its processes moved back.
    RemoveGroup {
        /// Directory of the cgroup.
        path: PathBuf,
        /// Where its processes were before.
        home: PathBuf,
    },
    /// Remove an instance of the kernel's event tracing.
    RemoveTraceInstance {
        /// Its name.
        name: String,
    },
    /// Disable FUSE over io_uring again, which was enabled while mounting.
    ForbidRings,
    /// Restore a variable of a shared server.
    RestoreSetting {
        /// The server, without a password.
        dsn: String,
        /// The variable.
        name: String,
        /// Its original value.
        value: String,
    },
}

/// Undoes one entry of the journal with that mark; returns what was done, `None` if there was nothing to do.
///
/// `patience` is the time for loop devices to disappear.
pub(crate) fn undo(
    entry: &Undo,
    mark: &Mark,
    (restore, patience): (Restore, Duration),
) -> Result<Option<String>, StackError> {
    match entry {
        Undo::DetachLoop { backing } => {
            mark.check_inside(backing)?;
            let count = match detach(backing, patience) {
                // This process has it open itself, and ends now.
                Err(_) if patience < PATIENCE => 0,
                detached => detached?,
            };
            Ok((count > 0).then(|| format!("detached {}", backing.display())))
        }
        Undo::Unmount { path } => {
            mark.check_inside(path)?;
            let was = if patience < PATIENCE { unmount(path)? } else { unmount_left(path)? };
            Ok(was.then(|| format!("unmounted {}", path.display())))
        }
        Undo::RemoveGroup { path, home } => {
            let removed = remove_group(path, home, mark)?;
            Ok(removed.then(|| format!("removed the group {}", path.display())))
        }
        Undo::RemoveTraceInstance { name } => {
            Ok(remove_instance(name, mark)?.then(|| format!("removed the trace instance {name}")))
        }
        Undo::RestoreSetting { dsn, name, value } => {
            restore(dsn, name, value).map_err(|reason| {
                StackError::refused(
                    &dsn.clone(),
                    format!("{name} could not be set back to {value}: {reason}"),
                    by_hand(dsn, name, value),
                )
            })?;
            Ok(Some(format!("set {name} of {dsn} back to {value}")))
        }
        Undo::ForbidRings => {
            let forbidden = forbid_rings();
            let forbidden = forbidden.map_err(StackError::io("write", Path::new(RINGS)))?;
            Ok(forbidden.then(|| "FUSE over io_uring disabled again".to_owned()))
        }
        Undo::RemoveTree { path } => remove_tree(path, mark),
    }
}

/// How to restore a variable without this program; PostgreSQL's empty value is one that was not set.
fn by_hand(dsn: &str, name: &str, value: &str) -> String {
    match (dsn.starts_with("postgresql:"), value) {
        (true, "") => format!("ALTER SYSTEM RESET {name}; SELECT pg_reload_conf()"),
        (true, value) => {
            let value = value.replace('\'', "''");
            format!("ALTER SYSTEM SET {name} = '{value}'; SELECT pg_reload_conf()")
        }
        (false, value) => format!("SET GLOBAL {name} = {value}, or restart the server"),
    }
}

/// Whether mounts may use FUSE over io_uring (Linux 6.14).
const RINGS: &str = "/sys/module/fuse/parameters/enable_uring";

/// Returns whether it was permitted before.
fn forbid_rings() -> io::Result<bool> {
    let file = match fs::OpenOptions::new().write(true).open(RINGS) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    // Locked by whoever enables it temporarily.
    file.lock()?;
    let allowed = fs::read_to_string(RINGS)?.trim() == "Y";
    if allowed {
        io::Write::write_all(&mut &file, b"N")?;
    }
    Ok(allowed)
}

fn remove_tree(path: &Path, mark: &Mark) -> Result<Option<String>, StackError> {
    mark.check_inside(path)?;
    let named = path.file_name().and_then(|name| name.to_str());
    if !named.is_some_and(|name| name.starts_with(&mark.area_prefix())) {
        return Err(not_ours(path));
    }
    let data = match fs::symlink_metadata(path) {
        // Nothing can have been created in a path that is not a directory.
        Err(error)
            if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) =>
        {
            return Ok(None);
        }
        data => data.map_err(StackError::io("look at", path))?,
    };
    if !data.is_dir() || data.uid() != rustix::process::geteuid().as_raw() {
        return Err(not_ours(path));
    }
    if holds_mount(path) {
        return Err(StackError::refused(
            &path.display(),
            "something is still mounted in it",
            "umount it, then: crosspoint clean",
        ));
    }
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StackError::io("remove", path)(error))
        }
        _ => Ok(Some(format!("removed {}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::by_hand;

    /// Help that sets an empty value, or ends the quotes, would leave the user's server changed.
    #[test]
    fn variables_are_restored_by_hand_in_the_words_of_their_server() {
        let of = |dsn, value| by_hand(dsn, "work_mem", value);
        let (ours, reload) = ("postgresql://me@h/d", "; SELECT pg_reload_conf()");
        assert_eq!(of(ours, ""), format!("ALTER SYSTEM RESET work_mem{reload}"));
        assert_eq!(of(ours, "a'b"), format!("ALTER SYSTEM SET work_mem = 'a''b'{reload}"));
        assert!(of("mysql://me@h/d", "1").starts_with("SET GLOBAL work_mem = 1"));
    }
}
