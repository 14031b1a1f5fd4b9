//! The safety guard: the only way to open a block device.
//!
//! Read-only unless the study allows writing, names the device by a stable path and the caller
//! confirms its identity. Refuses what is mounted, swapped on, stacked on, and for writing what has
//! partitions or a signature that blkid(8) knows; opens exclusively, so the kernel refuses too.
//! Invariant: no flag bypasses a check. What it is not: a lock against other programs once open.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use observe::BlockDevice;

use crate::StackError;

/// How long a device that somebody holds is tried again.
const PATIENCE: Duration = Duration::from_secs(1);

/// How a device is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access<'a> {
    /// Reads only.
    ReadOnly,
    /// Everything on it may be lost. The caller gives what they believe to be its identity.
    Destroy {
        /// From `--i-will-lose-data`, one for each device that may be overwritten.
        confirmed: &'a [String],
    },
}

/// Opens the block device at `path`, past every check.
///
/// # Errors
/// [`StackError::Refused`] with the reason and what to do, or that it can not be opened.
pub fn open_device(path: &Path, access: Access<'_>, direct: bool) -> Result<File, StackError> {
    let refuse = |reason: String, next: &str| StackError::Refused {
        device: path.display().to_string(),
        reason,
        next: next.to_owned(),
    };
    let metadata = fs::metadata(path).map_err(StackError::io("open", path))?;
    if !metadata.file_type().is_block_device() {
        return Err(refuse(
            "it is not a block device".into(),
            "for files use device = \"file\" with a directory",
        ));
    }
    let Some(device) = BlockDevice::under(path) else {
        return Err(refuse("the kernel shows nothing about it".into(), "check lsblk"));
    };
    if let Some(user) = in_use(&device, metadata.rdev()) {
        return Err(refuse(user, "choose a device that nothing uses; see lsblk"));
    }
    if let Access::Destroy { confirmed } = access {
        check_destroy(path, &device, confirmed, &refuse)?;
    }
    let mut flags = libc::O_EXCL;
    if direct {
        flags |= libc::O_DIRECT;
    }
    let write = matches!(access, Access::Destroy { .. });
    let open = || OpenOptions::new().read(true).write(write).custom_flags(flags).open(path);
    let busy = |opened: &std::io::Result<File>| {
        opened.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
    };
    let (mut opened, began) = (open(), Instant::now());
    // The kernel takes the ring of a killed process apart in its own time and holds the device until then.
    while busy(&opened) && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
        opened = open();
    }
    opened.map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => {
            refuse("the kernel says that it is in use".into(), "see lsblk and lsof")
        }
        _ => StackError::io("open", path)(error),
    })
}

fn check_destroy(
    path: &Path,
    device: &BlockDevice,
    confirmed: &[String],
    refuse: &dyn Fn(String, &str) -> StackError,
) -> Result<(), StackError> {
    let virtual_device = ["loop", "zram"].iter().any(|kind| device.name.starts_with(kind));
    if !virtual_device && !path.starts_with("/dev/disk/by-id") {
        return Err(refuse(
            "writing needs a stable name, and this one can change at the next boot".into(),
            "name it by /dev/disk/by-id/... in the study",
        ));
    }
    let Some(identity) = identity(device) else {
        return Err(refuse(
            "it shows no serial number, so it can not be confirmed".into(),
            "use a device with a serial number, or a file on it",
        ));
    };
    if !confirmed.contains(&identity) {
        let reason = if confirmed.is_empty() {
            "everything on it would be overwritten and that was not confirmed"
        } else {
            "everything on it would be overwritten, and what was confirmed is another device"
        };
        return Err(refuse(
            reason.into(),
            &format!("if that is what you want: --i-will-lose-data '{identity}'"),
        ));
    }
    let partitions = device.partitions();
    if !partitions.is_empty() {
        return Err(refuse(
            format!("it has partitions: {}", partitions.join(", ")),
            "choose an empty device, or remove them first with wipefs",
        ));
    }
    match signature(path) {
        Signature::None => Ok(()),
        Signature::Known(kind) => Err(refuse(
            format!("it holds data: {kind}"),
            "choose an empty device, or erase the signature first with wipefs",
        )),
        Signature::CannotTell(why) => Err(refuse(
            format!("cannot tell whether it holds data: {why}"),
            "install blkid (apt-get install util-linux)",
        )),
    }
}

/// What a device answers to when asked who it is: its serial number, the file behind a loop device,
/// the name of a zram device.
fn identity(device: &BlockDevice) -> Option<String> {
    if device.name.starts_with("zram") {
        return Some(device.name.clone());
    }
    let backing = format!("/sys/block/{}/loop/backing_file", device.name);
    let loop_file = fs::read_to_string(backing).ok().map(|text| text.trim().to_owned());
    loop_file.or_else(|| device.serial())
}

/// Who uses the device or a part of it, if anybody.
fn in_use(device: &BlockDevice, number: u64) -> Option<String> {
    let mut names = device.partitions();
    names.push(device.name.clone());
    let numbers: Vec<String> = std::iter::once(number_text(number))
        .chain(
            names
                .iter()
                .filter_map(|name| fs::read_to_string(format!("/sys/class/block/{name}/dev")).ok()),
        )
        .map(|text| text.trim().to_owned())
        .collect();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(2);
        let (number, point) = (words.next().unwrap_or_default(), words.nth(1).unwrap_or_default());
        if numbers.iter().any(|own| own == number) {
            return Some(format!("it is mounted at {point}"));
        }
        // Some file systems (btrfs) show another number; the source still names the device.
        let source = line.split(" - ").nth(1).and_then(|rest| rest.split(' ').nth(1));
        if source.is_some_and(|source| names.iter().any(|name| source == format!("/dev/{name}"))) {
            return Some(format!("it is mounted at {point}"));
        }
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let used_by_swap = |name: &String| {
        swaps.lines().any(|line| line.split_whitespace().next() == Some(&format!("/dev/{name}")))
    };
    if names.iter().any(used_by_swap) {
        return Some("it is used as swap space".into());
    }
    let holders = device.holders();
    (!holders.is_empty()).then(|| format!("it is part of {}", holders.join(", ")))
}

fn number_text(number: u64) -> String {
    format!("{}:{}", libc::major(number), libc::minor(number))
}

enum Signature {
    None,
    Known(String),
    CannotTell(String),
}

/// Asks blkid(8), which knows file systems, RAID and LVM members, encryption and partition tables.
fn signature(path: &Path) -> Signature {
    let output = Command::new("blkid").args(["-p", "-o", "export"]).arg(path).output();
    match output {
        Err(error) => Signature::CannotTell(error.to_string()),
        Ok(output) => match output.status.code() {
            // 2: nothing found (blkid(8), EXIT STATUS).
            Some(2) => Signature::None,
            Some(0) => {
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                let wanted = ["TYPE=", "PTTYPE="];
                let kinds = text.lines().filter(|line| wanted.iter().any(|w| line.starts_with(w)));
                Signature::Known(kinds.collect::<Vec<_>>().join(" "))
            }
            code => Signature::CannotTell(format!("blkid ended with {code:?}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_not_a_device() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = open_device(file.path(), Access::ReadOnly, false).unwrap_err();
        assert!(matches!(error, StackError::Refused { .. }), "{error}");
    }
}
