//! CPU times of the page cache and of a file system on top of it.

use serde::{Deserialize, Serialize};
use units::Nanos;

/// CPU times of accesses to files, without those of device requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageCacheCosts {
    /// A read of a cached page.
    pub read: Nanos,
    /// A write to a dirty page.
    pub write: Nanos,
    /// Copying a KiB in either.
    pub kib: Nanos,
    /// In addition, for each page that is read from the device: finding memory for it.
    pub missed: Nanos,
    /// In addition, for each clean page that is written.
    pub dirtied: Nanos,
    /// In addition, for each page that is new in its file.
    pub allocated: Nanos,
    /// Mapping a cached page by a page fault, which maps up to 16 at once.
    pub fault: Nanos,
    /// In addition, if it reads the page from the device.
    pub fault_missed: Nanos,
    /// In addition, if it writes to a clean page.
    pub fault_dirtied: Nanos,
    /// In addition, if it writes to a page that is new in its file.
    pub fault_allocated: Nanos,
    /// Writing back a page for a flush.
    pub written_back: Nanos,
}

impl PageCacheCosts {
    /// A virtual machine with two CPUs (AMD EPYC, Linux 6.18, ext4 without a journal, 2026), measured by
    /// `crosspoint calibrate`; `missed` and `fault_missed` by a C program that reads holes as it does.
    pub const VM_2026: Self = Self {
        read: Nanos(920),
        write: Nanos(1_140),
        kib: Nanos(109),
        missed: Nanos(1_700),
        dirtied: Nanos(430),
        allocated: Nanos(2_090),
        fault: Nanos(360),
        fault_missed: Nanos(3_500),
        fault_dirtied: Nanos(1_840),
        fault_allocated: Nanos(4_390),
        written_back: Nanos(1_490),
    };

    /// All its times.
    #[must_use]
    pub const fn times(&self) -> [Nanos; 11] {
        [
            self.read, self.write, self.kib, self.missed, self.dirtied, self.allocated, self.fault,
            self.fault_missed, self.fault_dirtied, self.fault_allocated, self.written_back,
        ]
    }

    /// Time to copy `bytes`.
    #[must_use]
    pub const fn copy(&self, bytes: u64) -> Nanos {
        Nanos(self.kib.0 * bytes / 1024)
    }
}
