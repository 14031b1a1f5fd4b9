//! Registry of attached disks: one file per disk in the state directory, locked by its server process.
//!
//! Invariants: a file with a free lock belongs to an ended process; others remove only such a file, or one
//! that is marked as ended.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use stack::{StackError, check_directory, is_loop_over};
use stats::Served;

/// A disk that is attached.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// The process that serves it.
    pub process: u32,
    /// The profile as named by the user.
    pub model: String,
    /// Its title.
    pub title: String,
    /// Size in bytes.
    pub size: u64,
    /// File with the data; `None` for memory.
    pub store: Option<PathBuf>,
    /// The file that exposes the disk.
    pub file: PathBuf,
    /// The loop device over it.
    pub block: Option<PathBuf>,
    /// The transport.
    pub transport: String,
    /// The emulation overhead, nanoseconds.
    pub floor_ns: u64,
    /// Delivered times.
    pub served: Served,
    /// Whether writes to it take no time (preload).
    #[serde(default)]
    pub staging: bool,
    /// The run that created it; `None` if attached by a user.
    #[serde(default)]
    pub owner: Option<u32>,
    /// Whether an injected fault has cut its power.
    #[serde(default)]
    pub powerless: bool,
    /// Number of refused detach requests since it was last used.
    #[serde(default)]
    pub stayed: u32,
    /// The last user that prevented detaching.
    #[serde(default)]
    pub used_by: String,
    /// Whether it was detached.
    pub ended: bool,
}

/// Size of an entry file, padded with blanks.
const LENGTH: usize = 16 << 10;

fn directory(state: &Path) -> PathBuf {
    state.join("attached")
}

/// The file of a disk that this process serves.
#[derive(Debug)]
pub struct DiskEntry {
    path: PathBuf,
    file: File,
}

impl DiskEntry {
    /// Creates the registry entry of a disk served by this process.
    ///
    /// # Errors
    /// The entry cannot be written.
    pub fn new(state: &Path, disk: &Disk) -> Result<Self, StackError> {
        let dir = directory(state);
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.map_err(StackError::io("create", &dir))?;
        check_directory(&dir)?;
        let name = stack::random_hex(32);
        let (path, hidden) = (dir.join(format!("{name}.json")), dir.join(format!(".{name}")));
        let file = archive::output::new_private_file(&hidden);
        let file = file.map_err(StackError::io("note the disk in", &hidden))?;
        file.try_lock().map_err(io::Error::from).map_err(StackError::io("lock", &hidden))?;
        let entry = Self { path: path.clone(), file };
        entry.tell(disk)?;
        // Visible to others once it is locked and complete.
        fs::rename(&hidden, &path).map_err(StackError::io("note the disk in", &path))?;
        Ok(entry)
    }

    /// Stores the disk's state.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn tell(&self, disk: &Disk) -> Result<(), StackError> {
        let mut text = serde_json::to_vec(disk).unwrap_or_default();
        // One write of constant length: readers see the old state or the new.
        text.resize(text.len().max(LENGTH), b' ');
        let write = || self.file.write_all_at(&text, 0);
        write().map_err(StackError::io("note the disk in", &self.path))
    }
}

/// Every disk that is attached; files of processes that have ended are removed.
///
/// # Errors
/// When they cannot be read.
pub fn all(state: &Path) -> Result<Vec<Disk>, StackError> {
    let dir = directory(state);
    let mut found: Vec<Disk> = read(&dir)?.into_iter().map(|(_, disk)| disk).collect();
    found.sort_by(|a, b| a.file.cmp(&b.file));
    Ok(found)
}

/// Attached disks with their entry files.
fn read(dir: &Path) -> Result<Vec<(PathBuf, Disk)>, StackError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(StackError::io("read", dir))?,
    };
    // Entries name processes and paths that are acted upon, so nobody else may write them.
    check_directory(dir)?;
    let mut found = Vec::new();
    let paths = entries.flatten().map(|entry| entry.path());
    for path in paths.filter(|path| path.extension().is_some_and(|end| end == "json")) {
        let Ok(mut file) = File::open(&path) else { continue };
        if file.try_lock_shared().is_ok() {
            let _ = fs::remove_file(&path);
            continue;
        }
        let mut text = String::new();
        let _ = file.read_to_string(&mut text);
        // A file that is being written is complete a moment later.
        if let Ok(disk) = serde_json::from_str::<Disk>(&text) {
            found.push((path, disk));
        }
    }
    Ok(found)
}

