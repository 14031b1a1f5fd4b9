//! The journal of a running trial, synced every few seconds.
//!
//! One complete record per line; the first identifies the trial. A trial that ends normally reads its records
//! back and removes the file; after a kill they are what is left. Invariants: a kill loses at most
//! [`WRITE_EVERY`] plus two seconds of a client and one sync; a line has only intervals that every client has
//! ended, so the file is a complete prefix; memory holds only what was recorded since the last line.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stats::{Recording, TrialResult};
use units::Nanos;

use crate::files::open;
use crate::lines::{from_line, to_line};
use crate::output::{append, new_file};
use crate::{ArchiveError, TrialOutcome, TrialRecord};

/// Prefix of the journals' names among the trials.
pub(crate) const RUNNING: &str = ".running-";
/// Longest time between lines while something is recorded.
pub const WRITE_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug)]
enum Word {
    Expect(u32),
    Piece(u32, Recording),
    Left(u32),
    End,
}

/// Pieces that are not written yet, and the progress of each client.
#[derive(Debug, Default)]
struct Pending {
    recording: Recording,
    expected: u32,
    /// End of the last interval that each client handed over.
    until: HashMap<u32, Nanos>,
}

impl Pending {
    fn take(&mut self, word: Word) {
        match word {
            Word::Expect(clients) => self.expected = clients,
            Word::Piece(client, piece) => {
                let until = piece.intervals.last().map_or(Nanos::ZERO, |last| last.end);
                self.until.insert(client, until);
                self.recording.merge(&piece);
            }
            Word::Left(client) => {
                self.until.insert(client, Nanos::MAX);
            }
            Word::End => {}
        }
    }

    /// Takes out the intervals that every client has ended.
    fn whole(&mut self) -> Recording {
        if self.until.len() < self.expected as usize {
            return Recording::default();
        }
        let until = self.until.values().min().copied().unwrap_or(Nanos::MAX);
        self.recording.take_until(until)
    }
}

/// The file of a journal, with its length of complete lines.
#[derive(Debug)]
struct Lines {
    file: File,
    /// Offset of this writer's first line.
    begun: u64,
    /// Length of its complete lines, bytes.
    whole: u64,
    written: u32,
}

/// What the thread returns: the file, and what could not be written.
type Rest = (Lines, Recording);

/// Writes the pieces of a trial to its journal on a separate thread, so that a slow disk delays no client.
/// What cannot be written stays in memory.
#[derive(Debug)]
pub struct Keeper {
    words: Sender<Word>,
    thread: Mutex<Option<JoinHandle<Rest>>>,
}

impl Keeper {
    /// Continues the journal at `path`, which has its first line.
    ///
    /// # Errors
    /// [`ArchiveError::Io`] if it cannot be opened.
    pub fn start(path: &Path) -> Result<Self, ArchiveError> {
        let file = append(path, false).map_err(ArchiveError::io("open", path))?;
        let whole = file.metadata().map_err(ArchiveError::io("look at", path))?.len();
        let mut lines = Lines { file, begun: whole, whole, written: 0 };
        let (words, heard) = channel();
        let thread = std::thread::spawn(move || {
            let rest = write_pieces(&heard, WRITE_EVERY, &mut |piece| lines.append(piece));
            (lines, rest)
        });
        Ok(Self { words, thread: Mutex::new(Some(thread)) })
    }
}

impl observe::Keep for Keeper {
    // The thread runs until it receives a stop message.
    fn expect(&self, clients: u32) {
        let _ = self.words.send(Word::Expect(clients));
    }

    fn keep(&self, client: u32, ended: Recording) {
        let _ = self.words.send(Word::Piece(client, ended));
    }

    fn left(&self, client: u32) {
        let _ = self.words.send(Word::Left(client));
    }

    fn take_back(&self) -> Result<Recording, String> {
        let _ = self.words.send(Word::End);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let joined = thread.map(JoinHandle::join).and_then(Result::ok);
        let (mut lines, rest) = joined.ok_or("its thread has ended")?;
        // Reads through the descriptor: the name may refer to another file by now.
        let mut whole = lines.read_back()?;
        whole.merge(&rest);
        Ok(whole)
    }
}

