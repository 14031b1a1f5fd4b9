//! The directory of a private server, and its confinement under root.
//!
//! Invariants: only the server's user can enter it; a server started by root runs as an unused user ID and
//! sees its directory at a fixed place in its own mount namespace, so that no parent directory must be opened
//! to it.

use std::ffi::{CStr, CString};
use std::fs::{self, DirBuilder, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::{Gid, Uid};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive,
    mount_change, unmount,
};
use rustix::process::{Signal, chdir, set_parent_process_death_signal};
use rustix::thread::{UnshareFlags, set_thread_gid, set_thread_groups, set_thread_uid};

use crate::{EngineError, WalPlace};

/// User IDs that systemd assigns dynamically (systemd.io, "Users, Groups, UIDs and GIDs"); normally none has
/// an account, and those in /etc/passwd are skipped.
const DYNAMIC: std::ops::RangeInclusive<u32> = 61_184..=65_519;
/// Where a confined server can see its directory: the first that exists and is not a parent of its program.
const PLACES: [&CStr; 4] = [c"/mnt", c"/media", c"/srv", c"/opt"];
/// Folders of a server's directory: data, temporary files, and files for SQL statements.
const FOLDERS: [&str; 3] = [DATA, TEMPORARY, FILES];
/// Folder of its data, and its working directory.
pub const DATA: &str = "data";
/// Folder of its temporary files.
pub const TEMPORARY: &str = "tmp";
/// Folder of files for its SQL statements.
pub const FILES: &str = "files";

/// Confinement of a server that is started by root.
#[derive(Debug, Clone, Copy)]
struct Jail {
    user: u32,
    place: &'static CStr,
}

/// The directory of a private server.
#[derive(Debug, Clone)]
pub struct Home {
    place: PathBuf,
    jail: Option<Jail>,
}

fn refused(what: &Path, error: impl std::fmt::Display) -> EngineError {
    let reason = format!("{}: {error}", what.display());
    EngineError::refused(reason, "crosspoint doctor")
}

impl Home {
    /// Creates the folders of a server, an executable at `program`, in the directory `place`.
    ///
    /// # Errors
    /// If they cannot be created, or given to its user.
    pub fn make(program: &Path, place: &Path) -> Result<Self, EngineError> {
        let user = if rustix::process::geteuid().is_root() { Some(free_user()?) } else { None };
        fs::set_permissions(place, fs::Permissions::from_mode(0o700))
            .map_err(|error| refused(place, error))?;
        let folders = FOLDERS.map(|name| place.join(name));
        for folder in &folders {
            let made = DirBuilder::new().mode(0o700).create(folder);
            made.map_err(|error| refused(folder, error))?;
        }
        if let Some(user) = user {
            for path in folders.iter().map(PathBuf::as_path).chain([place]) {
                chown(path, Some(user), Some(user)).map_err(|error| refused(path, error))?;
            }
        }
        Self::open(program, place)
    }

