//! Checks everything that people read against the style guide: comments, strings, documents, studies, commit
//! subjects.
//!
//! Invariant: a phrase appears here with its replacement, and nowhere else.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Forbidden phrases with their replacements.
const PHRASES: [(&str, &str); 40] = [
    ("beside", "next to, compared with, background"),
    ("anew", "again, from scratch"),
    ("is told", "is notified, receives"),
    ("are told", "are notified, receive"),
    ("goes on", "continues, is in progress"),
    ("go on with", "continue, resume"),
    ("held against", "compared with, validated against"),
    ("may not be judged", "not reliable, inconclusive"),
    ("not to be judged", "not reliable, inconclusive"),
    ("so many", "N, this many"),
    ("what it is not", "nothing: delete it"),
    ("that is not here", "that you do not have, missing"),
    ("that are not here", "that you do not have, missing"),
    ("its own counts", "internal counters"),
    ("can be had", "available"),
    ("put out of the page cache", "evicted from the page cache"),
    ("surely differs", "equivalence margin"),
    ("stretched drive", "time-scaled drive"),
    ("delivered as modelled", "emulation accurate"),
    ("nothing that was counted shows", "measure it, or leave it empty"),
    ("made its writer wait", "write stall"),
    ("is not there", "is missing"),
    ("are not there", "are missing"),
    ("as its model asks", "as its model specifies"),
    ("to be had", "available"),
    ("somebody", "a user, another user, a process"),
    ("anybody", "any user, others"),
    ("is said", "is reported, with a note"),
    ("may be said", "is the verdict, can be reported"),
    ("operations a second", "operations per second"),
    ("reads a second", "reads per second"),
    ("writes a second", "writes per second"),
    ("lookups a second", "lookups per second"),
    ("updates a second", "updates per second"),
    ("transactions a second", "transactions per second"),
    ("requests a second", "requests per second"),
    ("queries a second", "queries per second"),
    ("bytes a second", "bytes per second"),
    ("times a second", "times per second"),
    ("flushes a second", "flushes per second"),
];

