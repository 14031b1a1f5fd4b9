//! What accesses cost, on a device with known times.

use super::*;

use device::Stages;

use crate::wire::CLEANED;

/// A device with a fixed latency per operation.
#[derive(Debug, Default)]
struct Fixed {
    queue: Vec<(Nanos, Nanos, Request)>,
}

impl Device for Fixed {
    fn submit(&mut self, now: Nanos, request: Request) {
        let takes = match request.operation {
            Operation::Read => 10,
            Operation::Flush => 1_000,
            _ => 20,
        };
        self.queue.push((now + Nanos(takes), now, request));
    }

    fn next_event(&self) -> Option<Nanos> {
        self.queue.iter().map(|(at, ..)| *at).min()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        self.queue.sort_by_key(|(at, ..)| *at);
        while self.queue.first().is_some_and(|(at, ..)| *at <= now) {
            let (at, began, request) = self.queue.remove(0);
            let stages = Stages::new(at.since(began), []);
            done.push(Completion { id: request.id, at, stages });
        }
    }
}

fn drive(memory: u64) -> Drive<Fixed> {
    Drive::new(Fixed::default(), 1 << 30, memory, FileSystem::Ext4)
}

/// Runs an access to its end; returns how long it took.
fn whole(
    drive: &mut Drive<Fixed>,
    begin: impl FnOnce(&mut Drive<Fixed>, Nanos) -> AccessStart,
) -> u64 {
    let now = drive.last;
    if begin(drive, now) == AccessStart::Done {
        return 0;
    }
    let mut ended = Vec::new();
    while let Some(at) = drive.next_event() {
        drive.advance(at, &mut ended);
    }
    let last = ended.last().expect("an end");
    assert_eq!(last.next, None);
    last.at.since(now).get()
}

fn read(offset: u64, length: u64, flags: u64) -> FileAccess {
    FileAccess { file: 1, offset, length, flags }
}

const TASK: TaskId = TaskId(0);

/// Direct I/O must pay for each read, buffered reads only for the first.
#[test]
fn the_page_cache_serves_what_it_holds() {
    let mut drive = drive(1 << 20);
    drive.add_existing(1, 8 << 20);
    let once = |drive: &mut Drive<Fixed>, offset, flags| {
        whole(drive, |drive, now| drive.access(TASK, now, read(offset, 4096, flags)))
    };
    assert_eq!(
        [once(&mut drive, 0, access::DIRECT), once(&mut drive, 0, access::DIRECT)],
        [10, 10]
    );
    assert_eq!([once(&mut drive, 0, 0), once(&mut drive, 0, 0)], [10, 0]);
    drive.evict(1, 0, 0);
    assert_eq!([once(&mut drive, 0, 0), once(&mut drive, 0, 0)], [10, 0], "forgotten once");
    let before = drive.totals().hits;
    for round in 0..2 {
        for page in 0..1024 {
            once(&mut drive, page * 3 % 1024 * 8192, 0);
        }
        assert!(round == 0 || drive.totals().hits < before + 600, "8 MiB do not fit in 1 MiB");
    }
}

