//! A modelled device as a live file: `disk` in a directory of its own, served through FUSE at the model's
//! times.
//!
//! It behaves like a disk: parallel reads and writes, fsync(2) as a flush, hole punching as discard. A loop
//! device on it, with direct I/O, is a block device.
//!
//! Invariants: the emulation overhead is measured on attach; clients see the model's time plus a real
//! device's I/O path; a model faster than the overhead is refused unless it is time-scaled; served latencies
//! are always measured.

mod failures;
mod fidelity;
mod fuse;
mod handing;
mod medium;
mod readiness;
mod spin;
mod store;
mod timed;
mod transport;
mod unflushed;

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use device::{Completion, Device, FaultPlan, Model, Request};
use rustix::fs::OFlags;
use stats::Served;
use units::Nanos;

pub use spin::{SPIN_MAX, Spin};
pub use store::Store;
pub use timed::Pace;
pub use transport::{AttachError, Missing};
pub use unflushed::{LostBlock, PowerCut};

use timed::{IoPath, ServedDisk};
use transport::{Opened, Transport};

/// For fuzz targets: requests in the kernel's layout.
pub mod parsing {
    /// Whether these bytes are a valid request, in one piece or in separate parts.
    #[must_use]
    pub fn request(bytes: &[u8]) -> bool {
        let (head, rest) = bytes.split_at(bytes.len().min(128));
        let (arguments, data) = rest.split_at(rest.len().min(128));
        let apart = crate::fuse::wire::FuseRequest::of_parts(head, arguments, data).is_some();
        crate::fuse::wire::FuseRequest::parse(bytes).is_some() || apart
    }
}

/// Reads per batch, and number of batches, for measuring the overhead.
const PROBES: usize = 250;
const BATCHES: usize = 8;
/// Time for which a too large overhead is measured again before the model is refused.
const LOOK_AGAIN: Duration = Duration::from_secs(3);

/// The transports, fastest first: `auto` takes the first available one.
static TRANSPORTS: &[Transport] = &[fuse::RINGS, fuse::CLASSIC];

/// Names of the transports.
pub fn transports() -> impl Iterator<Item = &'static str> {
    TRANSPORTS.iter().map(|one| one.word)
}

/// The transports named `wanted`; all without a name.
fn candidates(wanted: Option<&str>) -> impl Iterator<Item = &'static Transport> {
    let wanted = wanted.map(str::to_owned);
    let is = move |one: &&Transport| wanted.as_deref().is_none_or(|word| word == one.word);
    TRANSPORTS.iter().filter(is)
}

/// Opens the first of the [`candidates`] that is available.
fn first_that_opens<T>(
    wanted: Option<&str>,
    open: impl Fn(&Transport) -> Result<T, AttachError>,
) -> Result<(T, &'static Transport), AttachError> {
    let mut missing = Missing::new("no such transport", "crosspoint attach --help");
    for transport in candidates(wanted) {
        match open(transport) {
            Ok(opened) => return Ok((opened, transport)),
            Err(AttachError::Missing(what)) => missing = what,
            Err(error) => return Err(error),
        }
    }
    Err(AttachError::Missing(missing))
}

/// Description of the first available transport.
///
/// # Errors
/// What is missing.
pub fn available() -> Result<&'static str, Missing> {
    let mut missing = Missing::new("no transport is available", "crosspoint doctor");
    for one in TRANSPORTS {
        match (one.available)() {
            Ok(()) => return Ok(one.about),
            Err(error) => missing = error,
        }
    }
    Err(missing)
}

/// Whether attaching with `wanted` changes a setting of the host temporarily.
#[must_use]
pub fn changes_host(wanted: Option<&str>) -> bool {
    candidates(wanted).any(|one| (one.changes_host)())
}

/// An attached device; served until it is unmounted, or [`Attached::ended`].
#[derive(Debug)]
pub struct Attached {
    file: PathBuf,
    disk: Arc<ServedDisk>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    pace: Pace,
    /// Latency of a read on the model alone.
    takes: Nanos,
    floor: Nanos,
    transport: &'static str,
}

