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
            say!("error: {program} ended with exit code {code}");
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
            format!("use a dynamically linked {program}")
        }
        VtimeError::Uncovered { .. } | VtimeError::Asleep { .. } => {
            "run it on an attached drive instead: crosspoint attach".to_owned()
        }
        VtimeError::Stuck { .. } => "the same command may hang without Crosspoint, too".to_owned(),
        VtimeError::Killed { .. } => format!("run {program} alone to see why"),
    }
}

/// Virtual time, requests, and where the threads' time went.
fn summary(model: &str, cores: u32, ended: &Ended) -> String {
    let Ended { time, times, threads, counts, drive, turns, real, .. } = ended;
    let total = times.total().get().max(1) as f64;
    let mut rows = vec![("CPU", times.cpu), ("run queue", times.run_queue)];
    rows.push(("wake-up", times.wake_up));
    let waits = ["lock", "network", "device read", "device write", "flush", "sleep", "background"];
    rows.extend(waits.into_iter().zip(Wait::ALL.iter().map(|wait| times.waits[*wait as usize])));
    let rows = rows.into_iter().filter(|(_, time)| *time > Nanos::ZERO).map(|(name, time)| {
        format!("  {name:<13}{:>6.1} %  {time}", time.get() as f64 / total * 100.0)
    });
    let bytes = |bytes: u64| Bytes(bytes).to_string();
    let real = real.as_secs_f64();
    let short = match drive.out_of_memory {
        true => {
            "\nthe command alone needed more than --memory; 1/32 of it was left to the page cache"
        }
        false => "",
    };
    format!(
        "virtual time: {time} on {model}, {cores} cores ({real:.2} s of real time, {:.1} us a turn)\n\
         device: {} reads ({}), {} writes ({}), {} flushes; page cache: {} hits, {} misses{short}\n\
         scheduler: {} switches, {} wake-ups of an idle core, {} of a busy one\n\
         time of {threads} threads:\n{}",
        real * 1e6 / (*turns).max(1) as f64,
        human_count(drive.reads as f64),
        bytes(drive.read_bytes),
        human_count(drive.writes as f64),
        bytes(drive.written_bytes),
        human_count(drive.flushes as f64),
        human_count(drive.hits as f64),
        human_count(drive.misses as f64),
        human_count(counts.switches as f64),
        human_count(counts.idle_wakes as f64),
        human_count(counts.busy_wakes as f64),
        rows.collect::<Vec<_>>().join("\n")
    )
}
