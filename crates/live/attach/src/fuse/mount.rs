//! Mounts a FUSE file system: root with mount(2), others through `fusermount3`.
//!
//! Invariant: the same user can unmount it.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use io_uring::IoUring;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, Mode, OFlags, fcntl_getfl, fcntl_setfl, flock, open};
use rustix::mount::MountFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};
use rustix::process::{getegid, geteuid};

use super::wire::{FuseAnswer, FuseOperation, FuseRequest, REQUEST_MAX, offers_rings};
use crate::transport::{AttachError, Missing};

/// The setuid mount helper, from the package `fuse3`.
const HELPER: &str = "fusermount3";
/// Whether mounts may use rings (Linux 6.14).
const RINGS_PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
/// Time limit for the kernel's first request.
const BEGIN_SECONDS: i64 = 10;
/// Name of the file system in lists of mounts.
const SOURCE: &str = "crosspoint";

/// Checks that FUSE is available.
pub(crate) fn fuse_available() -> Result<(), Missing> {
    let device = Path::new("/dev/fuse");
    if let Err(error) = open(device, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        return Err(Missing::new(format!("/dev/fuse cannot be opened: {error}"), "modprobe fuse"));
    }
    if geteuid().is_root() {
        return Ok(());
    }
    match Command::new(HELPER).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Missing::new("fusermount3 was not found", "apt-get install fuse3")),
    }
}

/// Checks that FUSE over io_uring is available.
pub(crate) fn rings_available() -> Result<(), Missing> {
    fuse_available()?;
    let allowed = std::fs::read_to_string(RINGS_PARAMETER).is_ok_and(|word| word.trim() == "Y");
    let rings = allowed || allows_rings();
    if rings && IoUring::new(2).is_ok() { Ok(()) } else { Err(no_rings()) }
}

fn no_rings() -> Missing {
    let reason = "FUSE over io_uring is unavailable: it needs Linux 6.14 or later, and root or \
    /sys/module/fuse/parameters/enable_uring";
    Missing::new(reason, "--transport classic")
}

/// Mounts at the directory `place` and negotiates the transport: `rings`, or reading. Returns the open
/// `/dev/fuse` in non-blocking mode.
///
/// # Errors
/// A message; nothing is mounted then.
pub(crate) fn mount(place: &Path, rings: bool) -> Result<OwnedFd, AttachError> {
    let allowed = if rings { RingsAllowed::new() } else { None };
    let mounted = if geteuid().is_root() { as_root(place) } else { by_helper(place) };
    let fuse = mounted.map_err(|error| AttachError::Io("mount", error))?;
    let agreed = agree(&fuse, rings);
    drop(allowed);
    match agreed.map_err(|error| AttachError::Io("agree with the kernel", error)) {
        Ok(agreed) if agreed == rings => Ok(fuse),
        Ok(_) => Err(AttachError::Missing(no_rings())),
        Err(error) => Err(error),
    }
    .inspect_err(|_| release(place))
}

/// Unmounts a fresh mount.
fn release(place: &Path) {
    if geteuid().is_root() {
        let _ = rustix::mount::unmount(place, rustix::mount::UnmountFlags::DETACH);
    } else {
        let mut helper = Command::new(HELPER);
        let _ = helper.args(["-u", "-z", "--"]).arg(place).stderr(Stdio::null()).status();
    }
}

/// Answers the kernel's first request; returns whether requests come through rings.
fn agree(fuse: &OwnedFd, rings: bool) -> io::Result<bool> {
    let flags = fcntl_getfl(fuse)?;
    fcntl_setfl(fuse, flags | OFlags::NONBLOCK)?;
    let mut polled = [PollFd::new(fuse, PollFlags::IN)];
    let wait = Timespec { tv_sec: BEGIN_SECONDS, tv_nsec: 0 };
    if poll(&mut polled, Some(&wait))? == 0 {
        return Err(io::Error::other("the kernel sent no request"));
    }
    let mut buffer = vec![0u8; REQUEST_MAX];
    let length = rustix::io::read(fuse, &mut buffer[..])?;
    let request = FuseRequest::parse(&buffer[..length]);
    let Some((unique, readahead, flags)) = request.and_then(|request| match request.asked {
        FuseOperation::Init { readahead, flags } => Some((request.unique, readahead, flags)),
        _ => None,
    }) else {
        return Err(io::Error::other("the kernel did not begin with INIT"));
    };
    let rings = rings && offers_rings(flags);
    let mut answer = FuseAnswer::default();
    answer.clear().init(readahead, flags, rings);
    rustix::io::write(fuse, answer.finish(unique, None))?;
    Ok(rings)
}

