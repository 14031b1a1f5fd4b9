//! The mark of one process of this program: a random word in everything that it creates on the host.
//!
//! It is part of the names of work areas and control groups, and in the environment of every started process,
//! so `clean` can find what a killed run left without trusting process IDs. Invariants: 128 random bits; the
//! word is visible, so ownership is checked as well.

use std::path::{Component, Path};
use std::process::Command;

use crate::StackError;

/// Name prefix of our work areas, which we may remove.
pub(crate) const AREA: &str = ".crosspoint-work-";
/// Name prefix of our control groups, which we may remove.
pub(crate) const GROUP: &str = "crosspoint-";
/// Environment variable of every process that we start.
const VARIABLE: &str = "CROSSPOINT_MARK";
/// Environment variable with the password for a shared server. Not passed to any started process.
pub const PASSWORD_VARIABLE: &str = "CROSSPOINT_SQL_PASSWORD";
/// Hexadecimal digits of a mark.
const DIGITS: usize = 32;

/// A random word, hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark(String);

/// Random hexadecimal digits, for unpredictable names.
///
/// # Panics
/// Never on Linux 3.17 or later: `getrandom(2)` of few bytes does not fail once the system has booted.
#[must_use]
pub fn random_hex(digits: usize) -> String {
    let mut bytes = vec![0u8; digits.div_ceil(2)];
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        match rustix::rand::getrandom(&mut bytes[filled..], flags) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("invariant: the kernel has random bytes ({error})"),
        }
    }
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    text[..digits].to_owned()
}

impl Mark {
    pub(crate) fn random() -> Self {
        Self(random_hex(DIGITS))
    }

    /// Parses a mark from a journal's name; `None` if it is not one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let well = text.len() == DIGITS && text.bytes().all(hex);
        well.then(|| Self(text.to_owned()))
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Marks a process to be started, with its descendants; removes this program's secrets from it.
    pub fn put_on(&self, command: &mut Command) {
        command.env(VARIABLE, &self.0).env_remove(PASSWORD_VARIABLE);
    }

    /// The environment entry of a marked process.
    pub(crate) fn entry(&self) -> String {
        format!("{VARIABLE}={}", self.0)
    }

    /// Prefix of the names of work areas.
    pub(crate) fn area_prefix(&self) -> String {
        format!("{AREA}{}-", self.0)
    }

    /// Prefix of the names of control groups.
    pub(crate) fn group_prefix(&self) -> String {
        format!("{GROUP}{}-", self.0)
    }

    /// Refuses a path that is not absolute and plain, or does not lie in (or is not) a work area with this
    /// mark.
    pub(crate) fn check_inside(&self, path: &Path) -> Result<(), StackError> {
        let prefix = self.area_prefix();
        let marked = |part: Component<'_>| {
            part.as_os_str().to_str().is_some_and(|name| name.starts_with(&prefix))
        };
        if is_plain(path) && path.components().any(marked) {
            return Ok(());
        }
        Err(not_ours(path))
    }
}

/// Whether a path is absolute and has no `.` or `..`.
pub(crate) fn is_plain(path: &Path) -> bool {
    let text = path.as_os_str().as_encoded_bytes();
    let mut parts = text.split(|byte| *byte == b'/');
    path.is_absolute() && !parts.any(|part| part == b"." || part == b"..")
}

pub(crate) fn not_ours(what: &Path) -> StackError {
    StackError::refused(
        &what.display(),
        "not made by Crosspoint",
        "undo it by hand if you are sure",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A journal that names objects without its mark must not have them removed.
    #[test]
    fn only_plain_paths_with_the_own_mark_are_ours() {
        let (own, other) = (Mark::random(), Mark::random());
        let area = format!("/data/{}0-disk", own.area_prefix());
        assert!(own.check_inside(Path::new(&area)).is_ok());
        assert!(own.check_inside(&Path::new(&area).join("mount")).is_ok());
        assert!(other.check_inside(Path::new(&area)).is_err());
        for bad in [format!("{area}/../../etc"), format!("data/{area}"), "/etc".into()] {
            assert!(own.check_inside(Path::new(&bad)).is_err(), "{bad}");
        }
        assert_eq!(Mark::parse(own.text()), Some(own));
        assert_eq!(Mark::parse("../../etc"), None);
    }
}
