//! How rows are drawn, as text: sysbench's words, `uniform`, `gaussian`, `special`, `pareto`, `zipf:0.8`.
//!
//! Invariant: the text form reads back.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Distribution of rows, by sysbench's definitions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum SqlKeys {
    /// Every row is as likely.
    #[default]
    Uniform,
    /// The mean of twelve draws.
    Gaussian,
    /// 75 % in the middle hundredth.
    Special,
    /// 80 % in the first 20 %.
    Pareto,
    /// By rank.
    Zipf {
        /// The exponent in thousandths.
        thousandths: u32,
    },
}

impl SqlKeys {
    /// What the workload draws from.
    #[must_use]
    pub fn distribution(self) -> workload::SqlKeys {
        match self {
            Self::Uniform => workload::SqlKeys::Uniform,
            Self::Gaussian => workload::SqlKeys::Gaussian,
            Self::Special => workload::SqlKeys::Special,
            Self::Pareto => workload::SqlKeys::Pareto,
            Self::Zipf { thousandths } => {
                workload::SqlKeys::Zipf { exponent: f64::from(thousandths) / 1000.0 }
            }
        }
    }
}

impl fmt::Display for SqlKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => out.write_str("uniform"),
            Self::Gaussian => out.write_str("gaussian"),
            Self::Special => out.write_str("special"),
            Self::Pareto => out.write_str("pareto"),
            Self::Zipf { thousandths } => write!(out, "zipf:{}", f64::from(*thousandths) / 1000.0),
        }
    }
}

impl FromStr for SqlKeys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || {
            format!(
                "`{text}` is no distribution of rows; allowed: uniform, gaussian, special, pareto, \
                 zipf:EXPONENT (0.01 to 10), as sysbench defines them; for example gaussian or zipf:0.8"
            )
        };
        Ok(match text {
            "uniform" => Self::Uniform,
            "gaussian" => Self::Gaussian,
            "special" => Self::Special,
            "pareto" => Self::Pareto,
            _ => {
                let exponent = text.strip_prefix("zipf:").ok_or_else(refuse)?;
                let thousandths = exponent.parse::<f64>().map_err(|_| refuse())? * 1000.0;
                if !(10.0..=10_000.0).contains(&thousandths) {
                    return Err(refuse());
                }
                Self::Zipf { thousandths: thousandths.round() as u32 }
            }
        })
    }
}

impl Serialize for SqlKeys {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_string())
    }
}

impl<'de> Deserialize<'de> for SqlKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for SqlKeys {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SqlKeys".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^(uniform|gaussian|special|pareto|zipf:.+)$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_reads_back() {
        for text in ["uniform", "gaussian", "special", "pareto", "zipf:0.8"] {
            assert_eq!(text.parse::<SqlKeys>().unwrap().to_string(), text);
        }
        for text in ["zipf", "zipf:0", "zipfian", "normal"] {
            assert!(text.parse::<SqlKeys>().unwrap_err().contains("allowed"), "{text}");
        }
    }
}
