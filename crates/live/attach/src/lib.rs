//! A modelled device as a live file: `disk` in a directory of its own, served through FUSE at the model's
//! times.
//!
//! What opens it is served as a disk serves: reads and writes side by side, fsync(2) as a flush, holes as
//! discards. A loop device over it, with direct I/O, is a block device.
//!
//! Invariants: the way through FUSE and back is measured when it is attached; clients see the model's times
//! and what the way to a real device takes, no more; a model that is faster than that way is refused unless
//! it is stretched; what was delivered is measured all the time. What it is not: the model (`device`) or
//! its clock (`realtime`).

#![forbid(unsafe_code)]

mod fidelity;
mod follow;
mod mount;
mod serve;
mod store;
mod wire;

use std::fs::OpenOptions;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use device::{Completion, Device, Request};
use rustix::fs::OFlags;
use rustix::process::{getegid, geteuid};
use units::Nanos;

pub use fidelity::{DIFFERENCE_MAX, Served};
pub use mount::available;
pub use store::Store;

use serve::{Pace, Server, Told};

/// Reads that the way there and back is measured with, after as many that warm it up.
const PROBES: usize = 2_000;

/// Why a device cannot be attached.
#[derive(Debug)]
pub enum AttachError {
    /// What failed, and how.
    Io(&'static str, io::Error),
    /// The way there and back takes longer than the device.
    TooFast {
        /// What the device takes for a read of 4 KiB.
        takes: Nanos,
        /// What the way to a real device takes.
        path: Nanos,
        /// What the way takes.
        floor: Nanos,
        /// The least scale with which it can be attached.
        scale: u32,
    },
}

impl std::fmt::Display for AttachError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(what, error) => write!(out, "{what}: {error}"),
            Self::TooFast { takes, path, floor, scale } => write!(
                out,
                "a read takes {takes} on the model and {path} on the way to it, the way through FUSE and \
                 back alone takes {floor} here: it can be attached {scale} times slower"
            ),
        }
    }
}

impl std::error::Error for AttachError {}

/// How to attach.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Device time is stretched so many times; 1: as it is.
    pub scale: u32,
    /// Waits shorter than this are spent looking instead of sleeping.
    pub spin: Nanos,
    /// What the way through the kernel to a real device and back takes, which the clients of this one are
    /// to see as well.
    pub path: Nanos,
}

/// A device that is attached; it is served until it is unmounted, or [`Attached::ended`].
#[derive(Debug)]
pub struct Attached {
    place: PathBuf,
    told: Arc<Told>,
    thread: JoinHandle<io::Result<Served>>,
    floor: Nanos,
}

/// The file of a disk that is attached at `place`.
#[must_use]
pub fn file_at(place: &Path) -> PathBuf {
    place.join(wire::NAME)
}

impl Attached {
    /// Mounts at the empty directory `place`, measures the way, and serves what `device` makes there.
    /// `unmount` is how it is undone where that fails.
    ///
    /// # Errors
    /// [`AttachError`]; then nothing is mounted, unless unmounting failed as well.
    pub fn new<D: Device + Clone + Send + 'static>(
        place: &Path,
        (device, store): (D, Store),
        Wanted { scale, spin, path }: Wanted,
        unmount: &dyn Fn(),
    ) -> Result<Self, AttachError> {
        let takes = read_time(device.clone());
        // With time stretched, the way to the device is, too.
        let seen = (takes + path).get().max(1);
        let fuse = mount::mount(place).map_err(|error| AttachError::Io("mount", error))?;
        let told = Arc::new(Told::default());
        let owner = (geteuid().as_raw(), getegid().as_raw());
        let own = Arc::clone(&told);
        let thread = std::thread::Builder::new().name("attached".into()).spawn(move || {
            // Timers of this thread are exact to what the kernel can.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            observe::give_way();
            Server::new((fuse, store), device, Pace { scale, spin, path }, (own, owner)).run()
        });
        let known = match &thread {
            Ok(_) => {
                probe(&file_at(place)).map_err(|error| AttachError::Io("measure the way", error))
            }
            Err(error) => Err(AttachError::Io("start a thread", io::Error::from(error.kind()))),
        };
        let wanted = known.and_then(|floor| {
            let least = u32::try_from(floor.get().div_ceil(seen)).unwrap_or(u32::MAX);
            match least > scale {
                true => Err(AttachError::TooFast { takes, path, floor, scale: least }),
                false => Ok(floor),
            }
        });
        match (wanted, thread) {
            (Ok(floor), Ok(thread)) => {
                told.floor.store(floor.get(), Ordering::Relaxed);
                told.timed.store(true, Ordering::Release);
                Ok(Self { place: place.to_owned(), told, thread, floor })
            }
            (Err(error), _) => {
                unmount();
                Err(error)
            }
            (Ok(_), Err(error)) => Err(AttachError::Io("start a thread", error)),
        }
    }

    /// The file that is the disk.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        file_at(&self.place)
    }

    /// What the way through the kernel and back takes.
    #[must_use]
    pub const fn floor(&self) -> Nanos {
        self.floor
    }

    /// What was served until a tenth of a second ago or so.
    #[must_use]
    pub fn served(&self) -> Served {
        self.told.served()
    }

    /// Whether it is still served; it is not once somebody has unmounted it.
    #[must_use]
    pub fn is_served(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Ends serving; gives what was served. Unmount it before: what still has it mounted gets errors.
    ///
    /// # Errors
    /// Why serving ended before that.
    pub fn ended(self) -> io::Result<Served> {
        self.told.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that serves died")))
    }
}

/// What a read of 4 KiB takes on an idle device, median of many.
fn read_time<D: Device>(mut device: D) -> Nanos {
    const READS: u64 = 101;
    let (mut now, mut done, mut took) = (Nanos::ZERO, Vec::new(), Vec::new());
    for number in 0..READS {
        let began = now;
        device.submit(now, Request::read(number, number * 4096, 4096));
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

/// What a read takes that is answered at once: median of many.
fn probe(file: &Path) -> io::Result<Nanos> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(file)?;
    let mut space = vec![0u8; 8192];
    let start = space.as_ptr().align_offset(4096);
    let buffer = &mut space[start..start + 4096];
    let mut took = Vec::with_capacity(PROBES);
    for number in 0..2 * PROBES {
        let began = Instant::now();
        file.read_exact_at(buffer, 0)?;
        if number >= PROBES {
            took.push(Nanos::from(began.elapsed()));
        }
    }
    took.sort_unstable();
    Ok(took[took.len() / 2])
}
