//! The idle CPU: kept from halting, and how often it is woken.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

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

/// Counts how often the first CPU was woken while it was idle, by kernel events; for root.
#[derive(Debug)]
pub(crate) struct IdleWakes {
    instance: PathBuf,
}

impl IdleWakes {
    pub fn new() -> std::io::Result<Self> {
        let name = format!("crosspoint-{}", std::process::id());
        let instance = Path::new("/sys/kernel/tracing/instances").join(name);
        std::fs::create_dir(&instance)?;
        let counter = Self { instance };
        counter.set("events/sched/sched_switch/filter", "prev_pid == 0")?;
        counter.set("events/sched/sched_switch/enable", "1")?;
        Ok(counter)
    }

    fn set(&self, file: &str, text: &str) -> std::io::Result<()> {
        std::fs::write(self.instance.join(file), text)
    }

    /// The count so far.
    pub fn count(&self) -> u64 {
        let path = self.instance.join("per_cpu/cpu0/stats");
        let stats = std::fs::read_to_string(path).expect("kernel events");
        let number = |name: &str| -> u64 {
            let text = stats.lines().find_map(|line| line.strip_prefix(name));
            text.and_then(|text| text.trim().parse().ok()).expect("a count")
        };
        number("entries:") + number("overrun:")
    }
}

impl Drop for IdleWakes {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir(&self.instance) {
            eprintln!("{}: {error}", self.instance.display());
        }
    }
}
