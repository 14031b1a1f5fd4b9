//! Any bytes as a request of the kernel's to an attached disk: read or refused; never a crash.
pub fn run(bytes: &[u8]) {
    let _ = attach::parsing::request(bytes);
}
