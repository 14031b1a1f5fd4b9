//! Any bytes as a latency log: they are refused or read, never a crash.
use stats::{Interval, Phase, Recording};
use units::Nanos;

pub fn run(bytes: &[u8]) {
    let mut recording = Recording::default();
    for index in 0..4 {
        let start = Nanos(index * 10);
        recording.intervals.push(Interval::empty(Phase::Measure, start, start + Nanos(10)));
    }
    let _ = stats::read_log(bytes, &mut recording);
}
