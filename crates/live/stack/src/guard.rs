//! The safety guard: how a block device is opened and held while a run needs it.
//!
//! Read-only unless the study allows writing, names the device by a stable path, and the caller confirms its
//! identity. Devices that are mounted, used as swap or by other devices are refused, and for writing also
//! those with partitions or a signature known to blkid(8), or that cannot be probed; opened exclusively, so
//! the kernel refuses, too. Invariants: no flag bypasses a check; a name is resolved once, and everything
//! afterwards uses the descriptor; before each destructive step, name, number and identity are compared
//! again.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use observe::BlockDevice;

use crate::quiet::{OpenMode, open_quietly};
use crate::users::in_use;
use crate::{StackError, output_within};

/// How long a busy device is retried.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time limit of blkid.
const BLKID_MAX: Duration = Duration::from_secs(60);
/// Bytes at either end of a device that must be readable, and are erased after use. blkid looks there, up to
/// 4 MiB deep (copies of LUKS2 headers).
const ENDS: u64 = 8 << 20;
/// Directory of device names that survive a reboot.
const STABLE: &str = "/dev/disk/by-id";

/// How a device is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access<'a> {
    /// Reads only.
    ReadOnly,
    /// All data may be overwritten. The caller gives the expected identity.
    Destroy {
        /// From `--i-will-lose-data`, one per device.
        confirmed: &'a [String],
    },
}

/// A block device that passed the guard.
#[derive(Debug)]
pub struct HeldDevice {
    /// As the study names it.
    named: PathBuf,
    number: u64,
    identity: Option<String>,
    /// Not exclusive: reserves the device's number, also while a file system uses it.
    pin: File,
    /// Exclusive open, while held.
    exclusive: Mutex<Option<File>>,
}

fn refuse(named: &Path, reason: impl Into<String>, next: impl Into<String>) -> StackError {
    StackError::refused(&named.display(), reason, next)
}

impl HeldDevice {
    /// Opens and holds the block device at `path`, after every check.
    ///
    /// # Errors
    /// [`StackError::Refused`] with the reason and what to do, or that it cannot be opened.
    pub fn open(path: &Path, access: Access<'_>) -> Result<Self, StackError> {
        let held = Self::resolve(path)?;
        held.check(access)?;
        Ok(held)
    }

    /// Repeats every check on a held device, for another use.
    ///
    /// # Errors
    /// As [`HeldDevice::open`].
    pub fn check(&self, access: Access<'_>) -> Result<(), StackError> {
        self.verify()?;
        if let Some(user) = in_use(&self.device()?, self.number) {
            let next = "choose an unused device; see lsblk";
            return Err(refuse(&self.named, user, next));
        }
        if let Access::Destroy { confirmed } = access {
            self.check_confirmed(confirmed)?;
        }
        self.claim()?;
        if matches!(access, Access::Destroy { .. }) {
            self.check_empty()?;
        }
        Ok(())
    }

    /// Holds a loop device on a file of ours, without the checks of [`open`](Self::open): only its backing
    /// file is compared.
    pub(crate) fn over_file(path: &Path, backing: &Path) -> Result<Self, StackError> {
        let held = Self::resolve(path)?;
        if held.identity.as_deref().map(Path::new) != Some(backing) {
            return Err(refuse(path, "it is not backed by the file it was made for", "try again"));
        }
        held.claim()?;
        Ok(held)
    }

    /// Resolves the name, once.
    fn resolve(path: &Path) -> Result<Self, StackError> {
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let metadata = fs::metadata(path).map_err(StackError::io("open", path))?;
        if metadata.is_dir() {
            let next = "for a directory use device = \"file\" with `directory`";
            return Err(refuse(path, "it is a directory, not a block device", next));
        }
        if !metadata.file_type().is_block_device() {
            return Err(refuse(
                path,
                "it is not a block device",
                "for files use device = \"file\" with a directory",
            ));
        }
        let pin = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let pin = pin.map_err(StackError::io("open", path))?;
        let number = pin.metadata().map_err(StackError::io("look at", path))?.rdev();
        let named = path.to_owned();
        let mut held = Self { named, number, identity: None, pin, exclusive: Mutex::new(None) };
        held.identity = identity(&held.device()?);
        Ok(held)
    }

