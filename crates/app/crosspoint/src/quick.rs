//! Ad-hoc jobs: `run block --rw randread --bs 16k --iodepth 4 DIRECTORY` becomes the text of a study, which
//! is stored with the run. Values are checked by the rules of studies.

use std::fmt::Write;
use std::path::Path;

use study::{Descriptor, Operations, VirtualTime};

use crate::cli::JobArguments;

/// The engine of an ad-hoc job, unless `name` is a file.
pub fn job_engine(name: &str) -> Option<&'static Descriptor> {
    engines::commands().find(|one| one.command == name).filter(|_| !Path::new(name).is_file())
}

/// Options of jobs of one kind.
const BLOCK: &[&str] = &["rw", "bs", "iodepth", "rwmixread", "fdatasync", "size"];
const KEY_VALUE: &[&str] = &["value-size"];
const SQL: &[&str] = &["tables", "buffer-pool"];
const DATABASES: &[&str] = &["records", "workload", "memory", "durability", "option"];

/// The study of a job.
pub fn study_of(
    engine: &Descriptor,
    targets: &[String],
    job: &JobArguments,
) -> Result<String, String> {
    let Descriptor { command, operations, .. } = *engine;
    let foreign: &[&[&str]] = match operations {
        Operations::Block => &[KEY_VALUE, SQL, DATABASES],
        Operations::Sql => &[BLOCK, KEY_VALUE],
        Operations::KeyValue => &[BLOCK, SQL],
    };
    let given = serde_json::to_value(job).map_err(|error| error.to_string())?;
    if let Some(name) = foreign.iter().copied().flatten().find(|name| !given[**name].is_null()) {
        return Err(format!("{command} jobs have no option --{name}"));
    }
    let mut text = format!("schema = 2\nname = {command:?}\n\n");
    match targets {
        [] => stack(&mut text, engine, ("target", "."), job),
        [one] => stack(&mut text, engine, ("target", one), job),
        several => {
            let mut names: Vec<String> = Vec::new();
            for target in several {
                let name = stack_name(target);
                let again = names.iter().filter(|other| **other == name).count();
                names.push(name.clone());
                let name = if again > 0 { format!("{name}-{}", again + 1) } else { name };
                stack(&mut text, engine, (&name, target), job);
            }
        }
    }
    let runtime = job.runtime.as_deref().map_or_else(|| "10s".to_owned(), time);
    let _ = write!(
        text,
        "\n[[experiment]]\nname = \"job\"\nwarm_up = \"1s\"\nduration = {}\ninterval = \"250ms\"\n\n\
         [experiment.job]\nengine = {:?}\n",
        quoted(&runtime),
        engine.name
    );
    match operations {
        Operations::Block => block_job(&mut text, job)?,
        Operations::Sql => sql_job(&mut text, job),
        Operations::KeyValue => key_value_job(&mut text, job),
    }
    if let Some(memory) = &job.memory {
        let _ = writeln!(text, "memory = {}", quoted(&bytes(memory)));
    }
    if let Some(rate) = &job.rate {
        // An open-loop rate; SQL clients have no other kind.
        let arrivals = if operations == Operations::Sql { "" } else { "arrivals = \"poisson\"\n" };
        let _ = writeln!(text, "{arrivals}rate = {}", quoted(&per_second(rate)));
    }
    if let Some(pool) = &job.buffer_pool {
        let _ = writeln!(text, "options.buffer_pool = {}", quoted(&bytes(pool)));
    }
    for option in &job.options {
        let (name, value) = option.split_once('=').ok_or_else(|| {
            format!("--option {option} has no `=`; example: --option write_map=true")
        })?;
        let flag = ["true", "false"].contains(&value);
        let value = if flag { value.to_owned() } else { quoted(value) };
        let bare = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = if name.chars().all(bare) { name.to_owned() } else { quoted(name) };
        let _ = writeln!(text, "options.{name} = {value}");
    }
    Ok(text)
}

/// Targets of `--on`: `this-disk`, a path, or a drive of the catalogue.
pub fn targets_of(on: &[String]) -> Vec<String> {
    let target = |one: &String| match one.as_str() {
        "this-disk" => ".".to_owned(),
        model if model.starts_with("model:") || Path::new(model).is_dir() => model.to_owned(),
        path if path.contains('/') => path.to_owned(),
        name => format!("model:{name}"),
    };
    on.iter().map(target).collect()
}

