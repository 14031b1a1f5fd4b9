//! `crosspoint`: what would my database do on that storage?
//!
//! Arguments, exit codes and wiring; everything else is in the crates below. Invariants: results go to
//! stdout, everything else to stderr; every error names the next command.

#[macro_use]
mod output;
mod act_test;
mod advise;
mod attach;
mod bundle;
mod calibrate;
mod capture_study;
mod capture_view;
mod capturing;
mod check;
mod cli;
mod cli_advise;
mod cli_capture;
mod cli_device;
mod cli_drives;
mod cli_job;
mod cli_run;
mod commands;
mod compare;
mod dask;
mod detach;
mod device;
mod exec;
mod exit;
mod finish;
mod fit;
mod fit_picture;
mod guard;
mod host;
mod host_file;
mod import;
mod library;
mod memory;
mod noise;
mod noise_file;
mod own_disk_file;
mod place;
mod planning;
mod power_cuts;
mod progress;
mod quick;
mod result_file;
mod running;
mod show;
mod signals;
mod studies;
mod tables;
mod validate;
mod watch;
mod words;
mod workers;

use clap::Parser;

fn main() -> std::process::ExitCode {
    let arguments = match cli::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are results; everything else is a usage error.
            if error.use_stderr() {
                // Nothing can be done about a closed output.
                let _ = error.print();
                return exit::USAGE.into();
            }
            output::note(error.print());
            return ended(exit::OK).into();
        }
    };
    if !matches!(arguments.verb, cli::Verb::Engine) {
        memory::keep_freed();
    }
    let code = match commands::run(arguments) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    };
    ended(code).into()
}

/// The exit code, once all results are written.
fn ended(code: exit::ExitCode) -> exit::ExitCode {
    let Some(error) = output::lost() else { return code };
    say!("error: the result could not be written: {error}\n  help: write it to another disk");
    exit::ENVIRONMENT
}
