//! The text of a fio job file, line by line: without comments, with includes and variables filled in.
//!
//! Invariants: every line keeps the number that it has in the file that was named; what cannot be filled in is
//! an error, where fio would put nothing; the whole is bounded.

use crate::StudyError;

/// What a job file takes from outside.
pub struct Surroundings<'a> {
    /// The text of an included file, by the name in the job file; or why there is none.
    pub include: &'a dyn Fn(&str) -> Result<String, String>,
    /// The value of a variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

/// Files within files at most.
const DEPTH_MAX: u32 = 16;
/// Lines of a job file with its includes at most.
const LINES_MAX: usize = 100_000;

/// The lines that say something, with their numbers; those of an included file have the number of its line.
pub(crate) fn expanded(
    text: &str,
    around: &Surroundings<'_>,
    depth: u32,
) -> Result<Vec<(usize, String)>, StudyError> {
    let mut lines = Vec::new();
    for (number, line) in (1usize..).zip(text.lines()) {
        let refuse = |message: String| StudyError::general(format!("line {number}: {message}"));
        // As fio does, also in the middle of a line.
        let line = line.split([';', '#']).next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let line = filled_in(line, around).map_err(refuse)?;
        match line.strip_prefix("include ") {
            Some(name) => {
                let name = name.trim();
                let shown: String = name.chars().take(100).collect();
                if depth >= DEPTH_MAX {
                    return Err(refuse(format!("more than {DEPTH_MAX} files within files")));
                }
                let text = (around.include)(name)
                    .map_err(|reason| refuse(format!("include {shown}: {reason}")))?;
                let inner = expanded(&text, around, depth + 1)
                    .map_err(|error| refuse(format!("include {shown}: {}", error.message)))?;
                lines.extend(inner.into_iter().map(|(_, line)| (number, line)));
            }
            None => lines.push((number, line)),
        }
        if lines.len() > LINES_MAX {
            return Err(refuse(format!("more than {LINES_MAX} lines")));
        }
    }
    Ok(lines)
}

/// The line with its `${NAME}`s replaced.
fn filled_in(line: &str, around: &Surroundings<'_>) -> Result<String, String> {
    let (mut out, mut rest) = (String::new(), line);
    while let Some((before, after)) = rest.split_once("${") {
        let (name, behind) =
            after.split_once('}').ok_or_else(|| "`${` without `}`".to_owned())?;
        let shown: String = name.chars().take(100).collect();
        let value = (around.variable)(name).ok_or_else(|| {
            format!("variable {shown} is not set; set it for the import: {shown}=... crosspoint import FILE")
        })?;
        out.push_str(before);
        out.push_str(&value);
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}
