//! Where a stack's device comes from, as text in the study.
//!
//! Invariant: the text form reads back.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a stack's device comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceName {
    /// A temporary file.
    File,
    /// A device model of that name.
    Model(String),
    /// Block devices at those paths, one or more; operations are spread over them.
    Paths(Vec<String>),
}

impl DeviceName {
    /// The text form, as in the study.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::File => "file".into(),
            Self::Model(name) => format!("model:{name}"),
            Self::Paths(paths) => paths.join(","),
        }
    }
}

impl Serialize for DeviceName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for DeviceName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "file" => Ok(Self::File),
            paths if paths.split(',').all(|path| path.starts_with('/')) => {
                Ok(Self::Paths(paths.split(',').map(str::to_owned).collect()))
            }
            other => match other.strip_prefix("model:") {
                Some(name) if !name.is_empty() => Ok(Self::Model(name.into())),
                _ => Err(serde::de::Error::custom(format!(
                    "`{other}` is not a device; allowed: `file`, `model:NAME`, or the absolute paths \
                     of block devices, separated by commas"
                ))),
            },
        }
    }
}

impl JsonSchema for DeviceName {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "DeviceName".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^(file|model:.+|/.+)$" })
    }
}
