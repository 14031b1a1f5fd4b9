//! Parameters by name, as figures have them.

use std::borrow::Cow;

/// A parameter: name and value.
pub type Parameter = (Cow<'static, str>, String);

/// The parameters of a job by name, in a fixed order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameters {
    /// What every job of its kind has, and of the rest what is not its default.
    pub point: Vec<Parameter>,
    /// The rest, but for what there is nothing of, as no clients in the background.
    pub defaults: Vec<Parameter>,
}

impl Parameters {
    /// What every job of a kind has.
    pub(crate) fn of(point: Vec<(&'static str, String)>) -> Self {
        let point = point.into_iter().map(|(name, value)| (name.into(), value)).collect();
        Self { point, defaults: Vec::new() }
    }

    /// Adds a parameter that `differs` from its default, or does not.
    pub(crate) fn add(&mut self, differs: bool, name: impl Into<Cow<'static, str>>, value: String) {
        if differs {
            self.point.push((name.into(), value));
        } else if !value.is_empty() {
            self.defaults.push((name.into(), value));
        }
    }
}
