//! Files on the drive that are mapped into memory.
//!
//! A page that is not in the simulated page cache is not in the page table: touching it raises SIGBUS
//! (userfaultfd(2), minor faults), whose handler waits for the simulated read and then maps the page. In a
//! mapping for writing, a page is write-protected until the first write to it, which makes it dirty, and
//! again when it is written back. The files have to be in a memory file system.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64};

use libc::{iovec, off_t, size_t};
use vtime::wire::{CLEANED, Call, access};

use crate::descriptors::file_of;
use crate::dispatch;
use crate::real::{answer, errno, kernel, same, set_errno, system_call};
use crate::regions::{MAPS, Map, Mapped, PAGE, REGIONS, map_of, note, replaced};
use crate::turn::{Turn, process, ticks};

/// Ticks between a fault and its handler: a cost of the emulation, not of the program.
static OVERHEAD: AtomicU64 = AtomicU64::new(0);
/// The userfaultfd; -1 before the first mapping.
static FAULT_DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);
/// The kernel can write-protect pages of memory file systems.
static PROTECTS: AtomicBool = AtomicBool::new(false);

// linux/userfaultfd.h
const UFFD_USER_MODE_ONLY: i64 = 1;
const UFFD_API: u64 = 0xAA;
/// Signals, and minor faults of memory file systems.
const FEATURES: u64 = (1 << 7) | (1 << 10);
/// Write protection and missing pages of memory file systems; the last one marks Linux 6.6, because
/// `CONTINUE_MODE_PROTECT` (6.4) has no feature bit.
const WRITE_FEATURES: u64 = (1 << 0) | (1 << 5) | (1 << 12) | (1 << 14);
const MODE_MISSING: u64 = 1 << 0;
const MODE_PROTECT: u64 = 1 << 1;
const MODE_MINOR: u64 = 1 << 2;
const UFFDIO_API: i64 = 0xC018_AA3F;
const UFFDIO_REGISTER: i64 = 0xC020_AA00;
const UFFDIO_ZEROPAGE: i64 = 0xC020_AA04;
const UFFDIO_WRITEPROTECT: i64 = 0xC018_AA06;
const UFFDIO_CONTINUE: i64 = 0xC020_AA07;
const WRITEPROTECT_MODE_PROTECT: u64 = 1 << 0;
const CONTINUE_MODE_PROTECT: u64 = 1 << 1;
/// Bit of a page fault's error code: a write.
const FAULT_WRITE: i64 = 1 << 1;

fn control<const N: usize>(request: i64, words: &mut [u64; N]) -> i64 {
    let descriptor = i64::from(FAULT_DESCRIPTOR.load(Relaxed));
    system_call(libc::SYS_ioctl, [descriptor, request, words.as_mut_ptr() as i64, 0, 0, 0])
}

/// Opens the descriptor for faults and installs the handler, once.
fn prepare() -> bool {
    if FAULT_DESCRIPTOR.load(Relaxed) >= 0 {
        return true;
    }
    let flags = i64::from(libc::O_CLOEXEC) | UFFD_USER_MODE_ONLY;
    let opened = system_call(libc::SYS_userfaultfd, [flags, 0, 0, 0, 0, 0]);
    if opened < 0 {
        return false;
    }
    FAULT_DESCRIPTOR.store(opened as c_int, Relaxed);
    let flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
    let installed = dispatch::install(libc::SIGBUS, faulted as *const () as usize, flags);
    let protects = control(UFFDIO_API, &mut [UFFD_API, FEATURES | WRITE_FEATURES, 0]) == 0;
    PROTECTS.store(protects, Relaxed);
    let faults = protects || control(UFFDIO_API, &mut [UFFD_API, FEATURES, 0]) == 0;
    let ready = faults && installed;
    if ready {
        OVERHEAD.store(measure(), Relaxed);
    }
    ready
}

