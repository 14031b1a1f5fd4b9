//! Any bytes as what a server sends: a whole result, a part of one, or an error; never a crash.
pub fn run(bytes: &[u8]) {
    let _ = engine_mysql::parsing::result(bytes);
}
