//! Parameters by name, as figures have them.

/// The parameters of a job by name, in a fixed order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameters {
    /// What every job of its kind has, and of the rest what is not its default.
    pub point: Vec<(&'static str, String)>,
    /// The rest, but for what there is nothing of, as no clients in the background.
    pub defaults: Vec<(&'static str, String)>,
}

impl Parameters {
    /// What every job of a kind has.
    pub(crate) const fn of(point: Vec<(&'static str, String)>) -> Self {
        Self { point, defaults: Vec::new() }
    }

    /// Adds a parameter that `differs` from its default, or does not.
    pub(crate) fn add(&mut self, differs: bool, name: &'static str, value: String) {
        if differs {
            self.point.push((name, value));
        } else if !value.is_empty() {
            self.defaults.push((name, value));
        }
    }
}
