//! Documents with a generated part, between two marks.
//!
//! Invariant: text outside the marks stays as it is.

use std::path::Path;

/// Puts `tables`, whose first and last lines are the marks, into the document at `path`.
///
/// # Errors
/// If the file cannot be read or written, or has lost its marks.
pub fn replace(path: &Path, tables: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let document = std::fs::read_to_string(path).map_err(failed)?;
    let missing = || format!("{} has lost its marks", path.display());
    let begin = tables.lines().next().ok_or_else(missing)?;
    let end = tables.lines().last().ok_or_else(missing)?;
    let start = document.find(begin).ok_or_else(missing)?;
    let after = document[start..].find(end).ok_or_else(missing)? + start + end.len();
    let text = format!("{}{tables}{}", &document[..start], &document[after..]);
    std::fs::write(path, text).map_err(failed)
}
