//! The socket of a run in progress, in its folder.
//!
//! A thread sends the document to each connection and closes it. Invariants: only its user can connect (mode
//! 0600 before it listens); a reader that does not read is dropped after half a second; the socket is removed
//! with the run.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::live::Live;

/// Name in the run folder.
const NAME: &str = ".live";
/// Time limit for a reader.
const PATIENCE: Duration = Duration::from_millis(500);
/// Time limit for an answer; a slower run is stuck.
const ANSWERS_IN: Duration = Duration::from_secs(5);
/// Maximum number of waiting connections.
const WAITING_MAX: i32 = 128;
/// Maximum size of a document, bytes.
const LONGEST: usize = 4 << 20;
/// Runs queried in parallel; each may take a document of memory.
const ASKED_AT_ONCE: usize = 16;

/// The sending end.
#[derive(Debug)]
pub struct Line {
    folder: Folder,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// An open run folder: it may be renamed, and a socket path has at most 107 bytes.
#[derive(Debug)]
struct Folder(OwnedFd);

impl Folder {
    fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Address of the socket, through the folder's descriptor.
    fn address(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{NAME}", self.0.as_raw_fd()))
    }

    /// A socket that listens only once its mode restricts it to its user.
    fn listen(&self) -> io::Result<UnixListener> {
        let address = self.address();
        // Left by a killed run; only the holder of the folder's lock serves.
        match std::fs::symlink_metadata(&address) {
            Ok(facts) if !facts.file_type().is_socket() => {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            Ok(_) => std::fs::remove_file(&address)?,
            Err(_) => {}
        }
        let flags = SocketFlags::CLOEXEC;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        net::bind(&socket, &SocketAddrUnix::new(&address)?)?;
        std::fs::set_permissions(&address, PermissionsExt::from_mode(0o600))?;
        net::listen(&socket, WAITING_MAX)?;
        Ok(socket.into())
    }

    /// Connects to a socket that is in the folder and belongs to its owner; others are ignored.
    fn connect(&self) -> io::Result<UnixStream> {
        let facts = std::fs::symlink_metadata(self.address())?;
        let owner = rustix::fs::fstat(&self.0)?.st_uid;
        if !facts.file_type().is_socket() || facts.uid() != owner {
            return Err(io::ErrorKind::NotFound.into());
        }
        // Connecting to a listener with a full queue would block forever.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        net::connect(&socket, &SocketAddrUnix::new(self.address())?)?;
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false)?;
        Ok(stream)
    }
}

impl Line {
    /// Serves `live` in `folder`, whose lock this process holds.
    ///
    /// # Errors
    /// The folder cannot hold a socket; the run continues without one.
    pub fn open(folder: &Path, live: Arc<Mutex<Live>>) -> io::Result<Self> {
        let folder = Folder::open(folder)?;
        let listener = folder.listen()?;
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let thread = std::thread::spawn(move || tell(&listener, &live, &ended));
        Ok(Self { folder, over, thread: Some(thread) })
    }
}

/// Sends the document to each connection until the run ends.
fn tell(listener: &UnixListener, live: &Mutex<Live>, over: &AtomicBool) {
    for stream in listener.incoming() {
        if over.load(Ordering::SeqCst) {
            break;
        }
        let Ok(mut stream) = stream else {
            // Descriptors may be scarce for a while; do not spin.
            std::thread::sleep(PATIENCE);
            continue;
        };
        let document = live.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A slow reader must not delay others; if no thread can be started, it gets nothing.
        let _ = std::thread::Builder::new().spawn(move || {
            let text = serde_json::to_vec(&document).unwrap_or_default();
            let told = stream.set_write_timeout(Some(PATIENCE));
            // A closed connection is fine.
            let _ = told.and_then(|()| stream.write_all(&text));
        });
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Wakes the thread that waits for a connection.
        let woken = self.folder.connect();
        if let Some(thread) = self.thread.take().filter(|_| woken.is_ok()) {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(self.folder.address());
    }
}

/// Reads until the peer closes the connection, for at most `time`.
fn answer(mut stream: UnixStream, time: Duration) -> io::Result<Vec<u8>> {
    let until = Instant::now() + time;
    let (mut text, mut part) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || text.len() > LONGEST {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => return Ok(text),
            count => text.extend_from_slice(&part[..count]),
        }
    }
}

/// Summary of a running study in a list.
#[derive(Debug, Clone, Deserialize)]
pub struct LiveSummary {
    /// Name of the study.
    pub study: String,
    /// Its question.
    pub question: String,
    /// Trials of the run.
    pub trials: usize,
    /// Trials that have ended.
    pub done: usize,
}

/// The document of the run in `folder`; `None` if none is running.
///
/// # Errors
/// The peer sends no document, or permission is denied.
pub fn ask(folder: &Path) -> io::Result<Option<Live>> {
    ask_within(folder, ANSWERS_IN)
}

/// Summaries of the runs in many folders, queried in parallel for at most `time` in total; an error if a run
/// did not answer.
#[must_use]
pub fn ask_all(folders: &[PathBuf], time: Duration) -> Vec<io::Result<Option<LiveSummary>>> {
    let mut all = Vec::with_capacity(folders.len());
    let until = Instant::now() + time;
    let each = time / 2;
    for some in folders.chunks(ASKED_AT_ONCE) {
        std::thread::scope(|scope| {
            let asked: Vec<_> = some
                .iter()
                .map(|folder| {
                    // Most runs have ended and have no socket: they need no thread.
                    let live = std::fs::symlink_metadata(folder.join(NAME)).is_ok();
                    let left = until.saturating_duration_since(Instant::now()).min(each);
                    live.then(|| scope.spawn(move || ask_within(folder, left)))
                })
                .collect();
            all.extend(asked.into_iter().map(|thread| match thread.map(|one| one.join()) {
                None => Ok(None),
                Some(joined) => joined.unwrap_or_else(|_| Err(io::ErrorKind::Other.into())),
            }));
        });
    }
    all
}

fn ask_within<T: DeserializeOwned>(folder: &Path, time: Duration) -> io::Result<Option<T>> {
    let stream = match Folder::open(folder).and_then(|folder| folder.connect()) {
        Ok(stream) => stream,
        Err(error) => {
            return match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(None),
                _ => Err(error),
            };
        }
    };
    let text = answer(stream, time)?;
    // The run ended between connect and answer.
    if text.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(&text).map(Some).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(study: &str) -> Arc<Mutex<Live>> {
        Arc::new(Mutex::new(Live { study: study.into(), ..Live::default() }))
    }

