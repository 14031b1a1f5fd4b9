//! `crosspoint device fit`: measures a device, fits a profile and tests it.
//!
//! Invariants: the device passes the same guard as in any study; without a confirmation it is only read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use archive::output::{SealStyle, seal};
use archive::{Run, TrialOutcome, TrialRecord};
use fit::{FitCategory, FitPoint, FitTimes, FlushPoint, Naming, Residual};
use runner::{Ending, RunnerError};
use serde_json::json;
use units::{Bytes, Nanos, Rate, Seed, Share, human_count};
use workload::OpClass;

use crate::cli::FitArguments;
use crate::exit::{self, ExitCode};
use crate::fit_picture::picture;
use crate::quick::quoted;
use crate::result_file::Output;
use crate::running::Running;
use crate::show::Failure;

/// The study that is run.
pub const STUDY: &str = "device-fit";
/// The comment from which on it measures flushes.
const FLUSHES: &str = "# Flushes, from here on";

pub fn run(arguments: &FitArguments) -> Result<ExitCode, Failure> {
    let (path, drawn) = outputs(arguments)?;
    let folder = match (&arguments.from, &arguments.target) {
        (Some(run), _) => run.clone(),
        (None, target) => match measure(arguments, target.as_deref().unwrap_or(Path::new(".")))? {
            (folder, Ending::Complete) => folder,
            (_, Ending::Interrupted) => return Ok(exit::INTERRUPTED),
            (_, Ending::Failed) => return Ok(exit::TARGET_FAILED),
        },
    };
    let run = Run::read(&folder, engines::list())?;
    let naming = naming(&arguments.name, &run);
    let refuse = |reason: String| RunnerError::Profile { name: naming.name.clone(), reason };
    if run.study.stack.len() > 1 {
        return Err(refuse("a profile needs a run with one stack".into()).into());
    }
    let points = points(&run, |_| true);
    let others = run.trials.iter().filter(|trial| !counts(trial)).count();
    let profile = profile_of(&run, &naming).map_err(|error| match run.study.name == STUDY {
        true if others > 0 => refuse(format!("{error}; {others} trials are left out: {LEFT_OUT}")),
        true => refuse(error.to_string()),
        false => RunnerError::NotThatStudy {
            path: folder.clone(),
            study: run.study.name.clone(),
            wanted: STUDY,
            reason: error.to_string(),
        },
    })?;
    let flushed = flush_points(&run);
    let mut residuals = fit::residuals(&profile, &points, Seed(1));
    residuals.extend(fit::flush_residuals(&profile, &flushed, Seed(1)));
    let known = points.iter().filter(|point| point.ops() > 0).count();
    let left_out = known - fit::kept_up(&points).len();
    let inputs = inputs(arguments);
    let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
    let output = |path| Output::named(path, arguments.force).with_inputs(&inputs);
    let text = format!("# Fitted by `crosspoint device fit`.\n{}", profile.to_toml());
    output(&path).write(text.as_bytes())?;
    if let Some(drawn) = &drawn {
        let mut drawing = picture(&naming.title, &residuals);
        seal(&mut drawing, SealStyle::Markup);
        output(drawn).write(drawing.as_bytes())?;
    }
    let own = against_itself(&run);
    if arguments.json {
        let mut document = document((&path, drawn.as_deref(), &folder), &residuals, own);
        document["schedules_left_out"] = json!(left_out);
        document["trials_left_out"] = json!(others);
        document["flushes_fitted"] = json!(fit::fitted_flushes(&flushed));
        out!("{document:#}");
        return Ok(exit::OK);
    }
    print_residuals(&residuals);
    print_categories(&residuals, own);
    print_flushes(&flushed);
    if left_out > 0 {
        out!("left out: {left_out} open loops above 85 % of the closed-loop rate");
    }
    if others > 0 {
        out!("left out: {others} trials: {LEFT_OUT}");
    }
    out!("profile: {}", path.display());
    if let Some(drawn) = &drawn {
        out!("picture: {}", drawn.display());
    }
    out!("run:     {}", folder.display());
    Ok(exit::OK)
}

