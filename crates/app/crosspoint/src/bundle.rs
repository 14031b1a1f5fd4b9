//! Bundles: one file with a run and everything made from it, reproducible and verifiable.
//!
//! A bundle is a gzipped tar with one folder: the run's files, the report, the figures as CSV and JSON, the
//! published table, and SHA-256 sums. Invariants: the same run gives the same bytes (no times, no owners,
//! sorted names); only regular files in that folder are unpacked; the run's files are streamed, while
//! everything made from it is held in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use archive::Run;
use archive::output::{Expected, new_file};
use flate2::{Compression, GzBuilder, read::MultiGzDecoder};
use sha2::{Digest as _, Sha256};

use crate::exit::{self, ExitCode};
use crate::result_file::Output;
use crate::show::Failure;
use crate::words::plain;

/// Names in a bundle's folder besides the run's own.
const REPORT: &str = "report.html";
const CSV: &str = "figures.csv";
const JSON: &str = "figures.json";
const PUBLISHED: &str = "published.toml";
const SUMS: &str = "SHA256SUMS";
/// Files of a run besides its trials.
const RUN_FILES: [&str; 4] = ["run.json", "study.toml", "study.original.toml", "sums.txt"];
/// Prefix of journals of unfinished trials.
const RUNNING: &str = ".running-";
/// Limits of a bundle: unpacked bytes, number of files, bytes of a file name.
const BYTES_MAX: u64 = 1 << 30;
const FILES_MAX: usize = 100_000;
const NAME_MAX: u64 = 512;
/// Maximum compression ratio, and unpacked bytes allowed beyond it; runs compress 5- to 30-fold.
const RATIO_MAX: u64 = 100;
const RATIO_FREE: u64 = 16 << 20;
/// Differences that are listed.
const LISTED_MAX: usize = 20;

/// A file of a bundle.
struct Member {
    /// File name, with the folder of the bundle.
    name: String,
    content: Content,
}

enum Content {
    Bytes(Vec<u8>),
    File(PathBuf),
}

impl Content {
    fn open(&self) -> io::Result<(Box<dyn Read + '_>, u64)> {
        match self {
            Self::Bytes(bytes) => Ok((Box::new(bytes.as_slice()), bytes.len() as u64)),
            Self::File(path) => {
                let file = File::open(path)?;
                let length = file.metadata()?.len();
                Ok((Box::new(BufReader::new(file).take(length)), length))
            }
        }
    }

