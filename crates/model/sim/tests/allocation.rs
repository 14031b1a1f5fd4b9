//! Virtual time must not allocate per event: a trial ten times as long allocates no more. Otherwise the
//! allocator would dominate its speed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use crosspoint_sim::{BlockPath, HostModel, run};
use device::{BUILT_IN, Condition, Model, Profile};
use stats::Timeline;
use units::{Bytes, Nanos, Seed};
use workload::{BlockGroup, BlockPlan};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of the system allocator.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn device() -> Model {
    let (_, text) = BUILT_IN.iter().find(|(name, _)| *name == "intel-p4800x").expect("it ships");
    Model::new(&Profile::parse(text).expect("a profile"), Condition::Steady, Seed(1))
}

fn timeline(milliseconds: u64) -> Timeline {
    let measure = Nanos::from_millis(milliseconds);
    Timeline { warm_up: Nanos::ZERO, measure, interval: measure }
}

/// Allocations and operations in this many milliseconds of a device behind a submission path.
fn block(milliseconds: u64) -> (u64, u64) {
    let timeline = timeline(milliseconds);
    let plan =
        BlockPlan { queue_depth: 32, ..BlockPlan::reads(4096, Bytes::mib(1024), timeline.end()) };
    let clients = BlockGroup::new(plan).clients(Seed(1));
    let target = BlockPath::new(device(), HostModel::io_uring(), 1, Seed(1));
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let recording = run(target, clients, timeline);
    (ALLOCATIONS.load(Ordering::Relaxed) - before, recording.total(None).counts.ops)
}

#[test]
fn nothing_is_allocated_after_warm_up() {
    let ((short, few), (long, many)) = (block(50), block(500));
    assert!(many > 5 * few && few > 1000, "{few} and {many} operations");
    // Queues grow to their full size in both.
    assert!(long <= short + 20, "{short} allocations, ten times as long {long}");
}
