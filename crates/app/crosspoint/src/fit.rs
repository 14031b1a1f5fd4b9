//! `crosspoint device fit`: a device measured, a profile fitted to it, and the profile tested.
//!
//! Invariants: the device passes the same guard as in any study; without a confirmation it is only read.
//! What it is not: the fit, which is `sim`'s.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use archive::{Run, TrialRecord};
use device::Profile;
use runner::Ending;
use serde_json::json;
use sim::{FitPoint, Naming, Residual};
use units::{Bytes, Nanos, Seed, Share, human_count};

use crate::cli::FitArguments;
use crate::exit::{self, ExitCode};
use crate::fit_picture::picture;
use crate::progress;
use crate::result_file::{self, There};
use crate::running::Running;
use crate::show::Failure;

/// The study that is measured.
const STUDY: &str = "device-fit";

/// Does what was asked.
pub fn run(arguments: &FitArguments) -> Result<ExitCode, Failure> {
    let folder = match (&arguments.from, &arguments.target) {
        (Some(run), _) => run.clone(),
        (None, target) => match measure(arguments, target.as_deref().unwrap_or(Path::new(".")))? {
            (folder, Ending::Complete) => folder,
            (_, Ending::Interrupted) => return Ok(exit::INTERRUPTED),
            (_, Ending::Failed) => return Ok(exit::TARGET_FAILED),
        },
    };
    let run = Run::read(&folder)?;
    let points = points(&run, |_| true);
    let naming = naming(arguments, &run);
    let refuse =
        |reason: String| runner::RunnerError::Profile { name: naming.name.clone(), reason };
    let text = sim::fit(&points, &naming).map_err(|error| refuse(error.to_string()))?;
    let profile = Profile::parse(&text).map_err(|error| refuse(error.to_string()))?;
    let residuals = sim::residuals(&profile, &points, Seed(1));
    let path = arguments.output.clone().unwrap_or_else(|| format!("{}.toml", naming.name).into());
    let there = There::or_any(arguments.force);
    result_file::write(&text, &path, there)?;
    let drawn = path.with_extension("svg");
    result_file::write(&picture(&naming.title, &residuals), &drawn, there)?;
    let (mean, p99) = (Off::of(&residuals, "mean"), Off::of(&residuals, "p99"));
    let [own_mean, own_p99] = against_itself(&run);
    if arguments.json {
        let rows = residuals.iter().map(|one| {
            json!({"job": one.job, "metric": one.metric, "held_out": one.held_out,
                   "measured": one.measured, "predicted": one.predicted, "error": one.error()})
        });
        let rows: Vec<_> = rows.collect();
        out!(
            "{:#}",
            json!({"schema": 1, "profile": path, "picture": drawn, "run": folder,
                            "residuals": rows,
                            "held_out_mean_latency_error": mean.average,
                            "held_out_mean_latency_error_worst": mean.worst,
                            "held_out_p99_error": p99.average,
                            "held_out_p99_error_worst": p99.worst,
                            "device_against_itself_mean_latency": own_mean.average,
                            "device_against_itself_mean_latency_worst": own_mean.worst,
                            "device_against_itself_p99": own_p99.average,
                            "device_against_itself_p99_worst": own_p99.worst})
        );
        return Ok(exit::OK);
    }
    print_residuals(&residuals);
    let text =
        |off: &Off| format!("{:.1} % (worst {:.1} %)", off.average * 100.0, off.worst * 100.0);
    out!("held out, on average off by: mean latency {}, p99 {}", text(&mean), text(&p99));
    let (mean, p99) = (text(&own_mean), text(&own_p99));
    out!("the device against itself (every other repetition): mean latency {mean}, p99 {p99}");
    out!("profile: {}", path.display());
    out!("picture: {}", drawn.display());
    out!("run:     {}", folder.display());
    Ok(exit::OK)
}

/// Runs the study on the target.
fn measure(arguments: &FitArguments, target: &Path) -> Result<(PathBuf, Ending), Failure> {
    let writable = target.is_dir() || !arguments.i_will_lose_data.is_empty();
    let quoted = |path: &Path| format!("{:?}", path.display().to_string());
    let mut set = Vec::new();
    if target.is_dir() {
        set.push(format!("stack.target.directory={}", quoted(target)));
    } else {
        set.push(format!("stack.target.device={}", quoted(target)));
        set.push(format!("stack.target.allow_write={writable}"));
    }
    if let Some(size) = arguments.size {
        set.push(format!("stack.target.size={}", size.exact()));
    }
    let mut text = runner::load_study(STUDY)?.text;
    if !writable {
        say!("without --i-will-lose-data the device is only read: writes are taken as reads");
        text = reads_only(&text);
    }
    let refuse = |error: study::StudyError| {
        let named = runner::StudyText { name: STUDY.into(), text: text.clone() };
        Failure::Runner(Box::new(error.into()), Some(named))
    };
    let text = study::apply_overrides(&text, &set).map_err(refuse)?;
    let running = Running::start()?;
    let options = running.options(arguments.out.clone(), &arguments.i_will_lose_data);
    let mut watcher = progress::watcher(arguments.progress);
    let end = runner::execute(&text, &options, watcher.as_mut());
    drop(watcher);
    running.undo();
    let end = end?;
    Ok((end.path, end.ending))
}

