//! One file that holds a run and all that was made of it, and the proof that it can be made again.
//!
//! A bundle is a gzipped tar with one folder: the run's files, the report, the figures as CSV and JSON, the
//! published table that the study repeats, and SHA-256 sums of all. Invariants: the same run gives the same
//! bytes (no times, no owners, sorted names); what is unpacked is plain files in that folder and nothing
//! else. What it is not: a backup of the data that was measured on.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use archive::Run;
use flate2::{Compression, GzBuilder, read::GzDecoder};
use sha2::{Digest as _, Sha256};

use crate::exit::{self, ExitCode};
use crate::result_file::{self, There};
use crate::show::Failure;

/// Names in the folder of a bundle, besides the run's own.
const REPORT: &str = "report.html";
const CSV: &str = "figures.csv";
const JSON: &str = "figures.json";
const PUBLISHED: &str = "published.toml";
const SUMS: &str = "SHA256SUMS";
/// Bytes and files of a bundle that are unpacked at most.
const BYTES_MAX: u64 = 8 << 30;
const FILES_MAX: usize = 500_000;

/// A name in the folder and what is in that file.
type Member = (String, Vec<u8>);

/// Writes the bundle of `run` to `output`.
///
/// # Errors
/// Where the run cannot be read, or the file not be written.
pub fn make(run: &Path, output: Option<&Path>, force: bool) -> Result<ExitCode, Failure> {
    let read = Run::read(run)?;
    let name = read.name.clone();
    let output = output.map_or_else(|| PathBuf::from(format!("{name}.tar.gz")), Path::to_path_buf);
    let failed = |error| Failure::Output(output.display().to_string(), error);
    let mut members = Vec::new();
    collect(run, "", &mut members).map_err(failed)?;
    members.retain(|(name, _)| ![REPORT, CSV, JSON, PUBLISHED, SUMS].contains(&name.as_str()));
    members.extend(made(read)?);
    members.sort();
    let sums: String =
        members.iter().map(|(name, bytes)| format!("{}  {name}\n", sum(bytes))).collect();
    members.push((SUMS.to_owned(), sums.into_bytes()));
    let packed = pack(&name, &members).map_err(failed)?;
    result_file::write_bytes(&packed, &output, There::or_any(force))?;
    out!("{}", output.display());
    Ok(exit::OK)
}

/// What is made of a run: the report, the figures, and the published table.
fn made(run: Run) -> Result<Vec<Member>, Failure> {
    let published = analysis::published::source(&run.header.study);
    let runs = [run];
    let figures = analysis::figures(&runs);
    let mut out = vec![
        (CSV.to_owned(), report::csv(&figures).into_bytes()),
        (JSON.to_owned(), analysis::document(&figures).into_bytes()),
    ];
    out.extend(published.map(|text| (PUBLISHED.to_owned(), text.as_bytes().to_vec())));
    out.push((REPORT.to_owned(), report::html(&runs).map_err(Failure::Report)?.into_bytes()));
    Ok(out)
}

/// The files of a run: plain ones whose names do not begin with a dot.
fn collect(folder: &Path, below: &str, out: &mut Vec<Member>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type()?;
        if name.starts_with('.') {
            continue;
        }
        if kind.is_dir() {
            collect(&entry.path(), &format!("{below}{name}/"), out)?;
        } else if kind.is_file() {
            out.push((format!("{below}{name}"), fs::read(entry.path())?));
        }
    }
    Ok(())
}

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn pack(folder: &str, members: &[Member]) -> io::Result<Vec<u8>> {
    let gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::default());
    let mut tar = tar::Builder::new(gzip);
    for (name, bytes) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        tar.append_data(&mut header, format!("{folder}/{name}"), bytes.as_slice())?;
    }
    tar.into_inner()?.finish()
}

