//! Fault plans: which faults a device has, when, and how often; parsed from TOML.
//!
//! Invariants: an unknown key or an impossible fault is an error; nothing is drawn here.

use std::num::NonZeroU32;

use serde::Deserialize;
use thiserror::Error;
use units::{Bytes, Nanos, Seed, Share};

use crate::{Operation, Request};

/// Maximum faults of a plan: each is checked for each request.
const FAULTS_MAX: usize = 64;
/// Longest time in a plan.
const TIME_MAX: Nanos = Nanos::from_secs(7 * 24 * 3600);

/// Why a text is not a valid plan.
#[derive(Debug, Error)]
pub enum FaultPlanError {
    /// Invalid TOML, an unknown key or a wrong unit; points at the position.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// An impossible fault.
    #[error("fault {number}: {reason}")]
    Impossible {
        /// Its position in the file, from 1; 0 for the plan itself.
        number: usize,
        /// The reason, and what is allowed.
        reason: String,
    },
}

/// The faults of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultPlan {
    /// Seed of all draws.
    pub seed: Seed,
    /// In the order of the file; the first that matches a request decides.
    pub faults: Vec<Fault>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: u32,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    fault: Vec<Fault>,
}

/// When a fault is active; always by default. Times count from the attachment of the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Its start.
    #[serde(default)]
    pub at: Nanos,
    /// How long it lasts; absent: until the end.
    #[serde(rename = "for")]
    pub lasts: Option<Nanos>,
    /// Repeat interval; absent: once.
    pub every: Option<Nanos>,
}

impl Window {
    /// If `now` is within it, its end ([`Nanos::MAX`]: never).
    #[must_use]
    pub fn end_at(&self, now: Nanos) -> Option<Nanos> {
        if now < self.at {
            return None;
        }
        let Some(lasts) = self.lasts else { return Some(Nanos::MAX) };
        let turn = self.every.map_or(0, |every| now.since(self.at).get() / every.get());
        let began = self.at + Nanos(turn * self.every.map_or(0, Nanos::get));
        (now < began + lasts).then(|| began + lasts)
    }

    fn impossible(&self) -> Option<String> {
        let times = [Some(self.at), self.lasts, self.every];
        if times.iter().flatten().any(|time| *time > TIME_MAX) {
            return Some("a time of more than 7 days".into());
        }
        match (self.lasts, self.every) {
            (None, Some(_)) => Some("`every` without `for`: it never ends".into()),
            (Some(Nanos::ZERO), _) => Some("`for` is 0; leave it out for: until the end".into()),
            (Some(lasts), Some(every)) if lasts >= every => {
                Some(format!("`for` ({lasts}) must be shorter than `every` ({every})"))
            }
            _ => None,
        }
    }
}

/// Address range of a fault; the whole device by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// First byte.
    pub offset: Bytes,
    /// Bytes.
    pub length: Bytes,
}

/// A kind of request, as named in plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// Reads.
    Read,
    /// Writes and zeroes.
    Write,
    /// Flushes.
    Flush,
    /// Discards.
    Discard,
}

impl From<Operation> for Asked {
    fn from(operation: Operation) -> Self {
        match operation {
            Operation::Read => Self::Read,
            Operation::Write | Operation::WriteZeroes => Self::Write,
            Operation::Flush => Self::Flush,
            Operation::Discard => Self::Discard,
        }
    }
}

fn everything() -> Share {
    Share::ALL
}

fn every_kind() -> Vec<Asked> {
    vec![Asked::Read, Asked::Write, Asked::Flush, Asked::Discard]
}

