//! Why a study is rejected, and the position in its text.

use std::ops::Range;

use thiserror::Error;

/// Why a study is rejected, and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct StudyError {
    /// What is wrong.
    pub message: String,
    /// Byte range of the error, if there is a single one.
    pub span: Option<Range<usize>>,
    /// How to fix it.
    pub help: Option<String>,
}

impl StudyError {
    pub(crate) fn general(message: impl Into<String>) -> Self {
        Self { message: message.into(), span: None, help: None }
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn syntax(error: &toml::de::Error) -> Self {
        Self { message: error.message().to_owned(), span: error.span(), help: None }
    }

    /// Points at the first place of `"literal"` in `text`.
    pub(crate) fn at(self, text: &str, literal: &str) -> Self {
        self.at_quoted(text, |quoted| quoted == literal)
    }

    /// Points at the first line of `text` that sets `key` to a value accepted by `wanted`.
    pub(crate) fn at_key(mut self, text: &str, key: &str, wanted: impl Fn(&str) -> bool) -> Self {
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let content = line.split('#').next().unwrap_or_default();
            let pair = content.split_once('=');
            if pair.is_some_and(|(name, value)| name.trim() == key && wanted(value.trim())) {
                let lead = line.len() - line.trim_start().len();
                self.span = Some(start + lead..start + content.trim_end().len());
                return self;
            }
            start += line.len();
        }
        self
    }

    /// Points at the first string of `text` that `wanted` accepts, quotes included.
    pub(crate) fn at_quoted(mut self, text: &str, wanted: impl Fn(&str) -> bool) -> Self {
        let quotes: Vec<usize> = text.match_indices('"').map(|(at, _)| at).collect();
        let place = quotes.windows(2).find(|pair| wanted(&text[pair[0] + 1..pair[1]]));
        self.span = place.map(|pair| pair[0]..pair[1] + 1);
        self
    }
}
