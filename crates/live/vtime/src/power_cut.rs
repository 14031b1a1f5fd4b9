//! Power cuts in virtual time: the contents of the drive's files that survive.
//!
//! Contents change at once in real files, so copies are kept: of each page as the last completed flush left
//! it, and as each flush in progress found it. Names and sizes are those of the journal's commits. After a
//! cut a page has one of these contents or the current one, drawn from a seed; pages are not ordered among
//! each other, except that data beyond a file's old size is written before the new size (ext4, data=ordered).
//!
//! Invariants: what a completed flush covers survives; a removed or truncated file keeps its contents until
//! that is committed.

mod image;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use units::{Seed, Share};

/// Bytes of a page.
const PAGE: usize = 4096;

/// A power cut to come.
#[derive(Debug, Clone)]
pub struct PowerCut {
    /// Determines what is lost.
    pub seed: Seed,
    /// Power is cut when the drive gets this write, counted from 1.
    pub write: u64,
    /// Share of flushes that the drive acknowledges and drops.
    pub dropped_flushes: Share,
    /// Directory of the drive's files.
    pub directory: PathBuf,
    /// Directory to create, with the files as the cut left them.
    pub image: PathBuf,
    /// Set by the cut.
    pub losses: Arc<OnceLock<CutLosses>>,
}

/// The effect of a power cut, in pages of 4 KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CutLosses {
    /// Written and not flushed.
    pub unflushed: u64,
    /// Of these, different from their last contents, or no longer in their file.
    pub lost: u64,
    /// Of these, mixtures of two contents.
    pub torn: u64,
}

/// Contents of a page; `None` for zeros.
type Page = Option<Arc<[u8; PAGE]>>;
/// A page of a file, which is named by a number of this module: truncating to nothing makes a new one.
type PageId = (u64, u64);

/// A file.
#[derive(Debug)]
struct Kept {
    /// `None` once it was truncated to nothing.
    file: Option<File>,
    /// Its size in the journal's current transaction; data that was never written back is not in it.
    size: u64,
}

/// What a commit of the journal makes durable: directories (`None`) and files by path, and files' sizes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Metadata {
    names: BTreeMap<PathBuf, Option<u64>>,
    sizes: BTreeMap<u64, u64>,
}

/// A flush that is in progress or was dropped.
#[derive(Debug)]
struct Flush {
    pages: BTreeMap<PageId, Page>,
    metadata: Option<Metadata>,
    is_dropped: bool,
}

/// What is on the medium, and what may be.
#[derive(Debug)]
pub(crate) struct Medium {
    plan: PowerCut,
    /// This module's numbers of files, by the numbers of [`file_number`].
    numbers: HashMap<u64, u64>,
    files: BTreeMap<u64, Kept>,
    /// Flushed pages, with the number of the flush.
    durable: BTreeMap<PageId, (u64, Page)>,
    metadata: (u64, Metadata),
    /// Pages whose current contents no flush has found, and those of direct writes.
    unflushed: BTreeSet<PageId>,
    direct: BTreeSet<PageId>,
    flushes: BTreeMap<u64, Flush>,
    failed: Option<io::Error>,
}

/// The number of a file in calls on the drive.
fn file_number(data: &fs::Metadata) -> u64 {
    data.ino() ^ (data.dev() << 48)
}

/// Whether a file is shared memory rather than storage.
fn is_shared_memory(path: &Path) -> bool {
    let name = path.as_os_str().as_encoded_bytes();
    [&b"-shm"[..], b"lock.mdb", b"-lock"].iter().any(|end| name.ends_with(end))
}

impl Medium {
    /// What is in the directory now is on the medium.
    pub fn new(plan: PowerCut) -> io::Result<Self> {
        let mut own = Self {
            plan,
            numbers: HashMap::new(),
            files: BTreeMap::new(),
            durable: BTreeMap::new(),
            metadata: (0, Metadata::default()),
            unflushed: BTreeSet::new(),
            direct: BTreeSet::new(),
            flushes: BTreeMap::new(),
            failed: None,
        };
        let names = own.walk()?;
        for number in names.values().copied().flatten() {
            let Some(file) = own.files[&number].file.as_ref() else { continue };
            let size = file.metadata()?.len();
            for page in 0..size.div_ceil(PAGE as u64) {
                own.durable.insert((number, page), (0, own.current((number, page))?));
            }
            own.files.entry(number).and_modify(|kept| kept.size = size);
        }
        own.metadata = (0, own.metadata_of(names));
        Ok(own)
    }

    /// The number of the write at which power is cut.
    pub fn write(&self) -> u64 {
        self.plan.write
    }

