//! An engine is one crate and one line in the list of engines: the sample engine must appear wherever engines
//! are listed.

use crate::support::{Scratch, stdout};

/// Otherwise adding an engine means finding every list that names engines.
#[test]
fn an_engine_of_one_crate_and_one_line_is_found_everywhere() {
    let scratch = Scratch::new();
    let help = stdout(&scratch.run("run --help"));
    assert!(help.contains("\n  skeleton"), "{help}");
    let doctor = stdout(&scratch.run("doctor"));
    assert!(doctor.contains("Skeleton") && doctor.contains("skeleton 1"), "{doctor}");
    let study = "schema = 1\nname = \"added\"\n[[stack]]\nname = \"here\"\ndevice = \"file\"\n\
                 size = \"64MiB\"\n[[experiment]]\nname = \"updates\"\nwarm_up = \"50ms\"\n\
                 measure = \"200ms\"\ninterval = \"50ms\"\n[experiment.kv]\nengine = \"skeleton\"\n\
                 records = 1000\nvalue_size = \"100B\"\n";
    let write = |name: &str, text: &str| {
        std::fs::write(scratch.path().join(name), text).expect("written");
    };
    write("added.toml", study);
    let plan = stdout(&scratch.run("plan added.toml"));
    assert!(plan.contains("skeleton"), "{plan}");
    let ran = scratch.run("run added.toml --out out");
    assert!(ran.status.success(), "{}", crate::support::stderr(&ran));
    let page = std::fs::read_to_string(scratch.path().join("out/report.html")).expect("a page");
    assert!(page.contains("Skeleton"), "the page has the engine's title");
    let ran = scratch.run("run skeleton --records 1000 --runtime 1s --out job .");
    assert!(ran.status.success(), "{}", crate::support::stderr(&ran));
    write("unknown.toml", &study.replace("skeleton", "skeletton"));
    let refused = crate::support::stderr(&scratch.run("plan unknown.toml"));
    for part in ["skeletton", "allowed: lmdb", ", skeleton"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
}
