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
use std::ops::{Range, RangeInclusive};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use units::{Seed, Share};

use crate::wire::{file_number, is_shared_memory};

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

/// A file, until it is truncated to nothing.
#[derive(Debug)]
struct FileVersion {
    /// `None` after that.
    file: Option<File>,
    /// Its size in the journal's current transaction; data that no flush has written is not in it.
    size: u64,
    /// Whether a flush has covered some of it. What is never flushed is no loss.
    was_flushed: bool,
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
    /// The file that it is of, with its size.
    file: Option<(u64, u64)>,
    metadata: Option<Metadata>,
    is_dropped: bool,
}

/// What a flush is of.
#[derive(Debug, Clone)]
pub(crate) struct Flushed {
    pub file: u64,
    /// It commits the journal.
    pub commits: bool,
    /// Pages of the file; `None` for all.
    pub pages: Option<Range<u64>>,
}

/// What is on the medium, and what may be.
#[derive(Debug)]
pub(crate) struct Medium {
    plan: PowerCut,
    /// This module's numbers of files, by the numbers of [`file_number`].
    numbers: HashMap<u64, u64>,
    files: BTreeMap<u64, FileVersion>,
    next: u64,
    /// Flushed pages, with the number of the flush.
    durable: BTreeMap<PageId, (u64, Page)>,
    metadata: (u64, Metadata),
    /// Pages whose current contents no flush has found; those of direct writes that have completed, and of
    /// those in flight.
    unflushed: BTreeSet<PageId>,
    direct: BTreeSet<PageId>,
    direct_in_flight: BTreeMap<u64, Vec<PageId>>,
    flushes: BTreeMap<u64, Flush>,
    failed: Option<io::Error>,
}

