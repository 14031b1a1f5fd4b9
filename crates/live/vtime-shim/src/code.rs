//! Where the code of libraries is.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Code of the C library and of the dynamic linker: start and end.
static C_LIBRARY: [[AtomicUsize; 2]; 2] = [const { [const { AtomicUsize::new(0) }; 2] }; 2];

struct Search {
    address: usize,
    found: Option<(usize, usize)>,
    c_library: usize,
}

extern "C" fn look(about: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker passes its list, and `find` its search.
    let (about, search) = unsafe { (&*about, &mut *search.cast::<Search>()) };
    let name = match about.dlpi_name.is_null() {
        true => c"",
        // SAFETY: a string with a terminating 0.
        false => unsafe { CStr::from_ptr(about.dlpi_name) },
    };
    let file = name.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let of_c = file.starts_with(b"libc.so") || file.starts_with(b"ld-linux");
    for number in 0..usize::from(about.dlpi_phnum) {
        // SAFETY: an entry of the list.
        let part = unsafe { &*about.dlpi_phdr.add(number) };
        let start = (about.dlpi_addr + part.p_vaddr) as usize;
        let end = start + part.p_memsz as usize;
        if part.p_type != libc::PT_LOAD || part.p_flags & libc::PF_X == 0 {
            continue;
        }
        if (start..end).contains(&search.address) {
            search.found = Some((start, end - start));
        }
        if let Some([from, to]) = C_LIBRARY.get(search.c_library).filter(|_| of_c) {
            from.store(start, Relaxed);
            to.store(end, Relaxed);
            search.c_library += 1;
        }
    }
    0
}

/// Start and length of the code that has this address.
pub fn find(address: usize) -> Option<(usize, usize)> {
    let mut search = Search { address, found: None, c_library: 0 };
    // SAFETY: the callback has the type that is asked for.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

/// Whether an address is in the C library or the dynamic linker.
pub fn is_c_library(address: usize) -> bool {
    let contains =
        |[from, to]: &[AtomicUsize; 2]| (from.load(Relaxed)..to.load(Relaxed)).contains(&address);
    C_LIBRARY.iter().any(contains)
}