    /// The kernel's facts about the device, by number.
    fn device(&self) -> Result<BlockDevice, StackError> {
        BlockDevice::numbered(self.number).ok_or_else(|| {
            refuse(&self.named, "the kernel has no information about it", "check lsblk")
        })
    }

    /// Checks that the caller has confirmed the loss of all data.
    fn check_confirmed(&self, confirmed: &[String]) -> Result<(), StackError> {
        let (path, device) = (&self.named, self.device()?);
        if !is_stable(path, &device.name) {
            return Err(refuse(
                path,
                "writing requires a stable name; this one can change at the next boot",
                format!("use {STABLE}/... in the study"),
            ));
        }
        let Some(identity) = &self.identity else {
            return Err(refuse(
                path,
                "it has no serial number, so it cannot be confirmed",
                "use a device with a serial number, or a file on it",
            ));
        };
        if !confirmed.contains(identity) {
            let reason = if confirmed.is_empty() {
                "all data on it would be overwritten, which was not confirmed"
            } else {
                "all data on it would be overwritten, and another device was confirmed"
            };
            let next = format!("to confirm: --i-will-lose-data '{identity}'");
            return Err(refuse(path, reason, next));
        }
        Ok(())
    }

    /// Checks that it has no partitions and no signature known to blkid(8), and that both ends are readable.
    fn check_empty(&self) -> Result<(), StackError> {
        let partitions = self.device()?.partitions();
        if !partitions.is_empty() {
            return Err(refuse(
                &self.named,
                format!("it has partitions: {}", partitions.join(", ")),
                "choose an empty device, or remove them first with wipefs",
            ));
        }
        self.check_readable()?;
        match self.signature() {
            Signature::None => Ok(()),
            Signature::Known(kind) => Err(refuse(
                &self.named,
                format!("it holds data: {kind}"),
                "choose an empty device, or erase the signature first with wipefs",
            )),
            Signature::CannotTell(why) => Err(refuse(
                &self.named,
                format!("cannot tell whether it holds data: {why}"),
                "inspect it with blkid -p (apt-get install util-linux)",
            )),
        }
    }

    /// blkid reports "nothing found" also for unreadable devices.
    fn check_readable(&self) -> Result<(), StackError> {
        let size = self.device()?.bytes().unwrap_or(0);
        let mut buffer = vec![0; usize::try_from(ENDS.min(size)).unwrap_or(0)];
        for at in [0, size.saturating_sub(ENDS)] {
            self.pin.read_exact_at(&mut buffer, at).map_err(|error| {
                let reason = format!(
                    "cannot tell whether it holds data: reading at byte {at} failed ({error})"
                );
                refuse(&self.named, reason, "choose another device; see dmesg")
            })?;
        }
        Ok(())
    }

    /// Probes with blkid(8), which knows file systems, RAID and LVM members, encryption and partition tables.
    fn signature(&self) -> Signature {
        let input = match self.pin.try_clone() {
            Ok(input) => Stdio::from(input),
            Err(error) => return Signature::CannotTell(error.to_string()),
        };
        let mut command = std::process::Command::new("blkid");
        command.args(["-p", "-o", "export", "/proc/self/fd/0"]).stdin(input);
        match output_within(&mut command, (BLKID_MAX, None), |_| ()) {
            Err(error) => Signature::CannotTell(error.to_string()),
            Ok(output) => signature_of(output.status.code(), &output.stdout),
        }
    }