/// Whether attaching can enable FUSE over io_uring temporarily: it exists, is disabled, and this user has
/// permission.
pub(crate) fn allows_rings() -> bool {
    let forbidden = std::fs::read_to_string(RINGS_PARAMETER).is_ok_and(|word| word.trim() == "N");
    forbidden && OpenOptions::new().write(true).open(RINGS_PARAMETER).is_ok()
}

/// Number of possible CPUs: the kernel requires a ring for each.
pub(crate) fn processors() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit(['-', ',']).next().and_then(|last| last.parse::<usize>().ok());
    last.map(|last| last + 1).ok_or_else(|| io::Error::other(format!("{} processors", text.trim())))
}

/// Keeps FUSE over io_uring enabled while it exists; existing mounts keep using it.
struct RingsAllowed {
    /// The module parameter, locked, if it was changed.
    changed: Option<File>,
}

impl RingsAllowed {
    /// `None` if it cannot be enabled, or the kernel lacks it.
    fn new() -> Option<Self> {
        let read = || std::fs::read_to_string(RINGS_PARAMETER).ok();
        let file = OpenOptions::new().write(true).open(RINGS_PARAMETER);
        let Ok(file) = file else {
            return read().filter(|word| word.trim() == "Y").map(|_| Self { changed: None });
        };
        // A concurrent attach waits; otherwise it would find the parameter enabled and not restore it.
        flock(&file, FlockOperation::LockExclusive).ok()?;
        if read()?.trim() == "Y" {
            return Some(Self { changed: None });
        }
        rustix::io::write(&file, b"Y").ok()?;
        Some(Self { changed: Some(file) })
    }
}

impl Drop for RingsAllowed {
    fn drop(&mut self) {
        if let Some(file) = &self.changed {
            let _ = rustix::io::write(file, b"N");
        }
    }
}

fn as_root(place: &Path) -> io::Result<OwnedFd> {
    let fuse = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    // Only root opens the file; servers that run as other users need access to a file system on it.
    let options = format!(
        "fd={},rootmode=40000,user_id={user},group_id={group},default_permissions,allow_other",
        fuse.as_raw_fd()
    );
    let options = CString::new(options).map_err(io::Error::other)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(SOURCE, place, "fuse", flags, options.as_c_str())?;
    Ok(fuse)
}

fn by_helper(place: &Path) -> io::Result<OwnedFd> {
    let kinds = (AddressFamily::UNIX, SocketType::STREAM);
    // The helper inherits its end of the socket, so close-on-exec must be off for that one.
    let (ours, theirs) = socketpair(kinds.0, kinds.1, SocketFlags::empty(), None)?;
    rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC)?;
    let mut helper = Command::new(HELPER);
    helper.args(["-o", &format!("rw,nosuid,nodev,default_permissions,fsname={SOURCE}"), "--"]);
    helper.arg(place).env("_FUSE_COMMFD", theirs.as_raw_fd().to_string());
    let output = helper.stdin(Stdio::null()).output()?;
    drop(theirs);
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(io::Error::other(format!("{HELPER}: {said}")));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut found = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8; 1];
    let mut parts = [IoSliceMut::new(&mut byte)];
    recvmsg(ours.as_fd(), &mut parts, &mut found, RecvFlags::CMSG_CLOEXEC)?;
    let rights = found.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    rights.ok_or_else(|| io::Error::other(format!("{HELPER} passed no descriptor")))
}
