//! The clients of key-value and SQL jobs.

use units::{Bytes, Nanos};
use workload::{ClientIndex, KvAction, KvKeys, KvRole, SqlPlan, Until, ValueShape};

use super::arrivals;
use crate::{Arrivals, KvJob, KvWorkload, SqlJob};

/// Records that one operation of `read_seq` reads.
const SEQUENTIAL: u32 = 100;
/// Records per operation of a full scan.
const SCANNED: u32 = 1000;

/// Arrivals of a job's operations; its single writer has its own.
fn arrivals_of(job: &KvJob) -> workload::Arrivals {
    let Some(rate) = job.rate else { return workload::Arrivals::CLOSED };
    let kind = match job.arrivals {
        Arrivals::Closed => Arrivals::Constant,
        open => open,
    };
    arrivals(kind, (rate, &[]), 1, Nanos::ZERO)
}

/// Roles of a job's clients.
#[must_use]
pub fn kv_roles(job: &KvJob) -> Vec<KvRole> {
    use KvAction::{Delete, Get, Insert, Put, Scan, ScanUpTo, Update};
    let keys = KvKeys::Drawn(job.distribution);
    let drawn = |action| KvRole { keys, ..KvRole::of(action) };
    let in_order = |action| KvRole { keys: KvKeys::InOrder, ..KvRole::of(action) };
    let all = |role: KvRole| {
        let role = KvRole { arrivals: arrivals_of(job), ..role };
        let place = |index| ClientIndex { index, of: job.clients };
        (0..job.clients).map(|index| KvRole { place: place(index), ..role.clone() }).collect()
    };
    let ycsb = |one, other| all(KvRole { keys: YCSB, ..KvRole::mixed(one, other) });
    let beside = |other: KvRole| -> Vec<KvRole> { [vec![other], all(drawn(Get))].concat() };
    let mut clients = match job.workload {
        KvWorkload::FillSeq => vec![in_order(Put)],
        KvWorkload::FillRandom | KvWorkload::BulkLoad | KvWorkload::Overwrite => all(drawn(Put)),
        KvWorkload::UpdateRandom => all(drawn(Update)),
        KvWorkload::ReadRandom => all(drawn(Get)),
        KvWorkload::ReadSeq => all(in_order(Scan(SEQUENTIAL))),
        KvWorkload::SeekRandom => all(drawn(Scan(job.seek_records))),
        KvWorkload::DeleteRandom => all(drawn(Delete)),
        KvWorkload::ReadWhileWriting => {
            let burst = job.write_burst.max(1);
            let due = |rate| arrivals(Arrivals::Constant, (rate, &[]), burst, Nanos::ZERO);
            let arrivals = job.write_rate.map_or(workload::Arrivals::CLOSED, due);
            beside(KvRole { arrivals, ..drawn(Put) })
        }
        KvWorkload::ReadWhileScanning => {
            beside(KvRole { background: true, ..in_order(Scan(SCANNED)) })
        }
        KvWorkload::YcsbA => ycsb((Get, 50), (Put, 50)),
        KvWorkload::YcsbB => ycsb((Get, 95), (Put, 5)),
        KvWorkload::YcsbC => ycsb((Get, 1), (Get, 0)),
        KvWorkload::YcsbD => {
            let role = KvRole::mixed((Get, 95), (Insert, 5));
            all(KvRole { keys: KvKeys::Latest, ..role })
        }
        KvWorkload::YcsbE => ycsb((ScanUpTo(100), 95), (Insert, 5)),
        KvWorkload::YcsbF => ycsb((Get, 50), (Update, 50)),
    };
    let most = if job.workload.fills() { Some(job.records) } else { job.operations };
    if let Some(most) = most {
        let count = clients.len() as u64;
        for (index, client) in (0u64..).zip(&mut clients) {
            client.operations = Some(most / count + u64::from(index < most % count));
        }
    }
    clients
}

/// Records by popularity, scattered (Cooper et al., SoCC 2010, section 5.1).
const YCSB: KvKeys = KvKeys::Drawn(workload::Offsets::Zipf { thousandths: 990 });

/// Sizes and contents of a job's values.
#[must_use]
pub fn value_shape(job: &KvJob) -> ValueShape {
    let bytes = |size: Bytes| usize::try_from(size.get()).unwrap_or(usize::MAX);
    let (least, most) = (bytes(job.value_size), bytes(job.value_size_max()));
    ValueShape { least, most, random: job.random_payload }
}

/// The plan of a SQL job's clients.
#[must_use]
pub fn sql_plan(job: &SqlJob, until: impl Into<Until>) -> SqlPlan {
    SqlPlan {
        dialect: job.dialect,
        mix: job.workload.mix(),
        tables: job.tables,
        rows: job.records,
        range_size: u64::from(job.range_size),
        keys: job.distribution,
        arrivals: job.rate.map_or(workload::Arrivals::CLOSED, |rate| {
            arrivals(Arrivals::Poisson, (rate, &[]), 1, Nanos::ZERO)
        }),
        transactions: job.operations,
        until: until.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::ENGINES;

    fn job(keys: &str) -> KvJob {
        let text = format!(
            "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n[[experiment]]\n\
             name = \"e\"\n[experiment.kv]\nengine = \"lmdb\"\nrecords = 10\nvalue_size = \"100B\"\n{keys}"
        );
        let plan = crate::plan(&crate::parse(&text, ENGINES).unwrap());
        let crate::Job::Kv(job) = plan.trials[0].job.clone() else { panic!("a database") };
        *job
    }

    /// One client too many or too few would make this a different workload under the same name.
    #[test]
    fn jobs_have_the_clients_that_their_words_promise() {
        let clients = |keys: &str| kv_roles(&job(keys));
        assert_eq!(clients("readers = 3\n").len(), 4);
        let both = clients("readers = 3\nwrite_rate = \"1k/s\"\n");
        assert_eq!((both[0].mix[0].0, both[0].arrivals.is_open()), (KvAction::Put, true));
        assert!(!both[1].arrivals.is_open());
        let due = clients("readers = 3\narrivals = \"poisson\"\nrate = \"1k/s\"\n");
        assert!(!due[0].arrivals.is_open(), "the writer has a rate of its own");
        let places: Vec<_> = due[1..].iter().map(|one| (one.place.index, one.place.of)).collect();
        assert_eq!(places, [(0, 3), (1, 3), (2, 3)]);
        let fill = clients("workload = \"fill_random\"\n");
        assert_eq!((fill.len(), fill[0].operations), (1, Some(10)));
        let shared = clients("workload = \"read_random\"\nreaders = 4\noperations = 10\n");
        let each: Vec<_> = shared.iter().filter_map(|client| client.operations).collect();
        assert_eq!(each, [3, 3, 2, 2]);
        let scanned = clients("workload = \"read_while_scanning\"\nreaders = 2\n");
        assert_eq!((scanned.len(), scanned[0].background), (3, true));
        let seeks = clients("workload = \"seek_random\"\nseek_records = 7\n");
        assert_eq!(seeks[0].mix[0].0, KvAction::Scan(7));
    }
}