    /// Checks that the name still refers to this device, and the device is the confirmed one.
    ///
    /// # Errors
    /// [`StackError::Refused`] if not; then nothing may be destroyed.
    pub fn verify(&self) -> Result<(), StackError> {
        let changed = |what: String| {
            Err(refuse(
                &self.named,
                format!("{what} during the run; nothing was written to the other"),
                "see udevadm monitor; start the run again",
            ))
        };
        match fs::metadata(&self.named) {
            Ok(data) if data.file_type().is_block_device() && data.rdev() == self.number => {}
            Ok(data) => {
                let now = crate::users::number_text(data.rdev());
                return changed(format!("the name now refers to another device ({now})"));
            }
            Err(error) => return changed(format!("the name has disappeared ({error})")),
        }
        if identity(&self.device()?) != self.identity {
            return changed("the device has another serial number".into());
        }
        Ok(())
    }

    /// Opens it exclusively, if it is not yet.
    pub(crate) fn claim(&self) -> Result<(), StackError> {
        let mut exclusive = self.exclusive.lock().unwrap_or_else(PoisonError::into_inner);
        if exclusive.is_some() {
            return Ok(());
        }
        let open =
            || OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(self.own_path());
        let busy = |opened: &std::io::Result<File>| {
            opened.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
        };
        let (mut opened, began) = (open(), Instant::now());
        // The kernel tears down a killed process's ring asynchronously and holds the device until then.
        while busy(&opened) && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
            opened = open();
        }
        *exclusive = Some(opened.map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => refuse(&self.named, "it is in use (kernel)", "see lsblk and lsof"),
            _ => StackError::io("open", &self.named)(error),
        })?);
        Ok(())
    }

    /// Ends the exclusive open, for a file system.
    pub(crate) fn release(&self) {
        *self.exclusive.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether the device that `path` names now is this one.
    #[must_use]
    pub fn is(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|data| data.rdev() == self.number)
            || self.named.as_path() == path
    }

    /// Path of the open device in `/proc/self/fd`.
    fn own_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.pin.as_raw_fd()))
    }

    /// The device through the descriptor, for processes of this user while this one lives.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.pin.as_raw_fd()))
    }

    /// As the study names it.
    #[must_use]
    pub fn named(&self) -> &Path {
        &self.named
    }

    /// Creates a device node at `path`; returns whether devices can be opened there.
    pub(crate) fn make_node(&self, path: &Path) -> Result<bool, StackError> {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        if fs::symlink_metadata(path).is_ok() {
            fs::remove_file(path).map_err(StackError::io("remove", path))?;
        }
        let made = mknodat(CWD, path, FileType::BlockDevice, Mode::RUSR | Mode::WUSR, self.number);
        made.map_err(|error| StackError::io("make", path)(error.into()))?;
        match File::open(path) {
            Ok(node) => {
                let number = node.metadata().map_err(StackError::io("look at", path))?.rdev();
                if number == self.number { Ok(true) } else { Err(crate::mark::not_ours(path)) }
            }
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                fs::remove_file(path).map_err(StackError::io("remove", path))?;
                Ok(false)
            }
            Err(error) => Err(StackError::io("open", path)(error)),
        }
    }

    /// The descriptor as a program's standard input.
    pub(crate) fn input(&self) -> Result<Stdio, StackError> {
        let again = self.pin.try_clone().map_err(StackError::io("use", &self.named))?;
        Ok(Stdio::from(again))
    }

    /// A file for drivers, through the descriptor; `write` only after the guard for overwriting.
    ///
    /// # Errors
    /// If the device has changed, or cannot be opened that way.
    pub fn file(&self, direct: bool, write: bool) -> Result<File, StackError> {
        self.verify()?;
        let opened = open_quietly(&self.own_path(), OpenMode { write, direct });
        opened.map_err(StackError::io("open", &self.named))
    }

    /// With `discard`, discards everything if the device supports it; overwrites both ends, so that no
    /// signature is left. Exclusive meanwhile.
    pub(crate) fn erase(&self, discard: bool) -> Result<(), StackError> {
        self.claim()?;
        let file = self.file(false, true)?;
        let size = self.device()?.bytes().unwrap_or(0);
        if discard {
            discard_all(&file, size);
        }
        let erase = || {
            let zeroes = vec![0; usize::try_from(ENDS.min(size)).unwrap_or(0)];
            file.write_all_at(&zeroes, 0)?;
            file.write_all_at(&zeroes, size.saturating_sub(ENDS))?;
            file.sync_all()
        };
        erase().map_err(StackError::io("erase the ends of", &self.named))
    }

    /// Detaches a loop device when it is last closed.
    pub(crate) fn detach_at_last_close(&self) {
        crate::mounts::clear_at_last_close(&self.pin);
    }
}

