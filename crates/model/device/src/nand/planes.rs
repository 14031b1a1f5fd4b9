//! Planes: where flash is read, programmed and erased, with reads ahead of other work.
//!
//! # Model
//! A plane does one thing at a time. Reads suspend its other work (a program, a move, an erase): a read that
//! arrives during work waits for its suspension, a minimum plus an exponential time, or for its end; reads
//! that arrive before the suspension is over extend it. A piece of work lets a limited number of reads pass
//! and then runs to its end. The start of a read is known on arrival; the end of work is not, so it is
//! checked again when it may be due.
//!
//! Invariants: reads of a plane are served in order and never overlap its work; work takes exactly its time
//! plus the resume time of each suspension.

use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Nanos, Seed};

/// Suspension of work for a read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Suspend {
    /// Minimum duration.
    pub least: Nanos,
    /// Mean of the additional exponential time; `Nanos::MAX` if work is not suspended.
    pub mean_beyond: Nanos,
}

/// A program, move or erase, its suspension and its purpose.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    /// Duration of the work.
    pub takes: Nanos,
    /// Suspension time for a read.
    pub suspend: Suspend,
    /// Time that resuming adds.
    pub resume: Nanos,
    pub purpose: Purpose,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Purpose {
    /// Sequence number of a program of host data, [`Purpose::NOTHING`] for other work.
    pub order: u32,
    /// Request that continues at its end, or [`Purpose::NOTHING`].
    pub slot: u32,
}

impl Purpose {
    /// No program of host data; no request.
    pub const NOTHING: u32 = u32::MAX;
    /// No request waits for it.
    pub const NONE: Self = Self { order: Self::NOTHING, slot: Self::NOTHING };
}

/// Work on a plane.
#[derive(Debug, Clone, Copy)]
struct Work {
    /// Remaining time at `resumed`, when it continues.
    left: Nanos,
    resumed: Nanos,
    /// Reads that may still pass it.
    passes: u32,
    suspend: Suspend,
    resume: Nanos,
    purpose: Purpose,
}

#[derive(Debug, Clone, Copy, Default)]
struct Plane {
    /// End of its known reads.
    reads_end: Nanos,
    work: Option<Work>,
}

/// The planes of a device.
#[derive(Debug, Clone)]
pub(super) struct Planes {
    all: Vec<Plane>,
    /// `[unit]`: end of its reads, if a unit has several planes with a shared read path.
    unit_reads_end: Vec<Nanos>,
    /// Maximum number of reads ahead of one piece of work; 0: all in order of arrival.
    reads_first: u32,
    next: usize,
    random: Xoshiro256PlusPlus,
}

impl Planes {
    /// Idle planes: `units` for reading, and at least as many planes as concurrent programs.
    pub fn new(
        (units, programs): (usize, usize),
        reads_first: u32,
        random: Xoshiro256PlusPlus,
    ) -> Self {
        let planes = units.max(programs);
        Self {
            all: vec![Plane::default(); planes],
            unit_reads_end: vec![Nanos::ZERO; if planes > units { units } else { 0 }],
            reads_first,
            next: 0,
            random,
        }
    }

    /// Number of units that read.
    pub fn units(&self) -> usize {
        if self.unit_reads_end.is_empty() { self.all.len() } else { self.unit_reads_end.len() }
    }

    /// Reads a page from a unit, which takes `takes`; the page number selects the plane. Returns the time at
    /// which the read completes.
    #[inline]
    pub fn read(&mut self, now: Nanos, (unit, page): (usize, u64), takes: Nanos) -> Nanos {
        if self.unit_reads_end.is_empty() {
            return self.all[unit].read(now, takes, &mut self.random);
        }
        let (planes, units) = (self.all.len(), self.unit_reads_end.len());
        let (first, after) = (unit * planes / units, (unit + 1) * planes / units);
        // Spread over the planes of the unit.
        let pick = Seed(page).derive("plane", 0).0;
        let plane = first + (pick % (after - first) as u64) as usize;
        let from = self.unit_reads_end[unit].max(now);
        let end = self.all[plane].read(from, takes, &mut self.random);
        self.unit_reads_end[unit] = end;
        end
    }

