//! Files of the drive, as calls name them.

/// Number of a file of the drive.
#[must_use]
pub const fn file_number(inode: u64, device: u64) -> u64 {
    inode ^ (device << 48)
}

/// Whether a file is shared memory rather than storage: SQLite's WAL index and LMDB's reader table.
#[must_use]
pub fn is_shared_memory(path: &[u8]) -> bool {
    [&b"-shm"[..], b"lock.mdb", b"-lock"].iter().any(|end| path.ends_with(end))
}

/// Kinds of [`super::Call::Resize`].
pub mod resize {
    /// The size was set, or the file was made.
    pub const SET: u64 = 0;
    /// The file existed before.
    pub const EXISTING: u64 = 1;
    /// Space was allocated beyond the size.
    pub const ALLOCATED: u64 = 2;
    /// The file has a new name.
    pub const RENAMED: u64 = 3;
}

/// Flags of [`super::Call::Access`].
pub mod access {
    /// Bypasses the page cache.
    pub const DIRECT: u64 = 1;
    /// Waits until it is on the medium (`O_DSYNC`, `O_SYNC`).
    pub const SYNC: u64 = 2;
    /// A write.
    pub const WRITE: u64 = 4;
    /// Without read-ahead (`POSIX_FADV_RANDOM`).
    pub const RANDOM: u64 = 8;
    /// A page fault in a mapping.
    pub const MAPPED: u64 = 16;
}
