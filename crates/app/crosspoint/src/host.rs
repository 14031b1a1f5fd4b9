//! `crosspoint engine`: this program as the host of a database engine, started by another process of this
//! program.

use crate::exit::{self, ExitCode};

/// Answers one request of the parent process.
pub fn host() -> ExitCode {
    match worker::serve(engines::ENGINES) {
        Ok(()) => exit::OK,
        Err(error) => {
            say!("this verb is internal ({error}); try: crosspoint run quickstart");
            exit::ENVIRONMENT
        }
    }
}
