//! An error underlined in its source text.
//!
//! Invariant: any text, position and message give printable lines without a panic.

use std::ops::Range;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, NamedSource};

use crate::words::bounded;

/// Longest line in which an error is underlined.
const LINE_MAX: usize = 400;

/// An error in a text.
pub struct TextPlace<'a> {
    pub message: &'a str,
    /// Bytes of the text that are wrong.
    pub span: Range<usize>,
    /// Name of the text.
    pub name: &'a str,
    pub text: &'a str,
    /// The help text.
    pub next: &'a str,
}

/// Draws it, in colour where that is wanted.
pub fn render(place: &TextPlace<'_>, color: bool) -> String {
    let (message, next, text) = (bounded(place.message), bounded(place.next), place.text);
    let (name, span) = (bounded(place.name), place.span.clone());
    // A span outside of the text, or one that splits a character, is not drawn.
    let before = text.get(..span.start).filter(|_| text.get(span.clone()).is_some());
    let line = before.map_or(1, |before| before.matches('\n').count() + 1);
    let plainly = format!("error: {name}, line {line}: {message}\n  help: {next}\n");
    let start = before.and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
    let long = text[start..].lines().next().map_or(0, str::len).max(span.len()) > LINE_MAX;
    if before.is_none() || long {
        return plainly;
    }
    let diagnostic = MietteDiagnostic::new(format!("{name}, line {line}: {message}"))
        .with_help(next)
        .with_label(LabeledSpan::at(span, "here"));
    let source = NamedSource::new(name, drawable(text));
    let report = miette::Report::new(diagnostic).with_source_code(source);
    let theme = if color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let mut out = String::new();
    let rendered = GraphicalReportHandler::new_themed(theme)
        .with_width(100)
        .render_report(&mut out, report.as_ref());
    if rendered.is_err() { plainly } else { out }
}

/// The text with control characters replaced, byte offsets unchanged.
fn drawable(text: &str) -> String {
    let fit = |c: char| !c.is_control() || matches!(c, '\n' | '\t' | '\r');
    let one = |c: char| if fit(c) { c.to_string() } else { " ".repeat(c.len_utf8()) };
    text.chars().map(one).collect()
}