    /// Starts work on an idle plane, the next one without reads if possible, else the one whose reads end
    /// first. Returns the plane and the expected end.
    pub fn start(&mut self, now: Nanos, task: Task) -> (u32, Nanos) {
        let count = self.all.len();
        let (mut best, mut best_end) = (None, Nanos::MAX);
        for step in 0..count {
            let place = (self.next + step) % count;
            let plane = &self.all[place];
            if plane.work.is_none() && (best.is_none() || plane.reads_end < best_end) {
                (best, best_end) = (Some(place), plane.reads_end);
                if best_end <= now {
                    break;
                }
            }
        }
        let place = best.expect("invariant: no more work at once than planes");
        self.next = (place + 1) % count;
        let resumed = best_end.max(now);
        let Task { takes: left, suspend, resume, purpose } = task;
        let passes = self.reads_first;
        self.all[place].work = Some(Work { left, resumed, passes, suspend, resume, purpose });
        (place as u32, resumed + left)
    }

    /// Checks whether a plane's work is done at `now`: returns its purpose, or the new expected end.
    pub fn finish(&mut self, now: Nanos, plane: u32) -> Result<Purpose, Nanos> {
        let plane = &mut self.all[plane as usize];
        let work = plane.work.expect("invariant: asked of planes with work alone");
        let end = work.resumed + work.left;
        if end > now {
            return Err(end);
        }
        plane.work = None;
        Ok(work.purpose)
    }

    /// Stops reads of `count` consecutive units from `first` for `takes`.
    pub fn stand_still(&mut self, now: Nanos, (first, count): (usize, usize), takes: Nanos) {
        let units = self.units();
        for unit in (first..first + count.min(units)).map(|unit| unit % units) {
            if self.unit_reads_end.is_empty() {
                self.all[unit].read(now, takes, &mut self.random);
            } else {
                self.unit_reads_end[unit] = self.unit_reads_end[unit].max(now) + takes;
            }
        }
    }
}

impl Plane {
    fn read(&mut self, now: Nanos, takes: Nanos, random: &mut Xoshiro256PlusPlus) -> Nanos {
        let start = match &mut self.work {
            None => self.reads_end.max(now),
            Some(work) => work.make_way((now, self.reads_end), takes, random),
        };
        self.reads_end = start + takes;
        self.reads_end
    }
}