/// Two simultaneous lookups of one page must cause one read, and both must wait for it.
#[test]
fn a_page_that_is_being_read_is_waited_for() {
    let mut drive = drive(1 << 20);
    drive.add_existing(1, 8 << 20);
    let (other, third) = (TaskId(1), TaskId(2));
    let random = read(0, 4096, access::RANDOM);
    let mut ended = Vec::new();
    assert_eq!(drive.access(TASK, Nanos(0), random), AccessStart::Waits(Wait::Read));
    drive.advance(Nanos(4), &mut ended);
    assert_eq!(drive.access(other, Nanos(4), random), AccessStart::Waits(Wait::Read));
    // Waits for both pages, this one and the next.
    let both = read(0, 8192, access::RANDOM);
    assert_eq!(drive.access(third, Nanos(4), both), AccessStart::Waits(Wait::Read));
    while let Some(at) = drive.next_event() {
        drive.advance(at, &mut ended);
    }
    let ends: Vec<(TaskId, u64)> = ended.iter().map(|one| (one.task, one.at.get())).collect();
    assert_eq!(ends, [(TASK, 10), (other, 10), (third, 14)]);
    assert!(ended.iter().all(|one| one.next.is_none()));
    assert_eq!((drive.totals().reads, drive.reading.len(), drive.pending.len()), (2, 0, 0));
    assert_eq!(drive.access(TASK, Nanos(20), random), AccessStart::Done);
    // Direct I/O does not wait for cached reads.
    assert_eq!(
        drive.access(TASK, Nanos(20), read(0, 4096, access::DIRECT)),
        AccessStart::Waits(Wait::Read)
    );
    assert_eq!(drive.access(other, Nanos(20), random), AccessStart::Done);
    // Nor is a page free that another thread's write to a mapping is reading.
    let mapped = access::MAPPED | access::RANDOM;
    let write = read(9 * PAGE, PAGE, mapped | access::WRITE);
    assert_eq!(drive.access(TASK, Nanos(30), write), AccessStart::Waits(Wait::Read));
    let fault = read(9 * PAGE, PAGE, mapped);
    assert_eq!(drive.access(other, Nanos(30), fault), AccessStart::Waits(Wait::Read));
}

/// A page that is written back while it is being written would be missing from the next flush.
#[test]
fn a_write_does_not_write_back_its_own_page() {
    let mut drive = drive(1 << 20);
    drive.resize(1, 1 << 20);
    let fault = access::MAPPED | access::RANDOM | access::WRITE;
    for page in 0..64 {
        let fault = read(page * PAGE, PAGE, fault);
        whole(&mut drive, |drive, now| {
            let begun = drive.access(TASK, now, fault);
            while let Some((_, at)) = drive.next_evicted() {
                assert_ne!(at & !CLEANED, page * PAGE);
            }
            assert!(drive.files[&1].dirty.contains(&page));
            begun
        });
    }
    assert!(drive.totals().writes > 0, "there was write-back");
}

/// A commit that extends its log costs a journal commit with two flushes; one that overwrites it does not.
#[test]
fn a_commit_costs_what_the_file_system_does() {
    let mut drive = drive(1 << 30);
    let write = FileAccess { flags: access::WRITE, ..read(0, 4096, 0) };
    let commit = |drive: &mut Drive<Fixed>| {
        assert_eq!(whole(drive, |drive, now| drive.access(TASK, now, write)), 0);
        whole(drive, |drive, now| drive.sync(TASK, now, (1, None), false))
    };
    assert_eq!(commit(&mut drive), 20 + 20 + 1_000 + 20, "a new size");
    assert_eq!(commit(&mut drive), 20 + 1_000, "the same size");
    let totals = drive.totals();
    assert_eq!((totals.flushes, totals.writes), (2, 4));
    let sync = FileAccess { flags: access::WRITE | access::SYNC, ..write };
    assert_eq!(whole(&mut drive, |drive, now| drive.access(TASK, now, sync)), 20 + 1_000);
    // Dirty pages of a removed file are not written.
    whole(&mut drive, |drive, now| drive.access(TASK, now, write));
    drive.remove(1);
    assert_eq!(drive.dirty, 0);
}

/// SQLite calls fsync, whose commit of the time of modification is needed once per tick of the clock.
#[test]
fn fsync_commits_a_time_that_changed() {
    let mut drive = drive(1 << 30);
    drive.add_existing(1, 1 << 20);
    let write = FileAccess { flags: access::WRITE, ..read(0, 4096, 0) };
    let mut commit = |at: u64| {
        drive.last = drive.last.max(Nanos(at));
        whole(&mut drive, |drive, now| drive.access(TASK, now, write));
        whole(&mut drive, |drive, now| drive.sync(TASK, now, (1, None), true))
    };
    let with_journal = 20 + 20 + 1_000 + 20;
    assert_eq!([commit(0), commit(10_000)], [with_journal, 20 + 1_000]);
    assert_eq!(commit(TICK.get()), with_journal);
    let directory = whole(&mut drive, |drive, now| drive.sync(TASK, now, (2, None), true));
    assert_eq!(directory, 20 + 1_000 + 20, "of a directory");
}

