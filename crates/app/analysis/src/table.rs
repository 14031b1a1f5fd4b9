//! Runs as column tables: figures, intervals over time, histograms.
//!
//! Invariants: all columns of a table have the same length; a missing number is null, never 0.

use archive::{Run, TrialRecord};
use serde_json::Value;
use stats::{Histogram, Phase};
use workload::OpClass;

use crate::figure::Figure;

/// The values of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Cells {
    /// A text column.
    Text(Vec<Option<String>>),
    /// A numeric column.
    Number(Vec<Option<f64>>),
    /// Integers.
    Count(Vec<Option<u64>>),
    /// Yes or no.
    Flag(Vec<bool>),
}

impl Cells {
    /// Returns the number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Text(all) => all.len(),
            Self::Number(all) => all.len(),
            Self::Count(all) => all.len(),
            Self::Flag(all) => all.len(),
        }
    }

    /// Whether it has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Columns with their names, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    /// Name and values.
    pub columns: Vec<(&'static str, Cells)>,
}

impl Table {
    /// Returns the number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |(_, cells)| cells.len())
    }

    fn text<T>(&mut self, name: &'static str, rows: &[T], of: impl Fn(&T) -> Option<String>) {
        self.columns.push((name, Cells::Text(rows.iter().map(of).collect())));
    }

    fn number<T>(&mut self, name: &'static str, rows: &[T], of: impl Fn(&T) -> Option<f64>) {
        self.columns.push((name, Cells::Number(rows.iter().map(of).collect())));
    }

    fn count<T>(&mut self, name: &'static str, rows: &[T], of: impl Fn(&T) -> u64) {
        let all = rows.iter().map(|row| Some(of(row))).collect();
        self.columns.push((name, Cells::Count(all)));
    }

    fn flag<T>(&mut self, name: &'static str, rows: &[T], of: impl Fn(&T) -> bool) {
        self.columns.push((name, Cells::Flag(rows.iter().map(of).collect())));
    }
}

/// A point as a JSON object.
fn object<'a, V: Into<Value> + Clone + 'a>(
    parts: impl IntoIterator<Item = (&'a String, &'a V)>,
) -> String {
    let map = parts.into_iter().map(|(name, value)| (name.clone(), value.clone().into()));
    Value::Object(map.collect()).to_string()
}

/// The figures; `point` and `defaults` are JSON objects.
#[must_use]
pub fn figure_table(figures: &[Figure]) -> Table {
    let mut table = Table::default();
    let some = |text: &str| Some(text.to_owned());
    table.text("study", figures, |one| some(&one.study));
    table.text("stack", figures, |one| some(&one.stack));
    table.text("engine", figures, |one| some(&one.engine));
    table.text("workload", figures, |one| some(&one.workload));
    table.text("point", figures, |one| Some(object(&one.point)));
    table.text("defaults", figures, |one| Some(object(one.defaults.as_ref())));
    table.text("metric", figures, |one| some(&one.metric));
    table.text("unit", figures, |one| some(&one.unit));
    table.number("value", figures, |one| Some(one.value));
    table.number("lo", figures, |one| one.lo);
    table.number("hi", figures, |one| one.hi);
    table.text("interval", figures, |one| one.interval.map(str::to_owned));
    table.flag("at_least", figures, |one| one.at_least);
    table.count("n", figures, |one| one.n);
    table.text("source", figures, |one| some(one.source.word()));
    table.text("run", figures, |one| some(&one.run));
    table.text("citation", figures, |one| one.citation.clone());
    table.text("validation", figures, |one| one.validation.clone());
    table.flag("partial", figures, |one| one.partial);
    table.text("job", figures, |one| one.job.clone());
    table
}

/// Columns that identify a trial.
fn trial_columns<T>(table: &mut Table, rows: &[T], of: impl Fn(&T) -> (&Run, &TrialRecord) + Copy) {
    let some = |text: &str| Some(text.to_owned());
    table.text("run", rows, |row| some(&of(row).0.name));
    table.text("study", rows, |row| some(&of(row).0.study.name));
    table.text("trial", rows, |row| some(&of(row).1.slug));
    table.text("stack", rows, |row| some(&of(row).1.stack));
    table.text("engine", rows, |row| some(&of(row).1.engine));
    table.text("workload", rows, |row| some(&of(row).1.experiment));
    table.text("point", rows, |row| Some(object(&of(row).1.point)));
    table.text("source", rows, |row| some(of(row).1.source.word()));
    table.count("repetition", rows, |row| u64::from(of(row).1.repetition));
}

/// One kind of operation in one interval.
struct Interval<'a> {
    run: &'a Run,
    trial: &'a TrialRecord,
    interval: &'a stats::Interval,
    class: OpClass,
    times: Histogram,
}

