//! The study format, its matrix and its plan of trials.
//!
//! A study is a TOML file, strict: unknown keys and numbers without units are errors that point at the place.
//! It lists stacks and experiments, and matrices by explicit arrays; [`plan`] turns it into trials in the
//! order in which they run.
//!
//! Invariants: the resolved form of a study is itself a valid study that plans the same trials; the plan is
//! fixed before the first trial.

#![forbid(unsafe_code)]

mod act_job;
mod block;
mod check;
mod clients;
mod defaults;
mod descriptor;
mod device_name;
mod error;
mod expand;
mod fio;
mod fio_text;
mod fio_values;
mod format;
mod job;
mod kv;
mod kv_check;
mod memory;
mod objective;
mod options;
mod overrides;
mod parameters;
mod parse;
mod plan;
mod schema1;
mod sql;
mod sql_check;
mod stack_check;
mod stack_faults;
mod supported;
mod times;
mod what_if;
mod words;

pub use act::Phase as ActPhase;
pub use act_job::ActJob;
pub use block::{Arrivals, Background, BlockJob, Pattern, Precondition, RateStep, SizeWeight};
pub use check::{check_fit_of, check_runnable, check_size};
pub use clients::{Extent, block_groups, kv_roles, service_threads, sql_plan, value_shape};
pub use descriptor::{Descriptor, EngineName, Engines, Operations, VirtualTime};
pub use device_name::DeviceName;
pub use error::StudyError;
pub use fio::{Imported, import_fio};
pub use fio_text::Surroundings;
pub use format::{Experiment, FileSystem, Finding, IoLimit, OnError, Stack, Study, Submission};
pub use job::{Job, Jobs};
pub use kv::{KvJob, KvWorkload};
pub use memory::Memory;
pub use objective::{Objective, Quantile};
pub use options::{OptionDoc, OptionKind, OptionValue, Options, Shown, WrongOption};
pub use overrides::apply_overrides;
pub use parameters::{Parameter, Parameters};
pub use parse::{LONGEST_TEXT, parse, parse_stored, resolved_text, schema};
pub use plan::{Execution, Plan, Skip, Source, Trial, plan, short_hash};
pub use schema1::{parameter, upgraded_text};
pub use sql::{SqlChange, SqlJob, SqlWorkload};
pub use sql_check::listen_port;
pub use stack_faults::StackFaults;
pub use words::{Condition, Durability, WhatIf};
pub use workload::{Offsets, SqlDialect, SqlKeys};
