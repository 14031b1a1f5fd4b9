//! The constants of a NAND profile, and which of them no drive can have.

use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos, Share};

use super::planes::Suspend;
use super::translation::{Collection, Drive};
use crate::CHUNK;
use crate::constant::Constant;

/// What becomes of writes that were acknowledged and not yet programmed, when the power fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WriteCache {
    /// Capacitors carry them to flash: a flush has nothing to wait for.
    Protected,
    /// They are lost: a flush programs what is gathered, the mapping with it; a forced write programs its
    /// data, then the mapping.
    Volatile,
}

/// Constants of a NAND profile.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NandParameters {
    /// Requests the device takes at once; more wait outside.
    pub max_in_flight: Constant<u32>,
    /// Commands that an NVMe drive has taken in at most; more wait in the host's queues, from which it takes
    /// in turn. Absent: as many as `max_in_flight`, in order of arrival.
    pub commands_inside: Option<Constant<u32>>,
    /// Latency of a read before the controller that no other request waits for.
    pub front_time: Constant<Nanos>,
    /// The same of a write.
    pub front_time_write: Constant<Nanos>,
    /// Serial controller time a request.
    pub controller_time: Constant<Nanos>,
    /// The same of whatever is no read; absent: as long.
    pub controller_time_write: Option<Constant<Nanos>>,
    /// Independently readable units.
    pub read_units: Constant<u32>,
    /// Bytes that one unit reads at once.
    pub flash_page: Constant<Bytes>,
    /// Neighbouring bytes on one unit, whose pages are read one after the other; absent: one page.
    pub stripe: Option<Constant<Bytes>>,
    /// Mean time of a flash read.
    pub read_time: Constant<Nanos>,
    /// Its standard deviation.
    pub read_time_sigma: Constant<Nanos>,
    /// Channels between units and controller.
    pub channels: Constant<u32>,
    /// Channel time per started 4 KiB.
    pub channel_time: Constant<Nanos>,
    /// Link time per started 4 KiB, either direction: the link is half duplex.
    pub link_time: Constant<Nanos>,
    /// Link and protocol time of a request next to its data.
    pub link_request_time: Constant<Nanos>,
    /// Time from data in the buffer to acknowledgement.
    pub write_ack_time: Constant<Nanos>,
    /// Size of the write buffer: what waits for a plane to be programmed.
    pub write_buffer: Constant<Bytes>,
    /// What becomes of buffered writes when the power fails; absent: not known, and no study that flushes
    /// is predicted.
    pub write_cache: Option<Constant<WriteCache>>,
    /// Time of a program that a flush or a forced write asks for; absent: `program_time`.
    pub flush_program_time: Option<Constant<Nanos>>,
    /// Programs and erases at once. More than read units: each of those has several planes, and a read
    /// waits for the work on its own.
    pub program_units: Constant<u32>,
    /// Mean time (exponential, beyond `suspend_least`) until a program or an erase makes way for a read;
    /// absent: it does not.
    pub suspend_time: Option<Constant<Nanos>>,
    /// The least that it takes; absent: nothing.
    pub suspend_least: Option<Constant<Nanos>>,
    /// What going on after that adds to the program or erase; absent: nothing.
    pub resume_time: Option<Constant<Nanos>>,
    /// Reads that go before one program or erase at most; absent: none, all go in order of arrival.
    pub reads_first: Option<Constant<u32>>,
    /// Reads go before writes that wait for buffer space, unless one has waited for longer than this when
    /// the read comes; absent: always.
    pub write_wait_max: Option<Constant<Nanos>>,
    /// Bytes programmed at once on one unit.
    pub program_size: Constant<Bytes>,
    /// How long the data of a program is handed on; writes that come meanwhile wait for it. Absent: none do.
    pub handover_time: Option<Constant<Nanos>>,
    /// Time of a program.
    pub program_time: Constant<Nanos>,
    /// Time of an erase.
    pub erase_time: Constant<Nanos>,
    /// Programs that fill a block, which is erased as one.
    pub programs_per_erase: Constant<u32>,
    /// How garbage collection is modelled.
    pub collection: Constant<Collection>,
    /// Collection gathers so much data to move and then moves it at once, before what the host writes;
    /// absent: as it is owed.
    pub collection_burst: Option<Constant<Bytes>>,
    /// Whether it moves as it is owed while the host waits, which meters the host's writes; absent: it does.
    pub meters: Option<Constant<bool>>,
    /// Spare area beyond the capacity, as far as collection can use it.
    pub over_provisioning: Constant<Share>,
    /// Flash bytes programmed per host byte of sequential writes in steady state, at least 1.
    pub sequential_amplification: Constant<f64>,
    /// Mean time between background stalls (exponential); absent: none.
    pub stall_period: Option<Constant<Nanos>>,
    /// Length of a background stall.
    pub stall_time: Option<Constant<Nanos>>,
    /// Read units that stand still in it.
    pub stalled_units: Option<Constant<u32>>,
    /// Share of erases after which the unit stands still for `erase_stall_time`; absent: none.
    pub erase_stall_share: Option<Constant<Share>>,
    /// Length of such a pause: housekeeping of the translation layer under writes.
    pub erase_stall_time: Option<Constant<Nanos>>,
}

