//! Whose directories these are: what is made in a directory is safe only if nobody else can exchange it.
//!
//! Invariant: a directory passes when it and every directory above belong to root or to this user, and
//! nobody else can rename what is in them (not writable by others, or sticky). Under sudo the user who
//! called it is this user too: they are root already.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::StackError;

/// Links within links at most.
const LINKS_MAX: u32 = 16;

/// Refuses a directory in which another user could swap what this process makes: one that he may write to, or
/// that is reached through a link of his.
///
/// # Errors
/// [`StackError::Refused`] with the place that is to blame; [`StackError::Io`] when `dir` does not exist.
pub fn check_directory(dir: &Path) -> Result<(), StackError> {
    check_places(dir, dir, 0)
}

/// Checks the nearest directory above `path` that exists, or `path` itself, before `path` is made.
///
/// # Errors
/// As [`check_directory`].
pub fn check_before_making(path: &Path) -> Result<(), StackError> {
    let whole = std::path::absolute(path).map_err(StackError::io("use directory", path))?;
    let there = whole.ancestors().find(|place| fs::symlink_metadata(place).is_ok());
    check_places(path, there.unwrap_or(Path::new("/")), 0)
}

fn check_places(named: &Path, dir: &Path, links: u32) -> Result<(), StackError> {
    let own = rustix::process::geteuid().as_raw();
    let caller = std::env::var("SUDO_UID").ok().and_then(|text| text.parse::<u32>().ok());
    let refused = |place: &Path, why: String| StackError::Refused {
        device: named.display().to_string(),
        reason: format!("{} {why}, who could put something else in its place", place.display()),
        next: "choose a directory of yours, in directories of yours or of root".into(),
    };
    let given = std::path::absolute(dir).map_err(StackError::io("use directory", dir))?;
    for place in given.ancestors() {
        let Ok(target) = fs::read_link(place) else { continue };
        let data = fs::symlink_metadata(place).map_err(StackError::io("look at", place))?;
        // Only the owner of a link matters, as for the kernel's protected_symlinks.
        if let Some(why) = fault((data.uid(), 0), (own, caller)) {
            return Err(refused(place, format!("is a link that {why}")));
        }
        if links == LINKS_MAX {
            return Err(refused(place, "leads through more than 16 links".into()));
        }
        check_places(named, &place.parent().unwrap_or(place).join(target), links + 1)?;
    }
    let whole = fs::canonicalize(dir).map_err(StackError::io("use directory", dir))?;
    for place in whole.ancestors() {
        let data = fs::metadata(place).map_err(StackError::io("look at", place))?;
        if let Some(why) = fault((data.uid(), data.mode()), (own, caller)) {
            return Err(refused(place, why));
        }
    }
    Ok(())
}

/// What is wrong with a directory of `(owner, mode)` for the user `own`, whom `caller` may have called.
fn fault((owner, mode): (u32, u32), (own, caller): (u32, Option<u32>)) -> Option<String> {
    const STICKY: u32 = 0o1000;
    if owner != 0 && owner != own && Some(owner) != caller {
        return Some(format!("belongs to user {owner}"));
    }
    // A user's own group is often the user's alone; root's group is not everybody's, others' groups are.
    let writable = if own == 0 && caller.is_none() { mode & 0o022 } else { mode & 0o002 };
    (writable != 0 && mode & STICKY == 0).then(|| "can be written to by other users".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root was made to empty a directory of its own by whoever owned the one above.
    #[test]
    fn directories_of_others_are_not_used() {
        let root = (0, None);
        assert_eq!(fault((0, 0o755), root), None);
        assert_eq!(fault((0, 0o1777), root), None, "as /tmp");
        assert!(fault((0, 0o777), root).is_some() && fault((0, 0o775), root).is_some());
        assert!(fault((1000, 0o755), root).is_some());
        assert_eq!(fault((1000, 0o755), (0, Some(1000))), None, "sudo");
        assert_eq!(fault((1000, 0o775), (1000, None)), None);
        assert!(fault((1000, 0o777), (1000, None)).is_some());
        assert!(fault((1001, 0o755), (1000, None)).is_some());
    }
}
