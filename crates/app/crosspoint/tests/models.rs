//! What a user does with device models: fit one to a device, and hold a published study beside it.

mod support;

use serde_json::Value;
use support::{Scratch, expect};

/// A fit that does not come back to what was measured would predict another device. Measured here is a
/// model, so that nothing depends on the machine.
#[test]
fn a_profile_is_fitted_tested_and_usable() {
    let scratch = Scratch::new();
    let model = "run device-fit --out runs/fit --set stack.target.device=model:intel-s3510";
    expect(&scratch.run(&format!("{model} --set experiment.*.repeat=2")), 0);
    let output = scratch.run("device fit --from runs/fit --name mine --json");
    expect(&output, 0);
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let residuals = document["residuals"].as_array().expect("a list");
    assert!(residuals.iter().any(|one| one["held_out"] == true));
    assert!(residuals.iter().any(|one| one["held_out"] == false));
    let off = document["held_out_mean_latency_error"].as_f64().expect("a number");
    assert!(off < 0.10, "held out, on average off by {off}");
    let drawn = std::fs::read_to_string(scratch.path().join("mine.svg")).expect("a picture");
    assert!(drawn.starts_with("<svg") && drawn.ends_with("</svg>\n"));
    // It is a device like any other from here on.
    let check = scratch.run("device check mine.toml");
    expect(&check, 0);
    assert!(String::from_utf8_lossy(&check.stdout).contains("no part of the fit"));
    let study = "run iops-latency --out runs/again --set stack.target.device=model:mine.toml";
    expect(
        &scratch.run(&format!(
            "{study} --set experiment.*.interval=10ms --set experiment.*.measure=50ms"
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
            "{model} --set experiment.*.interval=10ms --set experiment.*.measure=10ms"
        )),
        0,
    );
    let output = scratch.run("device fit --from runs/mix --name none");
    expect(&output, 3);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no measurement of"));
    assert!(!scratch.path().join("none.toml").exists());
}

/// A reader of the publication must find each of its numbers, as printed, beside ours.
#[test]
fn a_published_study_stands_beside_ours() {
    let scratch = Scratch::new();
    let short = "--set experiment.*.interval=10ms --set experiment.*.measure=50ms";
    expect(&scratch.run(&format!("run icpads-3dxpoint --out runs/icpads {short}")), 0);
    let page = std::fs::read_to_string(scratch.path().join("runs/icpads/report.html"));
    let page = page.expect("a page");
    for words in
        ["Published, beside ours", "ICPADS 2018", "IOPS-latency curves", "40000 MB", "holds"]
    {
        assert!(page.contains(words), "{words}");
    }
    let output = scratch.run("figures runs/icpads --json");
    expect(&output, 0);
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let figures = document["figures"].as_array().expect("a list");
    let published: Vec<&Value> =
        figures.iter().filter(|one| one["source"] == "published").collect();
    assert_eq!(published.len(), 25);
    for one in &published {
        let answered = figures.iter().any(|ours| {
            ours["source"] == "predicted"
                && ["stack", "workload", "metric"].iter().all(|key| ours[key] == one[key])
        });
        assert!(answered, "nothing of ours beside {one}");
        assert!(one["citation"].as_str().is_some_and(|text| text.contains("ICPADS 2018")));
    }
}

/// Keys of modelled hosts on a real device would be ignored in silence.
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
