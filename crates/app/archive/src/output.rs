//! Every file that the app layer writes.
//!
//! [`OutputFile`] is for results that the user names: a new name, or a regular file that may be replaced. The
//! functions are for files in folders of this program. Invariants: links are not followed; devices, pipes,
//! directories, inputs of the same command and parts of a run are never written to, even with `--force`; a
//! directory in which another user could swap the file is refused; readers never see half a result.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::fs::{Access, CWD, RenameFlags, access, renameat_with};
use stack::{StackError, check_before_making, check_directory, is_trusted_owner};
use thiserror::Error;

use crate::files;
pub use crate::seal::{SealStyle, is_unedited, seal};

/// Temporary files of results that are being written.
static TEMPORARY: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
/// How long [`discard_unfinished`] waits for a rename under way.
const SETTLE_TIME: Duration = Duration::from_secs(1);
/// Which existing files may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverwritePolicy {
    /// Only an unedited, sealed result of this program.
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

/// Reason for refusing to write a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A symbolic link.
    Link,
    /// A device, pipe, socket or directory.
    NotRegular(&'static str),
    /// A file of another user, who could change its contents or permissions.
    OtherOwner,
    /// A file that the command reads.
    Input,
    /// A file that a run folder consists of.
    PartOfRun,
    /// A foreign or edited file; the only refusal that [`OverwritePolicy::Any`] overrides.
    Exists,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Link => out.write_str("it is a symbolic link"),
            Self::NotRegular(kind) => write!(out, "it is a {kind}, not a regular file"),
            Self::OtherOwner => out.write_str("it belongs to another user"),
            Self::Input => out.write_str("it is an input of this command"),
            Self::PartOfRun => out.write_str("it is part of a run"),
            Self::Exists => {
                out.write_str("it already exists, and is not an unedited Crosspoint report")
            }
        }
    }
}

impl Refusal {
    /// The help text: what to do next.
    #[must_use]
    pub fn next(self) -> &'static str {
        match self {
            Self::Link => "remove the link, or choose another file",
            Self::NotRegular("directory") => "give a file name in it",
            Self::NotRegular(_) => "choose a file, or -o - for stdout",
            Self::OtherOwner | Self::Input | Self::PartOfRun => "choose another file",
            Self::Exists => "choose another file, or overwrite this one with --force",
        }
    }
}

