//! Control groups of our own: made, filled with processes, and removed.
//!
//! Version 1 has a hierarchy for each controller, version 2 one for all. Invariants: a group is in the undo
//! journal before it is made; what is in it goes back to where this process is on every way out.
//! What it is not: a choice of limits.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Journal, StackError, Undo};

/// Name prefix of every group that we make and may remove.
pub(crate) const GROUP_MARK: &str = "crosspoint-";

/// Version of the control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// The hierarchy that has a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    pub version: Version,
    /// Where it is mounted.
    pub root: PathBuf,
    /// Where this process is in it.
    pub home: PathBuf,
}

impl Hierarchy {
    /// The one of this machine that has `memory`, or that limits block devices (`blkio` of version 1, `io`
    /// of version 2).
    pub fn of(one: &str, two: &str) -> Option<Self> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self::find((one, two), &read("/proc/self/mounts"), &read("/proc/self/cgroup"))
    }

    fn find((one, two): (&str, &str), mounts: &str, groups: &str) -> Option<Self> {
        let fields = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut found = None;
        for line in mounts.lines().map(fields).filter(|line| line.len() > 3) {
            let (point, kind, options) = (PathBuf::from(&line[1]), line[2].as_str(), &line[3]);
            match kind {
                "cgroup" if options.split(',').any(|option| option == one) => {
                    found = Some((Version::One, point));
                }
                "cgroup2" if found.is_none() => {
                    let controllers = fs::read_to_string(point.join("cgroup.controllers"));
                    if controllers.is_ok_and(|text| text.split_whitespace().any(|c| c == two)) {
                        found = Some((Version::Two, point));
                    }
                }
                _ => {}
            }
        }
        let (version, root) = found?;
        let own = groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (number, names, path) = (parts.next()?, parts.next()?, parts.next()?);
            let ours = match version {
                Version::One => names.split(',').any(|name| name == one),
                Version::Two => number == "0",
            };
            ours.then(|| path.trim_start_matches('/').to_owned())
        })?;
        Some(Self { version, home: root.join(own), root })
    }
}

/// A group; dropping it removes it.
#[derive(Debug)]
pub(crate) struct Group {
    pub hierarchy: Hierarchy,
    pub path: PathBuf,
}

/// Groups that this process has made, for their names.
static MADE: AtomicU32 = AtomicU32::new(0);

impl Group {
    /// An empty group.
    pub fn make(journal: &Journal, hierarchy: Hierarchy) -> Result<Self, StackError> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = hierarchy.root.join(format!("{GROUP_MARK}{}-{number}", std::process::id()));
        let home = hierarchy.home.clone();
        journal.note(Undo::RemoveGroup { path: path.clone(), home })?;
        let made = Self { hierarchy, path };
        fs::create_dir(&made.path).map_err(StackError::io("make the group", &made.path))?;
        Ok(made)
    }

    /// Takes `process` in.
    pub fn hold(&self, process: u32) -> Result<(), StackError> {
        self.write("cgroup.procs", &process.to_string())
    }

    pub fn write(&self, file: &str, text: &str) -> Result<(), StackError> {
        let path = self.path.join(file);
        fs::write(&path, text).map_err(StackError::io("write", &path))
    }

    pub fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.path.join(file)).ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What can not be undone now is still in the journal.
        let _ = remove_group(&self.path, &self.hierarchy.home);
    }
}

/// Moves whatever is in a group of ours back to `home` and removes it.
pub(crate) fn remove_group(group: &Path, home: &Path) -> Result<(), StackError> {
    let ours = group
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.starts_with(GROUP_MARK));
    if !ours {
        return Err(StackError::Refused {
            device: group.display().to_string(),
            reason: "not made by Crosspoint".into(),
            next: "remove it yourself if you are sure".into(),
        });
    }
    if !group.exists() {
        return Ok(());
    }
    let procs = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    for process in procs.lines() {
        // A process that ended meanwhile needs no place.
        let _ = fs::write(home.join("cgroup.procs"), process);
    }
    fs::remove_dir(group).map_err(StackError::io("remove the group", group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_with_the_controller_is_found() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n";
        let groups = "4:memory:/user/a\n2:cpu:/\n0::/\n";
        let memory = ("memory", "memory");
        let found = Hierarchy::find(memory, mounts, groups);
        let expected = Hierarchy {
            version: Version::One,
            root: "/sys/fs/cgroup/memory".into(),
            home: "/sys/fs/cgroup/memory/user/a".into(),
        };
        assert_eq!(found, Some(expected));
        assert_eq!(Hierarchy::find(memory, "proc /proc proc rw 0 0\n", groups), None);
    }

    #[test]
    fn a_group_of_others_is_left_alone() {
        let error = remove_group(Path::new("/sys/fs/cgroup/memory/system"), Path::new("/"));
        assert!(error.unwrap_err().to_string().contains("not made by Crosspoint"));
    }
}
