//! Volumes for databases: a loop device with direct I/O on our file, or a device that passed the guard;
//! formatted and mounted, or left raw.
//!
//! Invariants: each step is in the undo journal first; the device is reached through the guard's descriptor,
//! never by name; only what was created here, or passed the guard, is formatted, unmounted, detached or
//! erased; each time the whole device is discarded first (every mkfs used here does).

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use units::Bytes;

use crate::guard::HeldDevice;
use crate::mark::Mark;
use crate::mounts::{PATIENCE, detach, mounts, run, unmount};
use crate::{Journal, StackError, Undo, WorkArea};

/// A file system to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// Its mkfs program.
    pub program: &'static str,
    /// Its arguments before the device.
    pub arguments: &'static [&'static str],
    /// The package of that program.
    pub package: &'static str,
    /// The kernel's name of the file system.
    pub kind: &'static str,
}

impl Format {
    /// ext4 with default options.
    pub const EXT4: Self =
        Self { program: "mkfs.ext4", arguments: &["-q", "-F"], package: "e2fsprogs", kind: "ext4" };
    /// ext4 without a journal.
    pub const EXT4_NO_JOURNAL: Self =
        Self { arguments: &["-q", "-F", "-O", "^has_journal"], ..Self::EXT4 };
    /// XFS with default options.
    pub const XFS: Self =
        Self { program: "mkfs.xfs", arguments: &["-q", "-f"], package: "xfsprogs", kind: "xfs" };
    /// Btrfs with default options.
    pub const BTRFS: Self = Self {
        program: "mkfs.btrfs",
        arguments: &["-q", "-f"],
        package: "btrfs-progs",
        kind: "btrfs",
    };
}

/// A device that is ours for the run, with or without a file system.
#[derive(Debug)]
pub struct Volume {
    device: Arc<HeldDevice>,
    mark: Mark,
    /// Mount point and format; `None` if it is not mounted.
    mounted: Option<(PathBuf, Format)>,
    /// Our device node, by device number, in a work area: a database that creates files next to its device
    /// creates them there, and nobody can redirect it. The number refers to this device while it is held.
    node: PathBuf,
    /// For a user's device: erased after the run, so that the next can use it.
    erase: bool,
}

impl Volume {
    /// A loop device of `size` over a file in `area`.
    ///
    /// # Errors
    /// Not root, or a program, a free loop device or space is missing.
    pub fn on_loop(
        journal: &Journal,
        area: &WorkArea,
        size: Bytes,
        format: Option<Format>,
    ) -> Result<Self, StackError> {
        need_root()?;
        let backing = area.path().join("loop.img");
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let made = options.open(&backing).and_then(|file| file.set_len(size.get()));
        made.map_err(StackError::io("make", &backing))?;
        Self::over_file(journal, area, &backing, format)
    }

    /// A loop device on the file `backing`; its mount point is in `area`.
    ///
    /// # Errors
    /// Not root, or a program or a free loop device is missing.
    pub fn over_file(
        journal: &Journal,
        area: &WorkArea,
        backing: &Path,
        format: Option<Format>,
    ) -> Result<Self, StackError> {
        need_root()?;
        let found = loop_over(journal, backing)?;
        let device = HeldDevice::over_file(&found, backing)?;
        device.detach_at_last_close();
        Self::made(journal, area, (Arc::new(device), false), format)
    }

    /// An existing loop device on `backing`, created and removed by its owner.
    ///
    /// # Errors
    /// Without root or a program, or if its backing file differs.
    pub fn on_loop_of(
        journal: &Journal,
        area: &WorkArea,
        (device, backing): (&Path, &Path),
        format: Option<Format>,
    ) -> Result<Self, StackError> {
        need_root()?;
        let device = HeldDevice::over_file(device, backing)?;
        Self::made(journal, area, (Arc::new(device), false), format)
    }

    /// A device that passed the guard for overwriting.
    ///
    /// # Errors
    /// Not root, or a program is missing.
    pub fn on_device(
        journal: &Journal,
        area: &WorkArea,
        device: Arc<HeldDevice>,
        format: Option<Format>,
    ) -> Result<Self, StackError> {
        need_root()?;
        Self::made(journal, area, (device, true), format)
    }

