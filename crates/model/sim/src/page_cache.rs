//! Linux's page cache for one file: which of its pages are resident.
//!
//! An active and an inactive list, with shadow entries of evicted pages, as in mm/workingset.c, mm/vmscan.c
//! and mm/swap.c (Linux 6.18, without multi-generational LRU). Reclaim moves pages from the active to the
//! inactive list when the statistics say that the inactive one is short, or evicted pages were read again
//! since the last reclaim; the statistics of a memory cgroup are flushed only every 2 s (`FLUSH_TIME` in
//! mm/memcontrol.c), which has visible effects: see [`PageCache::in_group`].
//!
//! Invariants: at most `frames` pages are resident; a page is on one list exactly when it is resident.

/// How the kernel detects that a resident page is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recency {
    /// Ignored: since Linux 6.3 reclaim ignores the accessed bits of `MADV_RANDOM` mappings
    /// (`vma_has_recency` in include/linux/mm_inline.h), so pages leave in FIFO order.
    None,
    /// The accessed bit of a mapped page, checked when it is about to be evicted.
    AccessedBit,
    /// Each read(2) marks the page (`folio_mark_accessed`); the second mark activates it.
    Marks,
}

/// No page: the end of a list.
const END: u32 = u32::MAX;
/// Pages evicted in one batch, and scanned before the other list has its turn (`SWAP_CLUSTER_MAX`).
const BATCH: u32 = 32;
/// A round of reclaim scans the list lengths shifted right by this, and by one less in each further round
/// (`DEF_PRIORITY`).
const PRIORITY: u32 = 12;
/// Pages in a GiB.
const GIB_PAGES: u64 = 1 << 18;

/// On a list: bits of [`Page::flags`].
const RESIDENT: u8 = 1;
const ACTIVE: u8 = 2;
/// Marked once, or seen accessed once.
const REFERENCED: u8 = 4;
/// The accessed bit of its map.
const YOUNG: u8 = 8;
/// Was resident before; `previous` holds its eviction age.
const EVICTED: u8 = 16;

#[derive(Debug, Clone, Copy)]
struct Page {
    /// Link toward the head, or the age of its eviction.
    previous: u32,
    /// Link toward the tail.
    next: u32,
    flags: u8,
}

#[derive(Debug, Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
    length: u32,
}

impl List {
    const EMPTY: Self = Self { head: END, tail: END, length: 0 };
}

/// The page cache of one file; 12 bytes per page.
#[derive(Debug)]
pub struct PageCache {
    frames: u32,
    recency: Recency,
    pages: Vec<Page>,
    active: List,
    inactive: List,
    /// Evictions and activations so far (`nonresident_age`); it wraps as the kernel's does.
    age: u32,
    /// Pages that were refaulted early enough to be activated.
    refaults: u64,
    /// The statistics that reclaim uses.
    known: Statistics,
    /// Refaults in the statistics when reclaim last ended.
    refaults_before: u64,
    /// The statistics are flushed explicitly.
    in_group: bool,
    /// Pages evicted since the last call of `take_evicted`, if recorded.
    evicted: Option<Vec<u32>>,
}

/// The statistics that reclaim decides by.
#[derive(Debug, Clone, Copy, Default)]
struct Statistics {
    active: u32,
    inactive: u32,
    refaults: u64,
}

impl PageCache {
    /// An empty cache of `frames` pages for a file of `pages`.
    #[must_use]
    pub fn new(pages: u32, frames: u32, recency: Recency) -> Self {
        let page = Page { previous: END, next: END, flags: 0 };
        Self {
            frames: frames.max(1),
            recency,
            pages: vec![page; pages as usize],
            active: List::EMPTY,
            inactive: List::EMPTY,
            age: 0,
            refaults: 0,
            known: Statistics::default(),
            refaults_before: 0,
            in_group: false,
            evicted: None,
        }
    }

    /// In a memory cgroup, reclaim decides by the statistics of the last [`PageCache::flush_statistics`],
    /// which the kernel does every [`PageCache::FLUSH_SECONDS`].
    #[must_use]
    pub fn in_group(self) -> Self {
        Self { in_group: true, ..self }
    }

    /// Pages that were evicted since the last call; nothing before the first one.
    pub fn take_evicted(&mut self) -> Vec<u32> {
        self.evicted.replace(Vec::new()).unwrap_or_default()
    }

    /// The file has at least this many pages from now on.
    pub fn grow(&mut self, pages: u32) {
        let page = Page { previous: END, next: END, flags: 0 };
        let len = self.pages.len().max(pages as usize);
        self.pages.resize(len, page);
    }

    /// Changes the number of pages that fit, and evicts what is too much.
    pub fn set_frames(&mut self, frames: u32) {
        self.frames = frames.max(1);
        while self.resident() > self.frames {
            self.reclaim();
        }
    }

    /// Whether it belongs to a memory cgroup.
    #[must_use]
    pub const fn is_in_group(&self) -> bool {
        self.in_group
    }

    /// Seconds between flushes of a group's statistics.
    pub const FLUSH_SECONDS: u64 = 2;

    /// Brings the statistics up to date.
    pub const fn flush_statistics(&mut self) {
        let (active, inactive) = (self.active.length, self.inactive.length);
        self.known = Statistics { active, inactive, refaults: self.refaults };
    }

    /// Pages that are resident.
    #[must_use]
    pub const fn resident(&self) -> u32 {
        self.active.length + self.inactive.length
    }

    /// Accesses a page, which is resident afterwards; returns whether it was before. Costs O(1).
    #[inline]
    pub fn access(&mut self, page: u32) -> bool {
        let there = self.pages[page as usize].flags & RESIDENT != 0;
        if there {
            self.hit(page);
        } else {
            self.miss(page);
        }
        there
    }

