//! Column tables as files: CSV, JSON, Parquet.
//!
//! Invariants: the same rows in each format; text that a spreadsheet would take for a formula stays text.

use std::sync::Arc;

use analysis::table::{Cells, Table};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use serde_json::{Map, Value};

/// Rows per row group of a Parquet file.
const GROUP_ROWS: usize = 100_000;

/// Comma-separated values (RFC 4180) with a line of names.
#[must_use]
pub fn columns_csv(table: &Table) -> String {
    let names: Vec<&str> = table.columns.iter().map(|(name, _)| *name).collect();
    let mut out = names.join(",");
    out.push('\n');
    for row in 0..table.rows() {
        let cells: Vec<String> =
            table.columns.iter().map(|(_, cells)| cell_text(cells, row)).collect();
        out.push_str(&cells.join(","));
        out.push('\n');
    }
    out
}

fn cell_text(cells: &Cells, row: usize) -> String {
    match cells {
        Cells::Text(all) => all[row].as_deref().map(quote).unwrap_or_default(),
        Cells::Number(all) => all[row].map(|value| value.to_string()).unwrap_or_default(),
        Cells::Count(all) => all[row].map(|value| value.to_string()).unwrap_or_default(),
        Cells::Flag(all) => all[row].to_string(),
    }
}

/// `{"schema": 1, NAME: [{...}, ...]}`.
#[must_use]
pub fn columns_json(name: &str, table: &Table) -> String {
    let row = |row: usize| {
        let value = |cells: &Cells| match cells {
            Cells::Text(all) => all[row].clone().into(),
            Cells::Number(all) => all[row].into(),
            Cells::Count(all) => all[row].into(),
            Cells::Flag(all) => all[row].into(),
        };
        let cells = table.columns.iter().map(|(name, cells)| ((*name).to_owned(), value(cells)));
        Value::Object(cells.collect::<Map<_, _>>())
    };
    let rows: Vec<Value> = (0..table.rows()).map(row).collect();
    let mut document = Map::new();
    document.insert("schema".into(), 1.into());
    document.insert(name.into(), rows.into());
    Value::Object(document).to_string()
}

/// Returns a Parquet file, compressed with zstd. Columns that can lack values are optional.
///
/// # Errors
/// The writer's message; no error is known to occur when writing to memory.
pub fn columns_parquet(table: &Table) -> Result<Vec<u8>, String> {
    let made = || -> Result<Vec<u8>, ParquetError> {
        let fields = table.columns.iter().map(|(name, cells)| field(name, cells).map(Arc::new));
        let fields = fields.collect::<Result<Vec<_>, _>>()?;
        let schema = Type::group_type_builder("crosspoint").with_fields(fields).build()?;
        let compression = Compression::ZSTD(Default::default());
        let properties = WriterProperties::builder().set_compression(compression).build();
        let mut out = Vec::new();
        let mut file = SerializedFileWriter::new(&mut out, Arc::new(schema), Arc::new(properties))?;
        for from in (0..table.rows()).step_by(GROUP_ROWS) {
            let rows = from..table.rows().min(from + GROUP_ROWS);
            let mut group = file.next_row_group()?;
            let mut columns = table.columns.iter();
            while let (Some(mut column), Some((_, cells))) = (group.next_column()?, columns.next())
            {
                write_column(&mut column, cells, rows.clone())?;
                column.close()?;
            }
            group.close()?;
        }
        file.close()?;
        Ok(out)
    };
    made().map_err(|error| error.to_string())
}

fn field(name: &str, cells: &Cells) -> Result<Type, ParquetError> {
    let (physical, logical, repetition) = match cells {
        Cells::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String), Repetition::OPTIONAL),
        Cells::Number(_) => (Physical::DOUBLE, None, Repetition::OPTIONAL),
        Cells::Count(_) => (Physical::INT64, None, Repetition::OPTIONAL),
        Cells::Flag(_) => (Physical::BOOLEAN, None, Repetition::REQUIRED),
    };
    Type::primitive_type_builder(name, physical)
        .with_logical_type(logical)
        .with_repetition(repetition)
        .build()
}