    /// The directory of a server that was created before.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn open(program: &Path, place: &Path) -> Result<Self, EngineError> {
        let data = fs::metadata(place).map_err(|error| refused(place, error))?;
        let own = rustix::process::geteuid();
        let place = place.to_owned();
        if !own.is_root() || data.uid() == own.as_raw() {
            return Ok(Self { place, jail: None });
        }
        let above = |seen: &&&CStr| {
            let seen = Path::new(seen.to_str().unwrap_or_default());
            seen.is_dir() && !program.starts_with(seen)
        };
        let seen = PLACES.iter().find(above).ok_or_else(|| {
            refused(program, "none of /mnt, /media, /srv and /opt can hide the server's data")
        })?;
        Ok(Self { place, jail: Some(Jail { user: data.uid(), place: seen }) })
    }

    /// Checks that a private server can be confined: root needs a mount namespace for it.
    ///
    /// # Errors
    /// What is missing.
    pub fn possible() -> Result<(), EngineError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        let mut command = Command::new("true");
        command.stdin(Stdio::null());
        // SAFETY: the new process has one thread, and only makes a system call.
        unsafe {
            command.pre_exec(|| {
                rustix::thread::unshare_unsafe(UnshareFlags::NEWNS).map_err(Into::into)
            });
        }
        let run = stack::output_within(&mut command, (Duration::from_secs(30), None), |_| ());
        run.map(|_| ()).map_err(|error| {
            EngineError::refused(
                format!("cannot create a mount namespace for the server: {error}"),
                "run as a non-root user, or give this container CAP_SYS_ADMIN",
            )
        })
    }

    /// Path of one of its directories, as seen by this process.
    pub fn path(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    /// Its directory, as seen by the server.
    pub fn seen_place(&self) -> PathBuf {
        match &self.jail {
            Some(jail) => PathBuf::from(&*jail.place.to_string_lossy()),
            None => self.place.clone(),
        }
    }

    /// Path of one of its files, as seen by the server.
    pub fn seen(&self, name: &str) -> String {
        match &self.jail {
            Some(jail) => format!("{}/{name}", jail.place.to_string_lossy()),
            None => self.path(name).display().to_string(),
        }
    }

    /// Writes a file that only the server can read.
    pub fn write(&self, name: &str, text: &str) -> Result<(), EngineError> {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let path = self.path(name);
        let _ = fs::remove_file(&path);
        let mut options = fs::OpenOptions::new();
        let made = options.write(true).create_new(true).mode(0o600).open(&path);
        made.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| match &self.jail {
                Some(jail) => chown(&path, Some(jail.user), Some(jail.user)),
                None => Ok(()),
            })
            .map_err(|error| refused(&path, error))
    }

    /// Confines a command to this server: its directory, its user, killed with the calling thread, in the
    /// cgroups of `doors`, with its write-ahead log from elsewhere.
    ///
    /// # Errors
    /// A path that contains a zero byte.
    pub fn confine(
        &self,
        command: &mut Command,
        doors: Vec<File>,
        wal: Option<WalPlace<'_>>,
    ) -> std::io::Result<()> {
        let mounted = |wal: WalPlace<'_>| {
            std::io::Result::Ok([
                CString::new(wal.directory.as_os_str().as_bytes())?,
                CString::new(wal.at)?,
            ])
        };
        let mount = wal.filter(|_| self.jail.is_some()).map(mounted).transpose()?;
        self.confine_as(command, doors, mount);
        Ok(())
    }

    /// Confines a command that looks up its user's account: it sees an /etc/passwd with that account alone.
    ///
    /// # Errors
    /// If that file cannot be written.
    pub fn confine_with_account(&self, command: &mut Command) -> Result<(), EngineError> {
        if let Some(Jail { user, .. }) = self.jail {
            self.write("passwd", &format!("crosspoint:x:{user}:{user}::/:/bin/false\n"))?;
        }
        let over = [c"passwd", c"/etc/passwd"].map(CStr::to_owned);
        self.confine_as(command, Vec::new(), Some(over));
        Ok(())
    }

    /// Also mounts the first path over the second.
    fn confine_as(&self, command: &mut Command, doors: Vec<File>, over: Option<[CString; 2]>) {
        let jail = self.jail;
        let others = other_areas();
        // Before the change of user: nobody else may enter the parents.
        command.current_dir(&self.place);
        // SAFETY: between fork and exec only system calls are made, with existing arguments; nothing is
        // allocated and no lock is taken.
        unsafe {
            command.pre_exec(move || {
                for door in &doors {
                    rustix::io::write(door, b"0")?;
                }
                // Its children get no privileges that it lacks.
                rustix::thread::set_no_new_privs(true)?;
                if let Some(jail) = &jail {
                    jail.enter(&others, over.as_ref())?;
                }
                chdir(c"data")?;
                // After the change of user, which clears it.
                set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into)
            });
        }
    }
}

