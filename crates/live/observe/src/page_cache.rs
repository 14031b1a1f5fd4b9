//! Measures the CPU times of the page cache, and of the file system of a directory.
//!
//! Invariant: CPU times, so other programs and the disk hardly matter; medians of interleaved rounds.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{fadvise, statvfs};
use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, msync, munmap};
use rustix::time::{ClockId, clock_gettime};
use sim::PageCacheCosts;
use units::Nanos;

/// Bytes of a page.
const PAGE: usize = 4096;
/// Pages of each measurement: 16 MiB, more than the caches of one core.
const PAGES: usize = 4096;
/// Bytes of those pages: a part of the file.
const PART: u64 = (PAGES * PAGE) as u64;
/// Bytes of a small access.
const FEW: usize = 128;
/// Number of rounds; medians are used.
const ROUNDS: usize = 5;

/// Measures on a new file in `directory`, which stays there. Takes about 1 s.
///
/// # Errors
/// The file system has no room for 64 MiB, or cannot map files.
pub fn page_cache_costs(directory: &Path) -> io::Result<PageCacheCosts> {
    let path = directory.join("page-cache.data");
    // Without it a write to the mapping would end this program.
    let found = statvfs(directory)?;
    if found.f_bavail * found.f_frsize < 4 * PART {
        return Err(io::ErrorKind::StorageFull.into());
    }
    let rounds: io::Result<Vec<PageCacheCosts>> = (0..ROUNDS).map(|_| round(&path)).collect();
    let rounds = rounds?;
    let median = |of: fn(&PageCacheCosts) -> Nanos| {
        let mut times: Vec<Nanos> = rounds.iter().map(of).collect();
        times.sort_unstable();
        times[ROUNDS / 2]
    };
    Ok(PageCacheCosts {
        read: median(|one| one.read),
        write: median(|one| one.write),
        kib: median(|one| one.kib),
        missed: median(|one| one.missed),
        dirtied: median(|one| one.dirtied),
        allocated: median(|one| one.allocated),
        fault: median(|one| one.fault),
        fault_missed: median(|one| one.fault_missed),
        fault_dirtied: median(|one| one.fault_dirtied),
        fault_allocated: median(|one| one.fault_allocated),
        written_back: median(|one| one.written_back),
    })
}

fn round(path: &Path) -> io::Result<PageCacheCosts> {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
    let mut page = [1_u8; PAGE];
    let appended = each(|at| file.write_all_at(&page, at))?;
    let write_few = each(|at| file.write_all_at(&page[..FEW], at))?;
    let write_page = each(|at| file.write_all_at(&page, at))?;
    file.sync_all()?;
    let write_clean = each(|at| file.write_all_at(&page, at))?;
    let read_few = each(|at| file.read_exact_at(&mut page[..FEW], at))?;
    let read_page = each(|at| file.read_exact_at(&mut page, at))?;
    file.set_len(4 * PART)?;
    file.sync_all()?;
    // Like a page from the device, a hole needs memory and a place in the page cache.
    fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
    let read_hole = each(|at| file.read_exact_at(&mut page, 2 * PART + at))?;
    let map = Mapping::new(&file, 4 * PAGES * PAGE)?;
    let fault = each(|at| map.read(at))?;
    map.forget()?;
    let fault_clean = each(|at| map.write(at))?;
    let fault_new = each(|at| map.write(PART + at))?;
    let fault_hole = each(|at| map.read(3 * PART + at))?;
    map.flush()?;
    each(|at| map.write(at))?;
    let began = cpu_time();
    map.flush()?;
    let flush = (cpu_time() - began) / PAGES as u64;
    let kib = read_page.since(read_few).get() * 1024 / (PAGE - FEW) as u64;
    let without_copy = |time: Nanos| time.since(Nanos(kib * FEW as u64 / 1024));
    Ok(PageCacheCosts {
        read: without_copy(read_few),
        write: without_copy(write_few),
        kib: Nanos(kib),
        missed: read_hole.since(read_page),
        dirtied: write_clean.since(write_page),
        allocated: appended.since(write_page),
        fault,
        fault_missed: fault_hole.since(fault),
        fault_dirtied: fault_clean.since(fault),
        fault_allocated: fault_new.since(fault),
        written_back: Nanos(flush),
    })
}

/// CPU time of this thread, ns.
fn cpu_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Mean CPU time of something that is done at each page.
fn each(mut act: impl FnMut(u64) -> io::Result<()>) -> io::Result<Nanos> {
    let began = cpu_time();
    for page in 0..PAGES {
        act((page * PAGE) as u64)?;
    }
    Ok(Nanos((cpu_time() - began) / PAGES as u64))
}

/// A file that is mapped for random accesses.
struct Mapping {
    start: *mut std::ffi::c_void,
    size: usize,
}

impl Mapping {
    fn new(file: &File, size: usize) -> io::Result<Self> {
        let kinds = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, which nobody else uses.
        let start = unsafe { mmap(std::ptr::null_mut(), size, kinds, MapFlags::SHARED, file, 0)? };
        let map = Self { start, size };
        map.advise(Advice::Random)?;
        Ok(map)
    }

    fn advise(&self, advice: Advice) -> io::Result<()> {
        // SAFETY: our mapping; its contents are in the file.
        unsafe { madvise(self.start, self.size, advice)? };
        Ok(())
    }

    /// Removes it from the page table.
    fn forget(&self) -> io::Result<()> {
        self.advise(Advice::LinuxDontNeed)
    }

    fn flush(&self) -> io::Result<()> {
        // SAFETY: our mapping.
        unsafe { msync(self.start, self.size, MsyncFlags::SYNC)? };
        Ok(())
    }

    fn read(&self, at: u64) -> io::Result<()> {
        // SAFETY: within the mapping, whose file is as long and ours.
        unsafe { self.start.cast::<u8>().add(at as usize).read_volatile() };
        Ok(())
    }

    fn write(&self, at: u64) -> io::Result<()> {
        // SAFETY: as in `read`.
        unsafe { self.start.cast::<u8>().add(at as usize).write_volatile(2) };
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing refers to it any more.
        let _ = unsafe { munmap(self.start, self.size) };
    }
}
