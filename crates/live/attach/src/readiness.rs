//! When a serving thread gets real-time priority, and when it gives it up.
//!
//! With priority it cannot see whether it would still be delayed, so it yields from time to time to find out.
//! Invariant: if it is always delayed, it yields for one check in a hundred; if it no longer is, after ten.

/// Checks after which a prioritized thread yields.
const STAY_LEAST: u32 = 10;
/// The upper limit, reached if it was delayed each time it yielded.
const STAY_MOST: u32 = 100;

/// Whether a thread has priority.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Readiness {
    first: bool,
    /// Consecutive checks without a delay.
    calm: u32,
    /// Number of such checks after which it yields.
    stay: u32,
}

impl Readiness {
    pub const fn new() -> Self {
        Self { first: false, calm: STAY_LEAST, stay: STAY_LEAST }
    }

    /// Whether it has priority.
    pub const fn is_first(&self) -> bool {
        self.first
    }

    /// Records whether the thread was `kept` from running since the last check; returns whether it has
    /// priority from now on.
    pub fn look(&mut self, kept: bool) -> bool {
        if kept && !self.first {
            // Delayed as soon as it yielded: too early.
            let soon = self.calm < STAY_LEAST;
            self.stay = if soon { (self.stay * 2).min(STAY_MOST) } else { STAY_LEAST };
        }
        self.calm = if kept { 0 } else { self.calm.saturating_add(1) };
        let first = kept || self.first && self.calm < self.stay;
        if self.first && !first {
            self.calm = 0;
        }
        self.first = first;
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It must yield soon after the load has gone, and rarely while the load remains: both mistakes make it
    /// answer late.
    #[test]
    fn it_gives_way_soon_where_nobody_is_there_and_seldom_where_somebody_is() {
        let mut alone = Readiness::new();
        assert!(alone.look(true));
        let stays = (0..50).take_while(|_| alone.look(false)).count();
        assert_eq!(stays as u32, STAY_LEAST - 1);
        assert!((0..1000).all(|_| !alone.look(false)));
        let mut crowded = Readiness::new();
        crowded.look(true);
        let mut given = 0;
        for _ in 0..10_000 {
            // It is delayed whenever it has no priority.
            let first = crowded.is_first();
            given += u32::from(!first);
            crowded.look(!first);
        }
        assert!(given <= 105, "{given} looks of 10000");
    }
}
