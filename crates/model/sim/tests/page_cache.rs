//! Properties of the page cache for any accesses, and results that hold for every policy.

use crosspoint_sim::{PageCache, Recency};
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Nanos, Seed};
use workload::{KvClient, KvKeys, KvPlan, KvRole, Offsets, OpId, Outcome, Step, Workload};

const RECENCIES: [Recency; 3] = [Recency::None, Recency::AccessedBit, Recency::Marks];

fn random(state: &mut Xoshiro256PlusPlus, below: u32) -> u32 {
    ((u64::from(below) * (state.next_u64() >> 32)) >> 32) as u32
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// A page that is on two lists, or on none, would stay forever or never.
    #[test]
    fn lists_hold_what_is_resident(seed: u64, pages in 1u32..400, frames in 1u32..300, kind in 0usize..3,
                                   in_group: bool) {
        let mut cache = PageCache::new(pages, frames, RECENCIES[kind]);
        if in_group {
            cache = cache.in_group();
        }
        let mut state = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut misses = 0u32;
        for number in 0..2000u32 {
            if in_group && number % 500 == 0 {
                cache.flush_statistics();
            }
            let page = random(&mut state, pages);
            let before = cache.resident();
            let hit = cache.access(page);
            misses += u32::from(!hit);
            prop_assert!(cache.access(page), "it was read just now");
            prop_assert!(cache.resident() <= frames.min(pages));
            prop_assert!(!hit || cache.resident() == before, "a hit evicts nothing");
        }
        prop_assert!(misses >= cache.resident(), "what is resident was read once");
        if frames >= pages {
            prop_assert_eq!(misses, cache.resident(), "where all has room, each page is read once");
        }
    }
}

/// With uniform accesses every policy has the same hit ratio: the resident share.
#[test]
fn uniform_accesses_hit_by_the_share_that_is_resident() {
    let (pages, frames, accesses) = (20_000, 8_000, 400_000);
    for recency in RECENCIES {
        let mut cache = PageCache::new(pages, frames, recency);
        let mut state = Xoshiro256PlusPlus::seed_from_u64(3);
        for _ in 0..accesses {
            cache.access(random(&mut state, pages));
        }
        let hits = (0..accesses).filter(|_| cache.access(random(&mut state, pages))).count();
        let found = hits as f64 / f64::from(accesses);
        // On average half of a batch of 32 frames is free.
        let exact = f64::from(frames - 16) / f64::from(pages);
        assert!((found / exact - 1.0).abs() < 0.01, "{recency:?}: {found} against {exact}");
    }
}

/// Frequently used pages must stay if their use is detected, and only then.
#[test]
fn a_hot_set_stays_where_its_use_is_seen() {
    let (hot, cold, frames) = (500, 100_000, 2_000);
    let hot_misses = |recency| {
        let mut cache = PageCache::new(hot + cold, frames, recency);
        let mut state = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut misses = 0u32;
        for number in 0..200_000u32 {
            let page = if number % 2 == 0 {
                random(&mut state, hot)
            } else {
                hot + random(&mut state, cold)
            };
            let missed = !cache.access(page);
            misses += u32::from(missed && page < hot && number > 100_000);
        }
        f64::from(misses) / 50_000.0
    };
    let [none, bit, marks] = RECENCIES.map(hot_misses);
    assert!(none > 0.15, "in order of arrival hot pages leave as well: {none}");
    assert!(bit < none / 2.0 && marks < none / 10.0, "{bit} and {marks} instead of {none}");
}

/// Misses of 300,000 Zipf accesses with a quarter of the pages resident, by how the kernel detects their use
/// and how often a cgroup's statistics are flushed. A change detector: the comparison with the kernel needs
/// root, and the numbers are the model's own.
#[test]
fn the_model_is_what_was_compared_with_the_kernel() {
    let misses = |recency, flush_every: Option<u32>| {
        let pages = 1 << 14;
        let mut cache = PageCache::new(pages, pages / 4, recency);
        if flush_every.is_some() {
            cache = cache.in_group();
        }
        let plan = KvPlan { records: u64::from(pages), until: Nanos::MAX.into(), clients: 1 };
        let keys = KvKeys::Drawn(Offsets::Zipf { thousandths: 990 });
        let mut client = KvClient::new(plan, KvRole { keys, ..KvRole::READER }, Seed(11), 0);
        let mut misses = 0u32;
        for number in 0..300_000u32 {
            if flush_every.is_some_and(|every| number % every == 0) {
                cache.flush_statistics();
            }
            let Step::Issue(issue) = client.next(Nanos::ZERO) else { panic!("it ended") };
            client.completed(OpId(0), Outcome::Done, Nanos::ZERO);
            misses += u32::from(!cache.access(issue.op.record as u32));
        }
        misses
    };
    let found =
        RECENCIES.map(|one| [None, Some(100), Some(50_000)].map(|every| misses(one, every)));
    assert_eq!(
        found,
        [[72_155, 72_155, 72_155], [62_804, 62_741, 60_924], [59_051, 59_051, 58_709]]
    );
}