/// The profile of the device of a run, flushes included.
///
/// # Errors
/// The run lacks jobs that a fit needs.
pub fn profile_of(run: &Run, naming: &Naming) -> Result<device::Profile, fit::FitError> {
    let profile = fit::fit(&points(run, |_| true), naming)?;
    Ok(fit::with_flushes(profile, &flush_points(run), &naming.source))
}

/// Why trials are left out.
const LEFT_OUT: &str = "failed, stopped, with errors, or of jobs that the fit does not use";

/// Maximum length of a fitted profile's name: with an extension it is a file name.
const NAME_MAX: usize = 200;

/// Output paths of the profile and its chart, checked before minutes of measuring.
fn outputs(arguments: &FitArguments) -> Result<(PathBuf, Option<PathBuf>), Failure> {
    let name = &arguments.name;
    let refuse = |reason: &str| {
        let name = name.escape_debug().to_string();
        Failure::from(RunnerError::Profile { name, reason: reason.into() })
    };
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(refuse("a name has 1 to 200 bytes"));
    }
    if name.chars().any(|one| one.is_control() || ['"', '\\'].contains(&one)) {
        return Err(refuse("a name has no quotes, backslashes or control characters"));
    }
    let path = arguments.output.clone().unwrap_or_else(|| format!("{name}.toml").into());
    if path.extension().is_some_and(|extension| extension == "svg") {
        return Err(refuse(
            "the picture goes into NAME.svg; --output names the profile, NAME.toml",
        ));
    }
    let mut drawn = path.clone();
    match path.extension() {
        Some(extension) if extension != "toml" => drawn.as_mut_os_string().push(".svg"),
        _ => _ = drawn.set_extension("svg"),
    }
    // stdout takes no chart.
    let drawn = (path.as_os_str() != "-").then_some(drawn);
    let inputs = inputs(arguments);
    let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
    for file in [Some(&path), drawn.as_ref()].into_iter().flatten() {
        let output = Output::named(file, arguments.force).with_inputs(&inputs);
        // Repeating the same fit must not be refused.
        if arguments.from.is_some() { output.check() } else { output.check_policy() }?;
    }
    Ok((path, drawn))
}

/// Files that a fit reads besides those of a run: the profile of a model target.
fn inputs(arguments: &FitArguments) -> Vec<PathBuf> {
    let model = |target: &PathBuf| Some(PathBuf::from(target.to_str()?.strip_prefix("model:")?));
    arguments.target.iter().map(|target| model(target).unwrap_or_else(|| target.clone())).collect()
}

fn document(
    (path, drawn, folder): (&Path, Option<&Path>, &Path),
    residuals: &[Residual],
    own: [ErrorSummary; 2],
) -> serde_json::Value {
    let rows = residuals.iter().map(|one| {
        json!({"job": one.job, "metric": one.metric, "category": one.category.word(),
               "held_out": one.category.held_out(),
               "measured": one.measured, "predicted": one.predicted, "error": one.error()})
    });
    let rows: Vec<_> = rows.collect();
    let known = |off: ErrorSummary, value: f64| (off.count > 0).then_some(value);
    let of = |category| {
        let [mean, p99] =
            ["mean", "p99"].map(|metric| ErrorSummary::of(residuals, metric, &[category]));
        json!({"category": category.word(), "jobs": mean.count,
               "mean_latency_error": known(mean, mean.average),
               "mean_latency_error_worst": known(mean, mean.worst),
               "p99_error": known(p99, p99.average), "p99_error_worst": known(p99, p99.worst)})
    };
    let held_out: Vec<_> = FitCategory::ALL.into_iter().filter(|one| one.held_out()).collect();
    let [mean, p99] = ["mean", "p99"].map(|metric| ErrorSummary::of(residuals, metric, &held_out));
    json!({"schema": 2, "profile": path.to_string_lossy(),
           "picture": drawn.map(Path::to_string_lossy), "run": folder.to_string_lossy(),
           "residuals": rows,
           "categories": FitCategory::ALL.map(of),
           "held_out_mean_latency_error": known(mean, mean.average),
           "held_out_mean_latency_error_worst": known(mean, mean.worst),
           "held_out_p99_error": known(p99, p99.average),
           "held_out_p99_error_worst": known(p99, p99.worst),
           "device_against_itself_mean_latency": known(own[0], own[0].average),
           "device_against_itself_mean_latency_worst": known(own[0], own[0].worst),
           "device_against_itself_p99": known(own[1], own[1].average),
           "device_against_itself_p99_worst": known(own[1], own[1].worst)})
}