impl Medium {
    /// What is in the directory now is on the medium.
    pub fn new(plan: PowerCut) -> io::Result<Self> {
        let mut own = Self {
            plan,
            numbers: HashMap::new(),
            files: BTreeMap::new(),
            next: 0,
            durable: BTreeMap::new(),
            metadata: (0, Metadata::default()),
            unflushed: BTreeSet::new(),
            direct: BTreeSet::new(),
            direct_in_flight: BTreeMap::new(),
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
            let known = |kept: &mut FileVersion| (kept.size, kept.was_flushed) = (size, true);
            own.files.entry(number).and_modify(known);
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
                } else if data.is_file() && !is_shared_memory(path.as_os_str().as_encoded_bytes()) {
                    let number = match self.numbers.get(&file_number(data.ino(), data.dev())) {
                        Some(number) => *number,
                        None => self.add(
                            file_number(data.ino(), data.dev()),
                            Some(File::open(root.join(&path))?),
                        ),
                    };
                    names.insert(path, Some(number));
                }
            }
        }
        Ok(names)
    }

    fn add(&mut self, file: u64, opened: Option<File>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.files.insert(number, FileVersion { file: opened, size: 0, was_flushed: false });
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

    /// Pages of a file were written into the page cache.
    pub fn wrote(&mut self, file: u64, pages: RangeInclusive<u64>) {
        let number = self.number_of(file);
        self.unflushed.extend(pages.map(|page| (number, page)));
    }

    /// Direct write `id` begins.
    pub fn direct_begins(&mut self, id: u64, (file, pages): (u64, RangeInclusive<u64>)) {
        let number = self.number_of(file);
        let pages: Vec<PageId> = pages.map(|page| (number, page)).collect();
        self.unflushed.extend(pages.iter().copied());
        self.direct_in_flight.insert(id, pages);
    }

    /// The size of a file was set, or a file was made.
    pub fn resized(&mut self, file: u64, size: u64) {
        let number = self.number_of(file);
        if size == 0 {
            // Its old contents may come back, but nothing that is written from now on belongs to them.
            let opened = self.files.get_mut(&number).and_then(|version| version.file.take());
            self.unflushed.retain(|page| page.0 != number);
            self.direct.retain(|page| page.0 != number);
            self.add(file, opened);
            return;
        }
        // What is cut off is zeros if the file grows again.
        let cut = (number, size / PAGE as u64)..=(number, u64::MAX);
        let flushed = self.flushes.values().flat_map(|flush| flush.pages.range(cut.clone()));
        let flushed = flushed.map(|(page, _)| *page);
        let gone: Vec<PageId> =
            self.durable.range(cut.clone()).map(|(page, _)| *page).chain(flushed).collect();
        self.unflushed.extend(gone);
        self.files.entry(number).and_modify(|kept| kept.size = size);
    }

    /// A file was removed; its number may be used again.
    pub fn removed(&mut self, file: u64) {
        self.numbers.remove(&file);
    }

    /// Flush `id` begins.
    pub fn flush_begins(&mut self, id: u64, flushed: &Flushed) {
        if let Err(error) = self.begin(id, flushed) {
            self.failed.get_or_insert(error);
        }
    }

    fn begin(&mut self, id: u64, flushed: &Flushed) -> io::Result<()> {
        let number = self.numbers.get(&flushed.file).copied();
        let within = |page: u64| flushed.pages.as_ref().is_none_or(|pages| pages.contains(&page));
        let covered = |page: &PageId| Some(page.0) == number && within(page.1);
        let direct = std::mem::take(&mut self.direct);
        let found = self.unflushed.iter().filter(|page| covered(page) || direct.contains(page));
        let found: Vec<PageId> = found.copied().collect();
        let mut pages = BTreeMap::new();
        for page in found {
            self.unflushed.remove(&page);
            pages.insert(page, self.current(page)?);
        }
        let mut own = None;
        if let Some(number) = number
            && let Some(version) = self.files.get_mut(&number)
            && let Some(file) = &version.file
        {
            version.was_flushed = true;
            let whole = flushed.pages.is_none();
            own = Some((number, if whole { file.metadata()?.len() } else { version.size }));
        }
        let mut metadata = None;
        if flushed.commits {
            let names = self.walk()?;
            let mut all = self.metadata_of(names);
            if let Some((number, size)) = own {
                all.sizes.entry(number).and_modify(|known| *known = size);
            }
            metadata = Some(all);
        }
        self.flushes.insert(id, Flush { pages, file: own, metadata, is_dropped: false });
        Ok(())
    }

    /// An access has ended. If it is a flush, its contents are durable, unless the drive drops it.
    pub fn ended(&mut self, id: u64) {
        self.direct.extend(self.direct_in_flight.remove(&id).unwrap_or_default());
        let Some(flush) = self.flushes.get(&id) else { return };
        if let Some((number, size)) = flush.file {
            self.size_is_written(number, size);
        }
        let draw = self.plan.seed.derive("flush", id).0 as f64 / u64::MAX as f64;
        if draw < self.plan.dropped_flushes.fraction() {
            self.flushes.entry(id).and_modify(|flush| flush.is_dropped = true);
            return;
        }
        // A flush is for the whole drive.
        let earlier = self.flushes.range(..id).filter(|(_, flush)| flush.is_dropped);
        let ids: Vec<u64> = earlier.map(|(id, _)| *id).chain([id]).collect();
        ids.into_iter().for_each(|id| self.keep(id));
    }

    /// The data of a file up to this size has been written: commits to come, and those in progress, have it.
    fn size_is_written(&mut self, number: u64, size: u64) {
        let Some(version) = self.files.get_mut(&number) else { return };
        let current = version.file.as_ref().and_then(|file| file.metadata().ok());
        if current.is_none_or(|data| data.len() < size) {
            // It has been truncated since.
            return;
        }
        version.size = version.size.max(size);
        for metadata in self.flushes.values_mut().filter_map(|flush| flush.metadata.as_mut()) {
            metadata.sizes.entry(number).and_modify(|known| *known = size.max(*known));
        }
    }

    fn keep(&mut self, id: u64) {
        let Some(Flush { pages, file, metadata, .. }) = self.flushes.remove(&id) else { return };
        for (page, contents) in pages {
            let kept = self.durable.entry(page).or_default();
            if id >= kept.0 {
                *kept = (id, contents);
            }
        }
        let Some(metadata) = metadata else { return };
        if id < self.metadata.0 {
            // A later commit has all names, but not the size of a file whose data was still under way.
            if let Some((number, size)) = file {
                self.metadata.1.sizes.entry(number).and_modify(|known| *known = size.max(*known));
            }
            return;
        }
        // What was cut off does not come back.
        self.durable.retain(|(number, page), _| {
            metadata.sizes.get(number).is_none_or(|size| page * (PAGE as u64) < *size)
        });
        self.metadata = (id, metadata);
        self.forget();
    }

    /// Forgets files that nothing names any more.
    fn forget(&mut self) {
        let later = self.flushes.values().filter_map(|flush| flush.metadata.as_ref());
        let named = later.chain([&self.metadata.1]).flat_map(|metadata| metadata.sizes.keys());
        let used: BTreeSet<u64> = named.chain(self.numbers.values()).copied().collect();
        self.files.retain(|number, _| used.contains(number));
        self.durable.retain(|(number, _), _| used.contains(number));
        self.unflushed.retain(|(number, _)| used.contains(number));
    }
}

#[cfg(test)]
mod tests;
