//! Every file that the app layer writes.
//!
//! [`OutputFile`] is for results that the user names: a new name, or a regular file that may be replaced. The
//! functions are for files in folders that this program made. Invariants: no link is followed; a device, a
//! pipe, a directory, an input of the same command and a part of a run are never written to, whatever the
//! user forces; a directory in which another user could swap the file is refused; a reader never sees half
//! of a result.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::fs::{Access, CWD, RenameFlags, access, renameat_with};
use stack::{StackError, check_before_making, check_directory};
use thiserror::Error;

use crate::files;

/// Temporary files of results that are being written.
static TEMPORARY: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
/// How long [`discard_unfinished`] waits for a rename under way.
const SETTLE_TIME: Duration = Duration::from_secs(1);
/// Longest result that can be unedited; longer files were not written by this program.
const SEALED_MAX: u64 = 256 << 20;
/// Ends a page, picture or manual page: the checksum of all that precedes its line.
const SEAL: &str = "crosspoint:crc32 ";
/// The seal's line has fewer bytes.
const SEAL_LINE_MAX: u64 = 64;

/// What may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverwritePolicy {
    /// Only a sealed result of this program that nobody has edited.
    Unedited,
    /// Any regular file that is no input and no part of a run.
    Any,
}

impl OverwritePolicy {
    /// The policy of `--force`.
    #[must_use]
    pub const fn from_force(force: bool) -> Self {
        if force { Self::Any } else { Self::Unedited }
    }
}

/// Why a file is never written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A symbolic link.
    Link,
    /// A device, pipe, socket or directory.
    NotRegular(&'static str),
    /// A file that the command reads.
    Input,
    /// A file that a run folder consists of.
    PartOfRun,
    /// A file that somebody else made, or that was edited; the only one that [`OverwritePolicy::Any`]
    /// permits.
    Exists,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Link => out.write_str("it is a symbolic link"),
            Self::NotRegular(kind) => write!(out, "it is a {kind}, not a regular file"),
            Self::Input => out.write_str("the command reads it"),
            Self::PartOfRun => out.write_str("it belongs to a run folder"),
            Self::Exists => out.write_str("it exists, and Crosspoint did not write it as it is"),
        }
    }
}

/// Why a result was not written; what was there is unchanged.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OutputError {
    /// It must not be written.
    #[error("refusing to write {path}: {reason}")]
    Refused {
        /// As the user named it.
        path: PathBuf,
        /// Why.
        reason: Refusal,
    },
    /// Another user could swap the file in its directory.
    #[error(transparent)]
    Directory(#[from] StackError),
    /// The system failed.
    #[error("cannot write {path}: {source}")]
    Io {
        /// As the user named it.
        path: PathBuf,
        /// What the system reported.
        source: io::Error,
    },
}

/// A result that is being written next to its final name, and renamed by [`OutputFile::commit`].
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    temporary: PathBuf,
    policy: OverwritePolicy,
    file: BufWriter<File>,
}

