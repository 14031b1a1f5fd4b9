//! Memory limit of a database and its page cache, as text in the study.
//!
//! Invariant: the text form parses back.

use units::{Bytes, Share};

/// Memory of a key-value trial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Memory {
    /// All memory of the machine.
    #[default]
    Unlimited,
    /// This many bytes.
    Size(Bytes),
    /// A share of the bytes of keys and values: `20%` is a database five times memory.
    Share(Share),
}

impl Memory {
    /// Minimum limit: below it the kernel would kill the program, which itself takes some tens of MiB.
    pub const LEAST: Bytes = Bytes(96 << 20);

    /// The text form, as in the study.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Unlimited => "unlimited".into(),
            Self::Size(size) => size.exact(),
            Self::Share(share) => share.exact(),
        }
    }

    /// Bytes for a database of `data` bytes; `None` without a limit.
    #[must_use]
    pub fn bytes(&self, data: Bytes) -> Option<Bytes> {
        match self {
            Self::Unlimited => None,
            Self::Size(size) => Some(*size),
            Self::Share(share) => Some(Bytes((data.get() as f64 * share.fraction()) as u64)),
        }
    }
}

impl std::str::FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "unlimited" {
            return Ok(Self::Unlimited);
        }
        let size = text.parse().ok().map(Self::Size);
        size.or_else(|| text.parse().ok().map(Self::Share)).ok_or_else(|| {
            format!(
                "`{text}` is not an amount of memory; allowed: `unlimited`, a size such as \"512MiB\", or a \
                 share of the records' bytes such as \"20%\""
            )
        })
    }
}

units::text_serde!(
    Memory,
    text,
    "^(unlimited|[0-9]+(\\.[0-9]+)? ?[kMGTKi]*B|[0-9]+(\\.[0-9]+)? ?%)$",
    "`unlimited`, a size such as \"512MiB\", or a share of the records' bytes such as \"20%\""
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_the_data() {
        let share = Memory::Share("20%".parse().unwrap());
        assert_eq!(share.bytes(Bytes(1_000)), Some(Bytes(200)));
        assert_eq!(Memory::Unlimited.bytes(Bytes(1_000)), None);
        assert_eq!(share.text(), "20%");
    }
}
