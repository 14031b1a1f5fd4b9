//! The journal of a trial that runs: what it has recorded so far, durable every few seconds.
//!
//! A line per piece, each a whole record as another process would send it; the first says which trial it is.
//! A trial that ends as it should takes its pieces back and the file goes; after a kill they are what is left
//! of it. Invariants: at most [`WRITE_EVERY`], a client's second and what one sync takes are lost; memory
//! holds what was recorded since the last line, however long the trial. What it is not: a finished trial.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stats::Recording;

use crate::reader::{from_line, read_file};
use crate::{ArchiveError, TrialOutcome, TrialRecord, to_line};

/// Prefix of the journals' names among the trials.
pub(crate) const RUNNING: &str = ".running-";
/// Longest time between lines, while something is recorded.
pub const WRITE_EVERY: Duration = Duration::from_secs(2);

enum Word {
    Piece(Recording),
    End,
}

/// Writes the pieces of a trial to its journal, on a thread of its own: a disk that is slow to sync slows no
/// client.
#[derive(Debug)]
pub struct Keeper {
    path: PathBuf,
    words: Sender<Word>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Keeper {
    /// Goes on with the journal at `path`, which has its first line.
    ///
    /// # Errors
    /// [`ArchiveError::Io`] when it cannot be opened.
    pub fn start(path: &Path) -> Result<Self, ArchiveError> {
        let file = OpenOptions::new()
            .append(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
            .map_err(ArchiveError::io("open", path))?;
        let (words, heard) = channel();
        let thread = std::thread::spawn(move || write_pieces(file, &heard));
        Ok(Self { path: path.to_owned(), words, thread: Mutex::new(Some(thread)) })
    }
}

impl observe::Keep for Keeper {
    fn keep(&self, ended: Recording) {
        // A journal that cannot be written any more loses its pieces, not the trial; see `take_back`.
        let _ = self.words.send(Word::Piece(ended));
    }

    fn take_back(&self) -> Recording {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = self.words.send(Word::End);
        let _ = thread.map(JoinHandle::join);
        read_running(&self.path).map_or_else(|_| Recording::default(), |trial| trial.recording)
    }
}

/// Merges what comes, and writes it as one line every [`WRITE_EVERY`].
fn write_pieces(mut file: File, heard: &Receiver<Word>) {
    let mut pending = Recording::default();
    let mut due: Option<Instant> = None;
    loop {
        let wait = due.map_or(Duration::from_secs(3600), |due| due.duration_since(Instant::now()));
        let word = match heard.recv_timeout(wait) {
            Ok(Word::Piece(piece)) => {
                pending.merge(&piece);
                due.get_or_insert_with(|| Instant::now() + WRITE_EVERY);
                None
            }
            Ok(Word::End) | Err(RecvTimeoutError::Disconnected) => Some(()),
            Err(RecvTimeoutError::Timeout) => None,
        };
        let ended = word.is_some();
        if !pending.intervals.is_empty() && (ended || due.is_some_and(|due| due <= Instant::now()))
        {
            let recording = std::mem::take(&mut pending);
            let piece = TrialRecord { recording, ..TrialRecord::blank("") };
            if append(&mut file, &piece).is_err() {
                // What it held is lost; what follows may still be written once there is room again.
                due = Some(Instant::now() + WRITE_EVERY);
                continue;
            }
            due = None;
        }
        if ended {
            return;
        }
    }
}

fn append(file: &mut File, piece: &TrialRecord) -> std::io::Result<()> {
    let mut line = to_line(piece).map_err(std::io::Error::other)?;
    line.push('\n');
    file.write_all(line.as_bytes())?;
    file.sync_data()
}

/// Makes a journal with its first line: which trial it is.
pub(crate) fn begin(path: &Path, trial: &TrialRecord) -> Result<(), ArchiveError> {
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o644)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .map_err(ArchiveError::io("create", path))?;
    append(&mut file, trial).map_err(ArchiveError::io("write", path))
}

/// What is left of a trial that was running: its first line with the pieces of all others, up to one that a
/// kill has cut off.
pub(crate) fn read_running(path: &Path) -> Result<TrialRecord, ArchiveError> {
    let bytes = read_file(path)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let mut trial = from_line(first).map_err(|error| ArchiveError::damaged(path, error))?;
    for line in lines {
        let Ok(piece) = from_line(line) else { break };
        trial.recording.merge(&piece.recording);
    }
    trial.outcome = TrialOutcome::Partial;
    Ok(trial)
}
