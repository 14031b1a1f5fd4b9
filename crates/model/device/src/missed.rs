//! Why a model misses a published figure that no constant has seen.
//!
//! Invariant: a cause is named, never fitted: nothing here enters the model.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What is known of why a figure is missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissCause {
    /// Reads find their unit at work more often than the time of programming says.
    BusyUnits,
    /// How long suspensions of programs and erases take, and how many come in a row.
    Suspensions,
    /// Stalls of a full write buffer: how long, and how many reads wait behind them.
    Stalls,
    /// The drive slows its writes evenly once it is full.
    Metering,
    /// Pauses that come whatever the rate.
    Pauses,
    /// How much acknowledgements vary.
    Acknowledgement,
    /// The drive takes longer for each request, the fastest too, in some states.
    States,
    /// Which blocks are collected, and when.
    Collection,
    /// A limit that a provider sets.
    Limiter,
    /// The host or the path of the source.
    Host,
    /// What a virtual machine or its host adds.
    Hop,
    /// How a disk drive orders its requests.
    Scheduler,
    /// What forcing a write to the medium takes.
    Forced,
    /// Two sources that cannot both be true of one drive.
    Sources,
    /// A constant that no source of the drive gives.
    Assumed,
    /// The figure lies where a curve is steep.
    Steep,
    /// Another specimen of the drive does not show it.
    Specimen,
    /// Nothing is known.
    Unexplained,
}

units::words!(MissCause {
    BusyUnits => "busy units", Suspensions => "suspensions", Stalls => "stalls",
    Metering => "metering", Pauses => "pauses", Acknowledgement => "acknowledgement",
    States => "states", Collection => "collection", Limiter => "limiter", Host => "host",
    Hop => "hop", Scheduler => "scheduler", Forced => "forced writes", Sources => "sources",
    Assumed => "assumed constants", Steep => "steep curve", Specimen => "one specimen",
    Unexplained => "unexplained",
});

impl MissCause {
    /// What the drive does, and what the model does instead.
    #[must_use]
    pub const fn because(self) -> &'static str {
        match self {
            Self::BusyUnits => {
                "reads of the drive find their flash at work more often than the share of time that \
                 programs take on planes of the model"
            }
            Self::Suspensions => {
                "how long a read waits for suspensions of programs or erases, and behind how many in a row, \
                 is spread otherwise than in the model: there it is exponential, and fitted at one p99"
            }
            Self::Stalls => {
                "the drive's write buffer is full at other times, and for other lengths, than the model's, \
                 and reads wait behind it"
            }
            Self::Metering => {
                "once full the drive takes writes at an even pace, and fewer of them; the model takes what \
                 its flash can program"
            }
            Self::Pauses => {
                "the drive stops for a while whatever the rate (its own upkeep); the model acknowledges from \
                 its buffer, and reads its flash, without any"
            }
            Self::Acknowledgement => {
                "acknowledgements from the drive's buffer vary; the model's take one time, and wait \
                 for nothing but data that is handed on"
            }
            Self::States => {
                "in some states every request takes the drive longer, the fastest too: when few come, or \
                 beside more than a few writes; the model's always take the same"
            }
            Self::Collection => {
                "how much is erased when the drive begins, what it collects, and when; the model collects \
                 first in, first out"
            }
            Self::Limiter => "the provider's limiter makes requests wait; the model has none there",
            Self::Host => {
                "the source's host, file system or array is not the one that it is predicted on, and bounds \
                 or adds what the drive does not"
            }
            Self::Hop => {
                "guests have less bandwidth than the host; hops of the model cost latency alone"
            }
            Self::Scheduler => {
                "the model's scheduler knows the rotation exactly, the drive's does not"
            }
            Self::Forced => {
                "a forced write takes this drive longer than the two programs of the model"
            }
            Self::Sources => {
                "the source contradicts the datasheet, another source or another of its own figures, that a \
                 constant was taken from"
            }
            Self::Assumed => "no source gives the constant that it hangs on, which was assumed",
            Self::Steep => {
                "the curve is so steep there that the model has the printed number at a rate a few percent \
                 higher"
            }
            Self::Specimen => {
                "another specimen of the drive in the same study does not show it, and the model is nearer \
                 to that one"
            }
            Self::Unexplained => "nothing is known of it",
        }
    }
}

/// Why figures of an `[[acceptance]]` are missed, by their keys.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub struct MissLists(BTreeMap<MissCause, Vec<String>>);

impl MissLists {
    /// Why the figure with this key is missed.
    #[must_use]
    pub fn of(&self, key: &str) -> Option<MissCause> {
        let named = |(_, keys): &(&MissCause, &Vec<String>)| keys.iter().any(|one| one == key);
        self.0.iter().find(named).map(|(cause, _)| *cause)
    }

    /// What is wrong with it, next to these keys of figures: one without a figure, or under two causes.
    pub(crate) fn wrong(&self, figures: &[&str]) -> Option<String> {
        let mut seen: Vec<&str> = Vec::new();
        for key in self.0.values().flatten() {
            if !figures.contains(&key.as_str()) {
                return Some(format!("names `{key}`, of which it has no figure"));
            }
            if seen.contains(&key.as_str()) {
                return Some(format!("names `{key}` twice"));
            }
            seen.push(key);
        }
        None
    }
}
