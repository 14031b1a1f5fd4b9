//! `crosspoint advise`: which drives and volumes are enough for a database.
//!
//! Writes a study of the shortlist in virtual time: the required rate in an open loop, and as fast as it
//! goes. Large data are scaled down together with memory, so that the share of data in memory, and with
//! uniform access the hit ratio, stay the same. Invariant: what was assumed is printed.

use std::fmt::Write as _;
use std::io::{BufRead, IsTerminal, Write as _};

use analysis::suitability::{P99_ERROR, RATE_ERROR};
use device::Parameters;
use study::{Descriptor, Operations};
use units::{Bytes, Rate, Share};

use crate::cli::AdviseArguments;
use crate::exit::{self, ExitCode};
use crate::finish::finish_run;
use crate::quick::{quoted, stack_name};
use crate::running::Running;
use crate::show::Failure;
use crate::words::plain;

/// Drives and volumes that are considered unless the user names some.
const SHORTLIST: [&str; 10] = [
    "aws-gp3", "aws-gp3+iops=6000", "aws-gp3-16k", "aws-io2-bx+iops=8000", "azure-premium-ssd-v2",
    "aws-i4i-4xlarge", "samsung-990-pro", "samsung-pm9a3", "micron-7450-max", "kioxia-cm7-r",
];
/// Simulated data of a server, and of an embedded engine.
const DATA_MAX: [Bytes; 2] = [Bytes(256 << 20), Bytes(512 << 20)];
/// Memory of a server's processes besides its caches.
const SERVER_MEMORY: u64 = 128 << 20;
/// Smallest memory limit of an embedded engine that a study allows, and the data simulated to have the right
/// share of them in it.
const MEMORY_MIN: u64 = 96 << 20;
const DATA_FOR_MEMORY: u64 = 2 << 30;
/// Size of data and memory unless the user says.
const USUAL: [Bytes; 2] = [Bytes(100_000_000_000), Bytes(16_000_000_000)];
/// Shares of memory for caches of a server with direct I/O, and of one that relies on the page cache.
const POOL_SHARE: [f64; 2] = [0.75, 0.25];
/// Bytes of a row of sysbench's tables, and of an account of pgbench, with their indexes.
const ROW_BYTES: [u64; 2] = [240, 150];
/// Operations for a p99 of each half of a mix, and the shortest and longest measurement, in seconds.
const SAMPLES: f64 = 3000.0;
const SECONDS: (f64, f64) = (2.0, 600.0);

pub fn run(arguments: &AdviseArguments) -> Result<ExitCode, Failure> {
    let mut arguments = arguments.clone();
    if arguments.engine.is_none() {
        if !std::io::stdin().is_terminal() {
            let all: Vec<&str> = engines().map(|one| one.command).collect();
            say!(
                "error: no engine is named\n  allowed: {}\n  help: crosspoint advise postgres --data 100GB \
                  --memory 16GB --rate 200/s --p99 5ms",
                all.join(", ")
            );
            return Ok(exit::USAGE);
        }
        ask_all(&mut arguments);
    }
    let found = load_of(&arguments).and_then(|load| Ok((study_of(&load)?, load)));
    let (text, load) = match found {
        Ok(found) => found,
        Err(wrong) => {
            say!("error: {}\n  help: crosspoint advise --help", plain(&wrong));
            return Ok(exit::USAGE);
        }
    };
    if arguments.print {
        out!("{}", text.trim_end());
        return Ok(exit::OK);
    }
    let end = Running::start()?.execute(&text, (arguments.out.clone(), &[]), arguments.progress)?;
    load.assumptions().iter().for_each(|line| out!("assumed: {line}"));
    finish_run(&end)
}

/// Engines whose drives can be simulated.
fn engines() -> impl Iterator<Item = &'static Descriptor> {
    engines::commands().filter(|one| one.operations != Operations::Block)
}

/// What is asked of the storage.
struct Load<'a> {
    engine: &'static Descriptor,
    arguments: &'a AdviseArguments,
    workload: String,
    /// Data as they are, and as they are simulated.
    real: Bytes,
    data: Bytes,
    /// Memory over data as they are, and the share of simulated data that is in memory.
    ratio: f64,
    in_memory: f64,
    rate: Option<Rate>,
}

