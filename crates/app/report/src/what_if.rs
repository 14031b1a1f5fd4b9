//! What a database would do if one part of its simulated stack were free.
//!
//! Invariant: a variant is no storage of its own; only its ratio to the stack that it varies is reported.

use std::borrow::Cow;

use analysis::overall::{Gain, gains};
use archive::Run;
use indexmap::{IndexMap, IndexSet};
use serde::Serialize;

use crate::comparison::subject;
use crate::finding::{Finding, times};
use crate::words::{experiment_title, point_words, storage_words};

/// The run without trials on variants.
pub(crate) fn without_variants(run: &Run) -> Cow<'_, Run> {
    if run.study.stack.iter().all(|stack| stack.variant_of.is_none()) {
        return Cow::Borrowed(run);
    }
    let mut own = run.clone();
    own.header.stacks.retain(|stack| !run.study.is_variant(&stack.name));
    own.trials.retain(|trial| !run.study.is_variant(&trial.stack));
    Cow::Owned(own)
}

/// The variants of a run that have a result, each with the title of its stack.
fn variants(run: &Run) -> impl Iterator<Item = (&study::Stack, &str, String)> {
    let named = |name: &str| run.header.stacks.iter().find(|stack| stack.name == name);
    let alike = |title: &str| {
        let same = |stack: &&archive::StackRecord| {
            storage_words(&stack.title) == title && !run.study.is_variant(&stack.name)
        };
        run.header.stacks.iter().filter(same).count() > 1
    };
    run.study.stack.iter().filter_map(move |variant| {
        let base = variant.variant_of.as_deref()?;
        let title = storage_words(&named(base)?.title);
        let storage = if alike(&title) { format!("{title} ({base})") } else { title };
        Some((variant, base, storage))
    })
}

/// The largest gain from each variant.
pub(crate) fn what_ifs(run: &Run) -> Vec<Finding> {
    let of = |(variant, base, storage): (&study::Stack, &str, String)| {
        let all = gains(run, base, &variant.name);
        let gain = all.into_iter().max_by(|a, b| a.ratio.total_cmp(&b.ratio))?;
        Some(Finding::WhatIf {
            change: variant.title.clone(),
            subject: subject(&gain.group, gain.counted),
            storage: storage.replace(" (", ", ").replace(')', ""),
            is_rate: gain.counted.is_rate(),
            ratio: gain.ratio,
            note: format!("n = {}, {}", gain.group.trials.len(), gain.group.first.source),
        })
    };
    variants(run).filter_map(of).collect()
}

/// All gains: a row for each job and storage, a column for each change.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct WhatIfView {
    heads: Vec<String>,
    rows: Vec<WhatIfRow>,
}

#[derive(Debug, PartialEq, Serialize)]
struct WhatIfRow {
    storage: String,
    job: String,
    /// Experiment and parameters.
    detail: String,
    /// `[head]`: empty if it was not tried.
    gains: Vec<String>,
}

