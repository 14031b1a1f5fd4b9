//! Advice in words: one sentence with its number, its bounds and its source.

use analysis::Group;
use analysis::advice::{Advice, Remedy, advice, without};
use analysis::decision::{Decision, LimitedBy, decisions};
use analysis::gain::Gain;
use archive::Run;
use units::Bytes;

use crate::comparison::subject;
use crate::decision_view::{gain_range, is_by_calls};
use crate::what_if::without_variants;
use crate::words::{point_words, storage_words};

/// Advice of a run, for a terminal.
#[must_use]
pub fn advice_lines(run: &Run) -> Vec<String> {
    let own = without_variants(run);
    let all = decisions(&own);
    advice(&all).iter().map(sentence).collect()
}

pub(crate) fn advice_views(decisions: &[Decision<'_>]) -> Vec<String> {
    advice(decisions).iter().map(sentence).collect()
}

fn sentence(one: &Advice<'_>) -> String {
    let group = &one.choice.group;
    let subject = subject(group, one.counted);
    // The options that vary are among the words of the job.
    let subject = subject.split(" (").next().unwrap_or_default();
    format!(
        "{} on {} ({}): {} (n = {}, {}).",
        subject,
        storage_words(group.stack_title()),
        point_words(group),
        remedy_words(&one.remedy, group),
        group.trials.len(),
        group.first.source
    )
}

fn remedy_words(remedy: &Remedy, group: &Group<'_>) -> String {
    let drive = match is_by_calls(group) {
        true => "the drive and the kernel's I/O path take",
        false => "the drive takes",
    };
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let range = |gain: &Gain| gain_range(gain);
    let most = |share: f64| format!("{:.1}x", without(share));
    match remedy {
        Remedy::IdleHost(share) => format!(
            "repeat it on an idle host: other programs used {} of the CPUs, so it says little about \
             the storage",
            percent(*share)
        ),
        Remedy::HigherLimit { limit, share, most } => format!(
            "a volume with a higher limit than {} helps: operations wait for it {} of their time (a drive \
             without latency and limit gives at most {most:.1}x)",
            limit_words(*limit),
            percent(*share)
        ),
        Remedy::FewerStalls(share) => format!(
            "compaction that keeps up gives up to {}: writes are stalled {} of the time \
             (max_background_jobs, write_buffer_size, or a lower write rate)",
            most(*share),
            percent(*share)
        ),
        Remedy::Network(share) => format!(
            "clients closer to the server, or fewer statements per transaction, give up to {}: network \
             round trips take {} of an operation",
            most(*share),
            percent(*share)
        ),
        Remedy::Background(share) => format!(
            "background threads that keep up give up to {} (a larger buffer pool, innodb_io_capacity, \
             innodb_lru_scan_depth): operations wait for the page cleaner or log writer {} of their time",
            most(*share),
            percent(*share)
        ),
        Remedy::FewerCommits(share) => format!(
            "adding clients will not help, batching more updates per commit will: clients wait for one \
             another {} of their time",
            percent(*share)
        ),
        Remedy::FasterFlushes { share, most } => format!(
            "a drive that acknowledges flushes at once (power-loss protection) gives up to {most:.1}x: \
             flushes take {} of an operation",
            percent(*share)
        ),
        Remedy::FasterDrive(share, gain) => format!(
            "a faster drive helps: {drive} {} of an operation, and an infinitely fast drive gives {}",
            percent(*share),
            range(gain)
        ),
        Remedy::NoDrive(share, gain) => format!(
            "a faster drive does not help: {drive} {} of an operation, and an infinitely fast drive gives \
             at most {:.2}x",
            percent(*share),
            gain.high
        ),
        Remedy::MoreCores(share, gain) => format!(
            "more cores may help: CPU time and the run queue take {} of an operation, and twice the cores \
             give {}",
            percent(*share),
            range(gain)
        ),
    }
}

fn limit_words(limit: LimitedBy) -> String {
    match limit {
        LimitedBy::VolumeOperations(limit, _) => format!("{limit} IOPS"),
        LimitedBy::VolumeBytes(limit, _) => format!("{}/s", Bytes(limit)),
        _ => String::new(),
    }
}
