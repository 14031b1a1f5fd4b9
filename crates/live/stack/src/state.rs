//! The directory of undo journals.
//!
//! Invariants: it belongs to this user, nobody else can write to it or read its contents; otherwise it is not
//! used. An existing directory is not changed, but the journal folder in it gets mode 0700.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::StackError;

/// Place of the journals: `$CROSSPOINT_STATE_DIR`, else `$XDG_STATE_HOME/crosspoint`, else
/// `~/.local/state/crosspoint`.
///
/// # Errors
/// If none of the three is set.
pub fn state_directory() -> Result<PathBuf, StackError> {
    let from = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    from("CROSSPOINT_STATE_DIR")
        .or_else(|| from("XDG_STATE_HOME").map(|dir| dir.join("crosspoint")))
        .or_else(|| from("HOME").map(|dir| dir.join(".local/state/crosspoint")))
        .ok_or_else(|| {
            StackError::refused(
                &"the directory of undo journals",
                "neither CROSSPOINT_STATE_DIR nor XDG_STATE_HOME nor HOME is set",
                "CROSSPOINT_STATE_DIR=/a/directory/of/yours crosspoint ...",
            )
        })
}

/// The folder of the journals in `state`, created if needed.
pub(crate) fn journals(state: &Path) -> Result<PathBuf, StackError> {
    let dir = state.join("undo");
    for dir in [state, &dir] {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(StackError::io("create", dir))?;
        check(dir)?;
    }
    close(&dir)?;
    Ok(dir)
}

/// The folder of the journals, if it exists.
pub(crate) fn journals_there(state: &Path) -> Result<Option<PathBuf>, StackError> {
    let dir = state.join("undo");
    match fs::symlink_metadata(&dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StackError::io("look at", &dir)(error)),
        Ok(_) => {}
    }
    check(state)?;
    check(&dir)?;
    close(&dir)?;
    Ok(Some(dir))
}

/// Removes other users' access to the folder of the journals.
fn close(dir: &Path) -> Result<(), StackError> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
        .map_err(StackError::io("close to others", dir))
}

/// Refuses a directory that others could have created or written to.
fn check(dir: &Path) -> Result<(), StackError> {
    let data = fs::metadata(dir).map_err(StackError::io("look at", dir))?;
    let own = rustix::process::geteuid().as_raw();
    let whose = match data.mode() & 0o022 {
        _ if !data.is_dir() => "it is not a directory".to_owned(),
        _ if data.uid() != own => format!("it belongs to user {}", data.uid()),
        0 => return Ok(()),
        _ => "other users can write to it".to_owned(),
    };
    Err(StackError::refused(
        &dir.display(),
        format!("undo journals are kept there, and {whose}"),
        "CROSSPOINT_STATE_DIR=/a/directory/of/yours crosspoint ...",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_directory_is_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        assert_eq!(journals_there(&state).unwrap(), None);
        fs::create_dir(&state).unwrap();
        fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).unwrap();
        let made = journals(&state).unwrap();
        assert_eq!(fs::metadata(&made).unwrap().mode() & 0o777, 0o700);
        // A directory that others use must not be closed to them, and is no place for journals.
        assert_eq!(fs::metadata(&state).unwrap().mode() & 0o777, 0o755);
        fs::set_permissions(&state, fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(journals(&state).is_err() && journals_there(&state).is_err());
        assert_eq!(fs::metadata(&state).unwrap().mode() & 0o7777, 0o1777);
    }
}
