//! 3D XPoint on NVMe: a serial server, a media stage striped over channels, a fixed pipeline, and a short
//! periodic stall.
//!
//! # Model
//! The first 4 KiB chunk takes `serial_time` (reads) or `serial_time_write` at one FIFO server, each further
//! one of the same request `serial_time_more` or `serial_time_write_more`, then `media_time` at the channel
//! of its address (4 KiB stripe, so accesses to one chunk serialise), then `fixed_time`. Every `stall_period`
//! the serial server stops for `stall_time` plus an exponential time with mean `stall_time_more`. The serial
//! server is first and FIFO, so later stages also serve in arrival order and completion times are exact when
//! computed at submission, without intermediate events.
//!
//! # Source
//! Kan Wu, PhD thesis ch. 3 and "Towards an Unwritten Contract of Intel Optane SSD", HotStorage 2019
//! (channels, stripe, misalignment, reads and writes alike); Ren and Trivedi, CHEOPS 2023, raw fio data
//! (rates, tails). Constants with their own sources are in the profiles.
//!
//! Invariant: no garbage collection, so the state does not depend on earlier writes.

use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use units::{Nanos, Seed};

use crate::constant::Constant;
use crate::pending::Pending;
use crate::{CHUNK, Completion, Device, Operation, Request, Stage, Stages};

/// Constants of a 3D XPoint profile.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct XPointParameters {
    /// Serial service per started 4 KiB of a read.
    pub serial_time: Constant<Nanos>,
    /// Serial service per started 4 KiB of a write.
    pub serial_time_write: Constant<Nanos>,
    /// Service time at the serial server for each further 4 KiB of a read.
    pub serial_time_more: Constant<Nanos>,
    /// Service time at the serial server for each further 4 KiB of a write.
    pub serial_time_write_more: Constant<Nanos>,
    /// Service per chunk at its channel.
    pub media_time: Constant<Nanos>,
    /// Channels that 4 KiB chunks stripe over.
    pub channels: Constant<u32>,
    /// Latency without queueing.
    pub fixed_time: Constant<Nanos>,
    /// Time between stalls.
    pub stall_period: Constant<Nanos>,
    /// Minimum length of a stall.
    pub stall_time: Constant<Nanos>,
    /// Mean extra stall time (exponential); absent: zero.
    pub stall_time_more: Option<Constant<Nanos>>,
}

impl XPointParameters {
    /// Returns why these stalls are impossible.
    pub(crate) fn impossible(&self) -> Option<String> {
        if self.stall_period.value < Nanos::from_micros(10) {
            return Some("`stall_period` must be at least 10us".into());
        }
        let more = self.stall_time_more.as_ref().map_or(Nanos::ZERO, |more| more.value);
        (self.stall_time.value + more * 10 >= self.stall_period.value).then(|| {
            "`stall_time` and ten `stall_time_more` must be shorter than `stall_period`".into()
        })
    }
}

/// A 3D XPoint device.
#[derive(Debug, Clone)]
pub struct XPoint {
    /// Of reads and of writes, nanoseconds.
    serial_time: [Nanos; 2],
    serial_time_more: [Nanos; 2],
    media_time: Nanos,
    fixed_time: Nanos,
    stall_period: Nanos,
    stall_least: Nanos,
    stall_more: Nanos,
    /// Length of the next stall.
    stall_time: Nanos,
    next_stall: Nanos,
    random: Xoshiro256PlusPlus,
    serial_free: Nanos,
    /// `[channel]`: when it is next free.
    channel_free: Vec<Nanos>,
    done: Pending,
}

impl XPoint {
    /// An idle device.
    #[must_use]
    pub fn new(parameters: &XPointParameters, seed: Seed) -> Self {
        let channels = parameters.channels.value.max(1) as usize;
        let more = parameters.stall_time_more.as_ref();
        let mut device = Self {
            serial_time: [parameters.serial_time.value, parameters.serial_time_write.value],
            serial_time_more: [
                parameters.serial_time_more.value,
                parameters.serial_time_write_more.value,
            ],
            media_time: parameters.media_time.value,
            fixed_time: parameters.fixed_time.value,
            stall_period: parameters.stall_period.value,
            stall_least: parameters.stall_time.value,
            stall_more: more.map_or(Nanos::ZERO, |more| more.value),
            stall_time: parameters.stall_time.value,
            next_stall: parameters.stall_period.value,
            random: Xoshiro256PlusPlus::seed_from_u64(seed.derive("xpoint", 0).0),
            serial_free: Nanos::ZERO,
            channel_free: vec![Nanos::ZERO; channels],
            done: Pending::default(),
        };
        device.draw_stall();
        device
    }

    /// A stall is over: draws the next one's start and duration.
    fn stall_over(&mut self) {
        self.next_stall += self.stall_period;
        self.draw_stall();
    }

