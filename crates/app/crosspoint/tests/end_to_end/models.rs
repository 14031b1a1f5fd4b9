//! Device models as a user sees them: fit one to a device, and compare with a published study.

use crate::support::{Scratch, expect};
use serde_json::Value;

/// A fit whose output cannot be written must fail before ten minutes of measuring.
#[test]
fn a_fit_that_cannot_be_kept_is_refused_before_anything_is_measured() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path().join("mine.toml"), "a user's file").expect("a file");
    let refused = [
        ("--name a\"b", 3, "no quotes"),
        ("-o mine.svg --force", 3, "NAME.svg"),
        ("--name mine", 5, "with --force"),
        ("--name no/where", 5, "cannot write no/where.toml"),
        ("-o mine.toml/x.toml", 5, "cannot write mine.toml/x.toml"),
    ];
    for (words, code, reason) in refused {
        let output = scratch.run(&format!("device fit model:intel-900p {words} --out runs/none"));
        expect(&output, code);
        assert!(String::from_utf8_lossy(&output.stderr).contains(reason), "{words}: {output:?}");
        assert!(!scratch.path().join("runs/none").exists(), "{words}");
    }
    let kept = std::fs::read_to_string(scratch.path().join("mine.toml")).expect("still there");
    assert_eq!(kept, "a user's file");
}

/// A fit that does not reproduce the measurements would predict another device. The measured device is a
/// model, so the test does not depend on the machine.
#[test]
fn a_profile_is_fitted_tested_and_usable() {
    let scratch = Scratch::new();
    let model = "run device-fit --out runs/fit --set stack.target.device=model:intel-900p";
    expect(&scratch.run(&format!("{model} --set experiment.*.repeat=2")), 0);
    let document = scratch.json("device fit --from runs/fit --name mine --json");
    let residuals = document["residuals"].as_array().expect("a list");
    assert!(residuals.iter().any(|one| one["held_out"] == true));
    assert!(residuals.iter().any(|one| one["held_out"] == false));
    let off = document["held_out_mean_latency_error"].as_f64().expect("a number");
    assert!(off < 0.05, "held out, on average off by {off}");
    let drawn = std::fs::read_to_string(scratch.path().join("mine.svg")).expect("a picture");
    assert!(drawn.starts_with("<svg") && drawn.contains("</svg>\n<!-- crosspoint:crc32"));
    // One thread was the bottleneck, and the fit must find its time: 2.8 us as published, plus the client's
    // 0.4 us.
    let profile = std::fs::read_to_string(scratch.path().join("mine.toml")).expect("a profile");
    let time = |name: &str| -> f64 {
        let table: toml::Table = profile.parse().expect("TOML");
        let value = table["flow"][name]["value"].as_str().expect(name);
        value.parse::<units::Nanos>().expect("a time").get() as f64
    };
    let whole = time("thread_time") + time("thread_between");
    assert!((whole / 3_200.0 - 1.0).abs() < 0.05, "{whole} ns");
    assert!((time("thread_time_write") / time("thread_time") - 1.0).abs() < 0.2);
    let fitted = document["categories"][0]["mean_latency_error"].as_f64().expect("a number");
    assert!(fitted < 0.02, "what was fitted comes back {fitted} off");
    // Jobs outside of the measured range must carry a note.
    let words = "run block model:mine.toml --rw randrw --bs 64k --threads 2 --rate 1k/s --runtime 1s \
                 --out runs/out";
    expect(&scratch.run(words), 0);
    let trials = scratch.path().join("runs/out/trials");
    let trial = std::fs::read_dir(trials).expect("trials").next().expect("one").expect("read");
    let said = std::fs::read_to_string(trial.path().join("trial.json")).expect("a trial");
    for outside in ["of several threads blocks of 4 KiB", "closed loops"] {
        assert!(said.contains(outside), "{outside}: {said}");
    }
    assert!(!said.contains("mixes of blocks"), "those of 64 KiB were measured: {said}");
    // These writes queue, so the fit must not assume a write buffer; held-out schedules test it.
    assert!(!profile.contains("paced") && profile.contains("rate = \"4k/s\""), "{profile}");
    // The fitted profile is used like any other; the first few figures are enough here.
    let figures: Vec<&str> = profile.split("[[acceptance]]").take(9).collect();
    std::fs::write(scratch.path().join("mine.toml"), figures.join("[[acceptance]]"))
        .expect("written");
    let check = scratch.run("device check mine.toml");
    // 8: a held-out value is off by more than 10 %; the quality of the fit is not tested here.
    assert!(matches!(check.status.code(), Some(0 | 8)), "{check:?}");
    assert!(String::from_utf8_lossy(&check.stdout).contains("not fitted"));
    let study = "run iops-latency --out runs/again --set stack.target.device=model:mine.toml";
    expect(
        &scratch.run(&format!(
            "{study} --set experiment.*.interval=10ms --set experiment.*.duration=50ms \
                 --set experiment.*.warm_up=10ms"
        )),
        0,
    );
}