    #[test]
    fn who_asks_is_told_and_afterwards_nobody_answers() {
        let dir = tempfile::tempdir().unwrap();
        // Longer than a socket address may be.
        let folder = dir.path().join("a".repeat(120));
        std::fs::create_dir(&folder).unwrap();
        assert!(ask(&folder).unwrap().is_none());
        let live = shared("first");
        let line = Line::open(&folder, Arc::clone(&live)).unwrap();
        assert_eq!(ask(&folder).unwrap().unwrap().study, "first");
        live.lock().unwrap().done = 3;
        assert_eq!(ask(&folder).unwrap().unwrap().done, 3);
        let mode = std::fs::metadata(folder.join(NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "of its user alone");
        drop(line);
        assert!(ask(&folder).unwrap().is_none() && !folder.join(NAME).exists());
    }

    /// A client that connects and reads nothing must block neither other clients nor the end of the run.
    #[test]
    fn who_does_not_read_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let live = shared(&"x".repeat(2 << 20));
        let line = Line::open(dir.path(), live).unwrap();
        let silent = Folder::open(dir.path()).unwrap().connect().unwrap();
        assert!(ask(dir.path()).unwrap().is_some());
        drop(line);
        drop(silent);
    }

    /// Runs that hang must be queried in parallel: listing them took five seconds for each.
    #[test]
    fn runs_that_do_not_answer_are_waited_for_side_by_side() {
        let dir = tempfile::tempdir().unwrap();
        let folders: Vec<PathBuf> =
            (0..40).map(|number| dir.path().join(number.to_string())).collect();
        let listeners: Vec<UnixListener> = folders
            .iter()
            .map(|folder| {
                std::fs::create_dir(folder).unwrap();
                UnixListener::bind(folder.join(NAME)).unwrap()
            })
            .collect();
        let (began, time) = (Instant::now(), Duration::from_millis(400));
        let all = ask_all(&folders, time);
        assert!(all.iter().all(Result::is_err));
        assert!(began.elapsed() < time * 4, "{:?} for forty", began.elapsed());
        drop(listeners);
        assert!(ask_all(&folders, time).iter().all(|one| matches!(one, Ok(None))));
    }

    /// A link to a silent socket must not delay the list.
    #[test]
    fn a_socket_elsewhere_is_none_of_the_run() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let listener = UnixListener::bind(other.path().join("s")).unwrap();
        std::os::unix::fs::symlink(other.path().join("s"), dir.path().join(NAME)).unwrap();
        assert!(ask(dir.path()).unwrap().is_none());
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "nobody connected");
    }

    /// The socket of a killed run must be replaced; another user's file of that name must not be removed.
    #[test]
    fn a_socket_that_was_left_is_replaced_and_a_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let stale = UnixListener::bind(dir.path().join(NAME)).unwrap();
        drop(stale);
        assert!(ask(dir.path()).unwrap().is_none());
        drop(Line::open(dir.path(), shared("again")).unwrap());
        std::fs::write(dir.path().join(NAME), "mine").unwrap();
        assert!(Line::open(dir.path(), shared("again")).is_err());
        assert_eq!(std::fs::read(dir.path().join(NAME)).unwrap(), b"mine");
    }
}
