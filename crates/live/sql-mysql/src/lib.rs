//! MariaDB and MySQL: a private server of our own, and connections to any.
//!
//! Invariants: a private server has its own data directory, socket and log, reads no configuration of the
//! machine's, and lets nobody else in; no error repeats a password; only a database that is ours, or that the
//! study gives up by name, is written to. What it is not: a
//! driver of clients.

mod binary;
mod connection;
mod home;
mod initialise;
mod options;
mod owner;
mod server;
mod session;
mod status;
mod wire;

pub use binary::Binary;
pub use connection::{Mysql, Reach, password_from_environment};
pub use home::Home;
pub use initialise::initialise;
pub use options::{Listen, arguments, table_options};
pub use owner::{before_change, restore};
pub use server::Server;
pub use session::MysqlSession;
pub use status::watch_process;