fn write_column(
    column: &mut SerializedColumnWriter<'_>,
    cells: &Cells,
    rows: std::ops::Range<usize>,
) -> Result<(), ParquetError> {
    // Definition levels: 1 for a value, 0 for a missing one.
    fn levels<T>(all: &[Option<T>]) -> Vec<i16> {
        all.iter().map(|one| i16::from(one.is_some())).collect()
    }
    match cells {
        Cells::Text(all) => {
            let all = &all[rows];
            let values: Vec<ByteArray> =
                all.iter().flatten().map(|text| text.as_str().into()).collect();
            column.typed::<ByteArrayType>().write_batch(&values, Some(&levels(all)), None)?;
        }
        Cells::Number(all) => {
            let all = &all[rows];
            let values: Vec<f64> = all.iter().flatten().copied().collect();
            column.typed::<DoubleType>().write_batch(&values, Some(&levels(all)), None)?;
        }
        Cells::Count(all) => {
            let all = &all[rows];
            let values =
                all.iter().flatten().map(|value| i64::try_from(*value).unwrap_or(i64::MAX));
            let values: Vec<i64> = values.collect();
            column.typed::<Int64Type>().write_batch(&values, Some(&levels(all)), None)?;
        }
        Cells::Flag(all) => {
            column.typed::<BoolType>().write_batch(&all[rows], None, None)?;
        }
    }
    Ok(())
}

/// Quotes a text cell. Spreadsheets take some first characters for a formula; an apostrophe prevents that.
fn quote(cell: &str) -> String {
    let cell = &cell.replace(|c: char| c.is_control() && c != '\n', " ");
    let formula =
        cell.starts_with(['=', '+', '-', '@', '\t', '\r']) && cell.parse::<f64>().is_err();
    let cell = &if formula { format!("'{cell}") } else { cell.to_owned() };
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    fn table() -> Table {
        let text = vec![Some("a".to_owned()), None, Some("=1+1".to_owned())];
        Table {
            columns: vec![
                ("name", Cells::Text(text)),
                ("value", Cells::Number(vec![Some(1.5), Some(-2.0), None])),
                ("count", Cells::Count(vec![Some(7), None, Some(u64::MAX)])),
                ("flag", Cells::Flag(vec![true, false, true])),
            ],
        }
    }

    #[test]
    fn csv_and_json_have_what_is_there_and_nothing_for_what_is_not() {
        let csv = columns_csv(&table());
        assert_eq!(
            csv,
            "name,value,count,flag\na,1.5,7,true\n,-2,,false\n'=1+1,,18446744073709551615,true\n"
        );
        let json: Value = serde_json::from_str(&columns_json("rows", &table())).unwrap();
        assert_eq!(json["rows"][0]["value"], 1.5);
        assert_eq!(json["rows"][1]["name"], Value::Null);
        assert_eq!(json["rows"].as_array().unwrap().len(), 3);
    }

    /// Parquet files must be readable by other programs with the same values.
    #[test]
    fn parquet_reads_back_as_it_was_written() {
        let bytes = columns_parquet(&table()).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), 3);
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows[0].get_string(0).unwrap(), "a");
        assert!((rows[1].get_double(1).unwrap() + 2.0).abs() < 1e-12);
        assert!(rows[2].get_double(1).is_err(), "there is none");
        assert_eq!((rows[0].get_long(2).unwrap(), rows[2].get_bool(3).unwrap()), (7, true));
    }

    /// A study's title must neither run as a spreadsheet formula nor control a terminal.
    #[test]
    fn cells_are_text_whatever_they_begin_with() {
        assert_eq!(quote("=cmd|' /C calc'!A1"), "'=cmd|' /C calc'!A1");
        assert_eq!(quote("+1+1"), "'+1+1");
        assert_eq!(quote("@SUM(A1)"), "'@SUM(A1)");
        assert_eq!(quote("-3.5"), "-3.5");
        assert_eq!(quote("a\u{1b}[2Jb"), "a [2Jb");
        assert_eq!(quote("a,\"b\""), "\"a,\"\"b\"\"\"");
    }

    #[test]
    fn cells_with_commas_are_quoted() {
        assert_eq!(quote("a,b"), "\"a,b\"");
        assert_eq!(quote("say \"x\""), "\"say \"\"x\"\"\"");
        assert_eq!(quote("plain"), "plain");
    }
}
