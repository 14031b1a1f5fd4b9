//! `serve`: the library of runs in a browser.
//!
//! Invariant: says where, once it listens, and then only answers.

use std::path::Path;

use crate::exit::{self, ExitCode};
use crate::show::Failure;

/// Serves the runs under `folder` until it is stopped.
///
/// # Errors
/// Where there is no such folder, or the port is taken.
pub fn run(folder: &Path, port: u16) -> Result<ExitCode, Failure> {
    if !folder.is_dir() {
        say!(
            "error: {} is no folder of runs\n  next: crosspoint run quickstart, or crosspoint serve FOLDER",
            folder.display()
        );
        return Ok(exit::USAGE);
    }
    let library = match serve::Library::open(folder.to_owned(), port) {
        Ok(library) => library,
        Err(error) => {
            say!(
                "error: port {port} of 127.0.0.1: {error}\n  next: crosspoint serve --port 0 takes a free one"
            );
            return Ok(exit::ENVIRONMENT);
        }
    };
    out!("{}", library.address());
    // Whoever waits for the address reads it from a pipe.
    let _ = std::io::Write::flush(&mut std::io::stdout());
    say!("the address has a token: who knows it may look; Ctrl-C ends it");
    library.serve();
    Ok(exit::OK)
}