/// The name of a target's stack.
pub fn stack_name(target: &str) -> String {
    let name = match target {
        "." => "this-disk",
        other => other.strip_prefix("model:").unwrap_or(other),
    };
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    match name.trim_matches('-') {
        "" => "target".to_owned(),
        name => name.to_owned(),
    }
}

fn stack(text: &mut String, engine: &Descriptor, (name, target): (&str, &str), job: &JobArguments) {
    let database = engine.operations != Operations::Block;
    let size = job.size.as_deref().map_or_else(|| "1GiB".to_owned(), bytes);
    let _ = write!(text, "[[stack]]\nname = {}\n", quoted(name));
    if target.starts_with("model:") {
        let _ = writeln!(text, "device = {}", quoted(target));
        if database && engine.virtual_time == VirtualTime::No {
            let _ = writeln!(text, "attach = true\nfile_system = \"ext4\"\nsize = \"4GiB\"");
        } else if !database && job.size.is_some() {
            let _ = writeln!(text, "size = {}", quoted(&size));
        }
    } else if target.starts_with("/dev/") {
        let _ = writeln!(text, "device = {}", quoted(target));
        if database {
            let _ = writeln!(text, "file_system = \"ext4\"");
        }
        let _ = writeln!(text, "allow_write = {}", database || writes(job));
    } else {
        let title =
            if target == "." { "this disk".into() } else { format!("the disk of {target}") };
        let _ = writeln!(
            text,
            "title = {}\ndevice = \"file\"\ndirectory = {}\nsize = {}",
            quoted(&title),
            quoted(target),
            quoted(&size)
        );
    }
}

fn writes(job: &JobArguments) -> bool {
    !matches!(job.rw.as_deref(), None | Some("read" | "randread"))
}

fn block_job(text: &mut String, job: &JobArguments) -> Result<(), String> {
    let word = job.rw.as_deref().unwrap_or("randread");
    let (pattern, share) = match word {
        "read" => ("sequential", 100),
        "write" => ("sequential", 0),
        "rw" | "readwrite" => ("sequential", job.rwmixread.unwrap_or(50)),
        "randread" => ("random", 100),
        "randwrite" => ("random", 0),
        "randrw" => ("random", job.rwmixread.unwrap_or(50)),
        other => {
            return Err(format!(
                "--rw {other}; allowed: read, write, rw, randread, randwrite, randrw"
            ));
        }
    };
    let size = job.bs.as_deref().map_or_else(|| "4KiB".to_owned(), bytes);
    let _ = writeln!(
        text,
        "pattern = {pattern:?}\nread_share = \"{share}%\"\nblock_size = {}\nqueue_depth = {}\n\
         clients = {}",
        quoted(&size),
        numbers(&job.iodepth, 1),
        numbers(&job.clients, 1)
    );
    if let Some(every) = job.fdatasync {
        let _ = writeln!(text, "sync_every = {every}");
    }
    Ok(())
}

/// One number, or a list.
fn numbers(given: &[u32], default: u32) -> String {
    match given {
        [] => default.to_string(),
        [one] => one.to_string(),
        several => format!("{several:?}"),
    }
}

/// Converts names of db_bench and YCSB: `readrandom` is `read_random`, `ycsb-a` is `ycsb_a`.
fn ours(name: &str) -> &str {
    let bare = |word: &str| word.replace(['_', '-'], "");
    let same = |word: &&&str| bare(word) == bare(name);
    study::KvWorkload::WORDS.iter().find(same).unwrap_or(&name)
}

fn key_value_job(text: &mut String, job: &JobArguments) {
    let _ = writeln!(
        text,
        "workload = {}\nrecords = {}\nvalue_size = {}\nclients = {}\ndurability = {}",
        quoted(job.workload.as_deref().map_or("overwrite", ours)),
        job.records.unwrap_or(100_000),
        quoted(&job.value_size.as_deref().map_or_else(|| "400B".to_owned(), bytes)),
        numbers(&job.clients, 1),
        quoted(job.durability.as_deref().unwrap_or("os")),
    );
}

fn sql_job(text: &mut String, job: &JobArguments) {
    // pgbench has hyphens in its names.
    let workload = job.workload.as_deref().unwrap_or("read_write").replace('-', "_");
    let of_pgbench = workload.parse().is_ok_and(study::SqlWorkload::is_of_pgbench);
    let _ = writeln!(
        text,
        "workload = {}\ntables = {}\nrecords = {}\nclients = {}\ndurability = {}",
        quoted(&workload),
        job.tables.unwrap_or(4),
        job.records.unwrap_or(if of_pgbench { 100_000 } else { 25_000 }),
        numbers(&job.clients, 8),
        quoted(job.durability.as_deref().unwrap_or("device")),
    );
}