/// Finds the disk with that file or block device.
///
/// # Errors
/// If no attached disk matches; the message names those that are attached.
pub fn find(state: &Path, wanted: &Path) -> Result<Disk, StackError> {
    let whole = fs::canonicalize(wanted).unwrap_or_else(|_| wanted.to_owned());
    let disks = all(state)?;
    let named: Vec<String> = disks.iter().map(|disk| disk.file.display().to_string()).collect();
    let here = disks.into_iter().find(|disk| {
        // A loop device of that name may have another backing file by now.
        let own = |block: &PathBuf| *block == whole && is_loop_over(block, &disk.file);
        disk.file == whole || disk.block.as_ref().is_some_and(own)
    });
    here.ok_or_else(|| {
        let there = if named.is_empty() { "nothing is".to_owned() } else { named.join(", ") };
        // After a kill of its server, its mount and loop device are still there.
        let next = match stack::abandoned(state) {
            Ok(1..) => "crosspoint clean (a killed process left something behind)",
            _ => "crosspoint attach",
        };
        StackError::refused(
            &wanted.display(),
            format!("it is not attached; attached drives: {there}"),
            next,
        )
    })
}

/// Whether a process has that file open.
fn has_open(process: u32, path: &Path) -> bool {
    let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let open = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    open.into_iter().any(|one| fs::read_link(one.path()).is_ok_and(|to| to == whole))
}

/// Whether a process was stopped by a signal, or is being traced (proc(5), the state after its name).
fn is_stopped(process: u32) -> bool {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = text.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't'))
}

impl Disk {
    /// Checks that its server is not stopped: a process that waits for a stopped server cannot be killed.
    ///
    /// # Errors
    /// The server is stopped; with help.
    pub fn goes_on(&self) -> Result<(), StackError> {
        if !is_stopped(self.process) {
            return Ok(());
        }
        Err(StackError::refused(
            &self.file.display(),
            format!("its server process {} is stopped", self.process),
            format!("kill -CONT {}", self.process),
        ))
    }

    /// Whether its loop device or mount remains without a server.
    fn is_left(&self) -> bool {
        let block = self.block.as_ref().is_some_and(|block| is_loop_over(block, &self.file));
        let mount = fs::metadata(&self.file).map_err(|error| error.raw_os_error());
        block || mount.is_err_and(|code| code == Some(libc::ENOTCONN))
    }

    fn died(&self) -> StackError {
        StackError::refused(&self.file.display(), "its server process has died", "crosspoint clean")
    }

    /// Requests its server to detach, and waits; returns the final state.
    ///
    /// # Errors
    /// It does not detach in time.
    pub fn end(self, state: &Path, patience: Duration) -> Result<Self, StackError> {
        let dir = directory(state);
        let entry = read(&dir)?.into_iter().find(|(_, one)| one.file == self.file);
        let Some((path, before)) = entry else {
            return Ok(self);
        };
        let number = i32::try_from(self.process).ok().and_then(Pid::from_raw);
        let held = number.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // Checked while the lock is held: the process number may belong to another process, also in another
        // container.
        if let Some(held) = held.filter(|_| has_open(self.process, &path)) {
            self.goes_on()?;
            let _ = pidfd_send_signal(&held, Signal::TERM);
        }
        let began = Instant::now();
        let mut last = self.clone();
        while began.elapsed() < patience {
            let Ok(mut file) = File::open(&path) else {
                // Another process saw it end, or it died.
                return if self.is_left() { Err(self.died()) } else { Ok(last) };
            };
            let gone = file.try_lock_shared().is_ok();
            let mut text = String::new();
            let _ = file.read_to_string(&mut text);
            last = serde_json::from_str(&text).unwrap_or(last);
            if last.stayed != before.stayed {
                return Err(StackError::refused(
                    &self.file.display(),
                    last.used_by,
                    "end that first",
                ));
            }
            if gone {
                let _ = fs::remove_file(&path);
                return match last.ended {
                    true => Ok(last),
                    false => Err(self.died()),
                };
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(StackError::refused(
            &self.file.display(),
            format!("process {} still serves it: it is in use", self.process),
            "crosspoint detach, once nothing uses it",
        ))
    }
}
