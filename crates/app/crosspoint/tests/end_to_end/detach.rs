//! What `detach` removes, leaves alone and reports: a drive that disappears during a run spoils it silently.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::support::disks::{attach, file_of, nothing_left, possible};
use crate::support::{DiskScratch, Scratch, expect, stderr, stdout};

/// `detach --all` must not remove the drives of a run in progress, and must list what it removed even if one
/// disk is in use.
#[test]
fn all_that_is_detached_is_what_nobody_uses() {
    let Some(()) = possible("all_that_is_detached_is_what_nobody_uses") else { return };
    let scratch = DiskScratch(Scratch::new());
    let mut run = Command::new("sleep").arg("600").spawn().expect("something that runs");
    let of_run = attach(&scratch, &format!("aws-gp3 --size 16MiB --owner {}", run.id()));
    let (used, idle) =
        (attach(&scratch, "aws-gp3 --size 16MiB"), attach(&scratch, "aws-gp3 --size 16MiB"));
    let held = File::open(file_of(&used)).expect("opened");
    let output = scratch.run("detach --all");
    expect(&output, 4);
    let (said, wrong) = (stdout(&output), stderr(&output));
    assert!(said.contains(&format!("{} is detached", file_of(&idle).display())), "{said}");
    assert!(said.contains("skipped: 1 of running studies"), "{said}");
    assert!(wrong.contains(&file_of(&used).display().to_string()), "{wrong}");
    scratch.fails(
        &format!("detach {}", file_of(&of_run).display()),
        4,
        &["which is still running"],
    );
    drop(held);
    run.kill().and_then(|()| run.wait()).expect("it ends");
    expect(&scratch.run("detach --all"), 0);
    nothing_left(&scratch);
}

/// After a simulated power cut, errors of requests must name the cut as the cause.
#[test]
fn a_power_that_is_gone_is_said() {
    let Some(()) = possible("a_power_that_is_gone_is_said") else { return };
    let scratch = DiskScratch(Scratch::new());
    let plan = "schema = 1\n[[fault]]\nkind = \"power_cut\"\nwrite = 2\n";
    std::fs::write(scratch.path().join("faults.toml"), plan).expect("a plan");
    let disk = attach(&scratch, "aws-gp3 --size 16MiB --faults faults.toml");
    let file = OpenOptions::new().write(true).open(file_of(&disk)).expect("opened");
    let failed =
        (0..8).any(|at| file.write_at(&[1; 4096], at * 4096).is_err() || file.sync_all().is_err());
    assert!(failed, "the power went");
    drop(file);
    scratch.prints("detach --all", 0, &["power was cut"]);
    nothing_left(&scratch);
}