fn load_of(arguments: &AdviseArguments) -> Result<Load<'_>, String> {
    let name = arguments.engine.as_deref().unwrap_or_default();
    let engine =
        engines().find(|one| one.command == name || one.name == name).ok_or_else(|| {
            let all: Vec<&str> = engines().map(|one| one.command).collect();
            format!("{name} is not an engine; allowed: {}", all.join(", "))
        })?;
    let is_sql = engine.operations == Operations::Sql;
    let [real, memory] = [arguments.data.unwrap_or(USUAL[0]), arguments.memory.unwrap_or(USUAL[1])];
    if real.get() < 1 << 20 || memory.get() < 1 << 20 {
        return Err("--data and --memory are at least 1MiB".into());
    }
    let record = arguments.value_size.get() + KEY_BYTES;
    let rate = match arguments.ingest {
        Some(_) if is_sql => return Err(format!("{name} takes --rate, not --ingest")),
        Some(bytes) => Some(Rate(bytes.get() / record)),
        None => arguments.rate,
    };
    if rate == Some(Rate(0)) {
        return Err("the required rate is below one record per second".into());
    }
    if arguments.p99.is_some() && rate.is_none() {
        return Err("--p99 needs the rate at which it is required: --rate 200/s".into());
    }
    // Of PostgreSQL, pgbench's own script.
    let mixed = if engine.name == "postgres" { 0.2 } else { 0.5 };
    let usual = if arguments.ingest.is_some() { 0.0 } else { mixed };
    let reads = arguments.reads.map_or(usual, Share::fraction);
    let workload = arguments.workload.clone();
    let workload = workload.unwrap_or_else(|| workload_of(engine, reads).to_owned());
    let ratio = memory.get() as f64 / real.get() as f64;
    let mut data = real.min(DATA_MAX[usize::from(!is_sql)]);
    let mut in_memory = ratio.min(1.0);
    if !is_sql && in_memory < 1.0 {
        // Limits below the smallest one would not limit.
        let most = real.get().min(DATA_FOR_MEMORY).max(data.get());
        data = Bytes(((MEMORY_MIN as f64 / ratio) as u64).clamp(data.get(), most));
        in_memory = ratio.max(MEMORY_MIN as f64 / data.get() as f64).min(1.0);
    }
    Ok(Load { engine, arguments, workload, real, data, ratio, in_memory, rate })
}

/// Rounded, for labels that people can read.
fn whole_mib(bytes: f64) -> Bytes {
    Bytes(((bytes / 1_048_576.0).round() as u64) << 20)
}

/// Bytes of a key.
const KEY_BYTES: u64 = 16;

/// The workload whose share of reads is nearest.
fn workload_of(engine: &Descriptor, reads: f64) -> &'static str {
    let known: &[(f64, &str)] = match (engine.operations, engine.name) {
        (Operations::Sql, "postgres") => {
            &[(1.0, "select_only"), (0.78, "read_write"), (0.2, "tpcb_like")]
        }
        (Operations::Sql, _) => &[(1.0, "read_only"), (0.78, "read_write"), (0.0, "write_only")],
        _ => &[(1.0, "read_random"), (0.95, "ycsb_b"), (0.5, "ycsb_a"), (0.0, "overwrite")],
    };
    let far = |one: &&(f64, &str)| (one.0 - reads).abs();
    known.iter().min_by(|a, b| far(a).total_cmp(&far(b))).map_or("", |one| one.1)
}

impl Load<'_> {
    /// What the user did not say, and what is scaled.
    fn assumptions(&self) -> Vec<String> {
        let scale = self.real.get() as f64 / self.data.get() as f64;
        let access = match self.workload.starts_with("ycsb") {
            true => "Zipf-distributed access (0.99)",
            false => "uniform access",
        };
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let mut all = vec![
            format!(
                "workload {}, durability {}, {} cores, {access}, caches cold at the start",
                self.workload,
                self.arguments.durability.word(),
                self.arguments.cores
            ),
            format!(
                "errors of a factor of {RATE_ERROR} for rates and {P99_ERROR} for p99 where none is known; \
                 without the drive models' own errors"
            ),
        ];
        if scale > 1.0 {
            all.push(format!(
                "{} of data instead of {}, {} of them in memory: indexes have fewer levels, and no \
                 compaction or vacuum builds up",
                self.data,
                self.real,
                percent(self.in_memory)
            ));
        }
        if self.in_memory > self.ratio * 1.01 {
            all.push(format!(
                "{} of the data in memory instead of {}: the smallest limit is {}",
                percent(self.in_memory),
                percent(self.ratio),
                Bytes(MEMORY_MIN)
            ));
        }
        all
    }

    /// Seconds of the measurement at the required rate.
    fn seconds(&self) -> f64 {
        let rate = self.rate.map_or(f64::MAX, |rate| rate.get() as f64);
        (SAMPLES / rate).clamp(SECONDS.0, SECONDS.1)
    }

    /// The keys of the job, without its rate.
    fn job(&self) -> String {
        let Self { engine, arguments, .. } = self;
        let mut text = format!(
            "\n[experiment.job]\nengine = {:?}\nworkload = {}\nclients = {}\ndurability = \"{}\"\n",
            engine.name,
            quoted(&self.workload),
            arguments.clients,
            arguments.durability.word()
        );
        if engine.operations == Operations::Sql {
            self.server_job(&mut text);
        } else {
            let record = arguments.value_size.get() + KEY_BYTES;
            let _ = writeln!(
                text,
                "records = {}\nvalue_size = {}",
                (self.data.get() / record).max(1),
                quoted(&arguments.value_size.exact())
            );
            if self.in_memory < 1.0 {
                let memory = (self.data.get() as f64 * self.in_memory) as u64;
                let _ =
                    writeln!(text, "memory = {}", quoted(&Bytes(memory.max(MEMORY_MIN)).exact()));
            }
        }
        text
    }

    fn server_job(&self, text: &mut String) {
        let postgres = self.engine.name == "postgres";
        let of_pgbench = self.workload.parse().is_ok_and(study::SqlWorkload::is_of_pgbench);
        let rows = self.data.get() / ROW_BYTES[usize::from(of_pgbench)];
        if of_pgbench {
            let _ = writeln!(text, "records = {}", (rows / 100_000).max(1) * 100_000);
        } else {
            let _ = writeln!(text, "tables = 4\nrecords = {}", (rows / 4).max(1));
        }
        let memory = self.data.get() as f64 * self.ratio;
        if postgres && self.ratio < 1.0 {
            let memory = whole_mib(memory + SERVER_MEMORY as f64);
            let _ = writeln!(text, "memory = {}", quoted(&memory.exact()));
        }
        // Not more than the tables need, with some room.
        let pool = (memory * POOL_SHARE[usize::from(postgres)]).min(self.data.get() as f64 * 1.25);
        let pool = whole_mib(pool.max(8e6));
        let _ = writeln!(text, "options.buffer_pool = {}", quoted(&pool.exact()));
    }
}

