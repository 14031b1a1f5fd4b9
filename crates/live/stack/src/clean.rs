//! `clean`: finds what killed runs left behind by their journals and undoes it.
//!
//! Invariants: a running process is not touched (its journal is locked); a journal that is damaged, of
//! another version or of another user is reported and kept, without blocking others; an unknown line is kept
//! and reported. A journal is removed once all of it is undone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::dying::let_die;
use crate::journal::{FORMAT, Header};
use crate::mark::Mark;
use crate::mounts::PATIENCE;
use crate::processes::end_marked;
use crate::undo::Restore;
use crate::undo::{Undo, undo};
use crate::{StackError, state};

/// Longest journal that is read, bytes.
const LONGEST: u64 = 16 << 20;

/// Time for which a forked child can still hold its parent's lock.
const FORKED_MAX: Duration = Duration::from_millis(500);

/// Result of `clean`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Cleaned {
    /// Things undone.
    pub undone: Vec<String>,
    /// Things that could not be undone, with the reason; they stay in their journal.
    pub failed: Vec<String>,
    /// Number of processes still running (their journal is locked), which were skipped.
    pub running: u32,
}

/// Undoes what killed runs left behind.
///
/// # Errors
/// If the state directory cannot be read, or belongs to another user.
pub fn clean(state: &Path, restore: Restore) -> Result<Cleaned, StackError> {
    let mut cleaned = Cleaned::default();
    let Some(dir) = state::journals_there(state)? else { return Ok(cleaned) };
    let entries = fs::read_dir(&dir).map_err(StackError::io("read", &dir))?;
    let mut waiting: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    waiting.sort();
    let mut found = Vec::new();
    // The server of a killed run's disk has its own journal, and lives until the run's processes are ended.
    loop {
        let before = (waiting.len(), cleaned.undone.len());
        for path in std::mem::take(&mut waiting) {
            match open(&path) {
                Ok(Some(file)) => found.extend(begin(path, file, &mut cleaned)),
                Ok(None) => {
                    if hangs(&path).is_some_and(|(file, mounts)| let_die(&file, &mounts)) {
                        let what = "released a killed run that waited for its own drive";
                        cleaned.undone.push(what.into());
                    }
                    waiting.push(path);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => cleaned.failed.push(format!("{}: {error}", path.display())),
            }
        }
        if waiting.is_empty() || (waiting.len(), cleaned.undone.len()) == before {
            break;
        }
    }
    cleaned.running = u32::try_from(waiting.len()).unwrap_or(u32::MAX);
    // One run's files may depend on another's, such as a file system on a served disk.
    let failed = std::mem::take(&mut cleaned.failed);
    loop {
        let before = cleaned.undone.len();
        cleaned.failed.clone_from(&failed);
        found.retain(|journal| !journal.undo(restore, &mut cleaned));
        if found.is_empty() || cleaned.undone.len() == before {
            return Ok(cleaned);
        }
    }
}

/// Opens a journal that belongs to this user.
fn own(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let data = file.metadata()?;
    if !data.is_file() || data.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("not a journal of this user; skipped"));
    }
    Ok(file)
}

