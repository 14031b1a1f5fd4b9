//! Ground for a database: a loop device with direct I/O over a file of ours, or a device that the guard has
//! let through; formatted and mounted, or left to the database as it is.
//!
//! Invariants: each step is in the undo journal before it is taken; only what was made here, or what the
//! guard let through, is formatted, unmounted, detached or erased; each time the whole device is discarded
//! first (every mkfs used here does). What it is not: the guard.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

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

/// A device that is ours for the run, with or without a file system.
#[derive(Debug)]
pub struct Ground {
    device: PathBuf,
    /// Where it is mounted, and how it is formatted; `None`: it is not.
    mounted: Option<(PathBuf, Format)>,
    /// Of a device of the user's: erased when the run is over, so that the next may use it.
    erase: bool,
}

/// Bytes at the beginning of a device that hold every signature that is looked for.
const SIGNATURES: usize = 1 << 20;

impl Ground {
    /// A loop device of `size` over a file in `area`.
    ///
    /// # Errors
    /// Without root, a program, a free loop device, or space.
    pub fn on_loop(
        journal: &Journal,
        area: &WorkArea,
        size: Bytes,
        format: Option<Format>,
    ) -> Result<Self, StackError> {
        need_root()?;
        let backing = area.path().join("loop.img");
        let made = File::create(&backing).and_then(|file| file.set_len(size.get()));
        made.map_err(StackError::io("make", &backing))?;
        journal.note(Undo::DetachLoop { backing: backing.clone() })?;
        let found = run("losetup", "mount", &["--find", "--show", "--direct-io=on"], &backing)?;
        Self::made(journal, area, (PathBuf::from(found.trim()), false), format)
    }

    /// A device that [`open_device`](crate::open_device) let through for overwriting.
    ///
    /// # Errors
    /// Without root or a program.
    pub fn on_device(
        journal: &Journal,
        area: &WorkArea,
        device: &Path,
        format: Option<Format>,
    ) -> Result<Self, StackError> {
        need_root()?;
        Self::made(journal, area, (device.to_owned(), true), format)
    }

    fn made(
        journal: &Journal,
        area: &WorkArea,
        (device, erase): (PathBuf, bool),
        format: Option<Format>,
    ) -> Result<Self, StackError> {
        let mut mounted = None;
        if let Some(format) = format {
            let mount = area.path().join("mount");
            fs::create_dir_all(&mount).map_err(StackError::io("make", &mount))?;
            journal.note(Undo::Unmount { path: mount.clone() })?;
            mounted = Some((mount, format));
        }
        if mounted.is_none() {
            journal.note(Undo::RemoveLock { device: device.clone() })?;
        }
        let made = Self { device, mounted, erase };
        made.begin()?;
        Ok(made)
    }

    fn begin(&self) -> Result<(), StackError> {
        let Some((mount, format)) = &self.mounted else {
            // Not every device can discard; the database looks at the beginning alone.
            let _ = run("blkdiscard", "util-linux", &["-f"], &self.device);
            return self.erase_signatures();
        };
        run(format.program, format.package, format.arguments, &self.device)?;
        let device = self.device.display().to_string();
        run("mount", "mount", &[&device], mount)?;
        Ok(())
    }

    fn erase_signatures(&self) -> Result<(), StackError> {
        let erase = || {
            let device = OpenOptions::new().write(true).open(&self.device)?;
            device.write_all_at(&vec![0; SIGNATURES], 0)?;
            device.sync_all()
        };
        erase().map_err(StackError::io("erase the beginning of", &self.device))
    }

    /// Begins anew: whatever was on it is gone.
    ///
    /// # Errors
    /// When something of it is still in use.
    pub fn remake(&self) -> Result<(), StackError> {
        if let Some((mount, _)) = &self.mounted {
            unmount(mount)?;
        }
        self.begin()
    }

    /// Where the file system is mounted; without one, the device.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.mounted.as_ref().map_or(&self.device, |(mount, _)| mount)
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Whether it is made on that device.
    #[must_use]
    pub fn is_on(&self, device: &Path) -> bool {
        self.device == device
    }

    /// Whether a database has the device to itself.
    #[must_use]
    pub const fn is_raw(&self) -> bool {
        self.mounted.is_none()
    }

    /// Type and options as the kernel has them.
    #[must_use]
    pub fn options(&self) -> String {
        mounts().find(|line| line.0 == self.path()).map_or_else(String::new, |line| line.1)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if self.is_raw() {
            // What can not be removed now is still in the journal.
            let _ = remove_lock(&self.device);
        }
        if !self.erase {
            return;
        }
        let free = self.mounted.as_ref().is_none_or(|(mount, _)| unmount(mount).is_ok());
        if free {
            // A signature that stays costs the user a wipefs before the next run, nothing else.
            let _ = self.erase_signatures();
        }
    }
}

fn need_root() -> Result<(), StackError> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(StackError::Refused {
        device: "a device or file system of its own".into(),
        reason: "only root can make one".into(),
        next: "sudo, or file_system = \"as_is\"".into(),
    })
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
    let began = Instant::now();
    while mounts().any(|(place, _)| place == path) {
        match run("umount", "mount", &[], path) {
            Ok(_) => {}
            // A killed process gives its files back in its own time.
            Err(_) if began.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(50)),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// How long what a killed process holds is tried again.
const PATIENCE: Duration = Duration::from_secs(5);

/// Removes the file beside a bare device by which LMDB locks it, if it is there.
pub(crate) fn remove_lock(device: &Path) -> Result<(), StackError> {
    let mut name = device.as_os_str().to_owned();
    name.push("-lock");
    let path = PathBuf::from(name);
    if !fs::symlink_metadata(&path).is_ok_and(|data| data.is_file()) {
        return Ok(());
    }
    fs::remove_file(&path).map_err(StackError::io("remove", &path))
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
