//! Advice: what would make a job faster, from the parts of an operation's time.
//!
//! Each piece follows from one group's counters and says what it is worth as bounds. Invariants: at most
//! [`ADVICE_MAX`] pieces, one of a kind for each engine; block jobs get none, since they are the drive's own.

use std::collections::HashSet;
use std::mem::{Discriminant, discriminant};

use crate::decision::{Choice, Decision, DecisionMetric, LimitedBy, Reliability};
use crate::gain::{Change, Gain};
use crate::time_parts::{Part, TimeParts, mixed_parts, stalled_share, time_parts};

/// Pieces of advice for a run.
pub const ADVICE_MAX: usize = 5;
/// Share of an operation's time from which on a cause is worth removing.
const SHARE_MIN: f64 = 0.1;
/// The same for waits for background threads, which also happen where these keep up.
const BACKGROUND_MIN: f64 = 0.2;
/// Gain from which on a faster drive or more cores are worth it, and up to which a faster drive is not.
const GAIN_MIN: f64 = 1.15;
/// Unattributed share up to which a drive that was not waited for is known to be of no use.
const REST_MAX: f64 = 0.05;
/// Share of the CPUs that other programs use.
const OTHERS_MIN: f64 = 0.25;

/// What to change. Shares are of an operation's time unless stated otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Remedy {
    /// Stop the other programs, which use this share of the CPUs.
    IdleHost(f64),
    /// Raise the rate limit of the volume.
    HigherLimit {
        /// The limit.
        limit: LimitedBy,
        /// Share of the time that operations wait for it.
        share: f64,
        /// The most that it may multiply the rate by.
        most: f64,
    },
    /// Move the clients closer to the server: messages take this share.
    Network(f64),
    /// Let the server's background threads keep up: sessions wait for them for this share.
    Background(f64),
    /// Let memtable flushes and compactions keep up: writes are held up for this share of the time.
    FewerStalls(f64),
    /// A drive that acknowledges flushes at once.
    FasterFlushes {
        /// Share of flushes.
        share: f64,
        /// The most that it may multiply the rate by.
        most: f64,
    },
    /// A faster drive, and the gain from one without latency.
    FasterDrive(f64, Gain),
    /// No drive: with one without latency the rate would rise by at most this gain.
    NoDrive(f64, Gain),
    /// More cores, and the gain from twice as many.
    MoreCores(f64, Gain),
    /// More operations per commit or lock: clients wait for one another.
    FewerCommits(f64),
}

impl Remedy {
    /// The most that it may multiply the rate by.
    fn potential(&self) -> f64 {
        match self {
            Self::IdleHost(share)
            | Self::HigherLimit { share, .. }
            | Self::Background(share)
            | Self::Network(share)
            | Self::FewerStalls(share)
            | Self::FewerCommits(share) => without(*share),
            Self::FasterDrive(_, gain) | Self::MoreCores(_, gain) => gain.likely,
            Self::FasterFlushes { most, .. } => *most,
            // Saves a purchase.
            Self::NoDrive(..) => 2.0,
        }
    }
}

/// The most that a rate can rise if this share of an operation's time is removed.
#[must_use]
pub fn without(share: f64) -> f64 {
    1.0 / (1.0 - share.min(0.99))
}

/// A piece of advice about the reference of a decision.
#[derive(Debug)]
pub struct Advice<'a> {
    /// The result that it is about.
    pub choice: &'a Choice<'a>,
    /// The metric.
    pub counted: DecisionMetric,
    /// What to change.
    pub remedy: Remedy,
}

