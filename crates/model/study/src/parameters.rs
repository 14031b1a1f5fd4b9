//! Parameters by name, as figures have them.

/// The parameters of a job by name, in a fixed order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameters {
    /// What every job of its kind has, and of the rest what is not its default.
    pub point: Vec<(&'static str, String)>,
    /// The rest.
    pub defaults: Vec<(&'static str, String)>,
}
