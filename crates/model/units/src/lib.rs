//! Quantities with units: [`Bytes`], [`Nanos`], [`Rate`], [`Share`] and [`Seed`].
//!
//! Every dimensioned value in a study file, a device profile or an archive is one of these, written as a
//! string with its unit (`"4KiB"`, `"30s"`, `"70%"`), so that no number lacks its unit.
//!
//! Invariants: `parse(format(x)) == x` for every value; sizes and times are exact integers.

#![forbid(unsafe_code)]

mod bytes;
mod nanos;
mod rate;
mod seed;
mod share;
mod text;

pub use bytes::Bytes;
pub use nanos::{Nanos, as_number};
pub use rate::Rate;
pub use seed::Seed;
pub use share::Share;
pub use text::{ParseError, check_toml_size, human_count};

// The expansion of `text_serde!` names them.
#[doc(hidden)]
pub use {schemars, serde};
