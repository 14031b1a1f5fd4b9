//! Directory ownership: files in a directory are safe only if nobody else can swap it.
//!
//! Invariant: a directory passes if it and all parents belong to root or this user, and nobody else can
//! rename their entries (not writable by others, or sticky). Under sudo the calling user counts as this user.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::StackError;

/// Maximum number of nested links.
const LINKS_MAX: u32 = 16;

/// Refuses a directory in which another user could swap our files: one that they can write to, or that is
/// reached through their link.
///
/// # Errors
/// [`StackError::Refused`] with the place at fault; [`StackError::Io`] if `dir` does not exist.
pub fn check_directory(dir: &Path) -> Result<(), StackError> {
    check_places(dir, dir, 0)
}

/// Checks `path`, or its nearest existing parent, before `path` is created.
///
/// # Errors
/// As [`check_directory`].
pub fn check_before_making(path: &Path) -> Result<(), StackError> {
    let whole = std::path::absolute(path).map_err(StackError::io("use directory", path))?;
    let whole: PathBuf = whole.components().collect();
    let there = whole.ancestors().find(|place| fs::symlink_metadata(place).is_ok());
    check_places(path, there.unwrap_or(Path::new("/")), 0)
}

fn check_places(named: &Path, dir: &Path, links: u32) -> Result<(), StackError> {
    let user = User::current();
    let refused = |place: &Path, why: String| {
        StackError::refused(
            &named.display(),
            format!("{} {why}", place.display()),
            "choose a directory that you own, in directories that you or root own",
        )
    };
    // Without a trailing slash, which would follow a link.
    let given = std::path::absolute(dir).map_err(StackError::io("use directory", dir))?;
    let given: PathBuf = given.components().collect();
    let whole = fs::canonicalize(dir).map_err(StackError::io("use directory", dir))?;
    // As given, too: a component before `..` could be swapped.
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

/// The user of this process, who may have called it through sudo.
struct User {
    id: u32,
    caller: Option<u32>,
    /// A group without other members.
    private_group: Option<u32>,
}

impl User {
    fn current() -> Self {
        let id = rustix::process::geteuid();
        let of = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
        let caller = of("SUDO_UID").filter(|_| id.is_root());
        let (user, group) = match caller {
            Some(caller) => (caller, of("SUDO_GID").unwrap_or(0)),
            None => (id.as_raw(), rustix::process::getegid().as_raw()),
        };
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let private = is_private((user, group), &read("/etc/passwd"), &read("/etc/group"));
        Self { id: id.as_raw(), caller, private_group: private.then_some(group) }
    }

    fn trusts(&self, owner: u32) -> bool {
        owner == 0 || owner == self.id || Some(owner) == self.caller
    }

    /// What is wrong with a directory of `(owner, group)` and `mode`.
    fn distrusts(&self, (owner, group): (u32, u32), mode: u32) -> Option<String> {
        const STICKY: u32 = 0o1000;
        if !self.trusts(owner) {
            return Some(format!(
                "belongs to user {owner}, who could replace what is written there"
            ));
        }
        let own_group = group != 0 && self.private_group == Some(group);
        let writable = if own_group { mode & 0o002 } else { mode & 0o022 };
        (writable != 0 && mode & STICKY == 0).then(|| {
            "is writable by other users, who could replace what is written there".to_owned()
        })
    }
}

/// Whether a group has no member except this user, by passwd(5) and group(5). An unknown group is private if
/// it has its user's number, as distributions assign them.
fn is_private((user, group): (u32, u32), users: &str, groups: &str) -> bool {
    let number = |line: &str, at: usize| line.split(':').nth(at)?.parse::<u32>().ok();
    let names = |line: &&str| number(line, 2) == Some(user);
    let own = users.lines().find(names).and_then(|line| line.split(':').next());
    let primary = |line: &str| number(line, 3) == Some(group) && number(line, 2) != Some(user);
    let listed = groups.lines().find(|line| number(line, 2) == Some(group));
    let members = listed.map(|line| line.split(':').nth(3).unwrap_or_default());
    let only_own = |members: &str| {
        members.split(',').all(|member| member.trim().is_empty() || Some(member.trim()) == own)
    };
    members.map_or(user == group, only_own) && !users.lines().any(primary)
}

/// Whether a file with this owner may be replaced: yes for this user, root and the sudo caller.
#[must_use]
pub fn is_trusted_owner(owner: u32) -> bool {
    User::current().trusts(owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root must not be led to empty a directory by the owner of a parent directory.
    #[test]
    fn directories_of_others_are_not_used() {
        let distrusts = |id: u32, caller: Option<u32>, of: (u32, u32), mode: u32| {
            let private_group = caller.or(Some(id));
            User { id, caller, private_group }.distrusts(of, mode).is_some()
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

    /// A directory that colleagues may write to is shared; one of a group of one's own is not.
    #[test]
    fn a_group_is_private_when_nobody_else_is_in_it() {
        let users = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/a:/bin/sh\nbob:x:1001:100::/b:/bin/sh\n\
                     cem:x:1002:100::/c:/bin/sh\n";
        let groups = "root:x:0:\nann:x:1000:\nusers:x:100:\nsolo:x:2000:bob\nteam:x:3000:ann,bob\n";
        let private = |user: u32, group: u32| is_private((user, group), users, groups);
        assert!(private(1000, 1000) && private(1001, 2000));
        assert!(!private(1001, 100), "another user's primary group, too");
        assert!(!private(1000, 3000) && !private(1000, 2000));
        assert!(private(5000, 5000) && !private(5000, 6000), "of a directory service");
    }
}
