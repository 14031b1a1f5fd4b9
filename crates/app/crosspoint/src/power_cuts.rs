//! `crosspoint power-cuts`: what databases keep after a power cut on a modelled drive.
//!
//! Lost data is reported with its seed and an exit code.

use runner::{AttachedDrive, CutRecord, Kept, PowerCuts, power_cuts, study_of};
use serde_json::{Value, json};
use stack::Format;
use study::{Job, plan};
use units::{Seed, Share};

use crate::cli::{CutFileSystem, PowerCutsArguments};
use crate::exit::{self, ExitCode};
use crate::progress::Counted;
use crate::running::Running;
use crate::show::Failure;

/// Losses that are listed one by one.
const TOLD_MAX: usize = 5;

pub fn run(arguments: &PowerCutsArguments) -> Result<ExitCode, Failure> {
    let engine = arguments.engine.command;
    let text = study_of(engine, arguments.durability).unwrap_or_default();
    let study = study::parse(&text, engines::list()).map_err(runner::RunnerError::from)?;
    let planned = plan(&study);
    let trial = &planned.trials[0];
    if let Job::Sql(job) = &trial.job {
        runner::server_of(job)?;
    }
    let format = match arguments.file_system {
        CutFileSystem::Ext4 => Format::EXT4,
        CutFileSystem::Xfs => Format::XFS,
    };
    let wanted = PowerCuts {
        model: &arguments.model,
        attached: arguments.attach.then_some(AttachedDrive { size: arguments.size, format }),
        cuts: arguments.cuts,
        seed: Seed(arguments.seed),
        writes: arguments.writes,
        lies: arguments.drop_flushes,
        at: &arguments.at,
        keep: arguments.keep.as_deref(),
    };
    let running = Running::start_uncalibrated()?;
    let mut counted = Counted::new("power cuts");
    let mut heard = |cut: &CutRecord| counted.tell(cut.number as usize, wanted.cuts as usize);
    let done = power_cuts(&wanted, (&study, trial), running.parts(), &mut heard);
    drop(counted);
    running.undo();
    let done = done?;
    let lost: Vec<(&CutRecord, &str)> =
        done.iter().filter_map(|cut| Some((cut, not_kept(cut)?))).collect();
    if arguments.json {
        out!("{:#}", document(arguments, &done));
    } else {
        tell(arguments, &done, &lost);
    }
    Ok(if done.len() < arguments.cuts as usize {
        exit::INTERRUPTED
    } else if !lost.is_empty() {
        exit::NOT_KEPT
    } else if done.iter().any(CutRecord::tells) {
        exit::OK
    } else {
        exit::INCONCLUSIVE
    })
}

/// Description of what is wrong with the database after a cut.
const fn not_kept(cut: &CutRecord) -> Option<&str> {
    match &cut.kept {
        Kept::All(_) => None,
        Kept::Lost(words) | Kept::Unusable(words) => Some(words.as_str()),
    }
}

fn document(arguments: &PowerCutsArguments, done: &[CutRecord]) -> Value {
    let cuts = done.iter().map(|cut| {
        let (found, words) = match &cut.kept {
            Kept::All(words) => ("all", words),
            Kept::Lost(words) => ("lost", words),
            Kept::Unusable(words) => ("unusable", words),
        };
        json!({
            "number": cut.number,
            "write": cut.write,
            "under_load": cut.under_load,
            "unflushed_blocks": cut.losses.unflushed,
            "lost_blocks": cut.losses.lost,
            "torn_blocks": cut.losses.torn,
            "acknowledged": cut.acknowledged,
            "found": found,
            "said": words,
            "kept_drive": cut.image.as_ref().map(|image| json!({
                "file": image.as_ref().ok(),
                "not_kept": image.as_ref().err(),
                "lost": cut.blocks.iter().map(|one| json!({
                    "block": one.block,
                    "sectors_written": one.sectors_written,
                })).collect::<Vec<_>>(),
            })),
        })
    });
    json!({
        "schema": 1,
        "engine": arguments.engine.command,
        "model": arguments.model,
        "seed": arguments.seed,
        "lying_flush": arguments.drop_flushes.exact(),
        "durability": arguments.durability.word(),
        "cuts": cuts.collect::<Vec<_>>(),
    })
}

fn tell(arguments: &PowerCutsArguments, done: &[CutRecord], lost: &[(&CutRecord, &str)]) {
    let of = |count: fn(&CutRecord) -> u64| done.iter().map(count).sum::<u64>();
    let under_load = done.iter().filter(|cut| cut.under_load).count();
    let honest = match arguments.drop_flushes {
        Share::NONE => "honours flushes".to_owned(),
        share => format!("drops {share} of flushes"),
    };
    out!(
        "{}, durability {}: {} power cuts (seed {}) on a drive that {honest}, {under_load} of them under \
         load",
        cut_title(arguments.engine),
        arguments.durability.word(),
        done.len(),
        arguments.seed
    );
    out!(
        "drive:    {} blocks of 4 KiB were written and not flushed; {} of them were lost, {} torn",
        of(|cut| cut.losses.unflushed),
        of(|cut| cut.losses.lost),
        of(|cut| cut.losses.torn)
    );
    let tells = done.iter().filter(|cut| cut.tells()).count();
    let unusable = done.iter().filter(|cut| matches!(cut.kept, Kept::Unusable(_))).count();
    out!(
        "promised: {} records loaded, updated or inserted; in {tells} of {} cuts the drive lost blocks \
         after an acknowledgement",
        of(|cut| cut.acknowledged),
        done.len()
    );
    out!(
        "database: {} of {} cuts lost acknowledged data, {unusable} left it unusable",
        lost.len() - unusable,
        done.len()
    );
    match (tells, lost.len()) {
        (0, 0) => out!("no cut put data at risk: use more --cuts or --writes"),
        (_, 0) => out!("passed:   all acknowledged data survived each cut"),
        _ => out!("failed:   acknowledged data was lost"),
    }
    for (cut, words) in lost.iter().take(TOLD_MAX) {
        let words: String = words.chars().take(300).collect();
        out!("  cut {} (write {}): {}", cut.number, cut.write, crate::words::plain(&words));
        match &cut.image {
            Some(Ok(path)) => out!("    drive after the cut: {}", path.display()),
            Some(Err(why)) => out!("    the drive could not be kept: {}", crate::words::plain(why)),
            None => {}
        }
    }
    if lost.len() > TOLD_MAX {
        out!("  and {} more; --json has all", lost.len() - TOLD_MAX);
    }
}

/// Name of the engine that the command cuts.
fn cut_title(engine: &study::Descriptor) -> &'static str {
    engine.products.first().map_or(engine.title, |(_, title)| title)
}
