//! Options of an engine in a job, by the names and rules of its descriptor.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::Memory;
use crate::parameters::Parameters;

/// Value of an option.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected true, false or a string")]
pub enum OptionValue {
    /// On or off.
    Flag(bool),
    /// Text, as written in studies.
    Text(String),
}

impl OptionValue {
    /// The value as text, as in figures.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Flag(on) => Cow::Owned(on.to_string()),
            Self::Text(text) => Cow::Borrowed(text),
        }
    }
}

/// Type and range of an option.
#[derive(Debug, Clone, Copy)]
pub enum OptionKind {
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Words(&'static [&'static str]),
    /// One of these sizes, bytes.
    Sizes(&'static [u64]),
    /// A size from the first to the second, bytes.
    Size(u64, u64),
    /// A size from the first to the second, bytes, or a share of the database.
    Pool(u64, u64),
    /// Text for which this returns no error. The second field describes it in the reference.
    Text(fn(&str) -> Result<(), String>, &'static str),
}

impl OptionKind {
    /// Allowed values, as the reference shows them.
    #[must_use]
    pub fn allowed(&self) -> String {
        match self {
            Self::Flag => "true, false".into(),
            Self::Words(words) => words.join(", "),
            Self::Sizes(sizes) => {
                let sizes: Vec<String> = sizes.iter().map(|size| Bytes(*size).exact()).collect();
                sizes.join(", ")
            }
            Self::Size(least, most) => format!("{} to {}", Bytes(*least), Bytes(*most)),
            Self::Pool(least, most) => {
                let (least, most) = (Bytes(*least), Bytes(*most));
                format!("{least} to {most}, or a share of the database such as 10%")
            }
            Self::Text(_, what) => (*what).into(),
        }
    }

    /// The value in its canonical form.
    fn canonical(&self, value: &OptionValue) -> Result<OptionValue, String> {
        let refuse = || format!("allowed: {}", self.allowed());
        let text = match (self, value) {
            (Self::Flag, OptionValue::Flag(_)) => return Ok(value.clone()),
            (Self::Flag, _) | (_, OptionValue::Flag(_)) => return Err(refuse()),
            (_, OptionValue::Text(text)) => text,
        };
        let within = |size: Bytes, least: u64, most: u64| (least..=most).contains(&size.get());
        let size = || text.parse::<Bytes>().map_err(|_| refuse());
        let kept = match self {
            Self::Flag => text.clone(),
            Self::Words(words) => {
                words.iter().find(|word| *word == text).ok_or_else(refuse)?.to_string()
            }
            Self::Sizes(sizes) => {
                let size = size()?;
                sizes.contains(&size.get()).then(|| size.exact()).ok_or_else(refuse)?
            }
            Self::Size(least, most) => {
                let size = size()?;
                within(size, *least, *most).then(|| size.exact()).ok_or_else(refuse)?
            }
            Self::Pool(least, most) => match text.parse() {
                Ok(Memory::Size(size)) if within(size, *least, *most) => size.exact(),
                Ok(share @ Memory::Share(_)) => share.text(),
                _ => return Err(refuse()),
            },
            Self::Text(check, _) => check(text).map(|()| text.clone())?,
        };
        Ok(OptionValue::Text(kept))
    }
}

/// An option of an engine.
#[derive(Debug, Clone, Copy)]
pub struct OptionDoc {
    /// Key in a study.
    pub name: &'static str,
    /// Type and range.
    pub kind: OptionKind,
    /// Default; none: the engine decides.
    pub default: Option<&'static str>,
    /// Where figures show it.
    pub shown: Shown,
    /// One line of documentation.
    pub doc: &'static str,
}

/// Options in lines of `name: kind, default, where figures show it, one line of help;`.
#[macro_export]
macro_rules! option_docs {
    ($($name:ident: $kind:expr, $default:expr, $shown:ident, $doc:expr;)*) => {
        &[$($crate::OptionDoc {
            name: stringify!($name),
            kind: $kind,
            default: $default,
            shown: $crate::Shown::$shown,
            doc: $doc,
        }),*]
    };
}

/// Where figures show an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// At every point.
    Always,
    /// Only if it differs from its default. A list of values is an axis.
    Differs,
    /// Nowhere; so a list of values is refused.
    Never,
}

