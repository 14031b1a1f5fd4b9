//! The job of a trial, and the jobs of an experiment's matrix.
//!
//! A matrix is the table `[experiment.job]` with lists in place of some values. It is expanded before it is
//! parsed: each point is a table without lists, parsed as the job of its kind. Invariant: a job holds
//! everything that its trial needs, so that it can be run without the study.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};
use toml::{Table, Value};

use crate::parameters::{Parameter, Parameters};
use crate::{ActJob, BlockJob, EngineName, KvJob, Operations, Options, SqlJob};

/// The job of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// Block operations.
    Block(Box<BlockJob>),
    /// ACT's storage test.
    Act(Box<ActJob>),
    /// Key-value operations.
    Kv(Box<KvJob>),
    /// SQL transactions.
    Sql(Box<SqlJob>),
}

impl Job {
    /// The engine's name.
    #[must_use]
    pub const fn engine_name(&self) -> &EngineName {
        match self {
            Self::Block(job) => &job.engine,
            Self::Act(job) => &job.engine,
            Self::Kv(job) => &job.engine,
            Self::Sql(job) => &job.engine,
        }
    }

    /// Name of the engine.
    #[must_use]
    pub fn engine(&self) -> &str {
        self.engine_name().word()
    }

    /// Operations that its engine must support.
    #[must_use]
    pub const fn operations(&self) -> Operations {
        match self {
            Self::Block(_) | Self::Act(_) => Operations::Block,
            Self::Kv(_) => Operations::KeyValue,
            Self::Sql(_) => Operations::Sql,
        }
    }

    /// Parameters by name, in a fixed order: those of every job of its kind, and non-default ones.
    #[must_use]
    pub fn point(&self) -> Vec<Parameter> {
        self.parameters().point
    }

    /// Every parameter: those of `point`, and the defaults.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        match self {
            Self::Block(job) => job.parameters(),
            Self::Act(job) => job.parameters(),
            Self::Kv(job) => job.parameters(),
            Self::Sql(job) => job.parameters(),
        }
    }

    /// Whether it writes to the devices of its stack.
    #[must_use]
    pub fn writes_blocks(&self) -> bool {
        match self {
            Self::Block(job) => job.writes(),
            Self::Act(job) => {
                job.fills > 0 || job.config().is_ok_and(|config| config.write_reqs_per_sec > 0)
            }
            Self::Kv(_) | Self::Sql(_) => true,
        }
    }

    /// Whether it works on blocks, not on a database.
    #[must_use]
    pub const fn is_block(&self) -> bool {
        matches!(self, Self::Block(_) | Self::Act(_))
    }

    /// The key-value job, if it is one.
    #[must_use]
    pub fn key_value(&self) -> Option<&KvJob> {
        if let Self::Kv(job) = self { Some(job) } else { None }
    }

    /// The SQL job, if it is one.
    #[must_use]
    pub fn sql(&self) -> Option<&SqlJob> {
        if let Self::Sql(job) = self { Some(job) } else { None }
    }

    /// The block job, if it is one.
    #[must_use]
    pub fn block(&self) -> Option<&BlockJob> {
        if let Self::Block(job) = self { Some(job) } else { None }
    }

    /// The ACT job, if it is one.
    #[must_use]
    pub fn act(&self) -> Option<&ActJob> {
        if let Self::Act(job) = self { Some(job) } else { None }
    }

    /// The job in its canonical spelling: redundant keys are left out.
    pub(crate) fn canonical(&self) -> Self {
        let mut job = self.clone();
        match &mut job {
            Self::Block(job) => {
                let natural = job.alignment() == job.smallest();
                job.alignment = job.alignment.filter(|_| !natural);
                job.operations = job.operations_limit();
                job.bytes = None;
            }
            Self::Act(job) => job.spell_out(),
            Self::Kv(job) => {
                let value_size = job.value_size;
                job.value_size_max = job.value_size_max.filter(|most| *most != value_size);
            }
            Self::Sql(job) => job.prepared = job.is_prepared(),
        }
        job
    }

    /// Options of its engine, if it is a database.
    pub(crate) fn options_mut(&mut self) -> Option<&mut Options> {
        match self {
            Self::Block(_) | Self::Act(_) => None,
            Self::Kv(job) => Some(&mut job.options),
            Self::Sql(job) => Some(&mut job.options),
        }
    }

    fn options(&self) -> Option<&Options> {
        match self {
            Self::Block(_) | Self::Act(_) => None,
            Self::Kv(job) => Some(&job.options),
            Self::Sql(job) => Some(&job.options),
        }
    }

    fn table(&self) -> Result<Table, toml::ser::Error> {
        match self {
            Self::Block(job) => Table::try_from(job),
            Self::Act(job) => {
                let mut table = Table::try_from(job)?;
                table.insert("workload".into(), Value::String(ACT.into()));
                Ok(table)
            }
            Self::Kv(job) => Table::try_from(job),
            Self::Sql(job) => Table::try_from(job),
        }
    }
}

