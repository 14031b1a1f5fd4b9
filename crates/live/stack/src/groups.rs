//! Our cgroups: created, filled with processes, removed.
//!
//! Version 1 has a hierarchy per controller, version 2 a single one. Invariants: a cgroup is in the undo
//! journal before it is created; its processes return to our own cgroup on every exit.

use std::fs::{self, File};
use std::path::PathBuf;

use crate::mark::Mark;
use crate::ungroup::remove_group;
use crate::{Journal, StackError, Undo};

/// Version of the control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// The hierarchy of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    pub version: Version,
    /// Where it is mounted.
    pub root: PathBuf,
    /// Where this process is in it.
    pub home: PathBuf,
}

impl Hierarchy {
    /// This machine's hierarchy with `memory`, or with block device limits (`blkio` of version 1, `io` of
    /// version 2).
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
        let own = own_group(groups, (version == Version::One).then_some(one))?;
        Some(Self { version, home: root.join(own), root })
    }
}

/// A group; dropping it removes it.
#[derive(Debug)]
pub(crate) struct Group {
    pub hierarchy: Hierarchy,
    pub path: PathBuf,
    mark: Mark,
}

impl Group {
    /// An empty group.
    pub fn make(journal: &Journal, hierarchy: Hierarchy) -> Result<Self, StackError> {
        let (prefix, number) = (journal.mark().group_prefix(), journal.number());
        let path = hierarchy.root.join(format!("{prefix}{number}"));
        let home = hierarchy.home.clone();
        journal.note(Undo::RemoveGroup { path: path.clone(), home })?;
        let made = Self { hierarchy, path, mark: journal.mark().clone() };
        fs::create_dir(&made.path).map_err(StackError::io("make the group", &made.path))?;
        Ok(made)
    }

    /// Adds `process`.
    pub fn hold(&self, process: u32) -> Result<(), StackError> {
        self.write("cgroup.procs", &process.to_string())
    }

    /// A file that adds its writer to the group when it writes `0`.
    pub fn door(&self) -> Result<File, StackError> {
        let path = self.path.join("cgroup.procs");
        File::options().write(true).open(&path).map_err(StackError::io("open", &path))
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
        // What cannot be undone now stays in the journal.
        let _ = remove_group(&self.path, &self.hierarchy.home, &self.mark);
    }
}

/// The cgroup of a process in a hierarchy, from text in the format of `/proc/self/cgroup`.
#[must_use]
pub fn own_group(groups: &str, controller: Option<&str>) -> Option<String> {
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, names, path) = (parts.next()?, parts.next()?, parts.next()?);
        let ours = match controller {
            Some(wanted) => names.split(',').any(|name| name == wanted),
            None => number == "0",
        };
        ours.then(|| path.trim_start_matches('/').to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

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
        let mark = Mark::random();
        let marked = format!("/tmp/{}0", mark.group_prefix());
        for (group, home) in [("/sys/fs/cgroup/memory/system", "/"), (&marked, "/tmp/../etc")] {
            let error = remove_group(Path::new(group), Path::new(home), &mark).unwrap_err();
            assert!(error.to_string().contains("not made by Crosspoint"), "{group}");
        }
    }
}
