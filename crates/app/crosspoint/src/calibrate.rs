//! `crosspoint calibrate`: measures this host for predictions.
//!
//! Invariant: results are stored before they are printed.

use std::io::ErrorKind;
use std::path::Path;

use runner::FittedScheduler;
use serde_json::json;
use sim::{Calibration, HostModel, PageCacheCosts};
use stack::{StackError, state_directory};
use units::human_count;

use crate::exit::{self, ExitCode};
use crate::host_file::file;
use crate::own_disk_file;
use crate::progress::Counted;
use crate::result_file::Output;
use crate::running::Running;
use crate::show::Failure;

pub fn run(directory: &Path, forget: bool, json: bool) -> Result<ExitCode, Failure> {
    let state = state_directory()?;
    let path = file(&state);
    if forget {
        own_disk_file::forget(&state);
        return match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(StackError::io("remove", &path)(error).into())
            }
            _ => {
                out!("predictions use the published host");
                Ok(exit::OK)
            }
        };
    }
    let running = Running::start_uncalibrated()?;
    let Some((found, scheduler)) = measured(directory, &running)? else {
        return Ok(exit::INTERRUPTED);
    };
    if json {
        out!("{:#}", json!({"schema": 1, "file": path, "calibration": found}));
    } else {
        print(&found);
        scheduler.iter().for_each(print_scheduler);
        out!("predictions use it from now on: {}", path.display());
    }
    Ok(exit::OK)
}

/// Measures and stores this host's calibration and uses it from now on; `false` if the user stopped it.
pub fn measure(directory: &Path, running: &mut Running) -> Result<bool, Failure> {
    let found = measured(directory, running)?;
    Ok(found.map(|(found, _)| running.use_calibration(found)).is_some())
}

/// Measures this host and stores the result; `None` if the user stopped it.
fn measured(
    directory: &Path,
    running: &Running,
) -> Result<Option<(Calibration, Option<FittedScheduler>)>, Failure> {
    let mut counted = Counted::new("measurements");
    let mut tell = |done: usize, of: usize| counted.tell(done, of);
    let found = runner::calibrate(directory, running.parts(), &mut tell);
    drop(counted);
    running.undo();
    let Some(mut found) = found? else { return Ok(None) };
    let scheduler = runner::fit_scheduler(directory);
    found.scheduler = scheduler.as_ref().ok().map(|fitted| fitted.costs);
    if let Err(error) = &scheduler {
        say!("note: waking threads was not measured ({error}); simulations use a reference host");
    }
    if found.page_cache.is_none() {
        say!("note: the page cache was not measured; simulations use a reference host");
    }
    let state = state_directory()?;
    Output::own(&file(&state)).write(found.text().as_bytes())?;
    own_disk_file::forget(&state);
    Ok(Some((found, scheduler.ok())))
}

fn print(found: &Calibration) {
    out!(
        "{:<10} {:>5} {:>14} {:>10} {:>16} {:>10}",
        "path",
        "depth",
        "CPU per I/O",
        "sleeps",
        "CPU without",
        "rate here"
    );
    for one in &found.path {
        let (cpu, alone) = (one.cpu.to_string(), found.path_cpu(one).to_string());
        let rate = human_count(one.rate);
        out!(
            "{:<10} {:>5} {cpu:>14} {:>10.3} {alone:>16} {rate:>10}",
            one.name,
            one.depth,
            one.sleeps
        );
    }
    let wake = &found.wake_ups;
    out!("wake-up by an interrupt: {} (p90 {})", wake.interrupt, wake.interrupt_p90);
    let other = wake.other_cpu.map_or_else(|| "none".to_owned(), |time| time.to_string());
    if let Some(cache) = &found.page_cache {
        let PageCacheCosts { read, write, kib, fault, fault_allocated, .. } = cache;
        out!("page cache: read {read}, write {write}, copying {kib} per KiB");
        out!("page fault: {fault}, on a new page that is written: {}", *fault + *fault_allocated);
    }
    out!("wake-up by a thread on the same processor: {}, on another: {other}", wake.same_cpu);
    let known = HostModel::io_uring();
    if let Some(own) = found.path(known.name) {
        let (here, there) = (human_count(own.thread_rate()), human_count(known.thread_rate()));
        out!("one thread reaches {here}/s here, {there}/s on the published host");
    }
}

fn print_scheduler(FittedScheduler { costs, checks }: &FittedScheduler) {
    out!("going to sleep: {}, switching threads: {}", costs.block, costs.switch);
    for check in checks {
        let kind = if check.is_socket { "socket" } else { "lock" };
        let where_to = if check.cores == 1 { "the same core" } else { "an idle core" };
        let (measured, simulated) = (check.measured, check.simulated);
        out!("waking through a {kind} on {where_to}: {measured}, simulated {simulated}");
    }
}
