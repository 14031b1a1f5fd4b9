//! The studies and device profiles that ship with the program.
//!
//! Invariant: every one of them parses (tested).

use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use device::{BUILT_IN as PROFILES, Profile};
use sim::HostModel;
use units::{Bytes, Rate};

use crate::RunnerError;

macro_rules! studies {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../../studies/", $name, ".toml")))),*]
    };
}

const STUDIES: &[(&str, &str)] = studies! {
    "quickstart" "device-table" "iops-latency" "mixed-sweep" "act-ratings" "database-io" "noise"
    "device-fit" "icpads-3dxpoint" "anandtech-optane" "circuitblvd-nvmeof" "rocksdb-overwrite"
    "live-mariadb" "live-postgres" "postgres-checkpoints" "postgres-wal"
    "live-rocksdb" "live-databases" "live-icpads-mysql" "live-nvmeof" "live-symas"
    "icpads-mysql" "intel-cas-mysql" "symas-optane" "nvmeof-block" "latency-breakdown"
    "validate" "check"
};

/// The text of a study and its name in messages.
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

/// Reads a text file written by a person: a study, a profile, a job file.
///
/// # Errors
/// The system's message; also for a binary file, and one that is too long.
pub fn read_text(path: &Path) -> std::io::Result<String> {
    let most = study::LONGEST_TEXT as u64;
    // A named pipe without a writer would block; the shell's pipes have writers.
    let pipe = std::fs::metadata(path)?.file_type().is_fifo();
    if pipe && !["/dev", "/proc"].iter().any(|dir| path.starts_with(dir)) {
        return Err(std::io::Error::other("it is a pipe, not a file"));
    }
    let mut text = String::new();
    std::fs::File::open(path)?.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        let reason = format!("longer than {} MiB", most >> 20);
        return Err(std::io::Error::other(reason));
    }
    Ok(text)
}

/// Describes the data that a study will overwrite.
#[must_use]
pub fn overwrites(study: &study::Study) -> Vec<String> {
    let devices = study.stack.iter().filter(|stack| stack.allow_write);
    let devices = devices.map(|stack| format!("everything on {}", stack.device.text()));
    let schemas = study.experiment.iter().filter_map(|experiment| {
        let sql = experiment.job.first().sql()?;
        let (name, dsn) = (sql.allow_overwrite.as_ref()?, sql.dsn.as_ref()?);
        Some(format!("tables {} of database {name} on {dsn}", sql.table_names().join(", ")))
    });
    let variables = study.experiment.iter().filter_map(|experiment| {
        let sql = experiment.job.first().sql()?;
        let dsn = sql.dsn.as_ref().filter(|_| !sql.change.is_empty())?;
        let names = sql.change.iter().flat_map(|change| change.set.split(';'));
        let names: Vec<&str> = names.filter_map(|pair| pair.split('=').next()).collect();
        Some(format!(
            "variables {} of the server of {dsn}, until each trial ends (needs SUPER)",
            names.join(", ")
        ))
    });
    devices.chain(schemas).chain(variables).collect()
}

/// Minimum Jaro-Winkler similarity (0 to 1) for suggesting a name.
const LIKE: f64 = 0.85;

/// The most similar name.
fn nearest(name: &str, known: Vec<&'static str>) -> Option<&'static str> {
    let like = |known: &'static str| (known, strsim::jaro_winkler(name, known));
    let all = known.into_iter().map(like).filter(|(_, like)| *like >= LIKE);
    all.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(known, _)| known)
}

