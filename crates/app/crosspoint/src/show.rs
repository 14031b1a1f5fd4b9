//! Errors for people: what, where (underlined), and the next command to type.
//!
//! Invariant: colour only on a terminal and never with NO_COLOR. What it is not: a log.

use std::io::IsTerminal;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, NamedSource};
use report::ReportError;
use runner::{RunnerError, StudyText};

use crate::exit::{self, ExitCode};

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

fn render(error: &RunnerError, text: Option<&StudyText>) -> String {
    if let (RunnerError::Study(inner), Some(text)) = (error, text) {
        if let Some(span) = inner.span.clone() {
            return render_place(&inner.message, span, text, &error.next());
        }
        return format!("error: {}: {error}\n  next: {}\n", text.name, error.next());
    }
    format!("error: {error}\n  next: {}\n", error.next())
}

fn render_place(
    message: &str,
    span: std::ops::Range<usize>,
    text: &StudyText,
    next: &str,
) -> String {
    let line = text.text[..span.start].matches('\n').count() + 1;
    let diagnostic = MietteDiagnostic::new(format!("{}, line {line}: {message}", text.name))
        .with_help(next)
        .with_label(LabeledSpan::at(span, "here"));
    let source = NamedSource::new(&text.name, text.text.clone());
    let report = miette::Report::new(diagnostic).with_source_code(source);
    let color = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let theme = if color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let mut out = String::new();
    let rendered = GraphicalReportHandler::new_themed(theme)
        .with_width(100)
        .render_report(&mut out, report.as_ref());
    if rendered.is_err() {
        out = format!("error: {}, line {line}: {message}\n  next: {next}\n", text.name);
    }
    out
}
