//! `compare`, end to end: with a false alarm, a missed regression or a comparison of different jobs, users
//! buy or keep the wrong drive.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::support::{Scratch, expect, stderr, stdout};
use serde_json::Value;

/// Reads at queue depth 1 on two stacks, in virtual time; `more` is added to the job.
fn study(first: &str, second: &str, more: &str) -> String {
    format!(
        "schema = 1\nname = \"pairs\"\nquestion = \"Is b as fast as a?\"\n\
         [[stack]]\nname = \"a\"\ndevice = \"model:{first}\"\n\
         [[stack]]\nname = \"b\"\ndevice = \"model:{second}\"\n\
         [[experiment]]\nname = \"reads\"\nrepeat = 5\nwarm_up = \"0s\"\nmeasure = \"2s\"\n\
         [experiment.block]\n{more}"
    )
}

/// Writes a profile whose requests take `times` as long as those of a cloud volume; returns its name.
fn slower(scratch: &Scratch, times: f64) -> String {
    let output = scratch.run("device show aws-gp3 --toml");
    expect(&output, 0);
    let text = stdout(&output);
    let line = text.lines().find(|line| line.starts_with("latency_median")).expect("a median");
    let median = line.split('"').nth(1).expect("a value");
    let us: f64 = median.trim_end_matches("us").parse().expect("microseconds");
    let ns = (us * 1e3 * times).round();
    let text = text.replace(line, &line.replace(median, &format!("{ns:.0}ns")));
    let text = text.replace("name = \"aws-gp3\"", "name = \"slower\"");
    fs::write(scratch.path().join("slower.toml"), text).expect("a profile");
    "slower.toml".into()
}

fn run(scratch: &Scratch, text: &str, out: &str, more: &str) {
    fs::write(scratch.path().join("study.toml"), text).expect("a study");
    expect(&scratch.run(format!("run study.toml --out {out} {more}").trim_end()), 0);
}

