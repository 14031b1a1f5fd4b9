//! A FUSE file system mounted: by root with mount(2), by others through `fusermount3`.
//!
//! Invariant: what is mounted can be unmounted by the same user. What it is not: what is served there.

use std::ffi::CString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, open};
use rustix::mount::MountFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};
use rustix::process::{getegid, geteuid};

/// The program that mounts for users, of the package `fuse3`.
const HELPER: &str = "fusermount3";
/// Name of the file system in lists of mounts.
const SOURCE: &str = "crosspoint";

/// Whether a disk can be attached here: what is missing, and what installs it.
///
/// # Errors
/// Both, in words.
pub fn available() -> Result<&'static str, (String, String)> {
    let device = Path::new("/dev/fuse");
    if let Err(error) = open(device, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        return Err((format!("/dev/fuse cannot be opened: {error}"), "modprobe fuse".into()));
    }
    if geteuid().is_root() {
        return Ok("by FUSE");
    }
    match Command::new(HELPER).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => Ok("by FUSE, through fusermount3"),
        _ => Err(("fusermount3 is not there".into(), "apt-get install fuse3".into())),
    }
}

/// Mounts at the directory `place`; gives the line to the kernel, which does not block.
pub(crate) fn mount(place: &Path) -> io::Result<OwnedFd> {
    let fuse = if geteuid().is_root() { as_root(place)? } else { by_helper(place)? };
    let flags = fcntl_getfl(&fuse)?;
    fcntl_setfl(&fuse, flags | OFlags::NONBLOCK)?;
    Ok(fuse)
}

fn as_root(place: &Path) -> io::Result<OwnedFd> {
    let fuse = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    // Root alone opens the file; servers of other users reach what is on a file system over it.
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
    // The helper inherits its end, so that one is not closed when it starts.
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
    rights.ok_or_else(|| io::Error::other(format!("{HELPER} gave no line to the kernel")))
}