/// Workload of the block engine that is ACT's test.
pub(crate) const ACT: &str = "act";
/// Key of the options.
pub(crate) const OPTIONS: &str = "options";

/// Kinds of jobs; each has its own keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Block,
    Act,
    KeyValue,
    Sql,
}

impl Kind {
    /// Keys whose value may be a list, in the order of expansion: the last varies fastest. `options` stands
    /// for the engine's options that are not named.
    pub(crate) const fn axes(self) -> &'static [&'static str] {
        match self {
            Self::Block => &[
                "pattern", "distribution", "block_size", "read_share", "dsync", "sync_every",
                "clients", "queue_depth", "rate", "rate_of_max",
            ],
            Self::Act => &["rating", "phase", "service_threads"],
            Self::KeyValue => &[
                "engine", "records", "value_size", "memory", "workload", "durability", OPTIONS,
                "clients", "rate",
            ],
            Self::Sql => &[
                "engine", "tables", "records", OPTIONS, "durability", "options.buffer_pool",
                "workload", "clients", "rate",
            ],
        }
    }

    pub(crate) const fn operations(self) -> Operations {
        match self {
            Self::Block | Self::Act => Operations::Block,
            Self::KeyValue => Operations::KeyValue,
            Self::Sql => Operations::Sql,
        }
    }
}

/// The jobs of an experiment: one for each point of its matrix, in order; at least one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Jobs {
    points: Vec<Job>,
    /// Keys with a list of values, as written; options as `options.name`.
    axes: Vec<(String, Value)>,
}

impl Jobs {
    pub(crate) const fn new(points: Vec<Job>, axes: Vec<(String, Value)>) -> Self {
        Self { points, axes }
    }

    /// All of them, in order.
    #[must_use]
    pub fn points(&self) -> &[Job] {
        &self.points
    }

    /// The first job. Values that are not an axis are the same in all.
    ///
    /// # Panics
    /// Never for an experiment of a parsed study.
    #[must_use]
    pub fn first(&self) -> &Job {
        &self.points[0]
    }

    /// The jobs of one kind: `jobs.of(Job::sql)`.
    pub fn of<T: 'static>(&self, kind: fn(&Job) -> Option<&T>) -> impl Iterator<Item = &T> {
        self.points.iter().filter_map(kind)
    }

    /// The table with all defaults.
    fn table(&self) -> Result<Table, toml::ser::Error> {
        let Some(first) = self.points.first() else { return Ok(Table::new()) };
        let mut table = first.table()?;
        let mut options = Table::new();
        for (name, value) in self.points.iter().filter_map(Job::options).flat_map(Options::iter) {
            if !options.contains_key(name) {
                options.insert(name.to_owned(), Value::try_from(value)?);
            }
        }
        for (path, values) in &self.axes {
            match path.strip_prefix("options.") {
                Some(name) => options.insert(name.to_owned(), values.clone()),
                None => table.insert(path.clone(), values.clone()),
            };
        }
        table.remove(OPTIONS);
        if !options.is_empty() {
            table.insert(OPTIONS.into(), options.into());
        }
        Ok(table)
    }
}

impl Serialize for Jobs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.table().map_err(ser::Error::custom)?.serialize(serializer)
    }
}

/// Keeps nothing of the text: `expand` fills it in.
impl<'de> Deserialize<'de> for Jobs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self::default())
    }
}

impl JsonSchema for Jobs {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Jobs".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let kinds = [
            (BlockJob::schema_name(), BlockJob::json_schema(generator), Kind::Block),
            (ActJob::schema_name(), ActJob::json_schema(generator), Kind::Act),
            (KvJob::schema_name(), KvJob::json_schema(generator), Kind::KeyValue),
            (SqlJob::schema_name(), SqlJob::json_schema(generator), Kind::Sql),
        ];
        let mut all = Vec::new();
        for (name, mut schema, kind) in kinds {
            let properties = schema.get_mut("properties").and_then(|all| all.as_object_mut());
            let Some(properties) = properties else { continue };
            let axes = kind.axes().iter().filter(|key| **key != OPTIONS);
            for key in axes {
                let Some(one) = properties.get_mut(*key) else { continue };
                // A list may stand in place of a value.
                let mut value = std::mem::take(one);
                let mut outer = Schema::default();
                for key in ["description", "default"] {
                    let found = value.as_object_mut().and_then(|object| object.remove(key));
                    outer.ensure_object().extend(found.map(|found| (key.to_owned(), found)));
                }
                let list = json_schema!({ "type": "array", "items": value, "minItems": 1 });
                let either = json_schema!({ "oneOf": [value, list] });
                outer.ensure_object().extend(either.as_object().cloned().unwrap_or_default());
                *one = outer.to_value();
            }
            if kind == Kind::Act {
                let act = json_schema!({ "description": "ACT's test.", "const": ACT });
                properties.insert("workload".into(), act.to_value());
            }
            generator.definitions_mut().insert(name.to_string(), schema.to_value());
            all.push(json_schema!({ "$ref": format!("#/$defs/{name}") }));
        }
        json_schema!({ "anyOf": all })
    }
}
