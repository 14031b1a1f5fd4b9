//! Trends: one job over many runs.
//!
//! Figures are joined by job hash, stack and source. Invariants: a different job starts a new line; runs are
//! ordered by start time.

use archive::Run;
use indexmap::IndexMap;
use study::Source;

use crate::figure::Figure;
use crate::figures::figures;

/// Metrics with a trend: rates and tail latency.
const FOLLOWED: [&str; 4] = ["tx_rate", "ops_rate", "iops", "latency_p99"];
/// Minimum number of runs for a trend line.
const RUNS_MIN: usize = 2;

/// A figure over runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Trend {
    /// Stack, engine and experiment.
    pub name: String,
    /// Parameters.
    pub point: String,
    /// The metric.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Its source.
    pub source: Source,
    /// One point per run, oldest first.
    pub points: Vec<TrendPoint>,
}

/// A figure of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct TrendPoint {
    /// Name of the run.
    pub run: String,
    /// Start time as stored.
    pub started: String,
    /// The value.
    pub value: f64,
    /// 95 % interval across at least three repetitions.
    pub interval: Option<(f64, f64)>,
}

impl Trend {
    /// The last value over the first.
    #[must_use]
    pub fn change(&self) -> f64 {
        match self.points.as_slice() {
            [first, .., last] if first.value > 0.0 => last.value / first.value,
            _ => 1.0,
        }
    }
}

/// Figures that at least two of `runs` have, in the order of the first that has them.
#[must_use]
pub fn trends(runs: &[Run]) -> Vec<Trend> {
    let mut order: Vec<&Run> = runs.iter().collect();
    order.sort_by(|a, b| (&a.header.started, &a.name).cmp(&(&b.header.started, &b.name)));
    let mut found: IndexMap<(String, String, String), Trend> = IndexMap::new();
    for run in order {
        for figure in figures(std::slice::from_ref(run)) {
            let followed = FOLLOWED.contains(&figure.metric.as_ref());
            let Some(job) = figure.job.clone().filter(|_| followed && !figure.partial) else {
                continue;
            };
            let op = figure.point.get("op").map(ToString::to_string).unwrap_or_default();
            let of = format!("{}{}{}{op}", figure.source.word(), figure.stack, figure.workload);
            let key = (job, of, figure.metric.to_string());
            let trend = found.entry(key).or_insert_with(|| begun(&figure));
            let interval =
                figure.lo.zip(figure.hi).filter(|_| figure.interval == Some("repetitions"));
            trend.points.push(TrendPoint {
                run: run.name.clone(),
                started: run.header.started.clone(),
                value: figure.value,
                interval,
            });
        }
    }
    found.into_values().filter(|one| one.points.len() >= RUNS_MIN).collect()
}

fn begun(figure: &Figure) -> Trend {
    let plain =
        |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let words = figure.point.iter().map(|(name, value)| format!("{name}={}", plain(value)));
    Trend {
        name: format!("{}, {}: {}", figure.stack, figure.engine, figure.workload),
        point: words.collect::<Vec<_>>().join(" "),
        metric: figure.metric.to_string(),
        unit: figure.unit.to_string(),
        source: figure.source,
        points: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_run::run_of;
    use units::Nanos;

    const STUDY: &str = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"a\"\ndevice = \"file\"\n\
        [[stack]]\nname = \"b\"\ndevice = \"file\"\n[[experiment]]\nname = \"e\"\n[experiment.block]\n";

    fn at(started: &str, time: u64, job: &str) -> Run {
        let mut run = run_of(STUDY, Nanos(time));
        run.name = started.into();
        run.header.started = started.into();
        run.trials.iter_mut().for_each(|trial| trial.job = job.into());
        run
    }

    /// A trend line that mixes jobs or drives would show a change that nobody made.
    #[test]
    fn a_line_is_of_one_job_on_one_stack_in_the_order_of_time() {
        let runs = [at("2026-03", 2000, "x"), at("2026-01", 1000, "x"), at("2026-02", 9000, "y")];
        let all = trends(&runs);
        let rates: Vec<&Trend> = all.iter().filter(|one| one.metric == "iops").collect();
        assert_eq!(rates.len(), 2, "one a stack: {all:?}");
        let order: Vec<&str> = rates[0].points.iter().map(|one| one.run.as_str()).collect();
        assert_eq!(order, ["2026-01", "2026-03"]);
        assert!((rates[0].change() - 0.5).abs() < 0.01, "{}", rates[0].change());
        assert!(trends(&runs[..1]).is_empty(), "one run is no line");
    }
}