/// Opens and locks a journal; `None` while its process lives.
fn open(path: &Path) -> io::Result<Option<File>> {
    let file = own(path)?;
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            // A forked child of a killed run holds it until it executes another program.
            Err(fs::TryLockError::WouldBlock) if began.elapsed() < FORKED_MAX => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(fs::TryLockError::WouldBlock) => return Ok(None),
            Err(fs::TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// A journal whose process has ended.
struct Found {
    path: PathBuf,
    parsed: Parsed,
    /// Whether every process of its run has ended.
    ended: bool,
    /// Locked while it is processed.
    _file: File,
}

/// Reads a journal and ends the processes that its run left; `None` if there is nothing to undo.
fn begin(path: PathBuf, mut file: File, cleaned: &mut Cleaned) -> Option<Found> {
    let mut bytes = Vec::new();
    let read = file.by_ref().take(LONGEST + 1).read_to_end(&mut bytes);
    let journal = match read {
        Ok(count) if count as u64 > LONGEST => Err("too long for a journal".to_owned()),
        Ok(_) => parse(&bytes),
        Err(error) => Err(error.to_string()),
    };
    let parsed = match journal {
        Ok(Some(parsed)) => parsed,
        // Its process was killed before it created anything.
        Ok(None) => {
            let _ = fs::remove_file(path);
            return None;
        }
        Err(reason) => {
            cleaned.failed.push(format!("{}: {reason}; skipped", path.display()));
            return None;
        }
    };
    let ended = end_marked(&parsed.mark);
    let all_ended = ended.is_ok();
    match ended {
        Ok(0) => {}
        Ok(count) => cleaned.undone.push(format!(
            "ended {count} {} of a killed run",
            if count == 1 { "process" } else { "processes" }
        )),
        Err(error) => cleaned.failed.push(with_next(&error)),
    }
    Some(Found { path, parsed, ended: all_ended, _file: file })
}

impl Found {
    /// Undoes it; returns whether nothing is left.
    fn undo(&self, restore: Restore, cleaned: &mut Cleaned) -> bool {
        let before = cleaned.failed.len();
        for entry in self.parsed.entries.iter().rev() {
            match undo(entry, &self.parsed.mark, (restore, PATIENCE)) {
                Ok(what) => cleaned.undone.extend(what),
                Err(error) => cleaned.failed.push(with_next(&error)),
            }
        }
        let path = self.path.display();
        for line in &self.parsed.unknown {
            let line: String = line.chars().take(100).collect();
            cleaned.failed.push(format!("{path}: not understood: {line}"));
        }
        if !self.ended || cleaned.failed.len() > before {
            return false;
        }
        match fs::remove_file(&self.path) {
            // Its own process, or another `clean`, was faster.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                cleaned.failed.push(format!("{path}: {error}"));
                false
            }
            _ => true,
        }
    }
}

/// Formats an undo failure with the command that fixes it.
fn with_next(error: &StackError) -> String {
    match error {
        StackError::Refused { next, .. } => format!("{error}\n  help: {next}"),
        other => format!("{other}\n  help: undo it by hand, then: crosspoint clean"),
    }
}

/// Contents of a journal.
#[derive(Debug)]
pub struct Parsed {
    mark: Mark,
    /// Entries to undo, in the order of creation.
    pub entries: Vec<Undo>,
    /// Complete lines that are not entries.
    pub unknown: Vec<String>,
}

/// The locked journal of a dead process, and the mounts in its work areas.
fn hangs(path: &Path) -> Option<(File, Vec<PathBuf>)> {
    let file = own(path).ok()?;
    let mut bytes = Vec::new();
    (&file).take(LONGEST).read_to_end(&mut bytes).ok()?;
    let journal = parse(&bytes).ok().flatten()?;
    let mounted = |entry: &Undo| match entry {
        Undo::Unmount { path } => journal.mark.check_inside(path).ok().map(|()| path.clone()),
        _ => None,
    };
    Some((file, journal.entries.iter().filter_map(mounted).collect()))
}

/// Parses a journal; `None` if it has no complete line.
///
/// # Errors
/// If its first line is not a header.
pub fn parse(bytes: &[u8]) -> Result<Option<Parsed>, String> {
    // A line cut off by a kill was never followed by its action.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let mut lines = bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let Some(first) = lines.next() else { return Ok(None) };
    let header: Header = serde_json::from_slice(first).map_err(|_| {
        "its first line is not a journal header, or of an earlier version".to_owned()
    })?;
    if header.journal != FORMAT {
        return Err(format!("a journal of version {}; known: {FORMAT}", header.journal));
    }
    let mark = Mark::parse(&header.mark).ok_or("its mark is invalid")?;
    let (mut entries, mut unknown) = (Vec::new(), Vec::new());
    for line in lines {
        match serde_json::from_slice::<Undo>(line) {
            Ok(entry) => entries.push(entry),
            Err(_) => unknown.push(String::from_utf8_lossy(line).into_owned()),
        }
    }
    Ok(Some(Parsed { mark, entries, unknown }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Journal, WorkArea};

    fn no_server(_: &str, _: &str, _: &str) -> Result<(), String> {
        Err("no server".into())
    }

    /// The journal of a killed process: its contents, without a lock.
    fn killed(state: &Path, area_in: &Path) -> (PathBuf, PathBuf) {
        let journal = Journal::new(state, no_server);
        let area = WorkArea::create(&journal, area_in, "disk").unwrap();
        let dir = state.join("undo");
        let path = fs::read_dir(&dir).unwrap().flatten().next().unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let kept = area.path().to_owned();
        drop(journal);
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("data"), b"x").unwrap();
        fs::write(&path, bytes).unwrap();
        (path, kept)
    }

    /// A killed run must not fill the user's disk for ever; a living one must not lose its files.
    #[test]
    fn clean_undoes_the_dead_and_spares_the_living() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let (path, work) = killed(&state, dir.path());
        // The line that the kill cut off.
        let mut text = fs::read(&path).unwrap();
        text.extend(b"{\"undo\":\"remo");
        fs::write(&path, text).unwrap();
        let living = Journal::new(&state, no_server);
        let theirs = WorkArea::create(&living, dir.path(), "disk").unwrap();
        let cleaned = clean(&state, no_server).unwrap();
        assert_eq!((cleaned.undone.len(), cleaned.failed.len(), cleaned.running), (1, 0, 1));
        assert!(!work.exists() && theirs.path().exists() && !path.exists());
    }

    /// One damaged journal must not keep the others' leftovers on the disk.
    #[test]
    fn a_damaged_journal_stops_no_other_and_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let (_, work) = killed(&state, dir.path());
        let undo = state.join("undo");
        fs::write(undo.join("0.jsonl"), b"\xff\xfe damaged\n").unwrap();
        fs::write(undo.join("1-1.jsonl"), b"{\"undo\":\"remove_tree\",\"path\":\"/etc\"}\n")
            .unwrap();
        fs::create_dir(undo.join("2.jsonl")).unwrap();
        let cleaned = clean(&state, no_server).unwrap();
        assert_eq!(cleaned.failed.len(), 3, "{cleaned:?}");
        assert!(!work.exists());
        assert!(undo.join("0.jsonl").exists() && undo.join("1-1.jsonl").exists());
    }

    /// Lines that a later version wrote, or that lead out of our areas, are reported, never obeyed.
    #[test]
    fn what_is_not_understood_or_not_ours_is_kept_and_reported() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let (path, work) = killed(&state, dir.path());
        let precious = dir.path().join("precious");
        fs::create_dir(&precious).unwrap();
        let area = work.display();
        let mut text = String::from_utf8(fs::read(&path).unwrap()).unwrap();
        let entry = |kind: &str, rest: &str| format!("{{\"undo\":\"{kind}\",{rest}}}\n");
        for line in [
            entry("power_off", "\"path\":\"x\""),
            entry("remove_tree", &format!("\"path\":\"{}\"", precious.display())),
            entry("remove_tree", &format!("\"path\":\"{area}/../precious\"")),
            entry("unmount", "\"path\":\"/proc\""),
            entry("detach_loop", "\"backing\":\"/dev/null\""),
            entry("remove_group", "\"path\":\"/sys/fs/cgroup/crosspoint-x\",\"home\":\"/tmp\""),
        ] {
            text.push_str(&line);
        }
        fs::write(&path, text).unwrap();
        let cleaned = clean(&state, no_server).unwrap();
        assert_eq!((cleaned.undone.len(), cleaned.failed.len()), (1, 6), "{cleaned:?}");
        assert!(precious.exists() && !work.exists() && path.exists());
    }
}
