//! Errors for people: what, where (underlined), and the next command.
//!
//! Invariant: colour only on a terminal and never with NO_COLOR.

use std::io::IsTerminal;

use report::ReportError;
use runner::{RunnerError, StudyText};

use crate::exit::{self, ExitCode};
use crate::place::{self, TextPlace};
use crate::words::bounded;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// From the runner, with the study's text if the error may point into it.
    Runner(Box<RunnerError>, Option<StudyText>),
    /// The report's template.
    Report(ReportError),
    /// Writing a result.
    Output(String, std::io::Error),
    /// The input could not be read.
    Input(String, std::io::Error),
    /// A database that cannot be recorded: why, and what to do.
    Capture(String, &'static str),
    /// A file that is no undamaged recording.
    Recording(String, capture::FormatError),
}

impl<E: Into<RunnerError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Runner(Box::new(error.into()), None)
    }
}

impl Failure {
    /// Prints the failure to stderr; returns the exit code.
    pub fn report(&self) -> ExitCode {
        match self {
            Self::Runner(error, text) => {
                say!("{}", render(error, text.as_ref()).trim_end());
                error.class().into()
            }
            Self::Report(error) => {
                say!("error: {error}\n  help: please report this");
                runner::ExitClass::Internal.into()
            }
            Self::Input(path, error) => {
                say!(
                    "error: {path} cannot be read as a bundle: {error}\n  help: get the file again, or make \
                     a new one from the run folder: crosspoint bundle RUN"
                );
                exit::NOT_KEPT
            }
            Self::Capture(reason, next) => {
                say!("error: {}\n  help: {next}", bounded(reason));
                exit::ENVIRONMENT
            }
            Self::Recording(path, error) => {
                let path = bounded(path);
                let error = bounded(&error.to_string());
                say!(
                    "error: {path}: {error}\n  help: record it again: crosspoint capture --pid PID"
                );
                exit::NOT_KEPT
            }
            Self::Output(path, error) => {
                say!("error: cannot write {path}: {error}\n  help: choose another place with -o");
                exit::ENVIRONMENT
            }
        }
    }
}

/// Renders an error for a terminal; with the text that it points into.
fn render(error: &RunnerError, text: Option<&StudyText>) -> String {
    let (words, next) = (bounded(&error.to_string()), bounded(&error.next()));
    match (error, text) {
        (RunnerError::Study(inner), Some(StudyText { name, text })) => match inner.span.clone() {
            Some(span) => {
                let color =
                    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
                let (message, next) = (inner.message.as_str(), next.as_str());
                place::render(&TextPlace { message, span, name, text, next }, color)
            }
            None => format!("error: {}: {words}\n  help: {next}\n", bounded(name)),
        },
        _ => format!("error: {words}\n  help: {next}\n"),
    }
}
