//! Fault injection of a stack, as written in the study.
//!
//! Invariant: [`StackFaults::text`] gives back what was parsed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A plan of faults, with the keys of `docs/FAULTS.md`, without `schema`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "toml::Table", into = "toml::Table")]
pub struct StackFaults(String);

impl StackFaults {
    /// The equivalent fault file.
    #[must_use]
    pub fn text(&self) -> String {
        format!("schema = 1\n{}", self.0)
    }
}

impl From<toml::Table> for StackFaults {
    fn from(keys: toml::Table) -> Self {
        // Serializing a table cannot fail.
        Self(toml::to_string(&keys).unwrap_or_default())
    }
}

impl From<StackFaults> for toml::Table {
    fn from(faults: StackFaults) -> Self {
        faults.0.parse().unwrap_or_default()
    }
}

impl JsonSchema for StackFaults {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "StackFaults".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "object", "description": "see docs/FAULTS.md" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that is resumed, or repeated elsewhere, must have the same faults.
    #[test]
    fn faults_read_back_as_they_were() {
        let text = "[[fault]]\nkind = \"stall\"\n\n[fault.when]\nat = \"1s\"\nfor = \"5ms\"\n";
        let faults: StackFaults = toml::from_str(text).unwrap();
        assert!(faults.text().starts_with("schema = 1\n"));
        let again: StackFaults = toml::from_str(&toml::to_string(&faults).unwrap()).unwrap();
        assert_eq!(again, faults);
    }
}
