//! Expands the table `[experiment.job]` to the jobs of its points.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::error::StudyError;
use crate::job::{ACT, Kind, OPTIONS};
use crate::schema1::{self, SQL_OPTIONS};
use crate::{
    EngineName, Engines, Job, Jobs, KvWorkload, Operations, OptionDoc, Shown, SqlJob, SqlWorkload,
};

/// Maximum number of trials of a study.
pub(crate) const TRIALS_MAX: u64 = 100_000;

/// A job's table as written in the study.
pub(crate) struct Written<'i> {
    /// Name of its experiment, for errors.
    pub experiment: String,
    pub table: DeTable<'i>,
    /// The rules that apply to it.
    pub rules: Rules,
}

/// The rules for a job's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rules {
    /// A study to be run: no duplicate points, no options without effect.
    Author,
    /// A stored run: its trials are fixed.
    Run,
    /// The same in schema 1, which had a trial for each value of an option that SQL engines ignored.
    RunOfSchema1,
}

/// The axes of a job, before it is expanded into points.
pub(crate) struct Matrix {
    kind: Kind,
    axes: Vec<String>,
    /// Number of points, at most: some may turn out to be equal.
    pub points: u64,
}

impl Matrix {
    /// Whether its jobs are of blocks, and not of a database.
    pub(crate) fn is_block(&self) -> bool {
        self.kind.operations() == Operations::Block
    }
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

    /// The values of a key: one, or a list.
    fn words(&self, key: &str) -> Vec<&str> {
        let Some(value) = self.find(key).map(Spanned::get_ref) else { return Vec::new() };
        let list = value.as_array().into_iter().flat_map(|all| all.iter());
        let list = list.filter_map(|one| one.get_ref().as_str());
        value.as_str().into_iter().chain(list).collect()
    }

    /// Names of the given options.
    fn options(&self) -> Vec<&str> {
        let table = self.table.get(OPTIONS).and_then(|options| options.get_ref().as_table());
        table
            .into_iter()
            .flat_map(|table| table.keys())
            .map(|name| name.get_ref().as_ref())
            .collect()
    }

