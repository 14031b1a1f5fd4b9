//! The block I/O loop must not allocate per operation: a trial ten times as long allocates no more, except
//! for records at the end of each interval.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crosspoint_block::{BlockSpec, Path, Target, run};
use observe::Control;
use stats::Timeline;
use units::{Bytes, Nanos, Seed};
use workload::{BlockGroup, BlockPlan};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system's allocator unchanged.
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

/// Allocations and operations of a trial of one interval that is `milliseconds` long.
fn trial(target: &Target, path: Path, milliseconds: u64) -> (u64, u64) {
    let measure = Nanos::from_millis(milliseconds);
    let timeline = Timeline { warm_up: Nanos::ZERO, measure, interval: measure };
    let plan = BlockPlan {
        read_share: "50%".parse().expect("a share"),
        queue_depth: 4,
        ..BlockPlan::reads(4096, Bytes::mib(4), timeline.end())
    };
    let spec = BlockSpec { path, ..BlockSpec::new(vec![BlockGroup::new(plan)], timeline, Seed(1)) };
    let stop = AtomicBool::new(false);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let result =
        run(target, &spec, &Control { stop: &stop, progress: None, keep: None }).expect("it runs");
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    (allocations, result.recording.total(None).counts.ops)
}

#[test]
fn a_longer_trial_allocates_no_more() {
    let dir = tempfile::tempdir().expect("a directory");
    let name = dir.path().join("data");
    std::fs::write(&name, vec![7u8; 4 << 20]).expect("a file");
    let file = File::options().read(true).write(true).open(name).expect("it opens");
    let target = Target::one(file, Bytes::mib(4));
    for path in [Path::Auto, Path::Psync] {
        trial(&target, path, 20);
        // Allocations of the loop would appear in each pair; how many threads reached many operations in the
        // short trial varies.
        let pairs = (0..3).map(|_| (trial(&target, path, 50), trial(&target, path, 500)));
        let least = pairs.min_by_key(|((short, _), (long, _))| long.saturating_sub(*short));
        let ((short, few), (long, many)) = least.expect("three pairs");
        assert!(many > few + 1000, "{path:?}: {few} and {many} operations");
        assert!(
            long <= short + 50,
            "{path:?}: {short} allocations grew to {long} with {many} operations"
        );
    }
}
