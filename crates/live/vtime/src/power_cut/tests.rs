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
        let data = fs::metadata(self.path(name)).unwrap();
        file_number(data.ino(), data.dev())
    }

    /// Writes two pages from the start of a file.
    fn write(&mut self, name: &str, value: u8) {
        self.write_by(name, value, None);
    }

    /// By the page cache, or by the direct write of that number.
    fn write_by(&mut self, name: &str, value: u8, direct: Option<u64>) {
        let file = File::options().write(true).create(true).truncate(false).open(self.path(name));
        file.unwrap().write_all_at(&[value; 2 * PAGE], 0).unwrap();
        let number = self.number(name);
        match direct {
            None => self.medium().wrote(number, 0..=1),
            Some(id) => self.medium().direct_begins(id, (number, 0..=1)),
        }
    }

    fn flush(&mut self, id: u64, name: &str, commits: bool) {
        self.flush_begins(id, name, commits);
        self.medium().ended(id);
    }

    fn flush_begins(&mut self, id: u64, name: &str, commits: bool) {
        let file = self.number(name);
        self.medium().flush_begins(id, &Flushed { file, commits, pages: None });
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
        files.write("data", 2);
        files.flush(1, "data", false);
        files.write("data", 3);
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
        files.write("new", 2);
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
        files.write("log", 2);
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
            files.write("log", 1);
            files.flush_begins(1, "log", true);
            files.cut("log")
        })
    };
    let whole = [None, Some(vec![]), Some(vec![1]), Some(vec![1, 1])];
    assert_eq!(with(Share::NONE), whole.into());
    assert!(with(Share::ALL).contains(&Some(vec![0, 1])));
}

/// Otherwise the check of an engine on a lying drive could not fail.
#[test]
fn dropped_flushes_lose_data_until_a_later_one_is_done() {
    let half: Share = "50%".parse().unwrap();
    let with = |share, flushes| {
        results(|seed| {
            let mut files = Files::new(seed, share, &[("data", 1)]);
            files.write("data", 2);
            (1..=flushes).for_each(|id| files.flush(id, "data", false));
            files.cut("data").unwrap()
        })
    };
    assert!(with(half, 1).contains(&vec![1, 1]));
    assert_eq!(with(Share::ALL, 50), with(half, 1));
    assert_eq!(with(half, 50), [vec![2, 2]].into());
}

/// A flush is for the whole drive, as far as writes have completed: engines that bypass the page cache rely
/// on it.
#[test]
fn a_flush_of_another_file_covers_direct_writes() {
    let with = |direct: Option<u64>, completes| {
        results(|seed| {
            let mut files = Files::new(seed, Share::NONE, &[("data", 1), ("log", 1)]);
            files.write_by("data", 2, direct);
            if completes {
                files.medium().ended(1);
            }
            files.write("log", 2);
            files.flush(2, "log", false);
            files.cut("data").unwrap()
        })
    };
    assert_eq!(with(Some(1), true), [vec![2, 2]].into());
    assert_eq!(with(Some(1), false).len(), 4);
    assert_eq!(with(None, true).len(), 4);
}

/// A range that is flushed says nothing of the rest of its file: an engine that flushes too little must fail.
#[test]
fn a_flush_of_a_range_covers_only_that() {
    let found = results(|seed| {
        let mut files = Files::new(seed, Share::NONE, &[("data", 1)]);
        files.write("data", 2);
        let flushed = Flushed { file: files.number("data"), commits: false, pages: Some(1..2) };
        files.medium().flush_begins(1, &flushed);
        files.medium().ended(1);
        files.cut("data").unwrap()
    });
    assert_eq!(found, [vec![1, 2], vec![2, 2]].into());
}

/// Writes under way may be torn between sectors, which checksums of engines have to find.
#[test]
fn pages_of_a_flush_in_progress_may_be_torn() {
    let torn = (0..200).filter(|seed| {
        let mut files = Files::new(*seed, Share::NONE, &[("data", 1)]);
        files.write("data", 2);
        files.flush_begins(1, "data", false);
        let _ = files.cut("data");
        let contents = fs::read(files.root.path().join("image/data")).unwrap();
        let is_torn = |page: &[u8]| page.contains(&1) && page.contains(&2);
        let torn = contents.chunks(PAGE).filter(|page| is_torn(page)).count() as u64;
        assert!(contents.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        assert_eq!(files.losses.get().unwrap().torn, torn);
        torn > 0
    });
    let torn = torn.count();
    assert!((20..180).contains(&torn), "{torn}");
}

/// A file that grows again has zeros where it was cut off; its old end must not come back.
#[test]
fn what_was_cut_off_is_zeros_once_the_file_has_grown_again() {
    let found = results(|seed| {
        let mut files = Files::new(seed, Share::NONE, &[("data", 1)]);
        let number = files.number("data");
        let file = File::options().write(true).open(files.path("data")).unwrap();
        for size in [PAGE as u64, 2 * PAGE as u64] {
            file.set_len(size).unwrap();
            files.medium().resized(number, size);
        }
        files.flush(1, "data", true);
        files.cut("data").unwrap()
    });
    assert_eq!(found, [vec![1, 0]].into());
}

/// Two flushes at once: the one that ends last must not lose its file's size to the other's commit, and that
/// must not have a size whose data is still under way.
#[test]
fn commits_of_two_flushes_keep_both_files() {
    let with = |both| {
        results(|seed| {
            let mut files = Files::new(seed, Share::NONE, &[("log", 1)]);
            files.write("table", 2);
            files.flush_begins(1, "table", true);
            files.write("log", 3);
            files.flush(2, "log", true);
            if both {
                files.medium().ended(1);
            }
            (files.cut("table"), files.cut("log"))
        })
    };
    assert_eq!(with(true), [(Some(vec![2, 2]), Some(vec![3, 3]))].into());
    let tables: BTreeSet<_> = with(false).into_iter().map(|(table, _)| table.unwrap()).collect();
    assert_eq!(tables, [vec![], vec![2], vec![2, 2]].into());
}

/// The other order: a commit that began before a file's data was written must not undo its size.
#[test]
fn a_commit_that_began_earlier_keeps_what_was_flushed_since() {
    let found = results(|seed| {
        let mut files = Files::new(seed, Share::NONE, &[("log", 1)]);
        files.write("table", 2);
        files.flush_begins(1, "table", true);
        files.write("log", 3);
        files.flush_begins(2, "log", true);
        files.medium().ended(1);
        files.medium().ended(2);
        files.cut("table")
    });
    assert_eq!(found, [Some(vec![2, 2])].into());
}

/// A removed file is back if the removal was not committed.
#[test]
fn a_removal_takes_effect_with_the_next_commit() {
    let with = |commits| {
        results(|seed| {
            let mut files = Files::new(seed, Share::NONE, &[("old", 1), ("log", 1)]);
            let number = files.number("old");
            fs::remove_file(files.path("old")).unwrap();
            files.medium().removed(number);
            if commits {
                files.write("log", 2);
                files.flush(1, "log", true);
            }
            files.cut("old")
        })
    };
    assert_eq!(with(true), [None].into());
    assert_eq!(with(false), [None, Some(vec![1, 1])].into());
}
