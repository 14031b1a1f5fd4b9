//! The drives of a simulation: one for all files, or a second one for an engine's write-ahead log.
//!
//! Each has its own device, file system and page cache; they share nothing.

use std::collections::HashSet;

use device::Device;
use units::Nanos;

use crate::drive::Drive;
use crate::file_access::{DriveTotals, StepEnd};

/// Page caches, file systems and devices.
#[derive(Debug)]
pub struct Drives<D> {
    main: Drive<D>,
    wal: Option<Drive<D>>,
    /// Files on the log's drive.
    of_wal: HashSet<u64>,
    /// The last access was to the log's drive.
    used_wal: bool,
}

impl<D> From<Drive<D>> for Drives<D> {
    fn from(main: Drive<D>) -> Self {
        Self { main, wal: None, of_wal: HashSet::new(), used_wal: false }
    }
}

impl<D: Device> Drives<D> {
    /// Puts the files of [`Host::wal`](crate::Host::wal) on a drive of their own.
    #[must_use]
    pub fn with_wal(self, wal: Drive<D>) -> Self {
        Self { wal: Some(wal), ..self }
    }

    /// A file was opened that belongs to the log, or not; returns its drive.
    pub(crate) fn opened(&mut self, file: u64, is_wal: bool) -> &mut Drive<D> {
        if is_wal {
            self.of_wal.insert(file);
        } else {
            self.of_wal.remove(&file);
        }
        self.of(file)
    }

    /// A file was removed, and its number can be used again; returns its drive.
    pub(crate) fn removed(&mut self, file: u64) -> &mut Drive<D> {
        self.of(file);
        self.of_wal.remove(&file);
        self.last()
    }

    /// A file's drive, which is now the last used one.
    pub(crate) fn of(&mut self, file: u64) -> &mut Drive<D> {
        self.used_wal = self.wal.is_some() && self.of_wal.contains(&file);
        self.last()
    }

    /// The last used drive.
    pub(crate) fn last(&mut self) -> &mut Drive<D> {
        match &mut self.wal {
            Some(wal) if self.used_wal => wal,
            _ => &mut self.main,
        }
    }

    /// The drive of all files but the log's, which power cuts and limits of memory are for.
    pub(crate) const fn main(&mut self) -> &mut Drive<D> {
        &mut self.main
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Drive<D>> {
        std::iter::once(&mut self.main).chain(&mut self.wal)
    }

    /// Counters so far, of both.
    pub(crate) fn totals(&self) -> DriveTotals {
        self.wal.iter().fold(self.main.totals(), |sum, wal| sum.plus(&wal.totals()))
    }

    /// Time of the next event of any.
    pub(crate) fn next_event(&mut self) -> Option<Nanos> {
        self.all().filter_map(Drive::next_event).min()
    }

    /// Advances them; appends the steps that ended.
    pub(crate) fn advance(&mut self, now: Nanos, ended: &mut Vec<StepEnd>) {
        self.all().for_each(|drive| drive.advance(now, ended));
    }
}