/// Without write-back a long load would be written by its flush alone, and its writer would never be
/// throttled.
#[test]
fn the_kernel_writes_back_and_holds_writers_that_are_too_fast() {
    let mut drive = drive(1 << 20);
    let page = |number: u64| FileAccess { flags: access::WRITE, ..read(number * PAGE, PAGE, 0) };
    // A tenth of 256 frames may be dirty.
    for number in 0..25 {
        assert_eq!(drive.access(TASK, Nanos(0), page(number)), AccessStart::Done);
    }
    assert!(drive.next_event().is_none(), "nothing is written yet");
    for number in 25..51 {
        assert_eq!(drive.access(TASK, Nanos(0), page(number)), AccessStart::Done, "{number}");
    }
    assert_eq!(
        (drive.dirty, drive.next_event()),
        (25, Some(Nanos(0))),
        "26 pages are on their way"
    );
    assert_eq!(drive.access(TASK, Nanos(0), page(51)), AccessStart::Waits(Wait::Write));
    // A flush waits for them, then writes the rest itself.
    let flushing = TaskId(1);
    assert_eq!(drive.sync(flushing, Nanos(0), (1, None), false), AccessStart::Waits(Wait::Write));
    let mut ended = Vec::new();
    while let Some(at) = drive.next_event() {
        drive.advance(at, &mut ended);
    }
    let of = |task| ended.iter().filter(move |one| one.task == task).map(|one| one.at.get());
    assert_eq!(of(TASK).collect::<Vec<_>>(), [20]);
    assert_eq!(of(flushing).next_back(), Some(20 + 20 + 20 + 1_000 + 20));
    assert!(drive.write_back.is_none() && drive.dirty == 0 && drive.pending.is_empty());
}

/// LMDB with more data than memory would read for free if evicted pages stayed mapped.
#[test]
fn mapped_pages_that_leave_the_cache_are_reported() {
    let mut drive = drive(64 * PAGE);
    drive.add_existing(1, 1 << 20);
    let fault = access::MAPPED | access::RANDOM;
    let mut mapped = BTreeSet::new();
    for page in 0..256 {
        let took =
            whole(&mut drive, |drive, now| drive.access(TASK, now, read(page * PAGE, PAGE, fault)));
        assert_eq!(took, 10, "one page");
        mapped.insert(page * PAGE);
        while let Some((file, at)) = drive.next_evicted() {
            assert!(file == 1 && mapped.remove(&at), "{at} was not mapped");
        }
    }
    assert!(mapped.len() <= 64, "{} pages in 64 frames", mapped.len());
    // Without MADV_RANDOM the pages around are read as well.
    let around = |drive: &mut Drive<Fixed>, now| {
        drive.access(TASK, now, read(8 * PAGE, PAGE, access::MAPPED))
    };
    let before = drive.totals().read_bytes;
    assert_eq!(whole(&mut drive, around), 10);
    assert_eq!(drive.totals().read_bytes - before, READ_AHEAD * PAGE);
}

