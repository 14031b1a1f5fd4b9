//! Shared text handling of quantities: splitting number from unit, and serde by strings.
//!
//! Invariant: a number without a unit is rejected where one is required, so `30` cannot silently mean
//! milliseconds.

use thiserror::Error;

/// Reason why a quantity could not be parsed. The message says what was found and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The text does not start with a number.
    #[error("`{text}` does not start with a number; example: {example}")]
    NoNumber {
        /// The text as given.
        text: String,
        /// A valid example.
        example: &'static str,
    },
    /// The unit is missing or unknown.
    #[error("`{text}` has {found}; allowed units: {allowed}; example: {example}")]
    Unit {
        /// The text as given.
        text: String,
        /// The text in place of the unit.
        found: String,
        /// The units that are allowed.
        allowed: &'static str,
        /// A valid example.
        example: &'static str,
    },
    /// The value is out of range, or not a whole number of the smallest unit.
    #[error("`{text}` is out of range; allowed: {allowed}")]
    Range {
        /// The text as given.
        text: String,
        /// The allowed range.
        allowed: &'static str,
    },
}

/// How one kind of quantity is written: its units with their factors to the base unit.
pub(crate) struct Grammar {
    pub units: &'static [(&'static str, u64)],
    pub allowed: &'static str,
    pub example: &'static str,
    pub range: &'static str,
}

/// Parses `"<decimal><unit>"` exactly into base units.
pub(crate) fn parse_exact(text: &str, grammar: &Grammar) -> Result<u64, ParseError> {
    let trimmed = text.trim();
    let split = trimmed
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let number = number.replace('_', "");
    let unit = unit.trim();
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(ParseError::NoNumber { text: text.into(), example: grammar.example });
    }
    let Some(&(_, factor)) = grammar.units.iter().find(|(name, _)| *name == unit) else {
        let found = if unit.is_empty() { "no unit".into() } else { format!("the unit `{unit}`") };
        return Err(ParseError::Unit {
            text: text.into(),
            found,
            allowed: grammar.allowed,
            example: grammar.example,
        });
    };
    let range = || ParseError::Range { text: text.into(), allowed: grammar.range };
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    if fraction.len() > 9 || fraction.contains('.') {
        return Err(range());
    }
    let whole: u128 = whole.parse().map_err(|_| range())?;
    let scale = 10u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
    let parts: u128 =
        if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| range())? };
    let scaled = whole.checked_mul(scale).and_then(|w| w.checked_add(parts)).ok_or_else(range)?;
    let total = scaled.checked_mul(u128::from(factor)).ok_or_else(range)?;
    if total % scale != 0 {
        return Err(range());
    }
    u64::try_from(total / scale).map_err(|_| range())
}

/// Formats with the largest unit of `grammar` in which `value` is a whole number.
pub(crate) fn format_exact(value: u64, grammar: &Grammar) -> String {
    let (name, factor) = grammar
        .units
        .iter()
        .filter(|(_, factor)| value.is_multiple_of(*factor))
        .max_by_key(|(_, factor)| *factor)
        .copied()
        .unwrap_or(("", 1));
    if value == 0 {
        let smallest = grammar.units.iter().min_by_key(|(_, factor)| *factor);
        return format!("0{}", smallest.map_or("", |(name, _)| name));
    }
    format!("{}{name}", value / factor)
}

/// A count with a metric suffix and three significant digits, for people: `12.3k`, `1.02M`.
#[must_use]
pub fn human_count(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, "G"),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    format!("{}{suffix}", three_digits(scaled))
}

/// Three significant digits without an exponent.
pub(crate) fn three_digits(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 || v == 0.0 => format!("{value:.2}").trim_end_matches(".00").to_owned(),
        _ => format!("{value:.3}"),
    }
}

/// Implements `FromStr`, `Display`-independent serde and a JSON schema for a quantity newtype.
macro_rules! quantity_text {
    ($type:ident, $grammar:expr, $schema_pattern:expr, $what:expr) => {
        impl std::str::FromStr for $type {
            type Err = $crate::ParseError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $crate::text::parse_exact(text, &$grammar).map($type)
            }
        }

        impl $type {
            /// The exact text form, the inverse of parsing: the largest unit that divides the value.
            #[must_use]
            pub fn exact(self) -> String {
                $crate::text::format_exact(self.0, &$grammar)
            }
        }

        $crate::text_serde!($type, exact, $schema_pattern, $what);
    };
}