/// One row per interval and class of operation, warm-up included, also if nothing completed.
#[must_use]
pub fn series_table(runs: &[Run]) -> Table {
    let mut rows: Vec<Interval<'_>> = Vec::new();
    for (run, trial) in runs.iter().flat_map(|run| run.trials.iter().map(move |one| (run, one))) {
        let intervals = &trial.result.recording.intervals;
        let done = |class: &OpClass| {
            let mut all = intervals.iter();
            all.any(|one| one.tallies[*class].counts != stats::Counts::default())
        };
        let classes: Vec<OpClass> = OpClass::ALL.into_iter().filter(done).collect();
        for interval in intervals {
            for class in &classes {
                let tally = &interval.tallies[*class];
                // An interval without completions is a row; drain intervals only if something completed.
                if interval.phase == Phase::Drain && tally.counts == stats::Counts::default() {
                    continue;
                }
                let times = tally.latency.histogram();
                rows.push(Interval { run, trial, interval, class: *class, times });
            }
        }
    }
    let counts = |row: &Interval<'_>| row.interval.tallies[row.class].counts;
    let micros = |nanoseconds: f64| nanoseconds / 1e3;
    let percentile = |row: &Interval<'_>, percent: f64| {
        // As for every percentile: only with ten samples beyond it.
        let beyond = row.times.len() as f64 * (1.0 - percent / 100.0);
        (beyond >= 10.0).then(|| micros(row.times.value_at_percentile(percent) as f64))
    };
    let mut table = Table::default();
    trial_columns(&mut table, &rows, |row| (row.run, row.trial));
    table.text("phase", &rows, |row| Some(phase_word(row.interval.phase).to_owned()));
    table.text("op", &rows, |row| Some(row.class.word().to_owned()));
    table.number("start_s", &rows, |row| Some(row.interval.start.as_secs_f64()));
    table.number("end_s", &rows, |row| Some(row.interval.end.as_secs_f64()));
    table.count("ops", &rows, |row| counts(row).ops);
    table.count("bytes", &rows, |row| counts(row).bytes);
    table.count("errors", &rows, |row| counts(row).errors);
    table.number("rate_per_s", &rows, |row| {
        let seconds = row.interval.seconds();
        (seconds > 0.0).then(|| counts(row).ops as f64 / seconds)
    });
    table.number("latency_mean_us", &rows, |row| {
        let all = counts(row);
        (all.ops > 0).then(|| micros(all.latency_sum.get() as f64 / all.ops as f64))
    });
    table.number("latency_p50_us", &rows, |row| percentile(row, 50.0));
    table.number("latency_p99_us", &rows, |row| percentile(row, 99.0));
    table
}

const fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::WarmUp => "warm_up",
        Phase::Measure => "measure",
        Phase::Drain => "drain",
    }
}

/// One bin of the histogram of one kind of operation.
struct Bin<'a> {
    run: &'a Run,
    trial: &'a TrialRecord,
    class: OpClass,
    time: &'static str,
    to_ns: u64,
    count: u64,
}

/// One row per non-empty bin: response times of operations due in the measured time, to three digits, by
/// trial and class.
#[must_use]
pub fn histogram_table(runs: &[Run]) -> Table {
    let mut rows: Vec<Bin<'_>> = Vec::new();
    for (run, trial) in runs.iter().flat_map(|run| run.trials.iter().map(move |one| (run, one))) {
        let recording = &trial.result.recording;
        for class in OpClass::ALL {
            if recording.counts(Some(class)).ops == 0 {
                continue;
            }
            let total = recording.total(Some(class));
            for (time, histogram) in [("response", &total.latency), ("service", &total.service)] {
                rows.extend(histogram.iter_recorded().map(|bin| Bin {
                    run,
                    trial,
                    class,
                    time,
                    to_ns: bin.value_iterated_to(),
                    count: bin.count_since_last_iteration(),
                }));
            }
        }
    }
    let mut table = Table::default();
    trial_columns(&mut table, &rows, |row| (row.run, row.trial));
    table.text("op", &rows, |row| Some(row.class.word().to_owned()));
    table.text("time", &rows, |row| Some(row.time.to_owned()));
    table.count("to_ns", &rows, |row| row.to_ns);
    table.count("count", &rows, |row| row.count);
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_run::run_of;
    use units::Nanos;

    fn run() -> Run {
        let study = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"a\"\ndevice = \"file\"\n\
                     [[experiment]]\nname = \"e\"\n[experiment.block]\nqueue_depth = [1, 2]\n";
        run_of(study, Nanos(100_000))
    }

    fn sum(table: &Table, name: &str) -> u64 {
        let found = table.columns.iter().find(|(other, _)| *other == name);
        match &found.unwrap().1 {
            Cells::Count(all) => all.iter().flatten().sum(),
            other => panic!("{other:?}"),
        }
    }

    /// Sums over exported intervals and bins must equal the operations of the run.
    #[test]
    fn intervals_and_bins_hold_every_operation_once() {
        let runs = [run()];
        let done: u64 =
            runs[0].trials.iter().map(|one| one.result.recording.counts(None).ops).sum();
        assert!(done > 0);
        let (series, histogram) = (series_table(&runs), histogram_table(&runs));
        assert_eq!((sum(&series, "ops"), sum(&histogram, "count")), (done, done));
        for table in [series, histogram, figure_table(&crate::figures(&runs))] {
            assert!(table.rows() > 0);
            assert!(table.columns.iter().all(|(_, cells)| cells.len() == table.rows()));
        }
    }

    #[test]
    fn percentiles_of_few_operations_are_none() {
        let mut short = run();
        short.trials.truncate(1);
        let table = series_table(&[short]);
        let column = |name: &str| table.columns.iter().find(|(other, _)| *other == name).unwrap();
        let Cells::Number(p99) = &column("latency_p99_us").1 else { panic!("numbers") };
        assert!(p99.iter().all(Option::is_none), "500 operations an interval have five beyond");
        let Cells::Number(p50) = &column("latency_p50_us").1 else { panic!("numbers") };
        let known: Vec<f64> = p50.iter().flatten().copied().collect();
        assert!(known.len() > 5 && known.iter().all(|one| (one - 100.0).abs() < 0.2), "{p50:?}");
    }

    /// A stall without a row would make the rest look steady.
    #[test]
    fn an_interval_without_operations_is_a_row() {
        let mut stalled = run();
        stalled.trials.truncate(1);
        let rows = |run: &Run| series_table(std::slice::from_ref(run)).rows();
        let before = rows(&stalled);
        let intervals = &mut stalled.trials[0].result.recording.intervals;
        let one = &intervals[3];
        intervals[3] = stats::Interval::empty(one.phase, one.start, one.end);
        assert_eq!(rows(&stalled), before);
    }
}
