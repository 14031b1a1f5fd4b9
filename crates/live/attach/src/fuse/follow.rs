//! Serving on the processor on which the client runs: a wake-up there takes a microsecond or two, one that
//! crosses processors ten times that, and more where the other one rests. With many requests under way
//! nobody waits for one of them, and two processors do more than one.
//!
//! Invariants: nothing is allocated for one client; looked at rarely enough to cost next to nothing. What
//! it is not: a scheduler; with clients on several processors it is where the last one was.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How often it is looked at.
const EVERY: Duration = Duration::from_millis(2);

/// Where this thread may run now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Confined {
    /// Where it may by its process.
    Anywhere,
    /// On one processor.
    To(usize),
}

/// Where the last client ran.
#[derive(Debug)]
pub(crate) struct Follower {
    looked: Instant,
    /// None until it was looked at.
    now: Option<Confined>,
    /// Where this thread may run.
    allowed: Option<CpuSet>,
    /// What says where a process ran, and of which.
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

    /// Moves this thread to where `process` ran last, if that has changed; with `many` requests under way,
    /// anywhere.
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
            // Not allowed there: it stays where it is.
            let _ = sched_setaffinity(None, &only);
            self.now = Some(Confined::To(processor));
        }
    }
}

/// The processor in a line of `/proc/PID/stat` (proc(5), field 39).
fn processor_of(stat: &str) -> Option<usize> {
    // The name before it may have blanks and brackets.
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