/// Unpacks a bundle into a new directory, compares every sum, and makes report and figures again.
///
/// # Errors
/// Where the file is no bundle.
pub fn check(bundle: &Path) -> Result<ExitCode, Failure> {
    let failed = |error: io::Error| Failure::Input(bundle.display().to_string(), error);
    let scratch = tempfile::tempdir().map_err(failed)?;
    let members = unpack(bundle).map_err(failed)?;
    let folder = members.first().and_then(|(name, _)| name.split_once('/'));
    let folder = folder.map(|(folder, _)| folder.to_owned());
    let folder = folder.ok_or_else(|| failed(io::Error::other("it holds no folder")))?;
    for (name, bytes) in &members {
        let path = scratch.path().join(name);
        let parent = path.parent().unwrap_or(scratch.path());
        fs::create_dir_all(parent).and_then(|()| fs::write(&path, bytes)).map_err(failed)?;
    }
    let run = scratch.path().join(&folder);
    let wrong = wrong_sums(&members, &folder);
    let mut differing: Vec<String> =
        wrong.into_iter().map(|name| format!("{name}: its checksum is wrong")).collect();
    if differing.is_empty() {
        for (name, bytes) in made(Run::read(&run)?)? {
            let stored = members.iter().find(|(other, _)| *other == format!("{folder}/{name}"));
            if stored.is_none_or(|(_, stored)| *stored != bytes) {
                differing.push(format!("{name}: made again it is another"));
            }
        }
    }
    for line in &differing {
        out!("{line}");
    }
    if differing.is_empty() {
        out!(
            "{folder}: {} files whole; report and figures made again byte for byte",
            members.len()
        );
        return Ok(exit::OK);
    }
    say!("a report is made again byte for byte by the version of Crosspoint that made it");
    Ok(exit::NOT_KEPT)
}

/// Names whose bytes are not those of the list, and those that it does not name.
fn wrong_sums(members: &[Member], folder: &str) -> Vec<String> {
    let list = members.iter().find(|(name, _)| *name == format!("{folder}/{SUMS}"));
    let Some((_, list)) = list else { return vec![format!("{SUMS} is missing")] };
    let list = String::from_utf8_lossy(list);
    let listed: Vec<(&str, &str)> = list.lines().filter_map(|line| line.split_once("  ")).collect();
    let inside = |name: &str| name.strip_prefix(&format!("{folder}/")).map(str::to_owned);
    let mut wrong: Vec<String> = members
        .iter()
        .filter_map(|(name, bytes)| Some((inside(name)?, bytes)))
        .filter(|(name, _)| name != SUMS)
        .filter(|(name, bytes)| {
            !listed.iter().any(|(sum_of, other)| other == name && *sum_of == sum(bytes))
        })
        .map(|(name, _)| name)
        .collect();
    let there =
        |wanted: &str| members.iter().any(|(name, _)| inside(name).as_deref() == Some(wanted));
    let missing = listed.iter().filter(|(_, name)| !there(name));
    wrong.extend(missing.map(|(_, name)| (*name).to_owned()));
    wrong
}

/// The plain files of a bundle, all in one folder.
fn unpack(bundle: &Path) -> io::Result<Vec<Member>> {
    let mut archive = tar::Archive::new(GzDecoder::new(fs::File::open(bundle)?).take(BYTES_MAX));
    let mut out: Vec<Member> = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        let name = path.to_string_lossy().into_owned();
        if !plain || !entry.header().entry_type().is_file() || out.len() >= FILES_MAX {
            return Err(io::Error::other(format!("{name:?} does not belong into a bundle")));
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        out.push((name, bytes));
    }
    let folder = |name: &str| name.split_once('/').map(|(folder, _)| folder.to_owned());
    let first = out.first().and_then(|(name, _)| folder(name));
    if first.is_none() || out.iter().any(|(name, _)| folder(name) != first) {
        return Err(io::Error::other("it is no bundle: a bundle has one folder"));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bundle that is changed on the way must not pass for the run.
    #[test]
    fn what_was_changed_is_found_and_what_leads_outside_refused() {
        let list = format!("{}  a\n", sum(b"one"));
        let of = |bytes: &[u8]| {
            vec![
                ("r/a".to_owned(), bytes.to_vec()),
                (format!("r/{SUMS}"), list.clone().into_bytes()),
            ]
        };
        assert!(wrong_sums(&of(b"one"), "r").is_empty());
        assert_eq!(wrong_sums(&of(b"two"), "r"), ["a"]);
        assert_eq!(wrong_sums(&of(b"one")[1..], "r"), ["a"], "missing");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b.tar.gz");
        fs::write(&path, pack("r", &[("a".into(), b"one".to_vec())]).unwrap()).unwrap();
        assert_eq!(unpack(&path).unwrap(), [("r/a".to_owned(), b"one".to_vec())]);
        fs::write(&path, b"no bundle").unwrap();
        assert!(unpack(&path).is_err());
    }
}
