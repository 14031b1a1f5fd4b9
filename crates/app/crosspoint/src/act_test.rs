//! `crosspoint act`: runs a configuration file of Aerospike ACT, judges it, and searches for the highest
//! rating.
//!
//! Invariants: devices pass the same guard as in any study; logs and verdicts are computed from the run
//! folder.

use std::cell::{Cell, RefCell};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use act::Config;
use analysis::ActTest;
use archive::Run;
use observe::BlockDevice;
use runner::{Ending, RunnerError, StudyText};
use serde_json::json;
use study::StudyError;
use toml::{Table, Value};
use units::{Bytes, Nanos};

use crate::cli::{ActArguments, PhaseKind};
use crate::exit::{self, ExitCode};
use crate::progress;
use crate::result_file::{self, Output};
use crate::running::Running;
use crate::show::Failure;

/// The highest rating that a search tries.
const RATING_MAX: u32 = 10_000;

pub fn run(arguments: &ActArguments) -> Result<ExitCode, Failure> {
    let test = Test::read(arguments)?;
    test.check_outputs()?;
    let running = Running::start()?;
    let result = if arguments.search {
        test.search(&running)
    } else {
        let phases: &[&str] = match arguments.phase {
            PhaseKind::Independent => &["independent"],
            PhaseKind::Act => &["act"],
            PhaseKind::Both => &["independent", "act"],
        };
        let rating = arguments.rating.map(|rating| vec![rating]);
        test.once(&running, &test.out, rating.as_deref(), phases).map(|end| end.code())
    };
    running.undo();
    result
}

/// A configuration and where it is to be run.
struct Test<'a> {
    arguments: &'a ActArguments,
    text: String,
    config: Config,
    stack: Table,
    out: PathBuf,
    /// The devices were filled by an earlier run of a search.
    prepared: Cell<bool>,
    /// Run folders so far.
    runs: RefCell<Vec<PathBuf>>,
    /// Contents of `--log` so far, one test after another.
    logs: RefCell<String>,
}

/// How a run of tests ended.
struct End {
    passed: bool,
    ending: Ending,
}

impl End {
    fn code(&self) -> ExitCode {
        match self.ending {
            Ending::Interrupted => exit::INTERRUPTED,
            Ending::Complete | Ending::Failed if self.passed => exit::OK,
            Ending::Complete | Ending::Failed => exit::OBJECTIVE_MISSED,
        }
    }
}

