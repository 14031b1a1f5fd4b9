//! How long before a due time a serving thread polls instead of sleeping.
//!
//! Invariant: unless fixed, it is the p90 oversleep of that thread, at most [`SPIN_MAX`]; it depends on the
//! CPU, the sleeping time and the load, so each thread learns it while serving.

use units::Nanos;

/// Maximum polling time.
pub const SPIN_MAX: Nanos = Nanos::from_micros(120);
/// Downward step per sleep; upward steps are nine times larger, so the value settles where one sleep in ten
/// oversleeps by more.
const STEP: Nanos = Nanos(200);

/// Polling time: fixed or learned.
#[derive(Debug, Clone, Copy)]
pub enum Spin {
    /// A fixed time.
    Exactly(Nanos),
    /// The learned p90 oversleep, with an initial value.
    AsSleepsOvershoot(Nanos),
}

/// Learned polling time of one thread.
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

    /// The polling time.
    pub const fn time(&self) -> Nanos {
        self.time
    }

    /// A complete sleep was too long by `by`.
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

    /// Polling that starts too late makes answers late.
    #[test]
    fn one_sleep_in_ten_overshoots_by_more() {
        let mut looking = Looking::new(Spin::AsSleepsOvershoot(Nanos::from_micros(5)));
        // 0 to 99 us, equally often.
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
