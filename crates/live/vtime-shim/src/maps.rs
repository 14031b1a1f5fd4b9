//! Files on the drive that are mapped into memory.
//!
//! A page that is not in the simulated page cache is not in the page table: touching it raises SIGBUS
//! (userfaultfd(2), minor faults), whose handler waits for the simulated read and then maps the page. The
//! files have to be in a memory file system. Only read-only mappings, because the kernel does not report
//! writes to a page.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize};

use libc::{off_t, size_t};
use vtime::wire::{Call, EVICTED, access};

use crate::descriptors::file_of;
use crate::real::{answer, errno, kernel, same, set_errno, system_call};
use crate::turn::{Turn, ticks};

const PAGE: usize = 4096;
/// Maximum number of mappings.
const MAPS: usize = 64;

/// A mapping; free if `file` is 0. Only the thread with the turn changes it.
struct Map {
    file: AtomicU64,
    start: AtomicUsize,
    end: AtomicUsize,
    /// File offset of its start.
    offset: AtomicU64,
    /// Flags of `access`.
    flags: AtomicU64,
}

static REGIONS: [Map; MAPS] = [const {
    Map {
        file: AtomicU64::new(0),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        offset: AtomicU64::new(0),
        flags: AtomicU64::new(0),
    }
}; MAPS];

/// Ticks between a fault and its handler: a cost of the emulation, not of the program.
static OVERHEAD: AtomicU64 = AtomicU64::new(0);
/// The userfaultfd; -1 before the first mapping.
static FAULT_DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);

// linux/userfaultfd.h
const UFFD_USER_MODE_ONLY: i64 = 1;
const UFFD_API: u64 = 0xAA;
const FEATURES: u64 = (1 << 7) | (1 << 10);
const MODE_MINOR: u64 = 1 << 2;
const UFFDIO_API: i64 = 0xC018_AA3F;
const UFFDIO_REGISTER: i64 = 0xC020_AA00;
const UFFDIO_CONTINUE: i64 = 0xC020_AA07;

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
    // SAFETY: all zeros is a valid value of this struct; it is filled below.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = faulted as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
    // SAFETY: the handler has the type that SA_SIGINFO asks for.
    let installed =
        unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) };
    let ready = control(UFFDIO_API, &mut [UFFD_API, FEATURES, 0]) == 0 && installed == 0;
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
    let zeros = [0_u8; SAMPLES * PAGE];
    system_call(libc::SYS_pwrite64, [made, zeros.as_ptr() as i64, size, 0, 0, 0]);
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

/// Whether there is any mapping.
pub fn is_any() -> bool {
    REGIONS.iter().any(|map| map.file.load(Relaxed) != 0)
}

/// The mapping that contains an address.
fn map_of(address: usize) -> Option<&'static Map> {
    REGIONS.iter().find(|map| {
        map.file.load(Relaxed) != 0
            && (map.start.load(Relaxed)..map.end.load(Relaxed)).contains(&address)
    })
}