/// Prints which flushes were fitted.
fn print_flushes(flushed: &[FlushPoint]) {
    match fit::fitted_flushes(flushed)[..] {
        [] => out!("flushes: not fitted, so durable databases do not run on this profile"),
        ref fitted => {
            let fitted: Vec<String> = fitted.iter().map(ToString::to_string).collect();
            out!("flushes: fitted after {} writes", fitted.join(", "));
        }
    }
}

/// Prints errors of fitted jobs and, by class, of held-out jobs, next to the device's own repeatability.
fn print_categories(residuals: &[Residual], own: [ErrorSummary; 2]) {
    out!(
        "{:<28} {:>5}  {:<24} {:<24}", "off by, on average (worst)", "jobs", "mean latency", "p99"
    );
    let text = |off: &ErrorSummary| match off.count {
        0 => "-".to_owned(),
        _ => format!("{:.1} % ({:.1} %)", off.average * 100.0, off.worst * 100.0),
    };
    for category in FitCategory::ALL {
        let [mean, p99] =
            ["mean", "p99"].map(|metric| ErrorSummary::of(residuals, metric, &[category]));
        if mean.count > 0 {
            let held_out = if category.held_out() { "held out: " } else { "" };
            let words = format!("{held_out}{}", category.word());
            out!("{words:<28} {:>5}  {:<24} {:<24}", mean.count, text(&mean), text(&p99));
        }
    }
    let [mean, p99] = &own;
    if mean.count == 0 {
        return out!("the device itself: not known, no job was measured twice");
    }
    let words = "the device itself, twice";
    out!("{words:<28} {:>5}  {:<24} {:<24}", mean.count, text(mean), text(p99));
}

/// Runs the study on the target.
fn measure(arguments: &FitArguments, target: &Path) -> Result<(PathBuf, Ending), Failure> {
    let modelled = target.to_str().is_some_and(|name| name.starts_with("model:"));
    let writable = modelled || target.is_dir() || !arguments.i_will_lose_data.is_empty();
    let quoted = |path: &Path| quoted(&path.display().to_string());
    let mut set = Vec::new();
    if modelled {
        set.push(format!("stack.target.device={}", quoted(target)));
    } else if target.is_dir() {
        set.push(format!("stack.target.directory={}", quoted(target)));
    } else {
        set.push(format!("stack.target.device={}", quoted(target)));
        set.push(format!("stack.target.allow_write={writable}"));
    }
    if let Some(size) = arguments.size {
        set.push(format!("stack.target.size={}", size.exact()));
    }
    let mut found = runner::load_study(STUDY)?;
    if !writable {
        say!("without --i-will-lose-data the device is only read: writes are taken as reads");
        set.push("experiment.*.job.read_share=100%".to_owned());
    }
    let name = target.to_str().filter(|_| modelled);
    let profile = name.map(runner::profile).transpose()?;
    if !writable || profile.is_some_and(|one| one.parameters.unknown_flush().is_some()) {
        // Nothing to flush, or a model that does not know what it takes.
        found.text.truncate(found.text.find(FLUSHES).unwrap_or(found.text.len()));
    }
    let to = (arguments.out.clone(), arguments.i_will_lose_data.as_slice());
    let end = Running::start()?.execute_with((found, &set), to, arguments.progress)?;
    Ok((end.path, end.ending))
}

/// Share of reads, block size, depth, threads and rate of a job.
type JobKey = (u32, u64, u32, u32, u64);

