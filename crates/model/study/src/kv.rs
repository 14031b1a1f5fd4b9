//! Key-value jobs: the databases, their workloads, and their configuration.
//!
//! Workloads are named as in RocksDB's db_bench and YCSB.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Rate, Share, words};

use crate::defaults::{all, number, yes};
use crate::parameters::Parameters;
use crate::{Arrivals, Durability, EngineName, Memory, Offsets, Options};

/// Key-value operations on a database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KvJob {
    /// The database.
    pub engine: EngineName,
    /// The workload, after the records are loaded in key order.
    pub workload: KvWorkload,
    /// Records loaded (or, by workloads that fill a database, written), 1 to 10 billion.
    pub records: u64,
    /// Bytes of a key, 16 to 64: sixteen hexadecimal digits, then zeros.
    #[serde(default = "number::<16>")]
    pub key_size: u32,
    /// Bytes of a value; at least 16.
    pub value_size: Bytes,
    /// Values are spread evenly between `value_size` and this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_size_max: Option<Bytes>,
    /// Share of a value's bytes that cannot be compressed.
    #[serde(default = "all")]
    pub random_payload: Share,
    /// Client threads of the workload, 0 to 256: in `read_while_writing` and `read_while_scanning` the
    /// readers next to the one writer or scanner (0: that one alone), otherwise all of them.
    #[serde(default = "number::<1>")]
    pub clients: u32,
    /// How records are drawn: `uniform`; `zipf:0.99`; `hot-spot:80%/20%` (operations / records);
    /// `gaussian:15%` (standard deviation).
    #[serde(default)]
    pub distribution: Offsets,
    /// Arrivals: `closed`, or an open loop, `constant` or `poisson`, at `rate`. In `read_while_writing` and
    /// `read_while_scanning`, those of the readers.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// Operations per second of all those clients together, for open-loop arrivals; a list is an axis. Each
    /// client has one in flight: operations that no client could issue are counted as missed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Updates per second of the writer in `read_while_writing`; unlimited by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_rate: Option<Rate>,
    /// Updates of `write_rate` that arrive together. RocksDB's db_bench and Symas's driver issue them ten
    /// times per second: a tenth of the rate reproduces that.
    #[serde(default = "number::<1>")]
    pub write_burst: u32,
    /// Records that `seek_random` reads after each seek.
    #[serde(default = "number::<10>")]
    pub seek_records: u32,
    /// Operations of all clients together after which the trial ends, if `duration` does not end it first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
    /// What a committed update survives.
    #[serde(default = "default_durability")]
    pub durability: Durability,
    /// Records per transaction while loading.
    #[serde(default = "number::<1000>")]
    pub load_batch: u32,
    /// Memory of the whole process, its page cache included: `unlimited`, a size of at least 96MiB, or a
    /// share of the records' bytes (`20%`: the database is five times memory). Needs root.
    #[serde(default)]
    pub memory: Memory,
    /// Evict the database from the page cache after the load; `false`: clients start with the cache as the
    /// load left it.
    #[serde(default = "yes")]
    pub cold_start: bool,
    /// Keep a log of acknowledged updates outside the database, and verify the database against it when its
    /// process or the program ends early. One writer.
    #[serde(default)]
    pub verify: bool,
    /// Options of the engine: see Engines below.
    #[serde(default)]
    pub options: Options,
}

impl KvJob {
    /// Bytes of all keys and values.
    #[must_use]
    pub fn data(&self) -> Bytes {
        let value = u64::midpoint(self.value_size.get(), self.value_size_max().get());
        Bytes(self.records.saturating_mul(value + u64::from(self.key_size)))
    }

    /// Bytes of a value, at most.
    #[must_use]
    pub fn value_size_max(&self) -> Bytes {
        self.value_size_max.unwrap_or(self.value_size)
    }

    /// Client threads.
    #[must_use]
    pub const fn threads(&self) -> u32 {
        self.workload.clients(self.clients)
    }