impl Work {
    /// Start of a read that arrived at `now`, on a plane whose reads end at `reads_end`.
    #[inline]
    fn make_way(
        &mut self,
        (now, reads_end): (Nanos, Nanos),
        takes: Nanos,
        random: &mut Xoshiro256PlusPlus,
    ) -> Nanos {
        let (ready, end) = (now.max(reads_end), self.resumed + self.left);
        if ready >= end {
            return ready;
        }
        if self.passes == 0 {
            return end;
        }
        if self.resumed >= ready && self.resumed == reads_end {
            // Work waits for existing reads; this one also passes it.
            self.passes -= 1;
            self.resumed = ready + takes;
            return ready;
        }
        if self.suspend.mean_beyond == Nanos::MAX {
            return end;
        }
        let draw: f64 = Exp1.sample(random);
        let beyond = Nanos((draw * self.suspend.mean_beyond.get() as f64) as u64);
        let start = ready + self.suspend.least + beyond;
        if start >= end {
            return end;
        }
        self.passes -= 1;
        self.left = end.since(start) + self.resume;
        self.resumed = start + takes;
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;

    fn planes(reads_first: u32) -> Planes {
        Planes::new((1, 1), reads_first, Xoshiro256PlusPlus::seed_from_u64(1))
    }

    fn start(planes: &mut Planes, now: u64, takes: u64, suspend: u64) -> u64 {
        resumed(planes, now, takes, ([0, suspend], 0))
    }

    /// Starts work that can be suspended after a minimum time plus an exponential one of that mean.
    fn resumed(
        planes: &mut Planes,
        now: u64,
        takes: u64,
        ([least, mean], resume): ([u64; 2], u64),
    ) -> u64 {
        let suspend = Suspend { least: Nanos(least), mean_beyond: Nanos(mean) };
        let (takes, resume) = (Nanos(takes), Nanos(resume));
        planes.start(Nanos(now), Task { takes, suspend, resume, purpose: Purpose::NONE }).1.get()
    }

    fn read(planes: &mut Planes, now: u64) -> u64 {
        planes.read(Nanos(now), (0, 0), Nanos(10)).get()
    }

    #[test]
    fn a_program_makes_way_and_goes_on_after_the_reads() {
        let mut planes = planes(8);
        assert_eq!(start(&mut planes, 0, 350, 0), 350);
        assert_eq!(read(&mut planes, 30), 40);
        // Arrives while the first is served, and continues after it.
        assert_eq!(read(&mut planes, 35), 50);
        assert_eq!(planes.finish(Nanos(350), 0).unwrap_err(), Nanos(370));
        assert!(planes.finish(Nanos(370), 0).is_ok());
        assert_eq!(read(&mut planes, 375), 385);
    }

    /// The wait of a read that meets a program is exponential, cut off at the end of the program.
    #[test]
    fn a_read_waits_for_the_suspension_on_average() {
        let mut planes = planes(8);
        let (mut waited, mut longest) = (0, 0);
        for round in 0..10_000u64 {
            let now = round * 10_000;
            start(&mut planes, now, 2_000, 100);
            let wait = read(&mut planes, now + 1_000) - now - 1_010;
            (waited, longest) = (waited + wait, longest.max(wait));
            assert!(planes.finish(Nanos(now + 5_000), 0).is_ok());
        }
        assert!((95..105).contains(&(waited / 10_000)), "{waited}");
        assert!((600..=1_000).contains(&longest), "{longest}");
    }

    /// Each suspension must cost the program time, so that mixed loads are slower than their parts.
    #[test]
    fn going_on_takes_time_once_for_each_suspension() {
        let mut planes = planes(8);
        let suspend = Suspend { least: Nanos(5), mean_beyond: Nanos(0) };
        let (takes, resume) = (Nanos(350), Nanos(40));
        planes.start(Nanos(0), Task { takes, suspend, resume, purpose: Purpose::NONE });
        // The program continues until it is suspended.
        assert_eq!((read(&mut planes, 30), read(&mut planes, 35)), (45, 55));
        assert_eq!(read(&mut planes, 100), 115);
        assert_eq!(planes.finish(Nanos(350), 0).unwrap_err(), Nanos(350 + 30 + 2 * 40));
    }

    #[test]
    fn in_order_a_read_waits_for_the_program_and_the_next_program_for_the_read() {
        let mut planes = planes(0);
        start(&mut planes, 0, 350, 0);
        assert_eq!(read(&mut planes, 30), 360);
        assert!(planes.finish(Nanos(350), 0).is_ok());
        assert_eq!(start(&mut planes, 350, 100, 0), 460);
        assert_eq!(read(&mut planes, 355), 470);
    }

    /// A plane that is read without a pause would never be programmed.
    #[test]
    fn a_program_ends_whatever_the_reads() {
        let mut planes = planes(3);
        start(&mut planes, 0, 350, 0);
        let ends: Vec<u64> = (0..6).map(|_| read(&mut planes, 1)).collect();
        assert_eq!(ends, [11, 21, 31, 390, 400, 410]);
        assert_eq!(planes.finish(Nanos(350), 0).unwrap_err(), Nanos(380));
    }

    proptest! {
        /// Overlapping reads, or work that is cut short or never ends, would give rates that no flash
        /// reaches.
        #[test]
        fn work_takes_its_time_and_reads_are_served_one_after_the_other(
            reads_first in 0u32..5, suspend in [0u64..40, 0u64..120], resume in 0u64..30,
            steps in prop::collection::vec((0u64..80, 1u64..60, 0u8..3), 1..200),
        ) {
            let mut planes = planes(reads_first);
            let (mut now, mut last_read, mut running) = (0, 0, None::<(u64, u64)>);
            // The running work: its start, duration, read time since then, and number of reads.
            let (mut work, mut served, mut reads) = (0, 0, 0);
            for (gap, takes, what) in steps {
                now += gap;
                while let Some((begun, seems)) = running.filter(|(_, seems)| *seems <= now) {
                    running = match planes.finish(Nanos(seems), 0) {
                        Ok(_) => {
                            prop_assert!(seems - begun >= work, "{seems} {begun} {work}");
                            let most = work + served + resume * reads;
                            prop_assert!(seems - begun <= most, "{seems} {begun} {most}");
                            None
                        }
                        Err(later) => Some((begun, later.get())),
                    };
                }
                if what == 0 && running.is_none() {
                    // Reads that have arrived already are served before it.
                    (work, served, reads) = (takes * 5, last_read.max(now) - now, 0);
                    running = Some((now, resumed(&mut planes, now, work, (suspend, resume))));
                } else {
                    let end = planes.read(Nanos(now), (0, 0), Nanos(takes)).get();
                    prop_assert!(end >= now.max(last_read) + takes, "{end} {now} {last_read}");
                    (last_read, served, reads) = (end, served + takes, reads + 1);
                }
            }
        }
    }
}