impl OutputFile {
    /// Starts a result at `path`; `inputs` are files that the command reads.
    ///
    /// # Errors
    /// [`OutputError`], except [`Refusal::Exists`], which `commit` decides: equal content replaces nothing.
    pub fn create(
        path: &Path,
        policy: OverwritePolicy,
        inputs: &[&Path],
    ) -> Result<Self, OutputError> {
        target(path, inputs)?;
        let temporary =
            path.with_file_name(format!(".crosspoint-{}.writing", stack::random_hex(16)));
        let mut temporaries = TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner);
        let file = new_file(&temporary)
            .map_err(|source| OutputError::Io { path: path.to_owned(), source })?;
        temporaries.push(temporary.clone());
        Ok(Self { path: path.to_owned(), temporary, policy, file: BufWriter::new(file) })
    }

    /// Refuses early what [`OutputFile::commit`] would refuse, before the work for it is done.
    ///
    /// # Errors
    /// As `create` and `commit`.
    pub fn check(
        path: &Path,
        policy: OverwritePolicy,
        inputs: &[&Path],
    ) -> Result<(), OutputError> {
        match target(path, inputs)? {
            Some(_) if policy == OverwritePolicy::Unedited && !is_unedited(path) => {
                Err(refused(path, Refusal::Exists))
            }
            _ => Ok(()),
        }
    }

    /// Where the result is until then.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.temporary
    }

    /// Makes the result durable under its name. A file with the same content is left as it is.
    ///
    /// # Errors
    /// [`OutputError`]; then what was there is unchanged.
    pub fn commit(mut self) -> Result<(), OutputError> {
        let path = self.path.clone();
        let failed = |source| OutputError::Io { path: path.clone(), source };
        self.file.flush().map_err(failed)?;
        let old = target(&path, &[])?;
        if let Some(old) = &old {
            if self.equals(old).map_err(failed)? {
                return Ok(());
            }
            if self.policy == OverwritePolicy::Unedited && !is_unedited(&path) {
                return Err(refused(&path, Refusal::Exists));
            }
            self.file.get_ref().set_permissions(old.permissions()).map_err(failed)?;
        }
        self.file.get_ref().sync_all().map_err(failed)?;
        let mut temporaries = TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner);
        let flags = if old.is_some() { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        match renameat_with(CWD, &self.temporary, CWD, &path, flags) {
            // A file system without this flag; the name was free a moment ago.
            Err(rustix::io::Errno::INVAL) => fs::rename(&self.temporary, &path),
            other => other.map_err(io::Error::from),
        }
        .map_err(failed)?;
        temporaries.retain(|one| *one != self.temporary);
        Ok(())
    }

    /// Whether the file at the final name, of which `old` is known, has the content that was written.
    fn equals(&self, old: &Metadata) -> io::Result<bool> {
        let mut new = self.file.get_ref().try_clone()?;
        if new.metadata()?.len() != old.len() {
            return Ok(false);
        }
        new.seek(SeekFrom::Start(0))?;
        let (mut one, mut other) = (BufReader::new(new), BufReader::new(files::open(&self.path)?));
        let (mut left, mut right) = ([0; 8192], [0; 8192]);
        loop {
            let count = one.read(&mut left)?;
            if count == 0 {
                return Ok(true);
            }
            if other.read_exact(&mut right[..count]).is_err() || left[..count] != right[..count] {
                return Ok(false);
            }
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        let mut temporaries = TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = temporaries.iter().position(|one| *one == self.temporary) {
            temporaries.swap_remove(at);
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Removes results that are only partly written and permits no others, before the process ends.
pub fn discard_unfinished() {
    let until = Instant::now() + SETTLE_TIME;
    loop {
        match TEMPORARY.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(temporaries) => {
                temporaries.iter().for_each(|one| drop(fs::remove_file(one)));
                return std::mem::forget(temporaries);
            }
            Err(_) => return,
        }
    }
}

fn refused(path: &Path, reason: Refusal) -> OutputError {
    OutputError::Refused { path: path.to_owned(), reason }
}

/// What is at `path`: a regular file, or nothing.
fn target(path: &Path, inputs: &[&Path]) -> Result<Option<Metadata>, OutputError> {
    let failed = |source| OutputError::Io { path: path.to_owned(), source };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or_else(|| Path::new("."));
    let old = match fs::symlink_metadata(path) {
        Ok(old) => Some(old),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    if let Some(kind) = old.as_ref().and_then(irregular) {
        return Err(refused(path, kind));
    }
    let folder = fs::canonicalize(parent).map_err(failed)?;
    check_directory(parent)?;
    if path.file_name().is_none_or(|name| is_of_run(&folder, &name.to_string_lossy())) {
        return Err(refused(path, Refusal::PartOfRun));
    }
    let Some(old) = old else {
        access(parent, Access::WRITE_OK).map_err(|error| failed(error.into()))?;
        return Ok(None);
    };
    let id = |data: &Metadata| (data.dev(), data.ino());
    let same = |input: &&Path| fs::metadata(input).is_ok_and(|data| id(&data) == id(&old));
    if inputs.iter().any(same) {
        return Err(refused(path, Refusal::Input));
    }
    Ok(Some(old))
}

/// What a file is, unless it is a regular one.
fn irregular(data: &Metadata) -> Option<Refusal> {
    let kind = data.file_type();
    if kind.is_file() {
        return None;
    }
    if kind.is_symlink() {
        return Some(Refusal::Link);
    }
    let kinds = [
        (kind.is_dir(), "directory"),
        (kind.is_fifo(), "pipe"),
        (kind.is_socket(), "socket"),
        (kind.is_block_device(), "block device"),
    ];
    let found = kinds.into_iter().find(|(is, _)| *is);
    Some(Refusal::NotRegular(found.map_or("character device", |(_, kind)| kind)))
}

/// Whether `name` in `folder`, a canonical path, is one that a run folder consists of.
fn is_of_run(folder: &Path, name: &str) -> bool {
    let is_run = |folder: &Path| folder.join(files::HEADER).exists();
    let inside = folder.ancestors().any(|one| {
        let below =
            one.file_name().is_some_and(|name| name == files::TRIALS || name == files::ASIDE);
        below && one.parent().is_some_and(is_run)
    });
    inside || (files::is_run_file(name) && is_run(folder))
}

/// How a seal is written in a kind of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealStyle {
    /// HTML and SVG.
    Markup,
    /// Manual pages.
    Roff,
}

/// Ends `text` with its checksum, by which [`OverwritePolicy::Unedited`] knows it again.
pub fn seal(text: &mut String, style: SealStyle) {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let sum = crc32fast::hash(text.as_bytes());
    let line = match style {
        SealStyle::Markup => format!("<!-- {SEAL}{sum:08x} -->\n"),
        SealStyle::Roff => format!(".\\\" {SEAL}{sum:08x}\n"),
    };
    text.push_str(&line);
}

/// Whether a regular file has a seal that matches its content. Cost: reads the file once, at most 256 MiB, in
/// small memory.
#[must_use]
pub fn is_unedited(path: &Path) -> bool {
    check_seal(path).unwrap_or(false)
}

fn check_seal(path: &Path) -> io::Result<bool> {
    let mut file = files::open(path)?;
    let length = file.metadata()?.len();
    if length > SEALED_MAX {
        return Ok(false);
    }
    let tail = SEAL_LINE_MAX.min(length);
    file.seek(SeekFrom::Start(length - tail))?;
    let mut end = Vec::new();
    (&file).take(tail).read_to_end(&mut end)?;
    let Some(body) = end.strip_suffix(b"\n") else { return Ok(false) };
    let Some(start) = body.iter().rposition(|byte| *byte == b'\n') else { return Ok(false) };
    let line = String::from_utf8_lossy(&body[start + 1..]);
    let Some((_, rest)) = line.split_once(SEAL) else { return Ok(false) };
    let Some(Ok(expected)) = rest.get(..8).map(|sum| u32::from_str_radix(sum, 16)) else {
        return Ok(false);
    };
    file.seek(SeekFrom::Start(0))?;
    let mut content = file.take(length - tail + start as u64 + 1);
    let (mut hasher, mut part) = (crc32fast::Hasher::new(), [0; 64 << 10]);
    loop {
        match content.read(&mut part)? {
            0 => return Ok(hasher.finalize() == expected),
            count => hasher.update(&part[..count]),
        }
    }
}

/// Makes the directory `path` for results, with those above it, unless another user could swap it.
///
/// # Errors
/// [`OutputError`]; nothing was made if it is a [`OutputError::Directory`].
pub fn make_directory(path: &Path) -> Result<(), OutputError> {
    check_before_making(path)?;
    fs::create_dir_all(path).map_err(|source| OutputError::Io { path: path.to_owned(), source })
}

/// Renames a result that was edited, such as `report.html` to `report-1.html`, and gives its new name; none
/// where nothing is there, or an unedited result.
///
/// # Errors
/// [`OutputError`], also for what is not a regular file.
pub fn keep_edited(path: &Path) -> Result<Option<PathBuf>, OutputError> {
    if target(path, &[])?.is_none() || is_unedited(path) {
        return Ok(None);
    }
    let part =
        |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, end) = (part(path.file_stem()), part(path.extension()));
    let names = (1_u32..).map(|number| path.with_file_name(format!("{stem}-{number}.{end}")));
    for name in names {
        match renameat_with(CWD, path, CWD, &name, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(Some(name)),
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(OutputError::Io { path: name, source: error.into() }),
        }
    }
    Ok(None)
}

/// Makes a file that does not exist yet.
///
/// # Errors
/// As [`OpenOptions::open`]; `AlreadyExists` for a link, too.
pub fn new_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// Makes a file that only this user may read and write, and that does not exist yet.
///
/// # Errors
/// As [`new_file`].
pub fn new_private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW).open(path)
}