    /// The parameters of every key-value job, and non-default ones.
    pub(crate) fn parameters(&self) -> Parameters {
        let point = vec![
            ("records", self.records.to_string()),
            ("value_size", self.value_size.exact()),
            ("clients", self.clients.to_string()),
            ("durability", self.durability.word().into()),
        ];
        let mut parameters = Parameters::of(point);
        let mut add = |differs, name: &'static str, value| parameters.add(differs, name, value);
        let plain = self.workload == KvWorkload::ReadWhileWriting;
        add(!plain, "workload", self.workload.word().into());
        add(self.key_size != number::<16>(), "key_size", self.key_size.to_string());
        let spread = self.value_size_max() != self.value_size;
        add(spread, "value_size_max", self.value_size_max().exact());
        add(self.random_payload != Share::ALL, "random_payload", self.random_payload.exact());
        add(self.distribution != Offsets::Uniform, "distribution", self.distribution.to_string());
        add(self.rate.is_some(), "arrivals", self.arrivals.word().into());
        if let Some(rate) = self.rate {
            add(true, "rate", rate.exact());
        }
        if let Some(rate) = self.write_rate {
            add(true, "write_rate", rate.exact());
            add(self.write_burst > 1, "write_burst", self.write_burst.to_string());
        }
        add(self.load_batch != number::<1000>(), "load_batch", self.load_batch.to_string());
        add(self.memory != Memory::Unlimited, "memory", self.memory.text());
        add(!self.cold_start, "cold_start", self.cold_start.to_string());
        add(self.verify, "verify", self.verify.to_string());
        self.options.add_to(&mut parameters);
        parameters
    }
}

/// Workload of the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KvWorkload {
    /// Fills an empty database in key order, one record per transaction.
    FillSeq,
    /// Random writes to an empty database, as many as it has records; about a third of the keys are never
    /// written.
    FillRandom,
    /// As `fill_random`, then a full compaction; in RocksDB without compaction until then.
    BulkLoad,
    /// Updates, one per transaction.
    Overwrite,
    /// Lookup and update of one record.
    UpdateRandom,
    /// Lookups.
    ReadRandom,
    /// Records in key order, a hundred per operation.
    ReadSeq,
    /// A seek, then `seek_records` records from there.
    SeekRandom,
    /// Deletes of random keys, existing or not.
    DeleteRandom,
    /// Readers next to one writer.
    ReadWhileWriting,
    /// Readers next to one that scans everything.
    ReadWhileScanning,
    /// Half lookups, half updates.
    YcsbA,
    /// 95 % lookups, 5 % updates.
    YcsbB,
    /// Lookups.
    YcsbC,
    /// 95 % lookups of the latest records, 5 % inserts.
    YcsbD,
    /// 95 % scans of up to 100 records, 5 % inserts.
    YcsbE,
    /// Half lookups, half lookup and update of one record.
    YcsbF,
}

words!(KvWorkload {
    FillSeq => "fill_seq", FillRandom => "fill_random", BulkLoad => "bulk_load",
    Overwrite => "overwrite", UpdateRandom => "update_random", ReadRandom => "read_random",
    ReadSeq => "read_seq", SeekRandom => "seek_random", DeleteRandom => "delete_random",
    ReadWhileWriting => "read_while_writing", ReadWhileScanning => "read_while_scanning",
    YcsbA => "ycsb_a", YcsbB => "ycsb_b", YcsbC => "ycsb_c", YcsbD => "ycsb_d", YcsbE => "ycsb_e",
    YcsbF => "ycsb_f",
});

impl KvWorkload {
    /// Whether it starts with an empty database, and ends when that is filled.
    #[must_use]
    pub const fn fills(self) -> bool {
        matches!(self, Self::FillSeq | Self::FillRandom | Self::BulkLoad)
    }

    /// Whether one client runs in addition to `readers`.
    #[must_use]
    pub const fn has_another(self) -> bool {
        matches!(self, Self::ReadWhileWriting | Self::ReadWhileScanning)
    }

    /// Number of clients with this many `readers`.
    #[must_use]
    pub const fn clients(self, readers: u32) -> u32 {
        if self.has_another() { readers + 1 } else { readers }
    }

    pub(crate) const fn is_ycsb(self) -> bool {
        matches!(
            self,
            Self::YcsbA | Self::YcsbB | Self::YcsbC | Self::YcsbD | Self::YcsbE | Self::YcsbF
        )
    }
}

fn default_durability() -> Durability {
    Durability::Os
}
