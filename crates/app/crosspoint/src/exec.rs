//! `crosspoint exec`: any command in virtual time on a modelled drive.
//!
//! Invariant: stdin and stdout belong to the command; the summary goes to stderr.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use runner::SimulatedHost;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use sim::scheduler::Wait;
use stack::state_directory;
use units::{Bytes, Nanos, Seed, human_count};
use vtime::{Ended, FileSystem, Simulation, VtimeError};

use crate::cli_drives::{ExecArguments, SimulatedFileSystem};
use crate::exit::{self, ExitCode};
use crate::host_file;
use crate::show::Failure;

pub fn run(arguments: &ExecArguments) -> Result<ExitCode, Failure> {
    let profile = runner::profile(&arguments.on)?;
    let here = state_directory().ok().and_then(|state| host_file::here(&state));
    let simulated = SimulatedHost {
        cores: arguments.cores,
        memory: arguments.memory,
        file_system: match arguments.file_system {
            SimulatedFileSystem::Ext4 => FileSystem::Ext4,
            SimulatedFileSystem::Ext4NoJournal => FileSystem::Ext4NoJournal,
            SimulatedFileSystem::Raw => FileSystem::Raw,
        },
        path: runner::psync_path(&profile, here.as_ref()),
        costs: here.map(|here| here.costs()).unwrap_or_default(),
        cpu_time: None,
        condition: arguments.condition,
        seed: Seed(arguments.seed),
    };
    let (host, drive) = simulated.make(&profile, &arguments.directory)?;
    let Some((program, rest)) = arguments.command.split_first() else {
        return Ok(exit::USAGE);
    };
    let simulation = match Simulation::new(&host) {
        Ok(simulation) => Arc::new(simulation),
        Err(error) => return Ok(failed(&error, program)),
    };
    let stopped = stop_by_signals(&simulation);
    match simulation.run_command(drive, Command::new(program).args(rest)) {
        _ if stopped.load(Ordering::Relaxed) => {
            say!("stopped; its processes have been ended");
            Ok(exit::INTERRUPTED)
        }
        Ok((code, ended)) => {
            say!("{}", summary(&arguments.on, arguments.cores, &ended));
            say!("{}", simulated.in_words());
            if code == 0 {
                return Ok(exit::OK);
            }
            say!("{program} exited with {code}");
            Ok(exit::TARGET_FAILED)
        }
        Err(error) => Ok(failed(&error, program)),
    }
}

fn failed(error: &VtimeError, program: &str) -> ExitCode {
    say!("error: {error}\n  help: {}", next(error, program));
    match error {
        VtimeError::Killed { .. } => exit::TARGET_FAILED,
        _ => exit::ENVIRONMENT,
    }
}

/// Ends the simulation when this process is asked to end; returns whether it was.
fn stop_by_signals(simulation: &Arc<Simulation>) -> Arc<AtomicBool> {
    let stopped = Arc::new(AtomicBool::new(false));
    let (asked, simulation) = (Arc::clone(&stopped), Arc::clone(simulation));
    if let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) {
        std::thread::spawn(move || {
            for _ in &mut signals {
                asked.store(true, Ordering::Relaxed);
                simulation.stop();
            }
        });
    }
    stopped
}

fn next(error: &VtimeError, program: &str) -> String {
    match error {
        VtimeError::Io { .. } => "check the command and the directory".to_owned(),
        VtimeError::NotJoined { .. } => {
            "use dynamically linked programs, and keep their environment".to_owned()
        }
        VtimeError::Uncovered { call, .. } if call.contains("--directory") => {
            "keep these files on tmpfs: --directory /dev/shm/NAME".to_owned()
        }
        VtimeError::Uncovered { .. } | VtimeError::Asleep { .. } => {
            "run it on an attached drive instead: crosspoint attach".to_owned()
        }
        VtimeError::Stuck { .. } => "the same command may hang without Crosspoint, too".to_owned(),
        VtimeError::Killed { .. } => format!("run {program} without Crosspoint to compare"),
    }
}

/// Virtual time, requests, and where the threads' time went.
fn summary(model: &str, cores: u32, ended: &Ended) -> String {
    let Ended { time, times, threads, counts, drive, real, .. } = ended;
    let total = times.total().get().max(1) as f64;
    let mut rows = vec![("CPU", times.cpu), ("run queue", times.run_queue)];
    rows.push(("wake-up", times.wake_up));
    let waits = [
        "lock or join", "socket or pipe", "device read", "device write", "flush", "sleep",
        "background",
    ];
    rows.extend(waits.into_iter().zip(Wait::ALL.iter().map(|wait| times.waits[*wait as usize])));
    let rows = rows.into_iter().filter(|(_, time)| *time > Nanos::ZERO).map(|(name, time)| {
        format!("  {name:<15}{:>6.1} %  {time}", time.get() as f64 / total * 100.0)
    });
    let bytes = |bytes: u64| Bytes(bytes).to_string();
    let count = |number: u64| match number {
        0..10_000 => number.to_string(),
        many => human_count(many as f64),
    };
    let real = real.as_secs_f64();
    let mut notes = String::new();
    if drive.out_of_memory {
        notes +=
            "\nthe command alone needed more than --memory; 1/32 of it was left to the page cache";
    }
    if drive.hits + drive.misses + drive.reads + drive.writes + drive.flushes == 0 {
        notes +=
            "\nwarning: no file below --directory was read or written, so nothing ran on the drive";
    }
    format!(
        "virtual time: {time} on {model}, {cores} cores ({real:.2} s of real time)\n\
         device: {} reads ({}), {} writes ({}), {} flushes; page cache: {} hits, {} misses{notes}\n\
         context switches: {}; wake-ups: {} (idle core), {} (busy core)\n\
         thread time by state (sum over {threads} threads):\n{}",
        count(drive.reads),
        bytes(drive.read_bytes),
        count(drive.writes),
        bytes(drive.written_bytes),
        count(drive.flushes),
        count(drive.hits),
        count(drive.misses),
        count(counts.switches),
        count(counts.idle_wakes),
        count(counts.busy_wakes),
        rows.collect::<Vec<_>>().join("\n")
    )
}
