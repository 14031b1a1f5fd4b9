//! A file system of our own: a loop device with direct I/O over a file of ours, formatted and mounted.
//!
//! Invariants: each step is in the undo journal before it is taken; only what was made here is formatted,
//! unmounted or detached; formatting discards the whole device first, as every mkfs used here does.
//! What it is not: a user's own device; the guard decides about those.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use units::Bytes;

use crate::journal::MARK;
use crate::{Journal, StackError, Undo, WorkArea};

/// What to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// Program that makes it.
    pub program: &'static str,
    /// Its arguments before the device.
    pub arguments: &'static [&'static str],
    /// Package that has it.
    pub package: &'static str,
}

impl Format {
    /// ext4 as it comes.
    pub const EXT4: Self =
        Self { program: "mkfs.ext4", arguments: &["-q", "-F"], package: "e2fsprogs" };
    /// ext4 without a journal.
    pub const EXT4_NO_JOURNAL: Self = Self {
        program: "mkfs.ext4",
        arguments: &["-q", "-F", "-O", "^has_journal"],
        package: "e2fsprogs",
    };
    /// XFS as it comes.
    pub const XFS: Self =
        Self { program: "mkfs.xfs", arguments: &["-q", "-f"], package: "xfsprogs" };
    /// Btrfs as it comes.
    pub const BTRFS: Self =
        Self { program: "mkfs.btrfs", arguments: &["-q", "-f"], package: "btrfs-progs" };
}

/// A mounted file system over a file.
#[derive(Debug)]
pub struct MadeFileSystem {
    device: PathBuf,
    mount: PathBuf,
    format: Format,
}

impl MadeFileSystem {
    /// Makes and mounts one of `size` in `area`.
    ///
    /// # Errors
    /// Without root, a program, a free loop device, or space.
    pub fn make(
        journal: &Journal,
        area: &WorkArea,
        size: Bytes,
        format: Format,
    ) -> Result<Self, StackError> {
        if !rustix::process::geteuid().is_root() {
            return Err(StackError::Refused {
                device: "a file system of its own".into(),
                reason: "only root can make one".into(),
                next: "sudo, or file_system = \"as_is\"".into(),
            });
        }
        let backing = area.path().join("loop.img");
        let made = File::create(&backing).and_then(|file| file.set_len(size.get()));
        made.map_err(StackError::io("make", &backing))?;
        journal.note(Undo::DetachLoop { backing: backing.clone() })?;
        let found = run("losetup", "mount", &["--find", "--show", "--direct-io=on"], &backing)?;
        let device = PathBuf::from(found.trim());
        let mount = area.path().join("mount");
        fs::create_dir(&mount).map_err(StackError::io("make", &mount))?;
        journal.note(Undo::Unmount { path: mount.clone() })?;
        let made = Self { device, mount, format };
        made.format_and_mount()?;
        Ok(made)
    }

    fn format_and_mount(&self) -> Result<(), StackError> {
        run(self.format.program, self.format.package, self.format.arguments, &self.device)?;
        let device = self.device.display().to_string();
        run("mount", "mount", &[&device], &self.mount)?;
        Ok(())
    }

    /// Makes it anew: whatever was in it is gone.
    ///
    /// # Errors
    /// When something of it is still in use.
    pub fn remake(&self) -> Result<(), StackError> {
        run("umount", "mount", &[], &self.mount)?;
        self.format_and_mount()
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Type and options as the kernel has them.
    #[must_use]
    pub fn options(&self) -> String {
        mounts().find(|line| line.0 == self.mount).map_or_else(String::new, |line| line.1)
    }
}

/// `(where, "type options")` of everything that is mounted.
fn mounts() -> impl Iterator<Item = (PathBuf, String)> {
    let text = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let lines: Vec<_> = text
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            let [_, place, kind, options, ..] = fields.as_slice() else { return None };
            // The kernel writes a blank as \040.
            Some((PathBuf::from(place.replace("\\040", " ")), format!("{kind} {options}")))
        })
        .collect();
    lines.into_iter()
}

/// Runs a program with a path as its last argument; gives what it printed.
fn run(
    program: &str,
    package: &str,
    arguments: &[&str],
    path: &Path,
) -> Result<String, StackError> {
    let output = Command::new(program).args(arguments).arg(path).output();
    let refuse = |reason: String, next: String| StackError::Refused {
        device: path.display().to_string(),
        reason,
        next,
    };
    let output = output.map_err(|error| {
        refuse(format!("{program} can not be run: {error}"), format!("apt-get install {package}"))
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(refuse(format!("{program}: {said}"), "crosspoint doctor".into()))
}

/// Whether a path lies in a directory of ours.
fn ours(path: &Path) -> bool {
    path.iter().filter_map(|part| part.to_str()).any(|part| part.starts_with(MARK))
}

fn refuse_others(path: &Path) -> Result<(), StackError> {
    if ours(path) {
        return Ok(());
    }
    Err(StackError::Refused {
        device: path.display().to_string(),
        reason: "not made by Crosspoint".into(),
        next: "undo it yourself if you are sure".into(),
    })
}

/// Unmounts what is mounted at a path of ours, however often.
pub(crate) fn unmount(path: &Path) -> Result<(), StackError> {
    refuse_others(path)?;
    while mounts().any(|(place, _)| place == path) {
        run("umount", "mount", &[], path)?;
    }
    Ok(())
}

/// Detaches every loop device over a file of ours.
pub(crate) fn detach(backing: &Path) -> Result<(), StackError> {
    refuse_others(backing)?;
    if !backing.exists() {
        return Ok(());
    }
    let listed =
        run("losetup", "mount", &["--noheadings", "--output", "NAME", "--associated"], backing)?;
    for device in listed.lines().map(str::trim).filter(|line| !line.is_empty()) {
        run("losetup", "mount", &["--detach"], Path::new(device))?;
    }
    Ok(())
}

/// Whether something is mounted at or below a path.
pub(crate) fn holds_mount(path: &Path) -> bool {
    mounts().any(|(place, _)| place.starts_with(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_made_is_neither_unmounted_nor_detached() {
        for result in [unmount(Path::new("/proc")), detach(Path::new("/dev/null"))] {
            assert!(result.unwrap_err().to_string().contains("not made by Crosspoint"));
        }
        assert!(holds_mount(Path::new("/proc")));
    }
}