impl<'a> Test<'a> {
    fn read(arguments: &'a ActArguments) -> Result<Self, Failure> {
        let path = &arguments.file;
        let unreadable = |source| RunnerError::StudyFile { path: path.clone(), source };
        let text = runner::read_text(path).map_err(unreadable)?;
        let named = || StudyText { name: path.display().to_string(), text: text.clone() };
        let refuse = |message: String, span: Option<std::ops::Range<usize>>| {
            let help = Some("correct the configuration file".into());
            let error = RunnerError::Study(StudyError { message, span, help });
            Failure::Runner(Box::new(error), Some(named()))
        };
        let index =
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("act_index"));
        if index
            || text
                .lines()
                .any(|line| line.trim_start_matches(['#', ' ']).starts_with("cache-threads"))
        {
            let message = "this is a configuration of act_index; only those of act_storage are run";
            return Err(refuse(message.into(), None));
        }
        let config = Config::parse(&text)
            .map_err(|error| refuse(error.message.clone(), line_span(&text, error.line)))?;
        let (text, config) =
            on_devices(text.clone(), config, arguments).map_err(|message| refuse(message, None))?;
        let stack = stack_table(&config, arguments).map_err(|message| refuse(message, None))?;
        let out = arguments.out.clone().unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            PathBuf::from(format!("runs/act-{}", now.map_or(0, |now| now.as_secs())))
        });
        let (prepared, runs, logs) = (Cell::new(false), RefCell::default(), RefCell::default());
        Ok(Self { arguments, text, config, stack, out, prepared, runs, logs })
    }

    /// A study of the test at `ratings` in `phases`.
    fn study(&self, ratings: Option<&[u32]>, phases: &[&str], duration: Option<Nanos>) -> String {
        let fills = (self.arguments.prep && !self.prepared.replace(true)).then_some(2);
        let mut job = json!({
            "engine": "block", "workload": "act", "config": self.text, "phase": phases,
            "slice": self.arguments.slice.exact(), "fills": fills, "rating": ratings,
            "service_threads": self.arguments.service_threads,
            "test_duration": duration.map(|duration| duration.exact()),
        });
        if let Some(job) = job.as_object_mut() {
            job.retain(|_, value| !value.is_null());
        }
        let study = json!({
            "schema": 2, "name": "act", "question": "How many transactions does the drive take?",
            "stack": [self.stack],
            "experiment": [{"name": "act", "title": "ACT storage test", "job": job}],
        });
        toml::to_string(&study).unwrap_or_default()
    }

    fn once(
        &self,
        running: &Running,
        out: &Path,
        ratings: Option<&[u32]>,
        phases: &[&str],
    ) -> Result<End, Failure> {
        self.execute(running, out, &self.study(ratings, phases, self.arguments.duration))
    }

    /// Runs a study of tests, writes their logs, prints tables and verdicts.
    fn execute(&self, running: &Running, out: &Path, study: &str) -> Result<End, Failure> {
        let options = running.options(Some(out.to_owned()), &self.arguments.i_will_lose_data);
        let mut watcher = progress::watcher(self.arguments.progress);
        let end = runner::execute(study, &options, watcher.as_mut());
        drop(watcher);
        let end = end?;
        let run = Run::read(&end.path, engines::list())?;
        self.runs.borrow_mut().push(end.path.clone());
        let tests = analysis::act_tests(&run);
        let mut documents = Vec::new();
        for test in &tests {
            let log = end.path.join(format!("{}.act.log", test.trial.slug));
            Output::own(&log).write(test.log().as_bytes())?;
            self.copy_log(test)?;
            documents.push(document(test, &log));
            if !self.arguments.json {
                out!("{}\n{}", test.table(), test.sentence());
                out!("log:    {}", log.display());
            }
        }
        let passed = !tests.is_empty() && tests.iter().all(|test| test.verdict.passed);
        drop(tests);
        let page = end.path.join("report.html");
        result_file::write_own_page(&[run], &page)?;
        if self.arguments.json {
            out!("{:#}", json!({ "schema": 1, "tests": documents }));
        } else {
            out!("report: {}", page.display());
        }
        Ok(End { passed, ending: end.ending })
    }

    /// Refuses outputs that could not be written, before a test is run.
    fn check_outputs(&self) -> Result<(), Failure> {
        let page = self.out.join("report.html");
        if self.arguments.search && page.symlink_metadata().is_ok() {
            Output::own(&page).check()?;
        }
        if let Some(log) = &self.arguments.log {
            let inputs = [self.arguments.file.as_path()];
            Output::named(log, self.arguments.force).with_inputs(&inputs).check_policy()?;
        }
        Ok(())
    }

    /// One report of all runs of a search.
    fn write_joint_report(&self) -> Result<(), Failure> {
        let runs: Result<Vec<Run>, _> =
            self.runs.borrow().iter().map(|run| Run::read(run, engines::list())).collect();
        let page = self.out.join("report.html");
        result_file::write_own_page(&runs?, &page)?;
        out!("report of all: {}", page.display());
        Ok(())
    }

    fn copy_log(&self, test: &ActTest<'_>) -> Result<(), Failure> {
        match &self.arguments.log {
            None => Ok(()),
            Some(path) if path.as_os_str() == "-" => {
                out!("{}", test.log());
                Ok(())
            }
            Some(path) => {
                let mut logs = self.logs.borrow_mut();
                // Only the first write may be refused; later ones replace our own file.
                let force = self.arguments.force || !logs.is_empty();
                logs.push_str(&test.log());
                let inputs = [self.arguments.file.as_path()];
                let output = Output::named(path, force).with_inputs(&inputs);
                Ok(output.write(logs.as_bytes())?)
            }
        }
    }

    /// Finds the highest rating that passes: doubles until one fails, then bisects, with idle periods between
    /// tests.
    fn search(&self, running: &Running) -> Result<ExitCode, Failure> {
        let phase = if self.arguments.phase == PhaseKind::Act { "act" } else { "independent" };
        let start = self.arguments.rating.or_else(|| self.config.rating()).unwrap_or(1);
        let mut next = start.clamp(1, RATING_MAX);
        let (mut passes, mut fails): (u32, Option<u32>) = (0, None);
        let mut first = true;
        while fails.is_none_or(|fails| passes + 1 < fails) && passes < RATING_MAX {
            if !std::mem::take(&mut first) && !rest(running, self.arguments.rest) {
                return Ok(exit::INTERRUPTED);
            }
            let out = self.out.join(format!("rating-{next:05}"));
            let end = self.once(running, &out, Some(&[next]), &[phase])?;
            if end.ending == Ending::Interrupted {
                return Ok(exit::INTERRUPTED);
            }
            if end.passed {
                passes = next;
            } else {
                fails = Some(next);
            }
            next = match fails {
                None => (next * 2).min(RATING_MAX),
                Some(fails) => u32::midpoint(passes, fails).max(1),
            };
            if fails == Some(1) {
                break;
            }
        }
        let from_file = Nanos::from_secs(u64::from(self.config.test_duration_sec));
        let tried = self.arguments.duration.unwrap_or(from_file);
        let short = if tried < self.arguments.slice { ", shorter than one slice" } else { "" };
        out!(
            "highest rating that passes: {passes}x ({phase} requests; each rating tried once, for \
             {tried}{short})"
        );
        self.write_joint_report()?;
        if passes == 0 {
            return Ok(exit::OBJECTIVE_MISSED);
        }
        let Some(sustain) = self.arguments.sustain else { return Ok(exit::OK) };
        if !rest(running, self.arguments.rest) {
            return Ok(exit::INTERRUPTED);
        }
        let study = self.study(Some(&[passes]), &[phase], Some(sustain));
        let end = self.execute(running, &self.out.join("sustained"), &study)?;
        let word = if end.passed { "passes" } else { "does NOT pass" };
        out!("sustained for {sustain} at {passes}x: {word}");
        Ok(end.code())
    }
}