/// Turns a run into one of an early version, without checksums, so that edits are no damage; `change` edits
/// the text of its header.
fn unsummed(run: &Path, change: impl Fn(&str) -> String) {
    fs::remove_file(run.join("sums.txt")).expect("sums");
    let header = fs::read_to_string(run.join("run.json")).expect("a header");
    let mut header: Value = serde_json::from_str(&header).expect("JSON");
    header.as_object_mut().expect("an object").remove("sums");
    fs::write(run.join("run.json"), change(&header.to_string())).expect("a header");
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Two runs of one model with different seeds must be equivalent, exit code 0, with a difference that is not
/// exactly zero.
#[test]
fn a_drive_beside_itself_is_equal() {
    let scratch = Scratch::new();
    let text = study("aws-gp3", "aws-gp3", "").replace("measure = \"2s\"", "measure = \"10s\"");
    run(&scratch, &text, "one", "");
    run(&scratch, &text, "two", "--set seed=2");
    for runs in ["one two", "two one"] {
        let output = scratch.run(&format!("compare {runs} --metric rate --json"));
        expect(&output, 0);
        for row in document(&output)["figures"].as_array().expect("figures") {
            assert_eq!(
                (&row["verdict"], &row["difference"]["n"]),
                (&"equivalent".into(), &5.into())
            );
            let number = |name: &str| row["difference"][name].as_f64().expect("a number");
            let (ratio, lo, hi) = (number("ratio"), number("lo"), number("hi"));
            assert!(lo < ratio && ratio < hi && hi - lo > 1e-4, "{row}");
            assert!((ratio - 1.0).abs() > 1e-6, "other draws: {row}");
        }
    }
    // Metrics that only one of two runs has cannot be compared.
    run(&scratch, &study("aws-gp3", "aws-gp3", "queue_depth = [1, 2]\n"), "more", "");
    run(&scratch, &study("aws-gp3", "aws-gp3", "queue_depth = 1\n"), "less", "--set seed=2");
    scratch.prints(
        "compare more less --metric rate --margin 20%",
        10,
        &["more alone has reads on a"],
    );
    // Stacks of one run use the same random draws, so not even chance differs between them.
    scratch.prints("compare one --metric rate", 0, &["within 5 %", "not model error"]);
}

/// A drive that takes 8 % longer must be detected, with its size within the interval; the reverse must be
/// better.
#[test]
fn a_planted_slowdown_is_found_with_its_size() {
    let scratch = Scratch::new();
    let slow = slower(&scratch, 1.08);
    let text = study("aws-gp3", &slow, "").replace("measure = \"2s\"", "measure = \"10s\"");
    run(&scratch, &text, "run", "");
    let output = scratch.run("compare run --metric rate,latency_mean --json");
    expect(&output, 9);
    let document = document(&output);
    let figures = document["figures"].as_array().expect("figures");
    assert_eq!(figures.len(), 2);
    for (row, truth) in figures.iter().zip([1.0 / 1.08, 1.08]) {
        let (lo, hi) = (row["difference"]["lo"].as_f64(), row["difference"]["hi"].as_f64());
        let (lo, hi) = (lo.expect("an end"), hi.expect("an end"));
        assert_eq!(row["verdict"], "worse", "{row}");
        // The host's own time per read, about 1 % of it, is not longer.
        assert!(lo - 0.01 < truth && truth < hi + 0.01, "{truth}: {row}");
    }
    expect(&scratch.run("compare run --stacks b,a --metric rate"), 0);
    let table = scratch.run("compare run --metric rate");
    assert!(stdout(&table).starts_with("b is worse than a in 1 of 1 figure"), "{}", stdout(&table));
}

/// Two repetitions are not enough: inconclusive, with the number of repetitions that would suffice.
#[test]
fn too_few_repetitions_tell_nothing() {
    let scratch = Scratch::new();
    run(&scratch, &study("aws-gp3", "intel-p4800x", ""), "run", "--repeat 2");
    scratch.prints("compare run", 10, &["2 of at least 3 repetitions", "--repeat 5"]);
}

/// Runs with another durability, another stack or nothing in common must be refused, with the difference and
/// the next command.
#[test]
fn what_is_not_the_same_is_not_compared() {
    let scratch = Scratch::new();
    let writes = "read_share = \"0%\"\n";
    run(&scratch, &study("aws-gp3", "aws-gp3", writes), "before", "");
    run(&scratch, &study("aws-gp3", "aws-gp3", &format!("{writes}sync_every = 1\n")), "after", "");
    scratch.fails("compare before after", 10, &["reads on a: sync_every", "different jobs"]);

    let cores =
        study("aws-gp3", "aws-gp3", writes).replace("name = \"b\"\n", "name = \"b\"\ncores = 3\n");
    run(&scratch, &cores, "cores", "");
    let output = scratch.run("compare before cores");
    expect(&output, 10);
    let said = stderr(&output);
    assert!(
        said.contains("stack b: cores: 0 and 3") && said.contains("--allow-mismatch"),
        "{said}"
    );
    let words = said.split("--allow-mismatch ").nth(1).expect("words").split(", if").next();
    let output = scratch.run(&format!(
        "compare before cores --metric rate --allow-mismatch {}",
        words.expect("words")
    ));
    assert!(stdout(&output).contains("note: accepted: stack b: cores"), "{}", stdout(&output));

    // The same run as if from a machine with another kernel.
    let other = |name: &str, from: &str, to: &str| {
        let copy = scratch.path().join(name);
        let status = std::process::Command::new("cp")
            .args(["-r", "before"])
            .arg(&copy)
            .current_dir(scratch.path())
            .status();
        assert!(status.expect("cp").success());
        unsummed(&copy, |text| {
            assert!(text.contains(from), "{text}");
            text.replacen(from, to, 1)
        });
    };
    let header: Value = serde_json::from_str(
        &fs::read_to_string(scratch.path().join("before/run.json")).expect("a header"),
    )
    .expect("JSON");
    let kernel = header["provenance"]["kernel"].as_str().expect("a kernel");
    other("elsewhere", kernel, "Linux 2.6.32");
    scratch.fails("compare before elsewhere", 10, &["host kernel", "Linux 2.6.32"]);
    // The option, and its former name.
    for option in ["--allow-mismatch", "--although"] {
        let words = format!("compare before elsewhere {option} kernel --metric rate");
        expect(&scratch.run(&words), 0);
    }

    expect(&scratch.run("compare before --stacks a,c"), 2);
    expect(&scratch.run("compare before after --stacks a,b"), 2);
    expect(&scratch.run("compare before --metric speed"), 2);
    expect(&scratch.run("compare before before"), 2);
    expect(&scratch.run("compare before --stacks a,a"), 2);
    expect(&scratch.run("compare before --margin 1%"), 2);
    expect(&scratch.run("compare before elsewhere --although weather"), 2);
}

/// A model whose constants changed between the runs is another drive, even under the same name.
#[test]
fn a_model_that_changed_is_not_the_same() {
    let scratch = Scratch::new();
    let slow = slower(&scratch, 1.0);
    run(&scratch, &study(&slow, "aws-gp3", ""), "before", "");
    slower(&scratch, 2.0);
    run(&scratch, &study(&slow, "aws-gp3", ""), "after", "");
    let output = scratch.run("compare before after");
    expect(&output, 10);
    let said = stderr(&output);
    assert!(said.contains("stack a: constants") && !said.contains("stack b"), "{said}");
    expect(&scratch.run("compare before after --allow-mismatch constants"), 9);
}

/// The page of two runs must compare them if that is valid, and give the mismatch if not.
#[test]
fn a_page_of_two_runs_has_their_differences() {
    let scratch = Scratch::new();
    run(&scratch, &study("aws-gp3", "aws-gp3", ""), "before", "");
    run(&scratch, &study("aws-gp3", "aws-gp3", ""), "again", "");
    run(&scratch, &study("aws-gp3", "aws-gp3", "queue_depth = 2\n"), "other", "");
    let page = |runs: &str| {
        expect(&scratch.run(&format!("report {runs} -o page.html")), 0);
        fs::read_to_string(scratch.path().join("page.html")).expect("a page")
    };
    let both = page("before again");
    assert!(both.contains("The second run next to the first") && both.contains("not model error"));
    assert!(page("before other").contains("Not compared."));
    assert!(!page("before").contains("id=\"compare\""));
}

/// A run started with another order of stacks must not be resumed: its trial numbers would go to other
/// trials.
#[test]
fn a_run_of_another_order_is_not_gone_on_with() {
    let scratch = Scratch::new();
    run(&scratch, &study("aws-gp3", "aws-gp3", ""), "run", "");
    let trials = scratch.path().join("run/trials");
    let name = |dir: &Path| -> String {
        let mut names: Vec<String> = fs::read_dir(dir)
            .expect("trials")
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| !name.starts_with('.'))
            .collect();
        names.sort();
        names.first().expect("a trial").clone()
    };
    let first = name(&trials);
    let other = match first.ends_with('a') {
        true => first.replace("-a", "-b"),
        false => first.replace("-b", "-a"),
    };
    fs::rename(trials.join(&first), trials.join(&other)).expect("renamed");
    unsummed(&scratch.path().join("run"), |text| text.to_owned());
    scratch.fails("run --resume run", 2, &["another order"]);
}

