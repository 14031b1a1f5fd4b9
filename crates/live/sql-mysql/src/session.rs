//! One connection with the workload's statements, prepared or as text.
//!
//! Invariant: a statement's whole result is taken before the next. What it is not: a choice of rows.

use mysql::prelude::Queryable;
use mysql::{Conn, Params, Statement, Value};
use sql::{Flavour, Row, Session, SqlError, Target, prepared_text, texts_of, write_text};
use study::{SqlDialect, SqlJob};
use workload::{OpClass, SqlOp};

use crate::connection::{connect_with, told};
use crate::options::table_options;

/// Statements of a table, prepared.
type OfTable = [Option<Statement>; OpClass::STATEMENTS.len()];

/// A connection.
#[derive(Debug)]
pub struct MysqlSession {
    conn: Conn,
    dialect: SqlDialect,
    /// By table, then by class; empty when statements are sent as text.
    prepared: Vec<OfTable>,
    text: Vec<u8>,
    table_options: String,
}

/// Place of a class among the statements.
const fn place(class: OpClass) -> usize {
    class.index() - OpClass::Begin.index()
}

impl MysqlSession {
    pub(crate) fn open(
        target: &Target,
        flavour: Flavour,
        job: &SqlJob,
        statements: bool,
    ) -> Result<Self, SqlError> {
        let prepare = statements && job.prepared;
        let classes: Vec<OpClass> =
            job.workload.mix().classes().into_iter().filter(|class| class.is_statement()).collect();
        let most = classes.len() * job.tables as usize + 4;
        let mut conn = connect_with(target, if prepare { most } else { 4 })?;
        let mut prepared = Vec::new();
        for table in 1..=if prepare { job.tables } else { 0 } {
            let mut of_table: OfTable = Default::default();
            for &class in &classes {
                let statement = conn.prep(prepared_text(class, table)).map_err(told)?;
                of_table[place(class)] = Some(statement);
            }
            prepared.push(of_table);
        }
        let (dialect, table_options) = (job.dialect, table_options(flavour, job));
        Ok(Self { conn, dialect, prepared, text: Vec::with_capacity(512), table_options })
    }

    fn execute(&mut self, op: &SqlOp) -> mysql::Result<()> {
        let number = |number: u64| Value::UInt(number);
        let parameters = match op.class {
            OpClass::Begin | OpClass::Commit => Params::Empty,
            OpClass::SimpleRange
            | OpClass::SumRange
            | OpClass::OrderRange
            | OpClass::DistinctRange => Params::Positional(vec![number(op.row), number(op.other)]),
            OpClass::NonIndexUpdate => {
                let (c, _) = texts_of(op);
                Params::Positional(vec![Value::Bytes(c.to_vec()), number(op.row)])
            }
            OpClass::Insert => {
                let (c, pad) = texts_of(op);
                Params::Positional(vec![
                    number(op.row),
                    number(op.other),
                    Value::Bytes(c.to_vec()),
                    Value::Bytes(pad.to_vec()),
                ])
            }
            _ => Params::Positional(vec![number(op.row)]),
        };
        let of_table = &self.prepared[op.table as usize - 1];
        let statement = of_table[place(op.class)].as_ref();
        let statement = statement.expect("invariant: the workload's classes were prepared");
        let mut result = self.conn.exec_iter(statement, parameters)?;
        for row in result.by_ref() {
            row?;
        }
        Ok(())
    }

    fn send_text(&mut self, op: &SqlOp) -> mysql::Result<()> {
        write_text(op, self.dialect, &mut self.text);
        let text = std::str::from_utf8(&self.text).expect("invariant: statements are ASCII");
        let mut result = self.conn.query_iter(text)?;
        for row in result.by_ref() {
            row?;
        }
        Ok(())
    }
}

/// The index is there already.
const DUPLICATE_KEY_NAME: u16 = 1061;

impl Session for MysqlSession {
    fn perform(&mut self, op: &SqlOp) -> Result<(), SqlError> {
        let result = if self.prepared.is_empty() { self.send_text(op) } else { self.execute(op) };
        result.map_err(told)
    }

    fn roll_back(&mut self) -> Result<(), SqlError> {
        self.conn.query_drop("ROLLBACK").map_err(told)
    }

    fn create_table(&mut self, table: u32) -> Result<u64, SqlError> {
        // The old scripts' numbers are unsigned.
        let number = match self.dialect {
            SqlDialect::Sysbench05 => "INTEGER UNSIGNED",
            SqlDialect::Sysbench10 => "INTEGER",
        };
        let create = format!(
            "CREATE TABLE IF NOT EXISTS sbtest{table} (id {number} NOT NULL AUTO_INCREMENT, \
             k {number} DEFAULT '0' NOT NULL, c CHAR(120) DEFAULT '' NOT NULL, \
             pad CHAR(60) DEFAULT '' NOT NULL, PRIMARY KEY (id)) ENGINE=InnoDB{}",
            self.table_options
        );
        self.conn.query_drop(create).map_err(told)?;
        let highest = format!("SELECT COALESCE(MAX(id), 0) FROM sbtest{table}");
        Ok(self.conn.query_first(highest).map_err(told)?.unwrap_or(0))
    }

    fn insert(&mut self, table: u32, rows: &[Row<'_>]) -> Result<(), SqlError> {
        let mut text = format!("INSERT INTO sbtest{table} (id, k, c, pad) VALUES ");
        for (number, row) in rows.iter().enumerate() {
            let (c, pad) = (String::from_utf8_lossy(row.c), String::from_utf8_lossy(row.pad));
            let comma = if number == 0 { "" } else { "," };
            text.push_str(&format!("{comma}({},{},'{c}','{pad}')", row.id, row.k));
        }
        self.conn.query_drop(text).map_err(told)
    }

    fn create_index(&mut self, table: u32) -> Result<(), SqlError> {
        let create = format!("CREATE INDEX k_{table} ON sbtest{table}(k)");
        match self.conn.query_drop(create).map_err(told) {
            Err(SqlError::Statement { code: DUPLICATE_KEY_NAME, .. }) => Ok(()),
            other => other,
        }
    }
}