/// The study of a load on the shortlist.
fn study_of(load: &Load<'_>) -> Result<String, String> {
    let Load { engine, arguments, rate, .. } = load;
    let mut text = format!(
        "schema = 2\nname = \"advise\"\nquestion = {}\nanswer = \"suitability\"\n",
        quoted(&format!("Which storage is enough for {}?", engine.title_of("")))
    );
    let all: Vec<&str> = match arguments.on.as_slice() {
        [] => SHORTLIST.to_vec(),
        some => some.iter().map(String::as_str).collect(),
    };
    for name in &all {
        stack(&mut text, (name, arguments.cores), load.real.max(Bytes(1 << 30)))?;
    }
    let job = load.job();
    if let Some(rate) = rate {
        let objective = arguments.p99.map_or_else(String::new, |p99| {
            format!("objectives = [\"p99 <= {} at {}\"]\n", p99.exact(), rate.exact())
        });
        let arrivals = match engine.operations {
            Operations::Sql => "",
            _ => "arrivals = \"poisson\"\n",
        };
        let _ = write!(
            text,
            "\n[[experiment]]\nname = \"need\"\ntitle = \"At {rate}\"\n{objective}warm_up = \"2s\"\n\
             duration = \"{}ms\"\ninterval = \"250ms\"\n{job}{arrivals}rate = \"{}\"\n",
            (load.seconds() * 4.0).ceil() as u64 * 250,
            rate.exact()
        );
    }
    let _ = write!(
        text,
        "\n[[experiment]]\nname = \"limit\"\ntitle = \"As fast as it goes\"\nwarm_up = \"2s\"\nduration = \
         \"2s\"\ninterval = \"250ms\"\n{job}"
    );
    study::parse(&text, engines::list()).map_err(|error| error.to_string())?;
    Ok(text)
}

/// Adds a stack; `size` is that of a volume.
fn stack(text: &mut String, (name, cores): (&str, u32), size: Bytes) -> Result<(), String> {
    let profile = runner::profile(name).map_err(|error| error.to_string())?;
    let _ = write!(
        text,
        "\n[[stack]]\nname = {}\ndevice = {}\ncores = {}\n",
        quoted(&stack_name(name)),
        quoted(&format!("model:{}", name.strip_prefix("model:").unwrap_or(name))),
        cores
    );
    if let Parameters::Cloud(volume) = &profile.parameters
        && let Some(price) = volume.monthly_price(size)
    {
        let digits = if price < 10.0 { 2 } else { 0 };
        let _ = writeln!(text, "price = \"{price:.digits$} USD per month\"");
    }
    Ok(())
}