/// A difference of 3 % must be shown next to this machine's noise of 5 %.
#[test]
fn this_machine_beside_itself_is_kept_and_shown() {
    let scratch = Scratch::new();
    scratch.prints("doctor --noise .", 0, &["interleaved in one run", "10 pairs"]);
    let kept = fs::read_to_string(scratch.state().join("noise.json")).expect("what was found");
    let kept: Value = serde_json::from_str(&kept).expect("JSON");
    let figures = kept["figures"].as_array().expect("figures");
    for engine in ["block", "lmdb"] {
        let of = |one: &&Value| one["engine"] == engine && one["metric"] == "rate";
        let found = figures.iter().find(of).expect("an engine's rate");
        assert!(found["percent"].as_f64().expect("a number") > 0.0, "{found}");
    }
    let job = "run block --size 16m --runtime 1 --repeat 3 . --out";
    for out in ["before", "after"] {
        expect(&scratch.run(&format!("{job} {out} --set experiment.job.warm_up=100ms")), 0);
    }
    let said = scratch.run("compare before after --metric rate");
    let said = stdout(&said);
    assert!(said.contains("run-to-run standard deviation on this machine"), "{said}");
    assert!(said.contains("block read rate") && !said.contains("lmdb read rate"), "{said}");
}

/// Shipped studies must be listed without the documents, and a mistyped name must suggest the right one.
#[test]
fn studies_are_listed_with_their_question_time_and_needs() {
    let scratch = Scratch::new();
    let said = scratch.run("studies");
    expect(&said, 0);
    let said = stdout(&said);
    assert!(said.contains("quickstart: What would my database do on that storage?"), "{said}");
    let live = said.split("live-mariadb: ").nth(1).and_then(|rest| rest.lines().nth(1));
    let live = live.expect("its second line");
    assert!(live.contains("measured, emulated; needs MariaDB"), "{live}");
    let output = scratch.run("studies --json");
    let document = document(&output);
    let studies = document["studies"].as_array().expect("studies");
    let block = studies.iter().find(|one| one["name"] == "icpads-3dxpoint").expect("one");
    assert_eq!(
        (&block["needs"], &block["sources"]),
        (&Value::from(Vec::<&str>::new()), &Value::from(vec!["measured", "predicted"]))
    );
    for (words, meant) in [
        ("run quickstrat", "did you mean quickstart?"),
        ("device show intel-p480x", "did you mean intel-p4800x?"),
    ] {
        let output = scratch.run(words);
        assert!(stderr(&output).contains(meant), "{}", stderr(&output));
    }
}