/// Measured points, over the `wanted` repetitions.
fn points(run: &Run, wanted: fn(u32) -> bool) -> Vec<FitPoint> {
    let mut points: BTreeMap<JobKey, FitPoint> = BTreeMap::new();
    let plain = |trial: &&TrialRecord| counts(trial) && flushes_of(trial).is_none();
    for trial in run.trials.iter().filter(plain).filter(|trial| wanted(trial.repetition)) {
        let Some((read_share, block_size, queue_depth, threads)) = job(trial) else { continue };
        let rate: Option<Rate> = trial.point.get("rate").and_then(|word| word.parse().ok());
        let share = 10_000 - (read_share.fraction() * 10_000.0) as u32;
        let recording = &trial.result.recording;
        let key = (share, block_size.get(), queue_depth, threads, rate.map_or(0, Rate::get));
        let point = points.entry(key).or_insert_with(|| FitPoint {
            read_share,
            block_size,
            queue_depth,
            threads,
            rate,
            seconds: 0.0,
            reads: FitTimes::default(),
            writes: FitTimes::default(),
        });
        point.seconds += recording.seconds();
        let classes = [(OpClass::Read, &mut point.reads), (OpClass::Write, &mut point.writes)];
        for (class, times) in classes {
            let total = recording.total(Some(class));
            // Arrived operations, as for latencies: an earlier stall would distort a mean over completions.
            times.add(total.due.ops, total.due.latency_sum, &total.latency);
        }
    }
    points.into_values().collect()
}

/// Parameters that a job of the fit may set; others must be at their defaults.
const KNOWN: [&str; 9] = [
    "arrivals", "block_size", "clients", "dsync", "pattern", "queue_depth", "rate", "read_share",
    "sync_every",
];

/// Writes before each flush of a trial; `Some(None)` for forced writes, `None` for neither.
#[expect(clippy::option_option, reason = "the inner one is that of a flush point")]
fn flushes_of(trial: &TrialRecord) -> Option<Option<u32>> {
    let word = |name: &str| trial.point.get(name).map(String::as_str);
    let every = word("sync_every").and_then(|word| word.parse().ok()).filter(|every| *every > 0);
    every.map(Some).or_else(|| (word("dsync") == Some("true")).then_some(None))
}

/// Measured flushes and forced writes of 4 KiB at queue depth 1, over all repetitions.
fn flush_points(run: &Run) -> Vec<FlushPoint> {
    let mut points: BTreeMap<Option<u32>, FitTimes> = BTreeMap::new();
    let alone = Some((Share::NONE, Bytes(4096), 1, 1));
    for trial in run.trials.iter().filter(|trial| counts(trial) && job(trial) == alone) {
        let Some(writes) = flushes_of(trial) else { continue };
        let class = if writes.is_some() { OpClass::Sync } else { OpClass::Write };
        let total = trial.result.recording.total(Some(class));
        let times = points.entry(writes).or_default();
        times.add(total.due.ops, total.due.latency_sum, &total.latency);
    }
    points.into_iter().map(|(writes, times)| FlushPoint { writes, times }).collect()
}

/// Whether a trial is a complete job of the fit.
fn counts(trial: &TrialRecord) -> bool {
    let known = trial.point.keys().all(|name| KNOWN.contains(&name.as_str()));
    let rate = trial.point.get("rate").is_none_or(|word| word.parse::<Rate>().is_ok());
    let word = |name: &str, default| trial.point.get(name).map_or(default, String::as_str);
    // Of open loops, only those with Poisson arrivals are supported.
    let spacing = if trial.point.contains_key("rate") { "poisson" } else { "closed" };
    let alike = word("arrivals", "closed") == spacing && word("pattern", "random") == "random";
    let whole = trial.outcome == TrialOutcome::Complete && trial.result.recording.errors() == 0;
    trial.engine == "block" && known && rate && alike && whole && job(trial).is_some()
}

fn job(trial: &TrialRecord) -> Option<(Share, Bytes, u32, u32)> {
    let word = |name: &str| trial.point.get(name).map(String::as_str);
    let share = word("read_share").unwrap_or("100%").parse().ok()?;
    let size = word("block_size").unwrap_or("4KiB").parse().ok()?;
    let number = |name: &str| word(name).unwrap_or("1").parse::<u32>().ok();
    Some((share, size, number("queue_depth")?, number("clients")?))
}