    fn sum(&self) -> io::Result<String> {
        let (mut content, _) = self.open()?;
        let (mut hasher, mut part) = (Sha256::new(), vec![0; 64 << 10]);
        loop {
            match content.read(&mut part)? {
                0 => break,
                count => hasher.update(&part[..count]),
            }
        }
        Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn equals(&self, other: &[u8]) -> io::Result<bool> {
        let mut compared = Expected(other);
        let (mut content, length) = self.open()?;
        Ok(length == other.len() as u64 && io::copy(&mut content, &mut compared).is_ok())
    }
}

/// Writes the bundle of `run` to `output`, `-` for stdout.
pub fn make(run: &Path, output: Option<&Path>, force: bool) -> Result<ExitCode, Failure> {
    let default = run.canonicalize().ok();
    let default = default.as_deref().and_then(Path::file_name).unwrap_or_default();
    let default = PathBuf::from(format!("{}.tar.gz", default.to_string_lossy()));
    let output = Output::named(output.unwrap_or(&default), force);
    let failed = |error| Failure::Output(output.path.display().to_string(), error);
    output.check()?;
    let read = Run::read(run, engines::list())?;
    let name = read.name.clone();
    let mut files = Vec::new();
    collect(run, "", &mut files).map_err(failed)?;
    let members = members_of(&name, files, made(read)?).map_err(failed)?;
    let scratch = tempfile::tempdir().map_err(failed)?;
    let packed = scratch.path().join("bundle");
    let file = new_file(&packed).map_err(failed)?;
    write_packed(&members, file).map_err(failed)?;
    // A bundle that would fail its own check is not written.
    let checked = check_file(&packed).map_err(failed)?;
    if let Some(why) = checked.differing.first() {
        let why = format!("{why}; a bundle needs a finished run with trials");
        return Err(failed(io::Error::other(why)));
    }
    output.copy_from(File::open(&packed).map_err(failed)?)?;
    output.print_path();
    Ok(exit::OK)
}

/// The files of a run and its products, with their list of sums, in the folder `name`.
fn members_of(name: &str, mut files: Vec<Member>, made: Vec<Member>) -> io::Result<Vec<Member>> {
    files.retain(|member| is_of_run(&member.name));
    files.extend(made);
    files.sort_by(|a, b| a.name.cmp(&b.name));
    let mut sums = String::new();
    for member in &files {
        sums.push_str(&format!("{}  {}\n", member.content.sum()?, member.name));
    }
    files.push(Member { name: SUMS.to_owned(), content: Content::Bytes(sums.into_bytes()) });
    files.iter_mut().for_each(|member| member.name = format!("{name}/{}", member.name));
    Ok(files)
}

/// Whether a file of a run folder is part of the run.
fn is_of_run(name: &str) -> bool {
    RUN_FILES.contains(&name) || name.starts_with("trials/") || name.starts_with("evidence-")
}

/// The products of a run: report, figures, published table.
fn made(run: Run) -> Result<Vec<Member>, Failure> {
    let published = analysis::published::source(&run.header.study);
    let runs = [run];
    let figures = analysis::figures(&runs);
    let member = |name: &str, bytes: Vec<u8>| Member {
        name: name.to_owned(),
        content: Content::Bytes(bytes),
    };
    let mut out = vec![
        member(CSV, report::csv(&figures).into_bytes()),
        member(JSON, analysis::document(&figures).into_bytes()),
    ];
    out.extend(published.map(|text| member(PUBLISHED, text.as_bytes().to_vec())));
    out.push(member(REPORT, report::html(&runs).map_err(Failure::Report)?.into_bytes()));
    Ok(out)
}

/// Collects the regular files of a run; of the hidden ones only journals.
fn collect(folder: &Path, below: &str, out: &mut Vec<Member>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let Ok(name) = entry.file_name().into_string() else {
            return Err(io::Error::other("a name in the run folder is not UTF-8"));
        };
        if name.starts_with('.') && !name.starts_with(RUNNING) {
            continue;
        }
        let whole = format!("{below}{name}");
        if kind.is_dir() && (whole == "trials" || whole.starts_with("trials/")) {
            collect(&entry.path(), &format!("{whole}/"), out)?;
        } else if kind.is_dir() || !is_of_run(&whole) {
            // Skip products of the run and unrelated files.
        } else if kind.is_file() && is_plain(&name) {
            out.push(Member { name: whole, content: Content::File(entry.path()) });
        } else {
            return Err(io::Error::other(format!("{whole:?} is not a regular file of a run")));
        }
    }
    Ok(())
}

/// Whether a name fits in a checksum list and stays inside the folder.
fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name != "."
        && name != ".."
        && !name.contains(|c: char| c.is_control() || c == '\\')
}

/// Writes the members as a tar, always the same bytes.
fn write_tar(members: &[Member], out: impl Write) -> io::Result<()> {
    let mut tar = tar::Builder::new(out);
    for member in members {
        let (content, length) = member.content.open()?;
        let mut header = tar::Header::new_gnu();
        header.set_size(length);
        header.set_mode(0o644);
        header.set_mtime(0);
        tar.append_data(&mut header, &member.name, content)?;
    }
    tar.into_inner()?.flush()
}

fn write_packed(members: &[Member], out: impl Write) -> io::Result<()> {
    let mut gzip = GzBuilder::new().mtime(0).write(out, Compression::default());
    write_tar(members, &mut gzip)?;
    gzip.finish()?.flush()
}

/// Unpacks a bundle, compares every sum, and regenerates report and figures.
pub fn check(bundle: &Path) -> Result<ExitCode, Failure> {
    let failed = |error: io::Error| Failure::Input(bundle.display().to_string(), error);
    if !fs::metadata(bundle).map_err(failed)?.is_file() {
        return Err(failed(io::Error::other("it is not a regular file")));
    }
    let Checked { folder, files, differing } = check_file(bundle).map_err(failed)?;
    for line in differing.iter().take(LISTED_MAX) {
        out!("{}", plain(line));
    }
    if differing.len() > LISTED_MAX {
        out!("and {} more", differing.len() - LISTED_MAX);
    }
    if differing.is_empty() {
        let folder = plain(&folder);
        out!("{folder}: {files} files intact; report and figures regenerate byte for byte");
        return Ok(exit::OK);
    }
    say!("use the version of Crosspoint that made the bundle");
    Ok(exit::NOT_KEPT)
}

/// A bundle that was unpacked.
struct Checked {
    folder: String,
    files: usize,
    /// Files that differ.
    differing: Vec<String>,
}

fn check_file(bundle: &Path) -> io::Result<Checked> {
    let scratch = tempfile::tempdir()?;
    let members = unpack(bundle, scratch.path())?;
    let folder = members.first().and_then(|member| member.name.split_once('/'));
    let folder = folder.map(|(folder, _)| folder.to_owned()).unwrap_or_default();
    let differing = differences(&members, &folder, scratch.path())?;
    Ok(Checked { folder, files: members.len(), differing })
}

