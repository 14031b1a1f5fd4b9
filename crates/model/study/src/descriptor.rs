//! An engine as users and the rest of the program see it.
//!
//! A [`Descriptor`] is data. Study checks, command line, `doctor`, power cuts, page titles and reference docs
//! are generated from it, so adding an engine changes none of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Durability, OptionDoc, Options, WrongOption};

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

/// The engines available to a study.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Engines(&'static [&'static Descriptor]);

impl Engines {
    /// Accepts any name; nothing is known about the engines.
    pub const ANY: Self = Self(&[]);

    /// Exactly these engines.
    #[must_use]
    pub const fn of(engines: &'static [&'static Descriptor]) -> Self {
        Self(engines)
    }

    /// The engine of this name with these operations; `None` if the list accepts any name.
    #[must_use]
    pub fn find(self, name: &EngineName, operations: Operations) -> Option<&'static Descriptor> {
        self.with(operations).find(|one| one.name == name.word())
    }

    /// The engines with these operations, in listed order.
    pub fn with(self, operations: Operations) -> impl Iterator<Item = &'static Descriptor> {
        self.0.iter().copied().filter(move |one| one.operations == operations)
    }

    /// Each name once, in listed order.
    pub(crate) fn names(self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for one in self.0 {
            if !names.contains(&one.name) {
                names.push(one.name);
            }
        }
        names
    }

    /// Whether an engine of this name may have these operations.
    pub(crate) fn is_known(self, name: &EngineName, operations: Operations) -> bool {
        self.0.is_empty() || self.find(name, operations).is_some()
    }

    /// The allowed names for an error message; `None` if this is one of them, or any name is allowed.
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

/// An engine.
#[derive(Debug, Clone, Copy)]
pub struct Descriptor {
    /// Name in studies, figures and stored runs.
    pub name: &'static str,
    /// Name on the command line (`run`, `power-cuts`); usually the same.
    pub command: &'static str,
    /// Name on pages.
    pub title: &'static str,
    /// Products that report themselves in their version: a substring of it, and the name on pages.
    pub products: &'static [(&'static str, &'static str)],
    /// The operations that it supports.
    pub operations: Operations,
    /// Runs on a block device without a file system.
    pub bare_device: bool,
    /// Runs in virtual time on a device model; and whether its files are mapped into memory.
    pub virtual_time: VirtualTime,
    /// Runs in a server process, whose DSNs have this scheme; none: it is embedded.
    pub server: Option<&'static str>,
    /// What must be installed; `None` if it is built in.
    pub needs: Option<&'static str>,
    /// Command that installs it.
    pub install: &'static str,
    /// How it implements `none`, `os` and `device`, in its own terms.
    pub durability: [&'static str; 3],
    /// Options of this engine.
    pub options: &'static [OptionDoc],
    /// Checks dependencies between options: returns the wrong one, and what is allowed.
    pub check: fn(&Options) -> Result<(), WrongOption>,
    /// Checks a variable, `name=value`, that is set while a server runs.
    pub check_change: fn(&str) -> Result<(), String>,
    /// Beginning of the paths of its write-ahead log below the directory of its database, if that can be on
    /// another stack.
    pub wal: Option<&'static str>,
    /// Keys of a job that writes as fast as the engine commits, for power cuts; `None`: no power cuts.
    pub power_cuts: Option<&'static str>,
}

/// How an engine runs in virtual time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VirtualTime {
    /// Not supported yet.
    No,
    /// With its files in any directory.
    AnyDirectory,
    /// With its files in memory, because it maps them.
    InMemory,
}

/// Power cuts under a key-value engine.
const POWER_CUTS: &str = "workload = \"overwrite\"\nrecords = 500\nvalue_size = \"400B\"\n\
    load_batch = 50\nverify = true\ndurability = \"device\"\n";

impl PartialEq for Descriptor {
    fn eq(&self, other: &Self) -> bool {
        (self.name, self.operations) == (other.name, other.operations)
    }
}

impl Eq for Descriptor {}

impl Descriptor {
    /// A built-in engine of this name without options; a starting point for struct update syntax.
    #[must_use]
    pub const fn new(name: &'static str, title: &'static str, operations: Operations) -> Self {
        Self {
            name,
            command: name,
            title,
            products: &[],
            operations,
            bare_device: false,
            virtual_time: VirtualTime::No,
            server: None,
            needs: None,
            install: "cargo build --release",
            durability: [""; 3],
            options: &[],
            check: |_| Ok(()),
            check_change: |_| Ok(()),
            wal: None,
            power_cuts: match operations {
                Operations::KeyValue => Some(POWER_CUTS),
                Operations::Block | Operations::Sql => None,
            },
        }
    }

    /// How it implements `durability`, in its own terms.
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

    /// The options of a job: those `given`, and defaults for the rest.
    ///
    /// # Errors
    /// The option that is invalid for this engine, and what is allowed.
    pub(crate) fn completed(&self, given: &Options) -> Result<Options, WrongOption> {
        let options = given.completed(self.options)?;
        (self.check)(&options).map(|()| options)
    }

    /// Whether it has an option of this name.
    #[must_use]
    pub fn has_option(&self, name: &str) -> bool {
        self.options.iter().any(|option| option.name == name)
    }
}

/// Engines for tests, with all properties that study checks depend on.
#[cfg(test)]
pub(crate) const ENGINES: Engines = {
    use crate::OptionKind;
    const MAP: &[OptionDoc] =
        crate::option_docs! { write_map: OptionKind::Flag, Some("false"), Differs, ""; };
    const OPTIONS: &[OptionDoc] = crate::option_docs! {
        buffer_pool: OptionKind::Pool(5 << 20, 1 << 50), Some("128MiB"), Always, "";
        page_size: OptionKind::Sizes(&[4 << 10, 16 << 10]), Some("16KiB"), Differs, "";
        compression: OptionKind::Words(&["none", "zlib"]), Some("none"), Differs, "";
    };
    const MAPPED: Descriptor = Descriptor {
        bare_device: true,
        options: MAP,
        ..Descriptor::new("lmdb", "LMDB", Operations::KeyValue)
    };
    const SERVER: Descriptor = Descriptor {
        server: Some("mysql"),
        wal: Some("redo"),
        options: OPTIONS,
        check_change: |pair| match pair.starts_with("innodb_") {
            true => Ok(()),
            false => Err(format!("`{pair}` cannot be changed")),
        },
        ..Descriptor::new("mysql", "MySQL", Operations::Sql)
    };
    const EMBEDDED: Descriptor = Descriptor {
        options: OPTIONS.split_at(2).0,
        ..Descriptor::new("sqlite", "SQLite", Operations::Sql)
    };
    Engines::of(&[
        &Descriptor::new("block", "raw blocks", Operations::Block),
        &MAPPED,
        &Descriptor::new("rocksdb", "RocksDB", Operations::KeyValue),
        &Descriptor::new("sqlite", "SQLite", Operations::KeyValue),
        &SERVER,
        &EMBEDDED,
    ])
};
