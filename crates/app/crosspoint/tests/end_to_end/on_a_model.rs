//! Results on an attached model must never be called measured.

use std::path::Path;

use crate::support::{DiskScratch, Scratch, expect, is_root, sh, skip, stderr};

/// A study on a modelled drive must not report its figures as measured: in a directory on it, on a loop
/// device over it, or on a file system mounted from that.
#[test]
fn what_lies_on_a_model_is_not_measured() {
    if let Err(attach::Missing { reason: missing, .. }) = attach::available() {
        return skip("what_lies_on_a_model_is_not_measured", &missing);
    }
    let scratch = DiskScratch(Scratch::new());
    let block = if is_root() { " --block" } else { "" };
    let disk = scratch.json(&format!("attach intel-s3520 --scale 10 --size 64MiB --json{block}"));
    let file = Path::new(disk["file"].as_str().expect("a file"));
    let place = file.parent().expect("its directory").display().to_string();
    let mut studies = vec![format!("device = \"file\"\ndirectory = \"{place}\"\n")];
    let device = disk["block"].as_str();
    studies.extend(device.map(|device| format!("device = \"{device}\"\n")));
    let mount = scratch.path().join("mounted");
    if let Some(device) = device {
        std::fs::create_dir(&mount).expect("made");
        let place = mount.display().to_string();
        assert!(sh(&format!("mkfs.ext4 -q {device} && mount {device} {place}")), "mounted");
        studies.push(format!("device = \"file\"\ndirectory = \"{place}\"\n"));
    }
    for stack in studies {
        let text = format!(
            "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\nsize = \"4MiB\"\n{stack}\
             [[experiment]]\nname = \"e\"\n[experiment.block]\n"
        );
        std::fs::write(scratch.path().join("s.toml"), text).expect("a study");
        let output = scratch.run("run s.toml --out run");
        let said = stderr(&output);
        assert!(said.contains("it lies on an attached model"), "{stack}: {said}");
        assert!(said.contains("attach = true"), "what helps: {said}");
        assert!(!scratch.path().join("run").exists(), "nothing was begun");
    }
    if device.is_some() {
        assert!(sh(&format!("umount {}", mount.display())), "unmounted");
    }
    expect(&scratch.run("detach --all"), 0);
    assert!(scratch.leftovers().is_empty(), "{:?}", scratch.leftovers());
}
