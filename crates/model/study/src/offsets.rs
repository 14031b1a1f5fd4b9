//! How offsets are distributed, as text: `uniform`, `zipf:0.99`, `hot-spot:80%/20%`, `gaussian:15%`.
//!
//! Invariant: the text form is exact and reads back.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use units::Share;

const ALLOWED: &str = "allowed: uniform, zipf:EXPONENT (0.01 to 10), hot-spot:ACCESS%/SPACE%, \
    gaussian:DEVIATION%; for example zipf:0.99 or hot-spot:80%/20%";

/// How the offsets of random operations are distributed over the span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Offsets {
    /// Every block is as likely.
    #[default]
    Uniform,
    /// The k-th most popular block is drawn in proportion to `1 / k^exponent`.
    Zipf {
        /// The exponent in thousandths.
        thousandths: u32,
    },
    /// `access` of the operations go to the first `space` of the span.
    HotSpot {
        /// Share of operations.
        access: Share,
        /// Share of the span.
        space: Share,
    },
    /// Normal around the middle of the span.
    Gaussian {
        /// Standard deviation as a share of the span.
        deviation: Share,
    },
}

impl Offsets {
    /// What the workload draws from.
    #[must_use]
    pub fn distribution(self) -> workload::Offsets {
        match self {
            Self::Uniform => workload::Offsets::Uniform,
            Self::Zipf { thousandths } => {
                workload::Offsets::Zipf { exponent: f64::from(thousandths) / 1000.0 }
            }
            Self::HotSpot { access, space } => workload::Offsets::HotSpot { access, space },
            Self::Gaussian { deviation } => workload::Offsets::Gaussian { deviation },
        }
    }
}

impl fmt::Display for Offsets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => out.write_str("uniform"),
            Self::Zipf { thousandths } => write!(out, "zipf:{}", f64::from(*thousandths) / 1000.0),
            Self::HotSpot { access, space } => {
                write!(out, "hot-spot:{}/{}", access.exact(), space.exact())
            }
            Self::Gaussian { deviation } => write!(out, "gaussian:{}", deviation.exact()),
        }
    }
}

impl FromStr for Offsets {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("`{text}` is no distribution of offsets; {ALLOWED}");
        let share = |text: &str| match text.parse::<Share>() {
            Ok(share) if share > Share::NONE => Ok(share),
            _ => Err(refuse()),
        };
        match text.split_once(':') {
            None if text == "uniform" => Ok(Self::Uniform),
            Some(("zipf", exponent)) => {
                let thousandths = exponent.parse::<f64>().map_err(|_| refuse())? * 1000.0;
                if !(10.0..=10_000.0).contains(&thousandths) {
                    return Err(refuse());
                }
                Ok(Self::Zipf { thousandths: thousandths.round() as u32 })
            }
            Some(("hot-spot", shares)) => {
                let (access, space) = shares.split_once('/').ok_or_else(refuse)?;
                Ok(Self::HotSpot { access: share(access)?, space: share(space)? })
            }
            Some(("gaussian", deviation)) => Ok(Self::Gaussian { deviation: share(deviation)? }),
            _ => Err(refuse()),
        }
    }
}

impl Serialize for Offsets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_string())
    }
}

impl<'de> Deserialize<'de> for Offsets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Offsets {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Offsets".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^(uniform|zipf:.+|hot-spot:.+%/.+%|gaussian:.+%)$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_reads_back() {
        for text in ["uniform", "zipf:0.99", "zipf:1.2", "hot-spot:80%/20%", "gaussian:12.5%"] {
            assert_eq!(text.parse::<Offsets>().unwrap().to_string(), text);
        }
        for text in ["zipf", "zipf:0", "zipf:-1", "zipf:nan", "hot-spot:80%", "gaussian:0%", "x"] {
            assert!(text.parse::<Offsets>().unwrap_err().contains("allowed"), "{text}");
        }
    }
}
