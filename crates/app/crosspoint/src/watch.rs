//! `watch`: a full-screen view of a run; quitting does not affect the run.
//!
//! Invariants: the terminal is restored on every way out; without a terminal it prints one line per second.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use follow::{Disks, Live, Screen, ask, line_of};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::{self, ExitCode};
use crate::show::Failure;
use crate::words::plain;

/// Polling interval.
const EVERY: Duration = Duration::from_millis(250);
/// Interval of plain lines.
const LINE_EVERY: Duration = Duration::from_secs(1);
/// Time limit for a run that was just started.
const BEGINS_IN: Duration = Duration::from_secs(10);

/// How watching ended.
enum Ended {
    /// The user quit.
    Left,
    /// The run has ended.
    Over,
}

/// Watches the run in `folder`, or the only one in progress under `runs`.
pub fn run(folder: Option<&Path>) -> Result<ExitCode, Failure> {
    let folder = match folder {
        Some(folder) if !folder.is_dir() => {
            say!("error: {} is not a run folder\n  help: crosspoint watch RUN", folder.display());
            return Ok(exit::USAGE);
        }
        Some(folder) => folder.to_owned(),
        None => match going_on(Path::new("runs")).as_slice() {
            [one] => one.clone(),
            [] => {
                say!("error: no run is in progress under runs\n  help: crosspoint watch RUN");
                return Ok(exit::USAGE);
            }
            several => {
                say!("error: several runs are in progress; name one:");
                several.iter().for_each(|one| say!("  crosspoint watch {}", one.display()));
                return Ok(exit::USAGE);
            }
        },
    };
    follow_run(&folder, Duration::ZERO)
}

/// Runs in progress under `parent`, by name.
fn going_on(parent: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    all.sort();
    all.retain(|path| matches!(ask(path), Ok(Some(_))));
    all
}

/// Watches a run that was started a moment ago.
pub fn started(folder: &Path) -> Result<ExitCode, Failure> {
    follow_run(folder, BEGINS_IN)
}

fn follow_run(folder: &Path, patience: Duration) -> Result<ExitCode, Failure> {
    let failed = |error| Failure::Output(folder.display().to_string(), error);
    let until = Instant::now() + patience;
    let first = loop {
        match ask(folder) {
            Err(error) => {
                say!(
                    "error: the run in {} does not answer: {error}\n  help: run as its owner; a stopped \
                     process does not answer",
                    folder.display()
                );
                return Ok(exit::ENVIRONMENT);
            }
            Ok(Some(live)) => break live,
            Ok(None) if Instant::now() < until => std::thread::sleep(EVERY),
            Ok(None) => {
                say!("error: no run is in progress in {}", folder.display());
                let page = folder.join("report.html");
                if page.exists() {
                    say!("  it has ended; report: {}", page.display());
                }
                say!("  help: crosspoint run --resume {}", folder.display());
                return Ok(exit::USAGE);
            }
        }
    };
    let screen = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let ended = if screen { on_screen(folder, first) } else { in_lines(folder, first) };
    match ended.map_err(failed)? {
        Ended::Left => {
            out!("the run continues; watch it again: crosspoint watch {}", folder.display());
        }
        Ended::Over => {
            let page = folder.join("report.html");
            out!("the run has ended: {}", folder.display());
            if page.exists() {
                out!("report: {}", page.display());
            }
        }
    }
    Ok(exit::OK)
}

fn in_lines(folder: &Path, mut live: Live) -> std::io::Result<Ended> {
    let mut last = None;
    loop {
        let line = line_of(&live);
        if last.as_ref() != Some(&line) {
            out!("{}", plain(&line));
            last = Some(line);
        }
        std::thread::sleep(LINE_EVERY);
        match ask(folder)? {
            Some(now) => live = now,
            None => return Ok(Ended::Over),
        }
    }
}

fn on_screen(folder: &Path, mut live: Live) -> std::io::Result<Ended> {
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let screen = Screen::new(colours);
    let leave = format!("q: quit (the run continues)    stop it: kill -INT {}", live.process);
    // The terminal must be restored when the process is terminated.
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    // Restores the terminal, also after a panic.
    let mut terminal = ratatui::try_init()?;
    let mut disks = Disks::default();
    let mut traffic = disks.look();
    let over = loop {
        if ended.load(Ordering::Relaxed) {
            break Ok(Ended::Left);
        }
        let drawn = terminal.draw(|frame| screen.draw(frame, &live, &traffic, &leave));
        if let Err(error) = drawn {
            break Err(error);
        }
        match left_within(EVERY) {
            Ok(false) => {}
            Ok(true) => break Ok(Ended::Left),
            Err(error) => break Err(error),
        }
        traffic = disks.look();
        match ask(folder) {
            Ok(Some(now)) => live = now,
            Ok(None) => break Ok(Ended::Over),
            Err(error) => break Err(error),
        }
    };
    ratatui::try_restore()?;
    over
}

/// Whether the user quit within `time`; a resized window is redrawn at once.
fn left_within(time: Duration) -> std::io::Result<bool> {
    let until = Instant::now() + time;
    while event::poll(until.saturating_duration_since(Instant::now()))? {
        match event::read()? {
            Event::Key(key) if key.kind == KeyEventKind::Press => {
                let control = key.modifiers.contains(KeyModifiers::CONTROL);
                if matches!(key.code, KeyCode::Char('q' | 'd') | KeyCode::Esc)
                    || (control && key.code == KeyCode::Char('c'))
                {
                    return Ok(true);
                }
            }
            Event::Resize(..) => return Ok(false),
            _ => {}
        }
    }
    Ok(false)
}
