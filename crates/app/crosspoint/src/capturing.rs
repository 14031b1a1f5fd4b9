//! `crosspoint capture`: records a running database; shows where its time went.
//!
//! Invariant: the recording is on disk before anything about it is printed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use capture::{Breakdown, Header, Predictor, Recording, Timeline};
use runner::RunnerError;
use tracer::{Progress, RecordOptions, TracerError};
use units::{Nanos, Seed};

use crate::cli::{CaptureAction, CaptureArguments};
use crate::exit::{self, ExitCode};
use crate::progress::Counted;
use crate::result_file::Output;
use crate::running::Running;
use crate::show::Failure;
use crate::{capture_study, capture_view};

/// Shortest recording.
const LENGTH_MIN: Nanos = Nanos(200_000_000);
/// Uncompressed recordings up to this size are shown when they end.
const SHOWN_AT_ONCE: usize = 64 << 20;

pub fn run(arguments: &CaptureArguments) -> Result<ExitCode, Failure> {
    match &arguments.action {
        None => record(arguments),
        Some(CaptureAction::Show { recording, json }) => {
            show(recording, &read(recording)?, *json)?;
            Ok(exit::OK)
        }
        Some(CaptureAction::Study { recording, on, output, force }) => {
            let (header, timeline) = timeline(recording, &read(recording)?)?;
            for model in on {
                runner::profile(model.strip_prefix("model:").unwrap_or(model))?;
            }
            let text = capture_study::text(&header, &Breakdown::new(&header, &timeline), on);
            let text = text.ok_or_else(|| {
                let reason = "nothing was read from or written to a drive".to_owned();
                Failure::Capture(
                    reason,
                    "record a longer or a busier time: crosspoint capture --for 60s",
                )
            })?;
            study::parse(&text, engines::list()).map_err(RunnerError::from)?;
            let output = output.as_deref().unwrap_or(Path::new("-"));
            Output::named(output, *force).with_inputs(&[recording]).write(text.as_bytes())?;
            Ok(exit::OK)
        }
        Some(CaptureAction::Predict { recording, on, cores, condition, seed, json }) => {
            let models = Models { on, cores: *cores, condition: *condition, seed: Seed(*seed) };
            predict(recording, &models, *json)
        }
    }
}

/// Drives and host of a prediction.
struct Models<'a> {
    on: &'a [String],
    cores: Option<u32>,
    condition: study::Condition,
    seed: Seed,
}

fn predict(path: &Path, models: &Models<'_>, json: bool) -> Result<ExitCode, Failure> {
    let named = models.on.iter().map(|name| name.strip_prefix("model:").unwrap_or(name));
    let profiles = named.map(runner::profile).collect::<Result<Vec<_>, _>>()?;
    let (header, timeline) = timeline(path, &read(path)?)?;
    let predictor = Predictor::new(&header, &timeline, models.cores);
    let mut rows = Vec::new();
    if predictor.is_faithful() {
        rows.push(("(recorded drive)".to_owned(), None));
        for profile in &profiles {
            let condition = runner::condition_of(models.condition);
            let make = || device::Model::new(profile, condition, models.seed);
            rows.push((profile.name.clone(), Some(predictor.on(profile.capacity.get(), make))));
        }
        rows.push(("infinitely fast".to_owned(), Some(predictor.on_ideal_drive())));
    }
    if json {
        out!("{:#}", capture_view::predictions(&header, &predictor, &rows));
    } else {
        out!("{}", capture_view::prediction_text(&header, &predictor, &rows));
    }
    Ok(if predictor.is_faithful() { exit::OK } else { exit::INCONCLUSIVE })
}

fn read(path: &Path) -> Result<Recording, Failure> {
    let bytes = std::fs::read(path).map_err(stack::StackError::io("read", path))?;
    Recording::parse(&bytes).map_err(|error| Failure::Recording(path.display().to_string(), error))
}

fn timeline(path: &Path, recording: &Recording) -> Result<(Header, Timeline), Failure> {
    let events = recording.events();
    let events = events.map_err(|error| Failure::Recording(path.display().to_string(), error))?;
    Ok((recording.header.clone(), Timeline::new(&recording.header, &events)))
}

fn show(path: &Path, recording: &Recording, json: bool) -> Result<(), Failure> {
    let (header, timeline) = timeline(path, recording)?;
    let breakdown = Breakdown::new(&header, &timeline);
    let predictor = Predictor::new(&header, &timeline, None);
    let shown = (&header, &breakdown, &predictor);
    if json {
        out!("{:#}", capture_view::document(shown, &timeline.paths));
    } else {
        out!("{}", capture_view::text(shown, &timeline.paths));
    }
    Ok(())
}