/// Whether a name is stable across boots: a direct entry of the stable names, or that of a loop or zram
/// device, whose identity (backing file or name) is confirmed instead.
fn is_stable(path: &Path, kernel_name: &str) -> bool {
    let virtual_device = ["loop", "zram"].iter().any(|kind| kernel_name.starts_with(kind));
    virtual_device || path.parent() == Some(Path::new(STABLE))
}

/// Devices without discard keep their blocks.
fn discard_all(file: &File, size: u64) {
    const BLKDISCARD: libc::Ioctl = 0x1277;
    let range = [0u64, size];
    // SAFETY: the ioctl reads two words, which live through the call.
    unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
}

/// Identity of a device: its serial number, the file behind a loop device, the name of a zram device.
fn identity(device: &BlockDevice) -> Option<String> {
    if device.name.starts_with("zram") {
        return Some(device.name.clone());
    }
    let backing = format!("/sys/block/{}/loop/backing_file", device.name);
    let loop_file = fs::read_to_string(backing).ok();
    let loop_file = loop_file.map(|text| text.strip_suffix('\n').unwrap_or(&text).to_owned());
    loop_file.or_else(|| device.serial())
}

/// Result of blkid.
#[derive(Debug, PartialEq, Eq)]
pub enum Signature {
    /// No signature.
    None,
    /// Types of the known signatures.
    Known(String),
    /// The kernel does not report it.
    CannotTell(String),
}

/// Parses the output and exit code of `blkid -p -o export`.
#[must_use]
pub fn signature_of(code: Option<i32>, said: &[u8]) -> Signature {
    match code {
        // 2: nothing found (blkid(8), EXIT STATUS).
        Some(2) if said.is_empty() => Signature::None,
        Some(0 | 2) => {
            let text = String::from_utf8_lossy(said);
            let wanted = ["TYPE=", "PTTYPE=", "USAGE="];
            let kinds = text.lines().filter(|line| wanted.iter().any(|w| line.starts_with(w)));
            let kinds: String = kinds.collect::<Vec<_>>().join(" ").chars().take(200).collect();
            Signature::Known(if kinds.is_empty() {
                "of a kind without a name".into()
            } else {
                kinds
            })
        }
        code => Signature::CannotTell(format!("blkid ended with {code:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_not_a_device() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = HeldDevice::open(file.path(), Access::ReadOnly).unwrap_err();
        assert!(matches!(error, StackError::Refused { .. }), "{error}");
    }

    /// A path that passes through by-id names may end at an unstable one and must be refused.
    #[test]
    fn only_a_direct_entry_of_the_stable_names_is_stable() {
        let stable = |path: &str, name: &str| is_stable(Path::new(path), name);
        assert!(stable("/dev/disk/by-id/nvme-x", "nvme0n1") && stable("/dev/loop0", "loop0"));
        for path in ["/dev/nvme0n1", "/dev/disk/by-id/../../nvme0n1", "/dev/disk/by-id/a/../x", "x"]
        {
            assert!(!stable(path, "nvme0n1"), "{path}");
        }
    }

    #[test]
    fn what_blkid_does_not_say_is_not_empty() {
        assert_eq!(signature_of(Some(2), b""), Signature::None);
        assert_eq!(signature_of(Some(0), b"TYPE=ext4\n"), Signature::Known("TYPE=ext4".into()));
        for code in [None, Some(1), Some(8)] {
            assert!(matches!(signature_of(code, b""), Signature::CannotTell(_)));
        }
    }
}
