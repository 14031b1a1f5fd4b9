//! Database engines in separate processes: the program that hosts one, and the channel to it.
//!
//! Memory limits, crashes and C libraries stay with the engine: a trial whose engine dies is a failed trial,
//! not a dead program, and two libraries of one name never meet. The child ends with the thread that started
//! it and answers one request.

mod client;
mod host;
mod protocol;
mod sql_trial;
mod trial;

pub use client::{Channel, WorkerError};
pub use client::{Understood, Waiting, understood};
pub use host::{Connect, Handler, serve};
pub use protocol::{
    CheckRequest, ClockOffset, Ended, Event, Request, SqlRequest, TrialParameters, TrialRequest,
    UnixNanos,
};
pub use sql_trial::PAGE_BYTES;
