//! What survives a power cut, over many seeds.

use std::collections::BTreeSet;

use tempfile::TempDir;

use super::*;

/// A drive with files.
struct Files {
    root: TempDir,
    medium: Option<Medium>,
    losses: Arc<OnceLock<CutLosses>>,
}

impl Files {
    /// With these files, which are on the medium.
    fn new(seed: u64, dropped_flushes: Share, files: &[(&str, u8)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("files");
        fs::create_dir(&directory).unwrap();
        for (name, value) in files {
            fs::write(directory.join(name), [*value; 2 * PAGE]).unwrap();
        }
        let losses = Arc::default();
        let plan = PowerCut {
            seed: Seed(seed),
            write: 1,
            dropped_flushes,
            directory,
            image: root.path().join("image"),
            losses: Arc::clone(&losses),
        };
        Self { root, medium: Some(Medium::new(plan).unwrap()), losses }
    }

    fn medium(&mut self) -> &mut Medium {
        self.medium.as_mut().unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join("files").join(name)
    }

    fn number(&self, name: &str) -> u64 {
        file_number(&fs::metadata(self.path(name)).unwrap())
    }

    /// Writes two pages from the start of a file.
    fn write(&mut self, name: &str, value: u8, direct: bool) {
        let file = File::options().write(true).create(true).truncate(false).open(self.path(name));
        file.unwrap().write_all_at(&[value; 2 * PAGE], 0).unwrap();
        let number = self.number(name);
        self.medium().wrote(number, 0..=1, direct);
    }

    fn flush(&mut self, id: u64, name: &str, commits: bool) {
        let number = self.number(name);
        self.medium().flush_begins(id, number, commits);
        self.medium().ended(id);
    }

    /// The first byte of each page of a file after the cut; `None` without the file.
    fn cut(&mut self, name: &str) -> Option<Vec<u8>> {
        if let Some(medium) = self.medium.take() {
            medium.cut().unwrap();
        }
        let contents = fs::read(self.root.path().join("image").join(name)).ok()?;
        Some(contents.chunks(PAGE).map(|page| page[0]).collect())
    }
}

/// All results of cuts with 200 seeds.
fn results<T: Ord>(one: impl FnMut(u64) -> T) -> BTreeSet<T> {
    (0..200).map(one).collect()
}

/// A cut that loses flushed data would blame engines for faults that no drive has; one that loses nothing
/// would let every engine pass.
#[test]
fn flushed_pages_stay_and_others_may_go() {
    let found = results(|seed| {
        let mut files = Files::new(seed, Share::NONE, &[("data", 1)]);
        files.write("data", 2, false);
        files.flush(1, "data", false);
        files.write("data", 3, false);
        let found = files.cut("data").unwrap();
        let lost = found.iter().filter(|page| **page == 2).count() as u64;
        let losses = *files.losses.get().unwrap();
        assert_eq!((losses.unflushed, losses.lost, losses.torn), (2, lost, 0));
        found
    });
    assert_eq!(found, [[2, 2], [2, 3], [3, 2], [3, 3]].map(Vec::from).into());
}

/// Engines that flush a new file, rename it over the old one and flush the directory must find one of them.
#[test]
fn a_rename_takes_effect_with_the_next_commit() {
    let outcome = |seed, commits| {
        let mut files = Files::new(seed, Share::NONE, &[("current", 1)]);
        files.write("new", 2, false);
        files.flush(1, "new", true);
        fs::rename(files.path("new"), files.path("current")).unwrap();
        if commits {
            files.flush(2, ".", true);
        }
        (files.cut("current").unwrap(), files.cut("new"))
    };
    let old = (vec![1, 1], Some(vec![2, 2]));
    let new = (vec![2, 2], None);
    assert_eq!(results(|seed| outcome(seed, true)), [new.clone()].into());
    assert_eq!(results(|seed| outcome(seed, false)), [old, new].into());
}

/// New data in the place of a truncated file must not be found in the old one.
#[test]
fn a_truncated_file_has_its_old_contents_or_new_ones() {
    let found = results(|seed| {
        let mut files = Files::new(seed, Share::NONE, &[("log", 1)]);
        let number = files.number("log");
        File::create(files.path("log")).unwrap();
        files.medium().resized(number, 0);
        files.write("log", 2, false);
        files.cut("log").unwrap()
    });
    assert_eq!(found, [vec![], vec![1, 1], vec![2], vec![2, 2]].into());
}

/// Data that extends a file is written before the new size (ext4, data=ordered).
#[test]
fn a_longer_file_has_no_zeros_in_it_unless_flushes_are_dropped() {
    let with = |share| {
        results(|seed| {
            let mut files = Files::new(seed, share, &[]);
            files.write("log", 1, false);
            let number = files.number("log");
            files.medium().flush_begins(1, number, true);
            files.cut("log")
        })
    };
    assert_eq!(with(Share::NONE), [None, Some(vec![1, 1])].into());
    assert!(with(Share::ALL).contains(&Some(vec![0, 1])));
}

/// Otherwise the check of an engine on a lying drive could not fail.
#[test]
fn dropped_flushes_lose_data_until_a_later_one_is_done() {
    let half: Share = "50%".parse().unwrap();
    let with = |share, flushes| {
        results(|seed| {
            let mut files = Files::new(seed, share, &[("data", 1)]);
            files.write("data", 2, false);
            (1..=flushes).for_each(|id| files.flush(id, "data", false));
            files.cut("data").unwrap()
        })
    };
    assert!(with(half, 1).contains(&vec![1, 1]));
    assert_eq!(with(Share::ALL, 50), with(half, 1));
    assert_eq!(with(half, 50), [vec![2, 2]].into());
}

/// A flush is for the whole drive: engines that bypass the page cache rely on it.
#[test]
fn a_flush_of_another_file_covers_direct_writes() {
    let with = |direct| {
        results(|seed| {
            let mut files = Files::new(seed, Share::NONE, &[("data", 1), ("log", 1)]);
            files.write("data", 2, direct);
            files.write("log", 2, false);
            files.flush(1, "log", false);
            files.cut("data").unwrap()
        })
    };
    assert_eq!(with(true), [vec![2, 2]].into());
    assert_eq!(with(false).len(), 4);
}