/// The study without its jobs that write.
fn reads_only(text: &str) -> String {
    let Ok(mut study) = study::parse(text) else { return text.to_owned() };
    for block in study.experiment.iter_mut().filter_map(|experiment| experiment.block.as_mut()) {
        block.read_share = study::Many::one(Share::ALL);
    }
    study::resolved_text(&study)
}

/// What was measured, the repetitions that are `wanted` together.
fn points(run: &Run, wanted: fn(u32) -> bool) -> Vec<FitPoint> {
    let mut points: BTreeMap<(u32, u64, u32), FitPoint> = BTreeMap::new();
    for trial in run.trials.iter().filter(|trial| wanted(trial.repetition)) {
        let Some((read_share, block_size, queue_depth)) = job(trial) else { continue };
        let total = trial.result.recording.total(None);
        let key =
            (10_000 - (read_share.fraction() * 10_000.0) as u32, block_size.get(), queue_depth);
        let point = points.entry(key).or_insert_with(|| FitPoint {
            read_share,
            block_size,
            queue_depth,
            ops: 0,
            seconds: 0.0,
            latency_sum: Nanos::ZERO,
            latency: stats::new_histogram(),
        });
        point.ops += total.counts.ops;
        point.seconds += trial.result.recording.seconds();
        point.latency_sum += total.counts.latency_sum;
        let _ = point.latency.add(&total.latency);
    }
    points.into_values().collect()
}

fn job(trial: &TrialRecord) -> Option<(Share, Bytes, u32)> {
    let word = |name: &str| trial.point.get(name).map(String::as_str);
    let share = word("read_share").unwrap_or("100%").parse().ok()?;
    let size = word("block_size").unwrap_or("4KiB").parse().ok()?;
    Some((share, size, word("queue_depth").unwrap_or("1").parse().ok()?))
}

fn naming(arguments: &FitArguments, run: &Run) -> Naming {
    let stack = run.header.stacks.first();
    let facts = stack.and_then(|stack| stack.storage.as_ref());
    let named = |facts: &observe::StorageFacts| match facts.device_model.as_str() {
        "unknown" | "" => facts.device.clone(),
        model => format!("{model} ({})", facts.device),
    };
    let device = facts.map(named).or_else(|| stack.map(|stack| stack.device.clone()));
    let device = device.unwrap_or_default();
    let plain = |text: &str| text.replace(['"', '\\'], "");
    let size = run.study.stack.first().map_or(Bytes::mib(1024), |stack| stack.size());
    Naming {
        name: arguments.name.clone(),
        title: plain(&format!("{device}, measured on {}", run.header.started)),
        capacity: size,
        source: plain(&format!("crosspoint device fit, {}, run {}", run.header.started, run.name)),
    }
}

/// Absolute errors of what was held out.
struct Off {
    average: f64,
    worst: f64,
}

impl Off {
    fn of(residuals: &[Residual], metric: &str) -> Self {
        let wanted = residuals.iter().filter(|one| one.held_out && one.metric == metric);
        Self::over(wanted.map(|one| one.error().abs()))
    }

    fn over(errors: impl Iterator<Item = f64>) -> Self {
        let errors: Vec<f64> = errors.collect();
        let average = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
        Self { average, worst: errors.into_iter().fold(0.0, f64::max) }
    }
}

/// How far the mean latency and the p99 of the held-out jobs lie apart between the odd and the even
/// repetitions: what no model of this device can be expected to stay below.
fn against_itself(run: &Run) -> [Off; 2] {
    let half = |wanted| points(run, wanted).into_iter().filter(|p| p.held_out() && p.ops > 0);
    let halves: Vec<(FitPoint, FitPoint)> =
        half(|number| number % 2 == 0).zip(half(|number| number % 2 == 1)).collect();
    let p99 = |point: &FitPoint| point.latency.value_at_quantile(0.99) as f64;
    let apart = |of: &dyn Fn(&FitPoint) -> f64| {
        Off::over(halves.iter().map(|(one, other)| (of(one) / of(other) - 1.0).abs()))
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
            if one.held_out { "  held out" } else { "" }
        );
    }
}
