//! `serve`: the library of runs in a browser.
//!
//! Invariant: prints its address once it listens, then only answers.

use std::path::Path;

use crate::exit::{self, ExitCode};
use crate::show::Failure;

/// Serves the runs under `folder` until it is stopped.
pub fn run(folder: &Path, port: u16) -> Result<ExitCode, Failure> {
    if !folder.is_dir() {
        say!(
            "error: {} is not a folder of runs\n  help: crosspoint run quickstart, or crosspoint serve \
             FOLDER",
            folder.display()
        );
        return Ok(exit::USAGE);
    }
    let library = match serve::Library::open(folder.to_owned(), port) {
        Ok(library) => library,
        Err(error) => {
            say!(
                "error: port {port} of 127.0.0.1: {error}\n  help: crosspoint serve --port 0 takes a free one"
            );
            return Ok(exit::ENVIRONMENT);
        }
    };
    out!("{}", library.address());
    // A process may be waiting for the address at the other end of a pipe.
    let _ = std::io::Write::flush(&mut std::io::stdout());
    say!("anyone with this address can read the runs; Ctrl-C stops the server");
    library.serve();
    Ok(exit::OK)
}
