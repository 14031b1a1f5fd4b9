//! Serving on the client's CPU: a wake-up there takes a microsecond or two, one across CPUs ten times that,
//! and more if the other CPU is idle. With many requests in flight no client waits for a single one, and two
//! CPUs do more than one.
//!
//! Invariants: nothing is allocated per client; the check is rare enough to cost next to nothing. With
//! clients on several CPUs it follows the last one.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Interval between checks.
const EVERY: Duration = Duration::from_millis(2);

/// Current CPU restriction of this thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Confined {
    /// Any CPU of its process.
    Anywhere,
    /// On one processor.
    To(usize),
}

/// Where the last client ran.
#[derive(Debug)]
pub(crate) struct Follower {
    looked: Instant,
    /// `None` before the first check.
    now: Option<Confined>,
    /// CPUs that this thread may use.
    allowed: Option<CpuSet>,
    /// The `stat` file of a process, and its ID.
    stat: Option<(u32, File)>,
}

impl Follower {
    pub fn new() -> Self {
        Self {
            looked: Instant::now(),
            now: None,
            allowed: sched_getaffinity(None).ok(),
            stat: None,
        }
    }

    /// Runs anywhere from now on.
    pub fn stay(&mut self) {
        if let Some(allowed) = self.allowed.take() {
            let _ = sched_setaffinity(None, &allowed);
        }
    }

    /// Moves this thread to the last CPU of `process`, if that has changed; to any CPU with `many` requests
    /// in flight.
    #[inline]
    pub fn follow(&mut self, process: u32, now: Instant, many: bool) {
        let early = now.duration_since(self.looked) < EVERY && self.now.is_some();
        if early || self.allowed.is_none() {
            return;
        }
        self.looked = now;
        if many {
            if let Some(allowed) =
                self.allowed.as_ref().filter(|_| self.now != Some(Confined::Anywhere))
            {
                let _ = sched_setaffinity(None, allowed);
                self.now = Some(Confined::Anywhere);
            }
            return;
        }
        if self.stat.as_ref().is_none_or(|(other, _)| *other != process) {
            self.stat =
                File::open(format!("/proc/{process}/stat")).ok().map(|file| (process, file));
        }
        let Some((_, file)) = &self.stat else { return };
        let mut line = [0u8; 512];
        let Ok(length) = file.read_at(&mut line, 0) else { return };
        let stat = std::str::from_utf8(&line[..length]).unwrap_or_default();
        let Some(processor) = processor_of(stat) else { return };
        if self.now != Some(Confined::To(processor)) {
            let mut only = CpuSet::new();
            only.set(processor);
            // If not permitted, it stays where it is.
            let _ = sched_setaffinity(None, &only);
            self.now = Some(Confined::To(processor));
        }
    }
}

/// The processor in a line of `/proc/PID/stat` (proc(5), field 39).
fn processor_of(stat: &str) -> Option<usize> {
    // The name before it may contain blanks and brackets.
    let (_, rest) = stat.rsplit_once(')')?;
    let processor = rest.split_whitespace().nth(36)?.parse().ok()?;
    (processor < CpuSet::MAX_CPU).then_some(processor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_read_from_behind_any_name() {
        let mut fields: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        fields[36] = "1".into();
        let line = format!("7 (a name) with) brackets) {}", fields.join(" "));
        assert_eq!(processor_of(&line), Some(1));
        let here = std::fs::read_to_string("/proc/self/stat").unwrap();
        assert!(processor_of(&here).is_some());
        assert_eq!(processor_of("7 (short) S 1 2"), None);
    }
}