/// A fault.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// Requests fail with an I/O error and change nothing.
    Error {
        /// Affected requests; absent: all.
        #[serde(default = "every_kind")]
        of: Vec<Asked>,
        /// Share of them; absent: all.
        #[serde(default = "everything")]
        share: Share,
        /// Time window.
        #[serde(default)]
        when: Window,
        /// Address range; the whole device by default.
        range: Option<Range>,
    },
    /// Nothing completes during the stall.
    Stall {
        /// Time window; requires `for`.
        when: Window,
    },
    /// Requests take longer by a factor (fail-slow).
    Slow {
        /// The factor.
        factor: NonZeroU32,
        /// Time window, by the completion time of requests.
        #[serde(default)]
        when: Window,
    },
    /// Read-only from then on: writes and discards fail.
    ReadOnly {
        /// Start time.
        #[serde(default)]
        at: Nanos,
    },
    /// The device holds less than its size: further writes fail with ENOSPC, as on an overcommitted volume.
    Full {
        /// Its real capacity.
        after: Bytes,
    },
    /// Writes are acknowledged and not done.
    LostWrite {
        /// Share of writes.
        share: Share,
        /// Time window.
        #[serde(default)]
        when: Window,
        /// Address range; the whole device by default.
        range: Option<Range>,
    },
    /// Writes leave a flipped bit.
    BitRot {
        /// Share of writes.
        share: Share,
        /// Time window.
        #[serde(default)]
        when: Window,
        /// Address range; the whole device by default.
        range: Option<Range>,
    },
    /// Flushes are acknowledged and dropped: their data is still lost at a power cut.
    LyingFlush {
        /// Share of them; absent: all.
        #[serde(default = "everything")]
        share: Share,
        /// Time window.
        #[serde(default)]
        when: Window,
    },
    /// The power is cut: every later request fails, and only some unflushed writes remain.
    PowerCut {
        /// Time of the cut; alternative to `write`.
        at: Option<Nanos>,
        /// Number of the write at which power is cut, from 1.
        write: Option<u64>,
        /// Power-loss protection: only writes in flight are lost.
        #[serde(default)]
        protected: bool,
    },
}

impl Fault {
    fn window(&self) -> Window {
        match self {
            Self::Error { when, .. }
            | Self::Stall { when }
            | Self::Slow { when, .. }
            | Self::LostWrite { when, .. }
            | Self::BitRot { when, .. }
            | Self::LyingFlush { when, .. } => *when,
            Self::ReadOnly { at } => Window { at: *at, ..Window::default() },
            Self::PowerCut { at, .. } => Window { at: at.unwrap_or_default(), ..Window::default() },
            Self::Full { .. } => Window::default(),
        }
    }

    fn range(&self) -> Option<Range> {
        match self {
            Self::Error { range, .. }
            | Self::LostWrite { range, .. }
            | Self::BitRot { range, .. } => *range,
            _ => None,
        }
    }

    fn share(&self) -> Share {
        match self {
            Self::Error { share, .. }
            | Self::LostWrite { share, .. }
            | Self::BitRot { share, .. }
            | Self::LyingFlush { share, .. } => *share,
            _ => Share::ALL,
        }
    }

    fn impossible(&self) -> Option<String> {
        if self.share() == Share::NONE {
            return Some("a share of 0; allowed: 0.01% to 100%".into());
        }
        if self.range().is_some_and(|range| range.length == Bytes(0)) {
            return Some("an empty range".into());
        }
        match self {
            Self::Stall { when } if when.lasts.is_none() => Some(
                "a stall needs `for` in `when`, such as when = { at = \"1s\", for = \"50ms\" }"
                    .into(),
            ),
            Self::Error { of, .. } if of.is_empty() => {
                Some("`of` names no requests; allowed: read, write, flush, discard".into())
            }
            Self::PowerCut { at: None, write: None, .. }
            | Self::PowerCut { at: Some(_), write: Some(_), .. } => {
                Some("a power cut needs either `at` or `write`".into())
            }
            Self::PowerCut { write: Some(0), .. } => Some("writes are counted from 1".into()),
            Self::Slow { factor, .. } if factor.get() > 1_000_000 => {
                Some("a `factor` of more than 1000000".into())
            }
            _ => self.window().impossible(),
        }
    }

