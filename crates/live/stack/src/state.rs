//! The directory of the undo journals: ours alone.
//!
//! Invariant: it belongs to this user and nobody else can write to it or read it; otherwise nothing is noted
//! and nothing is undone from it.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::StackError;

/// Where journals are kept: `$CROSSPOINT_STATE_DIR`, else `$XDG_STATE_HOME/crosspoint`, else
/// `~/.local/state/crosspoint`.
///
/// # Errors
/// When none of the three is set: there is no place that nobody else could have made first.
pub fn state_directory() -> Result<PathBuf, StackError> {
    let from = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    from("CROSSPOINT_STATE_DIR")
        .or_else(|| from("XDG_STATE_HOME").map(|dir| dir.join("crosspoint")))
        .or_else(|| from("HOME").map(|dir| dir.join(".local/state/crosspoint")))
        .ok_or_else(|| StackError::Refused {
            device: "the directory of undo journals".into(),
            reason: "neither CROSSPOINT_STATE_DIR nor XDG_STATE_HOME nor HOME is set".into(),
            next: "CROSSPOINT_STATE_DIR=/a/directory/of/yours crosspoint ...".into(),
        })
}

/// The folder of the journals in `state`, made if need be.
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
    Ok(dir)
}

/// The folder of the journals, if it is there.
pub(crate) fn journals_there(state: &Path) -> Result<Option<PathBuf>, StackError> {
    let dir = state.join("undo");
    match fs::symlink_metadata(&dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StackError::io("look at", &dir)(error)),
        Ok(_) => {}
    }
    check(state)?;
    check(&dir)?;
    Ok(Some(dir))
}

/// Refuses what others could have put there; closes to others what is ours.
fn check(dir: &Path) -> Result<(), StackError> {
    let data = fs::metadata(dir).map_err(StackError::io("look at", dir))?;
    let own = rustix::process::geteuid().as_raw();
    if !data.is_dir() || data.uid() != own {
        return Err(StackError::Refused {
            device: dir.display().to_string(),
            reason: format!("undo journals are kept there, and it belongs to user {}", data.uid()),
            next: "CROSSPOINT_STATE_DIR=/a/directory/of/yours crosspoint ...".into(),
        });
    }
    if data.mode() & 0o077 != 0 {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
            .map_err(StackError::io("close to others", dir))?;
    }
    Ok(())
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
        for dir in [&state, &made] {
            assert_eq!(fs::metadata(dir).unwrap().mode() & 0o777, 0o700);
        }
    }
}
