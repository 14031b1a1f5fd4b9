//! ACT storage tests of a run: the verdict, table and log of each, and what limited it.
//!
//! Invariant: computed from the archive alone, so a verdict can be recomputed at any time. A verdict is not
//! an ACT certification.

use ::act::{Config, Verdict};
use archive::{Run, TrialRecord};
use stats::Limit;
use study::{ActJob, Job};
use units::Nanos;
use workload::OpClass;

/// One ACT test of a run.
#[derive(Debug)]
pub struct ActTest<'a> {
    /// The configuration at the trial's rating.
    pub config: Config,
    /// The verdict.
    pub verdict: Verdict,
    /// The trial.
    pub trial: &'a TrialRecord,
    slice: Nanos,
}

/// The tests of a run, in the order of the plan.
#[must_use]
pub fn act_tests(run: &Run) -> Vec<ActTest<'_>> {
    let plan = study::plan(&run.study);
    let job_of = |trial: &TrialRecord| -> Option<ActJob> {
        let planned = plan.trials.iter().find(|planned| planned.number == trial.number)?;
        match &planned.job {
            Job::Act(job) => Some(ActJob::clone(job)),
            Job::Block(_) | Job::Kv(_) | Job::Sql(_) => None,
        }
    };
    let test = |trial| {
        let job = job_of(trial)?;
        let (config, slice) = (job.config().ok()?, job.slice);
        let verdict =
            ::act::judge(&config, &trial.result.recording, slice, trial.result.failure.as_deref());
        Some(ActTest { config, verdict, trial, slice })
    };
    run.trials.iter().filter_map(test).collect()
}

impl ActTest<'_> {
    /// The log in ACT's format.
    #[must_use]
    pub fn log(&self) -> String {
        ::act::log_text(&self.config, self.service_threads(), &self.trial.result.recording)
    }

    /// The table of slices.
    #[must_use]
    pub fn table(&self) -> String {
        ::act::table_text(&self.config, &self.verdict)
    }

    fn service_threads(&self) -> u32 {
        let text = self.trial.point.get("service_threads");
        text.and_then(|text| text.parse().ok()).unwrap_or(self.config.service_threads)
    }

    /// `10x, act phase with 40 threads` or the like.
    #[must_use]
    pub fn title(&self) -> String {
        let rates = match self.config.rating() {
            Some(rating) => format!("{rating}x"),
            None => format!(
                "{} reads/s and {} writes/s",
                self.config.read_reqs_per_sec, self.config.write_reqs_per_sec
            ),
        };
        match self.trial.point.get("arrivals").map(String::as_str) {
            Some("act") => {
                format!("{rates}, in ACT's phase with {} threads", self.service_threads())
            }
            _ => format!("{rates}, independent requests"),
        }
    }

    /// The verdict in a sentence, with what limited a test that failed.
    #[must_use]
    pub fn sentence(&self) -> String {
        let word = if self.verdict.passed { "pass" } else { "FAIL" };
        let mut text = format!("{}: {word}", self.title());
        let worst = self.verdict.service.iter().map(|slice| slice.over_limits[0]);
        let response = self.verdict.response.iter().map(|slice| slice.over_limits[0]);
        let (worst, response) = (worst.fold(0.0, f64::max), response.fold(0.0, f64::max));
        text.push_str(&format!(
            " ({worst:.2} % of reads over 1 ms in the worst slice; {response:.2} % from when they were \
             due; {:.0} of {:.0} reads/s; {})",
            self.verdict.rate.0, self.verdict.rate.1, self.trial.source
        ));
        if !self.verdict.passed {
            text.push_str(&format!(": {}. {}", self.verdict.reasons.join("; "), self.limit()));
        }
        if !self.covers_a_slice() {
            text.push_str(" The test was shorter than one slice.");
        }
        text
    }

    /// Whether the test lasted for at least one slice.
    #[must_use]
    pub fn covers_a_slice(&self) -> bool {
        self.trial.result.recording.seconds() >= self.slice.as_secs_f64()
    }

    /// The resource that limited the test, if a counter shows it.
    #[must_use]
    pub fn limit(&self) -> String {
        let mut limits = self.trial.result.limits.iter();
        let of_client = |limit: &&Limit| !matches!(limit, Limit::Others { .. });
        if let Some(limit) = limits.find(of_client) {
            return format!("Limited by the client: {limit}.");
        }
        let failed = !self.trial.result.recording.error_samples.is_empty();
        if let Some(failure) = self.trial.result.failure.as_ref().filter(|_| failed) {
            return format!("The device failed: {failure}.");
        }
        let service = self.trial.result.recording.total(Some(OpClass::Read)).service;
        let p99 = Nanos(service.value_at_quantile(0.99));
        // Absence of a client limit does not prove that the device was the limit.
        format!("No limit of the client was seen; 1 read in 100 took {p99} or more from its issue.")
    }
}
