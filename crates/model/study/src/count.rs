//! How many trials a study has, counted before any is made.
//!
//! Invariant: the count is that of the plan, or more where stacks are left out; it never overflows.

use crate::{BlockMatrix, Experiment, KvMatrix, Many, SqlMatrix, Study};

/// Trials of a study at most.
pub(crate) const TRIALS_MAX: u64 = 100_000;

fn product(lengths: &[usize]) -> u64 {
    lengths.iter().fold(1u64, |product, length| product.saturating_mul(*length as u64))
}

fn length<T>(axis: Option<&Many<T>>) -> usize {
    axis.map_or(1, |axis| axis.values().len())
}

fn block(matrix: &BlockMatrix) -> u64 {
    product(&[
        matrix.pattern.values().len(),
        matrix.offsets.values().len(),
        matrix.block_size.values().len(),
        matrix.read_share.values().len(),
        matrix.dsync.values().len(),
        matrix.sync_every.values().len(),
        matrix.threads.values().len(),
        matrix.queue_depth.values().len(),
        length(matrix.rate.as_ref()),
        length(matrix.rate_of_max.as_ref()),
    ])
}

fn kv(matrix: &KvMatrix) -> u64 {
    product(&[
        matrix.engine.values().len(),
        matrix.workload.values().len(),
        matrix.durability.values().len(),
        matrix.write_map.values().len(),
        matrix.readers.values().len(),
        length(matrix.rate.as_ref()),
    ])
}

fn sql(matrix: &SqlMatrix) -> u64 {
    product(&[
        matrix.engine.values().len(),
        matrix.page_size.values().len(),
        matrix.compression.values().len(),
        matrix.doublewrite.values().len(),
        matrix.flush_method.values().len(),
        matrix.durability.values().len(),
        matrix.buffer_pool.values().len(),
        matrix.workload.values().len(),
        matrix.threads.values().len(),
        length(matrix.rate.as_ref()),
    ])
}

fn points(experiment: &Experiment) -> u64 {
    let act = experiment.act.as_ref().map(|matrix| {
        let threads = length(matrix.service_threads.as_ref());
        product(&[length(matrix.rating.as_ref()), matrix.phase.values().len(), threads])
    });
    let all = [
        experiment.block.as_ref().map(block),
        act,
        experiment.kv.as_ref().map(kv),
        experiment.sql.as_ref().map(sql),
    ];
    all.into_iter().flatten().fold(0, u64::saturating_add)
}

/// Trials of each experiment.
pub(crate) fn trials(study: &Study) -> impl Iterator<Item = (&Experiment, u64)> {
    study.experiment.iter().map(|experiment| {
        let named = experiment.stacks.len();
        let stacks = if named == 0 { study.stack.len() } else { named };
        let repetitions = u64::from(experiment.repeat);
        let count = points(experiment).saturating_mul(repetitions).saturating_mul(stacks as u64);
        (experiment, count)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::ENGINES;

    const STUDY: &str = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
        [[stack]]\nname = \"e\"\ndevice = \"file\"\n[[experiment]]\nname = \"e\"\nrepeat = 3\n\
        [experiment.block]\nqueue_depth = [1, 2]\nread_share = [\"100%\", \"50%\", \"0%\"]\n";

    #[test]
    fn the_count_is_that_of_the_plan() {
        let study = crate::parse(STUDY, ENGINES).unwrap();
        let count: u64 = trials(&study).map(|(_, count)| count).sum();
        assert_eq!(count, crate::plan(&study).trials.len() as u64);
    }

    /// A slip in a matrix must be said at once, not fill the memory.
    #[test]
    fn a_matrix_of_a_billion_points_is_refused_before_it_is_made() {
        let numbers: Vec<String> = (1..=1000).map(|number| number.to_string()).collect();
        let list = format!("[{}]", numbers.join(", "));
        let shares: Vec<String> = (0..=100).map(|share| format!("\"{share}%\"")).collect();
        let text = STUDY
            .replace("[1, 2]", &list)
            .replace("[\"100%\", \"50%\", \"0%\"]", &format!("[{}]", shares.join(", ")))
            + &format!("sync_every = {list}\nblock_size = [\"4KiB\", \"8KiB\"]\n");
        let error = crate::parse(&text, ENGINES).unwrap_err().to_string();
        assert!(error.contains("at most 100000") && error.len() < 200, "{error}");
    }
}
