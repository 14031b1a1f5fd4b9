//! Results into files that the user names; `-` is stdout.

use std::io::Read;
use std::path::Path;

use archive::output::{OutputError, OutputFile, OverwritePolicy, SealStyle, keep_edited, seal};

use crate::output;
use crate::show::Failure;
use crate::words::plain;

/// A file to write, and which existing files it may replace.
#[derive(Debug, Clone, Copy)]
pub struct Output<'a> {
    /// The file, or `-`.
    pub path: &'a Path,
    /// Which existing files may be replaced.
    pub policy: OverwritePolicy,
    /// Files that the command reads and must not overwrite.
    pub inputs: &'a [&'a Path],
}

impl<'a> Output<'a> {
    /// A file named by the user, with `--force` or without.
    pub const fn named(path: &'a Path, force: bool) -> Self {
        Self { path, policy: OverwritePolicy::from_force(force), inputs: &[] }
    }

    /// Sets the files that the command reads.
    pub const fn with_inputs(self, inputs: &'a [&'a Path]) -> Self {
        Self { inputs, ..self }
    }

    /// A file of this program.
    pub const fn own(path: &'a Path) -> Self {
        Self { path, policy: OverwritePolicy::Any, inputs: &[] }
    }

    /// Whether the result goes to stdout.
    pub fn is_stdout(&self) -> bool {
        self.path.as_os_str() == "-"
    }

    /// Writes a result.
    ///
    /// # Errors
    /// [`OutputError`]; existing data is unchanged.
    pub fn write(&self, bytes: &[u8]) -> Result<(), OutputError> {
        self.copy_from(bytes)
    }

    /// Writes a result that is read from somewhere else.
    pub fn copy_from(&self, mut from: impl Read) -> Result<(), OutputError> {
        if self.is_stdout() {
            output::note(std::io::copy(&mut from, &mut std::io::stdout()).map(drop));
            return Ok(());
        }
        let mut file = OutputFile::create(self.path, self.policy, self.inputs)?;
        let written = std::io::copy(&mut from, &mut file);
        written.map_err(|source| OutputError::Io { path: self.path.to_owned(), source })?;
        file.commit()
    }

    /// Checks early whether the path can be written at all.
    pub fn check(&self) -> Result<(), OutputError> {
        if self.is_stdout() { Ok(()) } else { OutputFile::check(self.path, self.inputs) }
    }

    /// Also refuses an existing file that the result may not replace, before minutes of work.
    pub fn check_policy(&self) -> Result<(), OutputError> {
        match self.is_stdout() {
            true => Ok(()),
            false => OutputFile::check_policy(self.path, self.policy, self.inputs),
        }
    }

    /// Prints the name of the file that was written.
    pub fn print_path(&self) {
        if !self.is_stdout() {
            out!("{}", plain(&self.path.display().to_string()));
        }
    }
}

/// Writes the page of some runs.
pub fn write_page(runs: &[archive::Run], output: &Output<'_>) -> Result<(), Failure> {
    let mut page = report::html(runs).map_err(Failure::Report)?;
    seal(&mut page, SealStyle::Markup);
    Ok(output.write(page.as_bytes())?)
}

/// Writes the page of a run; an edited page is kept under another name.
pub fn write_own_page(runs: &[archive::Run], page: &Path) -> Result<(), Failure> {
    if let Some(kept) = keep_edited(page)? {
        say!("note: {} was edited; kept as {}", page.display(), kept.display());
    }
    write_page(runs, &Output::own(page))
}
