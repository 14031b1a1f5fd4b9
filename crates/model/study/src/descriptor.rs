//! What users and the rest of the program see of an engine.
//!
//! A [`Descriptor`] is data. Study checks, command line, `doctor`, power cuts, page titles and reference
//! docs are made from it, so that adding an engine needs no change in them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Durability;

/// Name of an engine in a study.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct EngineName(String);

impl EngineName {
    /// The engine of this name, whether or not it exists.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// The name.
    #[must_use]
    pub fn word(&self) -> &str {
        &self.0
    }
}

/// The engines that a study is read with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Engines(&'static [&'static Descriptor]);

impl Engines {
    /// Any name is an engine, of which nothing is known.
    pub const ANY: Self = Self(&[]);

    /// These engines and no others.
    #[must_use]
    pub const fn of(engines: &'static [&'static Descriptor]) -> Self {
        Self(engines)
    }

    /// The engine of this name with these operations; none where any name is an engine.
    #[must_use]
    pub fn find(self, name: &EngineName, operations: Operations) -> Option<&'static Descriptor> {
        self.with(operations).find(|one| one.name == name.word())
    }

    /// The engines with these operations, in the order in which they are listed.
    pub fn with(self, operations: Operations) -> impl Iterator<Item = &'static Descriptor> {
        self.0.iter().copied().filter(move |one| one.operations == operations)
    }

    /// The allowed names for an error message; none if this is one of them, or any name is.
    pub(crate) fn unknown(self, name: &EngineName, operations: Operations) -> Option<String> {
        let names: Vec<&str> = self.with(operations).map(|one| one.name).collect();
        (!self.0.is_empty() && !names.contains(&name.word())).then(|| names.join(", "))
    }
}

/// Operations that an engine understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operations {
    /// Reads, writes and flushes of blocks.
    Block,
    /// Lookups, updates, deletes and scans of records.
    KeyValue,
    /// sysbench's statements.
    Sql,
}

/// An option by the engine's own terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionDoc {
    /// Key in a study.
    pub name: &'static str,
    /// Type and range, as the reference shows it.
    pub values: &'static str,
    /// Default.
    pub default: &'static str,
    /// One line.
    pub doc: &'static str,
}

/// An engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// Name in studies, figures and stored runs.
    pub name: &'static str,
    /// Name on the command line (`run`, `power-cuts`); most often the same.
    pub command: &'static str,
    /// Name on pages.
    pub title: &'static str,
    /// Products that report themselves in their version: part of that text, and name on pages.
    pub products: &'static [(&'static str, &'static str)],
    /// What it understands.
    pub operations: Operations,
    /// Runs on a block device without a file system.
    pub bare_device: bool,
    /// Runs in a server process of its own.
    pub server: bool,
    /// What must be installed; none: it is built in.
    pub needs: Option<&'static str>,
    /// Command that installs it.
    pub install: &'static str,
    /// How `none`, `os` and `device` are kept, in the engine's terms.
    pub durability: [&'static str; 3],
    /// Options of the engine alone.
    pub options: &'static [OptionDoc],
    /// Keys of an experiment that writes as fast as the engine commits, for power cuts; none: no power cuts.
    pub power_cuts: Option<&'static str>,
}

impl Descriptor {
    /// A built-in engine of this name without options or power cuts; what else it has is set over it.
    #[must_use]
    pub const fn new(name: &'static str, title: &'static str, operations: Operations) -> Self {
        Self {
            name,
            command: name,
            title,
            products: &[],
            operations,
            bare_device: false,
            server: false,
            needs: None,
            install: "cargo build --release",
            durability: [""; 3],
            options: &[],
            power_cuts: None,
        }
    }

    /// How `durability` is kept, in the engine's terms.
    #[must_use]
    pub const fn promise(&self, durability: Durability) -> &'static str {
        self.durability[durability as usize]
    }

    /// The name on pages of the product whose version text is `version`.
    #[must_use]
    pub fn title_of(&self, version: &str) -> &'static str {
        let found = self.products.iter().find(|(part, _)| version.contains(part));
        found.map_or(self.title, |(_, title)| title)
    }

    /// Whether it has an option of this name.
    #[must_use]
    pub fn has_option(&self, name: &str) -> bool {
        self.options.iter().any(|option| option.name == name)
    }

    /// Table of an experiment in a study: `kv`, `sql` or `block`.
    #[must_use]
    pub const fn table(&self) -> &'static str {
        match self.operations {
            Operations::Block => "block",
            Operations::KeyValue => "kv",
            Operations::Sql => "sql",
        }
    }
}

/// Engines for tests: with what the rules of studies depend on.
#[cfg(test)]
pub(crate) const ENGINES: Engines = {
    const fn option(name: &'static str) -> OptionDoc {
        OptionDoc { name, values: "", default: "", doc: "" }
    }
    const MAPPED: Descriptor = Descriptor {
        bare_device: true,
        options: &[option("write_map")],
        ..Descriptor::new("lmdb", "LMDB", Operations::KeyValue)
    };
    const WITH_OPTIONS: Descriptor = Descriptor {
        options: &[option("options")],
        ..Descriptor::new("rocksdb", "RocksDB", Operations::KeyValue)
    };
    const SERVER: Descriptor =
        Descriptor { server: true, ..Descriptor::new("mysql", "MySQL", Operations::Sql) };
    Engines::of(&[
        &MAPPED,
        &WITH_OPTIONS,
        &Descriptor::new("sqlite", "SQLite", Operations::KeyValue),
        &SERVER,
        &Descriptor::new("sqlite", "SQLite", Operations::Sql),
    ])
};
