//! The idle CPU: kept from halting, and how often it and a busy one are woken.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use sim::scheduler::Counts;

/// Keeps idle CPUs from halting while it exists: waking a halted virtual CPU takes the hypervisor up to
/// 60 us, differently each time. A spinning thread, even of the lowest priority, would change what the
/// scheduler does: a woken thread then never takes the CPU from its waker.
#[derive(Debug)]
pub(crate) struct Awake {
    _latency: Option<File>,
}

impl Awake {
    /// Only root may ask for it; others run below a shell of root that does.
    pub fn new() -> Self {
        let file = File::options().write(true).open("/dev/cpu_dma_latency");
        let latency = file.and_then(|mut file| file.write_all(&0_i32.to_ne_bytes()).map(|()| file));
        let driver = std::fs::read_to_string("/sys/devices/system/cpu/cpuidle/current_driver");
        if driver.is_ok_and(|driver| driver.trim() == "none") {
            eprintln!("no cpuidle driver: idle CPUs halt");
        }
        if let Err(error) = &latency {
            eprintln!(
                "/dev/cpu_dma_latency: {error}; idle CPUs halt unless another process holds it at 0"
            );
        }
        Self { _latency: latency.ok() }
    }
}

/// Counts kernel events; for root.
#[derive(Debug)]
struct KernelEvents {
    instance: PathBuf,
    /// The CPUs that record them, the first ones.
    cpus: usize,
}

impl KernelEvents {
    /// Of this kind, where the filter holds.
    fn new((event, filter): (&str, &str), cpus: usize) -> std::io::Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("crosspoint-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let instance = Path::new("/sys/kernel/tracing/instances").join(name);
        std::fs::create_dir(&instance)?;
        let counter = Self { instance, cpus };
        let set = |file: &str, text: &str| {
            std::fs::write(counter.instance.join("events").join(event).join(file), text)
        };
        set("filter", filter)?;
        set("enable", "1")?;
        Ok(counter)
    }

    /// The number so far.
    fn count(&self) -> u64 {
        let of = |cpu: usize| {
            let path = self.instance.join(format!("per_cpu/cpu{cpu}/stats"));
            let stats = std::fs::read_to_string(path).expect("kernel events");
            let number = |name: &str| -> u64 {
                let text = stats.lines().find_map(|line| line.strip_prefix(name));
                text.and_then(|text| text.trim().parse().ok()).expect("a count")
            };
            number("entries:") + number("overrun:")
        };
        (0..self.cpus).map(of).sum()
    }
}

impl Drop for KernelEvents {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir(&self.instance) {
            eprintln!("{}: {error}", self.instance.display());
        }
    }
}

/// Counts what the scheduler does on the program's CPUs; for root.
#[derive(Debug)]
pub(crate) struct Wakes {
    /// Threads that started on an idle CPU.
    idle: KernelEvents,
    /// Threads that were woken.
    woken: KernelEvents,
    /// Threads that started.
    started: KernelEvents,
}

impl Wakes {
    /// On that many CPUs, from the first.
    pub fn new(cpus: usize) -> std::io::Result<Self> {
        let here = format!("target_cpu < {cpus}");
        // A wake-up is recorded by its CPU, or by the waker's.
        let all = std::thread::available_parallelism()?.get();
        Ok(Self {
            idle: KernelEvents::new(("sched/sched_switch", "prev_pid == 0"), cpus)?,
            woken: KernelEvents::new(("sched/sched_wakeup", &here), all)?,
            started: KernelEvents::new(("sched/sched_switch", "next_pid != 0"), cpus)?,
        })
    }

    /// The counts so far; waits are counted by the process.
    pub fn count(&self) -> Counts {
        let idle = self.idle.count();
        Counts {
            idle_wakes: idle,
            busy_wakes: self.woken.count().saturating_sub(idle),
            switches: self.started.count(),
            ..Counts::default()
        }
    }
}