/// Says if all data of a job that reads fit in memory: then the drive hardly matters.
pub fn memory_note(text: &str) -> Option<String> {
    let study = study::parse(text, engines::list()).ok()?;
    let plan = study::plan(&study);
    let (held, data, option) = match &plan.trials.first()?.job {
        study::Job::Sql(job) => {
            let pool = job.options.text("buffer_pool");
            let holds = pool.parse::<units::Bytes>().is_ok_and(|pool| pool >= job.data());
            (holds.then(|| format!("the buffer pool of {pool}")), job.data(), "--buffer-pool 20%")
        }
        study::Job::Kv(job) => {
            let reads = ["read", "seek", "ycsb"];
            let reads = reads.iter().any(|word| job.workload.word().contains(word));
            let holds = reads && job.memory.text() == "unlimited";
            (holds.then(|| "memory, which is unlimited,".to_owned()), job.data(), "--memory 20%")
        }
        study::Job::Block(_) | study::Job::Act(_) => return None,
    };
    let held = held?;
    Some(format!(
        "{held} holds all {data} of data, so the drive sees few reads; to change that: {option}"
    ))
}

/// Quotes a text for TOML, whose escapes differ from Rust's.
pub fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Converts fio's `16k` and `16kb` to 16 KiB; other texts are unchanged.
fn bytes(text: &str) -> String {
    let number = |text: &str| text.parse::<u64>().is_ok();
    let kinds = [("k", "KiB"), ("m", "MiB"), ("g", "GiB"), ("t", "TiB")];
    let known = kinds.into_iter().find_map(|(short, whole)| {
        // Units in capitals are decimal.
        let plain = text.strip_suffix('b').unwrap_or(text).to_ascii_lowercase();
        let count = plain.strip_suffix(short).filter(|count| number(count))?;
        Some(format!("{count}{whole}"))
    });
    known.unwrap_or_else(|| if number(text) { format!("{text}B") } else { text.to_owned() })
}

/// fio's `60` is 60 seconds.
fn time(text: &str) -> String {
    if text.parse::<u64>().is_ok() { format!("{text}s") } else { text.to_owned() }
}

