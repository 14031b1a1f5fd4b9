//! Findings of a run: typed values, and the one sentence that reports each.
//!
//! A sentence names its subject first and has one bracket, with n and the source. Warnings are listed next to
//! it (see `analysis::doubts`), not in the sentence.

use std::fmt::{self, Display, Formatter};

use units::{Nanos, human_count};

/// A storage and its number, with the unit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Side {
    pub storage: String,
    pub value: String,
}

impl Side {
    pub fn new(storage: impl Into<String>, value: impl Into<String>) -> Self {
        Self { storage: storage.into(), value: value.into() }
    }
}

/// How the best storage compares with the reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Order {
    /// Faster by this factor.
    Faster(f64),
    /// The reference is faster by this factor.
    Slower(f64),
    /// The interval, or the one value, lies within 5 % of equal.
    Same,
    /// Another run may find the opposite.
    Inconclusive,
}

/// Ratings of Aerospike's test, as multiples of its base load.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ratings {
    pub passed: Vec<u32>,
    pub failed: Vec<u32>,
}

/// A finding. `note` is the text of the bracket.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Finding {
    /// One job on two storages.
    Compared { subject: String, best: Side, here: Side, order: Order, note: String },
    /// One job on one storage.
    Reached { subject: String, is_rate: bool, side: Side, note: String },
    /// All jobs of two storages: the least and the most favourable ratio.
    Across { best: String, here: String, least: (f64, String), most: (f64, String) },
    /// The lowest load that reaches nearly the highest rate.
    PeakRate { storage: String, rate: f64, job: String, load: String, note: String },
    /// How far a storage can be loaded; `growth` is the latency at 95 % of its peak over the unloaded one.
    Knee { storage: String, rate: f64, job: String, growth: f64, note: String },
    /// Reads mixed with writes in one job; `alone` is p99 without writes. `least`: the storage that changes
    /// least, and by how much.
    Mixed {
        writes: String,
        storage: String,
        alone: Option<Nanos>,
        p99: Nanos,
        least: Option<(f64, String)>,
        note: String,
    },
    /// Reads of a job that can have background clients.
    ReadTail { job: String, storage: String, p99: String, note: String },
    /// Writes only.
    Write { job: String, storage: String, p50: String, note: String },
    /// A flush after some writes.
    Flush { every: String, storage: String, p50: String, p99: String, note: String },
    /// Times in an open loop.
    AtRate { job: String, rate: String, storage: String, p99: String, note: String },
    /// The time of one request, and the highest rate.
    Device { storage: String, job: String, p50: String, rate: f64, note: String },
    /// What one request's mean time consists of: shares of the drive and of a fabric or hypervisor.
    Breakdown { storage: String, job: String, time: String, drive: f64, hop: f64, note: String },
    /// Aerospike's test.
    Act { storage: String, ratings: Ratings, note: String },
    /// A race of two stacks; seconds.
    Race { transactions: f64, first: (String, f64), last: (String, f64), note: String },
    /// The gain from memory: the ratio of rates at two buffer pool sizes.
    Memory { most: f64, gain: f64, storage: String, note: String },
    /// Write stalls of an engine; `share` of the time.
    Stalls { engine: String, share: f64, storage: String, note: String },
    /// Two engines on one storage.
    Engines { engines: [String; 2], what: &'static str, ratio: f64, storage: String, note: String },
    /// The range of shares of the local rate kept over a fabric.
    Fabric { storage: String, kept: [f64; 2], note: String },
    /// A lasting change of the rate; seconds since the start.
    PerformanceDrop { storage: String, at: f64, change: String, cause: String },
    /// The gain from a part that is free.
    WhatIf {
        change: String,
        subject: String,
        storage: String,
        is_rate: bool,
        ratio: f64,
        note: String,
    },
    /// A text without numbers.
    Text(String),
}

impl Display for Finding {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let text = Words(self).to_string();
        match text.strip_prefix("this ") {
            Some(rest) => write!(out, "This {rest}"),
            None => out.write_str(&text),
        }
    }
}

