//! Device profiles: the constants of a model, each with its source, and the published figures that
//! the model is held against.
//!
//! Invariants: unknown keys are errors; every constant says whether it is measured, from a datasheet,
//! from a paper or assumed. What it is not: the files themselves, which stand in `devices/`.

use serde::Deserialize;
use thiserror::Error;
use units::{Bytes, Nanos, Share};

use crate::nand::NandParameters;
use crate::xpoint::XPointParameters;

/// How a constant is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConstantKind {
    /// From measurements on the device.
    Measured,
    /// From the maker's datasheet.
    Datasheet,
    /// From a paper about the device or its class.
    Paper,
    /// Chosen by us; free until measured.
    Assumed,
}

/// A constant with its provenance.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant<T> {
    /// The value, in the unit of its type.
    pub value: T,
    /// How it is known.
    pub kind: ConstantKind,
    /// Where from: author, year, section or page.
    pub source: String,
}

/// The constants, by kind of model.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Parameters {
    /// `[xpoint]`
    XPoint(Box<XPointParameters>),
    /// `[nand]`
    Nand(Box<NandParameters>),
}

/// Published figures of one job, which the model is run against.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acceptance {
    /// Submission path of the host that was measured; a name that `sim::HostModel` knows.
    pub host: String,
    /// Submitting threads.
    pub threads: u32,
    /// Operations in flight, a thread.
    pub queue_depth: u32,
    /// Bytes an operation, random and aligned.
    pub block_size: Bytes,
    /// Share of reads.
    pub read_share: Share,
    /// Published operations per second.
    pub iops: Option<f64>,
    /// Published mean response time.
    pub latency_mean: Option<Nanos>,
    /// Published median response time.
    pub latency_p50: Option<Nanos>,
    /// Published 99th percentile.
    pub latency_p99: Option<Nanos>,
    /// Where the figures are from.
    pub source: String,
}

/// A device that can be modelled.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Name in studies, after `model:`.
    pub name: String,
    /// What it is, for people.
    pub title: String,
    /// Addressable bytes.
    pub capacity: Bytes,
    /// What the model leaves out.
    pub not_covered: String,
    /// The constants.
    pub parameters: Parameters,
    /// What the model is held against.
    pub acceptance: Vec<Acceptance>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: u32,
    name: String,
    title: String,
    capacity: Bytes,
    not_covered: String,
    xpoint: Option<XPointParameters>,
    nand: Option<NandParameters>,
    #[serde(default)]
    acceptance: Vec<Acceptance>,
}

/// Why a profile is refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// Not TOML, an unknown key, or a wrong unit; the text points at the place.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// Well-formed but not a device.
    #[error("profile `{name}`: {reason}")]
    Impossible {
        /// Name in the file.
        name: String,
        /// What is wrong and what is allowed.
        reason: String,
    },
}

impl Profile {
    /// Reads a profile from the text of its file.
    ///
    /// # Errors
    /// [`ProfileError`] with the place or the reason.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let file: File = toml::from_str(text)?;
        let refuse = |reason: String| ProfileError::Impossible { name: file.name.clone(), reason };
        if file.schema != 1 {
            return Err(refuse(format!("schema {} is unknown; allowed: 1", file.schema)));
        }
        let parameters = match (file.xpoint, file.nand) {
            (Some(xpoint), None) => Parameters::XPoint(Box::new(xpoint)),
            (None, Some(nand)) => Parameters::Nand(Box::new(nand)),
            _ => return Err(refuse("needs exactly one of [xpoint] and [nand]".into())),
        };
        if let Some(reason) = impossible(&parameters, file.capacity) {
            return Err(refuse(reason));
        }
        Ok(Self {
            name: file.name,
            title: file.title,
            capacity: file.capacity,
            not_covered: file.not_covered,
            parameters,
            acceptance: file.acceptance,
        })
    }
}

/// What no device can be.
fn impossible(parameters: &Parameters, capacity: Bytes) -> Option<String> {
    let nonzero = |pairs: &[(&str, u64)]| {
        let zero = pairs.iter().find(|(_, value)| *value == 0);
        zero.map(|(name, _)| format!("`{name}` is 0; it must be more"))
    };
    if let Some(reason) = nonzero(&[("capacity", capacity.get())]) {
        return Some(reason);
    }
    match parameters {
        Parameters::XPoint(p) => {
            if p.stall_time.value >= p.stall_period.value {
                return Some("`stall_time` must be shorter than `stall_period`".into());
            }
            nonzero(&[
                ("serial_time", p.serial_time.value.get()),
                ("serial_time_write", p.serial_time_write.value.get()),
                ("channels", u64::from(p.channels.value)),
            ])
        }
        Parameters::Nand(p) => {
            if p.write_amplification.value.is_nan() || p.write_amplification.value < 1.0 {
                return Some("`write_amplification` must be at least 1".into());
            }
            if p.write_buffer.value < p.program_size.value {
                return Some("`write_buffer` must hold one `program_size`".into());
            }
            nonzero(&[
                ("max_in_flight", u64::from(p.max_in_flight.value)),
                ("read_units", u64::from(p.read_units.value)),
                ("channels", u64::from(p.channels.value)),
                ("read_time", p.read_time.value.get()),
                ("program_units", u64::from(p.program_units.value)),
                ("program_size", p.program_size.value.get()),
                ("program_time", p.program_time.value.get()),
            ])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P4800X: &str = include_str!("../../../../devices/intel-p4800x.toml");

    #[test]
    fn an_unknown_key_is_refused_with_the_allowed_ones() {
        let text = P4800X.replace("media_time", "meda_time");
        let error = Profile::parse(&text).unwrap_err().to_string();
        assert!(error.contains("meda_time") && error.contains("media_time"), "{error}");
    }

    #[test]
    fn a_device_that_cannot_be_is_refused_with_the_reason() {
        let text = P4800X.replace("value = \"30us\"", "value = \"6ms\"");
        let error = Profile::parse(&text).unwrap_err().to_string();
        assert!(error.contains("stall_time"), "{error}");
        let error = Profile::parse(&P4800X.replace("schema = 1", "schema = 2")).unwrap_err();
        assert!(error.to_string().contains("allowed: 1"), "{error}");
    }
}