/// Without dirty pages of mappings LMDB with MDB_WRITEMAP would never write; if they stayed mapped, it would
/// write each of them once only.
#[test]
fn pages_written_through_a_mapping_are_flushed_and_reported() {
    let mut drive = drive(1 << 30);
    drive.resize(1, 1 << 20);
    let fault = |drive: &mut Drive<Fixed>, page: u64, flags: u64| {
        let fault = access::MAPPED | access::RANDOM | flags;
        whole(drive, |drive, now| drive.access(TASK, now, read(page * PAGE, PAGE, fault)))
    };
    for page in 0..3 {
        assert_eq!(fault(&mut drive, page, access::WRITE), 0, "a hole is not read");
    }
    assert_eq!(fault(&mut drive, 9, 0), 0, "a hole is not read");
    let flush = |drive: &mut Drive<Fixed>| {
        whole(drive, |drive, now| drive.sync(TASK, now, (1, None), false))
    };
    assert_eq!(flush(&mut drive), 20 + 20 + 1_000 + 20, "allocated pages are in the journal");
    let reported: Vec<u64> = std::iter::from_fn(|| drive.next_evicted()).map(|one| one.1).collect();
    assert_eq!(reported, [CLEANED, PAGE | CLEANED, (2 * PAGE) | CLEANED]);
    assert_eq!(fault(&mut drive, 1, access::WRITE), 0, "still in the page cache");
    assert_eq!(flush(&mut drive), 20 + 1_000, "nothing was allocated");
    drive.evict(1, 0, 0);
    assert_eq!(fault(&mut drive, 1, access::WRITE), 10, "it has been written, so it is read");
    assert_eq!(drive.totals().dirtied_bytes, 5 * PAGE);
    assert_eq!((drive.totals().reads, drive.totals().written_bytes), (1, (3 + 3 + 1) * PAGE));
}

/// A bare device has no holes and no journal.
#[test]
fn a_bare_device_is_read_before_it_is_written_through_a_mapping() {
    let mut drive = Drive::new(Fixed::default(), 1 << 30, 1 << 30, FileSystem::Raw);
    drive.resize(1, 1 << 20);
    let fault = access::MAPPED | access::RANDOM | access::WRITE;
    assert_eq!(whole(&mut drive, |drive, now| drive.access(TASK, now, read(0, PAGE, fault))), 10);
    let write = FileAccess { flags: access::WRITE, ..read(8 * PAGE, PAGE, 0) };
    assert_eq!(whole(&mut drive, |drive, now| drive.access(TASK, now, write)), 0, "a whole page");
    assert_eq!(whole(&mut drive, |drive, now| drive.sync(TASK, now, (1, None), true)), 20 + 1_000);
}

/// Memory that programs use would otherwise be used twice.
#[test]
fn the_page_cache_has_what_programs_leave() {
    let mut drive = drive(64 * PAGE).with_shared_memory();
    assert!(drive.has_shared_memory());
    drive.add_existing(1, 1 << 20);
    let misses = |drive: &mut Drive<Fixed>| {
        let before = drive.totals().misses;
        for page in 0..32 {
            let random = read(page * PAGE, PAGE, access::RANDOM);
            whole(drive, |drive, now| drive.access(TASK, now, random));
        }
        drive.totals().misses - before
    };
    assert_eq!([misses(&mut drive), misses(&mut drive)], [32, 0]);
    drive.reserve(56 * PAGE);
    misses(&mut drive);
    assert!(misses(&mut drive) > 24, "8 pages are left");
    drive.reserve(1 << 30);
    assert_eq!(drive.frames, 2, "a little is always left");
    assert!(drive.totals().out_of_memory);
}

/// Without wake-ups between its requests a commit on a fast drive would be too fast.
#[test]
fn steps_of_one_access_are_apart_by_the_host_path() {
    let mut drive = drive(1 << 30).with_gap(Nanos(100));
    let write = FileAccess { flags: access::WRITE, ..read(0, 4096, 0) };
    whole(&mut drive, |drive, now| drive.access(TASK, now, write));
    let took = whole(&mut drive, |drive, now| drive.sync(TASK, now, (1, None), false));
    assert_eq!(took, 20 + 100 + 20 + 100 + 1_000 + 100 + 20);
}

/// Large requests are split as the kernel does, and the parts run at once.
#[test]
fn large_accesses_are_split() {
    let mut drive = drive(1 << 20);
    drive.add_existing(1, 8 << 20);
    let took =
        whole(&mut drive, |drive, now| drive.access(TASK, now, read(0, 4 << 20, access::DIRECT)));
    assert_eq!(took, 10);
    assert_eq!((drive.totals().reads, drive.totals().read_bytes), (4, 4 << 20));
}
