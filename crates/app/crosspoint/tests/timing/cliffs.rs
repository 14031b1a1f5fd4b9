//! A performance drop planted in a real MariaDB must be found at its time and attributed to its cause.

use crate::support::{Scratch, expect, has, is_root, skip, stdout};
use serde_json::Value;

/// The device is limited to 400 reads per second, so cache misses cause a drop far beyond any noise, also on
/// a busy machine; the warm-up is long enough to read every page at that rate.
const STUDY: &str = "schema = 1\nname = \"cliff\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
    file_system = \"ext4\"\nsize = \"512MiB\"\nlimit = { reads = \"400/s\" }\n\
    [[experiment]]\nname = \"e\"\nwarm_up = \"8s\"\nmeasure = \"14s\"\ninterval = \"100ms\"\n\
    [experiment.sql]\nrows = 60000\ntables = 2\nthreads = 4\nworkload = \"point_select\"\n\
    buffer_pool = \"64MiB\"\n\
    change = [{ at = \"15s\", set = \"innodb_buffer_pool_size=8M\" }]\n";

#[test]
fn a_buffer_pool_that_is_made_smaller_is_found_and_named() {
    if !has("mariadbd") || !is_root() {
        skip("a planted cliff", "mariadb-server, or root");
        return;
    }
    let scratch = Scratch::new();
    std::fs::write(scratch.path().join("cliff.toml"), STUDY).expect("written");
    let notes = run_until_the_server_accepts(&scratch);
    let output = scratch.run("figures run --format json");
    expect(&output, 0);
    let document: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let figures = document["figures"].as_array().expect("figures");
    let falls = figures.iter().find(|one| one["metric"] == "cliffs_down").expect("the count");
    assert!(falls["value"].as_f64() >= Some(1.0), "{falls}\n{notes}");
    let page = std::fs::read_to_string(scratch.path().join("run/report.html")).expect("a report");
    let section = page.split("id=\"cliffs\"").nth(1).expect("cliffs");
    let section = section.split("</section>").next().expect("its end");
    assert!(section.contains("the buffer pool was made smaller"), "{section}");
    // Within a second of the planted time.
    let cells = section.split("<td class=\"number\">");
    let mut times = cells.filter_map(|cell| cell.split("</td>").next()?.parse::<f64>().ok());
    assert!(times.any(|at| (14.0..=16.0).contains(&at)), "{section}");
    assert_eq!(scratch.leftovers(), Vec::<std::path::PathBuf>::new());
}

/// MariaDB abandons shrinking its buffer pool while too many pages are in use, and the trial notes that, or
/// has not shrunk it when the trial ends; nothing was planted then. Returns the notes.
fn run_until_the_server_accepts(scratch: &Scratch) -> String {
    let mut notes = String::new();
    for _ in 0..3 {
        expect(&scratch.run("run cliff.toml --out run"), 0);
        let trials = std::fs::read_dir(scratch.path().join("run/trials")).expect("trials");
        let trial = trials.flatten().next().expect("a trial").path().join("trial.json");
        let record: Value =
            serde_json::from_slice(&std::fs::read(trial).expect("a trial")).expect("JSON");
        notes = record["notes"].to_string();
        // It may also accept the size, and take longer than the trial: 400 reads/s for seconds are more.
        let misses = record["totals"]["buffer_pool_misses"].as_f64().unwrap_or_default();
        if notes.contains("\"set innodb_buffer_pool_size") && misses > 500.0 {
            return notes;
        }
        notes += &format!(" {misses} misses");
        std::fs::remove_dir_all(scratch.path().join("run")).expect("removed");
    }
    panic!("the server refused three times: {notes}");
}
