//! Limits on a process while a value lives: memory including its page cache, and device rates.
//!
//! Memory: `memory.limit_in_bytes` of version 1 or `memory.max` of version 2. Pages cached by another group
//! are charged to that one, so files must be evicted first. Devices: `blkio.throttle` or `io.max`; version 1
//! covers only the process's own submissions (direct I/O and its flushes). Invariant: all limits of one value
//! apply to the same processes.

use std::fs::File;
use std::path::Path;

use units::{Bytes, Rate};

use crate::groups::{Group, Hierarchy, Version};
use crate::{Journal, StackError};

/// Rate limits of a process on a device, per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceRates {
    /// Read requests.
    pub reads: Option<Rate>,
    /// Write requests.
    pub writes: Option<Rate>,
    /// Bytes read.
    pub read_bytes: Option<Bytes>,
    /// Bytes written.
    pub write_bytes: Option<Bytes>,
}

impl DeviceRates {
    /// Each rate that is set: the file of version 1, the key of version 2, the number.
    fn set(&self) -> Vec<(&'static str, &'static str, u64)> {
        let rate = |rate: Option<Rate>| rate.map(Rate::get);
        let bytes = |bytes: Option<Bytes>| bytes.map(Bytes::get);
        let all = [
            ("blkio.throttle.read_iops_device", "riops", rate(self.reads)),
            ("blkio.throttle.write_iops_device", "wiops", rate(self.writes)),
            ("blkio.throttle.read_bps_device", "rbps", bytes(self.read_bytes)),
            ("blkio.throttle.write_bps_device", "wbps", bytes(self.write_bytes)),
        ];
        all.into_iter().filter_map(|(one, two, value)| Some((one, two, value?))).collect()
    }
}

/// Requested limits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted<'a> {
    /// Memory, page cache included.
    pub memory: Option<Bytes>,
    /// The device, and the rates on it.
    pub device: Option<(&'a Path, DeviceRates)>,
}

/// The limits; dropping them lifts them.
#[derive(Debug, Default)]
pub struct Limits {
    groups: Vec<Group>,
    memory: Option<Bytes>,
}

/// Memory counters of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// The limit as rounded by the kernel.
    pub limit: Bytes,
    /// Peak use; `None` if the kernel does not report it.
    pub peak: Option<Bytes>,
    /// Number of times that the limit was reached.
    pub met: Option<u64>,
    /// Processes killed by the kernel because of it.
    pub ended: Option<u64>,
}

const MEMORY: (&str, &str) = ("memory", "memory");
const DEVICE: (&str, &str) = ("blkio", "io");

fn missing(what: &str, next: &str) -> StackError {
    StackError::refused(
        &format!("{what} limit"),
        format!("no control group hierarchy has the {what} controller"),
        next,
    )
}

impl Limits {
    /// Version of the control groups that can limit memory, if any.
    #[must_use]
    pub fn memory_controller() -> Option<u32> {
        let found = Hierarchy::of(MEMORY.0, MEMORY.1)?;
        Some(if found.version == Version::One { 1 } else { 2 })
    }

    /// Returns the cgroup version that can limit block devices on this host, if any.
    #[must_use]
    pub fn device_controller() -> Option<u32> {
        let found = Hierarchy::of(DEVICE.0, DEVICE.1)?;
        Some(if found.version == Version::One { 1 } else { 2 })
    }

    /// Creates limits without processes.
    ///
    /// # Errors
    /// Without the controllers, or the right to create groups.
    pub fn make(journal: &Journal, wanted: &Wanted<'_>) -> Result<Self, StackError> {
        let mut made = Self { groups: Vec::new(), memory: wanted.memory };
        if let Some(limit) = wanted.memory {
            let next = "memory = \"unlimited\", or run under a kernel with it";
            let found = Hierarchy::of(MEMORY.0, MEMORY.1).ok_or_else(|| missing("memory", next))?;
            let group = made.group(journal, found)?;
            match group.hierarchy.version {
                Version::One => group.write("memory.limit_in_bytes", &limit.get().to_string())?,
                Version::Two => {
                    group.write("memory.max", &limit.get().to_string())?;
                    group.write("memory.swap.max", "0")?;
                }
            }
        }
        if let Some((device, rates)) = wanted.device {
            let next = "leave out the limit of the stack, or run under a kernel with it";
            let found = Hierarchy::of(DEVICE.0, DEVICE.1).ok_or_else(|| missing("block", next))?;
            let number = device_number(device)?;
            let group = made.group(journal, found)?;
            for (one, two, value) in rates.set() {
                match group.hierarchy.version {
                    Version::One => group.write(one, &format!("{number} {value}"))?,
                    Version::Two => group.write("io.max", &format!("{number} {two}={value}"))?,
                }
            }
        }
        Ok(made)
    }

    /// The cgroup in a hierarchy: in version 2 one holds all limits, since a process is in one cgroup.
    fn group(&mut self, journal: &Journal, wanted: Hierarchy) -> Result<&Group, StackError> {
        let place = match self.groups.iter().position(|group| group.hierarchy == wanted) {
            Some(place) => place,
            None => {
                self.groups.push(Group::make(journal, wanted)?);
                self.groups.len() - 1
            }
        };
        Ok(&self.groups[place])
    }

    /// Limits `process` from now on. The kernel kills it if it needs more memory.
    ///
    /// # Errors
    /// If it has ended.
    pub fn hold(&self, process: u32) -> Result<(), StackError> {
        self.groups.iter().try_for_each(|group| group.hold(process))
    }

    /// One file per group, to which a new process writes 0 before exec: earlier allocations would not count.
    ///
    /// # Errors
    /// If one cannot be opened.
    pub fn doors(&self) -> Result<Vec<File>, StackError> {
        self.groups.iter().map(Group::door).collect()
    }

    /// Memory counters so far; `None` if memory is not limited.
    #[must_use]
    pub fn used(&self) -> Option<MemoryUse> {
        let limit = self.memory?;
        let group = self.groups.first()?;
        let number = |file: &str| group.read(file)?.trim().parse::<u64>().ok();
        let field = |file: &str, name: &str| {
            let text = group.read(file)?;
            let mut fields = text.lines().filter_map(|line| line.split_once(' '));
            fields.find(|(key, _)| *key == name)?.1.trim().parse::<u64>().ok()
        };
        let (peak, met, ended) = match group.hierarchy.version {
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
        Some(MemoryUse { limit, peak: peak.map(Bytes), met, ended })
    }
}

/// Number of a block device in control group syntax.
fn device_number(device: &Path) -> Result<String, StackError> {
    let metadata = std::fs::metadata(device).map_err(StackError::io("look at", device))?;
    let number = std::os::unix::fs::MetadataExt::rdev(&metadata);
    Ok(format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rates_that_are_set_are_written() {
        let rates = DeviceRates { reads: Some(Rate(100)), ..DeviceRates::default() };
        assert_eq!(rates.set(), [("blkio.throttle.read_iops_device", "riops", 100)]);
    }
}