/// The sentence without a capitalized first word.
struct Words<'f>(&'f Finding);

impl Display for Words<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        use Finding as F;
        match self.0 {
            F::Compared { subject, best, here, order, note } => {
                compared(out, subject, [best, here], (*order, note))
            }
            F::Reached { subject, is_rate, side, note } => {
                let verb = if *is_rate { "reach" } else { "take" };
                write!(out, "{subject} {verb} {} on {} ({note}).", side.value, side.storage)
            }
            F::Across { best, here, least, most } => write!(
                out,
                "{best} delivers {} the rate of {here} for {}, and {} for {}.",
                times(least.0),
                least.1,
                times(most.0),
                most.1
            ),
            F::Race { transactions, first, last, note } => write!(
                out,
                "{} finishes {} transactions {} as fast as {} ({note}).",
                first.0,
                human_count(*transactions),
                times(last.1 / first.1.max(1e-9)),
                last.0
            ),
            F::Memory { most, gain, storage, note } => write!(
                out,
                "On {storage}, a buffer pool for {:.0} % of the data gives {} the transactions of the \
                 smallest ({note}).",
                most * 100.0,
                times(*gain)
            ),
            F::Stalls { engine, share, storage, note } => match *share > 0.0 {
                true => write!(
                    out,
                    "{engine} stalls writes {:.0} % of the time on {storage} ({note}).",
                    share * 100.0
                ),
                false => write!(out, "{engine} showed no write stalls on {storage} ({note})."),
            },
            F::Engines { engines: [first, second], what, ratio, storage, note } => {
                let (more, less, ratio) = match *ratio < 1.0 {
                    true => (second, first, 1.0 / ratio),
                    false => (first, second, *ratio),
                };
                let times = times(ratio);
                write!(out, "{more} does {times} as many {what} as {less} on {storage} ({note}).")
            }
            F::Fabric { storage, kept, note } => {
                let [low, high] = kept.map(|share| format!("{:.0} %", share * 100.0));
                let range = if low == high { low } else { format!("{low} to {high}") };
                write!(out, "{storage} keeps {range} of the local rate ({note}).")
            }
            F::PerformanceDrop { storage, at, change, cause } => {
                let cause = if cause.is_empty() { "no counter shows why" } else { cause };
                write!(out, "The rate on {storage} changes by {change} at {at:.0} s: {cause}.")
            }
            F::WhatIf { change, subject, storage, is_rate, ratio, note } => {
                let ratio = times(*ratio);
                let (of, gain) = match is_rate {
                    true => ("", format!("are {ratio} as fast")),
                    false => ("p99 of ", format!("improves {ratio}")),
                };
                write!(out, "With {change}, {of}{subject} on {storage} {gain} ({note}).")
            }
            F::Text(text) => out.write_str(text),
            of_blocks => block(out, of_blocks),
        }
    }
}

fn compared(
    out: &mut Formatter<'_>,
    subject: &str,
    [best, here]: [&Side; 2],
    (order, note): (Order, &str),
) -> fmt::Result {
    let values = format!("{} vs {}", best.value, here.value);
    match order {
        // At a given rate all are as fast; times differ.
        Order::Faster(_) | Order::Slower(_) if best.value.starts_with("p99 ") => write!(
            out,
            "{subject} take {} on {} and {} on {} ({note}).",
            best.value, best.storage, here.value, here.storage
        ),
        Order::Faster(ratio) => write!(
            out,
            "{subject} are {} as fast on {} as on {} ({note}).",
            times(ratio),
            best.storage,
            here.storage
        ),
        Order::Slower(ratio) => write!(
            out,
            "{subject} are {} as fast on {} as on {} ({note}).",
            times(ratio),
            here.storage,
            best.storage
        ),
        Order::Same => write!(
            out,
            "{subject} are equivalent on {} and {}: {values} (within 5 %, {note}).",
            best.storage, here.storage
        ),
        Order::Inconclusive => write!(
            out,
            "{subject} on {} vs {}: inconclusive, {values} ({note}; --repeat 5 narrows it).",
            best.storage, here.storage
        ),
    }
}

