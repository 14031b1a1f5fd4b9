//! Creates an empty data directory by the server's own program.

use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use engine::{DATA, EngineError, Home, Secret, bare_environment, last_lines};
use stack::{Mark, output_within, random_hex};

use crate::binary::Binary;
use crate::server::{PASSWORD, USER};

/// Time limit for creating the system tables, which takes a second here.
const INITIALISE_MAX: Duration = Duration::from_secs(300);

/// Creates an empty data directory with our account alone, whose password is random.
///
/// # Errors
/// The program's message.
pub fn initialise(
    binary: &Binary,
    home: &Home,
    (mark, stop): (&Mark, &AtomicBool),
    checksums: bool,
) -> Result<(), EngineError> {
    home.write(PASSWORD, Secret::new(random_hex(32)).text())?;
    let mut command = Command::new(&binary.initdb);
    command.args([
        format!("--pgdata={}", home.seen(DATA)),
        format!("--username={USER}"),
        format!("--pwfile={}", home.seen(PASSWORD)),
    ]);
    command.args(["--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-instructions"]);
    // Since 18 it is the default.
    match (checksums, binary.major) {
        (true, _) => _ = command.arg("--data-checksums"),
        (false, 18..) => _ = command.arg("--no-data-checksums"),
        (false, _) => {}
    }
    bare_environment(&mut command);
    mark.put_on(&mut command);
    command.stdin(Stdio::null());
    home.confine_with_account(&mut command)?;
    let program = binary.initdb.display();
    let failed = |reason: String| {
        let reason = format!("cannot create the data directory: {program}: {reason}");
        EngineError::refused(reason, "see the program's message, and crosspoint doctor")
    };
    let output = output_within(&mut command, (INITIALISE_MAX, Some(stop)), |_| ());
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(last_lines(&said.lines().collect::<Vec<_>>())))
}