    /// Kind of the job, by its engine and workload; it determines the keys.
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
                    "the engine `block` takes workload = \"act\", or none with `pattern` and `read_share`",
                )),
            };
        }
        let [key_value, sql] = [KvWorkload::WORDS, SqlWorkload::WORDS];
        let all_of = |words: &[&str]| {
            !workloads.is_empty() && workloads.iter().all(|word| words.contains(word))
        };
        if all_of(sql) {
            return Ok(Kind::Sql);
        }
        if all_of(key_value) {
            return Ok(Kind::KeyValue);
        }
        let known = engines.names();
        if !known.is_empty() && !known.contains(first) {
            return Err(self.unknown_engine(first, &known.join(", ")));
        }
        if workloads.is_empty() {
            let message = format!(
                "a database needs a `workload`; allowed: {}; of SQL databases: {}",
                key_value.join(", "),
                sql.join(", ")
            );
            return Err(self.refuse_at("engine", message));
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

    fn unknown_engine(&self, name: &str, allowed: &str) -> StudyError {
        let name: String = name.chars().take(100).collect();
        self.refuse_at("engine", format!("engine = \"{name}\"; allowed: {allowed}"))
    }

    /// The keys with a list, in the order of expansion.
    fn axes(&self, kind: Kind, docs: &[&OptionDoc]) -> Result<Vec<String>, StudyError> {
        let mut given = self.options();
        if kind == Kind::Sql && self.rules == Rules::RunOfSchema1 {
            // Also options that its engines do not have.
            given.sort_by_key(|name| SQL_OPTIONS.iter().position(|one| one == name));
        } else {
            given.sort_by_key(|name| docs.iter().position(|one| one.name == *name));
        }
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
                let message = "empty list; write at least one value";
                return Err(self.refuse_at(path, message));
            }
        }
        Ok(axes)
    }

    fn values(&self, path: &str) -> &[Spanned<DeValue<'i>>] {
        let array = self.find(path).and_then(|one| one.get_ref().as_array());
        array.map_or(&[], |array| array)
    }

    /// The table with the first value of each axis.
    fn first_point(&self, axes: &[String]) -> DeTable<'i> {
        let mut table = self.table.clone();
        for path in axes {
            set(&mut table, path, self.values(path)[0].clone());
        }
        table
    }

    /// Checks the engines and finds the axes.
    pub(crate) fn matrix(&self, engines: Engines) -> Result<Matrix, StudyError> {
        let kind = self.kind(engines)?;
        let names: Vec<EngineName> =
            self.words("engine").into_iter().map(EngineName::new).collect();
        for name in &names {
            if let Some(allowed) = engines.unknown(name, kind.operations()) {
                return Err(self.unknown_engine(name.word(), &allowed));
            }
        }
        let docs = self.docs(engines, kind, &names)?;
        let axes = self.axes(kind, &docs)?;
        let lengths = axes.iter().map(|path| self.values(path).len() as u64);
        let points = lengths.fold(1, u64::saturating_mul);
        Ok(Matrix { kind, axes, points })
    }

    /// The jobs of all points. The caller has checked their number.
    pub(crate) fn expand(&self, engines: Engines, matrix: &Matrix) -> Result<Jobs, StudyError> {
        let Matrix { kind, axes, points: count } = matrix;
        let first = self.first_point(axes);
        let mut points: Vec<Job> = Vec::new();
        let mut seen = HashSet::new();
        for point in 0..*count as usize {
            let mut table = first.clone();
            let mut left = point;
            let mut beyond_first = Vec::new();
            for path in axes.iter().rev() {
                let values = self.values(path);
                let place = left % values.len();
                left /= values.len();
                set(&mut table, path, values[place].clone());
                if place > 0 {
                    beyond_first.push(path.as_str());
                }
            }
            if self.repeats(*kind, engines, &table, &beyond_first) {
                continue;
            }
            let mut job = self.read(*kind, table)?;
            self.complete(&mut job, engines)?;
            // The first duplicate differs from the earlier point in the position on one axis only.
            if self.rules == Rules::Author && !seen.insert(format!("{job:?}")) {
                let path = beyond_first.first().copied().unwrap_or_default();
                let error = self.refuse_at(path, format!("{path}: a value is listed twice"));
                return Err(error.with_help("use `repeat` to repeat trials"));
            }
            points.push(job);
        }
        let mut written = Vec::new();
        for path in axes {
            let value = self.find(path).cloned().ok_or_else(|| self.refuse("an axis is lost"))?;
            let value = toml::Value::deserialize(ValueDeserializer::from(value));
            let value = value.map_err(|error| StudyError::syntax(&error))?;
            written.push((path.clone(), value));
        }
        Ok(Jobs::new(points, written))
    }

    /// Whether a point repeats an earlier one: it does not have the first value of an axis without effect.
    fn repeats(
        &self,
        kind: Kind,
        engines: Engines,
        table: &DeTable<'_>,
        beyond_first: &[&str],
    ) -> bool {
        let word = |key: &str| table.get(key).and_then(|one| one.get_ref().as_str());
        if kind == Kind::Act {
            let independent = word("phase").is_none_or(|phase| phase == "independent");
            return independent && beyond_first.contains(&"service_threads");
        }
        if kind == Kind::Sql && self.rules == Rules::RunOfSchema1 {
            return false;
        }
        let engine =
            engines.find(&EngineName::new(word("engine").unwrap_or("")), kind.operations());
        let lacks = |path: &&str| {
            let option = path.strip_prefix("options.");
            option.is_some_and(|option| engine.is_some_and(|one| !one.has_option(option)))
        };
        beyond_first.iter().any(lacks)
    }

    /// The options of the engines. Rejects one that none of them has.
    fn docs(
        &self,
        engines: Engines,
        kind: Kind,
        names: &[EngineName],
    ) -> Result<Vec<&'static OptionDoc>, StudyError> {
        let known = names.iter().filter_map(|name| engines.find(name, kind.operations()));
        let known: Vec<_> = known.collect();
        let docs: Vec<&OptionDoc> = known.iter().flat_map(|engine| engine.options).collect();
        let foreign = |name: &&str| !docs.iter().any(|one| one.name == *name);
        let checked = !known.is_empty() && self.rules != Rules::RunOfSchema1;
        let wrong = self.options().into_iter().find(foreign).filter(|_| checked);
        let Some(name) = wrong else { return Ok(docs) };
        let engines: Vec<&str> = known.iter().map(|engine| engine.name).collect();
        let own: Vec<&str> = docs.iter().map(|one| one.name).collect();
        let name: String = name.chars().take(100).collect();
        let message = format!(
            "{} has no option `{name}`; allowed: {}",
            engines.join(", "),
            if own.is_empty() { "none".into() } else { own.join(", ") }
        );
        let table = self.table.get(OPTIONS).and_then(|options| options.get_ref().as_table());
        let key = table.and_then(|table| table.get_key_value(name.as_str()));
        Err(StudyError { span: key.map(|(key, _)| key.span()), ..self.refuse(message) })
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
            Kind::Sql => {
                let job: Result<SqlJob, _> = Deserialize::deserialize(from);
                job.map(|job| Job::Sql(Box::new(job.in_effect())))
            }
        };
        job.map_err(|error| {
            let error = StudyError::syntax(&error);
            // The table itself has no position.
            let span = error.span.filter(|span| !span.is_empty());
            let list = |(_, value): &(&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
                let within = span.as_ref().is_some_and(|own| value.span() == *own);
                within && value.get_ref().is_array()
            };
            let key = self.table.iter().find(list).map(|(key, _)| key.get_ref().to_string());
            let name = self.table.keys().find(|name| Some(name.span()) == span);
            let renamed = name.map(|old| (old.get_ref(), schema1::parameter(old.get_ref())));
            let error = StudyError { span, ..error };
            match (key, renamed) {
                (Some(key), _) => {
                    let axes = kind.axes().join(", ");
                    error.with_help(format!("`{key}` takes one value; lists are for {axes}"))
                }
                (None, Some((old, new))) if old != new => {
                    error.with_help(format!("`{old}` of schema 1 is `{new}` in schema 2"))
                }
                _ => error,
            }
        })
    }

    /// Fills in the defaults of a database's options.
    fn complete(&self, job: &mut Job, engines: Engines) -> Result<(), StudyError> {
        let engine = engines.find(job.engine_name(), job.operations());
        let (Some(engine), Some(options)) = (engine, job.options_mut()) else { return Ok(()) };
        *options = engine
            .completed(options)
            .map_err(|(name, message)| self.refuse_at(&format!("options.{name}"), message))?;
        Ok(())
    }
}

/// Sets a key, or an option: `options.name`.
fn set<'i>(table: &mut DeTable<'i>, path: &str, value: Spanned<DeValue<'i>>) {
    let place = match path.strip_prefix("options.") {
        Some(name) => match table.get_mut(OPTIONS).map(Spanned::get_mut) {
            Some(DeValue::Table(options)) => options.get_mut(name),
            _ => None,
        },
        None => table.get_mut(path),
    };
    if let Some(place) = place {
        *place = value;
    }
}

/// A million trials would never finish, and their plan would exhaust memory.
pub(crate) fn too_many(experiment: &str, count: u64) -> StudyError {
    let message = format!(
        "with experiment `{experiment}` the study has {count} trials; allowed: at most {TRIALS_MAX}"
    );
    StudyError::general(message).with_help("use fewer values or repetitions, or split the study")
}
