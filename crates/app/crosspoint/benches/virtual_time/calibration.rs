//! Calibration of the harness: threads that read pages, without a database.

use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sim::scheduler::{SchedulerCosts, WakeCost};
use units::Nanos;

use crate::{COSTS, FAULTS, PathCosts, SCHEDULER, host, latency_of, median, output_of};

/// How the calibration reads pages.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Access {
    /// By pread(2).
    Call,
    /// Through a mapping.
    Fault,
}

/// Maps the calibration's file until the process ends; returns the mapping's address.
fn mapped(file: &Path) -> usize {
    let file = std::fs::File::open(file).expect("a file");
    let length = (PAGES * 4096) as usize;
    let (kind, descriptor) = (libc::MAP_SHARED, file.as_raw_fd());
    // SAFETY: a new mapping of a file of that length.
    unsafe {
        let map = libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, kind, descriptor, 0);
        assert_eq!(libc::madvise(map, length, libc::MADV_RANDOM), 0, "not mapped");
        map as usize
    }
}

/// The program of the calibration: threads that read pages of a file for half a second; prints operations,
/// nanoseconds and CPU time.
pub(crate) fn read_pages(file: &Path, threads: usize, access: Access) {
    let cpu = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a local variable, and a clock that every kernel has.
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    let (began, before) = (Instant::now(), cpu());
    let map = matches!(access, Access::Fault).then(|| mapped(file));
    let loops: Vec<_> = (0..threads)
        .map(|number| {
            let file = std::fs::File::open(file).expect("a file");
            std::thread::spawn(move || {
                let (mut page, mut count) = ([0; 4096], 0_u64);
                while began.elapsed() < Duration::from_millis(500) {
                    let at = (count * 7919 + number as u64 * 104_729) % PAGES;
                    match map {
                        // SAFETY: a page of the mapping.
                        Some(map) => unsafe {
                            page[0] = (map as *const u8).add(at as usize * 4096).read_volatile();
                        },
                        None => file.read_exact_at(&mut page, at * 4096).expect("read"),
                    }
                    count += 1;
                }
                count
            })
        })
        .collect();
    let count: u64 = loops.into_iter().map(|one| one.join().expect("no panic")).sum();
    println!("{count} {} {}", began.elapsed().as_nanos(), cpu() - before);
}

/// Pages of the calibration's file: 64 MiB.
const PAGES: u64 = 16 << 10;

/// Nanoseconds and CPU time per read of the calibration's program.
fn calibrated(threads: usize, access: Access, path: PathCosts, is_real: bool) -> (f64, f64) {
    let place = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let mut file = tempfile::NamedTempFile::new_in(place.path()).expect("a file");
    file.write_all(&vec![1; (PAGES * 4096) as usize]).expect("written");
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    let verb = if matches!(access, Access::Fault) { "--map-pages" } else { "--read-pages" };
    command.arg(verb).arg(file.path()).arg(threads.to_string()).stdout(Stdio::piped());
    let text = output_of(command, &host(path, place.path()), latency_of(80, 0), is_real);
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [count, time, cpu] = numbers[..] else { panic!("{text}") };
    (time / count, cpu / count)
}

/// The costs that plain reads have in this harness: of one thread, which finds the CPU idle, and of sixteen,
/// which keep it busy.
pub(crate) fn calibrate() -> PathCosts {
    let free = PathCosts { submit: Nanos::ZERO, wake: SchedulerCosts::FREE.interrupt };
    let rounds = |threads| {
        let all: Vec<_> = (0..5).map(|_| calibrated(threads, Access::Call, free, true)).collect();
        let part = |of: fn(&(f64, f64)) -> f64| median(all.iter().map(of).collect());
        (part(|one| one.0), part(|one| one.1))
    };
    let (idle_time, idle_cpu) = rounds(1);
    let (busy_time, busy_cpu) = rounds(16);
    let costs = *SCHEDULER;
    let (switch, block) = (costs.switch.get() as f64, costs.block.get() as f64);
    let nanos = |value: f64| Nanos(value.max(0.0) as u64);
    // The simulated page cache adds these.
    let cached = (COSTS.read + COSTS.copy(4096)).get() as f64;
    let submit = (busy_cpu - switch - block - cached).max(0.0);
    let wakee = (idle_cpu - submit - block - cached).max(0.0);
    let latency_ns = idle_time - 80_000.0 - submit - block - wakee - cached;
    let wake = WakeCost {
        latency: nanos(latency_ns),
        wakee: nanos(wakee),
        ..SchedulerCosts::FREE.interrupt
    };
    let path = PathCosts { submit: nanos(submit), wake };
    eprintln!(
        "calibration: 1 thread {idle_time:.0} ns per read, CPU {idle_cpu:.0}; 16 threads {busy_time:.0}, CPU \
         {busy_cpu:.0}; {path:?}"
    );
    for threads in [1, 16] {
        let (time, cpu) = calibrated(threads, Access::Call, path, false);
        eprintln!("in virtual time: {threads} threads {time:.0} ns per read, CPU {cpu:.0}");
    }
    let busy = |is_real| {
        let all = (0..5).map(|_| calibrated(16, Access::Fault, path, is_real).1);
        median(all.collect())
    };
    let [real, simulated] = [busy(true), busy(false)];
    let emulated = FAULTS.get_or_init(|| nanos(real - simulated));
    let corrected = busy(false);
    eprintln!(
        "16 threads that read a mapping: CPU {real:.0} ns per read, in virtual time {simulated:.0}, and \
         {corrected:.0} with {emulated} per page fault"
    );
    path
}
