//! The workspace rules as tests: layers of crates, purity of the model layer, headers, sizes, characters.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cargo_metadata::MetadataCommand;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace exists")
}

/// Layer of a crate by its folder; a crate may depend on its own and lower layers.
fn floor(manifest: &Path) -> Option<(u8, &'static str)> {
    let text = manifest.to_string_lossy().replace('\\', "/");
    [(0, "model"), (1, "live"), (2, "app")]
        .into_iter()
        .find(|(_, name)| text.contains(&format!("/crates/{name}/")))
}

/// Crates that the model layer must not use: they access the host.
const IMPURE: &[&str] = &[
    "libc", "rustix", "io-uring", "heed", "rusqlite", "procfs", "signal-hook", "indicatif", "clap",
    "tempfile", "jiff", "serde_json",
];

#[test]
fn crates_depend_downwards_only() {
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .exec()
        .expect("cargo metadata works");
    let floors: BTreeMap<String, (u8, &str)> = metadata
        .workspace_packages()
        .iter()
        .filter_map(|p| Some((p.name.to_string(), floor(p.manifest_path.as_std_path())?)))
        .collect();
    assert!(floors.len() >= 15, "the workspace was not read: {floors:?}");
    for package in metadata.workspace_packages() {
        let Some((own, own_name)) = floors.get(package.name.as_str()) else { continue };
        for dependency in &package.dependencies {
            if dependency.kind != cargo_metadata::DependencyKind::Normal {
                continue;
            }
            if let Some((other, other_name)) = floors.get(&dependency.name) {
                assert!(
                    other <= own,
                    "{} ({own_name}) depends on {} ({other_name}): arrows point down only",
                    package.name,
                    dependency.name
                );
            }
            assert!(
                *own > 0 || !IMPURE.contains(&dependency.name.as_str()),
                "{} is on the model floor and must not use {}",
                package.name,
                dependency.name
            );
        }
    }
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn all_sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for part in ["crates", "xtask", "fuzz"] {
        sources(&root().join(part), &mut found);
    }
    assert!(found.len() > 50, "sources were not found");
    found
        .into_iter()
        .map(|path| (path.clone(), std::fs::read_to_string(&path).expect("a source reads")))
        .collect()
}

/// Lines before the module's own tests.
fn code(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or(text)
}