    /// Whether a page is resident, without accessing it.
    #[must_use]
    pub fn is_resident(&self, page: u32) -> bool {
        self.pages[page as usize].flags & RESIDENT != 0
    }

    /// Drops a page without a trace, if it is resident (`POSIX_FADV_DONTNEED`).
    pub fn forget(&mut self, page: u32) {
        if self.pages[page as usize].flags & RESIDENT != 0 {
            self.remove(page);
            self.pages[page as usize] = Page { previous: END, next: END, flags: 0 };
        }
    }

    #[inline]
    fn hit(&mut self, page: u32) {
        let flags = self.pages[page as usize].flags;
        match self.recency {
            Recency::None => {}
            Recency::AccessedBit => self.pages[page as usize].flags |= YOUNG,
            Recency::Marks if flags & REFERENCED == 0 => {
                self.pages[page as usize].flags |= REFERENCED;
            }
            Recency::Marks if flags & ACTIVE == 0 => {
                self.remove(page);
                self.pages[page as usize].flags &= !REFERENCED;
                self.add(page, true);
                self.age = self.age.wrapping_add(1);
            }
            Recency::Marks => {}
        }
    }

    fn miss(&mut self, page: u32) {
        while self.resident() >= self.frames {
            self.reclaim();
        }
        let Page { previous: evicted_at, flags, .. } = self.pages[page as usize];
        let distance = self.age.wrapping_sub(evicted_at);
        let active = flags & EVICTED != 0 && distance <= self.active.length;
        if active {
            self.age = self.age.wrapping_add(1);
            self.refaults += 1;
        }
        self.pages[page as usize].flags = match self.recency {
            Recency::None => RESIDENT,
            // The fault maps it as accessed; the read marks it.
            Recency::AccessedBit => RESIDENT | YOUNG,
            Recency::Marks => RESIDENT | REFERENCED,
        };
        self.add(page, active);
    }

    /// Evicts a batch, in rounds that scan increasing parts of both lists (`shrink_lruvec`).
    fn reclaim(&mut self) {
        let (before, mut priority, mut forced) = (self.resident(), PRIORITY, false);
        while before - self.resident() < BATCH.min(before) {
            if !self.in_group {
                self.flush_statistics();
            }
            let deactivates = forced || self.inactive_is_short();
            self.round(priority, deactivates, before);
            match priority.checked_sub(1) {
                Some(next) => priority = next,
                // Nothing found: scan the active list regardless of the statistics.
                None => (priority, forced) = (PRIORITY, true),
            }
        }
        self.refaults_before = self.known.refaults;
    }

    /// Whether the inactive list is short (`inactive_is_low`), or pages were refaulted (early enough to be
    /// activated) since reclaim last ended.
    fn inactive_is_short(&self) -> bool {
        let Statistics { active, inactive, refaults } = self.known;
        let gib = (u64::from(active) + u64::from(inactive)) / GIB_PAGES;
        let ratio = if gib > 0 { (10 * gib).isqrt() } else { 1 };
        u64::from(inactive) * ratio < u64::from(active) || refaults != self.refaults_before
    }

    /// Scans a share of each list, alternating.
    fn round(&mut self, priority: u32, deactivates: bool, before: u32) {
        let mut inactive = self.inactive.length >> priority;
        let mut active = self.active.length >> priority;
        while inactive > 0 || active > 0 {
            let turn = inactive.min(BATCH);
            inactive -= turn;
            for _ in 0..turn.min(self.inactive.length) {
                self.look_at(self.inactive.tail);
            }
            let turn = active.min(BATCH);
            active -= turn;
            for _ in 0..if deactivates { turn.min(self.active.length) } else { 0 } {
                let page = self.active.tail;
                self.remove(page);
                self.pages[page as usize].flags &= !YOUNG;
                self.add(page, false);
            }
            if before - self.resident() >= BATCH {
                return;
            }
        }
    }

    /// Evicts a page of the inactive list, or keeps it.
    fn look_at(&mut self, page: u32) {
        self.remove(page);
        let flags = self.pages[page as usize].flags;
        let seen = flags & REFERENCED != 0;
        if flags & YOUNG == 0 {
            self.pages[page as usize] = Page { previous: self.age, next: END, flags: EVICTED };
            self.age = self.age.wrapping_add(1);
            if let Some(evicted) = &mut self.evicted {
                evicted.push(page);
            }
            return;
        }
        // Every mapping starts as accessed, so two scans are needed to detect that a page is used again.
        self.pages[page as usize].flags = (flags & !YOUNG) | REFERENCED;
        self.add(page, seen);
    }

    const fn list(&mut self, active: bool) -> &mut List {
        if active { &mut self.active } else { &mut self.inactive }
    }

    /// Adds a page to the head of a list.
    fn add(&mut self, page: u32, active: bool) {
        let list = self.list(active);
        let first = list.head;
        (list.head, list.length) = (page, list.length + 1);
        if first == END {
            list.tail = page;
        } else {
            self.pages[first as usize].previous = page;
        }
        let entry = &mut self.pages[page as usize];
        (entry.previous, entry.next) = (END, first);
        entry.flags = if active { entry.flags | ACTIVE } else { entry.flags & !ACTIVE };
    }

    /// Removes a page from its list.
    fn remove(&mut self, page: u32) {
        let Page { previous, next, flags } = self.pages[page as usize];
        if previous != END {
            self.pages[previous as usize].next = next;
        }
        if next != END {
            self.pages[next as usize].previous = previous;
        }
        let list = self.list(flags & ACTIVE != 0);
        list.length -= 1;
        if list.head == page {
            list.head = next;
        }
        if list.tail == page {
            list.tail = previous;
        }
    }
}