/// The first phrase in a line, if it is not part of a name or of code in backticks.
fn dialect(line: &str) -> Option<(&'static str, &'static str)> {
    let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`").to_lowercase();
    let is_name = |c: char| c.is_alphanumeric() || "_.[{".contains(c);
    PHRASES.into_iter().find(|(phrase, _)| {
        prose.match_indices(phrase).any(|(at, _)| {
            let before = prose[..at].chars().next_back();
            let mut after = prose[at + phrase.len()..].chars();
            let next = after.next();
            let starts = before.is_none_or(|c| !is_name(c));
            let ends = next.is_none_or(|c| !c.is_alphanumeric() && !"_]}(".contains(c));
            starts && ends
        })
    })
}

/// The part of a line that people read: in Rust, the comment or the strings. `inside`: whether it begins in a
/// string; afterwards, whether the next one does.
fn prose(path: &Path, line: &str, inside: &mut bool) -> String {
    if path.extension().is_none_or(|extension| extension != "rs") {
        return line.to_owned();
    }
    match line.trim_start() {
        comment if comment.starts_with("//") => comment.to_owned(),
        code => {
            let code = code.replace("\\\"", "'");
            let (code, comment) = code.split_once(" // ").unwrap_or((&code, ""));
            // Parts between quotes.
            let parts = code.split('"').skip(usize::from(!*inside)).step_by(2);
            *inside = code.ends_with('\\');
            // One word alone is a name.
            let parts = parts.filter(|part| part.contains(' ')).chain([comment]);
            parts.collect::<Vec<_>>().join(" \u{b7} ")
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Folders with such files, besides the documents at the root.
const FOLDERS: [&str; 10] = [
    ".ci", "crates", "devices", "docs", "fuzz/src", "published", "python", "scripts", "studies",
    "xtask",
];

/// The files to check.
fn files() -> Vec<PathBuf> {
    let top = std::fs::read_dir(root()).into_iter().flatten().flatten().map(|one| one.path());
    let mut found: Vec<PathBuf> = top.filter(|path| path.is_file()).collect();
    FOLDERS.iter().for_each(|folder| collect(&root().join(folder), &mut found));
    found.retain(|path| {
        let folder = path.parent().unwrap_or(path).strip_prefix(root()).unwrap_or(path);
        let is_text =
            ["devices", "studies", "published"].iter().any(|one| folder == Path::new(one));
        // The phrases themselves, and published tables.
        let left_out = path.ends_with("xtask/tests/wording.rs") || path.ends_with("VALIDATION.md");
        let kind = path.extension().and_then(|one| one.to_str()).unwrap_or_default();
        !left_out
            && match kind {
                "rs" | "md" | "html" | "js" | "css" | "py" | "ipynb" => true,
                "toml" => is_text,
                "" => [".ci", "scripts"].iter().any(|one| folder == Path::new(one)),
                _ => false,
            }
    });
    for needed in [
        ".ci/run",
        "crates/app/report/assets/report.html",
        "crates/live/vtime/src/lib.rs",
        "crates/model/sim/src/lib.rs",
        "devices/aws-gp3.toml",
        "docs/method/fitting.md",
        "fuzz/src/main.rs",
        "published/symas-optane.toml",
        "README.md",
        "scripts/dist",
        "studies/quickstart.toml",
        "xtask/src/main.rs",
    ] {
        assert!(found.contains(&root().join(needed)), "{needed} is not read");
    }
    found
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|one| one.path()) {
        match path.is_dir() {
            true if path.file_name().is_none_or(|name| name != "target") => collect(&path, found),
            true => {}
            false => found.push(path),
        }
    }
}

/// A reader who does not find the terms of the field closes the page.
#[test]
fn everything_that_people_read_uses_the_terms_of_the_field() {
    let mut hits = Vec::new();
    for path in files() {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let mut inside = false;
        for (number, line) in text.lines().enumerate() {
            if let Some((phrase, instead)) = dialect(&prose(&path, line, &mut inside)) {
                let path = path.strip_prefix(root()).unwrap_or(&path).display();
                hits.push(format!("{path}:{}: `{phrase}`; write: {instead}", number + 1));
            }
        }
    }
    assert!(hits.is_empty(), "{} hits:\n{}", hits.len(), hits.join("\n"));
}

/// Last commit from before the style guide.
const BEFORE: &str = "caca4be";

/// Imperatives that end like other forms.
const IMPERATIVE: [&str; 7] = ["Bring", "Embed", "Exceed", "Feed", "Proceed", "Seed", "Speed"];

/// What is wrong with a commit's subject.
fn fault(subject: &str) -> Option<&'static str> {
    let first = subject.split(' ').next().unwrap_or_default();
    let ends = |ends: &[&str]| ends.iter().any(|end| first.ends_with(end));
    let not_imperative = (ends(&["ed", "ing"]) && !IMPERATIVE.contains(&first))
        || (ends(&["s"]) && !ends(&["ss"]))
        || first == "Made";
    match () {
        () if subject.chars().count() > 72 => Some("more than 72 characters"),
        () if !first.starts_with(|c: char| c.is_uppercase()) => Some("begins without a capital"),
        () if not_imperative => Some("not imperative"),
        () if subject.ends_with('.') => Some("ends with a full stop"),
        () => dialect(subject).map(|(phrase, _)| phrase),
    }
}

/// Long or descriptive subjects make the log unreadable.
#[test]
fn commit_subjects_are_short_and_imperative() {
    assert_eq!(fault("Reject percentiles without enough samples"), None);
    for wrong in [
        "Rejected them",
        "Fixed it",
        "Adding it",
        "Fixes it",
        "Made it",
        "reject them",
        "Reject them.",
        &"Reject ".repeat(12),
    ] {
        assert!(fault(wrong).is_some(), "{wrong}");
    }
    if !root().join(".git").exists() {
        return;
    }
    let git = |range: &str| {
        Command::new("git").args(["log", "--format=%s", range]).current_dir(root()).output()
    };
    // A shallow clone has only the last commits.
    let log = git(&format!("{BEFORE}..HEAD")).ok().filter(|out| out.status.success());
    let log = log.or_else(|| git("-1").ok()).expect("git log");
    let subjects = String::from_utf8_lossy(&log.stdout).into_owned();
    assert!(!subjects.is_empty(), "git log is empty: {}", String::from_utf8_lossy(&log.stderr));
    let faults: Vec<String> =
        subjects.lines().filter_map(|one| Some(format!("{}: {one}", fault(one)?))).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A pattern that finds nothing is no check.
#[test]
fn planted_sentences_are_found() {
    let source = Path::new("a.rs");
    for planted in [
        "/// Reads beside a writer.",
        "    // It is made anew.",
        "//! Whoever watches is told.",
        "    say!(\"the run goes on\");",
        "    \"figures that are not to be judged\"",
        "/// So many operations at once.",
        "/// Beside that, nothing.",
        "    format!(\"{rate} lookups a second\")",
        "/// A drive that is not here.",
        "    let a = 1; // Reads beside a writer.",
        "    say!(\"of \\\"x\\\" it goes on\");",
    ] {
        assert!(dialect(&prose(source, planted, &mut false)).is_some(), "{planted}");
    }
    // Within a string, and at its end.
    for planted in ["        text that goes on over a line of a string \\", "        it goes on\","]
    {
        let mut inside = true;
        assert!(dialect(&prose(source, planted, &mut inside)).is_some(), "{planted}");
        assert_eq!(inside, planted.ends_with('\\'));
    }
    for fine in [
        "/// The table `beside` of a job.",
        "    let beside = job.beside.iter();",
        "    seed.derive(\"beside\", 0)",
        "/// Takes a second writer's lock.",
    ] {
        assert_eq!(dialect(&prose(source, fine, &mut false)), None, "{fine}");
    }
}