/// Merges pieces and writes them every `every`; returns what could not be written.
fn write_pieces(
    heard: &Receiver<Word>,
    every: Duration,
    write: &mut dyn FnMut(&Recording) -> std::io::Result<()>,
) -> Recording {
    let mut pending = Pending::default();
    let mut due: Option<Instant> = None;
    loop {
        let wait = due.map_or(Duration::MAX, |due| due.saturating_duration_since(Instant::now()));
        let ended = match heard.recv_timeout(wait) {
            Ok(Word::End) | Err(RecvTimeoutError::Disconnected) => true,
            Ok(word) => {
                pending.take(word);
                due.get_or_insert_with(|| Instant::now() + every);
                false
            }
            Err(RecvTimeoutError::Timeout) => false,
        };
        if ended || due.is_some_and(|due| due <= Instant::now()) {
            let whole =
                if ended { std::mem::take(&mut pending.recording) } else { pending.whole() };
            if !whole.intervals.is_empty() && write(&whole).is_err() {
                pending.recording.merge(&whole);
            }
            // By then there may be free space again, or the last client may have caught up.
            due = (!pending.recording.intervals.is_empty()).then(|| Instant::now() + every);
        }
        if ended {
            return pending.recording;
        }
    }
}

impl Lines {
    /// Appends a line, or leaves the file unchanged.
    fn append(&mut self, piece: &Recording) -> std::io::Result<()> {
        // The remains of a failed append would cut off all later lines.
        self.file.set_len(self.whole)?;
        let piece = TrialResult { recording: piece.clone(), ..TrialResult::default() };
        let piece = TrialRecord::unnamed(piece);
        self.whole += append_line(&mut self.file, &piece)?;
        self.written += 1;
        Ok(())
    }

    /// Reads back everything that was written.
    fn read_back(&mut self) -> Result<Recording, String> {
        let sought = self.file.seek(SeekFrom::Start(self.begun));
        sought.map_err(|error| format!("the journal of the trial cannot be read back: {error}"))?;
        let written = (&self.file).take(self.whole - self.begun);
        let mut lines = JournalLines { reader: BufReader::new(written), line: Vec::new() };
        let mut recording = Recording::default();
        let mut found = 0;
        while let Some(line) = lines.next_line() {
            let Ok(piece) = from_line(line) else { break };
            recording.merge(&piece.result.recording);
            found += 1;
        }
        if found == self.written {
            return Ok(recording);
        }
        Err(format!(
            "{found} of {} lines of the journal of the trial could be read back",
            self.written
        ))
    }
}

/// Longest line of a journal: two seconds of a trial, or the backlog of a full disk.
const LINE_MAX: u64 = 64 << 20;

/// The lines of a journal, one at a time.
struct JournalLines<R> {
    reader: R,
    line: Vec<u8>,
}

impl<R: BufRead> JournalLines<R> {
    /// The next line; `None` at the end, or if the rest is not text or too long.
    fn next_line(&mut self) -> Option<&str> {
        self.line.clear();
        self.reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut self.line).ok()?;
        std::str::from_utf8(&self.line).ok().filter(|line| !line.is_empty())
    }
}

/// Appends a record as a line, durably; returns its length.
fn append_line(file: &mut File, piece: &TrialRecord) -> std::io::Result<u64> {
    let mut line = to_line(piece).map_err(std::io::Error::other)?;
    line.push('\n');
    file.write_all(line.as_bytes())?;
    file.sync_data()?;
    Ok(line.len() as u64)
}

/// Creates a journal with its first line, which identifies the trial.
pub(crate) fn begin(path: &Path, trial: &TrialRecord) -> Result<(), ArchiveError> {
    let _ = std::fs::remove_file(path);
    let mut file = new_file(path).map_err(ArchiveError::io("create", path))?;
    append_line(&mut file, trial).map(|_| ()).map_err(ArchiveError::io("write", path))
}

/// The remains of a running trial: its first line with the pieces of all others, up to one cut off by a kill.
pub(crate) fn read_running(path: &Path) -> Result<TrialRecord, ArchiveError> {
    let file = open(path).map_err(|error| ArchiveError::damaged(path, error))?;
    let mut lines = JournalLines { reader: BufReader::new(file), line: Vec::new() };
    let first = lines.next_line().unwrap_or_default();
    let mut trial = from_line(first).map_err(|error| ArchiveError::damaged(path, error))?;
    while let Some(line) = lines.next_line() {
        let Ok(piece) = from_line(line) else { break };
        trial.result.recording.merge(&piece.result.recording);
    }
    trial.outcome = TrialOutcome::Partial;
    Ok(trial)
}

