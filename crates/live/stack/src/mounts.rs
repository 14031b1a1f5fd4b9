//! The kernel's mounts and loop devices; unmounting and detaching.
//!
//! Invariant: nothing here decides whether that is allowed; callers have checked the mark.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::mark::Mark;
use crate::processes::{holders, holders_of};
use crate::{StackError, output_within};

/// How long a mount that is still held is tried again.
pub(crate) const PATIENCE: Duration = Duration::from_secs(6);
/// Polling interval for a disk's users; a longer one would delay power cuts.
const LOOK: Duration = Duration::from_millis(2);
/// Time limit of mkfs or losetup: a large device is discarded first.
const TOOL_MAX: Duration = Duration::from_secs(1800);

/// A line of `/proc/self/mounts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// The source: a device, or the name of its server.
    pub source: PathBuf,
    /// Mount point.
    pub place: PathBuf,
    /// `type options`.
    pub how: String,
}

/// Source and types of our drives in `/proc/self/mounts`.
const OURS: (&str, [&str; 2]) = ("crosspoint", ["fuse", "fuse.crosspoint"]);

impl Mounted {
    /// Whether it is a drive of ours, a model.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        let kind = self.how.split(' ').next().unwrap_or_default();
        self.source == Path::new(OURS.0) && OURS.1.contains(&kind)
    }
}

/// Everything that a text in the form of `/proc/self/mounts` names.
#[must_use]
pub fn parse_mounts(text: &str) -> Vec<Mounted> {
    let line = |line: &str| {
        let mut fields = line.split(' ');
        let (source, place) = (unescaped(fields.next()?), unescaped(fields.next()?));
        let (kind, options) = (fields.next()?, fields.next()?);
        Some(Mounted { source, place, how: format!("{kind} {options}") })
    };
    text.lines().filter_map(line).collect()
}

/// The kernel writes blanks, tabs, line ends and backslashes as three octal digits.
#[must_use]
pub(crate) fn unescaped(text: &str) -> PathBuf {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        let code = digits.and_then(|digits| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        });
        out.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 4 } else { 1 };
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

pub(crate) fn mounts() -> Vec<Mounted> {
    parse_mounts(&fs::read_to_string("/proc/self/mounts").unwrap_or_default())
}

/// Whether something is mounted at or below a path.
pub(crate) fn holds_mount(path: &Path) -> bool {
    mounts().iter().any(|mounted| mounted.place.starts_with(path))
}