    /// All names below the directory.
    fn walk(&mut self) -> io::Result<BTreeMap<PathBuf, Option<u64>>> {
        let root = self.plan.directory.clone();
        let mut names = BTreeMap::new();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(root.join(&folder))? {
                let entry = entry?;
                let (data, path) = (entry.metadata()?, folder.join(entry.file_name()));
                if data.is_dir() {
                    folders.push(path.clone());
                    names.insert(path, None);
                } else if data.is_file() && !is_shared_memory(&path) {
                    let number = match self.numbers.get(&file_number(&data)) {
                        Some(number) => *number,
                        None => self.add(file_number(&data), Some(File::open(root.join(&path))?)),
                    };
                    names.insert(path, Some(number));
                }
            }
        }
        Ok(names)
    }

    fn add(&mut self, file: u64, opened: Option<File>) -> u64 {
        let number = self.files.len() as u64;
        self.files.insert(number, Kept { file: opened, size: 0 });
        self.numbers.insert(file, number);
        number
    }

    /// The number of a file of the drive.
    fn number_of(&mut self, file: u64) -> u64 {
        if !self.numbers.contains_key(&file)
            && let Err(error) = self.walk()
        {
            self.failed.get_or_insert(error);
        }
        // A file without a name is lost anyway.
        self.numbers.get(&file).copied().unwrap_or_else(|| self.add(file, None))
    }

    fn current(&self, (number, page): PageId) -> io::Result<Page> {
        let Some(file) = self.files.get(&number).and_then(|kept| kept.file.as_ref()) else {
            return Ok(None);
        };
        let mut space = Box::new([0; PAGE]);
        let mut done = 0;
        while done < PAGE {
            match file.read_at(&mut space[done..], page * PAGE as u64 + done as u64)? {
                0 => break,
                more => done += more,
            }
        }
        Ok(space.iter().any(|byte| *byte != 0).then(|| Arc::from(space)))
    }

    fn metadata_of(&self, names: BTreeMap<PathBuf, Option<u64>>) -> Metadata {
        let sizes = names.values().flatten().map(|number| (*number, self.files[number].size));
        Metadata { sizes: sizes.collect(), names }
    }

    /// Pages of a file were written.
    pub fn wrote(&mut self, file: u64, pages: std::ops::RangeInclusive<u64>, direct: bool) {
        let number = self.number_of(file);
        for page in pages {
            self.unflushed.insert((number, page));
            if direct {
                self.direct.insert((number, page));
            }
        }
        if direct && let Err(error) = self.write_size(number) {
            self.failed.get_or_insert(error);
        }
    }

    /// The current size of a file is in the journal's transaction from now on.
    fn write_size(&mut self, number: u64) -> io::Result<()> {
        let Some(kept) = self.files.get_mut(&number) else { return Ok(()) };
        if let Some(file) = &kept.file {
            kept.size = file.metadata()?.len();
        }
        Ok(())
    }

    /// The size of a file was set, or a file was made.
    pub fn resized(&mut self, file: u64, size: u64) {
        let number = self.number_of(file);
        if size == 0 {
            // Its old contents may come back, but nothing that is written from now on belongs to them.
            let kept = self.files.insert(number, Kept { file: None, size: 0 });
            self.add(file, kept.and_then(|kept| kept.file));
            return;
        }
        let (whole, rest) = (size / PAGE as u64, size % PAGE as u64);
        self.unflushed.retain(|(other, page)| *other != number || page * (PAGE as u64) < size);
        if rest > 0 {
            self.unflushed.insert((number, whole));
        }
        self.files.entry(number).and_modify(|kept| kept.size = size);
    }

    /// A file was removed; its number may be used again.
    pub fn removed(&mut self, file: u64) {
        self.numbers.remove(&file);
    }

    /// Flush `id` of a file begins; it also `commits` the journal.
    pub fn flush_begins(&mut self, id: u64, file: u64, commits: bool) {
        if let Err(error) = self.begin(id, file, commits) {
            self.failed.get_or_insert(error);
        }
    }

    fn begin(&mut self, id: u64, file: u64, commits: bool) -> io::Result<()> {
        let number = self.numbers.get(&file).copied();
        let covered = |page: &PageId| Some(page.0) == number;
        let direct = std::mem::take(&mut self.direct);
        let found = self.unflushed.iter().filter(|page| covered(page) || direct.contains(page));
        let found: Vec<PageId> = found.copied().collect();
        let mut pages = BTreeMap::new();
        for page in found {
            self.unflushed.remove(&page);
            pages.insert(page, self.current(page)?);
        }
        let mut metadata = None;
        if commits {
            number.map_or(Ok(()), |number| self.write_size(number))?;
            let names = self.walk()?;
            metadata = Some(self.metadata_of(names));
        }
        self.flushes.insert(id, Flush { pages, metadata, is_dropped: false });
        Ok(())
    }

    /// Something has ended; if it is a flush, its contents are durable, unless the drive drops it.
    pub fn ended(&mut self, id: u64) {
        let Some(flush) = self.flushes.get_mut(&id) else { return };
        let draw = self.plan.seed.derive("flush", id).0 as f64 / u64::MAX as f64;
        if draw < self.plan.dropped_flushes.fraction() {
            flush.is_dropped = true;
            return;
        }
        // A flush is for the whole drive.
        let earlier = self.flushes.range(..id).filter(|(_, flush)| flush.is_dropped);
        let ids: Vec<u64> = earlier.map(|(id, _)| *id).chain([id]).collect();
        ids.into_iter().for_each(|id| self.keep(id));
    }

    fn keep(&mut self, id: u64) {
        let Some(Flush { pages, metadata, .. }) = self.flushes.remove(&id) else { return };
        for (page, contents) in pages {
            let kept = self.durable.entry(page).or_default();
            if id >= kept.0 {
                *kept = (id, contents);
            }
        }
        let Some(metadata) = metadata.filter(|_| id >= self.metadata.0) else { return };
        // What was cut off does not come back.
        self.durable.retain(|(number, page), _| {
            metadata.sizes.get(number).is_none_or(|size| page * (PAGE as u64) < *size)
        });
        self.metadata = (id, metadata);
    }
}

#[cfg(test)]
mod tests;
