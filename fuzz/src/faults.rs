//! Any text as a fault plan: rejected with a short message, or applicable to every request.
use device::{FaultPlan, FaultyDrive, Request};
use units::Nanos;

pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match FaultPlan::parse(text) {
        Err(reason) => assert!(!reason.to_string().is_empty()),
        Ok(plan) => {
            let mut drive = FaultyDrive::new(plan);
            for id in 0..8 {
                let now = Nanos(id << (8 * id));
                drive.judge(now, &Request::write(id, id << 12, 4096));
                drive.judge(now, &Request::read(id, u64::MAX - 4096, 4096));
                drive.judge(now, &Request::flush(id));
            }
        }
    }
}
