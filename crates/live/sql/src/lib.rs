//! The SQL floor: what an engine must do, loading, and the client threads that drive any engine.
//!
//! Invariants: the drivers know no engine; every statement is recorded under its class and its
//! transaction's phase. What it is not: an engine, or a server's keeper.

mod client_thread;
mod driver;
mod engine;
mod load;
mod place;
mod shared;
mod text;

pub use driver::{GIVEN_UP, measure};
pub use engine::{Engine, Refusal, Row, Session, SqlError};
pub use load::load;
pub use place::{Address, Flavour, Place, Secret, Target};
pub use shared::SqlSpec;
pub use text::{prepared_text, texts_of, write_text};
