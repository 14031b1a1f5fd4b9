//! The contract suites: the guarantees of every engine, run by each engine's tests.
//!
//! They use the contract in `engine` alone. A development dependency; no program contains it.

pub mod key_value;
pub mod sql;

/// Reports a skipped test, naming what is missing: prints it, and appends it to the file that
/// `CROSSPOINT_SKIPS` names, whose lines `scripts/test` counts.
pub fn skip(missing: &str) {
    println!("SKIPPED {missing}");
    if let Some(path) = std::env::var_os("CROSSPOINT_SKIPS") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        let line = format!("{missing}\n");
        let _ = file.and_then(|mut file| std::io::Write::write_all(&mut file, line.as_bytes()));
    }
}