    /// Whether it can affect a request at `now`.
    #[must_use]
    pub fn meets(&self, now: Nanos, request: &Request) -> bool {
        let within = self.range().is_none_or(|range| {
            let (from, end) =
                (range.offset.get(), range.offset.get().saturating_add(range.length.get()));
            request.offset < end && from < request.offset.saturating_add(u64::from(request.length))
        });
        let kind = match self {
            Self::Error { of, .. } => of.contains(&Asked::from(request.operation)),
            Self::ReadOnly { .. } => request.operation.changes(),
            Self::Full { .. } | Self::LostWrite { .. } | Self::BitRot { .. } => {
                request.operation == Operation::Write
            }
            Self::LyingFlush { .. } => request.operation == Operation::Flush,
            Self::Stall { .. } | Self::Slow { .. } | Self::PowerCut { .. } => false,
        };
        kind && within && self.window().end_at(now).is_some()
    }

    /// Probability of affecting such a request.
    #[must_use]
    pub fn chance(&self) -> f64 {
        self.share().fraction()
    }
}

impl FaultPlan {
    /// Reads a plan.
    ///
    /// # Errors
    /// [`FaultPlanError`].
    pub fn parse(text: &str) -> Result<Self, FaultPlanError> {
        let file: File = toml::from_str(text)?;
        let refuse = |number, reason| Err(FaultPlanError::Impossible { number, reason });
        if file.schema != 1 {
            return refuse(0, format!("schema {} is unknown; allowed: 1", file.schema));
        }
        if file.fault.len() > FAULTS_MAX {
            return refuse(0, format!("{} faults; at most {FAULTS_MAX}", file.fault.len()));
        }
        let plan = Self { seed: Seed(file.seed), faults: file.fault };
        let wrong = plan.faults.iter().zip(1..);
        let wrong = wrong.filter_map(|(fault, number)| Some((number, fault.impossible()?)));
        match wrong.into_iter().next() {
            Some((number, reason)) => refuse(number, reason),
            None => Ok(plan),
        }
    }

    /// Whether acknowledged data survives a power cut without a flush.
    #[must_use]
    pub fn protects(&self) -> bool {
        let protected = |fault: &Fault| matches!(fault, Fault::PowerCut { protected: true, .. });
        self.faults.iter().any(protected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        FaultPlan::parse(text).unwrap_err().to_string()
    }

    /// A misread plan would test other faults than requested.
    #[test]
    fn plans_are_read_whole_or_refused_with_what_is_allowed() {
        let text = "schema = 1\nseed = 7\n[[fault]]\nkind = \"error\"\nof = [\"read\"]\nshare = \"1%\"\n\
                    when = { at = \"2s\", for = \"1s\", every = \"10s\" }\n\
                    range = { offset = \"0B\", length = \"1MiB\" }\n\
                    [[fault]]\nkind = \"power_cut\"\nwrite = 9\n";
        let plan = FaultPlan::parse(text).unwrap();
        assert!(!plan.protects() && plan.seed == Seed(7) && plan.faults.len() == 2);
        let fault = |rest: &str| format!("schema = 1\n[[fault]]\n{rest}\n");
        assert!(refusal(&fault("kind = \"eror\"")).contains("unknown variant"));
        assert!(refusal(&fault("kind = \"stall\"\nwhen = {at = \"1s\"}")).contains("needs `for`"));
        assert!(refusal(&fault("kind = \"power_cut\"")).contains("either `at` or `write`"));
        assert!(refusal(&fault("kind = \"slow\"\nfactor = 2\nshare = \"1%\"")).contains("share"));
        let endless = "kind = \"slow\"\nfactor = 2\nwhen = {for = \"2s\", every = \"1s\"}";
        assert!(refusal(&fault(endless)).contains("must be shorter"));
        assert!(refusal("schema = 2").contains("allowed: 1"));
        assert!(refusal(&fault("kind = \"lost_write\"\nshare = \"0%\"")).contains("0.01%"));
    }

    #[test]
    fn windows_begin_again_and_end() {
        let secs = Nanos::from_secs;
        let window = Window { at: secs(2), lasts: Some(secs(1)), every: Some(secs(10)) };
        let inside = |now| window.end_at(secs(now));
        assert_eq!([inside(1), inside(2), inside(3)], [None, Some(secs(3)), None]);
        assert_eq!([inside(12), inside(13)], [Some(secs(13)), None]);
        assert_eq!(Window::default().end_at(secs(99)), Some(Nanos::MAX));
    }
}