/// Runs a program with `input` as its standard input; returns its output.
pub(crate) fn run(
    (program, package): (&str, &str),
    arguments: &[&str],
    what: &Path,
    (input, mark): (Stdio, Option<&Mark>),
) -> Result<String, StackError> {
    let refuse = |reason: String, next: String| StackError::refused(&what.display(), reason, next);
    let mut command = Command::new(program);
    command.args(arguments).stdin(input);
    if let Some(mark) = mark {
        mark.put_on(&mut command);
    }
    let output = output_within(&mut command, (TOOL_MAX, None), |_| ()).map_err(|error| {
        let next = match error.kind() {
            std::io::ErrorKind::NotFound => format!("apt-get install {package}"),
            _ => "see dmesg".into(),
        };
        refuse(format!("{program} cannot be run: {error}"), next)
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    let said: String = said.chars().take(400).collect();
    Err(refuse(format!("{program}: {said}"), "crosspoint doctor".into()))
}

/// Unmounts what an ended process had mounted. A drive of ours that it served, without loop devices on it, is
/// detached at once (`MNT_DETACH`): remaining users get errors only, and can include the waiting process.
pub(crate) fn unmount_left(path: &Path) -> Result<bool, StackError> {
    let ours = mounts().iter().any(|mounted| mounted.place == path && mounted.is_ours());
    if ours && !loops().iter().any(|(_, file)| file.starts_with(path)) {
        let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH;
        if rustix::mount::unmount(path, flags).is_ok() {
            return unmount(path).map(|_| true);
        }
    }
    unmount(path)
}

/// Unmounts everything at a path, however often; returns whether there was anything.
pub(crate) fn unmount(path: &Path) -> Result<bool, StackError> {
    let began = Instant::now();
    let is_mounted = || mounts().iter().any(|mounted| mounted.place == path);
    let mut was = false;
    while is_mounted() {
        let flags = UnmountFlags::NOFOLLOW;
        let unmounted = match rustix::mount::unmount(path, flags) {
            // A user's own FUSE is unmounted by the program that mounted it.
            Err(Errno::PERM) => by_helper(path),
            unmounted => unmounted,
        };
        match unmounted {
            Ok(()) => was = true,
            // A killed process closes its files asynchronously.
            Err(_) if began.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => {
                let by = holders(path);
                let by = if by.is_empty() {
                    "a process that this user cannot see, or the kernel".to_owned()
                } else {
                    by.join(", ")
                };
                return Err(StackError::refused(
                    &path.display(),
                    format!("it cannot be unmounted ({error}); held by {by}"),
                    "end what holds it, then: crosspoint clean",
                ));
            }
        }
    }
    Ok(was)
}

/// Unmounts what `fusermount3` mounted for this user.
fn by_helper(path: &Path) -> rustix::io::Result<()> {
    let words = ["-u", "--", &path.display().to_string()];
    let done = run(("fusermount3", "fuse3"), &words, path, (Stdio::null(), None));
    done.map(|_| ()).map_err(|_| Errno::PERM)
}

/// Users of our disk with the file `disk`: processes with something open in its directory or on the loop
/// device, other loop devices on either, mounts of that device, and other kernel users. A loop device with
/// another backing file by now is not ours. For people.
fn users_of(disk: &Path, device: Option<&Path>) -> Vec<String> {
    let mut found: Vec<String> = disk.parent().map(holders).unwrap_or_default();
    let (own, others): (Vec<PathBuf>, Vec<PathBuf>) = loops_over(disk)
        .into_iter()
        .map(|name| Path::new("/dev").join(name))
        .partition(|path| device == Some(path));
    found.extend(others.iter().map(|path| path.display().to_string()));
    for device in own {
        let before = found.len();
        let places = mounted_from(&device).into_iter();
        found.extend(places.map(|place| format!("the file system at {}", place.display())));
        found.extend(loops_over(&device).into_iter().map(|name| format!("/dev/{name}")));
        found.extend(holders_of(&numbers_of(&device)));
        if found.len() == before && is_claimed(&device) {
            found.push(format!(
                "the kernel ({}: a mount in another namespace, swap, or a device made of it)",
                device.display()
            ));
        }
    }
    found
}

/// Numbers (major, minor) of a device and of its partitions.
fn numbers_of(device: &Path) -> Vec<(u32, u32)> {
    let Some(name) = device.file_name() else { return Vec::new() };
    let own = Path::new("/sys/block").join(name);
    let parts = fs::read_dir(&own).into_iter().flatten().flatten().map(|entry| entry.path());
    let number = |place: PathBuf| {
        let text = fs::read_to_string(place.join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    std::iter::once(own).chain(parts).filter_map(number).collect()
}

/// Whether the kernel has claimed a block device for another use, in any namespace (open(2), `O_EXCL` of a
/// block device).
fn is_claimed(device: &Path) -> bool {
    let opened = rustix::fs::open(device, OFlags::EXCL | OFlags::CLOEXEC, Mode::empty());
    matches!(opened, Err(Errno::BUSY))
}

/// Users of our disk after waiting for up to `patience`; returns as soon as there are none. Some are
/// transient: a forked child has its parent's files, and a new device is probed.
#[must_use]
pub fn still_used(disk: &Path, device: Option<&Path>, patience: Duration) -> Vec<String> {
    let began = Instant::now();
    loop {
        let users = users_of(disk, device);
        if users.is_empty() || began.elapsed() > patience {
            return users;
        }
        std::thread::sleep(LOOK);
    }
}

/// Detaches the loop devices on `backing`, and unmounts `place`, the file system that contains it, if they
/// exist.
///
/// # Errors
/// They are in use; lists the users.
pub fn release(place: &Path, backing: Option<&Path>) -> Result<(), StackError> {
    if let Some(backing) = backing {
        detach(backing, PATIENCE)?;
    }
    unmount(place).map(|_| ())
}

/// Where a device is mounted.
fn mounted_from(device: &Path) -> Vec<PathBuf> {
    let on_it = mounts().into_iter().filter(|mounted| mounted.source == device);
    on_it.map(|mounted| mounted.place).collect()
}

/// Existing loop devices: kernel name and backing file.
fn loops() -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let of = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let file = fs::read(entry.path().join("loop/backing_file")).ok()?;
        let file = file.strip_suffix(b"\n").unwrap_or(&file);
        let file = file.strip_suffix(b" (deleted)").unwrap_or(file);
        Some((name, PathBuf::from(std::ffi::OsString::from_vec(file.to_vec()))))
    };
    entries.filter_map(of).collect()
}

/// Loop devices over a file, by the kernel's name for them.
pub(crate) fn loops_over(backing: &Path) -> Vec<String> {
    let over = loops().into_iter().filter(|(_, file)| file == backing);
    over.map(|(name, _)| name).collect()
}

/// Whether a loop device is over that file.
#[must_use]
pub fn is_loop_over(device: &Path, backing: &Path) -> bool {
    loops_over(backing).iter().any(|name| Path::new("/dev").join(name) == device)
}

/// Detaches every loop device on a file, and waits up to `patience` until they are gone; returns their
/// number. A claimed one stays: the mount namespace of a killed server is torn down asynchronously. One that
/// is only open disappears when it is closed.
pub(crate) fn detach(backing: &Path, patience: Duration) -> Result<usize, StackError> {
    let found = loops_over(backing);
    let began = Instant::now();
    let mut asked = BTreeSet::new();
    loop {
        for name in loops_over(backing) {
            if !asked.contains(&name) && ask_to_go(&name, backing)? {
                asked.insert(name);
            }
        }
        let left = loops_over(backing);
        if left.is_empty() {
            return Ok(found.len());
        }
        if began.elapsed() >= patience {
            return Err(still_there(&left, backing));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Detaches a loop device at its last close; `false` if it is claimed. Held exclusively meanwhile, so nobody
/// mounts it or reuses its name.
fn ask_to_go(name: &str, backing: &Path) -> Result<bool, StackError> {
    let device = Path::new("/dev").join(name);
    let is_ours = || is_loop_over(&device, backing);
    let held = match rustix::fs::open(&device, OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
        Ok(held) => held,
        // It may have been detached meanwhile.
        Err(_) if !is_ours() => return Ok(true),
        Err(Errno::BUSY | Errno::NXIO) => return Ok(false),
        Err(error) => return Err(StackError::io("open", &device)(error.into())),
    };
    if is_ours() {
        clear_at_last_close(&held);
    }
    Ok(true)
}

/// Marks a loop device to be detached at its last close.
pub(crate) fn clear_at_last_close(device: &impl AsRawFd) {
    const LOOP_CLR_FD: libc::Ioctl = 0x4C01;
    // SAFETY: the ioctl takes no argument; with the device open it only marks it.
    unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CLR_FD, 0) };
}

/// Why loop devices on a file still exist, and what helps.
fn still_there(left: &[String], backing: &Path) -> StackError {
    let devices = left.iter().map(|name| Path::new("/dev").join(name));
    let places = devices.flat_map(|device| mounted_from(&device));
    let places: Vec<String> = places.map(|place| place.display().to_string()).collect();
    let (reason, next) = match places.as_slice() {
        [] => ("in use".to_owned(), "see lsof and swapon; when it is not".to_owned()),
        _ => (
            format!("mounted at {}", places.join(", ")),
            format!("umount {}, then", places.join(" ")),
        ),
    };
    StackError::refused(
        &backing.display(),
        format!("its loop device {} is still {reason}", left.join(", ")),
        format!("{next}: crosspoint clean"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_with_blanks_are_read_as_they_are() {
        let text = "/dev/a /mnt/my\\040disk\\134x ext4 rw,relatime 0 0\nshort line\n";
        let expected = Mounted {
            source: PathBuf::from("/dev/a"),
            place: PathBuf::from("/mnt/my disk\\x"),
            how: "ext4 rw,relatime".into(),
        };
        assert_eq!(parse_mounts(text), [expected]);
        assert_eq!(unescaped("a\\04"), PathBuf::from("a\\04"));
        assert!(holds_mount(Path::new("/proc")));
    }

    /// A detach must not be refused because a process opens the disk briefly, but it must be for one that
    /// keeps it open.
    #[test]
    fn who_passes_by_does_not_use_a_disk() {
        let dir = tempfile::tempdir().unwrap();
        let disk = fs::canonicalize(dir.path()).unwrap().join("disk");
        let mut reader = Command::new("cat");
        reader.current_dir(dir.path()).stdin(Stdio::piped());
        let mut reader = reader.spawn().unwrap();
        let users = still_used(&disk, None, Duration::ZERO);
        assert!(users[0].starts_with(&reader.id().to_string()), "{users:?}");
        // It exits at the end of its input.
        drop(reader.stdin.take());
        let ended = std::thread::spawn(move || reader.wait().map(|status| status.success()));
        assert_eq!(still_used(&disk, None, PATIENCE), Vec::<String>::new());
        assert!(ended.join().unwrap().unwrap());
    }
}
