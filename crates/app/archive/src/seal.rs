//! Checksums in results, by which unedited ones are recognized.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use crate::files;

/// Longest result that can be unedited; longer files were not written by this program.
const SEALED_MAX: u64 = 256 << 20;
/// Last line of a page, picture or manual page: the checksum of everything before it.
const SEAL: &str = "crosspoint:crc32 ";
/// The seal's line is shorter than this, in bytes.
const SEAL_LINE_MAX: u64 = 64;

/// How a seal is written in a kind of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealStyle {
    /// HTML and SVG.
    Markup,
    /// Manual pages.
    Roff,
}

/// Appends a checksum to `text`, by which [`is_unedited`] recognizes it.
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

/// Whether a regular file has a seal that matches its content. Reads the file once, up to 256 MiB, in
/// constant memory.
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
