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
use crate::transport::{AttachError, Missing, Opened, Transport};
use classic::ClassicServer;
use ring::{RingServer, Rings};

/// FUSE over io_uring (Linux 6.14): a thread for each processor.
#[derive(Debug)]
pub(crate) struct FuseRings;

/// FUSE by reading and writing `/dev/fuse`: one thread.
#[derive(Debug)]
pub(crate) struct FuseClassic;

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

impl Transport for FuseRings {
    fn word(&self) -> &'static str {
        "rings"
    }

    fn about(&self) -> &'static str {
        "FUSE over io_uring, a thread for each processor"
    }

    fn available(&self) -> Result<(), Missing> {
        mount::rings_available()
    }

    fn changes_host(&self) -> bool {
        mount::allows_rings()
    }

    fn open(&self, place: &Path, disk: &Arc<ServedDisk>) -> Result<Opened, AttachError> {
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
}

impl Transport for FuseClassic {
    fn word(&self) -> &'static str {
        "classic"
    }

    fn about(&self) -> &'static str {
        "FUSE, one thread"
    }

    fn available(&self) -> Result<(), Missing> {
        mount::fuse_available()
    }

    fn open(&self, place: &Path, disk: &Arc<ServedDisk>) -> Result<Opened, AttachError> {
        let (fuse, disk) = (mount::mount(place, false)?, Arc::clone(disk));
        let threads = vec![thread(0, move || ClassicServer::new(fuse, disk, owner()).run())];
        Ok(Opened { file: place.join(wire::NAME), threads })
    }
}