/// Finds a study: a file of that name, else a built-in one.
///
/// # Errors
/// If there is neither, naming the built-in ones.
pub fn load_study(name: &str) -> Result<StudyText, RunnerError> {
    let path = Path::new(name);
    if path.exists() && !path.is_dir() {
        let text = read_text(path)
            .map_err(|source| RunnerError::StudyFile { path: path.into(), source })?;
        return Ok(StudyText { name: name.to_owned(), text });
    }
    match STUDIES.iter().find(|(built_in, _)| *built_in == name) {
        Some((built_in, text)) => {
            Ok(StudyText { name: format!("{built_in} (built in)"), text: (*text).to_owned() })
        }
        None => {
            let engines: Vec<&'static str> = engines::commands().map(|one| one.command).collect();
            let mut all = built_in_studies();
            let known = format!("{}; engines: {}", all.join(", "), engines.join(", "));
            all.extend(engines);
            Err(RunnerError::NoStudy { path: PathBuf::from(name), known, near: nearest(name, all) })
        }
    }
}

/// Names of the built-in device profiles.
#[must_use]
pub fn built_in_profiles() -> Vec<&'static str> {
    PROFILES.iter().map(|(name, _)| *name).collect()
}

/// The text of a profile: a built-in one by its name or the end of it (`gp3`), also with other IOPS and
/// throughput of a volume (`aws-gp3+iops=6000+throughput=250MiB`), or a file if the name ends in `.toml`.
///
/// # Errors
/// If it does not exist, several have this end, or it has no such setting.
pub fn profile_text(name: &str) -> Result<String, RunnerError> {
    // Studies write the prefix.
    let name = name.strip_prefix("model:").unwrap_or(name);
    let refuse = |reason: String| RunnerError::Profile { name: name.to_owned(), reason };
    if name.ends_with(".toml") {
        return read_text(Path::new(name)).map_err(|error| refuse(error.to_string()));
    }
    if let Some((volume, settings)) = name.split_once('+') {
        return provisioned(name, &profile_text(volume)?, settings).map_err(refuse);
    }
    let ends: Vec<_> =
        PROFILES.iter().filter(|(built_in, _)| built_in.ends_with(&format!("-{name}"))).collect();
    let exact = PROFILES.iter().find(|(built_in, _)| *built_in == name);
    match (exact, ends.as_slice()) {
        (Some((_, text)), _) | (None, [(_, text)]) => Ok((*text).to_owned()),
        (None, [_, ..]) => {
            let names: Vec<&str> = ends.iter().map(|(built_in, _)| *built_in).collect();
            Err(refuse(format!("several profiles end so: {}", names.join(", "))))
        }
        (None, []) => Err(refuse(match nearest(name, built_in_profiles()) {
            Some(near) => format!("no such profile; did you mean {near}?"),
            None => {
                format!("no such profile; built in: {}", built_in_profiles().join(", "))
            }
        })),
    }
}

/// The profile of a cloud volume with other IOPS and throughput: `iops=6000+throughput=250MiB`. Its burst of
/// operations grows with the rate; published results of the volume do not apply.
fn provisioned(name: &str, text: &str, settings: &str) -> Result<String, String> {
    let mut file: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
    let title = file.get("title").and_then(toml::Value::as_str).unwrap_or_default();
    let title = title.split(" (").next().unwrap_or_default().trim_end_matches(" base").to_owned();
    let cloud = file.get_mut("cloud").and_then(toml::Value::as_table_mut);
    let cloud = cloud.ok_or("only cloud volumes have provisioned IOPS and throughput")?;
    let mut set = |key: &str, value: toml::Value| {
        let constant = cloud.get_mut(key).and_then(toml::Value::as_table_mut);
        let constant = constant.ok_or_else(|| format!("the profile has no `{key}`"))?;
        let before = constant.insert("value".into(), value);
        constant.insert("source".into(), "provisioned; bursts grow with the rate".into());
        constant.insert("kind".into(), "assumed".into());
        Ok::<_, String>(before)
    };
    let mut words = Vec::new();
    for setting in settings.split('+') {
        match setting.split_once('=') {
            Some(("iops", count)) => {
                let wrong = || format!("iops={count}; example: iops=6000");
                let iops: u32 = count.parse().map_err(|_| wrong())?;
                let before = set("operations", format!("{iops}/s").into())?;
                let rate = before.and_then(|value| value.as_str()?.parse::<Rate>().ok());
                let grown = f64::from(iops) / rate.map_or(1.0, |rate| rate.get() as f64);
                let burst = set("operations_burst", toml::Value::Integer(0))?;
                let burst = burst.and_then(|value| value.as_integer()).unwrap_or(1) as f64;
                set("operations_burst", toml::Value::Integer((burst * grown).ceil() as i64))?;
                words.push(format!("{iops} IOPS"));
            }
            Some(("throughput", bytes)) => {
                let bytes: Bytes = bytes.parse().map_err(|error| format!("throughput: {error}"))?;
                set("bandwidth", bytes.exact().into())?;
                words.push(format!("{bytes}/s"));
            }
            _ => {
                return Err(format!(
                    "setting `{setting}`; allowed: iops=N, throughput=SIZE, joined by +"
                ));
            }
        }
    }
    file.insert("name".into(), name.into());
    file.insert("title".into(), format!("{title} {}", words.join(" ")).into());
    file.remove("acceptance");
    file.remove("phenomenon");
    toml::to_string(&file).map_err(|error| error.to_string())
}

