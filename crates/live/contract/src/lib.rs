//! The contract suites: what every engine promises, run by each engine's own tests.
//!
//! They use nothing but the contract in `engine`. A development dependency; no program contains it.

pub mod key_value;
pub mod sql;

/// Prints what a test lacks on this machine, and counts the skip.
pub fn skip(missing: &str) {
    println!("SKIPPED {missing}");
    if let Some(path) = std::env::var_os("CROSSPOINT_SKIPS") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        let line = format!("{missing}\n");
        let _ = file.and_then(|mut file| std::io::Write::write_all(&mut file, line.as_bytes()));
    }
}
