//! Parameters by name, as in figures.

use std::borrow::Cow;

/// A parameter: name and value.
pub type Parameter = (Cow<'static, str>, String);

/// The parameters of a job by name, in a fixed order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameters {
    /// The parameters of every job of its kind, and non-default ones.
    pub point: Vec<Parameter>,
    /// The rest, without parameters of absent features such as background clients.
    pub defaults: Vec<Parameter>,
}

impl Parameters {
    /// The parameters of every job of a kind.
    pub(crate) fn of(point: Vec<(&'static str, String)>) -> Self {
        let point = point.into_iter().map(|(name, value)| (name.into(), value)).collect();
        Self { point, defaults: Vec::new() }
    }

    /// Adds a parameter; `differs`: from its default.
    pub(crate) fn add(&mut self, differs: bool, name: impl Into<Cow<'static, str>>, value: String) {
        if differs {
            self.point.push((name.into(), value));
        } else if !value.is_empty() {
            self.defaults.push((name.into(), value));
        }
    }
}