/// The device profile of that name, with its layers.
///
/// # Errors
/// If it does not exist or is invalid.
pub fn profile(name: &str) -> Result<Profile, RunnerError> {
    let refuse = |reason: String| RunnerError::Profile { name: name.to_owned(), reason };
    let lookup = |name: &str| profile_text(name).map_err(|error| error.to_string());
    let text = profile_text(name)?;
    let profile = Profile::parse_with(&text, &lookup).map_err(|error| refuse(error.to_string()))?;
    let unknown = profile.acceptance.iter().find(|job| HostModel::named(&job.host).is_none());
    match unknown {
        Some(job) => Err(refuse(format!(
            "an [[acceptance]] names the host path `{}`; allowed: {}",
            job.host,
            HostModel::names().join(", ")
        ))),
        None => Ok(profile),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A volume with other IOPS must differ in them only, and a wrong setting must not be ignored.
    #[test]
    fn volumes_are_provisioned_and_short_names_found() {
        let volume = |name| match profile(name).map(|one| (one.title, one.parameters)) {
            Ok((title, device::Parameters::Cloud(cloud))) => Ok((title, cloud)),
            Ok(_) => panic!("no volume"),
            Err(error) => Err(error.to_string()),
        };
        let (title, cloud) = volume("gp3+iops=6000+throughput=250MiB").expect("a volume");
        assert_eq!(title, "Amazon EBS gp3 6000 IOPS 250 MiB/s");
        assert_eq!((cloud.operations.value.get(), cloud.bandwidth.value.get()), (6000, 250 << 20));
        assert_eq!(cloud.operations_burst.value, 300, "150 at 3000 operations per second");
        assert_eq!(cloud.latency_median.value, volume("aws-gp3").unwrap().1.latency_median.value);
        for wrong in ["gp3+iops=0", "gp3+iops=x", "gp3+speed=9", "gp3+", "990-pro+iops=6000"] {
            assert!(profile(wrong).is_err(), "{wrong}");
        }
        assert_eq!(profile("990-pro").expect("one ends so").name, "samsung-990-pro");
        assert!(profile("pro").unwrap_err().to_string().contains("several profiles"));
    }

    #[test]
    fn everything_that_ships_parses() {
        for (name, text) in STUDIES {
            let study = study::parse(text, engines::list())
                .unwrap_or_else(|error| panic!("{name}: {error}"));
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
        let devices = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../devices");
        let files = std::fs::read_dir(devices).unwrap().flatten().count();
        assert_eq!(PROFILES.len(), files, "a profile is not in the catalog");
    }

    #[test]
    fn a_name_that_is_nothing_lists_what_there_is() {
        assert!(load_study("no-such").unwrap_err().to_string().contains("quickstart"));
        assert!(profile("no-such").unwrap_err().to_string().contains("intel-p4800x"));
    }
}