/// Name, title and source of the profile of a run.
pub fn naming(name: &str, run: &Run) -> Naming {
    let stack = run.header.stacks.first();
    let facts = stack.and_then(|stack| stack.storage.as_ref());
    let named = |facts: &observe::StorageFacts| match facts.device_model.as_str() {
        "unknown" | "" => facts.device.clone(),
        model => format!("{model} ({})", facts.device),
    };
    let device = facts.map(named).or_else(|| stack.map(|stack| stack.device.clone()));
    let device = device.unwrap_or_default();
    let plain = |text: &str| text.replace(|one: char| one.is_control() || "\"\\".contains(one), "");
    let size = run.study.stack.first().map_or(Bytes::mib(1024), |stack| stack.size());
    Naming {
        name: name.to_owned(),
        title: plain(&format!(
            "{device}, {} on {}",
            if device.starts_with("model:") { "simulated" } else { "measured" },
            run.header.started
        )),
        capacity: size,
        source: plain(&format!("crosspoint device fit, {}, run {}", run.header.started, run.name)),
    }
}

/// Absolute errors of some jobs.
#[derive(Clone, Copy)]
struct ErrorSummary {
    average: f64,
    worst: f64,
    count: usize,
}

impl ErrorSummary {
    fn of(residuals: &[Residual], metric: &str, categories: &[FitCategory]) -> Self {
        let wanted = residuals
            .iter()
            .filter(|one| categories.contains(&one.category) && one.metric == metric);
        Self::over(wanted.map(|one| one.error().abs()))
    }

    fn over(errors: impl Iterator<Item = f64>) -> Self {
        let errors: Vec<f64> = errors.collect();
        let average = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
        let count = errors.len();
        Self { average, worst: errors.into_iter().fold(0.0, f64::max), count }
    }
}

/// Expected difference in mean latency and p99 of held-out jobs between two measurements with the same number
/// of repetitions: the lower bound of any model's error. Estimated from odd against even repetitions; half as
/// many each differ by about 1.4 times as much.
fn against_itself(run: &Run) -> [ErrorSummary; 2] {
    let job = |p: &FitPoint| (p.read_share, p.block_size, p.queue_depth, p.threads, p.rate);
    // Both halves must contain the same jobs.
    let kept_up: Vec<_> = fit::kept_up(&points(run, |_| true)).into_iter().map(job).collect();
    let half = |wanted| {
        let known = |p: &FitPoint| p.held_out() && p.ops() > 0 && kept_up.contains(&job(p));
        points(run, wanted).into_iter().filter(known).collect::<Vec<FitPoint>>()
    };
    let odd = half(|number| number % 2 == 1);
    let same = |one: &FitPoint, other: &FitPoint| job(one) == job(other);
    let halves: Vec<(FitPoint, FitPoint)> = half(|number| number % 2 == 0)
        .into_iter()
        .filter_map(|one| odd.iter().find(|other| same(&one, other)).cloned().map(|o| (one, o)))
        .collect();
    let p99 = |point: &FitPoint| point.latency().value_at_quantile(0.99) as f64;
    let apart = |of: &dyn Fn(&FitPoint) -> f64| {
        let pairs = halves.iter().map(|(one, other)| (of(one) / of(other) - 1.0).abs());
        ErrorSummary::over(pairs.map(|apart| apart / std::f64::consts::SQRT_2))
    };
    [apart(&FitPoint::mean), apart(&p99)]
}

fn print_residuals(residuals: &[Residual]) {
    out!("{:<34} {:<5} {:>10} {:>10} {:>8}", "job", "", "measured", "fitted", "error");
    for one in residuals {
        let show = |value: f64| match one.metric {
            "IOPS" => human_count(value),
            _ => Nanos(value as u64).to_string(),
        };
        out!(
            "{:<34} {:<5} {:>10} {:>10} {:>+7.1} %{}",
            one.job,
            one.metric,
            show(one.measured),
            show(one.predicted),
            one.error() * 100.0,
            if one.category.held_out() { "  held out" } else { "" }
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a device that may only be read gets trials that claim to flush.
    #[test]
    fn the_study_says_where_its_flushes_begin() {
        let text = runner::load_study(STUDY).expect("built in").text;
        let (plain, flushes) = text.split_once(FLUSHES).expect("the comment");
        assert!(!plain.contains("sync_every") && !plain.contains("dsync"));
        assert!(flushes.contains("sync_every") && flushes.contains("dsync"));
    }
}
