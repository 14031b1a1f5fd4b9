//! MariaDB and MySQL: a private server of our own, and connections to any.
//!
//! Invariants: a private server has its own data directory, socket and log, reads no configuration of the
//! machine's, and lets nobody else in; no error repeats a password; only a database that is ours, or that
//! the study gives up by name, is written to.

mod binary;
mod connection;
mod home;
mod hosting;
mod initialise;
mod options;
mod owner;
mod reach;
mod server;
mod session;
mod settings;
mod status;
mod wire;

pub use binary::Binary;
pub use connection::{Mysql, Reach};
pub use home::Home;
pub use initialise::initialise;
pub use options::{Listen, arguments, table_options};
pub use owner::{Held, hold};
pub use reach::target_of;
pub use server::Server;

/// What the fuzz targets read besides: results as a server sends them.
pub mod parsing {
    /// Whether these bytes, as they come in pieces, are a whole result.
    ///
    /// # Errors
    /// What the server says in them.
    pub fn result(bytes: &[u8]) -> Result<bool, engine::EngineError> {
        crate::wire::Wire::whole(bytes)
    }

    /// Whether a study may have `name=value` among the settings of a private server.
    ///
    /// # Errors
    /// The reason.
    pub fn setting(pair: &str) -> Result<(), String> {
        crate::settings::check_setting(pair)
    }
}
pub use session::MysqlSession;