/// Why a result was not written; existing data is unchanged.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OutputError {
    /// An existing file must not be replaced.
    #[error("refusing to write {path}: {reason}")]
    Refused {
        /// Path as given by the user.
        path: PathBuf,
        /// The reason.
        reason: Refusal,
    },
    /// Another user could swap the file in its directory.
    #[error(transparent)]
    Directory(#[from] StackError),
    /// An I/O error of the operating system.
    #[error("cannot write {path}: {source}")]
    Io {
        /// Path as given by the user.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// A result that is being written next to its final name, and renamed by [`OutputFile::commit`].
#[derive(Debug)]
pub struct OutputFile {
    /// Path without links and `..`, in a directory that no other user can replace.
    path: PathBuf,
    temporary: PathBuf,
    policy: OverwritePolicy,
    file: BufWriter<File>,
}

impl OutputFile {
    /// Starts a result at `path`; `inputs` are files that the command reads.
    ///
    /// # Errors
    /// [`OutputError`], except [`Refusal::Exists`]: `commit` decides that, because equal content replaces
    /// nothing.
    pub fn create(
        path: &Path,
        policy: OverwritePolicy,
        inputs: &[&Path],
    ) -> Result<Self, OutputError> {
        let Target { path, .. } = target(path, inputs)?;
        let temporary =
            path.with_file_name(format!(".crosspoint-{}.writing", stack::random_hex(16)));
        let mut temporaries = TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner);
        let file = new_file(&temporary)
            .map_err(|source| OutputError::Io { path: path.clone(), source })?;
        temporaries.push(temporary.clone());
        Ok(Self { path, temporary, policy, file: BufWriter::new(file) })
    }

    /// Checks early what `create` would refuse.
    ///
    /// # Errors
    /// As `create`.
    pub fn check(path: &Path, inputs: &[&Path]) -> Result<(), OutputError> {
        target(path, inputs).map(drop)
    }

    /// Checks early what `create` or `commit` would refuse, unless the content turns out to be equal.
    ///
    /// # Errors
    /// As `create` and `commit`.
    pub fn check_policy(
        path: &Path,
        policy: OverwritePolicy,
        inputs: &[&Path],
    ) -> Result<(), OutputError> {
        match target(path, inputs)?.old {
            Some(_) if policy == OverwritePolicy::Unedited && !is_unedited(path) => {
                Err(refused(path, Refusal::Exists))
            }
            _ => Ok(()),
        }
    }

    /// Makes the result durable under its name. A file with equal content stays as it is.
    ///
    /// # Errors
    /// [`OutputError`]; existing data is unchanged.
    pub fn commit(mut self) -> Result<(), OutputError> {
        let path = self.path.clone();
        let failed = |source| OutputError::Io { path: path.clone(), source };
        self.file.flush().map_err(failed)?;
        let Target { old, .. } = target(&path, &[])?;
        if let Some(old) = &old {
            if self.equals(old).map_err(failed)? {
                return Ok(());
            }
            if self.policy == OverwritePolicy::Unedited && !is_unedited(&path) {
                return Err(refused(&path, Refusal::Exists));
            }
            let mode = Permissions::from_mode(old.mode() & 0o755);
            self.file.get_ref().set_permissions(mode).map_err(failed)?;
        }
        self.file.get_ref().sync_all().map_err(failed)?;
        let mut temporaries = TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner);
        match old {
            Some(_) => fs::rename(&self.temporary, &path),
            None => rename_new(&self.temporary, &path),
        }
        .map_err(failed)?;
        let _ = sync_parent(&path);
        temporaries.retain(|one| *one != self.temporary);
        Ok(())
    }

    /// Whether the file at the final name has the content just written; `old` is its known metadata.
    fn equals(&self, old: &Metadata) -> io::Result<bool> {
        let mut new = self.file.get_ref().try_clone()?;
        if new.metadata()?.len() != old.len() {
            return Ok(false);
        }
        new.seek(SeekFrom::Start(0))?;
        let mut expected = Expected(BufReader::new(files::open(&self.path)?));
        match io::copy(&mut new, &mut expected).map_err(|error| (error.kind(), error)) {
            Ok(_) => Ok(true),
            Err((ErrorKind::InvalidData | ErrorKind::UnexpectedEof, _)) => Ok(false),
            Err((_, error)) => Err(error),
        }
    }
}

/// A writer that accepts only the bytes that its reader returns.
#[derive(Debug)]
pub struct Expected<R>(pub R);

