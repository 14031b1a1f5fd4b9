//! Whether a program can load a library, found before it runs.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// `PT_INTERP` (elf.h): the program is loaded by the dynamic linker.
const INTERPRETER: u64 = 3;
/// Bytes of a file that hold its header and table of parts.
const HEAD: u64 = 16 * 1024;

/// Whether a program is statically linked; false for one that is not found, or is no 64-bit ELF file.
pub(crate) fn is_static(program: &OsStr) -> bool {
    find(program).and_then(|path| head(&path)).is_some_and(|head| is_static_elf(&head))
}

fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())
}

fn head(path: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    std::fs::File::open(path).ok()?.take(HEAD).read_to_end(&mut head).ok()?;
    Some(head)
}

fn is_static_elf(head: &[u8]) -> bool {
    let number = |at: usize, size: usize| {
        let bytes = head.get(at..at + size)?;
        Some(bytes.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    let is_elf = head.starts_with(b"\x7fELF\x02");
    let (Some(start), Some(size), Some(count)) = (number(32, 8), number(54, 2), number(56, 2))
    else {
        return false;
    };
    let kinds = (0..count).map(|part| number(start.saturating_add(part * size) as usize, 4));
    let kinds: Option<Vec<u64>> = kinds.collect();
    is_elf && kinds.is_some_and(|kinds| !kinds.contains(&INTERPRETER))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(kinds: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..5].copy_from_slice(b"\x7fELF\x02");
        (file[32], file[54], file[56]) = (64, 56, kinds.len() as u8);
        for kind in kinds {
            file.push(*kind);
            file.resize(file.len() + 55, 0);
        }
        file
    }

    /// A static program would do its work for real before the simulation finds out.
    #[test]
    fn programs_without_a_dynamic_linker_are_recognized() {
        assert!(is_static_elf(&elf(&[1, 1, 7])));
        assert!(!is_static_elf(&elf(&[6, 3, 1])));
        assert!(!is_static_elf(&elf(&[6, 3, 1])[..80]));
        assert!(!is_static_elf(b"#!/bin/sh"));
        assert!(!is_static(OsStr::new("sh")));
    }
}