#[test]
fn a_run_of_another_study_fits_nothing_and_leaves_nothing() {
    let scratch = Scratch::new();
    let model = "run mixed-sweep --out runs/mix --set stack.target.device=model:ram-disk";
    expect(
        &scratch.run(&format!(
            "{model} --set experiment.*.interval=10ms --set experiment.*.duration=10ms \
             --set experiment.*.warm_up=10ms"
        )),
        0,
    );
    let output = scratch.run("device fit --from runs/mix --name none");
    expect(&output, 3);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no measurement of"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not of `device-fit`"));
    assert!(!scratch.path().join("none.toml").exists());
}

/// Each number of the publication must be found, as printed, next to ours.
#[test]
fn a_published_study_stands_beside_ours() {
    let scratch = Scratch::new();
    let short = "--set experiment.*.interval=10ms --set experiment.*.duration=50ms \
                 --set experiment.*.warm_up=10ms";
    expect(&scratch.run(&format!("run icpads-3dxpoint --out runs/icpads {short}")), 0);
    let page = std::fs::read_to_string(scratch.path().join("runs/icpads/report.html"));
    let page = page.expect("a page");
    for words in
        ["published results and ours", "ICPADS 2018", "IOPS-latency curves", "40000 MB", "holds"]
    {
        assert!(page.contains(words), "{words}");
    }
    let document = scratch.json("figures runs/icpads --json");
    let figures = document["figures"].as_array().expect("a list");
    let published: Vec<&Value> =
        figures.iter().filter(|one| one["source"] == "published").collect();
    assert_eq!(published.len(), 25);
    for one in &published {
        let answered = figures.iter().any(|ours| {
            ours["source"] == "predicted"
                && ["stack", "workload", "metric"].iter().all(|key| ours[key] == one[key])
        });
        assert!(answered, "nothing of ours next to {one}");
        assert!(one["citation"].as_str().is_some_and(|text| text.contains("ICPADS 2018")));
    }
}

/// Keys of modelled hosts must not be ignored silently on a real device.
#[test]
fn model_keys_are_for_models_and_names_are_checked() {
    let scratch = Scratch::new();
    let refused = scratch.run("plan quickstart --set stack.this-disk.cores=4");
    expect(&refused, 3);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("for device models only"));
    let unknown = scratch.run("plan quickstart --set stack.intel-p4800x.host=posix");
    expect(&unknown, 3);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("ext4-psync"));
}

/// The first figure of a run with that metric, workload and point.
fn figure(
    scratch: &Scratch,
    run: &str,
    metric: &str,
    (workload, point): (&str, &[(&str, &str)]),
) -> f64 {
    let document = scratch.json(&format!("figures {run} --json"));
    let figures = document["figures"].as_array().expect("a list");
    let text = |value: &Value| value.to_string().trim_matches('"').to_owned();
    let found = figures.iter().find(|figure| {
        figure["workload"] == workload
            && figure["metric"] == metric
            && point.iter().all(|(key, value)| text(&figure["point"][*key]) == *value)
    });
    found.and_then(|figure| figure["value"].as_f64()).expect("a figure")
}

