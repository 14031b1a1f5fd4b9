//! Calibration of the harness: threads that read pages, without a database.

use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sim::scheduler::{SchedulerCosts, WakeCost};
use units::Nanos;

use crate::{FAULTS, PathCosts, cores, host, latency_of, median, output_of};

/// How the calibration reads pages.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Access {
    /// By pread(2).
    Call,
    /// Through a mapping.
    Fault,
}

impl Access {
    /// The argument of the calibration's program.
    const fn verb(self) -> &'static str {
        match self {
            Self::Call => "--read-pages",
            Self::Fault => "--map-pages",
        }
    }

    pub(crate) fn of(verb: &str) -> Option<Self> {
        [Self::Call, Self::Fault].into_iter().find(|one| one.verb() == verb)
    }
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
    command.arg(access.verb()).arg(file.path()).arg(threads.to_string()).stdout(Stdio::piped());
    let text = output_of(command, &host(path, place.path()), latency_of(80, 0), is_real);
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [count, time, cpu] = numbers[..] else { panic!("{text}") };
    // Busy CPUs are shared with the drive, whose time counts as theirs.
    let cpu = if cores() > 1 && threads > 1 { time * cores() as f64 } else { cpu };
    (time / count, cpu / count)
}

/// Threads that keep all CPUs busy.
fn many() -> usize {
    if cores() > 1 { 64 } else { 16 }
}

/// The costs that plain reads have in this harness besides those that a simulation charges anyway: of one
/// thread, which finds the CPU idle, and of many, which keep it busy.
pub(crate) fn calibrate() -> PathCosts {
    let free = PathCosts { submit: Nanos::ZERO, wake: SchedulerCosts::FREE.interrupt };
    let rounds = |threads, path, is_real| {
        let all: Vec<_> =
            (0..5).map(|_| calibrated(threads, Access::Call, path, is_real)).collect();
        let part = |of: fn(&(f64, f64)) -> f64| median(all.iter().map(of).collect());
        (part(|one| one.0), part(|one| one.1))
    };
    let [real_idle, real_busy] = [1, many()].map(|threads| rounds(threads, free, true));
    let [idle, busy] = [1, many()].map(|threads| rounds(threads, free, false));
    eprintln!(
        "ns per read, and CPU: real {real_idle:.0?}, {real_busy:.0?}; free {idle:.0?}, {busy:.0?}"
    );
    let least = |value: f64| Nanos(value.max(0.0) as u64);
    let nanos = |value: f64| {
        assert!(value > -500.0, "the simulation charges {value} ns too much without these costs");
        least(value)
    };
    let submit = nanos(real_busy.1 - busy.1);
    // A read that finds the CPU polling may take less of it than a switch from another thread does.
    let wakee = least(real_idle.1 - idle.1 - submit.get() as f64);
    let latency = least(real_idle.0 - idle.0 - (submit + wakee).get() as f64);
    let wake = WakeCost { latency, wakee, ..SchedulerCosts::FREE.interrupt };
    let path = PathCosts { submit, wake };
    eprintln!(
        "1 thread: {:.0} ns per read, CPU {:.0}; {} threads: {:.0}, CPU {:.0}; {path:?}",
        real_idle.0,
        real_idle.1,
        many(),
        real_busy.0,
        real_busy.1
    );
    for (threads, real) in [(1, real_idle), (many(), real_busy)] {
        let (time, cpu) = rounds(threads, path, false);
        eprintln!("in virtual time: {threads} threads {time:.0} ns per read, CPU {cpu:.0}");
        assert!((time / real.0 - 1.0).abs() < 0.1, "the calibration failed");
    }
    let busy = |is_real| {
        let all = (0..5).map(|_| calibrated(many(), Access::Fault, path, is_real).1);
        median(all.collect())
    };
    let [real, simulated] = [busy(true), busy(false)];
    let emulated = FAULTS.get_or_init(|| nanos(real - simulated));
    let corrected = busy(false);
    eprintln!(
        "{} threads that read a mapping: CPU {real:.0} ns per read, in virtual time {simulated:.0}, and \
         {corrected:.0} with {emulated} per page fault",
        many()
    );
    path
}