/// Larger drives have more pages than the page-level layer counts.
const PAGE_LEVEL_MAX: Bytes = Bytes(4 << 40);

/// Work that let more reads pass would not end.
const READS_FIRST_MAX: u32 = 10_000;
/// Nothing is gathered for longer.
const BURST_MAX: Bytes = Bytes(1 << 30);
/// Stalls more often are no stalls.
const STALL_PERIOD_MIN: Nanos = Nanos::from_micros(10);

impl NandParameters {
    /// Requests that are inside at once, at least one.
    pub(super) fn inside_max(&self) -> u32 {
        let inside = self.commands_inside.as_ref().map_or(u32::MAX, |most| most.value);
        self.max_in_flight.value.min(inside).max(1)
    }

    /// How long work on flash takes to make way for a read.
    pub(super) fn suspend(&self) -> Suspend {
        let value = |time: &Option<Constant<Nanos>>| time.as_ref().map(|time| time.value);
        Suspend {
            least: value(&self.suspend_least).unwrap_or(Nanos::ZERO),
            mean_beyond: value(&self.suspend_time).unwrap_or(Nanos::MAX),
        }
    }

    /// What a suspension adds to it.
    pub(super) fn resume(&self) -> Nanos {
        self.resume_time.as_ref().map_or(Nanos::ZERO, |time| time.value)
    }

    /// Reads that go before one piece of work at most.
    pub(super) fn reads_first(&self) -> u32 {
        self.reads_first.as_ref().map_or(0, |most| most.value)
    }

    /// What the translation layer must know of a drive of `capacity`.
    pub(crate) fn drive(&self, capacity: Bytes) -> Drive {
        let programs = u64::from(self.programs_per_erase.value);
        let block = programs.saturating_mul(self.program_size.value.get());
        let pages_per_block = u32::try_from(block / CHUNK).unwrap_or(u32::MAX);
        let sequential = self.sequential_amplification.value;
        Drive::new(capacity.get(), self.over_provisioning.value, pages_per_block, sequential)
    }

    /// Why no drive can treat reads and writes so.
    fn impossible_priority(&self) -> Option<String> {
        if self.handover_time.as_ref().is_some_and(|time| time.value > self.program_time.value) {
            return Some("`handover_time` must not be longer than `program_time`".into());
        }
        if self.resume() > self.program_time.value {
            return Some("`resume_time` must not be longer than `program_time`".into());
        }
        if self.suspend_least.is_some() && self.suspend_time.is_none() {
            return Some("`suspend_least` needs `suspend_time`".into());
        }
        if self.reads_first() > READS_FIRST_MAX {
            return Some(format!("`reads_first` is at most {READS_FIRST_MAX}"));
        }
        if self.collection_burst.is_none() && self.meters.is_some() {
            return Some("`meters` needs `collection_burst`".into());
        }
        let burst = self.collection_burst.as_ref().map_or(Bytes(0), |burst| burst.value);
        if burst > BURST_MAX {
            return Some(format!("`collection_burst` is at most {BURST_MAX}"));
        }
        let period = self.stall_period.as_ref().map_or(STALL_PERIOD_MIN, |period| period.value);
        (period < STALL_PERIOD_MIN)
            .then(|| format!("`stall_period` must be at least {STALL_PERIOD_MIN}"))
    }

    /// Why no drive can be so.
    pub(crate) fn impossible(&self, capacity: Bytes) -> Option<String> {
        if self.collection.value == Collection::PageLevel && capacity > PAGE_LEVEL_MAX {
            return Some(format!(
                "`collection` page by page is for drives of at most {PAGE_LEVEL_MAX}; use closed-form"
            ));
        }
        let block = u64::from(self.programs_per_erase.value)
            .checked_mul(self.program_size.value.get())
            .and_then(|bytes| u32::try_from(bytes / CHUNK).ok());
        if block.is_none() {
            return Some("`programs_per_erase` x `program_size` is not a valid erase block".into());
        }
        let sequential = self.sequential_amplification.value;
        if !(1.0..=100.0).contains(&sequential) {
            return Some("`sequential_amplification` must be from 1 to 100".into());
        }
        if let Some(reason) = self.impossible_priority() {
            return Some(reason);
        }
        if self.over_provisioning.value.fraction() <= 0.0 {
            return Some("`over_provisioning` must be more than 0%: collection needs room".into());
        }
        if self.write_buffer.value < self.program_size.value {
            return Some("`write_buffer` must hold one `program_size`".into());
        }
        if !self.program_size.value.get().is_multiple_of(CHUNK) {
            return Some("`program_size` must be a multiple of 4KiB".into());
        }
        let page = self.flash_page.value.get().max(CHUNK);
        if self.stripe.as_ref().is_some_and(|s| s.value.get() == 0 || s.value.get() % page != 0) {
            return Some("`stripe` must be a multiple of `flash_page`".into());
        }
        let stall =
            [self.stall_period.is_some(), self.stall_time.is_some(), self.stalled_units.is_some()];
        if stall.contains(&true) && stall.contains(&false) {
            return Some("`stall_period`, `stall_time` and `stalled_units` go together".into());
        }
        if self.erase_stall_share.is_some() != self.erase_stall_time.is_some() {
            return Some("`erase_stall_share` and `erase_stall_time` go together".into());
        }
        None
    }
}
