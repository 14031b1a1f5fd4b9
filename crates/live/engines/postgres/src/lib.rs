//! PostgreSQL: private servers, and connections to any.
//!
//! Invariants: a private server has its own data directory, socket and log, reads no configuration of the
//! machine, and accepts nobody else; no error contains a password; only databases that are ours, or released
//! by name in the study, are written to.

mod binary;
mod conn;
mod connection;
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
pub use conn::Conn;
pub use connection::Postgres;
pub use initialise::initialise;
pub use reach::{connect_briefly, target_of};
pub use server::Server;

/// For fuzz targets: results as a server sends them.
pub mod parsing {
    /// Whether these bytes, arriving in pieces, are a complete result.
    ///
    /// # Errors
    /// The server's error in them.
    pub fn result(bytes: &[u8]) -> Result<bool, engine::EngineError> {
        crate::wire::Wire::whole(bytes)
    }

    /// Whether a study may set `name=value` on a private server.
    ///
    /// # Errors
    /// The reason.
    pub fn setting(pair: &str) -> Result<(), String> {
        crate::settings::check_setting(pair)
    }
}
