//! From the table `[experiment.job]` to the jobs of its points.

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::error::StudyError;
use crate::job::{ACT, Kind, OPTIONS};
use crate::schema1;
use crate::{ActPhase, EngineName, Engines, Job, Jobs, KvWorkload, OptionDoc, Shown, SqlWorkload};

/// Trials of a study at most.
pub(crate) const TRIALS_MAX: u64 = 100_000;

/// A job's table as it was written.
pub(crate) struct Written<'i> {
    /// Name of its experiment, for errors.
    pub experiment: String,
    /// The table.
    pub table: DeTable<'i>,
    /// It was written in schema 1.
    pub of_schema_1: bool,
}

impl<'i> Written<'i> {
    fn refuse(&self, message: impl std::fmt::Display) -> StudyError {
        StudyError::general(format!("experiment `{}`: {message}", self.experiment))
    }

    /// Points at a key of the table.
    fn refuse_at(&self, key: &str, message: impl std::fmt::Display) -> StudyError {
        let span = self.find(key).map(Spanned::span);
        StudyError { span, ..self.refuse(message) }
    }

    /// The value of a key, or of an option: `options.name`.
    fn find(&self, path: &str) -> Option<&Spanned<DeValue<'i>>> {
        match path.strip_prefix("options.") {
            Some(name) => self.table.get(OPTIONS)?.get_ref().as_table()?.get(name),
            None => self.table.get(path),
        }
    }

    /// The words of a key: one, or a list.
    fn words(&self, key: &str) -> Vec<&str> {
        let Some(value) = self.find(key).map(Spanned::get_ref) else { return Vec::new() };
        let list = value.as_array().into_iter().flat_map(|all| all.iter());
        let list = list.filter_map(|one| one.get_ref().as_str());
        value.as_str().into_iter().chain(list).collect()
    }

    /// Names of the options that were given.
    fn options(&self) -> Vec<&str> {
        let table = self.table.get(OPTIONS).and_then(|options| options.get_ref().as_table());
        table
            .into_iter()
            .flat_map(|table| table.keys())
            .map(|name| name.get_ref().as_ref())
            .collect()
    }

    /// Which keys it has, by its engine and its workload.
    fn kind(&self, engines: Engines) -> Result<Kind, StudyError> {
        let names = self.words("engine");
        let Some(first) = names.first() else {
            let names = engines.names().join(", ");
            return Err(self.refuse(format!("a job needs an `engine`; allowed: {names}")));
        };
        let workloads = self.words("workload");
        if *first == "block" {
            return match workloads.as_slice() {
                [] => Ok(Kind::Block),
                [ACT] => Ok(Kind::Act),
                _ => Err(self.refuse_at(
                    "workload",
                    "the engine `block` has the workload \"act\", or none: then `pattern` and \
                     `read_share` say what is done",
                )),
            };
        }
        let [key_value, sql] = [KvWorkload::WORDS, SqlWorkload::WORDS];
        if workloads.is_empty() {
            let message = format!(
                "a database needs a `workload`; allowed: {}; of SQL databases: {}",
                key_value.join(", "),
                sql.join(", ")
            );
            return Err(self.refuse_at("engine", message));
        }
        if workloads.iter().all(|word| sql.contains(word)) {
            return Ok(Kind::Sql);
        }
        if workloads.iter().all(|word| key_value.contains(word)) {
            return Ok(Kind::KeyValue);
        }
        let has = |kind: Kind| engines.is_known(&EngineName::new(first), kind.operations());
        let mut allowed: Vec<&str> = Vec::new();
        if has(Kind::KeyValue) {
            allowed.extend(key_value);
        }
        if has(Kind::Sql) {
            allowed.extend(sql);
        }
        let wrong = workloads.iter().find(|word| !allowed.contains(word)).unwrap_or(&workloads[0]);
        let wrong: String = wrong.chars().take(100).collect();
        let message = format!("workload = \"{wrong}\"; allowed: {}", allowed.join(", "));
        Err(self.refuse_at("workload", message))
    }

    /// The keys that have a list, in the order in which they are expanded.
    fn axes(&self, kind: Kind, docs: &[&OptionDoc]) -> Result<Vec<String>, StudyError> {
        let mut given = self.options();
        given.sort_by_key(|name| docs.iter().position(|one| one.name == *name));
        let apart = |name: &str| kind.axes().contains(&format!("options.{name}").as_str());
        let mut axes = Vec::new();
        for key in kind.axes() {
            if *key == OPTIONS {
                let own = given.iter().filter(|name| !apart(name));
                axes.extend(own.map(|name| format!("options.{name}")));
            } else {
                axes.push((*key).to_owned());
            }
        }
        let list = |path: &String| self.find(path).is_some_and(|one| one.get_ref().is_array());
        axes.retain(list);
        for path in &axes {
            let hidden = docs.iter().find(|one| path.strip_prefix("options.") == Some(one.name));
            if hidden.is_some_and(|one| one.shown == Shown::Never) {
                return Err(self.refuse_at(path, format!("{path} takes one value, not a list")));
            }
            if self.values(path).is_empty() {
                let message =
                    "the matrix is empty here, so there is no trial; write at least one value";
                return Err(self.refuse_at(path, message));
            }
        }
        let lengths = axes.iter().map(|path| self.values(path).len() as u64);
        let points = lengths.fold(1, u64::saturating_mul);
        if points > TRIALS_MAX {
            return Err(too_many(&self.experiment, points));
        }
        Ok(axes)
    }

    fn values(&self, path: &str) -> &[Spanned<DeValue<'i>>] {
        let array = self.find(path).and_then(|one| one.get_ref().as_array());
        array.map_or(&[], |array| array)
    }

    /// The table of the point number `point`.
    fn point(&self, axes: &[String], point: usize) -> DeTable<'i> {
        let mut table = self.table.clone();
        let mut left = point;
        for path in axes.iter().rev() {
            let values = self.values(path);
            let value = values[left % values.len()].clone();
            left /= values.len();
            let place = match path.strip_prefix("options.") {
                Some(name) => match table.get_mut(OPTIONS).map(Spanned::get_mut) {
                    Some(DeValue::Table(options)) => options.get_mut(name),
                    _ => None,
                },
                None => table.get_mut(path.as_str()),
            };
            if let Some(place) = place {
                *place = value;
            }
        }
        table
    }

    /// The jobs of all points.
    ///
    /// # Errors
    /// [`StudyError`], with the place.
    pub(crate) fn expand(&self, engines: Engines) -> Result<Jobs, StudyError> {
        let kind = self.kind(engines)?;
        let names: Vec<EngineName> =
            self.words("engine").into_iter().map(EngineName::new).collect();
        for name in &names {
            if let Some(allowed) = engines.unknown(name, kind.operations()) {
                let word: String = name.word().chars().take(100).collect();
                let message = format!("engine = \"{word}\"; allowed: {allowed}");
                return Err(self.refuse_at("engine", message));
            }
        }
        let docs = self.docs(engines, kind, &names)?;
        let axes = self.axes(kind, &docs)?;
        let count = axes.iter().map(|path| self.values(path).len()).product();
        let mut points: Vec<Job> = Vec::with_capacity(count);
        for point in 0..count {
            let mut job = self.read(kind, self.point(&axes, point))?;
            if self.simplify(&mut job, engines, &axes)? && points.contains(&job) {
                continue;
            }
            points.push(job);
        }
        let mut written = Vec::new();
        for path in axes {
            let value = self.find(&path).cloned().ok_or_else(|| self.refuse("an axis is lost"))?;
            let value = toml::Value::deserialize(ValueDeserializer::from(value));
            written.push((path, value.map_err(|error| StudyError::syntax(&error))?));
        }
        Ok(Jobs::new(points, written))
    }

    /// The options that the engines have. One that none of them has is refused.
    fn docs(
        &self,
        engines: Engines,
        kind: Kind,
        names: &[EngineName],
    ) -> Result<Vec<&'static OptionDoc>, StudyError> {
        let known = names.iter().filter_map(|name| engines.find(name, kind.operations()));
        let known: Vec<_> = known.collect();
        let docs: Vec<&OptionDoc> = known.iter().flat_map(|engine| engine.options).collect();
        let ignored = |name: &str| {
            let value = self.find(&format!("options.{name}")).map(Spanned::get_ref);
            self.of_schema_1 && value.is_some_and(|value| schema1::is_ignored(name, value))
        };
        let foreign = |name: &&str| !docs.iter().any(|one| one.name == *name) && !ignored(name);
        let wrong = self.options().into_iter().find(foreign).filter(|_| !known.is_empty());
        let Some(name) = wrong else { return Ok(docs) };
        let engines: Vec<&str> = known.iter().map(|engine| engine.name).collect();
        let own: Vec<&str> = docs.iter().map(|one| one.name).collect();
        let name: String = name.chars().take(100).collect();
        let message = format!(
            "`{name}` is no option of {}; allowed: {}",
            engines.join(", "),
            if own.is_empty() { "none".into() } else { own.join(", ") }
        );
        Err(self.refuse_at(&format!("options.{name}"), message))
    }

    fn read(&self, kind: Kind, mut table: DeTable<'i>) -> Result<Job, StudyError> {
        if kind == Kind::Act {
            table.remove("workload");
        }
        let value = Spanned::new(0..0, DeValue::Table(table));
        let from = ValueDeserializer::from(value);
        let job = match kind {
            Kind::Block => Deserialize::deserialize(from).map(|job| Job::Block(Box::new(job))),
            Kind::Act => Deserialize::deserialize(from).map(|job| Job::Act(Box::new(job))),
            Kind::KeyValue => Deserialize::deserialize(from).map(|job| Job::Kv(Box::new(job))),
            Kind::Sql => Deserialize::deserialize(from).map(|job| Job::Sql(Box::new(job))),
        };
        job.map_err(|error| {
            let error = StudyError::syntax(&error);
            // The table itself has no place.
            StudyError { span: error.span.filter(|span| !span.is_empty()), ..error }
        })
    }

    /// Completes the options, and takes out what means nothing at this point; whether that is on an axis, so
    /// that another point may be the same.
    fn simplify(
        &self,
        job: &mut Job,
        engines: Engines,
        axes: &[String],
    ) -> Result<bool, StudyError> {
        if let Job::Act(job) = job {
            // Threads mean nothing to independent requests.
            let threads = axes.iter().any(|path| path == "service_threads");
            let alike = threads && job.phase == ActPhase::Independent;
            let first = self.values("service_threads").first().and_then(|one| {
                one.get_ref().as_integer().and_then(|number| number.as_str().parse().ok())
            });
            job.service_threads = if alike { first } else { job.service_threads };
            return Ok(alike);
        }
        let Some(engine) = engines.find(job.engine_name(), job.operations()) else {
            return Ok(false);
        };
        let Some(options) = job.options_mut() else { return Ok(false) };
        let lacks =
            |path: &String| path.strip_prefix("options.").is_some_and(|o| !engine.has_option(o));
        let complete = engine.completed(options);
        *options = complete
            .map_err(|(name, message)| self.refuse_at(&format!("options.{name}"), message))?;
        Ok(axes.iter().any(lacks))
    }
}

/// Nobody waits for a million trials, and nothing holds them.
pub(crate) fn too_many(experiment: &str, count: u64) -> StudyError {
    let message =
        format!("experiment `{experiment}` has {count} trials; a study has at most {TRIALS_MAX}");
    StudyError::general(message)
        .with_help("leave out values of its matrix, or repetitions; or make studies of it")
}
