//! Exit codes: a stable interface, listed in `crosspoint --help`.
//!
//! Invariant: each code has one meaning.

use runner::ExitClass;

/// Exit code of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitCode(u8);

pub const OK: ExitCode = ExitCode(0);
/// The command line is wrong.
pub const USAGE: ExitCode = ExitCode(2);
/// A requirement is missing.
pub const ENVIRONMENT: ExitCode = ExitCode(5);
/// A target failed.
pub const TARGET_FAILED: ExitCode = ExitCode(6);
/// Acknowledged data was lost or is corrupt.
pub const NOT_KEPT: ExitCode = ExitCode(7);
/// An objective was missed.
pub const OBJECTIVE_MISSED: ExitCode = ExitCode(8);
/// Something is worse than its baseline.
pub const REGRESSION: ExitCode = ExitCode(9);
pub const INCONCLUSIVE: ExitCode = ExitCode(10);
/// Interrupted by the user, results kept.
pub const INTERRUPTED: ExitCode = ExitCode(130);

/// The list in `--help`.
pub const LIST: &str = "\
Exit codes:
  0 ok                        6 target failed
  1 internal error            7 data verification failed, or an archive is damaged
  2 usage error               8 objective missed
  3 invalid study             9 regression
  4 refused by safety guard  10 inconclusive
  5 missing requirement     130 interrupted, results kept";

/// Converts the exit code of a child process of this program.
pub fn of_number(number: i32) -> ExitCode {
    ExitCode(u8::try_from(number).unwrap_or(1))
}

impl From<ExitClass> for ExitCode {
    fn from(class: ExitClass) -> Self {
        Self(match class {
            ExitClass::Internal => 1,
            ExitClass::Usage => 2,
            ExitClass::BadStudy => 3,
            ExitClass::Refused => 4,
            ExitClass::Environment => 5,
            ExitClass::TargetFailed => 6,
            ExitClass::Verification => 7,
        })
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code.0)
    }
}

impl ExitCode {
    /// The code for `std::process::exit`.
    pub fn number(self) -> i32 {
        i32::from(self.0)
    }
}
