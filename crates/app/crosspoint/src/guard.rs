//! A process that cleans up if this one is killed: the kernel's trace buffers would otherwise keep recording.
//!
//! Invariant: it holds the other end of a pipe, so it also notices SIGKILL.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use stack::{StackError, state_directory};

use crate::exit::{self, ExitCode};
use crate::show::Failure;

/// Name of the hidden verb.
pub const VERB: &str = "guard";

/// Attempts to clean up, one second apart.
const TRIES: u32 = 5;

/// Ends the guard when dropped.
pub struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the guard of this process.
pub fn start() -> Result<Guard, Failure> {
    let program = std::env::current_exe().map_err(StackError::io("find", "this program"))?;
    let mut command = Command::new(&program);
    command.arg(VERB).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // Not in this terminal's foreground group, which Ctrl-C ends.
    let child = command.process_group(0).spawn().map_err(StackError::io("start", program))?;
    Ok(Guard(child))
}

/// Waits until the other process has ended, then undoes what killed runs left.
pub fn wait() -> Result<ExitCode, Failure> {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    // On a busy host the killed process holds its journal for a moment after its pipe is closed.
    for _ in 0..TRIES {
        let cleaned = stack::clean(&state_directory()?, engines::restore)?;
        if cleaned.running == 0 && cleaned.failed.is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    Ok(exit::OK)
}
