//! The style guide over everything that people read: comments, strings, documents, studies, commit subjects.
//!
//! Invariant: a phrase stands here with what to write instead, and nowhere else.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What is not written, and what is.
const PHRASES: [(&str, &str); 32] = [
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

/// What people read in a line: of Rust the comment, or the strings.
fn prose(path: &Path, line: &str) -> String {
    if path.extension().is_none_or(|extension| extension != "rs") {
        return line.to_owned();
    }
    match line.trim_start() {
        comment if comment.starts_with("//") => comment.to_owned(),
        // Parts between quotes; a string over several lines counts from its first quote on.
        code => {
            // One word alone is a name.
            let parts = code.split('"').skip(1).step_by(2).filter(|part| part.contains(' '));
            let continued = !code.contains('"') && code.ends_with('\\');
            if continued { code.to_owned() } else { parts.collect::<Vec<_>>().join(" \u{b7} ") }
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Files that git has; none outside a checkout.
fn files() -> Vec<PathBuf> {
    let listed = Command::new("git").arg("ls-files").current_dir(root()).output();
    let text =
        listed.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    let read = |path: &&str| {
        let kind = Path::new(path).extension().is_some_and(|one| {
            ["rs", "md", "html"].iter().any(|own| one == *own) || (one == "toml" && is_text(path))
        });
        // The phrases themselves, published tables and inputs of tests.
        let left_out = ["xtask/tests/wording.rs", "docs/VALIDATION.md"];
        kind && !left_out.contains(path)
            && !path.starts_with("fuzz/")
            && !path.starts_with("fixtures/")
    };
    text.lines().filter(read).map(|path| root().join(path)).collect()
}

fn is_text(path: &str) -> bool {
    ["studies/", "published/"].iter().any(|folder| path.starts_with(folder))
}

/// A reader who does not find the terms of the field closes the page.
#[test]
fn everything_that_people_read_uses_the_terms_of_the_field() {
    let mut hits = Vec::new();
    for path in files() {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        for (number, line) in text.lines().enumerate() {
            if let Some((phrase, instead)) = dialect(&prose(&path, line)) {
                let path = path.strip_prefix(root()).unwrap_or(&path).display();
                hits.push(format!("{path}:{}: `{phrase}`; write: {instead}", number + 1));
            }
        }
    }
    assert!(hits.is_empty(), "{} hits:\n{}", hits.len(), hits.join("\n"));
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
        "        text that goes on over a line of a string \\",
    ] {
        assert!(dialect(&prose(source, planted)).is_some(), "{planted}");
    }
    for fine in [
        "/// The table `beside` of a job.",
        "    let beside = job.beside.iter();",
        "    seed.derive(\"beside\", 0)",
        "/// Takes a second writer's lock.",
    ] {
        assert_eq!(dialect(&prose(source, fine)), None, "{fine}");
    }
}