impl Attached {
    /// Attaches `device` with the data of `store` at the empty directory `place`, and measures the overhead.
    /// Without a `transport` the first available one is used. `unmount` undoes it after a failure.
    ///
    /// # Errors
    /// [`AttachError`]; nothing is mounted then, unless unmounting failed, too.
    pub fn new(
        place: &Path,
        (device, store): (Model, Store),
        (pace, transport): (Pace, Option<&str>),
        unmount: &dyn Fn(),
    ) -> Result<Self, AttachError> {
        let takes = read_time(device.clone());
        let disk = Arc::new(ServedDisk::new(store, device, pace));
        let open = |one: &Transport| {
            (one.available)().map_err(AttachError::Missing)?;
            (one.open)(place, &disk)
        };
        let (Opened { file, threads }, transport) = first_that_opens(transport, open)?;
        let (transport, floor) = (transport.word, Nanos::ZERO);
        let mut made = Self { file, disk, threads: Vec::new(), pace, takes, floor, transport };
        let mut served = Ok(());
        for thread in threads {
            match thread {
                Ok(thread) => made.threads.push(thread),
                Err(error) => served = Err(error),
            }
        }
        let file = made.file.clone();
        match served.and_then(|()| made.measure(&file)) {
            Ok(()) => Ok(made),
            Err(error) => {
                made.stop();
                unmount();
                // Prefers the reason from a serving thread.
                match (error, made.ended()) {
                    (AttachError::Io(..), Err(reason)) => Err(AttachError::Io("serve", reason)),
                    (error, _) => Err(error),
                }
            }
        }
    }

    fn stop(&self) {
        self.disk.state.stop.store(true, Ordering::Relaxed);
    }

    /// Measures the overhead of `file` again, the disk's or a block device on it: from now on its clients see
    /// the model's times.
    ///
    /// # Errors
    /// [`AttachError`]; if the overhead is too large for the model, requests are no longer timed.
    pub fn measure(&mut self, file: &Path) -> Result<(), AttachError> {
        self.disk.state.end_timing();
        let (takes, Pace { scale, path, .. }) = (self.takes, self.pace);
        let began = Instant::now();
        let look = || {
            let way = probe(file, || self.disk.state.inside());
            way.map_err(|error| AttachError::Io("measure the way", error))
        };
        let mut way = look()?;
        // Other load on the machine varies, so try again.
        while least_scale(way.floor, (takes, path)) > scale && began.elapsed() < LOOK_AGAIN {
            let again = look()?;
            way = if again.floor < way.floor { again } else { way };
        }
        let floor = way.floor;
        let least = least_scale(floor, (takes, path));
        if least > scale {
            return Err(AttachError::TooFast { takes, path, floor, scale: least });
        }
        self.floor = floor;
        self.disk.begin_timing(way);
        Ok(())
    }

    /// The file that is the disk.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The emulation overhead.
    #[must_use]
    pub const fn floor(&self) -> Nanos {
        self.floor
    }

    /// The transport in use.
    #[must_use]
    pub const fn transport(&self) -> &'static str {
        self.transport
    }

    /// Delivered times since it was attached, or since the last reset.
    #[must_use]
    pub fn served(&self) -> Served {
        self.disk.state.served(self.floor, self.pace.scale)
    }

    /// Resets the counters.
    pub fn begin_anew(&self) {
        self.disk.state.begin_anew();
    }

    /// Starts or ends the preload: requests take no time and do not reach the model; at its end the model
    /// restarts in its initial state, without faults.
    pub fn stage(&self, staging: bool) {
        self.disk.stage(staging);
    }

    /// Starts the fault plan `plan`, its times from now; `None` ends faults and restores power.
    pub fn begin_faults(&self, plan: Option<FaultPlan>) {
        self.disk.begin_faults(plan);
    }

    /// Cuts the power now: every request fails, and only some writes not flushed since the plan began
    /// survive. Has no effect without a plan.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn cut_power(&self) -> io::Result<()> {
        self.disk.medium.cut()
    }

    /// The effect of the power cut; `None` while there is power.
    #[must_use]
    pub fn power_cut(&self) -> Option<PowerCut> {
        self.disk.medium.power_cut()
    }

    /// Copies its current contents to a new sparse file; also possible without power.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn copy_to(&self, path: &Path) -> io::Result<()> {
        self.disk.medium.store().copy_to(path)
    }

    /// Whether it is still served; it is not after an unmount.
    #[must_use]
    pub fn is_served(&self) -> bool {
        !self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Ends serving; returns the delivered times. Unmount it first: remaining users get errors.
    ///
    /// # Errors
    /// Why serving ended earlier.
    pub fn ended(self) -> io::Result<Served> {
        self.stop();
        let mut ended = Ok(());
        for thread in self.threads {
            let one = thread.join();
            let one = one.unwrap_or_else(|_| Err(io::Error::other("a server thread died")));
            ended = ended.and(one);
        }
        ended.map(|()| self.disk.state.served(self.floor, self.pace.scale))
    }
}