    fn draw_stall(&mut self) {
        if self.stall_more > Nanos::ZERO {
            let draw: f64 = Exp1.sample(&mut self.random);
            let more = Nanos((draw * self.stall_more.get() as f64) as u64);
            // Stalls do not overlap, and requests are served between them.
            let most = Nanos(self.stall_period.get() / 4 * 3).max(self.stall_least);
            self.stall_time = (self.stall_least + more).min(most);
        }
    }

    /// Serves `work` at the serial server from `now`; returns its end. A stall that begins before that end
    /// delays the work in service.
    fn serve_serially(&mut self, now: Nanos, work: Nanos) -> Nanos {
        let start = self.serial_free.max(now);
        // Stalls that ended while the server was idle delayed nothing.
        while self.next_stall + self.stall_time <= start {
            self.stall_over();
        }
        let mut end = start;
        if self.next_stall <= start {
            end = self.next_stall + self.stall_time;
            self.stall_over();
        }
        end += work;
        while self.next_stall < end {
            end += self.stall_time;
            self.stall_over();
        }
        self.serial_free = end;
        end
    }
}

impl Device for XPoint {
    fn submit(&mut self, now: Nanos, request: Request) {
        // Nothing is volatile, so there is nothing to flush.
        if request.operation == Operation::Flush {
            return self.done.at_once(now, request.id);
        }
        let direction = usize::from(request.operation != Operation::Read);
        let mut serial_time = self.serial_time[direction];
        let first = request.offset / CHUNK;
        // The request waits for the last chunk: its end, and the service time of the serial server until
        // then.
        let (mut last_end, mut served, mut serial) = (now, Nanos::ZERO, Nanos::ZERO);
        for chunk in first..first + request.carried() {
            let arrival = self.serve_serially(now, serial_time);
            served += serial_time;
            serial_time = self.serial_time_more[direction];
            let channel = (chunk % self.channel_free.len() as u64) as usize;
            let end = self.channel_free[channel].max(arrival) + self.media_time;
            self.channel_free[channel] = end;
            if end > last_end {
                (last_end, serial) = (end, served);
            }
        }
        let mut media = self.media_time;
        if request.carried() == 0 {
            (last_end, serial, media) =
                (self.serve_serially(now, serial_time), serial_time, Nanos::ZERO);
        }
        let at = last_end + self.fixed_time;
        let parts = [(Stage::Controller, serial + self.fixed_time), (Stage::Media, media)];
        self.done.push(Completion {
            id: request.id,
            at,
            stages: Stages::new(at.since(now), parts),
        });
    }

    fn next_event(&self) -> Option<Nanos> {
        self.done.next_time()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        self.done.take_due(now, done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constant::constant;

    fn device() -> XPoint {
        let parameters = XPointParameters {
            serial_time: constant(Nanos(1_700)),
            serial_time_write: constant(Nanos(1_900)),
            serial_time_more: constant(Nanos(1_700)),
            serial_time_write_more: constant(Nanos(1_900)),
            media_time: constant(Nanos(700)),
            channels: constant(7),
            fixed_time: constant(Nanos(3_300)),
            stall_period: constant(Nanos::from_millis(5)),
            stall_time: constant(Nanos::from_micros(30)),
            stall_time_more: None,
        };
        XPoint::new(&parameters, Seed(1))
    }

    fn finish_times(device: &mut XPoint, requests: &[(u64, u64, u32)]) -> Vec<u64> {
        for (id, &(now, offset, length)) in requests.iter().enumerate() {
            device.submit(Nanos(now), Request::read(id as u64, offset, length));
        }
        let mut done = Vec::new();
        device.advance(Nanos::from_secs(1), &mut done);
        done.iter().map(|completion| completion.at.0).collect()
    }

    #[test]
    fn one_read_takes_the_sum_of_its_stages() {
        assert_eq!(finish_times(&mut device(), &[(0, 0, 4096)]), [5_700]);
    }

    /// Wu's thesis: 1 KiB reads give the IOPS of 4 KiB reads; a misaligned one costs a second chunk.
    #[test]
    fn chunks_not_bytes_cost_time() {
        assert_eq!(finish_times(&mut device(), &[(0, 0, 1024)]), [5_700]);
        assert_eq!(finish_times(&mut device(), &[(0, 512, 4096)]), [7_400]);
    }

    #[test]
    fn parallel_reads_queue_at_the_serial_server() {
        let requests: Vec<_> = (0..4).map(|i| (0, i * 4096, 4096)).collect();
        assert_eq!(finish_times(&mut device(), &requests), [5_700, 7_400, 9_100, 10_800]);
    }

    #[test]
    fn a_stall_delays_what_is_in_service_and_what_arrives() {
        let stall = 5_000_000;
        assert_eq!(finish_times(&mut device(), &[(stall - 700, 0, 4096)]), [stall + 35_000]);
        assert_eq!(finish_times(&mut device(), &[(stall + 10_000, 0, 4096)]), [stall + 35_700]);
        // An idle device does not pay for stalls in the past.
        assert_eq!(finish_times(&mut device(), &[(stall * 3 + 40_000, 0, 4096)]), [15_045_700]);
    }
}
