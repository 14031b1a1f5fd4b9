//! One file that holds a run and all that was made of it, and the proof that it can be made again.
//!
//! A bundle is a gzipped tar with one folder: the run's files, the report, the figures as CSV and JSON, the
//! published table that the study repeats, and SHA-256 sums of all. Invariants: the same run gives the same
//! bytes (no times, no owners, sorted names); what is unpacked is plain files in that folder and nothing
//! else. What it is not: a backup of the data that was measured on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use archive::Run;
use flate2::{Compression, GzBuilder, read::MultiGzDecoder};
use sha2::{Digest as _, Sha256};

use crate::exit::{self, ExitCode};
use crate::result_file::{self, There};
use crate::show::Failure;
use crate::words::plain;

/// Names in the folder of a bundle, besides the run's own.
const REPORT: &str = "report.html";
const CSV: &str = "figures.csv";
const JSON: &str = "figures.json";
const PUBLISHED: &str = "published.toml";
const SUMS: &str = "SHA256SUMS";
/// Bytes of a bundle, unpacked, at most.
const BYTES_MAX: u64 = 1 << 30;
/// Journals of trials that were cut short lie beside the others under such names.
const RUNNING: &str = ".running-";

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
    // Below it the bundle would be taken for a part of the run.
    let (inside, own) = (output.parent().map(fs::canonicalize), fs::canonicalize(run));
    if let (Some(Ok(inside)), Ok(own)) = (inside, own)
        && inside.starts_with(own.join("trials"))
    {
        let why = "it would lie among the trials of the run; choose another -o";
        return Err(failed(io::Error::other(why)));
    }
    let mut files = Vec::new();
    collect(run, "", &mut files).map_err(failed)?;
    let members = members_of(&name, files, made(read)?);
    // What would not pass is not handed on: no trials, a run that goes on, links.
    if let Some(why) = differences(&members).map_err(failed)?.first() {
        let why = format!("{why}; a bundle needs a run with trials that does not go on");
        return Err(failed(io::Error::other(why)));
    }
    let packed = gzip(&tar_of(&members).map_err(failed)?).map_err(failed)?;
    result_file::write_bytes(&packed, &output, There::or_any(force))?;
    // Into a pipe the name would follow the bytes.
    if fs::metadata(&output).is_ok_and(|facts| facts.is_file()) {
        out!("{}", plain(&output.display().to_string()));
    }
    Ok(exit::OK)
}

/// The files of a run and what is made of it, with the list of their sums, in the folder `name`.
fn members_of(name: &str, mut files: Vec<Member>, made: Vec<Member>) -> Vec<Member> {
    files.retain(|(name, _)| is_of_run(name));
    files.extend(made);
    files.sort();
    let sums: String =
        files.iter().map(|(name, bytes)| format!("{}  {name}\n", sum(bytes))).collect();
    files.push((SUMS.to_owned(), sums.into_bytes()));
    files.into_iter().map(|(file, bytes)| (format!("{name}/{file}"), bytes)).collect()
}

/// Whether a file of a run folder is part of the run, and not of what was made of it or lies beside.
fn is_of_run(name: &str) -> bool {
    RUN_FILES.contains(&name) || name.starts_with("trials/") || name.starts_with("evidence-")
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

/// The files of a run: plain ones; of names that begin with a dot the journals of trials alone.
fn collect(folder: &Path, below: &str, out: &mut Vec<Member>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let Ok(name) = entry.file_name().into_string() else {
            return Err(io::Error::other("a name in the run folder is no text"));
        };
        if name.starts_with('.') && !name.starts_with(RUNNING) {
            continue;
        }
        let folder = format!("{below}{name}/");
        if kind.is_dir() && !folder.starts_with("trials/") {
            continue;
        }
        if kind.is_dir() {
            collect(&entry.path(), &format!("{below}{name}/"), out)?;
        } else if !is_of_run(&format!("{below}{name}")) {
            // A page, a log: made of the run, or beside it.
        } else if kind.is_file() && is_plain(&name) {
            let there: u64 = out.iter().map(|(_, bytes)| bytes.len() as u64).sum();
            if there + entry.metadata()?.len() > BYTES_MAX {
                return Err(io::Error::other("the run has more than 1 GiB, no bundle has"));
            }
            out.push((format!("{below}{name}"), fs::read(entry.path())?));
        } else {
            return Err(io::Error::other(format!("{below}{name:?} is no plain file of a run")));
        }
    }
    Ok(())
}

