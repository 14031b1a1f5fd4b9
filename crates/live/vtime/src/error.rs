//! Why a simulation ended early.

use thiserror::Error;

/// Why a simulation failed.
#[derive(Debug, Error)]
pub enum VtimeError {
    /// The program or its memory could not be set up.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The program never called the shim.
    #[error(
        "{program} did not load the virtual-time library: it is statically linked, a set-user-ID program, or \
         was started without LD_PRELOAD"
    )]
    NotJoined {
        /// Its name.
        program: String,
    },
    /// The program used something that has no simulated time.
    #[error("thread {thread} called {call}, which virtual time does not support yet")]
    Uncovered {
        /// Number of the thread, in order of creation.
        thread: u32,
        /// Name of the call.
        call: String,
    },
    /// A thread waits in the kernel, and nothing in the simulation can wake it.
    #[error(
        "thread {thread} waits in system call {number}, which virtual time does not support yet"
    )]
    Asleep {
        /// Number of the thread.
        thread: u32,
        /// Number of the system call, as in /usr/include/asm/unistd.h.
        number: String,
    },
    /// Every thread waits for another.
    #[error("all {threads} threads wait for each other (deadlock)")]
    Stuck {
        /// How many there are.
        threads: usize,
    },
    /// The program was ended by a signal.
    #[error("{program} was killed by signal {signal}")]
    Killed {
        /// Its name.
        program: String,
        /// Number of the signal.
        signal: i32,
    },
}

impl VtimeError {
    /// Wraps an operating-system error in `what`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