impl OptionDoc {
    fn default(&self) -> Option<OptionValue> {
        let text = self.default?;
        Some(match self.kind {
            OptionKind::Flag => OptionValue::Flag(text == "true"),
            _ => OptionValue::Text(text.into()),
        })
    }
}

/// Options of one engine, by name. Those of a study are complete: omitted ones have their default.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Options {
    values: BTreeMap<String, OptionValue>,
    /// The options of the engine, where it is known.
    #[serde(skip)]
    of: Option<&'static [OptionDoc]>,
}

impl PartialEq for Options {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl Eq for Options {}

/// An invalid option: its name, and what is wrong.
pub type WrongOption = (&'static str, String);

impl Options {
    /// The defaults of an engine.
    #[must_use]
    pub fn of(docs: &'static [OptionDoc]) -> Self {
        let default = |one: &OptionDoc| Some((one.name.to_owned(), one.default()?));
        let values = docs.iter().filter_map(default).collect();
        Self { values, of: Some(docs) }
    }

    /// The same options, with `name` set.
    #[must_use]
    pub fn with(mut self, name: &str, value: OptionValue) -> Self {
        self.values.insert(name.to_owned(), value);
        self
    }

    /// All options of `docs`: these where given, otherwise defaults. Others are dropped.
    ///
    /// # Errors
    /// The option that does not match its description, and what is allowed.
    pub(crate) fn completed(&self, docs: &'static [OptionDoc]) -> Result<Self, WrongOption> {
        let mut all = Self::of(docs);
        for one in docs {
            let Some(given) = self.values.get(one.name) else { continue };
            let value = one.kind.canonical(given).map_err(|reason| {
                let shown: String = given.text().chars().take(200).collect();
                (one.name, format!("{} = {shown}; {reason}", one.name))
            })?;
            all.values.insert(one.name.to_owned(), value);
        }
        Ok(all)
    }

    /// Names and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &OptionValue)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The first option, other than those in `but`, that differs from its default; `None` if there is none.
    pub(crate) fn changed(&self, but: &[&str]) -> Option<&str> {
        let defaults = Self::of(self.of?);
        let differs = |(name, value): &(&str, &OptionValue)| {
            !but.contains(name) && defaults.values.get(*name) != Some(*value)
        };
        self.iter().find(differs).map(|(name, _)| name)
    }

    /// The text of an option; empty if there is none of this name.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        match self.values.get(name) {
            Some(OptionValue::Text(text)) => text,
            _ => "",
        }
    }

    /// Whether a flag is set.
    #[must_use]
    pub fn is_set(&self, name: &str) -> bool {
        self.values.get(name) == Some(&OptionValue::Flag(true))
    }

    /// An option that is a size.
    #[must_use]
    pub fn size(&self, name: &str) -> Option<Bytes> {
        self.text(name).parse().ok()
    }

    /// An option that is a size or a share of the database; without one, unlimited.
    #[must_use]
    pub fn pool(&self, name: &str) -> Memory {
        self.text(name).parse().unwrap_or_default()
    }

    /// All options as the engine's own type, with a default for each.
    ///
    /// # Panics
    /// Never if the type's fields match the descriptor, which the engine's tests check.
    #[must_use]
    pub fn typed<T: DeserializeOwned>(&self) -> T {
        let typed = toml::Table::try_from(&self.values).ok().and_then(|all| all.try_into().ok());
        typed.expect("invariant: options are as the descriptor has them")
    }

    /// Adds the options that reports show.
    pub(crate) fn add_to(&self, parameters: &mut Parameters) {
        let Some(docs) = self.of else {
            for (name, value) in &self.values {
                parameters.add(true, name.clone(), value.text().into_owned());
            }
            return;
        };
        for one in docs {
            let Some(value) = self.values.get(one.name) else { continue };
            let differs = one.default().as_ref() != Some(value);
            match one.shown {
                Shown::Always => parameters.add(true, one.name, value.text().into_owned()),
                Shown::Differs => parameters.add(differs, one.name, value.text().into_owned()),
                Shown::Never => {}
            }
        }
    }
}

impl JsonSchema for Options {
    fn schema_name() -> Cow<'static, str> {
        "Options".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let one = json_schema!({ "type": ["boolean", "string"] });
        let list = json_schema!({ "type": "array", "items": one, "minItems": 1 });
        json_schema!({ "type": "object", "additionalProperties": { "oneOf": [one, list] } })
    }
}