/// The processes that the options name.
fn processes(arguments: &CaptureArguments) -> Result<Vec<u32>, Failure> {
    let mut pids = arguments.pid.clone();
    let mut sought = String::new();
    if let Some(name) = &arguments.service {
        pids.extend(tracer::named(name));
        sought = format!("unit or process {name}");
    }
    if let Some(device) = &arguments.device {
        pids.extend(tracer::with_files_on(device));
        sought = device.display().to_string();
    }
    pids.retain(|pid| *pid != std::process::id());
    pids.sort_unstable();
    pids.dedup();
    if pids.is_empty() {
        let next = "name a running process: --pid $(pidof mariadbd), or --service mariadb";
        return Err(Failure::Capture(format!("no process of {sought} is running"), next));
    }
    Ok(pids)
}

fn record(arguments: &CaptureArguments) -> Result<ExitCode, Failure> {
    if arguments.pid.is_empty() && arguments.service.is_none() && arguments.device.is_none() {
        say!("error: no process is named\n  help: --pid $(pidof mariadbd), or --service mariadb");
        return Ok(exit::USAGE);
    }
    if arguments.time < LENGTH_MIN {
        say!("error: --for {}: at least {LENGTH_MIN}\n  help: --for 60s", arguments.time);
        return Ok(exit::USAGE);
    }
    if arguments.max_size.get() > capture::SIZE_MAX / 2 {
        let most = units::Bytes(capture::SIZE_MAX / 2);
        say!("error: --max-size {}: at most {most}\n  help: --max-size {most}", arguments.max_size);
        return Ok(exit::USAGE);
    }
    let pids = processes(arguments)?;
    let named = arguments.output.clone();
    let path = named.unwrap_or_else(|| runner::with_time("capture").with_extension("cpcap"));
    let output = Output::named(&path, arguments.force);
    output.check_policy()?;
    let wanted = RecordOptions {
        pids,
        time: Duration::from_nanos(arguments.time.get()),
        overhead_max: arguments.max_overhead.fraction(),
        bytes_max: arguments.max_size.get() as usize,
        at_once: false,
    };
    let running = Running::start_uncalibrated()?;
    let _guard = crate::guard::start()?;
    // Preparing takes some seconds, which tell nothing about the time left.
    let mut counted = None;
    let mut tell = |progress| match progress {
        Progress::Preparing => say!("finding clients, then measuring what recording costs"),
        Progress::Recording(share) => counted
            .get_or_insert_with(|| Counted::new("percent recorded"))
            .tell((share.min(1.0) * 100.0) as usize, 100),
    };
    let recorded = tracer::record(&wanted, running.parts(), &mut tell);
    drop(counted);
    running.undo();
    if matches!(recorded, Err(TracerError::Interrupted)) {
        say!("interrupted before recording began; nothing was written");
        return Ok(exit::INTERRUPTED);
    }
    let recording = recorded.map_err(|error| failure(&error))?;
    let bytes =
        recording.to_bytes().map_err(|error| Failure::Output(path.display().to_string(), error))?;
    let path = output.write(&bytes).map(|()| path.clone()).or_else(|error| {
        // A minute of a production database cannot be repeated.
        let place = std::env::temp_dir().join(runner::with_time("capture").with_extension("cpcap"));
        Output::named(&place, false).write(&bytes).map_err(|_| error)?;
        say!(
            "warning: {} cannot be written; the recording is in {}",
            path.display(),
            place.display()
        );
        Ok::<PathBuf, Failure>(place)
    })?;
    if path == Path::new("-") {
        // Standard output is the recording.
    } else if recording.size() <= SHOWN_AT_ONCE {
        show(&path, &recording, false)?;
    } else {
        // Analysis takes twenty times the memory; it can be done on another machine.
        out!("large recording; see it with: crosspoint capture show {}", path.display());
    }
    let length = recording.header.length();
    if length.as_secs_f64() < 0.9 * arguments.time.as_secs_f64() && !running.stopping() {
        say!("note: ended after {length}: the processes have ended, or --max-size was reached");
    }
    say!("recording: {} ({})", path.display(), units::Bytes(bytes.len() as u64));
    Ok(if running.stopping() { exit::INTERRUPTED } else { exit::OK })
}

fn failure(error: &TracerError) -> Failure {
    let next = match error {
        TracerError::Stack(stack::StackError::Io { source, .. })
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            "run it as root: sudo crosspoint capture ..."
        }
        TracerError::TooExpensive { .. } => "allow more: --max-overhead 40%",
        TracerError::NoProcess(_) | TracerError::Ended => "pidof mariadbd",
        TracerError::Stack(_) | TracerError::Read(_) => "crosspoint doctor",
        TracerError::Interrupted => "run it again",
    };
    Failure::Capture(error.to_string(), next)
}
