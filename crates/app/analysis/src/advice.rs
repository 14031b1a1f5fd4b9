//! Advice: what would make a job faster, from the parts of an operation's time.
//!
//! Each piece follows from one group's counters and says what it is worth as bounds. Invariants: at most
//! [`ADVICE_MAX`] pieces, one of a kind for each engine; block jobs get none, since they are the drive's own.

use std::collections::HashSet;
use std::mem::{Discriminant, discriminant};

use crate::decision::{Choice, Decision, DecisionMetric, LimitedBy};
use crate::gain::{Change, Gain};
use crate::time_parts::{Part, TimeParts, mixed_parts, stalled_share, time_parts};

/// Pieces of advice for a run.
pub const ADVICE_MAX: usize = 5;
/// Share of an operation's time from which on a cause is worth removing.
const SHARE_MIN: f64 = 0.1;
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
    /// Raise the rate limit of the volume that operations wait for.
    HigherLimit(LimitedBy, f64),
    /// Let memtable flushes and compactions keep up: writes are held up for this share of the time.
    FewerStalls(f64),
    /// A drive that acknowledges flushes sooner, and the gain from one without latency.
    FasterFlushes(f64, Gain),
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
            | Self::HigherLimit(_, share)
            | Self::FewerStalls(share)
            | Self::FewerCommits(share) => 1.0 / (1.0 - share.min(0.99)),
            Self::FasterFlushes(_, gain)
            | Self::FasterDrive(_, gain)
            | Self::MoreCores(_, gain) => gain.high,
            // Saves a purchase.
            Self::NoDrive(..) => 2.0,
        }
    }
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
        known.insert((one.choice.group.first.engine.as_str(), discriminant(&one.remedy)))
    });
    found.truncate(ADVICE_MAX);
    found
}

fn of_decision<'a>(decision: &'a Decision<'a>) -> Vec<Advice<'a>> {
    let (choice, counted) = (decision.here(), decision.counted);
    if counted == DecisionMetric::ReadTime {
        return Vec::new();
    }
    let parts = time_parts(&choice.group, counted.ops()).or_else(|| mixed_parts(&choice.group));
    let remedies = parts.map_or_else(Vec::new, |parts| remedies(choice, &parts));
    remedies.into_iter().map(|remedy| Advice { choice, counted, remedy }).collect()
}

fn remedies(choice: &Choice<'_>, parts: &TimeParts) -> Vec<Remedy> {
    let mut found = Vec::new();
    let gain = |change| choice.gains.iter().find(|gain| gain.change == change).copied();
    match choice.limited {
        LimitedBy::OtherProcesses(share) if share >= OTHERS_MIN => {
            // Everything else is about a host with fewer CPUs than it has.
            return vec![Remedy::IdleHost(share)];
        }
        limit @ (LimitedBy::VolumeOperations(_, share) | LimitedBy::VolumeBytes(_, share)) => {
            found.push(Remedy::HigherLimit(limit, share));
        }
        _ => {}
    }
    if let Some(stalled) = stalled_share(choice.group.first).filter(|share| *share >= SHARE_MIN) {
        found.push(Remedy::FewerStalls(stalled));
    }
    let waits = parts.share_of_others();
    if waits >= 0.5 {
        found.push(Remedy::FewerCommits(waits));
    }
    let drive = parts.drive_share().unwrap_or(0.0);
    let flushes = parts.share(Part::DriveFlushes);
    match gain(Change::FreeDrive) {
        Some(gain) if gain.high <= GAIN_MIN => found.push(Remedy::NoDrive(drive, gain)),
        Some(gain) if gain.low >= GAIN_MIN && flushes >= drive / 2.0 => {
            found.push(Remedy::FasterFlushes(flushes, gain));
        }
        Some(gain) if gain.low >= GAIN_MIN => found.push(Remedy::FasterDrive(drive, gain)),
        // No wait for the drive was counted, and everything else was.
        None if parts.drive_share().is_none()
            && parts.share(Part::Cpu) > 0.0
            && parts.share(Part::Rest) < REST_MAX =>
        {
            let gain = Gain { change: Change::FreeDrive, low: 1.0, high: 1.0 };
            found.push(Remedy::NoDrive(0.0, gain));
        }
        _ => {}
    }
    let cpu = parts.share(Part::Cpu) + parts.share(Part::RunQueue) + parts.share(Part::WakeUps);
    if let Some(gain) = gain(Change::TwiceTheCores).filter(|gain| gain.high >= GAIN_MIN) {
        found.push(Remedy::MoreCores(cpu, gain));
    }
    found
}