#[test]
fn every_module_has_a_header_a_size_and_plain_characters() {
    let mut faults = Vec::new();
    for (path, text) in all_sources() {
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        if !text.starts_with("//!") {
            faults.push(format!("{name}: no //! header that says purpose and invariants"));
        }
        let lines = code(&text).lines().count();
        if lines > 500 {
            faults.push(format!("{name}: {lines} lines of code; at most 500"));
        }
        for (number, line) in text.lines().enumerate() {
            if line.chars().count() > 110 {
                faults.push(format!("{name}:{}: line of {} characters", number + 1, line.len()));
            }
            if !line.is_ascii() {
                faults.push(format!("{name}:{}: not ASCII", number + 1));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The model layer must give the same bytes on every machine: no clock, file, environment or unsafe.
#[test]
fn the_model_floor_is_pure() {
    let mut faults = Vec::new();
    for (path, text) in all_sources() {
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        // Benches are programs of their own.
        if !name.starts_with("crates/model/") || name.contains("/benches/") {
            continue;
        }
        if name.ends_with("src/lib.rs") && !text.contains("#![forbid(unsafe_code)]") {
            faults.push(format!("{name}: no forbid(unsafe_code)"));
        }
        for word in [
            "std::fs", "std::env", "std::net", "std::process", "std::thread", "Instant::",
            "time::Instant", "std::os", "SystemTime", "rand::rng(",
        ] {
            if code(&text).contains(word) {
                faults.push(format!("{name}: uses {word}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A file that is opened anywhere else can be a link, a device, or the only copy of something.
#[test]
fn the_app_layer_writes_files_in_one_module() {
    let mut faults = Vec::new();
    for (path, text) in all_sources() {
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        let own = ["archive/src/output.rs", "archive/src/files.rs"]
            .map(|one| format!("crates/app/{one}"));
        let tests = ["/tests/", "/scenarios/", "/benches/"].iter().any(|part| name.contains(part));
        if !name.starts_with("crates/app/") || tests || own.contains(&name) {
            continue;
        }
        for word in [
            "File::create", "OpenOptions", "fs::write", "fs::copy", "File::options",
            "NamedTempFile",
        ] {
            if code(&text).replace("OutputFile::", "").contains(word) {
                faults.push(format!("{name}: uses {word}; archive::output has what it needs"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Decisions are typed values: a sentence that is searched breaks when it is reworded.
#[test]
fn reasons_and_notes_are_never_searched() {
    let known = [
        // Older runs record the submission path as text only.
        "crates/app/analysis/src/knee.rs",
    ];
    let mut found = Vec::new();
    for (path, text) in all_sources() {
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        if !name.starts_with("crates/") || !name.contains("/src/") || name.ends_with("_tests.rs") {
            continue;
        }
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        for sentence in ["reason", "note", "next", "failure", "result.path", "headline"] {
            for search in
                ["contains", "starts_with", "ends_with", "split_once", "replace", "strip_prefix"]
            {
                if text.contains(&format!("{sentence}.{search}(\"")) {
                    found.push(name.clone());
                }
            }
        }
    }
    found.sort();
    found.dedup();
    let mut known = known.map(str::to_owned).to_vec();
    known.sort();
    assert_eq!(found, known, "a sentence is searched, or no longer: decide by a typed value");
}

/// A lock or a log line in the loop that competes with fio's would be measured as the device's.
#[test]
fn the_hot_loops_take_no_lock_and_log_nothing() {
    let hot = [
        "crates/live/engine/src/drive.rs",
        "crates/live/engine/src/session.rs",
        "crates/live/engine/src/kv/operations.rs",
        "crates/live/engine/src/sql/connections.rs",
        "crates/live/engines/block/src/uring.rs",
        "crates/live/engines/block/src/psync.rs",
        "crates/live/engines/block/src/checked.rs",
        "crates/live/engines/block/src/buffers.rs",
        "crates/live/engines/block/src/target.rs",
        "crates/model/sim/src/block_path.rs",
        "crates/model/sim/src/driver.rs",
        "crates/model/stats/src/recorded.rs",
        "crates/model/stats/src/recorder.rs",
        "crates/model/workload/src/block.rs",
        "crates/model/workload/src/arrivals.rs",
        "crates/model/workload/src/kv.rs",
        "crates/model/workload/src/lanes.rs",
        "crates/model/workload/src/offsets.rs",
        "crates/model/workload/src/sql.rs",
    ];
    for name in hot {
        let text = std::fs::read_to_string(root().join(name)).expect(name);
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for word in ["Mutex", "RwLock", "Condvar", ".lock()", "println!", "tracing::", "say!"] {
            assert!(!code.contains(word), "{name}: {word}");
        }
    }
}

fn documents(folder: &str) -> Vec<(PathBuf, String)> {
    let all =
        std::fs::read_dir(root().join(folder)).expect("a folder").flatten().map(|one| one.path());
    let documents = all.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    documents.map(|path| (path.clone(), std::fs::read_to_string(&path).expect("a text"))).collect()
}

/// Nobody reads long documents.
#[test]
fn documents_keep_to_their_sizes() {
    let methods = documents("docs/method");
    assert!(methods.len() >= 7, "{}", methods.len());
    for (path, text) in methods {
        assert!(text.len() <= 8192, "{}: {} bytes of 8,192", path.display(), text.len());
    }
    for (name, most) in [("README.md", 90), ("CHANGELOG.md", 40), ("ARCHITECTURE.md", 90)] {
        let lines = std::fs::read_to_string(root().join(name)).expect("a text").lines().count();
        assert!(lines <= most, "{name}: {lines} lines of {most}");
    }
}

/// Links to a document of this repository that does not exist.
#[test]
fn relative_links_lead_somewhere() {
    let mut count = 0;
    for (path, text) in ["", "docs", "docs/method"].iter().flat_map(|folder| documents(folder)) {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            if link.is_empty() || link.contains("://") {
                continue;
            }
            count += 1;
            let target = path.parent().expect("a folder").join(link);
            assert!(target.exists(), "{}: {link} does not exist", path.display());
        }
    }
    assert!(count > 40, "only {count} links were found");
}
