//! `run --workers`: the parts of a study in processes of their own, and the run that they make.
//!
//! Invariants: what measures this machine runs alone; a complete part is never run again, so the same command
//! continues after a kill.

use std::collections::{BTreeSet, VecDeque};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use archive::output::{check_new_directory, make_directory, new_file};
use archive::{Run, TrialOutcome};
use runner::{Ending, Part, RunEnd, StudyText};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::cli::RunArguments;
use crate::exit::{self, ExitCode};
use crate::progress::Counted;
use crate::result_file::Output;
use crate::running::Running;
use crate::show::Failure;

/// Polling interval for the end of a part.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// File of the study in the folder of the parts.
const STUDY: &str = "study.toml";

/// A part and where its run is.
struct Task {
    part: Part,
    folder: PathBuf,
}

/// What every part is started with.
#[derive(Clone, Copy)]
struct Shared<'a> {
    /// File of the study.
    study: &'a Path,
    /// Serial numbers of devices that may be overwritten.
    confirmed: &'a [String],
}

/// What a run folder has that a merge takes over.
const RUN_FILES: [&str; 7] =
    ["run.json", "study.toml", "study.original.toml", "sums.txt", "trials", "report.html", ".lock"];

fn ask_to_stop(child: &Child) {
    let number = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    // It has not been waited for, so the number is still its own.
    let _ = number.map(|number| rustix::process::kill_process(number, Signal::TERM));
}

/// The folder of a run of `study` that is to be created.
pub fn free_folder(arguments: &RunArguments, study: &str) -> Result<PathBuf, Failure> {
    let out = arguments.out.clone().unwrap_or_else(|| runner::default_folder(study));
    // Without a slash at its end, which would put the parts inside.
    let out: PathBuf = out.components().collect();
    if out.join("run.json").exists() {
        return Err(runner::RunnerError::OutputExists(out).into());
    }
    check_new_directory(&out).map_err(runner::RunnerError::from)?;
    if std::fs::read_dir(&out).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(archive::ArchiveError::Foreign(out).into());
    }
    Ok(out)
}

/// Runs a study by up to `workers` processes at once; returns the merged run, or the exit code if it is not
/// complete.
pub fn run(
    arguments: &RunArguments,
    text: &StudyText,
    workers: u8,
) -> Result<Result<RunEnd, ExitCode>, Failure> {
    let wrong =
        |error: study::StudyError| Failure::Runner(Box::new(error.into()), Some(text.clone()));
    let study = study::parse(&text.text, engines::list()).map_err(wrong)?;
    let (plan, _) = runner::possible(&study, study::plan(&study));
    let out = free_folder(arguments, &study.name)?;
    let mut place = out.clone().into_os_string();
    place.push(".parts");
    let place = PathBuf::from(place);
    let copy = place.join(STUDY);
    if place.exists() && !copy.exists() {
        return Err(archive::ArchiveError::Foreign(place).into());
    }
    make_directory(&place).map_err(runner::RunnerError::from)?;
    match std::fs::read_to_string(&copy) {
        Ok(earlier) if earlier != text.text => {
            return Err(runner::RunnerError::OtherStudy { path: place }.into());
        }
        Ok(_) => {}
        Err(_) => Output::own(&copy).write(text.text.as_bytes())?,
    }
    let parts = runner::parts(&study, &plan).into_iter();
    let tasks: Vec<Task> = parts
        .map(|part| Task { folder: place.join(format!("part-{:04}", part.trials[0])), part })
        .collect();
    let running = Running::start()?;
    let shared = Shared { study: &copy, confirmed: &arguments.i_will_lose_data };
    let ended = run_all(&tasks, shared, workers, &running);
    running.undo();
    if let Some(code) = ended? {
        say!(
            "partial: finished parts are kept; continue with the same command and --out {}",
            out.display()
        );
        return Ok(Err(code));
    }
    let folders: Vec<PathBuf> = tasks.iter().map(|task| task.folder.clone()).collect();
    runner::merge(&out, &folders)?;
    let end = end_of(&out)?;
    if tasks.iter().all(Task::has_only_a_run) {
        let removed = tasks.iter().try_for_each(Task::remove).and_then(|()| {
            std::fs::remove_file(&copy)?;
            std::fs::remove_dir(&place)
        });
        removed.map_err(|error| Failure::Output(place.display().to_string(), error))?;
    } else {
        say!("note: {} is kept, with what its trials left", place.display());
    }
    Ok(Ok(end))
}

