//! A constant of a model with its source.

use serde::{Deserialize, Serialize};

/// Provenance of a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ConstantKind {
    /// From measurements on the device.
    Measured,
    /// Chosen so that the model reproduces a measured figure of the device.
    Fitted,
    /// From the vendor's datasheet.
    Datasheet,
    /// From a paper about the device or its class.
    Paper,
    /// Chosen by us, without a measurement.
    Assumed,
}

/// A constant with its provenance.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Constant<T> {
    /// The value, in the unit of its type.
    pub value: T,
    /// Its provenance.
    pub kind: ConstantKind,
    /// Where from: author, year, section or page.
    pub source: String,
}

impl<T> Constant<T> {
    /// A constant from measurements on the device, described by `source`.
    #[must_use]
    pub fn measured(value: T, source: &str) -> Self {
        Self { value, kind: ConstantKind::Measured, source: source.to_owned() }
    }
}

/// A constant for tests.
#[cfg(test)]
pub(crate) fn constant<T>(value: T) -> Constant<T> {
    Constant::measured(value, "test")
}