/// Converts fio's rates: `5k` is 5000 per second.
fn per_second(text: &str) -> String {
    if text.contains('/') { text.to_owned() } else { format!("{text}/s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_text(engine: &str, target: Option<&str>, job: &JobArguments) -> Result<String, String> {
        let targets: Vec<String> = target.map(str::to_owned).into_iter().collect();
        study_of(job_engine(engine).expect("an engine"), &targets, job)
    }

    fn made(engine: &str, target: Option<&str>, job: &JobArguments) -> study::Study {
        let text = made_text(engine, target, job).expect("a study");
        study::parse(&text, engines::list()).unwrap_or_else(|error| panic!("{text}\n{error}"))
    }

    /// An option listed for a job that ignores it would be accepted without effect.
    #[test]
    fn options_are_listed_by_their_names() {
        let command = <JobArguments as clap::Args>::augment_args(clap::Command::new("run"));
        let long: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        for name in [BLOCK, KEY_VALUE, SQL, DATABASES].concat() {
            assert!(long.contains(&name), "{name}");
        }
    }

    /// Options with fio's names must mean what they mean in fio.
    #[test]
    fn words_mean_what_they_mean_to_fio() {
        let job = JobArguments {
            rw: Some("randrw".into()),
            bs: Some("16k".into()),
            iodepth: vec![4],
            rwmixread: Some(70),
            runtime: Some("60".into()),
            clients: vec![2],
            ..JobArguments::default()
        };
        let study = made("block", Some("model:intel-p4800x"), &job);
        let plan = study::plan(&study);
        let point = plan.trials[0].point_text();
        for part in ["block_size=16KiB", "read_share=70%", "queue_depth=4", "clients=2"] {
            assert!(point.contains(part), "{part}: {point}");
        }
        assert_eq!(plan.trials[0].timeline.measure, units::Nanos::from_secs(60));
        assert_eq!((bytes("4096"), bytes("1M")), ("4096B".into(), "1MiB".into()));
        assert_eq!((bytes("4kb"), bytes("4kB")), ("4KiB".into(), "4kB".into()));
        assert_eq!((bytes("1GB"), ours("ycsb-a")), ("1GB".into(), "ycsb_a"));
        let job = JobArguments { clients: vec![1, 2, 4], ..JobArguments::default() };
        assert_eq!(study::plan(&made("lmdb", None, &job)).trials.len(), 3);
    }

    /// Without the note a job that never reads from the drive looks like a slow or fast drive.
    #[test]
    fn data_in_memory_is_noted() {
        let note = |engine: &str, job: &JobArguments| {
            memory_note(&made_text(engine, None, job).expect("a study"))
        };
        let pool = JobArguments { buffer_pool: Some("8m".into()), ..JobArguments::default() };
        let reads = JobArguments { workload: Some("readrandom".into()), ..JobArguments::default() };
        assert!(note("mariadb", &JobArguments::default()).is_some_and(|note| note.contains("128")));
        assert!(note("lmdb", &reads).is_some_and(|note| note.contains("--memory 20%")));
        for (engine, job) in [("mariadb", &pool), ("lmdb", &JobArguments::default())] {
            assert_eq!(note(engine, job), None, "{engine}");
        }
    }

    /// Several targets run one job, so that their results can be compared.
    #[test]
    fn several_targets_are_several_stacks() {
        let on = ["gp3+iops=6000", "990-pro", "this-disk"].map(str::to_owned);
        let engine = job_engine("sqlite").expect("an engine");
        let text = study_of(engine, &targets_of(&on), &JobArguments::default()).expect("a study");
        let study = study::parse(&text, engines::list()).expect("a study");
        let names: Vec<&str> = study.stack.iter().map(|stack| stack.name.as_str()).collect();
        assert_eq!(names, ["gp3-iops-6000", "990-pro", "this-disk"]);
        assert_eq!(study::plan(&study).trials.len(), 3);
    }

    /// Directory names may contain any characters.
    #[test]
    fn any_name_of_a_directory_is_text() {
        for name in ["caf\u{65}\u{301}", "a\u{a0}b", "q\"u'o\\te"] {
            for engine in ["block", "lmdb", "mariadb"] {
                let study = made(engine, Some(name), &JobArguments::default());
                assert_eq!(study.stack[0].directory, name);
            }
        }
    }

    /// The guard must see every job that writes to a device, and a reading job must not open it for writing.
    #[test]
    fn only_jobs_that_write_may_write() {
        let of = |word: &str| {
            let job = JobArguments { rw: Some(word.into()), ..JobArguments::default() };
            made("block", Some("/dev/disk/by-id/x"), &job).stack[0].allow_write
        };
        assert!(!of("randread") && !of("read") && of("randwrite") && of("rw"));
    }

    #[test]
    fn every_engine_has_a_job_of_its_own() {
        for engine in engines::commands().map(|one| one.command) {
            for target in [None, Some("model:intel-s3520")] {
                let study = made(engine, target, &JobArguments::default());
                assert_eq!(study::plan(&study).trials.len(), 1, "{engine}");
            }
        }
        let pool = JobArguments { buffer_pool: Some("64m".into()), ..JobArguments::default() };
        let sql = made("mariadb", None, &pool).experiment[0].job.first().clone();
        assert_eq!(sql.sql().expect("sql").options.text("buffer_pool"), "64MiB");
        assert!(made_text("lmdb", None, &pool).is_err());
        let map =
            |option: &str| JobArguments { options: vec![option.into()], ..Default::default() };
        let mapped = made("lmdb", None, &map("write_map=true"));
        assert!(study::plan(&mapped).trials[0].point_text().contains("write_map=true"));
        assert!(made_text("lmdb", None, &map("write_map")).is_err());
        let held = JobArguments { memory: Some("128m".into()), ..JobArguments::default() };
        let kv = made("lmdb", None, &held).experiment[0].job.first().clone();
        assert_eq!(kv.key_value().expect("kv").memory.text(), "128MiB");
        assert!(made_text("block", None, &held).is_err());
        let rows = JobArguments { tables: Some(5), ..JobArguments::default() };
        assert!(
            made_text("lmdb", None, &rows).is_err(),
            "an option of another engine is not ignored"
        );
        let word = JobArguments { rw: Some("trim".into()), ..JobArguments::default() };
        assert!(made_text("block", None, &word).is_err());
    }
}
