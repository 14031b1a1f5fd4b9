//! Any bytes as a server's response: a whole result, a part of one, or an error; no panic.
pub fn run(bytes: &[u8]) {
    let _ = engine_mysql::parsing::result(bytes);
    let _ = engine_postgres::parsing::result(bytes);
}
