//! The studies and device profiles that ship with the program.
//!
//! Invariant: every one of them parses (tested). What it is not: a search path; a study that is not
//! built in is a file.

use std::path::{Path, PathBuf};

use device::Profile;

use crate::RunnerError;

const STUDIES: &[(&str, &str)] = &[
    ("quickstart", include_str!("../../../../studies/quickstart.toml")),
    ("device-table", include_str!("../../../../studies/device-table.toml")),
    ("iops-latency", include_str!("../../../../studies/iops-latency.toml")),
    ("mixed-sweep", include_str!("../../../../studies/mixed-sweep.toml")),
    ("act-ratings", include_str!("../../../../studies/act-ratings.toml")),
    ("database-io", include_str!("../../../../studies/database-io.toml")),
];

const PROFILES: &[(&str, &str)] = &[
    ("intel-p4800x", include_str!("../../../../devices/intel-p4800x.toml")),
    ("samsung-980-pro", include_str!("../../../../devices/samsung-980-pro.toml")),
    ("intel-s3510", include_str!("../../../../devices/intel-s3510.toml")),
];

/// The text of a study and what to call it in messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StudyText {
    /// File name, or the built-in name.
    pub name: String,
    /// TOML.
    pub text: String,
}

/// Names of the built-in studies.
#[must_use]
pub fn built_in_studies() -> Vec<&'static str> {
    STUDIES.iter().map(|(name, _)| *name).collect()
}

/// Finds a study: a file of that name, else a built-in one.
///
/// # Errors
/// When there is neither, naming the built-in ones.
pub fn load_study(name: &str) -> Result<StudyText, RunnerError> {
    let path = Path::new(name);
    if path.is_file() {
        let text = std::fs::read_to_string(path)
            .map_err(|source| RunnerError::StudyFile { path: path.into(), source })?;
        return Ok(StudyText { name: name.to_owned(), text });
    }
    match STUDIES.iter().find(|(built_in, _)| *built_in == name) {
        Some((built_in, text)) => {
            Ok(StudyText { name: format!("{built_in} (built in)"), text: (*text).to_owned() })
        }
        None => Err(RunnerError::NoStudy {
            path: PathBuf::from(name),
            known: built_in_studies().join(", "),
        }),
    }
}

/// The device profile of that name: a built-in one, or a file when the name ends in `.toml`.
///
/// # Errors
/// When there is none, or it is refused.
pub fn profile(name: &str) -> Result<Profile, RunnerError> {
    let refuse = |reason: String| RunnerError::Profile { name: name.to_owned(), reason };
    let text = if name.ends_with(".toml") {
        std::fs::read_to_string(name).map_err(|error| refuse(error.to_string()))?
    } else {
        let built_in = PROFILES.iter().find(|(built_in, _)| *built_in == name);
        let Some((_, text)) = built_in else {
            let known: Vec<_> = PROFILES.iter().map(|(name, _)| *name).collect();
            return Err(refuse(format!(
                "there is no such profile; built in: {}",
                known.join(", ")
            )));
        };
        (*text).to_owned()
    };
    Profile::parse(&text).map_err(|error| refuse(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_ships_parses() {
        for (name, text) in STUDIES {
            let study = study::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(study.name, *name);
            assert!(!study::plan(&study).trials.is_empty());
            for stack in &study.stack {
                if let study::DeviceName::Model(model) = &stack.device {
                    assert_eq!(profile(model).unwrap().name, *model);
                }
            }
        }
        for (name, _) in PROFILES {
            assert_eq!(profile(name).unwrap().name, *name);
        }
    }

    #[test]
    fn a_name_that_is_nothing_lists_what_there_is() {
        assert!(load_study("no-such").unwrap_err().to_string().contains("quickstart"));
        assert!(profile("no-such").unwrap_err().to_string().contains("intel-p4800x"));
    }
}
