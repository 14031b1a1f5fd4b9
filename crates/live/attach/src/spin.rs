//! For how long before something is due a thread that serves looks for it instead of sleeping.
//!
//! Invariant: without an exact wish it is what nine of ten sleeps of that thread overshoot by, at most
//! [`SPIN_MAX`]: what that is depends on where the thread runs, how long it sleeps and who else runs there,
//! so each finds out while it serves.

use units::Nanos;

/// Longer overshoots are not waited out.
pub const SPIN_MAX: Nanos = Nanos::from_micros(120);
/// What one sleep moves it by, down; up it is nine times that, so that it rests where one in ten overshoots
/// by more.
const STEP: Nanos = Nanos(200);

/// For how long to look.
#[derive(Debug, Clone, Copy)]
pub enum Spin {
    /// For exactly so long.
    Exactly(Nanos),
    /// For as long as nine of ten sleeps overshoot; this to begin with.
    AsSleepsOvershoot(Nanos),
}

/// What one thread has found out.
#[derive(Debug)]
pub(crate) struct Looking {
    time: Nanos,
    learns: bool,
}

impl Looking {
    pub const fn new(spin: Spin) -> Self {
        match spin {
            Spin::Exactly(time) => Self { time, learns: false },
            Spin::AsSleepsOvershoot(time) => Self { time, learns: true },
        }
    }

    /// For how long.
    pub const fn time(&self) -> Nanos {
        self.time
    }

    /// A sleep that nothing ended before its time was so much too long.
    pub fn overslept(&mut self, by: Nanos) {
        if self.learns && by > self.time {
            self.time = (self.time + STEP * 9).min(SPIN_MAX);
        } else if self.learns {
            self.time = self.time.since(STEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What looks too late answers too late.
    #[test]
    fn one_sleep_in_ten_overshoots_by_more() {
        let mut looking = Looking::new(Spin::AsSleepsOvershoot(Nanos::from_micros(5)));
        // 0 to 99 us, each as often.
        let overshoots = (0..100_000u64).map(|number| Nanos::from_micros(number * 37 % 100));
        overshoots.for_each(|by| looking.overslept(by));
        let found = looking.time();
        assert!(found > Nanos::from_micros(84) && found < Nanos::from_micros(96), "{found}");
        for _ in 0..1000 {
            looking.overslept(Nanos::from_millis(5));
        }
        assert_eq!(looking.time(), SPIN_MAX);
        let mut exact = Looking::new(Spin::Exactly(Nanos(7)));
        exact.overslept(Nanos::from_millis(5));
        assert_eq!(exact.time(), Nanos(7));
    }
}