/// Members that differ from their sums or from the regenerated products.
fn differences(members: &[Member], folder: &str, scratch: &Path) -> io::Result<Vec<String>> {
    let inside: BTreeMap<&str, &Content> = members
        .iter()
        .filter_map(|member| {
            Some((member.name.strip_prefix(folder)?.strip_prefix('/')?, &member.content))
        })
        .collect();
    if inside.is_empty() || inside.len() != members.len() {
        return Err(io::Error::other("duplicate names, or names outside its folder"));
    }
    let wrong = wrong_sums(&inside)?;
    if !wrong.is_empty() {
        return Ok(wrong.into_iter().map(|name| format!("{name}: checksum mismatch")).collect());
    }
    let run = Run::read(&scratch.join(folder), engines::list()).map_err(io::Error::other)?;
    let again = made(run).map_err(|_| io::Error::other("its report cannot be made"))?;
    let mut differing = Vec::new();
    for Member { name, content } in &again {
        let Content::Bytes(bytes) = content else { continue };
        let same = inside.get(name.as_str()).map(|stored| stored.equals(bytes)).transpose()?;
        if same != Some(true) {
            differing.push(format!("{name}: differs when regenerated"));
        }
    }
    let known: BTreeSet<&str> = again.iter().map(|one| one.name.as_str()).chain([SUMS]).collect();
    let foreign = inside.keys().filter(|name| !known.contains(**name) && !is_of_run(name));
    differing.extend(foreign.map(|name| format!("{name}: does not belong in a bundle")));
    Ok(differing)
}

/// Returns the files whose checksum differs from the list, and the files that the list omits, invents or
/// names twice.
fn wrong_sums(inside: &BTreeMap<&str, &Content>) -> io::Result<Vec<String>> {
    let Some(list) = inside.get(SUMS) else { return Ok(vec![SUMS.to_owned()]) };
    let mut text = String::new();
    // A name and its sum for each file.
    list.open()?.0.take(FILES_MAX as u64 * 200).read_to_string(&mut text)?;
    let mut listed: BTreeMap<&str, &str> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (sum, name) in text.lines().take(FILES_MAX).filter_map(|line| line.split_once("  ")) {
        if listed.insert(name, sum).is_some() || !inside.contains_key(name) {
            wrong.push(name.to_owned());
        }
    }
    for (name, content) in inside.iter().filter(|(name, _)| **name != SUMS) {
        if listed.get(name).is_none_or(|listed| content.sum().ok().as_deref() != Some(listed)) {
            wrong.push((*name).to_owned());
        }
    }
    Ok(wrong)
}

/// Whether a bundle can contain a file of this name.
fn is_member(name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    let place = match parts.as_slice() {
        [_, _] => true,
        [_, folder, _] | [_, folder, _, _] => *folder == "trials",
        _ => false,
    };
    place && name.len() as u64 <= NAME_MAX && parts.into_iter().all(is_plain)
}

