//! Enums with one word per variant in studies and reports, and durability, which every engine has.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::words;

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Nothing is guaranteed.
    None,
    /// The end of the process.
    Os,
    /// An operating system crash or power loss: the device has acknowledged a flush.
    Device,
}

/// State of a modelled flash drive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// Overwritten at random until steady state.
    #[default]
    Steady,
    /// Erased: no garbage collection until the drive was filled once.
    Fresh,
    /// Erased, then written once sequentially: no garbage collection while the spare blocks last, so that it
    /// is faster than `steady` for a minute or more, then slower.
    Filled,
}

/// A part that a variant has for free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhatIf {
    /// The drive takes no time.
    Drive,
    /// The host has twice the cores.
    Cores,
    /// The file system has no journal.
    Journal,
}

words!(WhatIf { Drive => "drive", Cores => "cores", Journal => "journal" });
words!(Condition { Steady => "steady", Fresh => "fresh", Filled => "filled" });
words!(Durability { None => "none", Os => "os", Device => "device" });
