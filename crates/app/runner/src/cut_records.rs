//! A series of power cuts: its parameters and results.

use std::path::{Path, PathBuf};

use attach::LostBlock;
use stack::Format;
use units::{Bytes, Seed, Share};
use vtime::CutLosses;

use crate::cut_databases::Kept;

/// Maximum number of kept drives with one name in a folder.
pub(crate) const NAMES_MAX: u32 = 1000;

/// Parameters of a series of power cuts.
#[derive(Debug, Clone, Copy)]
pub struct PowerCuts<'a> {
    /// Model of the drive.
    pub model: &'a str,
    /// `None`: the drive and its file system are simulated.
    pub attached: Option<AttachedDrive>,
    /// Number of cuts.
    pub cuts: u32,
    /// Seed of all draws.
    pub seed: Seed,
    /// The cut happens at one of the first `writes` writes.
    pub writes: u64,
    /// Share of flushes that the drive acknowledges and drops.
    pub lies: Share,
    /// Directory for everything that is created.
    pub at: &'a Path,
    /// Directory for drives of cuts that lost data.
    pub keep: Option<&'a Path>,
}

/// A real file system on a drive that is attached to the kernel.
#[derive(Debug, Clone, Copy)]
pub struct AttachedDrive {
    /// Size of the drive.
    pub size: Bytes,
    /// Its file system.
    pub format: Format,
}

/// One cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutRecord {
    /// From 1.
    pub number: u32,
    /// The write at which power was cut, counted from the first of the load; of a server, from when its
    /// tables were there.
    pub write: u64,
    /// Whether the writer was still running.
    pub under_load: bool,
    /// What the drive lost.
    pub losses: CutLosses,
    /// Blocks that an attached drive lost.
    pub blocks: Vec<LostBlock>,
    /// Acknowledged loads and updates, at most one of each per record; or rows of a server.
    pub acknowledged: u64,
    /// What the database kept.
    pub kept: Kept,
    /// The kept drive of a cut that lost data, or why it could not be kept.
    pub image: Option<Result<PathBuf, String>>,
}

impl PowerCuts<'_> {
    /// The seed of a cut, and its write.
    pub(crate) fn draw(&self, number: u32) -> (Seed, u64) {
        let seed = self.seed.derive("cut", u64::from(number));
        (seed, 1 + seed.derive("write", 0).0 % self.writes)
    }
}

impl CutRecord {
    /// Whether the cut could have lost data: under load, with acknowledgements, and lost blocks.
    #[must_use]
    pub const fn tells(&self) -> bool {
        self.under_load && self.acknowledged > 0 && self.losses.lost > 0
    }
}
