//! The engine contract, and the one client loop that drives any engine.
//!
//! A database implements [`Engine`] and an operation set, [`KeyValueEngine`] or [`SqlEngine`]. The loop
//! ([`drive`]) sees a [`Session`]: operations submitted and completions collected, by static dispatch. Block
//! I/O implements [`Session`] alone.

mod contract;
mod drive;
mod error;
mod home;
pub mod kv;
mod place;
mod private;
mod server;
mod session;
mod spent;
pub mod sql;
mod trial;

pub use contract::{Engine, Exchange, KeyValue, KeyValueEngine, Row, SqlEngine, Statements};
pub use drive::drive;
pub use error::{EngineError, ErrorKind};
pub use home::{DATA, FILES, Home, TEMPORARY};
pub use place::{Address, Place, Secret, Target};
pub use private::{Habits, Listen, PrivateProcess, bare_environment, last_lines};
pub use server::{
    Hosting, Preload, PrivateServer, Reached, Server, ServerVerbs, Start, WalPlace, split_wal,
};
pub use session::{Completion, Ended, Session, Submit, Wait};
pub use trial::{
    ClientEnd, Finished, SAMPLE_EVERY, Seat, Setting, Starter, Trial, TrialSpec, Watch, run_clients,
};