#[cfg(test)]
mod tests {
    use super::*;
    use observe::Keep;
    use stats::{Interval, Phase};

    fn piece(number: u64) -> Recording {
        let (start, end) = (Nanos::from_millis(number), Nanos::from_millis(number + 1));
        let mut interval = Interval::empty(Phase::Measure, start, end);
        interval.tallies.of(workload::OpClass::Read).counts.ops = number + 1;
        Recording { intervals: vec![interval], ..Recording::default() }
    }

    fn ops(recording: &Recording) -> Vec<u64> {
        recording.intervals.iter().map(|interval| interval.counts().ops).collect()
    }

    /// A full disk under the run folder must not cost data or hang the trial's end.
    #[test]
    fn what_cannot_be_written_stays_in_memory_and_is_written_later() {
        let (words, heard) = channel();
        for number in 0..3 {
            words.send(Word::Piece(0, piece(number))).unwrap();
        }
        words.send(Word::End).unwrap();
        let full = || Err(std::io::Error::from(std::io::ErrorKind::StorageFull));
        let rest = write_pieces(&heard, Duration::ZERO, &mut |_| full());
        assert_eq!(ops(&rest), [1, 2, 3]);
        for number in 0..3 {
            words.send(Word::Piece(0, piece(number))).unwrap();
        }
        words.send(Word::End).unwrap();
        let (mut tries, mut written) = (0, Recording::default());
        let rest = write_pieces(&heard, Duration::ZERO, &mut |pending| {
            tries += 1;
            if tries < 3 {
                return full();
            }
            written.merge(pending);
            Ok(())
        });
        assert_eq!((ops(&written), ops(&rest)), (vec![1, 2, 3], vec![]));
    }

    /// A line cut off by a full disk must not hide later lines, and unlinking the journal must not lose its
    /// records.
    #[test]
    fn a_torn_line_hides_nothing_and_a_name_that_is_gone_costs_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        begin(&path, &TrialRecord::unnamed(TrialResult::default())).unwrap();
        let file = append(&path, false).unwrap();
        let whole = file.metadata().unwrap().len();
        let mut lines = Lines { file, begun: whole, whole, written: 0 };
        lines.append(&piece(0)).unwrap();
        lines.file.write_all(b"[{\"format\":1,\"num").unwrap();
        lines.append(&piece(1)).unwrap();
        assert_eq!(ops(&read_running(&path).unwrap().result.recording), [1, 2]);
        assert_eq!(ops(&lines.read_back().unwrap()), [1, 2]);
        let keeper = Keeper::start(&path).unwrap();
        keeper.keep(0, piece(2));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(ops(&keeper.take_back().unwrap()), [3]);
    }

    /// An interval that only half of the clients have ended would be stored as a rate that is too low.
    #[test]
    fn what_is_written_is_what_every_client_has_ended() {
        let mut pending = Pending::default();
        pending.take(Word::Expect(3));
        for (client, number) in [(0, 0), (1, 0), (0, 1)] {
            pending.take(Word::Piece(client, piece(number)));
        }
        assert_eq!(ops(&pending.whole()), [0u64; 0], "one has handed on nothing");
        pending.take(Word::Piece(2, piece(0)));
        assert_eq!(ops(&pending.whole()), [3]);
        assert_eq!(ops(&pending.whole()), [0u64; 0]);
        // A client that has left is no longer waited for.
        pending.take(Word::Left(1));
        assert_eq!(ops(&pending.whole()), [0u64; 0]);
        pending.take(Word::Piece(2, piece(1)));
        pending.take(Word::Piece(0, piece(2)));
        assert_eq!((ops(&pending.whole()), ops(&pending.recording)), (vec![4], vec![3]));
    }

    /// Unreadable journal lines must be reported: a trial with a gap is incomplete.
    #[test]
    fn a_journal_that_was_changed_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        begin(&path, &TrialRecord::unnamed(TrialResult::default())).unwrap();
        let keeper = Keeper::start(&path).unwrap();
        keeper.keep(0, piece(0));
        let thread = keeper.thread.lock().unwrap().take().unwrap();
        keeper.words.send(Word::End).unwrap();
        let (mut lines, _) = thread.join().unwrap();
        lines.file.set_len(lines.whole - 5).unwrap();
        assert!(lines.read_back().unwrap_err().contains("0 of 1 lines"));
    }
}
