//! Users of a block device: mounts, swap, stacked devices, loop devices.
//!
//! Invariants: devices are compared by number, not by name; what cannot be checked counts as a use.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use observe::BlockDevice;

/// The user of the device or a part of it, if any.
pub(crate) fn in_use(device: &BlockDevice, number: u64) -> Option<String> {
    let parts = device.partitions();
    let mut numbers = vec![number];
    numbers.extend(parts.iter().filter_map(|name| number_of(name)));
    let texts: Vec<String> = numbers.iter().map(|number| number_text(*number)).collect();
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else {
        return Some("mounts are unknown: /proc/self/mountinfo cannot be read".into());
    };
    let names: Vec<&str> = parts.iter().map(String::as_str).chain([device.name.as_str()]).collect();
    if let Some(point) = mounted_at(&mounts, &texts, &names) {
        return Some(format!("it is mounted at {point}"));
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    if swaps_on(&swaps).iter().any(|path| is_one_of(path, &numbers)) {
        return Some("it is used as swap space".into());
    }
    if let Some(other) = sibling(&device.name) {
        return Some(format!("its file is also under {other}"));
    }
    let mut holders = device.holders();
    holders.extend(loops_on(&numbers));
    (!holders.is_empty()).then(|| format!("it is part of {}", holders.join(", ")))
}

/// Where a device is mounted, from a text in the form of `/proc/self/mountinfo`.
#[must_use]
pub fn mounted_at(mountinfo: &str, numbers: &[String], names: &[&str]) -> Option<String> {
    for line in mountinfo.lines() {
        let mut words = line.split(' ').skip(2);
        let (number, point) = (words.next().unwrap_or_default(), words.nth(1).unwrap_or_default());
        // Some file systems (btrfs) show another number; the source still names the device.
        let source = line.split(" - ").nth(1).and_then(|rest| rest.split(' ').nth(1));
        let named = source.and_then(|source| source.strip_prefix("/dev/"));
        if numbers.iter().any(|own| own == number) || named.is_some_and(|n| names.contains(&n)) {
            return Some(crate::mounts::unescaped(point).display().to_string());
        }
    }
    None
}

/// Paths that a text in the form of `/proc/swaps` names.
#[must_use]
pub fn swaps_on(swaps: &str) -> Vec<PathBuf> {
    let first = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    first.map(crate::mounts::unescaped).collect()
}

fn is_one_of(path: &Path, numbers: &[u64]) -> bool {
    fs::metadata(path)
        .is_ok_and(|data| data.file_type().is_block_device() && numbers.contains(&data.rdev()))
}

/// Number of a device by the kernel's name for it.
fn number_of(name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/sys/class/block/{name}/dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

pub(crate) fn number_text(number: u64) -> String {
    format!("{}:{}", libc::major(number), libc::minor(number))
}

/// Loop devices with data on one of the devices, at any offset: the kernel does not list them as holders.
fn loops_on(numbers: &[u64]) -> Vec<String> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let on_it = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let path = fs::read(entry.path().join("loop/backing_file")).ok()?;
        let path = String::from_utf8_lossy(path.strip_suffix(b"\n").unwrap_or(&path)).into_owned();
        let by_kernel = backing_of(&name).map(|backing| backing.device);
        let uses = match by_kernel {
            Some(number) => numbers.contains(&number),
            // Cannot be queried, so compare by name; an unreadable device counts as a use.
            None if path.starts_with("/dev/") => {
                fs::metadata(&path).is_err() || is_one_of(Path::new(&path), numbers)
            }
            None => false,
        };
        uses.then_some(name)
    };
    entries.filter_map(on_it).collect()
}

/// `LOOP_GET_STATUS64` of include/uapi/linux/loop.h.
const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;
/// Bytes of `struct loop_info64`.
const LOOP_INFO: usize = 232;

/// The backing of a loop device.
struct Backing {
    /// File system and number of the file.
    file: (u64, u64),
    /// Number of the device, if it is one; 0 for a plain file.
    device: u64,
}

/// `None` if the kernel cannot be queried, or it has no backing.
fn backing_of(name: &str) -> Option<Backing> {
    let device = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(format!("/dev/{name}"))
        .ok()?;
    let mut info = [0u8; LOOP_INFO];
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&device.as_fd());
    // SAFETY: the ioctl writes one `struct loop_info64`, which is as long as the buffer, or nothing.
    let result = unsafe { libc::ioctl(descriptor, LOOP_GET_STATUS64, info.as_mut_ptr()) };
    // lo_device, lo_inode and lo_rdevice are the first words, devices in the kernel's 64-bit encoding.
    let mut words = info.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
    let mut word = || words.next().unwrap_or(0);
    let (of, inode, device) = (word(), word(), word());
    (result == 0).then_some(Backing { file: (of, inode), device })
}

/// Another loop device on the same file; their data is assumed to overlap, whatever the offsets.
fn sibling(name: &str) -> Option<String> {
    let own = backing_of(name).filter(|_| name.starts_with("loop"))?;
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.find(|other| {
        let is_loop = other.starts_with("loop") && other != name;
        is_loop && backing_of(other).is_some_and(|backing| backing.file == own.file)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_number_and_by_name() {
        let text = "29 1 8:2 / /my\\040data rw - ext4 /dev/sda2 rw\n30 1 0:44 / /b rw - btrfs /dev/sdb rw\n";
        let at = |number: &str, name: &str| mounted_at(text, &[number.to_owned()], &[name]);
        assert_eq!(at("8:2", "x").as_deref(), Some("/my data"));
        assert_eq!(at("8:16", "sdb").as_deref(), Some("/b"));
        assert_eq!(at("8:17", "sdb1"), None);
        let swaps = "Filename Type Size\n/dev/zram0 partition 1 0 -2\n/a\\040b file 1 0 -3\n";
        assert_eq!(swaps_on(swaps), [PathBuf::from("/dev/zram0"), PathBuf::from("/a b")]);
    }
}
