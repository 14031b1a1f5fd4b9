//! How near real fio on attached disks comes to the model's own prediction: a table of docs/VALIDATION.md.
//!
//! The question is the way to the disk, not the profile: both sides have the same one. Invariant: a row
//! that the tool itself calls not reliable says so.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Two SATA drives, a disk drive, five cloud volumes, an NVMe drive, one behind a fabric, and one of 3D
/// XPoint.
const MODELS: [&str; 11] = [
    "intel-s3520",
    "samsung-860-qvo",
    "samsung-pm9a3",
    "hdd-7200",
    "aws-gp3",
    "gcp-pd-ssd",
    "aws-io2-bx",
    "azure-premium-ssd-v2",
    "gcp-hyperdisk-balanced",
    "p4500-over-nvmeof-rdma",
    "intel-p4800x",
];
/// Size of each disk.
const SIZE: &str = "1GiB";
/// Time that a disk has to say that it does what it was asked to.
const PATIENCE: Duration = Duration::from_secs(10);

/// What fio and prediction run on a model, seconds, after one more: a disk drive does some hundred requests
/// per second, and chance alone would part two short rows by more than is asked about.
fn seconds(model: &str) -> u32 {
    if model == "hdd-7200" { 40 } else { 6 }
}

/// A job of fio's, and the same as an experiment.
struct FioJob {
    name: &'static str,
    engine: &'static str,
    depth: u32,
    mode: &'static str,
    reads: &'static str,
    sync: bool,
}

const JOBS: [FioJob; 4] = [
    FioJob {
        name: "reads",
        engine: "psync",
        depth: 1,
        mode: "randread",
        reads: "100%",
        sync: false,
    },
    FioJob {
        name: "reads",
        engine: "io_uring",
        depth: 32,
        mode: "randread",
        reads: "100%",
        sync: false,
    },
    FioJob { name: "mix", engine: "io_uring", depth: 8, mode: "randrw", reads: "70%", sync: false },
    FioJob {
        name: "synced",
        engine: "psync",
        depth: 1,
        mode: "randwrite",
        reads: "0%",
        sync: true,
    },
];

impl FioJob {
    /// Its name in the study.
    fn word(&self) -> String {
        format!("{}-{}", self.name, self.depth)
    }

    /// What is compared, by the word of the figures: reads, writes, syncs.
    const fn kinds(&self) -> &'static [&'static str] {
        match (self.sync, self.reads.len()) {
            (true, _) => &["write", "sync"],
            (false, 4) => &["read"],
            (false, _) => &["read", "write"],
        }
    }
}

/// Prints the table.
pub fn table(work: &Path) -> Result<(), String> {
    // Wherever it was built, the program lies next to this one.
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = own.with_file_name("crosspoint");
    let tool = Tool { program: &program, work };
    let mut text = String::from(
        "| drive | job | | predicted /s | fio /s | off | predicted mean, us | fio mean, us | off | the \
         tool says |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for model in MODELS {
        let predicted = tool.predicted(model)?;
        for job in &JOBS {
            match tool.had(model, job)? {
                Ok((had, said)) => rows(&mut text, (model, job), (&predicted, &had), &said),
                Err(refused) => {
                    let _ = writeln!(text, "| {model} | | | | | | | | | {refused} |");
                    break;
                }
            }
        }
        eprintln!("{model}");
    }
    print!("{text}");
    Ok(())
}

fn rows(
    text: &mut String,
    (model, job): (&str, &FioJob),
    (predicted, had): (&Value, &Value),
    said: &str,
) {
    let off = |had: f64, asked: f64| format!("{:+.0} %", (had / asked - 1.0) * 100.0);
    for kind in job.kinds() {
        let asked = |metric: &str| figure(predicted, &job.word(), kind, metric);
        let Some(mean) = asked("latency_mean") else { continue };
        let (had_rate, had_mean) = of_fio(had, kind);
        // fio counts no rate of syncs: it is the writes'.
        let rates = asked("iops").filter(|_| *kind != "sync").map_or_else(
            || "| | |".to_owned(),
            |rate| format!("| {rate:.0} | {had_rate:.0} | {}", off(had_rate, rate)),
        );
        let means = format!("| {mean:.1} | {had_mean:.1} | {}", off(had_mean, mean));
        let (name, engine, depth) = (job.name, job.engine, job.depth);
        let _ = writeln!(
            text,
            "| {model} | {name} {engine} {depth} | {kind}s {rates} {means} | {said} |"
        );
    }
}

/// A figure of a run by experiment, kind of operation and metric.
fn figure(figures: &Value, experiment: &str, kind: &str, metric: &str) -> Option<f64> {
    let is = |one: &&Value| {
        one["workload"] == experiment && one["metric"] == metric && one["point"]["op"] == kind
    };
    figures["figures"].as_array()?.iter().find(is)?["value"].as_f64()
}

/// Rate, and mean latency in microseconds, of a kind of operation in fio's result.
fn of_fio(had: &Value, kind: &str) -> (f64, f64) {
    let job = &had["jobs"][0];
    let number = |of: &Value| of.as_f64().unwrap_or(f64::NAN);
    match kind {
        "sync" => (f64::NAN, number(&job["sync"]["lat_ns"]["mean"]) / 1000.0),
        kind => (number(&job[kind]["iops"]), number(&job[kind]["lat_ns"]["mean"]) / 1000.0),
    }
}