/// Whether a name can stand in a list of sums and leads nowhere else.
fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name != "."
        && name != ".."
        && !name.contains(|c: char| c.is_control() || c == '\\')
}

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The members as a tar, the same bytes each time.
fn tar_of(members: &[Member]) -> io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, bytes) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        tar.append_data(&mut header, name, bytes.as_slice())?;
    }
    tar.into_inner()
}

fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::default());
    gzip.write_all(bytes)?;
    gzip.finish()
}

/// Unpacks a bundle, compares every sum, and makes report and figures again.
///
/// # Errors
/// Where the file is no bundle.
pub fn check(bundle: &Path) -> Result<ExitCode, Failure> {
    let failed = |error: io::Error| Failure::Input(bundle.display().to_string(), error);
    let members = unpack(bundle).map_err(failed)?;
    let differing = differences(&members).map_err(failed)?;
    for line in &differing {
        out!("{}", plain(line));
    }
    if differing.is_empty() {
        let folder = members.first().and_then(|(name, _)| name.split_once('/'));
        let folder = plain(folder.map_or("", |(folder, _)| folder));
        out!(
            "{folder}: {} files whole; report and figures made again byte for byte",
            members.len()
        );
        return Ok(exit::OK);
    }
    say!("a report is made again byte for byte by the version of Crosspoint that made it");
    Ok(exit::NOT_KEPT)
}

/// What of a bundle is not as its sums say, or is another when it is made again from the run in it.
fn differences(members: &[Member]) -> io::Result<Vec<String>> {
    let folder = members.first().and_then(|(name, _)| name.split_once('/'));
    let Some((folder, _)) = folder else { return Err(io::Error::other("it holds no folder")) };
    let inside: BTreeMap<&str, &[u8]> = members
        .iter()
        .filter_map(|(name, bytes)| Some((name.strip_prefix(folder)?.strip_prefix('/')?, &**bytes)))
        .collect();
    if inside.len() != members.len() {
        return Err(io::Error::other("it has names twice, or outside of its folder"));
    }
    let wrong = wrong_sums(&inside);
    if !wrong.is_empty() {
        return Ok(wrong
            .into_iter()
            .map(|name| format!("{name}: its checksum is wrong"))
            .collect());
    }
    let scratch = tempfile::tempdir()?;
    for (name, bytes) in members {
        let path = scratch.path().join(name);
        fs::create_dir_all(path.parent().unwrap_or(scratch.path()))?;
        fs::write(&path, bytes)?;
    }
    let run = Run::read(&scratch.path().join(folder)).map_err(io::Error::other)?;
    let again = made(run).map_err(|_| io::Error::other("its report cannot be made"))?;
    let mut differing = Vec::new();
    for (name, bytes) in &again {
        if inside.get(name.as_str()).is_none_or(|stored| *stored != bytes.as_slice()) {
            differing.push(format!("{name}: made again it is another"));
        }
    }
    // Beside what is made there is nothing but the run.
    let known: BTreeSet<&str> = again.iter().map(|(name, _)| name.as_str()).chain([SUMS]).collect();
    let foreign = inside.keys().filter(|name| !known.contains(**name) && !is_of_run(name));
    differing.extend(foreign.map(|name| format!("{name}: does not belong into a bundle")));
    Ok(differing)
}

/// Files of a run besides its trials.
const RUN_FILES: [&str; 4] = ["run.json", "study.toml", "study.original.toml", "sums.txt"];

/// Names whose bytes are not those of the list, those that it does not name, and those that it names twice.
fn wrong_sums(inside: &BTreeMap<&str, &[u8]>) -> Vec<String> {
    let Some(list) = inside.get(SUMS) else { return vec![SUMS.to_owned()] };
    let list = String::from_utf8_lossy(list);
    let mut listed: BTreeMap<&str, &str> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (sum, name) in list.lines().filter_map(|line| line.split_once("  ")) {
        if listed.insert(name, sum).is_some() || !inside.contains_key(name) {
            wrong.push(name.to_owned());
        }
    }
    let differs = inside.iter().filter(|(name, bytes)| {
        **name != SUMS && listed.get(*name).is_none_or(|listed| *listed != sum(bytes))
    });
    wrong.extend(differs.map(|(name, _)| (*name).to_owned()));
    wrong
}

