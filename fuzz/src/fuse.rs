//! Any bytes as a request from the kernel to an attached disk: parsed or rejected without a panic.
pub fn run(bytes: &[u8]) {
    let _ = attach::parsing::request(bytes);
}