struct Tool<'a> {
    program: &'a Path,
    work: &'a Path,
}

impl Tool<'_> {
    fn run(&self, words: &[&str]) -> Result<(bool, String), String> {
        let output = Command::new(self.program)
            .args(words)
            .current_dir(self.work)
            .env("CROSSPOINT_STATE_DIR", self.work.join("state"))
            .output()
            .map_err(|error| format!("{}: {error}", self.program.display()))?;
        let text = if output.status.success() { output.stdout } else { output.stderr };
        Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
    }

    fn json(&self, words: &[&str]) -> Result<Value, String> {
        let (well, text) = self.run(words)?;
        if !well {
            return Err(text);
        }
        serde_json::from_str(&text).map_err(|error| format!("{words:?}: {error}"))
    }

    /// The figures of the jobs in virtual time.
    fn predicted(&self, model: &str) -> Result<Value, String> {
        let mut study = String::from("schema = 1\nname = \"fio\"\nseed = 1\n");
        for engine in ["psync", "io_uring"] {
            let _ = writeln!(
                study,
                "[[stack]]\nname = \"{engine}\"\ndevice = \"model:{model}\"\nsubmission = \"{engine}\"\n\
                 size = \"{SIZE}\""
            );
        }
        for job in &JOBS {
            let sync = if job.sync { "sync_every = 1\n" } else { "" };
            let _ = writeln!(
                study,
                "[[experiment]]\nname = \"{}\"\nstacks = [\"{}\"]\nwarm_up = \"1s\"\n\
                 measure = \"{}s\"\n[experiment.block]\nread_share = \"{}\"\n\
                 queue_depth = {}\nblock_size = \"4KiB\"\n{sync}",
                job.word(),
                job.engine,
                seconds(model),
                job.reads,
                job.depth
            );
        }
        let path = self.work.join("fio.toml");
        std::fs::write(&path, study).map_err(|error| format!("{}: {error}", path.display()))?;
        let run = format!("predicted-{model}");
        let (well, said) = self.run(&["run", "fio.toml", "--out", &run])?;
        if !well {
            return Err(said);
        }
        self.json(&["figures", &run, "--json"])
    }

    /// What fio reports of a job on the attached model, and what the tool says of it; or why it is refused.
    fn had(&self, model: &str, job: &FioJob) -> Result<Result<(Value, String), String>, String> {
        let (well, said) = self.run(&["attach", model, "--size", SIZE, "--json"])?;
        if !well {
            let first = said.lines().next().unwrap_or_default();
            let reason = first.rsplit(": ").next().unwrap_or_default();
            return Ok(Err(format!("refused: {reason}")));
        }
        let disk: Value = serde_json::from_str(&said).map_err(|error| error.to_string())?;
        let file = disk["file"].as_str().unwrap_or_default();
        let process = disk["process"].to_string();
        let filled = self.filled(file, &process);
        let fio = filled.and_then(|()| self.fio(file, job, seconds(model)));
        let ended = self.json(&["detach", file, "--json"])?;
        let served: stats::Served = serde_json::from_value(ended["disks"][0]["served"].clone())
            .map_err(|error| error.to_string())?;
        let said = if served.is_faithful() { "as asked" } else { "not reliable" };
        Ok(Ok((fio?, said.to_owned())))
    }

    /// Writes all of a disk before its life begins: memory that was never written takes longer.
    fn filled(&self, file: &str, process: &str) -> Result<(), String> {
        self.stage(process, true)?;
        let data = vec![0xA5; 1 << 20];
        let fill = || {
            let mut disk = std::fs::OpenOptions::new().write(true).open(file)?;
            let size = disk.metadata()?.len();
            for _ in 0..size / data.len() as u64 {
                disk.write_all(&data)?;
            }
            disk.sync_all()
        };
        fill().map_err(|error: std::io::Error| format!("{file}: {error}"))?;
        self.stage(process, false)
    }

    /// Asks what serves a disk to begin or end staging, and waits until it has.
    fn stage(&self, process: &str, staging: bool) -> Result<(), String> {
        let asked = Command::new("kill").args(["-USR2", process]).status();
        asked.map_err(|error| format!("kill: {error}"))?;
        let began = Instant::now();
        while self.json(&["attach", "--json"])?["disks"][0]["staging"] != staging {
            if began.elapsed() > PATIENCE {
                return Err(format!("process {process} does not answer"));
            }
        }
        Ok(())
    }

    fn fio(&self, file: &str, job: &FioJob, seconds: u32) -> Result<Value, String> {
        let mut fio = Command::new("fio");
        fio.args(["--name=a", "--bs=4k", "--direct=1", "--time_based", "--ramp_time=1"]);
        fio.args(["--norandommap", "--randrepeat=0", "--output-format=json", "--rwmixread=70"]);
        fio.args([format!("--filename={file}"), format!("--rw={}", job.mode)]);
        fio.args([format!("--ioengine={}", job.engine), format!("--iodepth={}", job.depth)]);
        fio.args([format!("--runtime={seconds}"), format!("--size={SIZE}").replace("iB", "")]);
        if job.sync {
            fio.arg("--fdatasync=1");
        }
        let output =
            fio.current_dir(self.work).output().map_err(|error| format!("fio: {error}"))?;
        serde_json::from_slice(&output.stdout).map_err(|error| format!("fio: {error}"))
    }
}
