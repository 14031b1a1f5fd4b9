//! FUSE: the disk is a file on a file system of its own, served through io_uring rings or by reading
//! `/dev/fuse`.

mod answering;
mod classic;
mod follow;
mod mount;
mod places;
mod ring;
pub(crate) mod wire;

use std::io;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::process::{getegid, geteuid};

use crate::timed::ServedDisk;
use crate::transport::{AttachError, Opened, Transport};
use classic::ClassicServer;
use ring::{RingServer, Rings};

/// FUSE over io_uring (Linux 6.14): a thread for each processor.
pub(crate) const RINGS: Transport = Transport {
    word: "rings",
    about: "FUSE over io_uring, a thread for each processor",
    available: mount::rings_available,
    changes_host: mount::allows_rings,
    open: open_rings,
};

/// FUSE by reading and writing `/dev/fuse`: one thread.
pub(crate) const CLASSIC: Transport = Transport {
    word: "classic",
    about: "FUSE, one thread",
    available: mount::fuse_available,
    changes_host: || false,
    open: open_classic,
};

/// User and group that own the file.
fn owner() -> (u32, u32) {
    (geteuid().as_raw(), getegid().as_raw())
}

fn thread(
    number: usize,
    serve: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Result<JoinHandle<io::Result<()>>, AttachError> {
    let named = std::thread::Builder::new().name(format!("attached-{number}"));
    let started = named.spawn(move || {
        // Makes timers of these threads as exact as the kernel allows.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        serve()
    });
    started.map_err(|error| AttachError::Io("start a thread", error))
}

fn open_rings(place: &Path, disk: &Arc<ServedDisk>) -> Result<Opened, AttachError> {
    let processors = mount::processors();
    let processors = processors.map_err(|error| AttachError::Io("count processors", error))?;
    let fuse = mount::mount(place, true)?;
    let rings = Arc::new(Rings::new(fuse, Arc::clone(disk), owner(), processors));
    let threads = (0..processors).map(|number| {
        let rings = Arc::clone(&rings);
        thread(number, move || RingServer::of_thread(&rings, number)?.run())
    });
    Ok(Opened { file: place.join(wire::NAME), threads: threads.collect() })
}

fn open_classic(place: &Path, disk: &Arc<ServedDisk>) -> Result<Opened, AttachError> {
    let (fuse, disk) = (mount::mount(place, false)?, Arc::clone(disk));
    let threads = vec![thread(0, move || ClassicServer::new(fuse, disk, owner()).run())];
    Ok(Opened { file: place.join(wire::NAME), threads })
}