/// Findings about block requests.
fn block(out: &mut Formatter<'_>, finding: &Finding) -> fmt::Result {
    match finding {
        Finding::PeakRate { storage, rate, job, load, note } => {
            let rate = human_count(*rate);
            write!(out, "{storage} reaches {rate} IOPS of {job} reads ({load}; {note}).")
        }
        Finding::Knee { storage, rate, job, growth, note } => write!(
            out,
            "{storage} has its knee at {} IOPS; near the peak, latency is {} unloaded ({job}, {note}).",
            human_count(*rate),
            times(*growth)
        ),
        Finding::Mixed { writes, storage, alone: Some(alone), p99, least, note } => {
            let values = (*alone, *p99);
            let factor = p99.get() as f64 / alone.get().max(1) as f64;
            let against = least.as_ref().map_or_else(String::new, |(least, other)| {
                format!("{}, against {} on {other}; ", times(factor), times(*least))
            });
            let (alone, p99) = (alone.to_string(), p99.to_string());
            let change = match values {
                _ if alone == p99 => format!("stays at {p99}"),
                (before, after) if after > before => format!("rises from {alone} to {p99}"),
                _ => format!("falls from {alone} to {p99}"),
            };
            let note = format!("{against}{note}");
            write!(out, "With {writes} writes, p99 read latency on {storage} {change} ({note}).")
        }
        Finding::Mixed { writes, storage, alone: None, p99, note, .. } => {
            write!(out, "With {writes} writes, p99 read latency on {storage} is {p99} ({note}).")
        }
        Finding::ReadTail { job, storage, p99, note } => {
            write!(out, "{job}: p99 read latency on {storage} is {p99} ({note}).")
        }
        Finding::Write { job, storage, p50, note } => {
            // Eight, eleven, eighteen.
            let vowel = ["8", "11 ", "18 "].iter().any(|start| job.starts_with(start));
            let article = if vowel { "An" } else { "A" };
            write!(out, "{article} {job} write takes {p50} on {storage} (median; {note}).")
        }
        Finding::Flush { every, storage, p50, p99, note } => {
            write!(out, "A flush {every} takes {p50} on {storage}, p99 {p99} ({note}).")
        }
        Finding::AtRate { job, rate, storage, p99, note } => {
            write!(out, "At {rate}, p99 latency on {storage} is {p99} ({job}, {note}).")
        }
        Finding::Device { storage, job, p50, rate, note } => write!(
            out,
            "{storage} takes {p50} for one read and reaches {} IOPS ({job}, {note}).",
            human_count(*rate)
        ),
        Finding::Breakdown { storage, job, time, drive, hop, note } => {
            let percent = |share: f64| format!("{:.0} %", share * 100.0);
            write!(out, "The drive takes {} of {job} on {storage}", percent(*drive))?;
            if *hop > 0.0 {
                write!(out, ", the hypervisor or fabric {}", percent(*hop))?;
            }
            write!(out, " (mean {time}, {note}).")
        }
        Finding::Act { storage, ratings, note } => act(out, (storage, note), ratings),
        other => unreachable!("a finding without a sentence: {other:?}"),
    }
}

fn act(
    out: &mut Formatter<'_>,
    (storage, note): (&str, &str),
    Ratings { passed, failed }: &Ratings,
) -> fmt::Result {
    let list = |all: &[u32]| all.iter().map(|one| format!("{one}x")).collect::<Vec<_>>().join(", ");
    match (passed.iter().max(), failed.iter().min()) {
        (Some(most), Some(least)) if most < least => {
            write!(out, "{storage} passes ACT up to {most}x and fails from {least}x ({note}).")
        }
        (Some(_), Some(_)) => write!(
            out,
            "{storage} passes ACT at {} and fails at {}: inconsistent results ({note}).",
            list(passed),
            list(failed)
        ),
        (Some(most), None) => {
            write!(out, "{storage} passes ACT at every rating up to {most}x ({note}).")
        }
        (None, _) => write!(out, "{storage} fails ACT at {} ({note}).", list(failed)),
    }
}