/// Unpacks a bundle, which must be exactly the tar of its members, into `scratch`.
fn unpack(bundle: &Path, scratch: &Path) -> io::Result<Vec<Member>> {
    let open = || io::Result::Ok(MultiGzDecoder::new(BufReader::new(File::open(bundle)?)));
    let mut members: Vec<Member> = Vec::new();
    let packed = fs::metadata(bundle)?.len();
    let mut left = BYTES_MAX.min(packed.saturating_mul(RATIO_MAX).saturating_add(RATIO_FREE));
    let mut long_name = None;
    // Extensions are read here: the crate would allocate what their headers claim.
    let mut archive = tar::Archive::new(open()?.take(BYTES_MAX + 1));
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if kind.is_gnu_longname() && entry.size() <= NAME_MAX {
            let mut name = String::new();
            entry.read_to_string(&mut name)?;
            long_name = Some(name.trim_end_matches('\0').to_owned());
            continue;
        }
        let name = match long_name.take() {
            Some(name) => name,
            None => String::from_utf8_lossy(&entry.path_bytes()).into_owned(),
        };
        if !is_member(&name) || !kind.is_file() {
            let name: String = name.chars().take(100).collect();
            return Err(io::Error::other(format!("{name:?} does not belong in a bundle")));
        }
        if entry.size() > left || members.len() == FILES_MAX {
            return Err(io::Error::other("it unpacks to more than the limit of a bundle"));
        }
        left -= entry.size();
        let path = scratch.join(&name);
        fs::create_dir_all(path.parent().unwrap_or(scratch))?;
        let twice = || io::Error::other("duplicate names, or names outside its folder");
        io::copy(&mut entry, &mut new_file(&path).map_err(|_| twice())?)?;
        members.push(Member { name, content: Content::File(path) });
    }
    let more = || io::Error::other("it has extra data, or was packed by another program");
    let mut whole = Expected(open()?);
    write_tar(&members, &mut whole).map_err(|_| more())?;
    match whole.0.read(&mut [0]) {
        Ok(0) => Ok(members),
        _ => Err(more()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(name: &str, bytes: &[u8]) -> Member {
        Member { name: name.to_owned(), content: Content::Bytes(bytes.to_vec()) }
    }

    fn packed(path: &Path, members: &[Member]) {
        write_packed(members, File::create(path).unwrap()).unwrap();
    }

    /// A changed number in the report with correct checksums must be found by rendering the report again.
    #[test]
    fn a_report_that_is_another_is_found() {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/runs/v1");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b.tar.gz");
        let found = |made: Vec<Member>| {
            let mut files = Vec::new();
            collect(&place, "", &mut files).unwrap();
            packed(&path, &members_of("v1", files, made).unwrap());
            check_file(&path).unwrap().differing
        };
        let made = || made(Run::read(&place, engines::list()).unwrap()).unwrap();
        assert!(found(made()).is_empty());
        let mut forged = made();
        for Member { name, content } in &mut forged {
            let Content::Bytes(bytes) = content else { continue };
            if name == REPORT {
                *bytes = String::from_utf8_lossy(bytes).replacen("measured", "measured!", 1).into();
            }
        }
        assert_eq!(found(forged), ["report.html: differs when regenerated"]);
        let mut more = made();
        more.push(bytes("index.html", b"mine"));
        assert_eq!(found(more), ["index.html: does not belong in a bundle"]);
    }

    /// A bundle that was changed in transit must not pass verification.
    #[test]
    fn what_was_changed_is_found_and_what_leads_outside_refused() {
        let one = Content::Bytes(b"one".to_vec());
        let list = format!("{}  a\n", one.sum().unwrap());
        let of = |list: &str, content: &[u8]| {
            let (content, list) =
                (Content::Bytes(content.to_vec()), Content::Bytes(list.as_bytes().to_vec()));
            wrong_sums(&BTreeMap::from([("a", &content), (SUMS, &list)])).unwrap()
        };
        assert!(of(&list, b"one").is_empty());
        assert_eq!(of(&list, b"two"), ["a"]);
        assert_eq!(of(&format!("{list}{list}"), b"one"), ["a"], "listed twice");
        assert_eq!(of(&format!("{list}0  b\n"), b"one"), ["b"], "missing");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b.tar.gz");
        let unpacked = || {
            let scratch = tempfile::tempdir().unwrap();
            unpack(&path, scratch.path()).map(|all| all.len()).map_err(|error| error.to_string())
        };
        let write = |names: &[&str]| {
            let members: Vec<Member> = names.iter().map(|name| bytes(name, b"one")).collect();
            packed(&path, &members);
            unpacked()
        };
        assert_eq!(write(&["r/a"]), Ok(1));
        assert_eq!(write(&[&format!("r/{}", "a".repeat(200))]), Ok(1), "a long name");
        // The tar crate itself refuses to write paths that lead outside.
        assert!(write(&["a"]).is_err(), "no folder");
        assert!(write(&["r/a", "r/a"]).unwrap_err().contains("duplicate"));
        assert_eq!(write(&["r/a", "s/a"]), Ok(2));
        assert!(check_file(&path).is_err_and(|error| error.to_string().contains("outside")));
        // A second gzip member, which another unpacker would also extract.
        let mut both = Vec::new();
        write_packed(&[bytes("r/a", b"one")], &mut both).unwrap();
        write_packed(&[bytes("r/a", b"two")], &mut both).unwrap();
        fs::write(&path, both).unwrap();
        assert!(unpacked().is_err(), "two members");
        fs::write(&path, b"no bundle").unwrap();
        assert!(unpacked().is_err());
    }

    /// A tar header that claims a name of 1 GiB must not cause an allocation of that size.
    #[test]
    fn a_long_name_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b.tar.gz");
        let mut gzip = GzBuilder::new().write(Vec::new(), Compression::best());
        let mut tar = tar::Builder::new(&mut gzip);
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::GNULongName);
        header.set_size(64 << 20);
        tar.append_data(&mut header, "././@LongLink", io::repeat(b'a').take(64 << 20)).unwrap();
        drop(tar);
        fs::write(&path, gzip.finish().unwrap()).unwrap();
        let error = unpack(&path, dir.path()).err().unwrap().to_string();
        assert!(error.contains("does not belong"), "{error}");
    }
}
