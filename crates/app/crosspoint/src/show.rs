//! Errors for people: what, where (underlined), and the next command to type.
//!
//! Invariant: colour only on a terminal and never with NO_COLOR. What it is not: a log.

use std::io::IsTerminal;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, NamedSource};
use report::ReportError;
use runner::{RunnerError, StudyText};

use crate::exit::{self, ExitCode};
use crate::output::plain;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// In the runner; with the study's text when the error may point into it.
    Runner(Box<RunnerError>, Option<StudyText>),
    /// The report's template.
    Report(ReportError),
    /// Writing a result.
    Output(String, std::io::Error),
}

impl From<RunnerError> for Failure {
    fn from(error: RunnerError) -> Self {
        Self::Runner(Box::new(error), None)
    }
}

impl From<archive::ArchiveError> for Failure {
    fn from(error: archive::ArchiveError) -> Self {
        RunnerError::Archive(error).into()
    }
}

impl Failure {
    /// Prints the failure to stderr; says how to exit.
    pub fn report(&self) -> ExitCode {
        match self {
            Self::Runner(error, text) => {
                say!("{}", render(error, text.as_ref()).trim_end());
                error.class().into()
            }
            Self::Report(error) => {
                say!("error: {error}\n  next: please report this");
                runner::ExitClass::Internal.into()
            }
            Self::Output(path, error) => {
                say!("error: cannot write {path}: {error}\n  next: choose another place with -o");
                exit::ENVIRONMENT
            }
        }
    }
}

/// What is echoed of an error at most: the rest is what somebody typed or a program said.
const SHOWN: usize = 2000;
/// Longest line of a text in which the place of an error is drawn.
const LINE_MAX: usize = 400;

/// An error's words, bounded and without control characters.
fn bounded(words: &str) -> String {
    let mut shown: String = plain(words).chars().take(SHOWN).collect();
    if shown.len() < words.len() && shown.chars().count() == SHOWN {
        shown.push_str(" ...");
    }
    shown
}

/// Renders an error for a terminal; with the text that it points into.
fn render(error: &RunnerError, text: Option<&StudyText>) -> String {
    if let (RunnerError::Study(inner), Some(text)) = (error, text) {
        if let Some(span) = inner.span.clone() {
            return render_place(&inner.message, span, text, &error.next());
        }
        let words = bounded(&error.to_string());
        return format!("error: {}: {words}\n  next: {}\n", text.name, bounded(&error.next()));
    }
    format!("error: {}\n  next: {}\n", bounded(&error.to_string()), bounded(&error.next()))
}

fn render_place(
    message: &str,
    span: std::ops::Range<usize>,
    text: &StudyText,
    next: &str,
) -> String {
    let (message, next) = (&bounded(message), &bounded(next));
    // A span of another text, or one that cuts a character, is drawn nowhere.
    let before = text.text.get(..span.start).filter(|_| text.text.get(span.clone()).is_some());
    let line = before.map_or(1, |before| before.matches('\n').count() + 1);
    let plainly =
        || format!("error: {}, line {line}: {message}\n  next: {next}\n", plain(&text.name));
    let start = before.and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
    let long = text.text[start..].lines().next().map_or(0, str::len).max(span.len()) > LINE_MAX;
    if before.is_none() || long {
        return plainly();
    }
    let diagnostic = MietteDiagnostic::new(format!("{}, line {line}: {message}", text.name))
        .with_help(next)
        .with_label(LabeledSpan::at(span, "here"));
    let source = NamedSource::new(plain(&text.name), drawable(&text.text));
    let report = miette::Report::new(diagnostic).with_source_code(source);
    let color = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let theme = if color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let mut out = String::new();
    let rendered = GraphicalReportHandler::new_themed(theme)
        .with_width(100)
        .render_report(&mut out, report.as_ref());
    if rendered.is_err() {
        out = plainly();
    }
    out
}

/// The text without control characters, each byte in its place.
fn drawable(text: &str) -> String {
    text.replace(|c: char| c.is_ascii_control() && !matches!(c, '\n' | '\t' | '\r'), " ")
}