    fn made(
        journal: &Journal,
        area: &WorkArea,
        (device, erase): (Arc<HeldDevice>, bool),
        format: Option<Format>,
    ) -> Result<Self, StackError> {
        let mut mounted = None;
        if let Some(format) = format {
            let mount = area.path().join("mount");
            fs::create_dir_all(&mount).map_err(StackError::io("make", &mount))?;
            journal.note(Undo::Unmount { path: mount.clone() })?;
            mounted = Some((mount, format));
        }
        let mut node = area.path().join("device");
        if !device.make_node(&node)? {
            // That file system is mounted with nodev.
            let other = WorkArea::create(journal, Path::new("/dev"), "device")?;
            node = other.path().join("device");
            device.make_node(&node)?;
        }
        Ok(Self { device, mark: journal.mark().clone(), mounted, node, erase })
    }

    /// Formats and mounts it, or erases a raw one; all data is lost.
    ///
    /// # Errors
    /// It is in use, or the device has changed.
    pub fn remake(&self) -> Result<(), StackError> {
        let Some((mount, format)) = &self.mounted else {
            return self.device.erase(true);
        };
        unmount(mount)?;
        self.device.claim()?;
        self.device.verify()?;
        // A file system needs exclusive access, and mkfs refuses a claimed device.
        self.device.release();
        let mut words = format.arguments.to_vec();
        words.push("/proc/self/fd/0");
        let how = (self.device.input()?, Some(&self.mark));
        run((format.program, format.package), &words, self.device.named(), how)?;
        self.mount_on(mount, *format)
    }

    /// Mounts its existing file system.
    ///
    /// # Errors
    /// If there is none, or the device has changed.
    pub fn mount_again(&self) -> Result<(), StackError> {
        let Some((mount, format)) = &self.mounted else { return Ok(()) };
        // A file system needs exclusive access.
        self.device.release();
        self.mount_on(mount, *format)
    }

    fn mount_on(&self, mount: &Path, format: Format) -> Result<(), StackError> {
        self.device.verify()?;
        let (source, kind) = (self.device.path(), format.kind);
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount(&source, mount, kind, flags, None)
            .map_err(|error| StackError::io("mount", self.device.named())(error.into()))
    }

    /// Mount point of the file system; for a raw device, our device node.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.mounted.as_ref().map_or(&self.node, |(mount, _)| mount)
    }

    /// Our device node.
    #[must_use]
    pub fn device(&self) -> &Path {
        &self.node
    }

    /// Whether it is on that device.
    #[must_use]
    pub fn is_on(&self, device: &Path) -> bool {
        self.device.is(device)
    }

    /// Whether a database uses the raw device.
    #[must_use]
    pub const fn is_raw(&self) -> bool {
        self.mounted.is_none()
    }

    /// Type and options as reported by the kernel.
    #[must_use]
    pub fn options(&self) -> String {
        let here = mounts().into_iter().find(|mounted| mounted.place == self.path());
        here.map_or_else(String::new, |mounted| mounted.how)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let free = self.mounted.as_ref().is_none_or(|(mount, _)| unmount(mount).is_ok());
        if self.erase && free {
            // A remaining signature only costs the user a wipefs before the next run.
            let _ = self.device.erase(false);
        }
    }
}

/// Creates a loop device with direct I/O on our file; it is in the undo journal.
///
/// # Errors
/// Not root, no `losetup` or no free loop device; or the kernel denies direct I/O on that file, which
/// `losetup` ignores: I/O would go through the page cache.
pub fn loop_over(journal: &Journal, backing: &Path) -> Result<PathBuf, StackError> {
    need_root()?;
    journal.note(Undo::DetachLoop { backing: backing.to_owned() })?;
    let name = backing.display().to_string();
    let words = ["--find", "--show", "--direct-io=on", &name];
    let mark = Some(journal.mark());
    let found = run(("losetup", "mount"), &words, backing, (Stdio::null(), mark))?;
    let device = PathBuf::from(found.trim());
    if is_direct(&device) {
        return Ok(device);
    }
    let _ = detach(backing, PATIENCE);
    Err(StackError::refused(
        &name,
        "loop devices on it have no direct I/O, so reads would come from memory",
        "work_dir or --at on ext4, XFS or Btrfs",
    ))
}

/// Whether a loop device bypasses the page cache below it.
fn is_direct(device: &Path) -> bool {
    let name = device.file_name().unwrap_or_default();
    let says = fs::read_to_string(Path::new("/sys/block").join(name).join("loop/dio"));
    says.is_ok_and(|says| says.trim() == "1")
}

fn need_root() -> Result<(), StackError> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(StackError::refused(
        &"a device or file system of its own",
        "requires root",
        "sudo, or file_system = \"as_is\"",
    ))
}
