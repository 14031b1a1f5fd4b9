//! The text of a fio job file, line by line: without comments, with includes and variables filled in.
//!
//! Invariants: every line keeps the number that it has in the file that was named; what cannot be filled in
//! is an error, where fio would put nothing; the whole is bounded.

use std::cell::Cell;
use std::collections::BTreeMap;

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
/// Includes of a job file and of what it includes at most.
const INCLUDES_MAX: u32 = 1000;
/// Lines of a job file with its includes at most.
const LINES_MAX: usize = 100_000;

/// The lines that say something, with their numbers; those of an included file have the number of its line.
fn expanded(
    text: &str,
    around: &Surroundings<'_>,
    (depth, included): (u32, &Cell<u32>),
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
                included.set(included.get() + 1);
                if included.get() > INCLUDES_MAX {
                    return Err(refuse(format!("more than {INCLUDES_MAX} includes")));
                }
                let text = (around.include)(name)
                    .map_err(|reason| refuse(format!("include {shown}: {reason}")))?;
                let inner = expanded(&text, around, (depth + 1, included))
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
        let (name, behind) = after.split_once('}').ok_or_else(|| "`${` without `}`".to_owned())?;
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

/// One section with the global options under it.
pub(crate) struct Section {
    pub name: String,
    pub options: BTreeMap<String, (String, usize)>,
    pub begins_anew: bool,
}

/// The sections of a job file.
///
/// # Errors
/// Lines that are no option, includes and variables that are not there.
pub(crate) fn sections(text: &str, around: &Surroundings<'_>) -> Result<Vec<Section>, StudyError> {
    let mut global: BTreeMap<String, (String, usize)> = BTreeMap::new();
    let mut sections: Vec<Section> = Vec::new();
    let mut in_global = true;
    for (number, line) in expanded(text, around, (0, &Cell::new(0)))? {
        let line = line.as_str();
        let refuse = |message: String| StudyError::general(format!("line {number}: {message}"));
        if let Some(name) = line.strip_prefix('[') {
            let name = name.strip_suffix(']').ok_or_else(|| refuse("`[` without `]`".into()))?;
            in_global = name == "global";
            if !in_global {
                let (name, options) = (name.to_owned(), global.clone());
                sections.push(Section { name, options, begins_anew: false });
            }
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, "1"));
        let (key, entry) = (key.trim().to_owned(), (value.trim().to_owned(), number));
        let known = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        if key.is_empty() || !known {
            let line: String = line.chars().take(100).collect();
            return Err(refuse(format!("`{line}` is neither a [section] nor option=value")));
        }
        match sections.last_mut().filter(|_| !in_global) {
            Some(section) => section.options.insert(key, entry),
            None => global.insert(key, entry),
        };
    }
    for section in &mut sections {
        let has = |key: &str| section.options.contains_key(key);
        section.begins_anew = has("stonewall") || has("wait_for_previous");
    }
    if sections.is_empty() {
        return Err(StudyError::general("the file has no job section, such as [randread]"));
    }
    Ok(sections)
}
