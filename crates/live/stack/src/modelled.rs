//! Detects whether a path lies on one of our modelled drives.
//!
//! Invariant: followed through mounts, partitions, loop devices and stacked devices.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use observe::BlockDevice;

use crate::mounts::{Mounted, mounts};

/// Maximum layers followed; more are taken for a cycle.
const LAYERS_MAX: usize = 16;

/// Whether `path`, a file, directory or block device, is on an attached model. Otherwise measurements would
/// report a model's latencies as a drive's.
#[must_use]
pub fn on_a_model(path: &Path) -> bool {
    let mut seen = vec![path.to_owned()];
    let mut at = 0;
    while let Some(path) = seen.get(at).cloned().filter(|_| at < LAYERS_MAX) {
        at += 1;
        let Ok(path) = path.canonicalize() else { continue };
        let Ok(metadata) = path.metadata() else { continue };
        if metadata.file_type().is_block_device() {
            let device = BlockDevice::numbered(metadata.rdev());
            seen.extend(device.into_iter().flat_map(|device| device.made_of()));
            continue;
        }
        match mount_of(&path, mounts()) {
            Some(mounted) if mounted.is_ours() => return true,
            Some(mounted) if mounted.source.is_absolute() => seen.push(mounted.source),
            _ => {}
        }
    }
    false
}

/// The mount of `path`: the deepest above it, and the last of several at one place.
fn mount_of(path: &Path, mounts: Vec<Mounted>) -> Option<Mounted> {
    let above = mounts.into_iter().filter(|mounted| path.starts_with(&mounted.place));
    above.max_by_key(|mounted| mounted.place.components().count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsing::parse_mounts;

    const TEXT: &str = "/dev/vda / ext4 rw 0 0\ncrosspoint /a/mount fuse rw 0 0\n\
                        sshfs /b fuse rw 0 0\n/dev/loop0 /a/mount/db ext4 rw 0 0\ntmpfs /c tmpfs rw 0 0\n\
                        crosspoint /c fuse rw 0 0\n";

    /// The deepest and last mount determines the drive, and so whether a figure is called measured.
    #[test]
    fn the_mount_that_counts_is_the_deepest_and_the_last() {
        let of = |path: &str| mount_of(Path::new(path), parse_mounts(TEXT)).expect("a mount");
        assert!(of("/a/mount/disk").is_ours());
        assert!(!of("/a/mounted").is_ours(), "another directory whose name begins alike");
        assert_eq!(of("/a/mount/db/x").source, Path::new("/dev/loop0"));
        assert!(!of("/b/x").is_ours() && !of("/").is_ours());
        assert!(of("/c/x").is_ours(), "the last of two at one place");
    }
}