impl Jail {
    /// Mounts the first path `over` the second and the working directory at `place` for this process alone,
    /// unmounts `others`, and changes the user. Shared memory that it leaves ends with it, too: a killed
    /// `initdb` of PostgreSQL leaves a MiB.
    fn enter(&self, others: &[CString], over: Option<&[CString; 2]>) -> std::io::Result<()> {
        // SAFETY: the new process has one thread.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWIPC)? };
        // Unmounts outside must propagate here.
        let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        mount_change(c"/", slave)?;
        // Before `place` hides what is below it.
        if let Some([from, to]) = over {
            mount_bind(from.as_c_str(), to.as_c_str())?;
        }
        mount_bind_recursive(c".", self.place)?;
        chdir(self.place)?;
        for other in others {
            // It may have been unmounted meanwhile.
            let _ = unmount(other.as_c_str(), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
        // After those unmounts, which can be below it.
        match mount(
            c"tmpfs",
            c"/dev/shm",
            c"tmpfs",
            MountFlags::NOSUID | MountFlags::NODEV,
            c"mode=1777",
        ) {
            // A program needs none where the system has none.
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let group = Gid::from_raw(self.user);
        set_thread_groups(&[])?;
        set_thread_gid(group)?;
        set_thread_uid(Uid::from_raw(self.user))?;
        Ok(())
    }
}

/// Mounts in work areas of this and other runs: copies in the server's namespace would keep their devices
/// busy.
fn other_areas() -> Vec<CString> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let places = stack::parsing::parse_mounts(&mounts).into_iter().map(|mounted| mounted.place);
    let bytes = places.map(|place| place.into_os_string().into_encoded_bytes());
    let mark = b".crosspoint-work-";
    let ours = bytes.filter(|bytes| bytes.windows(mark.len()).any(|part| part == mark));
    ours.filter_map(|bytes| CString::new(bytes).ok()).collect()
}

/// A user ID without an account or process.
fn free_user() -> Result<u32, EngineError> {
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let owners: Vec<u32> = processes.filter_map(|one| Some(one.metadata().ok()?.uid())).collect();
    let random = u32::from_str_radix(&stack::random_hex(6), 16).unwrap_or(0);
    pick_user(random, &accounts, &map, &owners).ok_or_else(|| {
        let reason = "no unused user ID for the server (61184 to 65519)".to_owned();
        let next = "run as a non-root user, or give this container those IDs";
        EngineError::refused(reason, next)
    })
}

/// The first free user ID, searching from a random one.
fn pick_user(random: u32, accounts: &str, map: &str, owners: &[u32]) -> Option<u32> {
    let taken = |user: u32| {
        let number = user.to_string();
        let account = |line: &str| line.split(':').nth(2) == Some(&number);
        owners.contains(&user) || accounts.lines().any(account)
    };
    let mapped = |user: u32| {
        map.lines().any(|line| {
            let mut numbers = line.split_whitespace().map_while(|word| word.parse::<u64>().ok());
            let (first, _, count) = (numbers.next(), numbers.next(), numbers.next());
            first.zip(count).is_some_and(|(first, count)| {
                (first..first.saturating_add(count)).contains(&u64::from(user))
            })
        })
    };
    let count = DYNAMIC.end() - DYNAMIC.start() + 1;
    let from = random % count;
    let mut users = (0..count).map(|step| DYNAMIC.start() + (from + step) % count);
    users.find(|user| !taken(*user) && mapped(*user))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two servers, or a server and an existing account, must not share a user.
    #[test]
    fn a_server_gets_a_user_that_nobody_has() {
        let map = "         0          0 4294967295\n";
        assert_eq!(pick_user(0, "", map, &[]), Some(61_184));
        assert_eq!(pick_user(0, "x:x:61184:1::/:\n", map, &[61_185]), Some(61_186));
        assert_eq!(pick_user(4335, "", map, &[65_519]), Some(61_184));
        assert_eq!(pick_user(0, "", "0 1000 10\n", &[]), None);
    }
}
