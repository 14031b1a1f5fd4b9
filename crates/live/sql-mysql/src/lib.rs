//! MariaDB and MySQL: a private server of our own, and connections to any.
//!
//! Invariants: a private server has its own data directory, socket and log, reads no configuration of the
//! machine's, and is in the undo journal before it starts; no error repeats a password. What it is not: a
//! driver of clients.

mod binary;
mod connection;
mod options;
mod server;
mod session;
mod status;
mod wire;

pub use binary::Binary;
pub use connection::{Mysql, PASSWORD_VARIABLE, Reach};
pub use options::{Listen, arguments, table_options};
pub use server::{Server, initialise};
pub use session::MysqlSession;
pub use status::watch_process;
