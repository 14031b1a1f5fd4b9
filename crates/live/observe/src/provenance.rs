//! Facts of the host: enough to explain a figure years later.
//!
//! Invariant: an unreadable fact is the word "unknown".

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::{BlockDevice, first_line};

const UNKNOWN: &str = "unknown";

/// Facts about the host, as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// Version of Crosspoint.
    pub tool: String,
    /// How it was built.
    pub build: String,
    /// Kernel name, release and version.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// Online CPUs.
    pub cpus: String,
    /// Frequency governor.
    pub governor: String,
    /// The kernel's clock source.
    pub clock_source: String,
    /// Total memory.
    pub memory: String,
    /// The hypervisor, if any.
    pub virtualised: String,
    /// Transparent huge pages.
    pub huge_pages: String,
    /// Load average when the run began.
    pub load: String,
}

/// Facts about the storage under one stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageFacts {
    /// File-system type.
    pub file_system: String,
    /// Mount options.
    pub mount_options: String,
    /// Kernel name of the device.
    pub device: String,
    /// The vendor's model name of the device.
    pub device_model: String,
    /// I/O scheduler.
    pub scheduler: String,
    /// `write back` or `write through`.
    pub write_cache: String,
    /// Requests the queue holds.
    pub queue_requests: String,
    /// Whether it spins.
    pub rotational: String,
}

fn or_unknown(fact: Option<String>) -> String {
    fact.unwrap_or_else(|| UNKNOWN.to_owned())
}

fn field_of(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Memory that is available without swapping (`MemAvailable`, proc(5)); none where the kernel does not say.
#[must_use]
pub fn memory_available() -> Option<Bytes> {
    let text = field_of("/proc/meminfo", "MemAvailable")?;
    let kib: u64 = text.strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(kib << 10))
}