/// Advice for the references of all decisions, the largest potential first.
#[must_use]
pub fn advice<'a>(decisions: &'a [Decision<'a>]) -> Vec<Advice<'a>> {
    let mut found: Vec<Advice<'a>> = decisions.iter().flat_map(of_decision).collect();
    found.sort_by(|a, b| b.remedy.potential().total_cmp(&a.remedy.potential()));
    let mut known: HashSet<(&str, Discriminant<Remedy>)> = HashSet::new();
    found.retain(|one| {
        let engine = match one.remedy {
            // Once for the whole run, with the most affected result.
            Remedy::IdleHost(_) => "",
            _ => one.choice.group.first.engine.as_str(),
        };
        known.insert((engine, discriminant(&one.remedy)))
    });
    found.truncate(ADVICE_MAX);
    found
}

fn of_decision<'a>(decision: &'a Decision<'a>) -> Vec<Advice<'a>> {
    let (choice, counted) = (decision.here(), decision.counted);
    let unreliable = matches!(choice.standing, Reliability::Unreliable(_));
    if counted == DecisionMetric::ReadTime || unreliable {
        return Vec::new();
    }
    let parts = time_parts(&choice.group, counted.ops()).or_else(|| mixed_parts(&choice.group));
    let remedies = parts.map_or_else(Vec::new, |parts| remedies((choice, counted), &parts));
    remedies.into_iter().map(|remedy| Advice { choice, counted, remedy }).collect()
}

fn remedies((choice, counted): (&Choice<'_>, DecisionMetric), parts: &TimeParts) -> Vec<Remedy> {
    let mut found = Vec::new();
    let gain = |change| choice.gains.iter().find(|gain| gain.change == change).copied();
    let others = choice.group.others();
    if others >= OTHERS_MIN {
        // Everything else is about a host with fewer CPUs than it has.
        return vec![Remedy::IdleHost(others)];
    }
    // Waits for other clients shrink as these get faster.
    let waits = parts.share_of_others();
    let own = |share: f64| share / (1.0 - waits).max(share).max(f64::MIN_POSITIVE);
    if let Some(share) = Some(parts.share(Part::Network)).filter(|share| *share >= SHARE_MIN) {
        found.push(Remedy::Network(share));
    }
    let background = parts.share(Part::Background);
    let limit = choice.limited;
    if let LimitedBy::VolumeOperations(_, share) | LimitedBy::VolumeBytes(_, share) = limit {
        // Background threads wait for it, too.
        let share = own(share + background);
        // Locks are held while their owners wait for it.
        let most = gain(Change::FreeDrive).map_or(0.0, |gain| gain.high).max(without(share));
        found.push(Remedy::HigherLimit { limit, share, most });
    } else if background >= BACKGROUND_MIN {
        found.push(Remedy::Background(own(background)));
    }
    if let Some(stalled) = stalled_share(choice.group.first).filter(|share| *share >= SHARE_MIN) {
        found.push(Remedy::FewerStalls(stalled));
    }
    let commits = matches!(counted, DecisionMetric::DurableUpdates | DecisionMetric::Transactions);
    if waits >= 0.5 && commits {
        found.push(Remedy::FewerCommits(waits));
    }
    let drive = parts.drive_share().unwrap_or(0.0);
    let flushes = parts.share(Part::DriveFlushes);
    match gain(Change::FreeDrive) {
        Some(gain) if gain.high <= GAIN_MIN => found.push(Remedy::NoDrive(drive, gain)),
        Some(gain) if gain.low >= GAIN_MIN && flushes >= drive / 2.0 => {
            // Never more than a drive that also reads and writes at once.
            let most = without(own(flushes)).min(gain.high);
            found.push(Remedy::FasterFlushes { share: flushes, most });
            found.push(Remedy::FasterDrive(drive, gain));
        }
        Some(gain) if gain.low >= GAIN_MIN => found.push(Remedy::FasterDrive(drive, gain)),
        // No wait for the drive was counted, and everything else was.
        None if parts.drive_share().is_none()
            && parts.share(Part::Cpu) > 0.0
            && parts.share(Part::Rest) + parts.share(Part::Background) < REST_MAX =>
        {
            let gain = Gain { change: Change::FreeDrive, low: 1.0, likely: 1.0, high: 1.0 };
            found.push(Remedy::NoDrive(0.0, gain));
        }
        _ => {}
    }
    let cpu = parts.share(Part::Cpu) + parts.share(Part::RunQueue);
    if let Some(gain) = gain(Change::TwiceTheCores).filter(|gain| gain.high >= GAIN_MIN) {
        found.push(Remedy::MoreCores(cpu, gain));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::decisions;
    use stats::Limit;
    use units::Nanos;

    fn parts(shares: &[(Part, u64)]) -> TimeParts {
        let parts = shares.iter().map(|(part, share)| (*part, Nanos(*share))).collect();
        TimeParts { whole: Nanos(100), parts }
    }

    /// Advice that names the wrong remedy sends its reader shopping for the wrong thing.
    #[test]
    fn each_cause_has_its_own_remedy() {
        let study = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
                     [[experiment]]\nname = \"e\"\n[experiment.block]\n";
        let mut run = crate::test_run::run_of(study, Nanos(100_000));
        run.trials[0].engine = "lmdb".into();
        let free = |low, high| Gain { change: Change::FreeDrive, low, likely: high, high };
        let of = |shares: &[(Part, u64)], gains: &[Gain], limits: &[Limit]| -> Vec<Remedy> {
            let mut run = run.clone();
            run.trials[0].result.limits = limits.to_vec();
            let mut all = decisions(&run);
            let choice = &mut all[0].choices[0];
            choice.gains = gains.to_vec();
            remedies((choice, DecisionMetric::DurableUpdates), &parts(shares))
        };
        let flushes = [(Part::Cpu, 40), (Part::DriveWrites, 20), (Part::DriveFlushes, 40)];
        let found = of(&flushes, &[free(2.0, 2.5)], &[]);
        let Remedy::FasterFlushes { share, most } = found[0] else { panic!("{found:?}") };
        assert!(share == 0.4 && (most - 1.0 / 0.6).abs() < 1e-9, "flushes alone are less");
        assert_eq!(found[1..], [Remedy::FasterDrive(0.6, free(2.0, 2.5))]);
        let Remedy::FasterFlushes { most, .. } = of(&flushes, &[free(1.2, 1.3)], &[])[0] else {
            panic!()
        };
        assert!((most - 1.3).abs() < 1e-9, "no more than an infinitely fast drive");
        let reads = [(Part::Cpu, 20), (Part::DriveReads, 80)];
        let found = of(&reads, &[free(4.0, 5.0)], &[]);
        assert_eq!(found, [Remedy::FasterDrive(0.8, free(4.0, 5.0))]);
        let cpu = [(Part::Cpu, 97), (Part::DriveReads, 3)];
        let cores = Gain { change: Change::TwiceTheCores, low: 1.0, likely: 1.9, high: 1.9 };
        let found = of(&cpu, &[free(1.0, 1.05), cores], &[]);
        assert_eq!(found, [Remedy::NoDrive(0.03, free(1.0, 1.05)), Remedy::MoreCores(0.97, cores)]);
        let cleaned = [(Part::Background, 60), (Part::Cpu, 20), (Part::DriveReads, 20)];
        assert_eq!(of(&cleaned, &[free(1.2, 5.0)], &[])[0], Remedy::Background(0.6));
        let behind = [(Part::Background, 60), (Part::Cpu, 40)];
        assert_eq!(
            of(&behind, &[], &[]),
            [Remedy::Background(0.6)],
            "the drive may be behind them"
        );
        let far = [(Part::Network, 70), (Part::Cpu, 10), (Part::Rest, 20)];
        assert_eq!(of(&far, &[], &[]), [Remedy::Network(0.7)]);
        let lock = [(Part::Locks, 60), (Part::Cpu, 20), (Part::DriveFlushes, 20)];
        let found = of(&lock, &[free(1.5, 2.0)], &[]);
        assert_eq!(found[0], Remedy::FewerCommits(0.6));
        // Half of what remains without the waits for others.
        assert_eq!(found[1], Remedy::FasterFlushes { share: 0.2, most: 2.0 });
        // On a busy host nothing else is known.
        let busy = [Limit::Others { others: 0.5 }];
        assert_eq!(of(&reads, &[free(4.0, 5.0)], &busy), [Remedy::IdleHost(0.5)]);
    }
}
