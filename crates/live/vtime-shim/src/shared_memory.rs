//! Keys of what processes wait for in memory that they share: the same in each of them.

use std::io::{BufRead as _, BufReader};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use vtime::wire::shared_base;

use crate::turn::key_of;

/// Pages that were looked up.
const PAGES: usize = 256;
/// The number of each of them plus 1.
static PAGE: [AtomicU64; PAGES] = [const { AtomicU64::new(0) }; PAGES];
/// Whether there are any.
static USED: AtomicBool = AtomicBool::new(false);
/// What added to an address in each of them is the key.
static BASE: [AtomicU64; PAGES] = [const { AtomicU64::new(0) }; PAGES];

/// The key of a place in memory, of which the file and offset are the same in all processes.
pub fn key<T: ?Sized>(place: *const T) -> u64 {
    let address = place.cast::<u8>() as u64;
    let page = address / 4096;
    let entry = page as usize % PAGES;
    if PAGE[entry].load(Relaxed) != page + 1 {
        let Some(base) = base_of(address) else { return key_of(place) };
        USED.store(true, Relaxed);
        BASE[entry].store(base, Relaxed);
        PAGE[entry].store(page + 1, Relaxed);
    }
    address.wrapping_add(BASE[entry].load(Relaxed))
}

/// A mapping was removed or replaced.
pub fn forget() {
    if !USED.swap(false, Relaxed) {
        return;
    }
    PAGE.iter().for_each(|page| page.store(0, Relaxed));
}

/// See [`BASE`]; `None` for memory of this process alone.
fn base_of(address: u64) -> Option<u64> {
    let maps = BufReader::new(std::fs::File::open("/proc/self/maps").ok()?);
    maps.lines().map_while(Result::ok).find_map(|line| shared_base(&line, address))
}
