//! Removes our control groups, moving remaining processes back.
//!
//! Invariant: only control groups with the mark are touched.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::StackError;
use crate::mark::{Mark, is_plain, not_ours};

/// Moves the processes of our group back to `home` and removes it; returns whether it existed.
///
/// # Errors
/// If it lacks the mark or is not a control group, or `home` is invalid.
pub(crate) fn remove_group(group: &Path, home: &Path, mark: &Mark) -> Result<bool, StackError> {
    let named = group.file_name().and_then(|name| name.to_str());
    let ours = named.is_some_and(|name| name.starts_with(&mark.group_prefix()));
    if !ours || !is_plain(group) || !is_plain(home) {
        return Err(not_ours(group));
    }
    // Not being able to look does not mean that it is gone.
    match fs::symlink_metadata(group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        found => found.map_err(StackError::io("look at the group", group))?,
    };
    if !is_group(group) || !is_group(home) {
        return Err(not_ours(group));
    }
    let procs = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    for process in procs.lines() {
        // A process that has exited in the meantime needs no cgroup.
        let _ = fs::write(home.join("cgroup.procs"), process);
    }
    let began = Instant::now();
    loop {
        match fs::remove_dir(group) {
            Ok(()) => return Ok(true),
            // Ended processes leave it asynchronously.
            Err(_) if began.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(10)),
            Err(error) => return Err(StackError::io("remove the group", group)(error)),
        }
    }
}

/// How long a group that is still in use is tried again.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether a directory is one of the kernel's control groups (include/uapi/linux/magic.h).
fn is_group(path: &Path) -> bool {
    const VERSION_1: u64 = 0x0027_e0eb;
    const VERSION_2: u64 = 0x6367_7270;
    let kind = rustix::fs::statfs(path).map(|facts| facts.f_type as u64);
    kind.is_ok_and(|kind| kind == VERSION_1 || kind == VERSION_2)
}
