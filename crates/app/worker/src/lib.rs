//! A database engine in a process of its own: the program that hosts it, and the line to it.
//!
//! The engine's memory limit, its crashes and its C libraries are then its own: a trial whose engine dies is
//! a failed trial, not a dead program, and two libraries of one name never meet. Invariants: the child ends
//! with the thread that started it; one request a process. What it is not: a choice of engines; whoever
//! builds the child says which it has.

mod client;
mod host;
mod protocol;
mod sql_trial;
mod trial;

pub use client::{Channel, Ended, Event, WorkerError};
pub use client::{Understood, Waiting, understood};
pub use host::{Handler, Handlers, SqlHandler, serve};
pub use protocol::{CheckRequest, Request, SqlRequest, TrialRequest};
pub use sql_trial::PAGE_BYTES;
