//! Converts fio job files to studies: the common subset; everything that is not carried over is named.
//!
//! Sections that fio runs at the same time become one experiment with background clients; `stonewall` begins
//! the next. Invariants: the result is a valid study; no option is dropped silently. Units follow fio's
//! documentation (`k` is 1024 unless `kb_base` says otherwise, a bare time is seconds, `thinktime`
//! microseconds, a rate is per direction); includes and variables come from the caller.

use toml::{Table, Value};

use crate::fio_text::{Section, Surroundings, sections};
use crate::fio_values::{
    BESIDE, STORAGE, SYNCHRONOUS, WITHOUT_EFFECT, comments, identifier, offsets, rates, scaled,
    size_mix, time, writes,
};
use crate::{Engines, StudyError, parse};

/// A study converted from a job file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The study as TOML; comments name what was not carried over.
    pub text: String,
    /// Options that were not carried over, a line each.
    pub dropped: Vec<String>,
    /// What was carried over with a difference, one line each.
    pub differs: Vec<String>,
}

/// Converts a job file into a study named `name`.
///
/// # Errors
/// Lines that are no option, unreadable values, jobs that neither read nor write, engines that are not
/// storage.
pub fn import_fio(
    text: &str,
    name: &str,
    surroundings: &Surroundings<'_>,
) -> Result<Imported, StudyError> {
    let sections = sections(text, surroundings)?;
    let (mut dropped, mut differs) = (Vec::new(), Vec::new());
    let (mut stacks, mut experiments): (Vec<Table>, Vec<Table>) = (Vec::new(), Vec::new());
    for section in &sections {
        let mut job =
            Job { section, dropped: &mut dropped, differs: &mut differs, taken: Vec::new() };
        let block = job.block()?;
        let beside = !section.begins_anew && !experiments.is_empty();
        if beside {
            job.drop_times();
            let last = experiments.last_mut().and_then(|e| e.get_mut("job")?.as_table_mut());
            if let Some(last) = last {
                let list = last.entry("beside").or_insert_with(|| Value::Array(Vec::new()));
                let (carried, lost): (Table, Table) =
                    block.into_iter().partition(|(key, _)| BESIDE.contains(&key.as_str()));
                job.dropped
                    .extend(lost.keys().map(|key| {
                        format!("[{}] {key}: not for background clients", section.name)
                    }));
                if let Value::Array(list) = list {
                    list.push(Value::Table(carried));
                }
            }
            job.same_stack(&stacks);
        } else {
            let stack = job.stack(&mut stacks)?;
            experiments.push(job.experiment(&stack, block)?);
        }
        job.rest();
    }
    for stack in &mut stacks {
        let path = stack.get("device").and_then(Value::as_str).is_some_and(|d| d.starts_with('/'));
        let name = stack.get("name").cloned();
        let writes = experiments.iter().any(|one| {
            one.get("stacks").and_then(Value::as_array).is_some_and(|s| s.first() == name.as_ref())
                && writes(one)
        });
        if path && writes {
            stack.insert("allow_write".into(), Value::Boolean(true));
        }
    }
    let mut study = Table::new();
    study.insert("schema".into(), Value::Integer(2));
    study.insert("name".into(), Value::String(identifier(name)));
    study.insert("stack".into(), stacks.into());
    study.insert("experiment".into(), experiments.into());
    let body = toml::to_string(&study).map_err(|e| StudyError::general(e.to_string()))?;
    let mut text = String::from("# Made from a fio job file.\n");
    text.push_str(&(comments("not carried over", &dropped) + &comments("differs", &differs)));
    text.push_str(&body);
    // An error of the study points into the study, which the user has not seen.
    let included = sections.iter().any(|one| one.options.values().any(|option| option.included));
    parse(&text, Engines::ANY).map_err(|error| StudyError {
        message: match included {
            // The message may contain values of an included file.
            true => {
                "the job does not convert to a valid study; remove its includes for details".into()
            }
            false => format!("the job does not convert to a valid study: {}", error.message),
        },
        span: None,
        help: error.help.filter(|_| !included),
    })?;
    Ok(Imported { text, dropped, differs })
}