/// Asks for what decides, each with its default.
fn ask_all(arguments: &mut AdviseArguments) {
    let names: Vec<&str> = engines().map(|one| one.command).collect();
    let known = |text: &str| names.contains(&text).then(|| text.to_owned());
    arguments.engine =
        Some(ask(&format!("Database engine ({})", names.join(", ")), "postgres", known));
    let size = |question, given: Option<Bytes>, usual: Bytes| {
        given.or_else(|| Some(ask(question, &usual.exact(), |text| text.parse().ok())))
    };
    arguments.data = size("Size of the data", arguments.data, USUAL[0]);
    arguments.memory = size("Memory of the server", arguments.memory, USUAL[1]);
    let optional = "none";
    if arguments.workload.is_none() && arguments.reads.is_none() && arguments.ingest.is_none() {
        arguments.reads =
            ask("Share of reads (80%), or none for the usual one", optional, |text| {
                if text == optional { Some(None) } else { text.parse().ok().map(Some) }
            });
    }
    if arguments.rate.is_none() && arguments.ingest.is_none() {
        arguments.rate =
            ask("Transactions or operations per second (200/s), or none", optional, |text| {
                if text == optional { Some(None) } else { text.parse().ok().map(Some) }
            });
    }
    let has_rate = arguments.rate.is_some() || arguments.ingest.is_some();
    if has_rate && arguments.p99.is_none() {
        arguments.p99 = ask("p99 latency at that rate (5ms), or none", optional, |text| {
            if text == optional { Some(None) } else { text.parse().ok().map(Some) }
        });
    }
}

/// Asks until the answer can be read; at the end of input, the default.
fn ask<T>(question: &str, default: &str, read: impl Fn(&str) -> Option<T>) -> T {
    let mut lines = std::io::stdin().lock().lines();
    loop {
        eprint!("{question} [{default}]: ");
        // A prompt that cannot be shown can still be answered.
        let _ = std::io::stderr().flush();
        let line = lines.next().and_then(Result::ok).map(|line| line.trim().to_owned());
        let answer = line.filter(|line| !line.is_empty()).unwrap_or_else(|| default.to_owned());
        match read(&answer) {
            Some(value) => return value,
            None => say!("{} is not an answer; example: {default}", plain(&answer)),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Arguments, Verb};

    fn arguments(line: &str) -> AdviseArguments {
        let words = std::iter::once("crosspoint").chain(line.split(' '));
        match Arguments::try_parse_from(words).map(|found| found.verb) {
            Ok(Verb::Advise(arguments)) => *arguments,
            other => panic!("{other:?}"),
        }
    }

    fn made(line: &str) -> Result<study::Study, String> {
        let arguments = arguments(line);
        let load = load_of(&arguments)?;
        study::parse(&study_of(&load)?, engines::list()).map_err(|error| error.to_string())
    }

    /// Scaled data with unscaled memory would keep everything in memory: every drive would be enough.
    #[test]
    fn data_and_memory_are_scaled_alike() {
        let pool = |line: &str| {
            let study = made(line).expect("a study");
            let job = study.experiment[0].job.first();
            job.sql().expect("sql").options.text("buffer_pool").to_owned()
        };
        // 256 MiB * 64 / 500 * 75 %; with more memory than data, all of them are in the pool.
        assert_eq!(pool("advise mariadb --data 500GB --memory 64GB --reads 100%"), "25MiB");
        assert_eq!(pool("advise mariadb --data 10GB --memory 64GB"), "320MiB");
        let held = |line: &str| {
            let study = made(line).expect("a study");
            let job = study.experiment[0].job.first().clone();
            let job = job.key_value().expect("kv");
            (job.memory.text(), job.data().get() >> 20)
        };
        assert_eq!(held("advise lmdb --data 1GB --memory 500MB --reads 100%").0, "256MiB");
        // The smallest memory limit is a sixth of the data, so more data are simulated.
        assert_eq!(held("advise lmdb --data 96GB --memory 16GB"), ("96MiB".into(), 575));
    }

    /// The requirement must reach the study: rate, latency, bytes per second, price.
    #[test]
    fn the_requirement_is_in_the_study() {
        let study =
            made("advise postgres --rate 200/s --p99 5ms --data 500GB --on gp3,990-pro").unwrap();
        let need = &study.experiment[0];
        assert_eq!(need.objectives[0].to_string(), "p99 \u{2264} 5 ms at 200/s");
        assert_eq!(study.stack[0].price.as_deref(), Some("37 USD per month"));
        assert_eq!(study.stack[1].price, None);
        let study = made("advise rocksdb --ingest 50MB --value-size 984B").unwrap();
        let point = study::plan(&study).trials[0].point_text();
        assert!(point.contains("rate=50k/s") || point.contains("rate=50000/s"), "{point}");
        assert!(point.contains("workload=overwrite"), "{point}");
    }

    #[test]
    fn wrong_requirements_are_refused() {
        for wrong in [
            "advise oracle",
            "advise postgres --p99 5ms",
            "advise postgres --ingest 50MB",
            "advise lmdb --data 1B",
            "advise lmdb --on no-such-drive",
            "advise lmdb --workload tpcc",
        ] {
            assert!(made(wrong).is_err(), "{wrong}");
        }
    }
}
