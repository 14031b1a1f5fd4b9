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
    let user = User::current();
    let refused = |place: &Path, why: String| StackError::Refused {
        device: named.display().to_string(),
        reason: format!("{} {why}", place.display()),
        next: "choose a directory of yours, in directories of yours or of root".into(),
    };
    let given = std::path::absolute(dir).map_err(StackError::io("use directory", dir))?;
    let whole = fs::canonicalize(dir).map_err(StackError::io("use directory", dir))?;
    // As given too: what is crossed before `..` could be swapped for something else.
    for place in given.ancestors().chain(whole.ancestors()) {
        let data = fs::metadata(place).map_err(StackError::io("look at", place))?;
        if let Some(why) = user.distrusts((data.uid(), data.gid()), data.mode()) {
            return Err(refused(place, why));
        }
        let Ok(target) = fs::read_link(place) else { continue };
        let data = fs::symlink_metadata(place).map_err(StackError::io("look at", place))?;
        // Only the owner of a link matters, as for the kernel's protected_symlinks.
        if let Some(why) = user.distrusts((data.uid(), data.gid()), 0) {
            return Err(refused(place, format!("is a link that {why}")));
        }
        if links == LINKS_MAX {
            return Err(refused(place, format!("leads through more than {LINKS_MAX} links")));
        }
        check_places(named, &place.parent().unwrap_or(place).join(target), links + 1)?;
    }
    Ok(())
}

/// The user of this process, who may have called it by sudo.
struct User {
    id: u32,
    group: u32,
    caller: Option<u32>,
}

impl User {
    fn current() -> Self {
        let (id, group) = (rustix::process::geteuid(), rustix::process::getegid());
        let caller = std::env::var("SUDO_UID").ok().and_then(|text| text.parse().ok());
        Self { id: id.as_raw(), group: group.as_raw(), caller: caller.filter(|_| id.is_root()) }
    }

    fn trusts(&self, owner: u32) -> bool {
        owner == 0 || owner == self.id || Some(owner) == self.caller
    }

    /// What is wrong with a directory of `(owner, group)` and `mode`.
    fn distrusts(&self, (owner, group): (u32, u32), mode: u32) -> Option<String> {
        const STICKY: u32 = 0o1000;
        if !self.trusts(owner) {
            return Some(format!(
                "belongs to user {owner}, who could put something else in its place"
            ));
        }
        // A group with the number of its user is the user's alone, by the convention of distributions.
        let own_group =
            group != 0 && (group == self.id && group == self.group || Some(group) == self.caller);
        let writable = if own_group { mode & 0o002 } else { mode & 0o022 };
        (writable != 0 && mode & STICKY == 0).then(|| {
            "can be written to by other users, who could put something else in its place".to_owned()
        })
    }
}

/// Whether a file of this owner may be replaced: one of this user's, of root's, or of sudo's caller.
#[must_use]
pub fn is_trusted_owner(owner: u32) -> bool {
    User::current().trusts(owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root was made to empty a directory of its own by whoever owned the one above.
    #[test]
    fn directories_of_others_are_not_used() {
        let distrusts = |id: u32, caller: Option<u32>, of: (u32, u32), mode: u32| {
            User { id, group: id, caller }.distrusts(of, mode).is_some()
        };
        assert!(!distrusts(0, None, (0, 0), 0o755));
        assert!(!distrusts(0, None, (0, 0), 0o1777), "as /tmp");
        assert!(distrusts(0, None, (0, 0), 0o777) && distrusts(0, None, (0, 0), 0o775));
        assert!(distrusts(0, None, (1000, 1000), 0o755));
        assert!(!distrusts(0, Some(1000), (1000, 1000), 0o775), "sudo");
        assert!(distrusts(0, Some(1000), (0, 50), 0o2775), "a group of others");
        assert!(!distrusts(1000, None, (1000, 1000), 0o775), "a group of its own");
        assert!(distrusts(1000, None, (1000, 100), 0o775), "a shared group");
        assert!(distrusts(1000, None, (1000, 1000), 0o777));
        assert!(distrusts(1000, None, (1001, 1001), 0o755));
    }
}
