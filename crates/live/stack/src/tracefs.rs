//! The kernel's event tracing (tracefs), mounted without a mount point, so nothing stays mounted.
//!
//! Invariant: only instances with the mark are removed.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::StackError;
use crate::mark::{Mark, not_ours};

/// A mount of tracefs that only this process can see.
#[derive(Debug)]
pub(crate) struct Tracefs(OwnedFd);

impl Tracefs {
    pub fn open() -> Result<Self, StackError> {
        let made = || -> io::Result<OwnedFd> {
            let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(&context)?;
            let flags = FsMountFlags::FSMOUNT_CLOEXEC;
            Ok(fsmount(&context, flags, MountAttrFlags::empty())?)
        };
        made().map(Self).map_err(StackError::io("mount", "tracefs"))
    }

    pub fn instances(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/instances", self.0.as_raw_fd()))
    }
}

/// Whether the kernel has event tracing.
#[must_use]
pub fn has_event_tracing() -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known.lines().any(|line| line.ends_with("\ttracefs"))
}

/// Removes an instance with that mark; returns whether it existed.
pub(crate) fn remove_instance(name: &str, mark: &Mark) -> Result<bool, StackError> {
    if !name.starts_with(&mark.group_prefix()) || name.contains('/') {
        return Err(not_ours(Path::new(name)));
    }
    let mount = Tracefs::open()?;
    let path = mount.instances().join(name);
    // A killed recorder may hold it for a moment while it ends.
    for _ in 0..100 {
        match fs::remove_dir(&path) {
            Ok(()) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) if error.kind() != io::ErrorKind::ResourceBusy => {
                return Err(StackError::io("remove", &path)(error));
            }
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
        }
    }
    Err(StackError::refused(name, "a program still reads this trace instance", "crosspoint clean"))
}