extern "C" fn faulted(_: c_int, about: *mut libc::siginfo_t, _: *mut c_void) {
    let before = errno();
    // SAFETY: the kernel fills it.
    let page = unsafe { (*about).si_addr() } as usize & !(PAGE - 1);
    let Some(map) = map_of(page) else {
        // Not ours: the next fault ends the program. SAFETY: sets the default action.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
        return;
    };
    let turn = Turn::enter_late(OVERHEAD.load(Relaxed));
    if let Some(turn) = &turn {
        turn.tick();
        let offset = map.offset.load(Relaxed) + (page - map.start.load(Relaxed)) as u64;
        let flags = map.flags.load(Relaxed) | access::MAPPED;
        turn.call(Call::Access, &[map.file.load(Relaxed), offset, PAGE as u64, flags]);
        unmap(turn);
    }
    let code = control(UFFDIO_CONTINUE, &mut [page as u64, PAGE as u64, 0, 0]);
    let again = [0, -i64::from(libc::EEXIST), -i64::from(libc::EAGAIN)].contains(&code);
    if !again {
        // Beyond the end of the file: the next fault ends the program. SAFETY: sets the default action.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    }
    set_errno(before);
    drop(turn);
}

/// Unmaps the pages that the last access evicted.
pub fn unmap(turn: &Turn) {
    loop {
        let count = turn.argument(0) as usize;
        forget(turn, count);
        if count < EVICTED {
            return;
        }
        turn.call(Call::Evicted, &[]);
    }
}

fn forget(turn: &Turn, count: usize) {
    for pair in 0..count {
        let (file, at) = (turn.argument(1 + 2 * pair), turn.argument(2 + 2 * pair));
        let own = |map: &&Map| map.file.load(Relaxed) == file;
        for map in REGIONS.iter().filter(own) {
            let Some(within) = at.checked_sub(map.offset.load(Relaxed)) else { continue };
            let page = map.start.load(Relaxed) + within as usize;
            if page < map.end.load(Relaxed) {
                let advice = i64::from(libc::MADV_DONTNEED);
                system_call(libc::SYS_madvise, [page as i64, PAGE as i64, advice, 0, 0, 0]);
            }
        }
    }
}

/// Touches the pages of a buffer: the kernel cannot handle their faults.
pub fn touch(start: usize, length: usize) -> bool {
    if map_of(start).is_none() {
        return false;
    }
    for page in (start..start + length).step_by(PAGE).chain([start + length - 1]) {
        // SAFETY: the caller's buffer.
        unsafe { std::ptr::read_volatile(page as *const u8) };
    }
    true
}

/// Maps a file of the drive; ends the simulation if this kind of mapping is not simulated.
fn map_file(turn: &Turn, (file, flags): (u64, u64), arguments: [i64; 6]) -> i64 {
    let [_, size, protection, kind, _, offset] = arguments;
    if kind & i64::from(libc::MAP_SYNC) != 0 {
        // Only persistent memory can be mapped so.
        return -i64::from(libc::EOPNOTSUPP);
    }
    let writes = protection & i64::from(libc::PROT_WRITE) != 0;
    let free = REGIONS.iter().find(|map| map.file.load(Relaxed) == 0);
    let (false, Some(map), true) =
        (writes && kind & i64::from(libc::MAP_SHARED) != 0, free, prepare())
    else {
        turn.uncovered("mmap of a file on the modelled drive");
        return -i64::from(libc::ENODEV);
    };
    let start = system_call(libc::SYS_mmap, arguments);
    if (-4095..0).contains(&start) {
        return start;
    }
    let length = (size as usize).next_multiple_of(PAGE);
    let mut range = [start as u64, length as u64, MODE_MINOR, 0];
    if control(UFFDIO_REGISTER, &mut range) != 0 {
        turn.uncovered(
            "mmap of a file outside of a memory file system (use --directory /dev/shm/...)",
        );
        return -i64::from(libc::ENODEV);
    }
    map.start.store(start as usize, Relaxed);
    map.end.store(start as usize + length, Relaxed);
    map.offset.store(offset as u64, Relaxed);
    map.flags.store(flags & access::RANDOM, Relaxed);
    map.file.store(file, Relaxed);
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
    let mapped = match file.and_then(|file| Some((file, Turn::enter_file()?))) {
        Some((file, turn)) => map_file(&turn, file, arguments),
        None => system_call(libc::SYS_mmap, arguments),
    };
    answer(mapped) as *mut c_void
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(place: *mut c_void, size: size_t) -> c_int {
    let range = place as usize..place as usize + size.next_multiple_of(PAGE);
    for map in REGIONS.iter().filter(|map| range.contains(&map.start.load(Relaxed))) {
        let (start, end) = (map.start.load(Relaxed), map.end.load(Relaxed));
        if range.end < end {
            map.offset.store(map.offset.load(Relaxed) + (range.end - start) as u64, Relaxed);
            map.start.store(range.end, Relaxed);
        } else {
            map.file.store(0, Relaxed);
        }
    }
    answer(system_call(libc::SYS_munmap, [place as i64, size as i64, 0, 0, 0, 0])) as c_int
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

/// Ends the simulation if `place` is in a mapped file of the drive.
fn refuse<T>(name: &str, place: *mut c_void) -> Option<T> {
    map_of(place as usize)?;
    Turn::enter_file()?.uncovered(name);
    None
}

kernel! {
    mprotect(place: *mut c_void, size: size_t, protection: c_int) -> c_int = SYS_mprotect, {
        let writes = protection & libc::PROT_WRITE != 0;
        let name = "mprotect of a file on the modelled drive for writing";
        writes.then(|| refuse(name, place)).flatten()
    };
    mremap(place: *mut c_void, size: size_t, wanted: size_t, flags: c_int, to: *mut c_void) -> *mut c_void
        = SYS_mremap, refuse("mremap of a file on the modelled drive", place);
}

same! {
    mmap64 = mmap(
        place: *mut c_void, size: size_t, protection: c_int, flags: c_int, descriptor: c_int, offset: off_t
    ) -> *mut c_void;
}
