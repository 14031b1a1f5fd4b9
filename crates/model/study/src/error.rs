//! Why a study is rejected, and the position in its text.

use std::ops::Range;

use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

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

    /// Points at the first string `literal`.
    pub(crate) fn at(self, place: Place<'_>, literal: &str) -> Self {
        self.at_quoted(place, |quoted| quoted == literal)
    }

    /// Points at the first `key` whose value, as written, `wanted` accepts.
    pub(crate) fn at_key(self, place: Place<'_>, key: &str, wanted: impl Fn(&str) -> bool) -> Self {
        let span = place.find(|entry| {
            let value = entry.value.span();
            let own = entry.key.filter(|own| own.get_ref() == key)?;
            let written = place.text.get(value.clone()).unwrap_or_default();
            wanted(written).then(|| own.span().start..value.end.max(own.span().end))
        });
        Self { span, ..self }
    }

    /// Points at the first `key`.
    pub(crate) fn on(self, place: Place<'_>, key: &str) -> Self {
        self.at_key(place, key, |_| true)
    }

    /// Points at the first string that `wanted` accepts, quotes included.
    pub(crate) fn at_quoted(self, place: Place<'_>, wanted: impl Fn(&str) -> bool) -> Self {
        let span = place.find(|entry| {
            let accepted = entry.value.get_ref().as_str().is_some_and(&wanted);
            accepted.then(|| entry.value.span())
        });
        Self { span, ..self }
    }
}

/// The part of a study's text that a check is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    text: &'a str,
    /// `stack` or `experiment`, and which of them; the whole text otherwise.
    table: Option<(&'static str, usize)>,
}

/// A value of the text, with its key unless it is an element of an array.
struct Entry<'v, 'i> {
    key: Option<&'v Spanned<std::borrow::Cow<'i, str>>>,
    value: &'v Spanned<DeValue<'i>>,
}

impl<'a> Place<'a> {
    pub(crate) const fn whole(text: &'a str) -> Self {
        Self { text, table: None }
    }

    /// Runs a check of one table, `[[kind]]` number `number`; an error without a position points at its name.
    pub(crate) fn within<T>(
        self,
        kind: &'static str,
        number: usize,
        check: impl FnOnce(Self) -> Result<T, StudyError>,
    ) -> Result<T, StudyError> {
        let place = Self { table: Some((kind, number)), ..self };
        check(place).map_err(|error| match error.span {
            Some(_) => error,
            None => error.on(place, "name"),
        })
    }

    /// An error at the first `key`.
    pub(crate) fn refuse<T>(self, key: &str, message: impl Into<String>) -> Result<T, StudyError> {
        Err(StudyError::general(message).on(self, key))
    }

    /// The first place, in the order of the text, that `at` finds in a value.
    fn find(self, at: impl Fn(Entry<'_, '_>) -> Option<Range<usize>>) -> Option<Range<usize>> {
        let root = DeTable::parse(self.text).ok()?;
        let mut places = Vec::new();
        match self.table {
            None => visit(root.get_ref(), &at, &mut places),
            Some((kind, number)) => {
                let tables = root.get_ref().get(kind)?.get_ref().as_array()?;
                visit(tables.get(number)?.get_ref().as_table()?, &at, &mut places);
            }
        }
        places.into_iter().min_by_key(|place| place.start)
    }
}

/// Collects the places of a table, with its tables and arrays.
fn visit<'v, 'i>(
    table: &'v DeTable<'i>,
    at: &impl Fn(Entry<'_, '_>) -> Option<Range<usize>>,
    places: &mut Vec<Range<usize>>,
) {
    let mut left: Vec<Entry<'v, 'i>> = Vec::new();
    let entries = |table: &'v DeTable<'i>, left: &mut Vec<Entry<'v, 'i>>| {
        left.extend(table.iter().map(|(key, value)| Entry { key: Some(key), value }));
    };
    entries(table, &mut left);
    while let Some(entry) = left.pop() {
        match entry.value.get_ref() {
            DeValue::Table(inner) => entries(inner, &mut left),
            DeValue::Array(all) => {
                left.extend(all.iter().map(|value| Entry { key: None, value }));
            }
            _ => {}
        }
        places.extend(at(entry));
    }
}
