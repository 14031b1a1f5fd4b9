//! The study format, its matrix and its plan of trials.
//!
//! A study is a TOML file, strict: unknown keys and numbers without units are errors that point at
//! the place. It names stacks, experiments and a matrix by explicit arrays; [`plan`] turns it into
//! trials in the order in which they run.
//!
//! Invariants: the resolved form of a study is itself a valid study that plans the same trials; the plan is
//! fixed before the first trial.

#![forbid(unsafe_code)]

mod act_matrix;
mod block;
mod check;
mod clients;
mod count;
mod descriptor;
mod device_name;
mod error;
mod fio;
mod fio_text;
mod fio_values;
mod format;
mod job;
mod kv;
mod kv_check;
mod many;
mod memory;
mod objective;
mod offsets;
mod overrides;
mod parameters;
mod parse;
mod plan;
mod sql;
mod sql_check;
mod sql_keys;
mod sql_settings;
mod stack_check;
mod stack_faults;
mod supported;
mod times;
mod words;

pub use act_matrix::{ActMatrix, ActPhase};
pub use block::{Arrivals, Beside, BlockMatrix, Pattern, Precondition, RateStep, SizeWeight};
pub use check::check_size;
pub use clients::{Extent, block_groups, kv_roles, service_threads, sql_plan, value_shape};
pub use descriptor::{Descriptor, EngineName, Engines, Operations, OptionDoc};
pub use device_name::DeviceName;
pub use error::StudyError;
pub use fio::{Imported, import_fio};
pub use fio_text::Surroundings;
pub use format::{Experiment, FileSystem, Finding, IoLimit, OnError, Stack, Study, Submission};
pub use job::{ActJob, BlockJob, Job};
pub use kv::{KvJob, KvMatrix, KvWorkload};
pub use many::Many;
pub use memory::Memory;
pub use objective::{Objective, Quantile};
pub use offsets::Offsets;
pub use overrides::apply_overrides;
pub use parameters::Parameters;
pub use parse::{LONGEST_TEXT, parse, resolved_text, schema};
pub use plan::{Execution, Plan, Skip, Source, Trial, plan, short_hash};
pub use sql::{SqlChange, SqlCompression, SqlDialect, SqlJob, SqlMatrix, SqlWorkload};
pub use sql_check::listen_port;
pub use sql_keys::SqlKeys;
pub use sql_settings::check_setting;
pub use stack_faults::StackFaults;
pub use words::{Condition, Durability};
