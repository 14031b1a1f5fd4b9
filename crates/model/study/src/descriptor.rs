//! What users and the rest of the program see of an engine.
//!
//! A [`Descriptor`] is data. Command line, `doctor`, power cuts, page titles and reference docs are made
//! from it, so that adding an engine needs no change in them.

use crate::Durability;

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