/// The members of a bundle, which is the tar of them and not a byte more.
fn unpack(bundle: &Path) -> io::Result<Vec<Member>> {
    if !fs::metadata(bundle)?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    MultiGzDecoder::new(fs::File::open(bundle)?).take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(io::Error::other("it holds more than 1 GiB"));
    }
    let mut out: Vec<Member> = Vec::new();
    for entry in tar::Archive::new(bytes.as_slice()).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let name = path.to_str().unwrap_or_default().to_owned();
        let plain = name.contains('/') && name.split('/').all(is_plain);
        if !plain || !entry.header().entry_type().is_file() {
            return Err(io::Error::other(format!("{name:?} does not belong into a bundle")));
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        out.push((name, bytes));
    }
    if !is_the_tar_of(&bytes, &out)? {
        return Err(io::Error::other(
            "it holds more than its files, or was packed by another program",
        ));
    }
    Ok(out)
}

/// Whether `bytes` are what these members are packed into.
fn is_the_tar_of(bytes: &[u8], members: &[Member]) -> io::Result<bool> {
    Ok(tar_of(members)? == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another number in the report, with all sums right: only making it again finds that.
    #[test]
    fn a_report_that_is_another_is_found() {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/runs/v1");
        let mut files = Vec::new();
        collect(&place, "", &mut files).unwrap();
        let made = || made(Run::read(&place).unwrap()).unwrap();
        let members = members_of("v1", files.clone(), made());
        assert!(differences(&members).unwrap().is_empty());
        let mut forged = made();
        for (name, bytes) in &mut forged {
            if name == REPORT {
                *bytes = String::from_utf8_lossy(bytes).replacen("measured", "measured!", 1).into();
            }
        }
        let found = differences(&members_of("v1", files.clone(), forged)).unwrap();
        assert_eq!(found, ["report.html: made again it is another"]);
        let mut more = made();
        more.push(("index.html".to_owned(), b"mine".to_vec()));
        let found = differences(&members_of("v1", files, more)).unwrap();
        assert_eq!(found, ["index.html: does not belong into a bundle"]);
    }

    /// A bundle that is changed on the way must not pass for the run.
    #[test]
    fn what_was_changed_is_found_and_what_leads_outside_refused() {
        let list = format!("{}  a\n", sum(b"one"));
        let of = |list: &str, bytes: &[u8]| {
            wrong_sums(&BTreeMap::from([("a", bytes), (SUMS, list.as_bytes())]))
        };
        assert!(of(&list, b"one").is_empty());
        assert_eq!(of(&list, b"two"), ["a"]);
        assert_eq!(of(&format!("{list}{}  a\n", sum(b"two")), b"two"), ["a"], "listed twice");
        assert_eq!(of(&format!("{list}{}  b\n", sum(b"")), b"one"), ["b"], "missing");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b.tar.gz");
        let write = |names: &[&str]| {
            let members: Vec<Member> =
                names.iter().map(|name| ((*name).to_owned(), b"one".to_vec())).collect();
            fs::write(&path, gzip(&tar_of(&members).unwrap()).unwrap()).unwrap();
            unpack(&path)
        };
        assert_eq!(write(&["r/a"]).unwrap(), [("r/a".to_owned(), b"one".to_vec())]);
        // The tar crate itself refuses to write what leads outside.
        assert!(write(&["a"]).is_err(), "no folder");
        assert!(differences(&write(&["r/a", "r/a"]).unwrap()).is_err(), "twice");
        assert!(differences(&write(&["r/a", "s/a"]).unwrap()).is_err(), "two folders");
        // A second part of the file, which another unpacker would take as well.
        let members = [("r/a".to_owned(), b"one".to_vec())];
        let mut bytes = gzip(&tar_of(&members).unwrap()).unwrap();
        bytes.extend(gzip(&tar_of(&[("r/a".to_owned(), b"two".to_vec())]).unwrap()).unwrap());
        fs::write(&path, bytes).unwrap();
        assert!(unpack(&path).is_err(), "two members");
        fs::write(&path, b"no bundle").unwrap();
        assert!(unpack(&path).is_err());
    }
}
