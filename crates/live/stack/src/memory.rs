//! A limit on the memory of a process, page cache included, for as long as a value lives.
//!
//! A control group of our own holds the process: version 1 (`memory.limit_in_bytes`) or version 2
//! (`memory.max`), whichever has the memory controller. Pages that another group has cached are charged to
//! that one, so files must be put out of the cache first. Invariants: the group is in the undo journal
//! before it is made; what is in it goes back to where this process is on every way out.
//! What it is not: a limit on swap of version 1 without swap accounting; there the group may swap.

use std::fs;
use std::path::{Path, PathBuf};

use units::Bytes;

use crate::{Journal, StackError, Undo};

/// Name prefix of every group that we make and may remove.
pub(crate) const GROUP_MARK: &str = "crosspoint-";

/// The limit; dropping it lifts it.
#[derive(Debug)]
pub struct MemoryLimit {
    group: PathBuf,
    /// Where this process is.
    home: PathBuf,
    version: Version,
    limit: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// What a group counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// The limit as the kernel took it.
    pub limit: Bytes,
    /// Most that was used at once; `None` where the kernel does not keep it.
    pub peak: Option<Bytes>,
    /// Times that the limit was met.
    pub met: Option<u64>,
    /// Processes that the kernel ended because of it.
    pub ended: Option<u64>,
}

/// The hierarchy that has the memory controller, and our group in it.
fn hierarchy(mounts: &str, groups: &str) -> Option<(Version, PathBuf, PathBuf)> {
    let fields = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut found = None;
    for line in mounts.lines().map(fields).filter(|line| line.len() > 3) {
        let (point, kind, options) = (PathBuf::from(&line[1]), line[2].as_str(), &line[3]);
        match kind {
            "cgroup" if options.split(',').any(|option| option == "memory") => {
                found = Some((Version::One, point));
            }
            "cgroup2" if found.is_none() => {
                let controllers = fs::read_to_string(point.join("cgroup.controllers"));
                if controllers.is_ok_and(|text| text.split_whitespace().any(|c| c == "memory")) {
                    found = Some((Version::Two, point));
                }
            }
            _ => {}
        }
    }
    let (version, point) = found?;
    let own = groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, names, path) = (parts.next()?, parts.next()?, parts.next()?);
        let ours = match version {
            Version::One => names.split(',').any(|name| name == "memory"),
            Version::Two => number == "0",
        };
        ours.then(|| path.trim_start_matches('/').to_owned())
    })?;
    Some((version, point.clone(), point.join(own)))
}

impl MemoryLimit {
    /// Version of the control groups that have the memory controller here, if any do.
    #[must_use]
    pub fn controller() -> Option<u32> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (version, ..) = hierarchy(&read("/proc/self/mounts"), &read("/proc/self/cgroup"))?;
        Some(if version == Version::One { 1 } else { 2 })
    }

    /// A limit that holds nobody yet.
    ///
    /// # Errors
    /// Without a memory controller, or without the right to make groups.
    pub fn make(journal: &Journal, limit: Bytes) -> Result<Self, StackError> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let place = hierarchy(&read("/proc/self/mounts"), &read("/proc/self/cgroup"));
        let Some((version, root, home)) = place else {
            return Err(StackError::Refused {
                device: "memory limit".into(),
                reason: "no control group hierarchy has the memory controller".into(),
                next: "memory = \"unlimited\", or run under a kernel with it".into(),
            });
        };
        let group = root.join(format!("{GROUP_MARK}{}", std::process::id()));
        journal.note(Undo::RemoveGroup { path: group.clone(), home: home.clone() })?;
        let made = Self { group, home, version, limit };
        fs::create_dir(&made.group).map_err(StackError::io("make the group", &made.group))?;
        match version {
            Version::One => made.write("memory.limit_in_bytes", &limit.get().to_string())?,
            Version::Two => {
                made.write("memory.max", &limit.get().to_string())?;
                made.write("memory.swap.max", "0")?;
            }
        }
        Ok(made)
    }

    /// Limits `process` from now on. The kernel ends one that needs more.
    ///
    /// # Errors
    /// When it has ended.
    pub fn hold(&self, process: u32) -> Result<(), StackError> {
        self.write("cgroup.procs", &process.to_string())
    }

    fn write(&self, file: &str, text: &str) -> Result<(), StackError> {
        let path = self.group.join(file);
        fs::write(&path, text).map_err(StackError::io("write", &path))
    }

    /// What the group has counted so far.
    #[must_use]
    pub fn used(&self) -> MemoryUse {
        let read = |file: &str| fs::read_to_string(self.group.join(file)).ok();
        let number = |file: &str| read(file)?.trim().parse::<u64>().ok();
        let field = |file: &str, name: &str| {
            let text = read(file)?;
            let mut fields = text.lines().filter_map(|line| line.split_once(' '));
            fields.find(|(key, _)| *key == name)?.1.trim().parse::<u64>().ok()
        };
        let (peak, met, ended) = match self.version {
            Version::One => (
                number("memory.max_usage_in_bytes"),
                number("memory.failcnt"),
                field("memory.oom_control", "oom_kill"),
            ),
            Version::Two => (
                number("memory.peak"),
                field("memory.events", "max"),
                field("memory.events", "oom_kill"),
            ),
        };
        MemoryUse { limit: self.limit, peak: peak.map(Bytes), met, ended }
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // What can not be undone now is still in the journal.
        let _ = remove_group(&self.group, &self.home);
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
        let found = hierarchy(mounts, groups);
        let expected = (
            Version::One,
            PathBuf::from("/sys/fs/cgroup/memory"),
            PathBuf::from("/sys/fs/cgroup/memory/user/a"),
        );
        assert_eq!(found, Some(expected));
        assert_eq!(hierarchy("proc /proc proc rw 0 0\n", groups), None);
    }

    #[test]
    fn a_group_of_others_is_left_alone() {
        let error = remove_group(Path::new("/sys/fs/cgroup/memory/system"), Path::new("/"));
        assert!(error.unwrap_err().to_string().contains("not made by Crosspoint"));
    }
}