impl Provenance {
    /// Reads the facts. `tool` and `build` come from the caller.
    #[must_use]
    pub fn read(tool: &str, build: &str) -> Self {
        let kernel = ["ostype", "osrelease", "version"]
            .map(|name| or_unknown(first_line(format!("/proc/sys/kernel/{name}"))));
        let hypervisor = fs::read_to_string("/proc/cpuinfo").ok().map(|text| {
            let flags = text.lines().find(|line| line.starts_with("flags"));
            let found = flags.is_some_and(|line| line.split(' ').any(|flag| flag == "hypervisor"));
            if found { "yes".to_owned() } else { "no hypervisor flag".to_owned() }
        });
        Self {
            tool: tool.to_owned(),
            build: build.to_owned(),
            kernel: kernel.join(" "),
            cpu: or_unknown(field_of("/proc/cpuinfo", "model name")),
            cpus: or_unknown(first_line("/sys/devices/system/cpu/online")),
            governor: or_unknown(first_line(
                "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            )),
            clock_source: or_unknown(first_line(
                "/sys/devices/system/clocksource/clocksource0/current_clocksource",
            )),
            memory: or_unknown(field_of("/proc/meminfo", "MemTotal")),
            virtualised: or_unknown(hypervisor),
            huge_pages: or_unknown(first_line("/sys/kernel/mm/transparent_hugepage/enabled")),
            load: or_unknown(first_line("/proc/loadavg")),
        }
    }

    /// Name and value of every fact, in order.
    #[must_use]
    pub fn rows(&self) -> Vec<(&'static str, &str)> {
        vec![
            ("Crosspoint", &self.tool),
            ("Build", &self.build),
            ("Kernel", &self.kernel),
            ("CPU", &self.cpu),
            ("Online CPUs", &self.cpus),
            ("Governor", &self.governor),
            ("Clock source", &self.clock_source),
            ("Memory", &self.memory),
            ("Virtualised", &self.virtualised),
            ("Huge pages", &self.huge_pages),
            ("Load at start", &self.load),
        ]
    }
}

impl StorageFacts {
    /// Reads the facts of the storage under `path`.
    #[must_use]
    pub fn read(path: &Path) -> Self {
        let is_device = fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device());
        // The directory of device files says nothing about the device.
        let mount = if is_device {
            Some(("none (the device itself)".to_owned(), "none".to_owned()))
        } else {
            mount_of(path)
        };
        let device = BlockDevice::under(path);
        // A journal is a property of the file system, not a mount option.
        let bare = |kind: &str| kind == "ext4" && !has_journal(device.as_ref());
        let mount = mount.map(|(kind, options)| match bare(&kind) {
            true => (BARE_EXT4.to_owned(), options),
            false => (kind, options),
        });
        let queue =
            |setting: &str| or_unknown(device.as_ref().and_then(|device| device.queue(setting)));
        Self {
            file_system: or_unknown(mount.as_ref().map(|(kind, _)| kind.clone())),
            mount_options: or_unknown(mount.map(|(_, options)| options)),
            device: or_unknown(device.as_ref().map(|device| device.name.clone())),
            device_model: or_unknown(device.as_ref().and_then(BlockDevice::model)),
            scheduler: queue("scheduler"),
            write_cache: queue("write_cache"),
            queue_requests: queue("nr_requests"),
            rotational: queue("rotational"),
        }
    }

    /// Whether its ext4 has a journal; `None` for other file systems.
    #[must_use]
    pub fn ext4_journal(&self) -> Option<bool> {
        match self.file_system.as_str() {
            BARE_EXT4 => Some(false),
            "ext4" => Some(true),
            _ => None,
        }
    }

    /// Name and value of every fact, in order.
    #[must_use]
    pub fn rows(&self) -> Vec<(&'static str, &str)> {
        vec![
            ("File system", &self.file_system),
            ("Mount options", &self.mount_options),
            ("Device", &self.device),
            ("Device model", &self.device_model),
            ("Scheduler", &self.scheduler),
            ("Write cache", &self.write_cache),
            ("Queue requests", &self.queue_requests),
            ("Rotational", &self.rotational),
        ]
    }
}

/// File system of a mount without a journal.
const BARE_EXT4: &str = "ext4 without a journal";

/// Whether the ext4 on a device has a journal: its thread has a folder of statistics. Assumed if the device
/// is unknown, or no statistics are visible.
fn has_journal(device: Option<&BlockDevice>) -> bool {
    let Some(device) = device else { return true };
    let Ok(entries) = fs::read_dir("/proc/fs/jbd2") else { return true };
    // A partition's name begins with its disk's.
    let mut names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.any(|name| name.starts_with(&device.name))
}

/// Type and options of the mount that holds `path`: the longest mount point that leads to it.
fn mount_of(path: &Path) -> Option<(String, String)> {
    let path = fs::canonicalize(path).ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mut best: Option<(usize, String, String)> = None;
    for line in mounts.lines() {
        let mut words = line.split(' ');
        let (_, point) = (words.next()?, words.next()?.replace("\\040", " "));
        let (kind, options) = (words.next()?, words.next()?);
        let longer = best.as_ref().is_none_or(|(length, ..)| point.len() >= *length);
        if path.starts_with(&point) && longer {
            best = Some((point.len(), kind.to_owned(), options.to_owned()));
        }
    }
    best.map(|(_, kind, options)| (kind, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_unknown() {
        let facts = StorageFacts::read(Path::new("/no such path"));
        assert!(facts.rows().iter().all(|(_, value)| *value == "unknown"), "{facts:?}");
        assert_eq!(StorageFacts::read(Path::new("/proc")).file_system, "proc");
    }

    #[test]
    fn the_kernel_is_known() {
        let facts = Provenance::read("0.0.0", "test");
        assert!(facts.kernel.starts_with("Linux "), "{}", facts.kernel);
        assert!(facts.rows().iter().all(|(_, value)| !value.is_empty()));
    }
}
