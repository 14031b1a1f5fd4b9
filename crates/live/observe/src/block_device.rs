//! The block device under a path: name, counters and queue settings, from sysfs.
//!
//! Invariant: a path without a block device (tmpfs, overlay, network) gives `None`.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use stats::DiskCounters;

use crate::first_line;

/// A block device of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockDevice {
    /// Kernel name, such as `nvme0n1p2`.
    pub name: String,
    /// Its directory under `/sys`.
    sysfs: PathBuf,
}

impl BlockDevice {
    /// The device that holds the file system of `path`, or is `path`.
    #[must_use]
    pub fn under(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        let number =
            if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
        Self::numbered(number)
    }

    /// The device of that number.
    #[must_use]
    pub fn numbered(number: u64) -> Option<Self> {
        let link = format!("/sys/dev/block/{}:{}", libc::major(number), libc::minor(number));
        let sysfs = fs::canonicalize(link).ok()?;
        let name = sysfs.file_name()?.to_str()?.to_owned();
        Some(Self { name, sysfs })
    }

    /// Its number; `None` if it has gone.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        let text = first_line(self.sysfs.join("dev"))?;
        let (major, minor) = text.split_once(':')?;
        Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
    }

    /// The whole disk of a partition; otherwise the device itself.
    #[must_use]
    pub fn whole(&self) -> Self {
        let parent = self.sysfs.parent().filter(|_| self.sysfs.join("partition").exists());
        match parent.and_then(|dir| Some((dir, dir.file_name()?.to_str()?))) {
            Some((sysfs, name)) => Self { name: name.to_owned(), sysfs: sysfs.to_owned() },
            None => self.clone(),
        }
    }

    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        let sectors: u64 = first_line(self.sysfs.join("size"))?.parse().ok()?;
        Some(sectors * 512)
    }

    /// Counters since boot. Source: Documentation/block/stat.rst; sectors are 512 bytes.
    #[must_use]
    pub fn counters(&self) -> Option<DiskCounters> {
        let line = first_line(self.sysfs.join("stat"))?;
        let fields: Vec<u64> =
            line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        Some(DiskCounters {
            reads: *fields.first()?,
            read_bytes: fields.get(2)? * 512,
            writes: *fields.get(4)?,
            write_bytes: fields.get(6)? * 512,
            reading_ms: *fields.get(3)?,
            writing_ms: *fields.get(7)?,
            // From Linux 5.5 on.
            flushing_ms: fields.get(16).copied().unwrap_or(0),
        })
    }

    /// A queue setting of the whole disk, such as `scheduler` or `write_cache`.
    #[must_use]
    pub fn queue(&self, setting: &str) -> Option<String> {
        first_line(self.whole().sysfs.join("queue").join(setting))
    }

    /// The vendor's model name of the disk.
    #[must_use]
    pub fn model(&self) -> Option<String> {
        first_line(self.whole().sysfs.join("device/model"))
    }

    /// The serial number, where the kernel shows it.
    #[must_use]
    pub fn serial(&self) -> Option<String> {
        let whole = self.whole().sysfs;
        ["device/serial", "serial"].iter().find_map(|name| first_line(whole.join(name)))
    }

    /// Underlying files and devices: the file of a loop device, the devices below LVM, RAID or encryption.
    #[must_use]
    pub fn made_of(&self) -> Vec<PathBuf> {
        let whole = self.whole().sysfs;
        let file = first_line(whole.join("loop/backing_file")).map(PathBuf::from);
        let below = fs::read_dir(whole.join("slaves")).into_iter().flatten().flatten();
        let below = below.map(|entry| Path::new("/dev").join(entry.file_name()));
        file.into_iter().chain(below).collect()
    }

    /// Names of devices stacked on this one or its partitions (LVM, RAID, encryption).
    #[must_use]
    pub fn holders(&self) -> Vec<String> {
        let mut names = Vec::new();
        for dir in std::iter::once(self.sysfs.clone()).chain(self.partition_directories()) {
            let entries = fs::read_dir(dir.join("holders")).into_iter().flatten().flatten();
            names.extend(entries.map(|entry| entry.file_name().to_string_lossy().into_owned()));
        }
        names
    }

    /// Names of the partitions.
    #[must_use]
    pub fn partitions(&self) -> Vec<String> {
        let names = self.partition_directories().into_iter();
        names.filter_map(|dir| Some(dir.file_name()?.to_str()?.to_owned())).collect()
    }

    fn partition_directories(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.sysfs).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        paths.filter(|path| path.join("partition").exists()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_without_a_device_has_none() {
        assert_eq!(BlockDevice::under(Path::new("/proc")), None);
        assert_eq!(BlockDevice::under(Path::new("/no such path")), None);
    }
}