/// Runs what is not complete; returns the exit code of a part that failed, or of an interruption.
fn run_all(
    tasks: &[Task],
    shared: Shared<'_>,
    workers: u8,
    running: &Running,
) -> Result<Option<ExitCode>, Failure> {
    let mut queue: VecDeque<&Task> = tasks.iter().filter(|task| !task.is_complete()).collect();
    let mut free: Vec<CpuSet> = shares(workers);
    let mut running_parts: Vec<(&Task, Child, CpuSet)> = Vec::new();
    let mut counted = Counted::new("parts");
    let (mut failed, mut asked) = (None, false);
    loop {
        counted.tell(tasks.len() - queue.len() - running_parts.len(), tasks.len());
        let stopped = running.stopping() || failed.is_some();
        if running.stopping() && !std::mem::replace(&mut asked, true) {
            running_parts.iter().for_each(|(_, child, _)| ask_to_stop(child));
        }
        let alone = running_parts.iter().any(|(task, ..)| task.part.exclusive);
        let next = queue.front().filter(|task| running_parts.is_empty() || !task.part.exclusive);
        if let Some(task) = next.copied().filter(|_| !stopped && !alone)
            && let Some(cpus) = free.pop()
        {
            queue.pop_front();
            let child = task.start(shared, &cpus)?;
            running_parts.push((task, child, cpus));
            continue;
        }
        if running_parts.is_empty() {
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
        let mut still = Vec::new();
        for (task, mut child, cpus) in running_parts {
            let status = child.try_wait().map_err(|error| task.failed(error))?;
            let Some(status) = status else {
                still.push((task, child, cpus));
                continue;
            };
            free.push(cpus);
            if !task.is_complete() {
                say!("{}", task.log_text().trim_end());
                let code = status.code().filter(|code| *code != 0).unwrap_or(1);
                failed = failed.or(Some(exit::of_number(code)));
            }
        }
        running_parts = still;
    }
    Ok(failed.or_else(|| running.stopping().then_some(exit::INTERRUPTED)))
}

/// The CPUs of each worker: each simulation needs one or two.
fn shares(workers: u8) -> Vec<CpuSet> {
    let all = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).collect();
    let each = (cpus.len() / usize::from(workers)).max(1);
    let share = |number: usize| {
        let mut set = CpuSet::new();
        (0..each).for_each(|cpu| set.set(cpus[(number * each + cpu) % cpus.len().max(1)]));
        set
    };
    if cpus.is_empty() {
        vec![all; usize::from(workers)]
    } else {
        (0..usize::from(workers)).map(share).collect()
    }
}

impl Task {
    /// Whether all its trials have ended.
    fn is_complete(&self) -> bool {
        let Ok(run) = Run::read(&self.folder, engines::list()) else { return false };
        let ended = run.trials.iter().filter(|trial| trial.outcome != TrialOutcome::Partial);
        let ended: BTreeSet<u32> = ended.map(|trial| trial.number).collect();
        self.part.trials.iter().all(|number| ended.contains(number))
    }

    /// Whether its folder has nothing that a merged run lacks, such as a kept database.
    fn has_only_a_run(&self) -> bool {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.into_iter().all(|entry| RUN_FILES.iter().any(|name| entry.file_name() == *name))
    }

    fn remove(&self) -> std::io::Result<()> {
        std::fs::remove_dir_all(&self.folder)?;
        match std::fs::remove_file(self.log()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn failed(&self, error: std::io::Error) -> Failure {
        Failure::Output(self.folder.display().to_string(), error)
    }

    fn log(&self) -> PathBuf {
        self.folder.with_extension("log")
    }

    fn log_text(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    fn start(
        &self,
        Shared { study, confirmed }: Shared<'_>,
        cpus: &CpuSet,
    ) -> Result<Child, Failure> {
        let failed = |error| self.failed(error);
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg("run").env(observe::CPUS_VARIABLE, observe::cpus().to_string());
        if self.folder.join("run.json").exists() {
            command.arg("--resume").arg(&self.folder);
        } else {
            // A kill has interrupted its creation.
            let _ = std::fs::remove_dir_all(&self.folder);
            let numbers: Vec<String> = self.part.trials.iter().map(u32::to_string).collect();
            command.arg(study).arg("--out").arg(&self.folder).arg("--only").arg(numbers.join(","));
        }
        confirmed.iter().for_each(|serial| _ = command.arg("--i-will-lose-data").arg(serial));
        let _ = std::fs::remove_file(self.log());
        let log = new_file(&self.log()).map_err(failed)?;
        command.args(["--progress", "none"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // A terminal's Ctrl-C is for this program, which asks them to stop.
        command.process_group(0);
        let own = (!self.part.exclusive).then_some(*cpus);
        // SAFETY: two system calls.
        unsafe {
            command.pre_exec(move || {
                own.as_ref().map_or(Ok(()), |own| sched_setaffinity(None, own))?;
                Ok(set_parent_process_death_signal(Some(Signal::TERM))?)
            });
        }
        command.spawn().map_err(failed)
    }
}

/// How a merged run ended.
pub fn end_of(out: &Path) -> Result<RunEnd, Failure> {
    let run = Run::read(out, engines::list())?;
    let failed = run.trials.iter().any(|trial| trial.outcome == archive::TrialOutcome::Failed);
    let ending = match (run.is_partial(), failed) {
        (true, _) => Ending::Interrupted,
        (false, true) => Ending::Failed,
        (false, false) => Ending::Complete,
    };
    let asks = run.study.experiment.iter().any(|one| !one.objectives.is_empty());
    Ok(RunEnd { path: out.to_owned(), ending, ran: run.trials.len() as u32, asks })
}
