//! The constants of a NAND profile, and their checks.

use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos, Share};

use super::planes::Suspend;
use super::translation::{Collection, Drive};
use crate::CHUNK;
use crate::constant::Constant;

/// Fate of acknowledged, unprogrammed writes at a power failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WriteCache {
    /// Capacitors save them: a flush has nothing to wait for.
    Protected,
    /// Lost: a flush programs buffered data with the mapping; a FUA write programs its data, then the
    /// mapping.
    Volatile,
}

/// Constants of a NAND profile.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NandParameters {
    /// Maximum number of admitted requests; others wait in the host.
    pub max_in_flight: Constant<u32>,
    /// Maximum commands inside an NVMe drive; others wait in the host's queues, which take turns. Absent:
    /// `max_in_flight`, in arrival order.
    pub commands_inside: Option<Constant<u32>>,
    /// Latency of a read before the controller, without queueing.
    pub front_time: Constant<Nanos>,
    /// The same for writes.
    pub front_time_write: Constant<Nanos>,
    /// Time at the serial controller, per request.
    pub controller_time: Constant<Nanos>,
    /// The same for everything except reads; absent: equal.
    pub controller_time_write: Option<Constant<Nanos>>,
    /// Independently readable units.
    pub read_units: Constant<u32>,
    /// Bytes that one unit reads at once.
    pub flash_page: Constant<Bytes>,
    /// Bytes at consecutive addresses on one unit, whose pages are read one after the other; if absent, one
    /// page.
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
    /// Link and protocol time per request, without its data.
    pub link_request_time: Constant<Nanos>,
    /// Time from data in the buffer to acknowledgement.
    pub write_ack_time: Constant<Nanos>,
    /// Size of the write buffer: data waiting for a plane.
    pub write_buffer: Constant<Bytes>,
    /// Buffered writes after a power failure; if absent, unknown, and studies with flushes are not predicted.
    pub write_cache: Option<Constant<WriteCache>>,
    /// Time of a program for a flush or forced write; absent: `program_time`.
    pub flush_program_time: Option<Constant<Nanos>>,
    /// Number of concurrent programs and erases. If larger than the number of read units, each unit has
    /// several planes, and a read waits only for work on its own.
    pub program_units: Constant<u32>,
    /// Mean time (exponential, beyond `suspend_least`) until a program or erase is suspended for a read;
    /// absent: it is not.
    pub suspend_time: Option<Constant<Nanos>>,
    /// Minimum of that time; absent: zero.
    pub suspend_least: Option<Constant<Nanos>>,
    /// Time that resuming adds to the program or erase; absent: zero.
    pub resume_time: Option<Constant<Nanos>>,
    /// Maximum number of reads ahead of one program or erase; if absent, all work is done in order of
    /// arrival.
    pub reads_first: Option<Constant<u32>>,
    /// Reads precede writes that wait for buffer space, unless one has waited for longer than this when the
    /// read arrives; absent: always.
    pub write_wait_max: Option<Constant<Nanos>>,
    /// Bytes per program on one unit.
    pub program_size: Constant<Bytes>,
    /// Time to hand over a program's data, during which new writes wait. If absent, they do not wait.
    pub handover_time: Option<Constant<Nanos>>,
    /// Time of a program.
    pub program_time: Constant<Nanos>,
    /// Time of an erase.
    pub erase_time: Constant<Nanos>,
    /// Programs per erase block.
    pub programs_per_erase: Constant<u32>,
    /// How garbage collection is modelled.
    pub collection: Constant<Collection>,
    /// Collection is deferred until this much data is due, and then done at once, before host writes; if
    /// absent, as it falls due.
    pub collection_burst: Option<Constant<Bytes>>,
    /// Whether due collection is done while the host waits, which throttles host writes; true if absent.
    pub meters: Option<Constant<bool>>,
    /// Spare area beyond the capacity, as far as collection can use it.
    pub over_provisioning: Constant<Share>,
    /// Flash bytes programmed per host byte of sequential writes in steady state, at least 1.
    pub sequential_amplification: Constant<f64>,
    /// Mean time between background stalls (exponential); absent: none.
    pub stall_period: Option<Constant<Nanos>>,
    /// Length of a background stall.
    pub stall_time: Option<Constant<Nanos>>,
    /// Read units that stop in a stall.
    pub stalled_units: Option<Constant<u32>>,
    /// Share of erases after which the unit stops for `erase_stall_time`; absent: none.
    pub erase_stall_share: Option<Constant<Share>>,
    /// Length of such a pause after an erase: internal work of the translation layer.
    pub erase_stall_time: Option<Constant<Nanos>>,
}

/// Larger drives have more pages than the page-level layer counts.
const PAGE_LEVEL_MAX: Bytes = Bytes(4 << 40);

/// Upper limit; beyond it work would never end.
const READS_FIRST_MAX: u32 = 10_000;
/// Upper limit of a burst.
const BURST_MAX: Bytes = Bytes(1 << 30);
/// Lower limit of the stall period.
const STALL_PERIOD_MIN: Nanos = Nanos::from_micros(10);

impl NandParameters {
    /// Maximum requests inside, at least one.
    pub(super) fn inside_max(&self) -> u32 {
        let inside = self.commands_inside.as_ref().map_or(u32::MAX, |most| most.value);
        self.max_in_flight.value.min(inside).max(1)
    }

    /// Suspension time of flash work.
    pub(super) fn suspend(&self) -> Suspend {
        let value = |time: &Option<Constant<Nanos>>| time.as_ref().map(|time| time.value);
        Suspend {
            least: value(&self.suspend_least).unwrap_or(Nanos::ZERO),
            mean_beyond: value(&self.suspend_time).unwrap_or(Nanos::MAX),
        }
    }

    /// Time that each suspension adds.
    pub(super) fn resume(&self) -> Nanos {
        self.resume_time.as_ref().map_or(Nanos::ZERO, |time| time.value)
    }

    /// Maximum number of reads ahead of one piece of work.
    pub(super) fn reads_first(&self) -> u32 {
        self.reads_first.as_ref().map_or(0, |most| most.value)
    }

    /// Parameters of the translation layer for a drive of `capacity`.
    pub(crate) fn drive(&self, capacity: Bytes) -> Drive {
        let programs = u64::from(self.programs_per_erase.value);
        let block = programs.saturating_mul(self.program_size.value.get());
        let pages_per_block = u32::try_from(block / CHUNK).unwrap_or(u32::MAX);
        let sequential = self.sequential_amplification.value;
        Drive::new(capacity.get(), self.over_provisioning.value, pages_per_block, sequential)
    }

    /// Returns why this combination of read priorities is impossible.
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

    /// Returns why these parameters are impossible.
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
