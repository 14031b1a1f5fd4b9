//! Reads the text of a fio job file line by line: strips comments, resolves includes and variables.
//!
//! Invariants: every line keeps its number in the main file; an unresolved variable is an error, where fio
//! would substitute nothing; the total size is bounded; errors do not echo unrecognized lines of an included
//! file, which may be any file that the caller can read.

use std::cell::Cell;
use std::collections::BTreeMap;

use crate::StudyError;

/// External inputs of a job file.
pub struct Surroundings<'a> {
    /// The text of an included file, by the name in the job file; or why it cannot be read.
    pub include: &'a dyn Fn(&str) -> Result<String, String>,
    /// The value of a variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

/// Maximum nesting of includes.
const DEPTH_MAX: u32 = 16;
/// Maximum number of includes in total, nested ones counted.
const INCLUDES_MAX: u32 = 1000;
/// Maximum number of lines in a job file including its includes.
const LINES_MAX: usize = 100_000;

/// A line with an option or a section.
struct Line {
    /// Line in the named file: that of the include, for a line of an included file.
    number: usize,
    text: String,
    /// The innermost included file that it comes from, with the line number there.
    included: Option<(String, usize)>,
}

impl Line {
    /// Position for messages.
    fn place(&self) -> String {
        match &self.included {
            None => format!("line {}", self.number),
            Some((name, number)) => format!("line {}: include {name}: line {number}", self.number),
        }
    }
}

/// The lines that are not empty.
fn expanded(
    text: &str,
    around: &Surroundings<'_>,
    (depth, included): (u32, &Cell<u32>),
) -> Result<Vec<Line>, StudyError> {
    let mut lines = Vec::new();
    for (number, line) in (1usize..).zip(text.lines()) {
        let refuse = |message: String| StudyError::general(format!("line {number}: {message}"));
        // As in fio, comments may start within a line.
        let line = line.split([';', '#']).next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let line = filled_in(line, around)
            .map_err(|reason| refuse(if depth == 0 { reason } else { VARIABLE.to_owned() }))?;
        match line.strip_prefix("include ") {
            Some(name) => {
                let name = name.trim();
                // Contents of an included file are not shown; it may be any file.
                let shown =
                    if depth == 0 { name.chars().take(100).collect() } else { String::new() };
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
                lines.extend(inner.into_iter().map(|line| Line {
                    number,
                    text: line.text,
                    included: Some((shown.clone(), line.number)),
                }));
            }
            None => lines.push(Line { number, text: line, included: None }),
        }
        if lines.len() > LINES_MAX {
            return Err(refuse(format!("more than {LINES_MAX} lines")));
        }
    }
    Ok(lines)
}

/// Error for a variable in an included file.
const VARIABLE: &str = "a variable in it is not set";

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

/// The value of an option.
#[derive(Debug, Clone)]
pub(crate) struct FioOption {
    pub value: String,
    /// Line in the named file.
    pub line: usize,
    /// Position for messages.
    pub place: String,
    /// Whether it is from an included file.
    pub included: bool,
}

/// One section with the global options under it.
pub(crate) struct Section {
    pub name: String,
    pub options: BTreeMap<String, FioOption>,
    pub begins_anew: bool,
}

/// The sections of a job file.
///
/// # Errors
/// Lines that are not options, missing includes and undefined variables.
pub(crate) fn sections(text: &str, around: &Surroundings<'_>) -> Result<Vec<Section>, StudyError> {
    let mut global: BTreeMap<String, FioOption> = BTreeMap::new();
    let mut sections: Vec<Section> = Vec::new();
    let mut in_global = true;
    for line in expanded(text, around, (0, &Cell::new(0)))? {
        let refuse = |message: &str| StudyError::general(format!("{}: {message}", line.place()));
        if let Some(name) = line.text.strip_prefix('[') {
            let name = name.strip_suffix(']').ok_or_else(|| refuse("`[` without `]`"))?;
            in_global = name == "global";
            if !in_global {
                let number = sections.len() + 1;
                let name =
                    if line.included.is_some() { format!("job {number}") } else { name.to_owned() };
                let options = global.clone();
                sections.push(Section { name, options, begins_anew: false });
            }
            continue;
        }
        let (key, value) = line.text.split_once('=').unwrap_or((&line.text, "1"));
        let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
        let (place, included) = (line.place(), line.included.is_some());
        let entry = FioOption { value, line: line.number, place, included };
        let known = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        if key.is_empty() || !known {
            let text: String = line.text.chars().take(100).collect();
            let shown = if entry.included { String::new() } else { format!("`{text}` is ") };
            return Err(refuse(&format!("{shown}neither a [section] nor option=value")));
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
