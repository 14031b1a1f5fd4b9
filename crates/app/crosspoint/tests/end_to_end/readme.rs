//! Every command that the documentation tells a user to type must work.

use std::path::PathBuf;

use crate::support::{DiskScratch, Scratch, expect, has, has_rocksdb, is_root, skip, study};

fn document(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..").join(name);
    std::fs::read_to_string(path).expect("the document exists")
}

/// The TOML examples of a document.
fn examples(name: &str) -> Vec<String> {
    let text = document(name);
    let examples = text.split("```toml").skip(1).filter_map(|rest| rest.split("```").next());
    examples.map(str::to_owned).collect()
}

/// `crosspoint ...` commands in backticks; `sudo` is left out where this is root.
fn commands(text: &str) -> Vec<String> {
    let own = |part: &str| {
        if is_root() { part.replace("sudo crosspoint", "crosspoint") } else { part.into() }
    };
    let parts = text.split('`').map(own);
    let parts = parts.filter(|part| part.starts_with("crosspoint "));
    parts.filter(|part| !part.contains('\n')).collect()
}

/// A page of the site must be in its table of contents.
#[test]
fn every_document_is_in_the_site() {
    let (summary, folder) = (document("docs/SUMMARY.md"), "../../../docs");
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(folder);
    let names = std::fs::read_dir(folder).expect("documents").flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    for name in names.filter(|name| name.ends_with(".md") && name != "SUMMARY.md") {
        assert!(summary.contains(&format!("]({name})")), "{name}");
    }
}

/// Whether the engine of a one-line job is missing; reports it as skipped.
fn is_missing(command: &str, there: &[&str]) -> bool {
    let missing = ["rocksdb", "mariadb", "postgres"].into_iter().find(|engine| {
        command.starts_with(&format!("crosspoint run {engine}")) && !there.contains(engine)
    });
    missing.iter().for_each(|engine| skip(&format!("the command {command}"), engine));
    missing.is_some()
}

/// Documents in the order in which they are read.
const DOCUMENTS: [&str; 7] = [
    "README.md", "docs/RECIPES.md", "docs/TUTORIAL.md", "ARCHITECTURE.md", "docs/STUDY.md",
    "docs/FIGURES.md", "docs/FAULTS.md",
];

/// Commands of a document that no earlier one has.
fn new_commands_of(name: &str) -> Vec<String> {
    let earlier = DOCUMENTS.iter().take_while(|other| **other != name);
    let earlier: Vec<String> = earlier.flat_map(|other| commands(&document(other))).collect();
    let mut own = commands(&document(name));
    own.retain(|command| !earlier.contains(command));
    own
}

/// Runs every command of a document that no earlier one has; returns their number.
fn run_commands_of(name: &str) -> u32 {
    let scratch = DiskScratch(Scratch::new());
    let (own, tiny) = (new_commands_of(name), study("tiny"));
    prepare(&scratch, &own.join("\n"), &tiny);
    let place = scratch.path().join("place");
    std::fs::create_dir(&place).expect("a directory");
    let mut there = Vec::new();
    there.extend(has_rocksdb(&scratch).then_some("rocksdb"));
    there.extend(has("mariadbd").then_some("mariadb"));
    there.extend(engine_postgres::Binary::find("auto").is_ok().then_some("postgres"));
    let mut tried = 0;
    for command in own {
        if is_missing(&command, &there) {
            continue;
        }
        let words = words_of(&command, &place.display().to_string(), &tiny);
        // For these commands only `--help` is run: they run until stopped (tested in `watching`), ask or take
        // long (`advice` checks a disk, `models` fits a profile, `compare` measures noise), or need a running
        // database (`capturing`, `servers`).
        let endless = [
            "--detach", "watch", "serve", "fit", "--noise", "capture", "validate",
            "--load-generator",
        ];
        let takes_long = words.starts_with("check ") || words == "advise";
        if takes_long || words.split(' ').any(|word| endless.contains(&word)) {
            let verb = words.split(' ').next().unwrap_or_default();
            expect(&scratch.run(&format!("{verb} --help")), 0);
            continue;
        }
        // This profile misses published ranges, as documented; a comparison without repetitions is
        // inconclusive.
        let code = match words.as_str() {
            "device check intel-p4800x" => 8,
            words if words.starts_with("compare ") => 10,
            _ => 0,
        };
        expect(&scratch.run(&words), code);
        tried += 1;
    }
    tried
}