/// Measures the ticks of a fault with its handler: the smallest of several, on our own memory.
fn measure() -> u64 {
    const SAMPLES: usize = 32;
    let made = system_call(libc::SYS_memfd_create, [c"faults".as_ptr() as i64, 0, 0, 0, 0, 0]);
    let size = (SAMPLES * PAGE) as i64;
    system_call(libc::SYS_ftruncate, [made, size, 0, 0, 0, 0]);
    // A byte of each page; a thread's stack may be too small for more.
    for at in (0..size).step_by(PAGE) {
        system_call(libc::SYS_pwrite64, [made, c"".as_ptr() as i64, 1, at, 0, 0]);
    }
    let kinds = [i64::from(libc::PROT_READ), i64::from(libc::MAP_SHARED)];
    let start = system_call(libc::SYS_mmap, [0, size, kinds[0], kinds[1], made, 0]);
    let mut least = u64::MAX;
    if start > 0 && control(UFFDIO_REGISTER, &mut [start as u64, size as u64, MODE_MINOR, 0]) == 0 {
        // The handler finds the map here; it does not wait for a turn because this thread is inside already.
        let map = &REGIONS[MAPS - 1];
        map.start.store(start as usize, Relaxed);
        map.end.store(start as usize + SAMPLES * PAGE, Relaxed);
        map.file.store(u64::MAX, Relaxed);
        for page in 0..SAMPLES {
            let began = ticks();
            // SAFETY: within the mapping.
            unsafe { std::ptr::read_volatile((start as usize + page * PAGE) as *const u8) };
            least = least.min(ticks().wrapping_sub(began));
        }
        map.file.store(0, Relaxed);
    }
    system_call(libc::SYS_munmap, [start, size, 0, 0, 0, 0]);
    system_call(libc::SYS_close, [made, 0, 0, 0, 0, 0]);
    if least == u64::MAX { 0 } else { least }
}

/// The userfaultfd of the parent does not serve this process.
pub fn begin_child() {
    FAULT_DESCRIPTOR.store(-1, Relaxed);
}