/// Byte range of line `number` (from 1) of the text.
fn line_span(text: &str, number: usize) -> Option<std::ops::Range<usize>> {
    let mut start = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if index + 1 == number {
            return Some(start..start + line.trim_end().len());
        }
        start += line.len();
    }
    None
}

/// The configuration for the devices of `--device`; ratings are per device, so the number must match.
fn on_devices(
    text: String,
    config: Config,
    arguments: &ActArguments,
) -> Result<(String, Config), String> {
    let Some(device) = &arguments.device else { return Ok((text, config)) };
    let (given, named) = (device.split(',').count(), config.device_names.len());
    if given > 1 && device.contains("model:") {
        return Err(
            "--device takes one model; several drives are a profile of their own, with [raid] \
                    level 0: crosspoint device show raid5-3x-s3520 --toml prints one to start from"
                .into(),
        );
    }
    if given == named {
        return Ok((text, config));
    }
    if arguments.rating.is_none() && !arguments.search {
        return Err(format!(
            "the file's rates are for {named} devices, and --device names {given}: name as many, or say \
             the load of each with --rating"
        ));
    }
    // With a rating only the number of device names matters.
    let names: Vec<String> = (1..=given).map(|number| format!("device-{number}")).collect();
    let line = |line: &str| match line.trim_start().starts_with("device-names") {
        true => format!("device-names: {}", names.join(",")),
        false => line.to_owned(),
    };
    let text: String = text.lines().map(|one| line(one) + "\n").collect();
    let config = Config::parse(&text).map_err(|error| error.to_string())?;
    Ok((text, config))
}

/// The stack that the test runs on.
fn stack_table(config: &Config, arguments: &ActArguments) -> Result<Table, String> {
    let device = arguments.device.clone().unwrap_or_else(|| config.device_names.join(","));
    let mut stack = Table::new();
    let mut put = |key: &str, value: &str| {
        stack.insert(key.to_owned(), Value::String(value.to_owned()));
    };
    put("name", "drive");
    put("title", &device);
    if device.starts_with("model:") {
        put("device", &device);
        put("size", &Bytes(1 << 40).exact());
    } else if config.file_size_mbytes > 0 && arguments.device.is_none() {
        let path = Path::new(&config.device_names[0]);
        if config.device_names.len() > 1 {
            return Err("file-size-mbytes with several files: one file is supported".into());
        }
        put("device", "file");
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        put("directory", &parent.unwrap_or(Path::new(".")).display().to_string());
        put("size", &Bytes(u64::from(config.file_size_mbytes) << 20).exact());
    } else {
        let mut smallest = u64::MAX;
        for path in device.split(',') {
            let found = std::fs::metadata(path).map_err(|error| format!("{path}: {error}"))?;
            let known = BlockDevice::under(Path::new(path)).and_then(|device| device.bytes());
            let size = known.filter(|_| found.file_type().is_block_device());
            smallest = smallest.min(size.ok_or_else(|| format!("{path} is no block device"))?);
        }
        put("device", &device);
        put("size", &Bytes(smallest / 4096 * 4096).exact());
        let writes =
            config.write_reqs_per_sec > 0 || arguments.rating.is_some() || arguments.search;
        stack.insert("allow_write".into(), Value::Boolean(writes));
    }
    Ok(stack)
}

/// Waits; returns whether to continue.
fn rest(running: &Running, time: Nanos) -> bool {
    if time > Nanos::ZERO {
        say!("resting for {time}");
    }
    let until = Instant::now() + Duration::from(time);
    while Instant::now() < until {
        if running.stopping() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(100).min(until - Instant::now()));
    }
    !running.stopping()
}

fn document(test: &ActTest<'_>, log: &Path) -> serde_json::Value {
    let slices = |slices: &[act::Slice]| -> Vec<serde_json::Value> {
        let slice = |slice: &act::Slice| {
            json!({
                "over_1_2_4_8_16_32_64": slice.over, "requests": slice.requests,
                "seconds": slice.length.as_secs_f64(),
            })
        };
        slices.iter().map(slice).collect()
    };
    json!({
        "title": test.title(), "point": test.trial.point, "source": test.trial.source,
        "passed": test.verdict.passed, "reasons": test.verdict.reasons,
        "limit": if test.verdict.passed { None } else { Some(test.limit()) },
        "reads_per_second": test.verdict.rate.0, "reads_per_second_asked": test.verdict.rate.1,
        "service_time": slices(&test.verdict.service),
        "response_time": slices(&test.verdict.response), "log": log.display().to_string(),
    })
}