/// Opens a regular file to append to it, and makes it if `create`.
///
/// # Errors
/// As [`OpenOptions::open`]; a link, a device and a pipe are refused.
pub(crate) fn append(path: &Path, create: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(create);
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    match irregular(&file.metadata()?) {
        Some(kind) => Err(io::Error::other(kind.to_string())),
        None => Ok(file),
    }
}

/// Writes a file of our own durably. What a kill left of it is removed before; no link is followed.
///
/// # Errors
/// As [`new_file`], and where it cannot be written.
pub fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let _ = fs::remove_file(path);
    let mut file = new_file(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn put(path: &Path, text: &str, policy: OverwritePolicy) -> Result<(), OutputError> {
        let mut file = OutputFile::create(path, policy, &[])?;
        file.write_all(text.as_bytes()).unwrap();
        file.commit()
    }

    fn reason(result: Result<(), OutputError>) -> Refusal {
        match result {
            Err(OutputError::Refused { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    }

    /// A user's notes in a page, or a page of his own, were replaced.
    #[test]
    fn only_an_unedited_result_is_replaced_and_no_neighbour() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.html");
        let neighbours = ["a.html.tmp", "a.tmp"].map(|name| dir.path().join(name));
        neighbours.iter().for_each(|one| fs::write(one, "mine").unwrap());
        let mut page = "<html></html>".to_owned();
        seal(&mut page, SealStyle::Markup);
        put(&path, &page, OverwritePolicy::Unedited).unwrap();
        put(&path, "second", OverwritePolicy::Unedited).unwrap();
        assert_eq!(reason(put(&path, "third", OverwritePolicy::Unedited)), Refusal::Exists);
        put(&path, "second", OverwritePolicy::Unedited).expect("equal content");
        put(&path, &page, OverwritePolicy::Any).unwrap();
        for edited in [format!("{page}<p>note"), page.replace("<html>", "<html>note")] {
            fs::write(&path, &edited).unwrap();
            assert_eq!(reason(put(&path, "x", OverwritePolicy::Unedited)), Refusal::Exists);
            assert_eq!(fs::read_to_string(&path).unwrap(), edited);
        }
        assert!(neighbours.iter().all(|one| fs::read_to_string(one).unwrap() == "mine"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "no temporary file is left");
    }

    /// `--force` wrote through links, onto devices and over the run that was read.
    #[test]
    fn force_reaches_regular_files_only_and_no_run() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let force = |path: &Path| reason(put(path, "x", OverwritePolicy::Any));
        fs::write(at("mine"), "mine").unwrap();
        symlink(at("mine"), at("link")).unwrap();
        symlink(at("none"), at("dangling")).unwrap();
        assert_eq!(force(&at("link")), Refusal::Link);
        assert_eq!(force(&at("dangling")), Refusal::Link);
        assert_eq!(force(dir.path()), Refusal::NotRegular("directory"));
        assert_eq!(force(Path::new("/dev/null")), Refusal::NotRegular("character device"));
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        assert_eq!(force(&at("socket")), Refusal::NotRegular("socket"));
        let input = OutputFile::create(&at("mine"), OverwritePolicy::Any, &[&at("link")]);
        assert_eq!(reason(input.map(drop)), Refusal::Input);
        fs::create_dir_all(at("run/trials/0001-a")).unwrap();
        fs::write(at("run/run.json"), "{}").unwrap();
        for name in
            ["run.json", "study.toml", "sums.txt", ".lock", "trials/new", "trials/0001-a/new"]
        {
            assert_eq!(force(&at("run").join(name)), Refusal::PartOfRun, "{name}");
        }
        put(&at("run/report.html"), "x", OverwritePolicy::Unedited).unwrap();
        assert_eq!(fs::read_to_string(at("mine")).unwrap(), "mine");
        assert!(!at("none").exists());
    }
}
