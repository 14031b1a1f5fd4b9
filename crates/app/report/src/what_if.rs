//! What a database would do if one part of its simulated stack were free.
//!
//! Invariant: a variant is no storage of its own; only its ratio to the stack that it varies is reported.

use std::borrow::Cow;
use std::collections::BTreeMap;

use analysis::decision::DecisionMetric;
use analysis::overall::overall;
use archive::Run;
use indexmap::{IndexMap, IndexSet};
use serde::Serialize;

use crate::comparison::subject;
use crate::finding::{Finding, times};
use crate::words::{runs_each, storage_words};

/// The run without trials on variants.
pub(crate) fn without_variants(run: &Run) -> Cow<'_, Run> {
    let is_variant = |name: &str| {
        run.study.stack.iter().any(|stack| stack.name == *name && stack.variant_of.is_some())
    };
    if !run.study.stack.iter().any(|stack| stack.variant_of.is_some()) {
        return Cow::Borrowed(run);
    }
    let mut own = run.clone();
    own.header.stacks.retain(|stack| !is_variant(&stack.name));
    own.trials.retain(|trial| !is_variant(&trial.stack));
    let left_out = (run.trials.len() - own.trials.len()) as u32;
    own.header.trials_planned = own.header.trials_planned.saturating_sub(left_out);
    Cow::Owned(own)
}

/// The gain of a job from a variant.
struct Gain {
    change: String,
    subject: String,
    storage: String,
    ratio: f64,
    note: String,
}

/// The gains by variant, in the order of the study; of each variant the largest first.
fn gains(run: &Run) -> Vec<Vec<Gain>> {
    let of_variant = |variant: &study::Stack| {
        let base = variant.variant_of.as_ref()?;
        let record = run.header.stacks.iter().find(|stack| stack.name == *base)?;
        let compared = overall(run, base, &variant.name);
        let of = |(ratio, counted, place): &(f64, DecisionMetric, usize)| {
            let group = &compared.groups[*place];
            Gain {
                change: variant.title.clone(),
                subject: subject(group, *counted),
                storage: storage_words(&record.title),
                ratio: *ratio,
                note: format!("{}, {}", runs_each(run), group.first.source),
            }
        };
        Some(compared.ratios.iter().rev().map(of).collect())
    };
    run.study.stack.iter().filter_map(of_variant).collect()
}

/// The largest gain from each variant.
pub(crate) fn what_ifs(run: &Run) -> Vec<Finding> {
    let largest = gains(run).into_iter().filter_map(|gains| gains.into_iter().next());
    let of = |Gain { change, subject, storage, ratio, note }| Finding::WhatIf {
        change,
        subject,
        storage,
        ratio,
        note,
    };
    largest.map(of).collect()
}

/// All gains: a row for each job and storage, a column for each change.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct WhatIfView {
    heads: Vec<String>,
    rows: Vec<WhatIfRow>,
}

#[derive(Debug, PartialEq, Serialize)]
struct WhatIfRow {
    job: String,
    storage: String,
    /// `[head]`: empty if it was not tried.
    gains: Vec<String>,
}

/// `None` without gains.
pub(crate) fn what_if_view(run: &Run) -> Option<WhatIfView> {
    let mut heads: IndexSet<String> = IndexSet::new();
    let mut cells: IndexMap<(String, String), BTreeMap<usize, f64>> = IndexMap::new();
    for Gain { change, subject, storage, ratio, .. } in gains(run).into_iter().flatten() {
        let (head, _) = heads.insert_full(change);
        cells.entry((storage, subject)).or_default().insert(head, ratio);
    }
    let row = |((storage, job), own): ((String, String), BTreeMap<usize, f64>)| {
        let text = |head| own.get(&head).map_or_else(String::new, |ratio| times(*ratio));
        WhatIfRow { job, storage, gains: (0..heads.len()).map(text).collect() }
    };
    let rows: Vec<WhatIfRow> = cells.into_iter().map(row).collect();
    (!rows.is_empty()).then(|| WhatIfView { heads: heads.iter().cloned().collect(), rows })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::{self, DRIVES, at_depth_1, named};

    /// A drive that does not exist must not win the comparison of drives.
    #[test]
    fn a_variant_has_a_gain_and_is_no_storage() {
        let mut run = stored::run();
        let [fast, slow] = at_depth_1(&run, "100%");
        run.trials = vec![
            named(&slow, ["lmdb", DRIVES[1], "latency"]),
            named(&fast, ["lmdb", DRIVES[0], "latency"]),
        ];
        let rate = |place: usize| run.trials[place].result.recording.counts(None).ops as f64;
        let gain = times(rate(1) / rate(0));
        assert!(what_ifs(&run).is_empty() && without_variants(&run).trials.len() == 2);
        let variant = run.study.stack.iter_mut().find(|stack| stack.name == DRIVES[0]).unwrap();
        (variant.variant_of, variant.title) = (Some(DRIVES[1].into()), "an ideal drive".into());
        let said = what_ifs(&run).iter().map(Finding::to_string).collect::<String>();
        assert_eq!(
            said,
            format!(
                "With an ideal drive, LMDB lookups on 980 Pro are {gain} as fast (n = 1, predicted)."
            )
        );
        let own = without_variants(&run);
        assert_eq!(own.trials.len(), 1);
        assert_eq!(
            own.header.trials_planned + 1,
            run.header.trials_planned,
            "the page counts these"
        );
        assert!(own.header.stacks.iter().all(|stack| stack.name != DRIVES[0]));
        let (headline, _) = crate::headline(&run);
        assert!(
            headline.starts_with("LMDB lookups reach ") && headline.contains("980 Pro"),
            "{headline}"
        );
        let view = what_if_view(&run).unwrap();
        let row = &view.rows[0];
        assert_eq!(
            (view.heads.as_slice(), row.gains.as_slice()),
            (&["an ideal drive".into()][..], &[gain][..])
        );
        let page = crate::html(std::slice::from_ref(&run)).unwrap();
        assert!(page.contains(">an ideal drive</th>"), "the page shows it");
    }
}