/// Creates the runs and files that the commands of a document name.
fn prepare(scratch: &DiskScratch, text: &str, tiny: &str) {
    let write = |name: &str, text: &str| {
        std::fs::write(scratch.path().join(name), text).expect("written");
    };
    write(
        "act_storage.conf",
        "device-names: /dev/sdx\ntest-duration-sec: 86400\nread-reqs-per-sec: 2000\n\
         write-reqs-per-sec: 1000\n",
    );
    write("job.fio", "[global]\nsize=64m\n[reads]\nrw=randread\nruntime=1\n");
    write("faults.toml", &examples("docs/FAULTS.md")[0]);
    for folder in ["jobs", "studies"] {
        std::fs::create_dir(scratch.path().join(folder)).expect("a directory");
    }
    write("jobs/one.fio", "[reads]\nsize=64m\nrw=randread\n");
    if text.contains("runs/quickstart-") || text.contains(" RUN") {
        expect(&scratch.run(&format!("run {tiny} --out runs/quickstart-made")), 0);
    }
    if text.contains("runs/before") {
        for out in ["before", "after"] {
            expect(&scratch.run(&format!("run {} --out runs/{out}", study("virtual"))), 0);
        }
    }
}

/// The arguments of a command, with placeholders replaced by this test's paths. A published study is
/// shortened; `make demo` runs the quickstart.
fn words_of(command: &str, place: &str, tiny: &str) -> String {
    let short = "--set experiment.*.interval=10ms --set experiment.*.duration=50ms \
                 --set experiment.*.warm_up=10ms";
    command
        .trim_start_matches("crosspoint ")
        .replace("runs/quickstart-...", "runs/quickstart-made")
        .replace("quickstart-....tar.gz", "quickstart-made.tar.gz")
        .replace("RUN...", "runs/quickstart-made")
        .replace("run icpads-3dxpoint", &format!("run icpads-3dxpoint {short}"))
        .replace(
            "run live-postgres",
            &format!("run live-postgres {short} --set experiment.*.job.records=100000"),
        )
        // Requirements that are met, whatever this machine's CPU.
        .replace("--rate 200/s --p99 5ms", "--rate 200/s --p99 500ms")
        .replace("postgres --data 500GB --memory 64GB", "sqlite --data 4MB --on gp3")
        .replace("postgres --data 500GB", "sqlite --data 4MB")
        .replace("/mnt/nvme", place)
        .replace("--runtime 2 ", "--runtime 1 ")
        .replace("--repeat 5", "--repeat 2")
        .replace("DIRECTORY", "pages")
        .replace(
            "quickstart-made --stacks this-disk,aws-gp3",
            "quickstart-made --stacks this-disk,intel-p4800x",
        )
        .replace("quickstart --", &format!("{tiny} --"))
        .replace(" RUN", " runs/quickstart-made")
        .replace(" FILE", &format!(" {tiny}"))
}

#[test]
fn every_command_of_the_readme_works() {
    assert!(run_commands_of("README.md") >= 8);
}

#[test]
fn every_command_of_the_recipes_works() {
    assert!(run_commands_of("docs/RECIPES.md") >= 20);
}

#[test]
fn every_command_of_the_tutorial_and_the_reference_works() {
    assert!(DOCUMENTS[2..].iter().map(|name| run_commands_of(name)).sum::<u32>() >= 3);
}

/// The Makefile's two targets are the README's two commands.
#[test]
fn the_two_commands_are_targets() {
    let (readme, makefile) = (document("README.md"), document("Makefile"));
    for target in ["demo", "test"] {
        assert!(readme.contains(&format!("make {target}")));
        assert!(makefile.contains(&format!("\n{target}:")));
    }
}

/// The examples in the documentation of the study format must be valid studies.
#[test]
fn the_example_studies_are_studies() {
    let trials = |text: &String| {
        study::parse(text, engines::list())
            .map(|study| study::plan(&study).trials.len())
            .map_err(|e| e.to_string())
    };
    let found: Vec<_> = examples("docs/STUDY.md").iter().map(trials).collect();
    assert_eq!(found, [Ok(36), Ok(28), Ok(2)]);
}
