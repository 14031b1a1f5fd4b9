//! Default values of keys for serde, one function each.

use units::{Bytes, Nanos, Share};

pub(crate) fn number<const NUMBER: u32>() -> u32 {
    NUMBER
}

pub(crate) fn millis<const MILLIS: u64>() -> Nanos {
    Nanos::from_millis(MILLIS)
}

pub(crate) fn bytes<const BYTES: u64>() -> Bytes {
    Bytes(BYTES)
}

pub(crate) fn all() -> Share {
    Share::ALL
}

pub(crate) fn yes() -> bool {
    true
}

pub(crate) fn auto() -> String {
    "auto".into()
}