/// `2.35x`.
pub(crate) fn times(ratio: f64) -> String {
    format!("{}x", crate::decision_view::times_number(ratio))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note() -> String {
        "n = 1".to_owned()
    }

    fn storage() -> String {
        "990 Pro".to_owned()
    }

    fn random() -> String {
        "4 KiB random".to_owned()
    }

    /// "Rises from 12.8 us to 12.8 us" contradicts itself.
    #[test]
    fn sentences_agree_with_their_numbers() {
        let mixed = |p99| Finding::Mixed {
            writes: "50 %".into(),
            storage: storage(),
            alone: Some(Nanos(12_810)),
            p99: Nanos(p99),
            least: None,
            note: note(),
        };
        let said = [12_000, 12_812, 13_000].map(|p99| mixed(p99).to_string());
        for (said, verb) in said.iter().zip(["falls from", "stays at", "rises from"]) {
            assert!(said.contains(verb), "{said}");
        }
        for (job, article) in
            [("8 KiB", "An "), ("18 KiB", "An "), ("4 KiB", "A "), ("1.1 MiB", "A ")]
        {
            let (job, p50) = (job.to_owned(), Nanos(1000).to_string());
            let said = Finding::Write { job, storage: storage(), p50, note: note() }.to_string();
            assert!(said.starts_with(article), "{said}");
        }
    }

    /// One finding of each kind about several storages or databases, as shown to readers.
    fn of_databases() -> Vec<Finding> {
        let side = Side::new;
        let job = |order| Finding::Compared {
            subject: "LMDB durable updates".into(),
            best: side("gp3", if order == Order::Same { "519/s" } else { "2551/s" }),
            here: side("this disk", "511/s"),
            order,
            note: note(),
        };
        let orders = [Order::Faster(4.99), Order::Slower(2.5), Order::Same, Order::Inconclusive];
        let stalls = |share| Finding::Stalls {
            engine: "RocksDB".into(),
            share,
            storage: storage(),
            note: note(),
        };
        let fabric =
            |kept| Finding::Fabric { storage: "P4800X over TCP".into(), kept, note: note() };
        let what_if = |is_rate| Finding::WhatIf {
            change: "an infinitely fast drive".into(),
            subject: "LMDB durable updates".into(),
            storage: storage(),
            is_rate,
            ratio: 12.1,
            note: note(),
        };
        let (subject, is_rate) = ("MariaDB transactions".into(), true);
        let least = (0.21, "LMDB lookups".into());
        let most = (3.5, "SQLite updates".into());
        let (best, here) = ("gp3".into(), "this disk".into());
        let (first, last) = (("CAS cache".into(), 120.0), ("RAID 5".into(), 672.0));
        let mut all: Vec<Finding> = orders.map(job).into();
        all.extend([
            Finding::Reached { subject, is_rate, side: side("this disk", "1204/s"), note: note() },
            Finding::Across { best, here, least, most },
            Finding::Race { transactions: 2e6, first, last, note: note() },
            Finding::Memory { most: 1.0, gain: 6.2, storage: storage(), note: note() },
            stalls(0.25),
            stalls(0.0),
            Finding::Engines {
                engines: ["LMDB".into(), "RocksDB".into()],
                what: "lookups",
                ratio: 3.2,
                storage: storage(),
                note: note(),
            },
            Finding::Engines {
                engines: ["LMDB".into(), "RocksDB".into()],
                what: "updates",
                ratio: 0.2,
                storage: "this device".into(),
                note: note(),
            },
            fabric([0.8, 0.95]),
            fabric([0.8, 0.8]),
            what_if(true),
            what_if(false),
            Finding::PerformanceDrop {
                storage: storage(),
                at: 20.0,
                change: "-54 % (-58 to -50)".into(),
                cause: "buffer pool misses".into(),
            },
        ]);
        all
    }

    /// One finding of each kind about block I/O.
    fn of_blocks() -> Vec<Finding> {
        let ratings = |passed: &[u32], failed: &[u32]| Finding::Act {
            storage: storage(),
            ratings: Ratings { passed: passed.to_vec(), failed: failed.to_vec() },
            note: note(),
        };
        let mixed = |alone| Finding::Mixed {
            writes: "90 %".into(),
            storage: storage(),
            alone,
            p99: Nanos(3_190_000),
            least: alone.map(|_| (1.1, "P4800X".to_owned())),
            note: note(),
        };
        let breakdown = |hop| Finding::Breakdown {
            storage: storage(),
            job: "4 KiB random reads".into(),
            time: Nanos(80_000).to_string(),
            drive: 0.123,
            hop,
            note: note(),
        };
        let (job, load) = (random(), "depth 64".into());
        let tail = "With a backup, queue depth 1".into();
        let (p50, p99) = ("1.02 ms".to_owned(), "2.10 ms".to_owned());
        vec![
            Finding::PeakRate { storage: "this disk".into(), rate: 548e3, job, load, note: note() },
            Finding::Knee {
                storage: storage(),
                rate: 2e5,
                job: random(),
                growth: 2.4,
                note: "knee at depth 24; n = 1".into(),
            },
            mixed(Some(Nanos(108_000))),
            mixed(None),
            Finding::ReadTail { job: tail, storage: storage(), p99: p99.clone(), note: note() },
            Finding::Write { job: random(), storage: storage(), p50: p50.clone(), note: note() },
            Finding::Flush {
                every: "after each write".into(),
                storage: storage(),
                p50: p50.clone(),
                p99: p99.clone(),
                note: note(),
            },
            Finding::AtRate {
                job: random(),
                rate: "20k/s".into(),
                storage: storage(),
                p99,
                note: note(),
            },
            Finding::Device { storage: storage(), job: random(), p50, rate: 1.2e6, note: note() },
            breakdown(0.0),
            breakdown(0.7),
            ratings(&[1, 3], &[6]),
            ratings(&[1, 6], &[3]),
            ratings(&[1, 3], &[]),
            ratings(&[], &[1, 3]),
        ]
    }

    /// Numbers of a sentence outside of its bracket and its names.
    fn numbers(sentence: &str) -> usize {
        let plain = ["990 Pro", "P4800X", "gp3", "RAID 5", "p99"];
        let plain = plain.iter().fold(sentence.to_owned(), |text, name| text.replace(name, ""));
        let plain = plain.split_once('(').map_or(plain.as_str(), |(before, _)| before).to_owned();
        plain.split_whitespace().filter(|word| word.contains(|c: char| c.is_ascii_digit())).count()
    }

    /// Every template must stay within the length and bracket limits of a headline, also with long names.
    #[test]
    fn every_sentence_is_short_and_has_its_words() {
        let all = of_databases().into_iter().chain(of_blocks());
        let said: Vec<String> = all.map(|one| one.to_string()).collect();
        for one in &said {
            let long = one
                .replace("n = 1)", "predicted, not validated)")
                .replace("P4800X over TCP", "Optane P4800X, NVMe over RDMA");
            assert!(long.split_whitespace().count() <= 25, "{long}");
            assert!(one.matches('(').count() <= 1, "{one}");
            // A job's block size or share of writes is a third one.
            let job = ["With 90 %", "inconsistent", "The drive takes"]
                .iter()
                .any(|job| one.contains(job));
            assert!(numbers(one) <= 2 + usize::from(job), "{one}");
            assert!(one.ends_with('.') && one.chars().next().is_some_and(char::is_alphanumeric));
        }
        insta::assert_snapshot!(said.join("\n"));
    }
}