extern "C" fn faulted(_: c_int, about: *mut libc::siginfo_t, context: *mut c_void) {
    let before = errno();
    // SAFETY: the kernel fills it.
    let page = unsafe { (*about).si_addr() } as usize & !(PAGE - 1);
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: as above.
    let error = unsafe { (*context).uc_mcontext.gregs[libc::REG_ERR as usize] };
    let Some(map) = map_of(page) else {
        // Not ours: the next fault ends the program. SAFETY: sets the default action.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
        return;
    };
    let guarded = map.writes.load(Relaxed);
    let writes = guarded && error & FAULT_WRITE != 0;
    let turn = Turn::enter_late(OVERHEAD.load(Relaxed));
    if let Some(turn) = &turn {
        turn.tick();
        let offset = map.offset.load(Relaxed) + (page - map.start.load(Relaxed)) as u64;
        let write = if writes { access::WRITE } else { 0 };
        let flags = map.flags.load(Relaxed) | access::MAPPED | write;
        turn.call(Call::Access, &[map.file.load(Relaxed), offset, PAGE as u64, flags]);
        unmap(turn);
    }
    if !show(page as u64, guarded, writes) {
        // Beyond the end of the file: the next fault ends the program. SAFETY: sets the default action.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    }
    set_errno(before);
    drop(turn);
}

/// Puts a page into the page table; `guarded`: write-protected unless it is for a write. Returns whether the
/// access can be tried again.
fn show(page: u64, guarded: bool, writes: bool) -> bool {
    const SIZE: u64 = PAGE as u64;
    let again = |code: i64| [0, -i64::from(libc::EAGAIN)].contains(&code);
    let protect = if guarded && !writes { CONTINUE_MODE_PROTECT } else { 0 };
    match control(UFFDIO_CONTINUE, &mut [page, SIZE, protect, 0]) {
        // Another thread was faster, or the page is there and write-protected.
        code if code == -i64::from(libc::EEXIST) => {
            !writes || again(control(UFFDIO_WRITEPROTECT, &mut [page, SIZE, 0]))
        }
        // A hole.
        code if guarded && code == -i64::from(libc::EFAULT) => {
            let made = control(UFFDIO_ZEROPAGE, &mut [page, SIZE, 0, 0]);
            let protect = &mut [page, SIZE, WRITEPROTECT_MODE_PROTECT];
            (made == -i64::from(libc::EEXIST) || again(made))
                && (writes || again(control(UFFDIO_WRITEPROTECT, protect)))
        }
        code => again(code),
    }
}

/// Unmaps the pages that the last access evicted, and write-protects those that were written back. The access
/// ends with the last call.
pub fn unmap(turn: &Turn) {
    while turn.argument(0) > 0 {
        forget(turn, turn.argument(0) as usize);
        turn.call(Call::Evicted, &[]);
    }
}

fn forget(turn: &Turn, count: usize) {
    for pair in 0..count {
        let (file, at) = (turn.argument(1 + 2 * pair), turn.argument(2 + 2 * pair));
        let cleaned = at & CLEANED != 0;
        let own = |map: &&Map| map.file.load(Relaxed) == file;
        for map in REGIONS.iter().filter(own) {
            let within = (at & !CLEANED).checked_sub(map.offset.load(Relaxed));
            let page = within.map(|within| map.start.load(Relaxed) + within as usize);
            let Some(page) = page.filter(|page| *page < map.end.load(Relaxed)) else { continue };
            if !cleaned && !map.keeps.load(Relaxed) {
                let advice = i64::from(libc::MADV_DONTNEED);
                system_call(libc::SYS_madvise, [page as i64, PAGE as i64, advice, 0, 0, 0]);
            } else if cleaned && map.writes.load(Relaxed) {
                let protect = [page as u64, PAGE as u64, WRITEPROTECT_MODE_PROTECT];
                control(UFFDIO_WRITEPROTECT, &mut { protect });
            }
        }
    }
}

/// Touches the pages of a buffer, which the kernel is to fill if `fills`: it cannot handle their faults.
fn touch(start: usize, length: usize, fills: bool) -> bool {
    let Some(map) = map_of(start) else { return false };
    let writes = fills && map.writes.load(Relaxed);
    for page in (start..start + length).step_by(PAGE).chain([start + length - 1]) {
        if writes {
            // SAFETY: the caller's buffer, which it may write to; the value stays.
            let byte = unsafe { AtomicU8::from_ptr(page as *mut u8) };
            // `fetch_or(0)` would be compiled to a load.
            let value = byte.load(Relaxed);
            let _ = byte.compare_exchange(value, value, Relaxed, Relaxed);
        } else {
            // SAFETY: the caller's buffer.
            unsafe { std::ptr::read_volatile(page as *const u8) };
        }
    }
    true
}

/// One part of a vectored call, if the program can read it.
fn part_at(place: i64) -> Option<iovec> {
    let mut part = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let size = size_of::<iovec>();
    let to = iovec { iov_base: (&raw mut part).cast(), iov_len: size };
    let from = iovec { iov_base: place as *mut c_void, iov_len: size };
    let (to, from) = ((&raw const to) as i64, (&raw const from) as i64);
    let own = i64::from(process());
    let copied = system_call(libc::SYS_process_vm_readv, [own, to, 1, from, 1, 0]);
    (copied == size as i64).then_some(part)
}

/// Touches pages of a call's buffers that are in mapped files; returns whether there are any that were not
/// accessible, so that the call can be repeated.
pub fn touch_buffers(number: i64, arguments: [i64; 6], fills: bool) -> bool {
    let [_, data, size, ..] = arguments;
    let vectors = [libc::SYS_readv, libc::SYS_writev, libc::SYS_preadv, libc::SYS_pwritev];
    if !vectors.contains(&number) {
        return touch(data as usize, size.max(1) as usize, fills);
    }
    let count = size.clamp(0, libc::UIO_MAXIOV.into());
    let parts = (0..count).filter_map(|part| part_at(data + part * size_of::<iovec>() as i64));
    parts.filter(|part| touch(part.iov_base as usize, part.iov_len.max(1), fills)).count() > 0
}

/// Maps a file, and has its page faults reported; returns what mmap(2) returned. An error means that faults
/// cannot be reported, and nothing is mapped.
fn watched(arguments: [i64; 6], (length, mode): (usize, u64)) -> Result<i64, c_int> {
    let start = system_call(libc::SYS_mmap, arguments);
    if (-4095..0).contains(&start) {
        return Ok(start);
    }
    let mut range = [start as u64, length as u64, mode, 0];
    let answer = control(UFFDIO_REGISTER, &mut range);
    if answer == 0 {
        return Ok(start);
    }
    system_call(libc::SYS_munmap, [start, length as i64, 0, 0, 0, 0]);
    Err(-answer as c_int)
}

/// Maps a file of the drive; ends the simulation if this kind of mapping is not simulated.
fn map_file(turn: Turn, (file, flags): (u64, u64), arguments: [i64; 6]) -> i64 {
    let [_, size, protection, kind, _, offset] = arguments;
    if kind & i64::from(libc::MAP_SYNC) != 0 {
        // Only persistent memory can be mapped so.
        return -i64::from(libc::EOPNOTSUPP);
    }
    let may_write = protection & i64::from(libc::PROT_WRITE) != 0;
    let writes = may_write && kind & i64::from(libc::MAP_SHARED) != 0;
    if !prepare() {
        turn.uncovered("mmap of a file on the modelled drive (needs userfaultfd)");
        return -i64::from(libc::ENODEV);
    }
    if writes && !PROTECTS.load(Relaxed) {
        turn.uncovered("mmap for writing of a file on the modelled drive (needs Linux 6.6)");
        return -i64::from(libc::ENODEV);
    }
    let length = (size as usize).next_multiple_of(PAGE);
    let guard = if writes { MODE_PROTECT | MODE_MISSING } else { 0 };
    let start = match watched(arguments, (length, MODE_MINOR | guard)) {
        Err(libc::EPERM) if !may_write => {
            // Faults of a shared mapping whose file is open for reading alone cannot be handled, but those
            // of a private one can. A program that only reads sees no difference.
            let mut private = arguments;
            private[3] = (kind & !i64::from(libc::MAP_TYPE)) | i64::from(libc::MAP_PRIVATE);
            watched(private, (length, MODE_MINOR))
        }
        other => other,
    };
    let Ok(start) = start else {
        turn.uncovered(
            "mmap of a file outside of a memory file system (use --directory /dev/shm/...)",
        );
        return -i64::from(libc::ENODEV);
    };
    if (-4095..0).contains(&start) {
        return start;
    }
    drop(turn);
    if kind & i64::from(libc::MAP_FIXED) != 0 {
        replaced(start as usize, length);
    }
    let end = start as usize + length;
    let flags = flags & access::RANDOM;
    let keeps = may_write && !writes;
    let mapped = Mapped { file, offset: offset as u64, flags, writes, keeps };
    note(start as usize..end, mapped);
    start
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    place: *mut c_void,
    size: size_t,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: off_t,
) -> *mut c_void {
    let kinds = [i64::from(protection), i64::from(flags), i64::from(descriptor)];
    let arguments = [place as i64, size as i64, kinds[0], kinds[1], kinds[2], offset];
    let file = file_of(descriptor).filter(|_| flags & libc::MAP_ANONYMOUS == 0);
    if let Some((file, turn)) = file.and_then(|file| Some((file, Turn::enter_file()?))) {
        return answer(map_file(turn, file, arguments)) as *mut c_void;
    }
    let mapped = answer(system_call(libc::SYS_mmap, arguments));
    if mapped != -1 && flags & libc::MAP_FIXED != 0 {
        replaced(place as usize, size);
    }
    mapped as *mut c_void
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(place: *mut c_void, size: size_t) -> c_int {
    let code =
        answer(system_call(libc::SYS_munmap, [place as i64, size as i64, 0, 0, 0, 0])) as c_int;
    if code == 0 {
        replaced(place as usize, size);
    }
    code
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(place: *mut c_void, size: size_t, advice: c_int) -> c_int {
    if [libc::MADV_RANDOM, libc::MADV_NORMAL, libc::MADV_SEQUENTIAL].contains(&advice) {
        let flags = if advice == libc::MADV_RANDOM { access::RANDOM } else { 0 };
        let own = |map: &&Map| map.start.load(Relaxed) == place as usize;
        REGIONS.iter().filter(own).for_each(|map| map.flags.store(flags, Relaxed));
    }
    let arguments = [place as i64, size as i64, i64::from(advice), 0, 0, 0];
    answer(system_call(libc::SYS_madvise, arguments)) as c_int
}

/// Like fdatasync for a mapping. Without `MS_SYNC` nothing happens now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msync(place: *mut c_void, size: size_t, flags: c_int) -> c_int {
    let own = map_of(place as usize).filter(|map| map.writes.load(Relaxed));
    let own = own.map(|map| {
        let offset = map.offset.load(Relaxed) as usize + place as usize - map.start.load(Relaxed);
        let pages = offset / PAGE..(offset + size).div_ceil(PAGE);
        [map.file.load(Relaxed), 0, pages.start as u64, pages.end as u64]
    });
    let Some((range, turn)) = own.and_then(|range| Some((range, Turn::enter_file()?))) else {
        let arguments = [place as i64, size as i64, i64::from(flags), 0, 0, 0];
        return answer(system_call(libc::SYS_msync, arguments)) as c_int;
    };
    turn.tick();
    if flags & libc::MS_SYNC != 0 {
        turn.call(Call::Sync, &range);
        unmap(&turn);
    }
    0
}

/// Ends the simulation if a range contains a part of a mapped file of the drive.
fn refuse<T>(name: &str, place: *mut c_void, size: size_t) -> Option<T> {
    let range = place as usize..(place as usize).saturating_add(size);
    REGIONS.iter().find(|map| {
        let (start, end) = (map.start.load(Relaxed), map.end.load(Relaxed));
        map.file.load(Relaxed) != 0 && range.start < end && start < range.end
    })?;
    Turn::enter_file()?.uncovered(name);
    None
}

kernel! {
    mprotect(place: *mut c_void, size: size_t, protection: c_int) -> c_int = SYS_mprotect, {
        let writes = protection & libc::PROT_WRITE != 0;
        let name = "mprotect of a file on the modelled drive for writing";
        writes.then(|| refuse(name, place, size)).flatten()
    };
    mremap(place: *mut c_void, size: size_t, wanted: size_t, flags: c_int, to: *mut c_void) -> *mut c_void
        = SYS_mremap, {
            let name = "mremap of a file on the modelled drive";
            let fixed = if flags & libc::MREMAP_FIXED != 0 { wanted } else { 0 };
            refuse(name, place, size.max(1)).or_else(|| refuse(name, to, fixed))
        };
}

same! {
    mmap64 = mmap(
        place: *mut c_void, size: size_t, protection: c_int, flags: c_int, descriptor: c_int, offset: off_t
    ) -> *mut c_void;
}
