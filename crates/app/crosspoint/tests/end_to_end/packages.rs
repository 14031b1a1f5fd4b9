//! Packages must contain what is installed: working programs, manual pages, completions, studies.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Scratch, expect, needs, stdout};

/// The only file with that extension.
fn only(folder: &Path, ending: &str) -> PathBuf {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
    let found: Vec<PathBuf> =
        entries.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    assert_eq!(found.len(), 1, "{ending}: {found:?}");
    found[0].clone()
}

#[test]
fn the_archives_hold_programs_that_run_and_what_belongs_to_them() {
    let tools = ["dpkg-deb", "objdump", "strip"];
    let Some(()) = needs("the_archives_hold_programs_that_run", &tools) else { return };
    let scratch = Scratch::new();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let programs = Path::new(env!("CARGO_BIN_EXE_crosspoint")).parent().expect("a folder");
    let out = scratch.path().join("dist");
    let made =
        Command::new(root.join("scripts/dist")).arg(&out).arg("--from").arg(programs).output();
    expect(&made.expect("it starts"), 0);
    let (deb, tarball) = (only(&out, ".deb"), only(&out, ".tar.gz"));
    let unpacked = |name: &str, command: &mut Command| {
        let place = scratch.path().join(name);
        std::fs::create_dir(&place).expect("a folder");
        expect(&command.arg(&place).output().expect("it starts"), 0);
        place
    };
    let of_deb = unpacked("deb", Command::new("dpkg-deb").arg("-x").arg(&deb)).join("usr");
    let of_tar = unpacked("tar", Command::new("tar").arg("-xf").arg(&tarball).arg("-C"));
    let of_tar = std::fs::read_dir(of_tar).expect("a folder").flatten().next().expect("one").path();
    for (tree, page) in [(&of_deb, "crosspoint-run.1.gz"), (&of_tar, "crosspoint-run.1")] {
        for file in [
            &format!("share/man/man1/{page}"),
            "share/bash-completion/completions/crosspoint",
            "share/zsh/vendor-completions/_crosspoint",
            "share/fish/vendor_completions.d/crosspoint.fish",
            "share/crosspoint/studies/quickstart.toml",
            "share/doc/crosspoint/README.md",
            "share/doc/crosspoint/LICENSE-MIT",
            "bin/crosspoint-raw",
        ] {
            let facts = std::fs::metadata(tree.join(file));
            assert!(facts.is_ok_and(|facts| facts.len() > 100), "{file} in {}", tree.display());
        }
        let mut program = Command::new(tree.join("bin/crosspoint"));
        let said = program.arg("studies").env("CROSSPOINT_STATE_DIR", scratch.state()).output();
        let said = said.expect("it starts");
        expect(&said, 0);
        assert!(stdout(&said).contains("quickstart: "));
    }
    let control = Command::new("dpkg-deb").args(["-f"]).arg(&deb).arg("Depends").output();
    let control = stdout(&control.expect("it starts"));
    assert!(control.contains("libc6 (>= 2.") && !control.contains("rocksdb"), "{control}");
    let sums = Command::new("sha256sum")
        .args(["--quiet", "--check", "SHA256SUMS"])
        .current_dir(&out)
        .output();
    expect(&sums.expect("it starts"), 0);
}