/// The cost of a commit decides which drive suits a database: a drive without power-loss protection pays for
/// each flush, one with it pays a command, and group commits share the cost.
#[test]
fn group_commit_is_predicted_by_what_a_drive_keeps_over_a_power_cut() {
    let scratch = Scratch::new();
    let short = "--set experiment.*.interval=50ms --set experiment.*.duration=200ms \
                 --set experiment.*.warm_up=50ms";
    let mut gains = Vec::new();
    for drive in ["intel-p4800x", "intel-p3700", "samsung-980-pro"] {
        let device = format!("--set stack.target.device=model:{drive}");
        expect(&scratch.run(&format!("run database-io --out {drive} {device} {short}")), 0);
        let rate = |workload, key, value| {
            figure(&scratch, drive, "iops", (workload, &[("op", "write"), (key, value)]))
        };
        let log = |group| rate("log", "sync_every", group);
        let forced = rate("durability", "dsync", "true");
        gains.push((log("64") / log("1"), forced));
    }
    // A flush is a command: half of the time of such a write on either drive.
    let (xpoint, flash) = (gains[0].0, gains[1].0);
    assert!((1.35..1.46).contains(&xpoint) && (1.46..1.56).contains(&flash), "{gains:?}");
    // Writes of 25 us and a flush of 2 ms, alone or shared by 64: 64 * (25 + 2000) / (64 * 25 + 2000) = 36.
    assert!((28.0..45.0).contains(&gains[2].0), "64 commits share one flush: {gains:?}");
    let forced = gains[1].1 / gains[2].1;
    assert!((150.0..210.0).contains(&forced), "4 ms against 22 us: {forced}");
    // A flush is one program of 2 ms, a FUA write two.
    let flushed = figure(
        &scratch,
        "samsung-980-pro",
        "iops",
        ("durability-flush", &[("op", "write"), ("sync_every", "1")]),
    );
    assert!((0.45..0.55).contains(&(gains[2].1 / flushed)), "{} of {flushed}", gains[2].1);
    // Without a documented write buffer the profile has no flush time.
    let text =
        include_str!("../../../../../devices/intel-p3700.toml").replace("\nwrite_cache", "\n# ");
    std::fs::write(scratch.path().join("mine.toml"), text).expect("written");
    let output = scratch.run("plan database-io --set stack.target.device=model:mine.toml");
    expect(&output, 3);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("`write_cache`"), "{said}");
}

/// ACT opens devices with O_DSYNC unless the file says otherwise; a rating without it is not comparable.
#[test]
fn act_rates_what_is_on_the_medium() {
    let scratch = Scratch::new();
    let late = |drive: &str, odsync: &str| {
        let text = format!(
            "device-names: /dev/null\ntest-duration-sec: 2\nread-reqs-per-sec: 2000\n\
             write-reqs-per-sec: 1000\nlarge-block-op-kbytes: 128\ndisable-odsync: {odsync}\n"
        );
        std::fs::write(scratch.path().join("act.conf"), text).expect("written");
        let run = format!("{drive}-{odsync}");
        let words =
            format!("act act.conf --device model:{drive} --duration 2s --slice 1s --out {run}");
        let output = scratch.run(&words);
        assert!(matches!(output.status.code(), Some(0 | 8)), "{output:?}");
        figure(&scratch, &run, "latency_mean", ("act", &[("op", "background_write")]))
    };
    let (kept, kept_any) = (late("intel-p3700", "no"), late("intel-p3700", "yes"));
    let (lost, lost_any) = (late("samsung-980-pro", "no"), late("samsung-980-pro", "yes"));
    assert!((kept / kept_any - 1.0).abs() < 0.01, "nothing to force: {kept} and {kept_any}");
    let dearer = lost / lost_any;
    assert!(
        (75.0..115.0).contains(&dearer),
        "programs of 4 ms are waited for: {lost} and {lost_any}"
    );
}