/// The smallest time scale for a device with latency `takes` and the overhead `floor`: clients see the device
/// plus a real device's I/O path, which is not scaled.
fn least_scale(floor: Nanos, (takes, path): (Nanos, Nanos)) -> u32 {
    let rest = floor.since(path).get();
    u32::try_from(rest.div_ceil(takes.get().max(1))).unwrap_or(u32::MAX).max(1)
}

/// Number of blocks for test reads; every disk has at least these.
const BLOCKS: u64 = 16 << 10;

/// Median time of a 4 KiB read on the idle device.
fn read_time(mut device: Model) -> Nanos {
    const READS: u64 = 101;
    let (mut now, mut done, mut took) = (Nanos::ZERO, Vec::new(), Vec::new());
    for number in 0..READS {
        let began = now;
        // Far apart, because neighbours may be in the drive's cache.
        let block = number * 7_919 % BLOCKS;
        device.submit(now, Request::read(number, block * 4096, 4096));
        while let Some(next) = device.next_event().filter(|_| done.is_empty()) {
            device.advance(next, &mut done);
        }
        let end = done.pop().map_or(now, |completion: Completion| completion.at);
        took.push(end.since(began));
        now = end + Nanos::from_millis(1);
    }
    took.sort_unstable();
    took[took.len() / 2]
}

/// The overhead of a read that is answered at once: the smallest median of several batches, to exclude
/// background load; and its part inside the server, from `inside`.
fn probe(file: &Path, inside: impl Fn() -> Nanos) -> io::Result<IoPath> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(file)?;
    let mut space = vec![0u8; 8192];
    let start = space.as_ptr().align_offset(4096);
    let buffer = &mut space[start..start + 4096];
    let mut least: Option<IoPath> = None;
    // The first one warms up.
    for batch in 0..=BATCHES {
        let mut took = Vec::with_capacity(PROBES);
        for _ in 0..PROBES {
            let began = Instant::now();
            file.read_exact_at(buffer, 0)?;
            took.push(Nanos::from(began.elapsed()));
        }
        took.sort_unstable();
        let way = IoPath { floor: took[PROBES / 2], inside: inside() };
        if batch > 0 && least.is_none_or(|least| way.floor < least.floor) {
            least = Some(way);
        }
    }
    Ok(least.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next transport is tried only if one is missing; after a failed mount, the disk could be mounted
    /// twice.
    #[test]
    fn only_a_missing_transport_is_followed_by_the_next() {
        let missing = || AttachError::Missing(Missing::new("unavailable", "install it"));
        let words: Vec<&str> = transports().collect();
        let last = words[words.len() - 1];
        let opened = first_that_opens(None, |one| match one.word == last {
            true => Ok(one.word),
            false => Err(missing()),
        });
        assert_eq!(opened.map(|(word, one)| (word, one.word)).unwrap(), (last, last));
        let failed: Result<((), _), _> = first_that_opens(None, |one| {
            assert_eq!(one.word, words[0], "nothing is tried after a failure");
            Err(AttachError::Io("mount", io::Error::other("broken")))
        });
        assert!(matches!(failed, Err(AttachError::Io("mount", _))));
        let none: Result<((), _), _> = first_that_opens(None, |_| Err(missing()));
        assert_eq!(none.err().map(|error| error.to_string()).as_deref(), Some("unavailable"));
        let chosen = first_that_opens(Some(last), |one| Ok(one.word));
        assert_eq!(chosen.unwrap().0, last);
        let unknown = first_that_opens(Some("pigeon"), |_| Ok(()));
        assert!(unknown.is_err(), "a word that is no transport");
    }

    /// A device faster than the emulation overhead must be time-scaled, or it would be shown slower than it
    /// is.
    #[test]
    fn a_device_that_is_faster_than_the_way_is_stretched() {
        let scale = |floor, takes| least_scale(Nanos(floor), (Nanos(takes), Nanos(4_000)));
        assert_eq!([scale(14_000, 9_999), scale(14_000, 10_000)], [2, 1]);
        assert_eq!([scale(14_000, 50_000), scale(14_000, 0), scale(3_000, 1)], [1, 10_000, 1]);
    }
}