/// One section being turned into tables.
struct Job<'a> {
    section: &'a Section,
    dropped: &'a mut Vec<String>,
    differs: &'a mut Vec<String>,
    /// Options that were carried over.
    taken: Vec<&'a str>,
}

impl<'a> Job<'a> {
    fn take(&mut self, names: &[&'a str]) -> Option<&'a str> {
        self.taken.extend_from_slice(names);
        let found = names.iter().find_map(|name| self.section.options.get(*name));
        found.map(|option| option.value.as_str())
    }

    /// The given spelling of an option with several names.
    fn present(&self, names: &[&'a str]) -> &'a str {
        let found = names.iter().find(|name| self.section.options.contains_key(**name));
        found.unwrap_or(&names[0])
    }

    fn refuse(&self, key: &str, reason: &str) -> StudyError {
        let option = self.section.options.get(key);
        let place = option.map_or("line 0", |option| &option.place);
        let reason = match option {
            Some(option) if option.included => "this value is not supported",
            _ => reason,
        };
        StudyError::general(format!("{place}: {key}: {reason}"))
            .with_help("correct the job file, or take the option out")
    }

    fn number(&mut self, names: &[&'a str]) -> Result<Option<u64>, StudyError> {
        let Some(text) = self.take(names) else { return Ok(None) };
        if text.contains([',', '%', ':', '-']) {
            self.lose(self.present(names), "a single number is required");
            return Ok(None);
        }
        let base = match self.section.options.get("kb_base") {
            Some(base) if base.value == "1000" => 1000,
            _ => 1024,
        };
        let number = scaled(text, base);
        let key = self.present(names);
        number.map(Some).ok_or_else(|| self.refuse(key, &format!("`{text}` is not a number")))
    }

    /// A time in nanoseconds; a bare number counts `unit` nanoseconds.
    fn time(&mut self, names: &[&'a str], unit: u64) -> Result<Option<String>, StudyError> {
        let Some(text) = self.take(names) else { return Ok(None) };
        let wrong = || self.refuse(self.present(names), &format!("`{text}` is not a time"));
        Ok(Some(time(text, unit).ok_or_else(wrong)?.exact()))
    }

    fn block(&mut self) -> Result<Table, StudyError> {
        let mut block = Table::new();
        let mut put = |key: &str, value: Value| {
            block.insert(key.to_owned(), value);
        };
        let text = |value: &str| Value::String(value.to_owned());
        let whole = |value: u64| Value::Integer(i64::try_from(value).unwrap_or(i64::MAX));
        let (random, reads) = self.kind()?;
        put("pattern", text(if random { "random" } else { "sequential" }));
        put("read_share", Value::String(format!("{reads}%")));
        let per_write = self.put_size(&mut block)?;
        let mut put = |key: &str, value: Value| {
            block.insert(key.to_owned(), value);
        };
        if let Some(alignment) = self.number(&["blockalign", "ba"])? {
            put("alignment", Value::String(units::Bytes(alignment).exact()));
        }
        let depth = self.number(&["iodepth"])?.unwrap_or(1);
        let synchronous = self.is_synchronous();
        if synchronous && depth > 1 {
            self.replace("iodepth", "a synchronous engine has one operation in flight");
        }
        put("queue_depth", whole(if synchronous { 1 } else { depth }));
        if random && !self.section.options.contains_key("norandommap") {
            self.note("fio visits every block once per pass; here blocks are drawn independently");
        }
        put("clients", whole(self.number(&["numjobs"])?.unwrap_or(1)));
        if let Some(distribution) = self.take(&["random_distribution"]) {
            match offsets(distribution) {
                Some(offsets) => put("distribution", Value::String(offsets)),
                None => self.replace("random_distribution", "uniform is used"),
            }
        }
        if let Some(batch) = self.number(&["iodepth_batch_complete_min"])? {
            put("batch", whole(batch.max(1)));
        }
        if let Some((rate, share)) = self.rate(reads)? {
            let jobs = self.number(&["numjobs"])?.unwrap_or(1);
            put("rate", Value::String(format!("{}/s", rate.saturating_mul(jobs))));
            put("read_share", Value::String(share));
            let poisson = self.take(&["rate_process"]) == Some("poisson");
            put("arrivals", text(if poisson { "poisson" } else { "constant" }));
        }
        if let Some(think) = self.time(&["thinktime"], 1_000)? {
            put("think_time", Value::String(think));
        }
        if let Some(every) = self.number(&["fdatasync", "fsync"])?.filter(|every| *every > 0) {
            put("sync_every", whole(every));
        }
        if self.is_synced() {
            put("dsync", Value::Boolean(true));
        }
        if let Some(share) = self.number(&["buffer_compress_percentage"])? {
            put("random_payload", Value::String(format!("{}%", 100 - share.min(100))));
        }
        match (self.bytes()?, per_write) {
            (Some(bytes), Some(size)) => put("operations", whole(bytes.div_ceil(size))),
            (Some(bytes), None) => put("bytes", Value::String(units::Bytes(bytes).exact())),
            (None, _) => {}
        }
        if let Some(count) = self.number(&["number_ios"])? {
            put("operations", whole(count));
        }
        if self.take(&["verify"]).is_some_and(|how| how != "0") {
            put("verify", Value::Boolean(true));
        }
        Ok(block)
    }

    /// Adds the sizes of operations; returns fio's size if it differs: then as many writes are done, not as
    /// many bytes.
    fn put_size(&mut self, block: &mut Table) -> Result<Option<u64>, StudyError> {
        match self.take(&["bssplit"]) {
            Some(split) => {
                block.insert("size_mix".into(), self.size_mix(split)?);
                Ok(None)
            }
            None => {
                let size = self.number(&["bs", "blocksize"])?.unwrap_or(4096);
                if size == 0 {
                    return Err(self.refuse("bs", "0; allowed: a multiple of 512"));
                }
                let whole = self.on_device(size);
                block.insert("block_size".into(), Value::String(units::Bytes(whole).exact()));
                Ok((whole != size).then_some(size))
            }
        }
    }

    /// Returns the size of an operation on the device: buffered I/O transfers whole pages.
    fn on_device(&mut self, size: u64) -> u64 {
        let direct = self.section.options.get("direct").is_some_and(|on| on.value != "0");
        if direct || size.is_multiple_of(512) {
            return size;
        }
        let whole = size.next_multiple_of(4096);
        self.note(&format!(
            "bs={size}: the page cache writes whole pages, so operations have {}",
            units::Bytes(whole)
        ));
        whole
    }

    /// Operations per second and their share of reads: fio's rate applies to each direction, or separately to
    /// reads and writes.
    fn rate(&mut self, reads: u64) -> Result<Option<(u64, String)>, StudyError> {
        let Some(text) = self.take(&["rate_iops"]) else { return Ok(None) };
        let wrong = || self.refuse("rate_iops", &format!("`{text}` is not a rate"));
        let (read, write) = rates(text).ok_or_else(wrong)?;
        let (read, write) = match reads {
            100 => (read, 0),
            0 => (0, write),
            _ => (read, write),
        };
        let sum = read.saturating_add(write);
        if sum == 0 {
            return Ok(None);
        }
        if !matches!(reads, 0 | 100) {
            if read == 0 || write == 0 {
                self.lose("rate_iops", "a rate for one direction is not supported");
                return Ok(None);
            }
            self.note(&format!(
                "rate_iops applies per direction: {read}/s reads and {write}/s writes make {sum}/s \
                 regardless of rwmixread"
            ));
        }
        let hundredths = u128::from(read) * 10_000 / u128::from(sum);
        Ok(Some((sum, format!("{}.{:02}%", hundredths / 100, hundredths % 100))))
    }

    /// Whether offsets are random, and the percentage of reads.
    fn kind(&mut self) -> Result<(bool, u64), StudyError> {
        let kind = self.take(&["rw", "readwrite"]).unwrap_or("read");
        let (kind, modifier) = kind.split_once(':').unwrap_or((kind, ""));
        if !modifier.is_empty() {
            self.lose("rw", "the part after the colon is ignored");
        }
        let reads = match kind {
            // A mix has no meaning in a job of one direction.
            "read" | "randread" | "write" | "randwrite" => {
                self.take(&["rwmixread"]);
                self.take(&["rwmixwrite"]);
                if kind.ends_with("read") { 100 } else { 0 }
            }
            "rw" | "readwrite" | "randrw" => {
                let line = |key| self.section.options.get(key).map(|option| option.line);
                let later = line("rwmixwrite") > line("rwmixread");
                let read = self.number(&["rwmixread"])?;
                let write = self.number(&["rwmixwrite"])?.map(|write| 100 - write.min(100));
                // Of both options the later one applies.
                if later { write.or(read) } else { read.or(write) }.unwrap_or(50)
            }
            _ => {
                let allowed = "allowed: read, write, randread, randwrite, rw, randrw";
                return Err(self.refuse("rw", &format!("`{kind}`; {allowed}")));
            }
        };
        Ok((kind.starts_with("rand"), reads))
    }

    /// Bytes after which the job ends, all of its processes together: fio ends after `size` unless told to
    /// continue.
    fn bytes(&mut self) -> Result<Option<u64>, StudyError> {
        let jobs = self.number(&["numjobs"])?.unwrap_or(1);
        let io_size = self.number(&["io_size", "io_limit"])?;
        let time_based = self.section.options.get("time_based").is_some_and(|on| on.value != "0");
        let size = if time_based { None } else { self.number(&["size", "filesize"])? };
        Ok(io_size.or(size).map(|bytes| bytes.saturating_mul(jobs)))
    }

    /// Whether each write is on the medium when it ends.
    fn is_synced(&mut self) -> bool {
        match self.take(&["sync"]) {
            Some("1" | "sync" | "dsync") => true,
            Some("0" | "none") | None => false,
            Some(_) => {
                self.lose("sync", "unknown value");
                false
            }
        }
    }

    fn is_synchronous(&self) -> bool {
        let engine = self.section.options.get("ioengine").map_or("psync", |name| &name.value);
        SYNCHRONOUS.contains(&engine)
    }

    fn size_mix(&self, split: &str) -> Result<Value, StudyError> {
        let refuse = || self.refuse("bssplit", &format!("`{split}`; for example 4k/60:64k/40"));
        if split.contains(',') {
            return Err(self.refuse("bssplit", "one mix for both directions is supported"));
        }
        size_mix(split).ok_or_else(refuse)
    }

    /// Name of this job's stack, created if needed.
    fn stack(&mut self, stacks: &mut Vec<Table>) -> Result<String, StudyError> {
        let mut stack = Table::new();
        let mut put = |key: &str, value: &str| {
            stack.insert(key.to_owned(), Value::String(value.to_owned()));
        };
        let (file, directory) = (self.take(&["filename"]), self.take(&["directory"]));
        match file {
            Some(device) if device.starts_with("/dev/") => put("device", &device.replace(':', ",")),
            file => {
                put("device", "file");
                let parent = file.and_then(|file| Some(file.rsplit_once('/')?.0));
                if let Some(directory) = directory.or(parent).filter(|text| !text.is_empty()) {
                    put("directory", directory);
                }
                if file.is_some() {
                    self.replace("filename", "a temporary file in its directory is used");
                }
            }
        }
        let on_device = file.is_some_and(|device| device.starts_with("/dev/"));
        match self.number(&["size", "filesize"])? {
            Some(size) => put("size", &units::Bytes(size).exact()),
            None if on_device => {
                self.note("size: fio uses the whole device, the study its first GiB; set the stack's size");
            }
            None => {}
        }
        if file.is_none() && self.number(&["numjobs"])?.unwrap_or(1) > 1 {
            self.note("numjobs: fio uses a file per process; here they share one");
        }
        let by_direct = self.section.options.contains_key("direct");
        let wanted = if by_direct { "1" } else { "0" };
        let direct = self.take(&["direct", "buffered"]) == Some(wanted);
        if !direct {
            self.note(
                "direct: not set, so the page cache is measured; add direct=1 to measure the drive (fio \
                 also invalidates the cache first)",
            );
        }
        match self.take(&["ioengine"]).unwrap_or("psync") {
            "io_uring" => put("submission", "auto"),
            engine if SYNCHRONOUS.contains(&engine) => put("submission", "psync"),
            engine if STORAGE.contains(&engine) => self.replace("ioengine", "io_uring is used"),
            engine => {
                let engine: String = engine.chars().take(100).collect();
                let allowed = [&["io_uring"][..], &SYNCHRONOUS, &STORAGE].concat().join(", ");
                let reason = format!("`{engine}` is not supported; allowed: {allowed}");
                return Err(self.refuse("ioengine", &reason));
            }
        }
        stack.insert("direct".into(), Value::Boolean(direct));
        let without_name = |table: &Table| {
            let mut table = table.clone();
            table.remove("name");
            table
        };
        if let Some(same) = stacks.iter().find(|other| without_name(other) == stack) {
            return Ok(same["name"].as_str().unwrap_or_default().to_owned());
        }
        let name = format!("stack-{}", stacks.len() + 1);
        stack.insert("name".into(), Value::String(name.clone()));
        stacks.push(stack);
        Ok(name)
    }

    /// A concurrent job uses the target of the main job.
    fn same_stack(&mut self, stacks: &[Table]) {
        let mut others = stacks.to_vec();
        let before = others.len();
        let _ = self.stack(&mut others);
        if others.len() > before {
            let note = "filename, size and ioengine: background clients use those of the others";
            self.dropped.push(format!("[{}] {note}", self.section.name));
        }
    }

    fn drop_times(&mut self) {
        for key in ["runtime", "ramp_time", "loops"] {
            if self.take(&[key]).is_some() {
                self.lose(key, "background clients run as long as the others");
            }
        }
    }

    fn experiment(&mut self, stack: &str, mut job: Table) -> Result<Table, StudyError> {
        let mut experiment = Table::new();
        experiment.insert("name".into(), Value::String(identifier(&self.section.name)));
        experiment.insert("title".into(), Value::String(self.section.name.clone()));
        experiment.insert("stacks".into(), Value::Array(vec![Value::String(stack.to_owned())]));
        let second = 1_000_000_000;
        // Without a time a job ends after its bytes.
        let duration = if job.contains_key("bytes") { "1h" } else { "30s" };
        let times = [("duration", "runtime", duration), ("warm_up", "ramp_time", "0ns")];
        for (key, option, default) in times {
            let time = self.time(&[option], second)?.unwrap_or_else(|| default.to_owned());
            experiment.insert(key.into(), Value::String(time));
        }
        if let Some(loops) = self.number(&["loops"])? {
            let loops = i64::try_from(loops).unwrap_or(i64::MAX);
            experiment.insert("repeat".into(), Value::Integer(loops));
        }
        if self.take(&["continue_on_error"]).is_some_and(|how| how != "none" && how != "0") {
            experiment.insert("on_error".into(), Value::String("continue".into()));
        }
        job.insert("engine".into(), Value::String("block".into()));
        experiment.insert("job".into(), Value::Table(job));
        Ok(experiment)
    }

    fn note(&mut self, words: &str) {
        self.differs.push(format!("[{}] {words}", self.section.name));
    }

    fn lose(&mut self, key: &str, instead: &str) {
        self.dropped.push(format!("[{}] {}: {instead}", self.section.name, self.shown(key)));
    }

    /// Carried over as the nearest equivalent.
    fn replace(&mut self, key: &str, by: &str) {
        self.differs.push(format!("[{}] {}: {by}", self.section.name, self.shown(key)));
    }

    /// An option as written; from an included file only its name.
    fn shown(&self, key: &str) -> String {
        match self.section.options.get(key) {
            Some(option) if !option.included => format!("{key}={}", option.value),
            _ => key.to_owned(),
        }
    }

    /// Lists every unused option.
    fn rest(&mut self) {
        for (key, option) in &self.section.options {
            let known = self.taken.contains(&key.as_str());
            if !known && !WITHOUT_EFFECT.contains(&key.as_str()) && key != "kb_base" {
                let name = &self.section.name;
                self.dropped.push(match option.included {
                    true => format!("[{name}] an option of an included file ({})", option.place),
                    false => format!("[{name}] {} ({})", self.shown(key), option.place),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::ENGINES;
    use crate::{Job as PlannedJob, plan};

    const JOBS: &str = "\
; latency under load
[global]
ioengine=io_uring
direct=1
filename=/dev/sdx
runtime=2m
time_based
group_reporting
size=10g

[warm]
rw=randread
bs=8k
iodepth=32
numjobs=2
random_distribution=zipf:1.1
nice=5

[log]
rw=write
bs=16k
fdatasync=1

[later]
stonewall
rw=randrw
rwmixread=70
bssplit=4k/60:64k/40
rate_iops=1000
rate_process=poisson
thinktime_spin=3
";

    const NOTHING: Surroundings<'_> =
        Surroundings { include: &|_| Err("no such file".into()), variable: &|_| None };

    fn imported() -> Imported {
        import_fio(JOBS, "my jobs.fio", &NOTHING).unwrap()
    }

    /// etcd's disk test, as its documentation gives it: as many flushed writes as fio does.
    #[test]
    fn the_disk_test_of_etcd_is_read() {
        let job = "[etcd]\nrw=write\nioengine=sync\nfdatasync=1\nsize=22m\nbs=2300\n";
        let found = import_fio(job, "etcd", &NOTHING).expect("a study");
        for part in ["block_size = \"4KiB\"", "operations = 10030", "sync_every = 1"] {
            assert!(found.text.contains(part), "{part}: {}", found.text);
        }
        assert!(found.differs.iter().any(|line| line.contains("bs=2300")), "{:?}", found.differs);
        let direct = format!("{job}direct=1\n");
        assert!(import_fio(&direct, "direct", &NOTHING).is_err(), "fio refuses it, too");
    }

    #[test]
    fn the_common_subset_is_carried_over() {
        let study = parse(&imported().text, ENGINES).unwrap();
        assert_eq!(study.stack.len(), 1);
        let stack = &study.stack[0];
        assert_eq!((stack.device.text().as_str(), stack.allow_write), ("/dev/sdx", true));
        assert_eq!(stack.size(), units::Bytes(10 << 30));
        let plan = plan(&study);
        assert_eq!(plan.trials.len(), 2, "[log] runs next to [warm]");
        assert_eq!(plan.trials[0].timeline.measure, units::Nanos::from_secs(120));
        let PlannedJob::Block(warm) = &plan.trials[0].job else { panic!("no block job") };
        assert_eq!((warm.queue_depth, warm.clients, warm.block_size.get()), (32, 2, 8192));
        assert_eq!(warm.distribution.to_string(), "zipf:1.1");
        assert_eq!((warm.beside[0].sync_every, warm.beside[0].block_size.get()), (1, 16384));
        let PlannedJob::Block(later) = &plan.trials[1].job else { panic!("no block job") };
        assert_eq!((later.size_mix.len(), later.rate().get()), (2, 2000));
        assert_eq!(
            later.read_share.exact(),
            "50%",
            "a rate of each direction stands above rwmixread"
        );
    }

    /// fio's rate applies to each direction; half of the load was once dropped without notice.
    #[test]
    fn a_rate_is_that_of_each_direction() {
        let job = |options: &str| {
            let text = format!("[a]\nsize=1g\n{options}");
            let study = parse(&import_fio(&text, "x", &NOTHING).unwrap().text, ENGINES).unwrap();
            let PlannedJob::Block(job) = plan(&study).trials[0].job.clone() else {
                panic!("block")
            };
            (job.rate().get(), job.read_share.exact())
        };
        assert_eq!(job("rw=randread\nrate_iops=1k\n"), (1000, "100%".into()));
        assert_eq!(job("rw=randrw\nrate_iops=1000\n"), (2000, "50%".into()));
        assert_eq!(job("rw=randrw\nrate_iops=300,100\nnumjobs=2\n"), (800, "75%".into()));
        assert_eq!(job("rw=randwrite\nrate_iops=300,100\n"), (100, "0%".into()));
        assert_eq!(job("rw=randrw\nrwmixread=70\nrate_iops=0\n"), (0, "70%".into()));
    }

    #[test]
    fn comments_includes_and_variables_are_fios() {
        let include = |name: &str| match name {
            "common.fio" => Ok("[global]\nbs=8k # of pages\n".to_owned()),
            _ => Err("no such file".to_owned()),
        };
        let variable = |name: &str| (name == "DEPTH").then(|| "16".to_owned());
        let around = Surroundings { include: &include, variable: &variable };
        let text = "include common.fio\n[a] ; first\nsize=1g\nrw=randread # reads\niodepth=${DEPTH}\n\
                    ioengine=io_uring\n";
        let study = parse(&import_fio(text, "x", &around).unwrap().text, ENGINES).unwrap();
        let PlannedJob::Block(job) = plan(&study).trials[0].job.clone() else { panic!("block") };
        assert_eq!((job.block_size.get(), job.queue_depth), (8192, 16));
    }

    /// An include names any file that the caller may read: `sudo crosspoint import` showed lines of it.
    #[test]
    fn lines_of_an_included_file_are_named_and_not_shown() {
        let include = |name: &str| match name {
            "secret" => Ok("user:hash\n".to_owned()),
            "env" => Ok("[a]\nrw=read\nsize=1g\nTOKEN=hash\nhash\n".to_owned()),
            _ => Ok("[a]\nrw=hash\n".to_owned()),
        };
        let around = Surroundings { include: &include, variable: &|_| None };
        let error = |text: &str| import_fio(text, "x", &around).unwrap_err().message;
        let said = error("\ninclude secret\n");
        assert!(
            said.contains("line 2: include secret: line 1") && !said.contains("hash"),
            "{said}"
        );
        let said = error("include value\n");
        assert!(said.contains("include value: line 2: rw") && !said.contains("hash"), "{said}");
        let imported = import_fio("include env\n", "x", &around).unwrap();
        assert!(
            imported.text.contains("an option of an included file (line 1: include env: line 4)")
        );
        assert!(!imported.text.contains("hash") && !imported.text.contains("TOKEN"));
    }

    /// An option that is not converted must be named, or the study would measure something else than the
    /// file.
    #[test]
    fn what_is_not_carried_over_is_named() {
        let imported = imported();
        let lost = |what: &str| imported.dropped.iter().any(|line| line.contains(what));
        assert!(lost("[warm] nice=5 (line 17)"), "{:?}", imported.dropped);
        assert!(lost("thinktime_spin") && lost("[log] runtime"));
        assert!(imported.text.contains("# not carried over: [warm] nice=5"));
        assert!(!lost("group_reporting"));
    }

    #[test]
    fn what_can_not_be_read_names_its_line() {
        let error = |text: &str| import_fio(text, "x", &NOTHING).unwrap_err().message;
        assert!(error("[a]\nrw=trim\n").contains("line 2: rw: `trim`"));
        assert!(error("[a]\nbs=big\n").contains("line 2"));
        assert!(error("include other.fio\n").contains("line 1"));
        assert!(error("[a]\nbs=${SIZE}\n").contains("line 2: variable SIZE is not set"));
        assert!(error("[a]\nioengine=net\nfilename=x\n").contains("is not supported"));
        assert!(error("[a]\nrw=read\nbs=0\n").contains("bs"));
        assert!(error("[a]\nrw=read\nsize=1\n").contains("valid study"));
        assert!(error("").contains("no job"));
        assert!(error("[a]\n???\n").contains("line 2"));
    }
}
