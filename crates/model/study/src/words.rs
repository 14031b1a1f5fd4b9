//! Enums that have one word each in studies and figures, and durability, which every engine has.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Nothing that is promised.
    None,
    /// The end of the process.
    Os,
    /// The end of the operating system: the device has acknowledged a flush.
    Device,
}

/// State of a modelled flash drive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// Overwritten at random until nothing changes any more.
    #[default]
    Steady,
    /// Erased: no garbage collection until the drive was filled once.
    Fresh,
    /// Erased, then written once from beginning to end: no garbage collection while the spare blocks last, so
    /// that it is faster than `steady` for a minute or some, then slower.
    Filled,
}

/// Gives an enum its words.
macro_rules! words {
    ($type:ident { $($variant:ident => $word:literal),+ $(,)? }) => {
        impl $type {
            /// All words, in the order of the type.
            pub const WORDS: &[&str] = &[$($word),+];

            /// The word used in studies and figures.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }
    };
}

pub(crate) use words;

words!(Condition { Steady => "steady", Fresh => "fresh", Filled => "filled" });

impl Condition {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Steady, Self::Fresh, Self::Filled];
}

words!(Durability { None => "none", Os => "os", Device => "device" });

impl Durability {
    /// Every one, from the weakest.
    pub const ALL: [Self; 3] = [Self::None, Self::Os, Self::Device];
}
