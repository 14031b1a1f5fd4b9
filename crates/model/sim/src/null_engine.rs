//! An engine that only reads pages through the page cache: the lower bound of every engine model.
//!
//! A lookup reads the pages of its record by pread(2) or through a mapping; a missing page is read from the
//! device by the thread that missed it, and other threads that want it wait. Invariant: concurrent misses of
//! a page cause one read.

use std::cell::RefCell;
use std::rc::Rc;

use device::{Device, Request};
use units::Nanos;
use workload::{KvOp, Outcome};

use crate::HostModel;
use crate::machine::{Desk, Machine, ThreadId, Threads};
use crate::page_cache::PageCache;

/// Bytes of a page.
const PAGE: u32 = 4096;

/// Where the pages of a record lie in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One page a record.
    Flat,
    /// The two lowest levels of a B+tree with values on pages of their own: one leaf for this many records,
    /// all leaves first, then one page for each record.
    Leaves {
        /// Records a leaf, at least 1.
        fan_out: u32,
    },
}

impl Layout {
    /// Pages that `records` need.
    #[must_use]
    pub const fn pages(self, records: u32) -> u32 {
        match self {
            Self::Flat => records,
            Self::Leaves { fan_out } => records + records.div_ceil(fan_out),
        }
    }

    /// The pages that a lookup of `record` reads, in order; of a flat layout the first is none.
    #[must_use]
    pub fn path(self, record: u32, records: u32) -> [Option<u32>; 2] {
        match self {
            Self::Flat => [None, Some(record)],
            Self::Leaves { fan_out } => {
                [Some(record / fan_out), Some(records.div_ceil(fan_out) + record)]
            }
        }
    }
}

/// Parameters of the engine.
#[derive(Debug, Clone, Copy)]
pub struct NullEngine {
    /// Records, at least 1.
    pub records: u32,
    /// Where they lie.
    pub layout: Layout,
    /// Client threads.
    pub clients: u32,
    /// CPU time to read a resident page; above 0, or fully cached clients would never let time pass.
    pub hit: Nanos,
    /// Submission path for a page that is not resident.
    pub path: HostModel,
}

/// State shared by its threads.
struct NullShared<D> {
    machine: Machine<D>,
    cache: RefCell<PageCache>,
    /// Pages that are being read.
    coming: RefCell<Vec<u32>>,
    /// Threads that wait for such a page.
    waiting: RefCell<Vec<(u32, ThreadId)>>,
}

async fn flush_statistics<D: Device>(shared: Rc<NullShared<D>>) {
    loop {
        shared.cache.borrow_mut().flush_statistics();
        shared.machine.sleep(Nanos::from_secs(PageCache::FLUSH_SECONDS)).await;
    }
}

impl NullEngine {
    /// The engine over `machine` and a page cache, as a target of lookups.
    #[must_use]
    pub fn over<D: Device + 'static>(
        self,
        machine: Machine<D>,
        cache: PageCache,
    ) -> Threads<D, KvOp> {
        let shared = Rc::new(NullShared {
            machine: machine.clone(),
            cache: RefCell::new(cache),
            coming: RefCell::default(),
            waiting: RefCell::default(),
        });
        let mut threads = Threads::new(machine);
        if shared.cache.borrow().is_in_group() {
            threads.background(flush_statistics(Rc::clone(&shared)));
        }
        for _ in 0..self.clients {
            let shared = Rc::clone(&shared);
            threads.serve(|desk| self.client(shared, desk));
        }
        threads
    }

    async fn client<D: Device>(self, shared: Rc<NullShared<D>>, mut desk: Desk<D, KvOp>) {
        loop {
            let record = desk.next().await.record as u32;
            let mut bytes = 0;
            for page in self.layout.path(record, self.records).into_iter().flatten() {
                self.read(&shared, page).await;
                bytes += PAGE;
            }
            desk.end(Outcome::Done, bytes);
            shared.machine.compute(self.path.between).await;
        }
    }

    async fn read<D: Device>(&self, shared: &NullShared<D>, page: u32) {
        let NullShared { machine, cache, coming, waiting } = shared;
        machine.compute(self.hit).await;
        let there = cache.borrow_mut().access(page);
        if coming.borrow().contains(&page) {
            waiting.borrow_mut().push((page, machine.current()));
            machine.park().await;
            return;
        }
        if there {
            return;
        }
        coming.borrow_mut().push(page);
        machine.compute(self.path.submit).await;
        machine.ask(Request::read(0, u64::from(page) * u64::from(PAGE), PAGE)).await;
        machine.sleep(self.path.wake).await;
        machine.compute(self.path.complete).await;
        coming.borrow_mut().retain(|other| *other != page);
        waiting.borrow_mut().retain(|(wanted, thread)| {
            let waits = *wanted != page;
            if !waits {
                machine.wake(*thread);
            }
            waits
        });
    }
}