/// `None` without gains.
pub(crate) fn what_if_view(run: &Run) -> Option<WhatIfView> {
    let mut heads: IndexSet<String> = IndexSet::new();
    let mut rows: IndexMap<_, WhatIfRow> = IndexMap::new();
    for (variant, base, storage) in variants(run) {
        let (head, _) = heads.insert_full(variant.title.clone());
        for Gain { group, counted, ratio } in gains(run, base, &variant.name) {
            let first = group.first;
            let key = (base, &first.experiment, &first.engine, &first.point);
            let row = rows.entry(key).or_insert_with(|| WhatIfRow {
                storage: storage.clone(),
                job: subject(&group, counted),
                detail: format!("{}: {}", experiment_title(&group), point_words(&group)),
                gains: Vec::new(),
            });
            let p99 = if counted.is_rate() { "" } else { "p99 " };
            row.gains.resize(row.gains.len().max(head + 1), String::new());
            row.gains[head] = format!("{p99}{}", times(ratio));
        }
    }
    let (heads, mut rows): (Vec<String>, Vec<WhatIfRow>) =
        (heads.into_iter().collect(), rows.into_values().collect());
    rows.iter_mut().for_each(|row| row.gains.resize(heads.len(), String::new()));
    (!rows.is_empty()).then_some(WhatIfView { heads, rows })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::{self, DRIVES, at_depth_1, named};
    use archive::TrialRecord;

    /// The Optane drive as a variant of the flash drive, with these trials.
    fn varied(trials: Vec<TrialRecord>) -> Run {
        let mut run = Run { trials, ..stored::run() };
        let variant = run.study.stack.iter_mut().find(|stack| stack.name == DRIVES[0]).unwrap();
        (variant.variant_of, variant.title) = (Some(DRIVES[1].into()), "an ideal drive".into());
        run
    }

    fn lookups(trial: &TrialRecord, stack: &str, point: &[(&str, &str)]) -> TrialRecord {
        let mut trial = named(trial, ["lmdb", stack, "latency"]);
        let pairs = point.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        trial.point.extend(pairs);
        trial
    }

    fn gains_of(run: &Run) -> Vec<String> {
        what_if_view(run).unwrap().rows.into_iter().flat_map(|row| row.gains).collect()
    }

    /// A drive that does not exist must not win the comparison of drives, nor miss an objective.
    #[test]
    fn a_variant_has_a_gain_and_is_no_storage() {
        let [fast, slow] = at_depth_1(&stored::run(), "100%");
        let trials = [lookups(&slow, DRIVES[1], &[]), lookups(&fast, DRIVES[0], &[])];
        let rate = |trial: &TrialRecord| trial.result.recording.counts(None).ops as f64;
        let gain = times(rate(&fast) / rate(&slow));
        let plain = Run { trials: trials.to_vec(), ..stored::run() };
        assert!(what_ifs(&plain).is_empty() && without_variants(&plain).trials.len() == 2);
        let mut run = varied(trials.to_vec());
        let said = what_ifs(&run).iter().map(Finding::to_string).collect::<String>();
        let expected = format!("LMDB lookups on 980 Pro are {gain} as fast (n = 1, predicted).");
        assert_eq!(said, format!("With an ideal drive, {expected}"));
        assert_eq!(gains_of(&run), [gain]);
        let (headline, _) = crate::headline(&run);
        assert!(headline.starts_with("LMDB lookups reach "), "{headline}");
        assert!(headline.contains("980 Pro"), "{headline}");
        run.study.experiment[0].objectives = vec!["p99 <= 1us".parse().unwrap()];
        let asked = analysis::objective::objectives(&run);
        assert!(asked.iter().all(|one| one.stack != DRIVES[0]), "{asked:?}");
        let page = crate::html(std::slice::from_ref(&run)).unwrap();
        assert!(page.contains(">an ideal drive</th>"), "the page shows it");
        assert!(page.contains(&run.trials[1].slug), "provenance lists every trial");
    }

    /// A row for each job: another number of clients, or another stack of the same drive, is another job.
    #[test]
    fn each_job_has_its_own_gain() {
        let [fast, slow] = at_depth_1(&stored::run(), "100%");
        let many = [("clients", "64")];
        let mut run = varied(vec![
            lookups(&slow, DRIVES[1], &[]),
            lookups(&fast, DRIVES[0], &[]),
            lookups(&slow, DRIVES[1], &many),
            lookups(&slow, DRIVES[0], &many),
        ]);
        let gains = gains_of(&run);
        assert!(gains.len() == 2 && gains[0] != "1.00x" && gains[1] == "1.00x", "{gains:?}");
        let said = what_ifs(&run).iter().map(Finding::to_string).collect::<String>();
        assert!(said.contains(&gains[0]), "the largest: {said}");
        let title =
            run.header.stacks.iter().find(|one| one.name == DRIVES[1]).unwrap().title.clone();
        let own = run.header.stacks.iter_mut().find(|one| one.name == "this-disk").unwrap();
        own.title = title;
        let view = what_if_view(&run).unwrap();
        assert!(view.rows[0].storage.contains(DRIVES[1]), "{:?}", view.rows[0].storage);
    }

    /// A drive that limits an open loop: only the variant keeps the load, which is the gain.
    #[test]
    fn an_open_loop_gains_in_p99_or_in_rate() {
        let [fast, slow] = at_depth_1(&stored::run(), "100%");
        let load = [("arrivals", "poisson"), ("rate", "100k/s")];
        let both = varied(vec![lookups(&slow, DRIVES[1], &load), lookups(&fast, DRIVES[0], &load)]);
        assert!(gains_of(&both)[0].starts_with("p99 "), "{:?}", gains_of(&both));
        let said = what_ifs(&both).iter().map(Finding::to_string).collect::<String>();
        assert!(said.contains("p99 of LMDB lookups at 100k/s on 980 Pro improves "), "{said}");
        let mut late = both;
        late.trials[0].result.recording.missed_arrivals = 100_000;
        let rate = |trial: &TrialRecord| trial.result.recording.counts(None).ops as f64;
        assert_eq!(gains_of(&late), [times(rate(&fast) / rate(&slow))]);
    }
}