impl<R: Read> Write for Expected<R> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut expected = vec![0; bytes.len()];
        self.0.read_exact(&mut expected)?;
        if expected == bytes { Ok(bytes.len()) } else { Err(ErrorKind::InvalidData.into()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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

/// Removes unfinished results and permits no others, before the process exits.
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

/// Destination of a result.
struct Target {
    /// Path without links and `..`.
    path: PathBuf,
    /// The existing regular file.
    old: Option<Metadata>,
}

/// Checks the destination of a result.
fn target(named: &Path, inputs: &[&Path]) -> Result<Target, OutputError> {
    let failed = |source| OutputError::Io { path: named.to_owned(), source };
    let refuse = |reason| Err(refused(named, reason));
    let Some(name) = named.file_name() else {
        return refuse(Refusal::NotRegular("directory"));
    };
    let parent = named.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or_else(|| Path::new("."));
    check_directory(parent).map_err(|error| match error {
        StackError::Io { source, .. } => failed(source),
        refusal => OutputError::Directory(refusal),
    })?;
    let folder = fs::canonicalize(parent).map_err(failed)?;
    let path = folder.join(name);
    if is_of_run(&path) {
        return refuse(Refusal::PartOfRun);
    }
    let old = match fs::symlink_metadata(&path) {
        Ok(old) => old,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            access(&folder, Access::WRITE_OK).map_err(|error| failed(error.into()))?;
            return Ok(Target { path, old: None });
        }
        Err(error) => return Err(failed(error)),
    };
    if let Some(kind) = irregular(&old) {
        return refuse(kind);
    }
    if !is_trusted_owner(old.uid()) {
        return refuse(Refusal::OtherOwner);
    }
    let id = |data: &Metadata| (data.dev(), data.ino());
    let same = |input: &&Path| fs::metadata(input).is_ok_and(|data| id(&data) == id(&old));
    if inputs.iter().any(same) {
        return refuse(Refusal::Input);
    }
    Ok(Target { path, old: Some(old) })
}

/// The kind of a file that is not regular.
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

/// Whether `path`, which has no links and no `..`, is a file or folder that belongs to a run, or lies inside
/// one.
fn is_of_run(path: &Path) -> bool {
    path.ancestors().any(|place| {
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        let parent = place.parent().unwrap_or(place);
        files::is_run_file(&name) && parent.join(files::HEADER).exists()
    })
}

/// Creates the directory `path` for results, with its parents.
///
/// # Errors
/// [`OutputError`], also for a link, and for a directory that is part of a run or that another user could
/// swap; nothing is created then.
pub fn make_directory(path: &Path) -> Result<(), OutputError> {
    let failed = |source| OutputError::Io { path: path.to_owned(), source };
    check_new_directory(path)?;
    fs::create_dir_all(path).map_err(failed)
}

/// Checks a directory before it, or files in it, are created.
///
/// # Errors
/// As [`make_directory`].
pub fn check_new_directory(path: &Path) -> Result<(), OutputError> {
    let failed = |source| OutputError::Io { path: path.to_owned(), source };
    check_before_making(path)?;
    // Without a trailing slash, which would follow a link.
    let whole: PathBuf = std::path::absolute(path).map_err(failed)?.components().collect();
    let there = whole.ancestors().find(|place| fs::symlink_metadata(place).is_ok());
    let there = there.unwrap_or(Path::new("/"));
    let rest = whole.strip_prefix(there).unwrap_or(Path::new(""));
    if rest.components().any(|part| part == std::path::Component::ParentDir) {
        return Err(failed(io::ErrorKind::NotFound.into()));
    }
    match fs::symlink_metadata(&whole) {
        Ok(data) if data.is_symlink() => return Err(refused(path, Refusal::Link)),
        Ok(data) if !data.is_dir() => {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        _ => {}
    }
    if is_of_run(&fs::canonicalize(there).map_err(failed)?.join(rest)) {
        return Err(refused(path, Refusal::PartOfRun));
    }
    Ok(())
}

/// Renames an edited result, such as `report.html` to `report-1.html`, and returns its new name; `None` if
/// the file is missing or unedited.
///
/// # Errors
/// [`OutputError`], also if it is not a regular file.
pub fn keep_edited(path: &Path) -> Result<Option<PathBuf>, OutputError> {
    if target(path, &[])?.old.is_none() || is_unedited(path) {
        return Ok(None);
    }
    let part =
        |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, end) = (part(path.file_stem()), part(path.extension()));
    let names = (1_u32..).map(|number| path.with_file_name(format!("{stem}-{number}.{end}")));
    for name in names {
        match rename_new(path, &name) {
            Ok(()) => return Ok(Some(name)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(OutputError::Io { path: name, source }),
        }
    }
    Ok(None)
}

/// Renames to an unused name.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system does not support this flag.
        Err(rustix::io::Errno::INVAL) if fs::symlink_metadata(to).is_err() => fs::rename(from, to),
        Err(rustix::io::Errno::INVAL) => Err(io::ErrorKind::AlreadyExists.into()),
        other => other.map_err(io::Error::from),
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Creates a new file.
///
/// # Errors
/// As [`OpenOptions::open`]; `AlreadyExists` for a link, too.
pub fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

/// Creates a new file that only this user can read and write.
///
/// # Errors
/// As [`new_file`].
pub fn new_private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Opens a regular file for appending, creating it if `create`.
///
/// # Errors
/// As [`OpenOptions::open`]; links, devices and pipes are refused.
pub(crate) fn append(path: &Path, create: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(create);
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    match irregular(&file.metadata()?) {
        Some(kind) => Err(io::Error::other(kind.to_string())),
        None => Ok(file),
    }
}

/// Writes a file of this program durably. Remains of a killed write are removed first; links are not
/// followed.
///
/// # Errors
/// As [`new_file`], and if it cannot be written.
pub fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let _ = fs::remove_file(path);
    let mut file = new_file(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Replaces a file of this program durably: readers see the old content or the new.
///
/// # Errors
/// As [`write_durably`]; the old content remains.
pub(crate) fn replace_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".writing");
    write_durably(Path::new(&aside), bytes)?;
    fs::rename(&aside, path)?;
    sync_parent(path)
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

    /// A page that a user edited, or a file of the user's own, must not be replaced.
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

    /// `--force` must not write through links, onto devices or over the run that is being read.
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