/// Implements serde as a string and a JSON schema for a type with `FromStr` and a method `$text` that is its
/// inverse; `$what` says what is expected.
#[macro_export]
macro_rules! text_serde {
    ($type:ident, $text:ident, $schema_pattern:expr, $what:expr) => {
        impl $crate::serde::Serialize for $type {
            fn serialize<S: $crate::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.$text())
            }
        }

        impl<'de> $crate::serde::Deserialize<'de> for $type {
            fn deserialize<D: $crate::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl $crate::serde::de::Visitor<'_> for Text {
                    type Value = $type;
                    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        out.write_str($what)
                    }
                    fn visit_str<E: $crate::serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }

        impl $crate::schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut $crate::schemars::SchemaGenerator) -> $crate::schemars::Schema {
                $crate::schemars::json_schema!({
                    "type": "string",
                    "pattern": $schema_pattern,
                    "description": $what
                })
            }
        }
    };
}

/// Defines an enum's words, one per variant.
#[macro_export]
macro_rules! words {
    ($type:ident { $($variant:ident => $word:literal),+ $(,)? }) => {
        impl $type {
            /// Every one, in the order of [`Self::WORDS`].
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];
            /// All words.
            pub const WORDS: &[&str] = &[$($word),+];

            /// The word used in studies and figures.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                let found = Self::ALL.into_iter().find(|one| one.word() == word);
                found.ok_or_else(|| format!("`{word}`; allowed: {}", Self::WORDS.join(", ")))
            }
        }
    };
}

pub(crate) use quantity_text;

/// Maximum number of tables, arrays and values in a TOML text: parsing takes up to a kilobyte for each,
/// however short the text.
const TOML_VALUES_MAX: usize = 100_000;

/// Rejects a TOML text that would take far more memory than its length suggests.
///
/// # Errors
/// The limit.
pub fn check_toml_size(text: &str) -> Result<(), String> {
    let values = toml_values(text);
    if values > TOML_VALUES_MAX {
        return Err(format!("{values} tables, arrays and values; allowed: {TOML_VALUES_MAX}"));
    }
    Ok(())
}

/// Tables, arrays, values and parts of keys, outside strings and comments. A string that does not end counts
/// as text: the parser refuses it.
fn toml_values(text: &str) -> usize {
    let (mut values, mut rest) = (0, text.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        rest = match byte {
            b'#' => skip_past(after, b"\n", false),
            b'"' if after.starts_with(b"\"\"") => skip_past(&after[2..], b"\"\"\"", true),
            b'\'' if after.starts_with(b"\'\'") => skip_past(&after[2..], b"\'\'\'", false),
            b'"' => skip_past(after, b"\"", true),
            b'\'' => skip_past(after, b"\'", false),
            _ => {
                values += usize::from(b"{[=.,".contains(&byte));
                after
            }
        };
    }
    values
}

/// The text after the first `end`; with `escapes`, one after a backslash does not count.
fn skip_past<'t>(text: &'t [u8], end: &[u8], escapes: bool) -> &'t [u8] {
    let mut at = 0;
    while at < text.len() {
        if escapes && text[at] == b'\\' {
            at += 2;
        } else if text[at..].starts_with(end) {
            return &text[at + end.len()..];
        } else {
            at += 1;
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prose in a description was counted, and a study with a long one refused.
    #[test]
    fn values_are_counted_outside_strings_and_comments() {
        for (text, values) in [
            ("a = [1, 2] # one, two", 3),
            ("a.b = \"x, y = [z].\"", 2),
            ("a = \"\\\", b = \"\nc = 1", 2),
            ("a = '''x, y'''\nb = \"\"\"p, \"q\", r\"\"\"", 2),
            ("a = 'C:\\'\nb = 1", 2),
            ("a = { b = 1.5 }", 4),
            ("a = \"never ends, ...", 1),
        ] {
            assert_eq!(toml_values(text), values, "{text}");
        }
        assert!(check_toml_size(&"a,".repeat(200_000)).is_err());
    }
}
