//! Studies of schema 1 must keep their meaning.

use std::fmt::Write;
use std::path::Path;

use study::{parse, plan, resolved_text, short_hash, upgraded_text};

/// Every study that shipped in schema 1 must plan the same trials from its original text, from its text in
/// schema 2, and as stored with a run.
///
/// Otherwise a run made with one could not be resumed, or would show other parameters.
#[test]
fn studies_of_schema_1_plan_the_same_trials() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/schema-1");
    let mut found = String::new();
    let mut files: Vec<_> = std::fs::read_dir(&fixtures).unwrap().flatten().collect();
    files.sort_by_key(std::fs::DirEntry::file_name);
    for file in files.iter().map(std::fs::DirEntry::path) {
        if file.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let study = parse(&text, crosspoint_engines::list())
            .unwrap_or_else(|error| panic!("{file:?}: {error}"));
        let trials = plan(&study).trials;
        for other in [upgraded_text(&text).unwrap().into_owned(), resolved_text(&study)] {
            let other = parse(&other, crosspoint_engines::list())
                .unwrap_or_else(|error| panic!("{other}: {error}"));
            assert!(plan(&other).trials == trials, "{file:?}");
        }
        let whole: Vec<String> = trials
            .iter()
            .map(|one| format!("{} {} {}", one.slug(), one.job.engine(), one.point_text()))
            .collect();
        let (count, hash) = (trials.len(), short_hash(&whole.join("\n")));
        let _ = writeln!(found, "{} {count} {hash}", study.name);
    }
    assert_eq!(found, include_str!("../../../../fixtures/schema-1/plans.txt"));
}

/// Options that schema 1 ignored for some engines are still accepted, and those that it rejected still
/// rejected.
#[test]
fn options_of_other_engines_are_ignored_as_they_were() {
    let study = |kind: &str, keys: &str| {
        let text = format!(
            "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n[[experiment]]\n\
             name = \"e\"\n[experiment.{kind}]\n{keys}"
        );
        parse(&text, crosspoint_engines::list())
    };
    let kv = "engine = [\"sqlite\", \"lmdb\"]\nrecords = 10\nvalue_size = \"100B\"\n";
    let both =
        study("kv", &format!("{kv}write_map = [false, true]\nlibrary = \"auto\"\n")).unwrap();
    let points: Vec<String> = plan(&both).trials.iter().map(study::Trial::point_text).collect();
    let mapped = points.iter().filter(|point| point.contains("write_map=true")).count();
    assert_eq!((points.len(), mapped), (3, 1), "SQLite has one point, LMDB two: {points:?}");
    let sql = "engine = \"sqlite\"\nrows = 10\n";
    assert!(study("sql", &format!("{sql}doublewrite = true\ncompression = \"none\"\n")).is_ok());
    assert!(study("sql", &format!("{sql}settings = \"innodb_io_capacity=1\"\n")).is_err());
    assert!(study("kv", &format!("{kv}options = \"write_buffer_size=1\"\n")).is_err());
}

/// The experiment of a study with two stacks.
fn experiment(schema: u32, text: &str) -> study::Experiment {
    let text = format!(
        "schema = {schema}\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n[[experiment]]\n\
         name = \"e\"\n{text}"
    );
    let parsed = parse(&text, crosspoint_engines::list());
    let study = parsed.unwrap_or_else(|error| panic!("{text}\n{error}"));
    let again = parse(&resolved_text(&study), crosspoint_engines::list()).expect("resolved");
    assert_eq!(study.experiment, again.experiment, "the resolved study is a study");
    study.experiment.into_iter().next().expect("it has one")
}

/// Each key of schema 1, with a non-default value, next to the equivalent in schema 2: a key lost in the
/// conversion would change what a study measures.
#[test]
fn every_key_of_schema_1_keeps_its_value() {
    let pairs = include_str!("../../../../fixtures/schema-1/keys.txt");
    let mut count = 0;
    for pair in pairs.split("\n====\n") {
        let (old, new) = pair.split_once("\n----\n").expect("schema 1, then schema 2");
        assert_eq!(experiment(1, old), experiment(2, new), "{old}");
        count += 1;
    }
    assert_eq!(count, 5);
}

/// Two spellings of one key must be rejected; otherwise one would silently win.
#[test]
fn a_key_by_both_of_its_names_is_refused() {
    for twice in [
        "[experiment.block]\nthreads = 2\nclients = 8\n",
        "measure = \"1s\"\nduration = \"2s\"\n[experiment.block]\n",
        "[experiment.block]\n[experiment.job]\nengine = \"block\"\n",
        "[experiment.kv]\nengine = \"lmdb\"\nrecords = 1\nvalue_size = \"16B\"\nreaders = 8\n\
         threads = 4\n",
    ] {
        let text = format!(
            "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
             [[experiment]]\nname = \"e\"\n{twice}"
        );
        let error = parse(&text, crosspoint_engines::list()).unwrap_err().to_string();
        assert!(error.contains("use one of them"), "{twice}: {error}");
    }
}

/// `--set` must work on the study of an old run, which has every default written out, including those of
/// other engines.
#[test]
fn a_resolved_study_of_schema_1_takes_overrides() {
    let text = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n[[experiment]]\n\
                name = \"e\"\n[experiment.kv]\nengine = [\"lmdb\"]\nrecords = 10\n\
                value_size = \"100B\"\nlibrary = \"auto\"\nwrite_map = [false]\n";
    let set = study::apply_overrides(text, &["stack.d.size=2GiB".to_owned()]).unwrap();
    assert!(parse(&set, crosspoint_engines::list()).is_ok(), "{set}");
}

/// In schema 1 an axis of ignored options created a trial for each value; the stored run must keep its trial
/// numbers.
#[test]
fn a_stored_run_keeps_the_trials_of_ignored_options() {
    let count = |study: Result<study::Study, _>| plan(&study.unwrap()).trials.len();
    for (engines, stored, today) in [("\"sqlite\", \"mysql\"", 4, 3), ("\"sqlite\"", 2, 1)] {
        let text = format!(
            "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n[[experiment]]\n\
             name = \"e\"\n[experiment.sql]\nengine = [{engines}]\nrows = 10\n\
             doublewrite = [true, false]\n"
        );
        assert_eq!(count(study::parse_stored(&text, crosspoint_engines::list())), stored);
        assert_eq!(count(parse(&text, crosspoint_engines::list())), today);
    }
}

/// Otherwise a resumed run would run one trial twice and another never.
#[test]
fn a_stored_run_keeps_the_order_of_ignored_options() {
    let text = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n[[experiment]]\n\
                name = \"e\"\n[experiment.sql]\nengine = \"sqlite\"\nrows = 10\n\
                doublewrite = [true, false]\npage_size = [\"4KiB\", \"16KiB\"]\n";
    let study = study::parse_stored(text, crosspoint_engines::list()).unwrap();
    let points: Vec<String> = plan(&study).trials.iter().map(study::Trial::point_text).collect();
    let sizes: Vec<bool> = points.iter().map(|one| !one.contains("page_size=4KiB")).collect();
    assert_eq!(sizes, [false, false, true, true], "page_size was the outer axis: {points:?}");
}
