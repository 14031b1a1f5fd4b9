//! `figures`: tables of runs for people and programs.
//!
//! Invariant: binary data is not written to a terminal.

use std::io::{IsTerminal, Write};

use analysis::table::{Table, figure_table, histogram_table, series_table};
use archive::Run;

use crate::cli::{Format, Rows};
use crate::exit::{self, ExitCode};
use crate::output;
use crate::result_file::Output;
use crate::show::Failure;
use crate::words::plain;

/// Prints or writes the tables of `runs`.
pub fn print(
    runs: &[Run],
    (of, format): (Rows, Option<Format>),
    file: Option<&Output<'_>>,
) -> Result<ExitCode, Failure> {
    // The file extension selects the format: x.csv is comma-separated.
    let end = file.and_then(|file| Some(file.path.extension()?.to_str()?.to_ascii_lowercase()));
    let named = end.and_then(|end| match end.as_str() {
        "csv" => Some(Format::Csv),
        "json" => Some(Format::Json),
        "parquet" => Some(Format::Parquet),
        _ => None,
    });
    let format = format.or(named).unwrap_or(match of {
        Rows::Figures => Format::Table,
        Rows::Series | Rows::Histograms => Format::Csv,
    });
    if format == Format::Table && of != Rows::Figures {
        say!(
            "error: series and histograms have no table format\n  help: --format csv, json or parquet"
        );
        return Ok(exit::USAGE);
    }
    let bytes = match (of, format) {
        (Rows::Figures, Format::Table) => {
            plain(&report::text_table(&analysis::figures(runs))).into_bytes()
        }
        (Rows::Figures, Format::Csv) => report::csv(&analysis::figures(runs)).into_bytes(),
        (Rows::Figures, Format::Json) => analysis::document(&analysis::figures(runs)).into_bytes(),
        (of, format) => columns(&table(runs, of), of, format)?,
    };
    if let Some(file) = file {
        file.write(&bytes)?;
        file.print_path();
        return Ok(exit::OK);
    }
    if format == Format::Parquet {
        if std::io::stdout().is_terminal() {
            say!("error: Parquet cannot be printed to a terminal\n  help: add -o FILE");
            return Ok(exit::USAGE);
        }
        output::note(std::io::stdout().write_all(&bytes));
    } else {
        out!("{}", String::from_utf8_lossy(&bytes).trim_end());
    }
    Ok(exit::OK)
}

fn table(runs: &[Run], of: Rows) -> Table {
    match of {
        Rows::Figures => figure_table(&analysis::figures(runs)),
        Rows::Series => series_table(runs),
        Rows::Histograms => histogram_table(runs),
    }
}

fn columns(table: &Table, of: Rows, format: Format) -> Result<Vec<u8>, Failure> {
    let name = match of {
        Rows::Figures => "figures",
        Rows::Series => "series",
        Rows::Histograms => "histograms",
    };
    match format {
        Format::Json => Ok(report::columns_json(name, table).into_bytes()),
        Format::Parquet => report::columns_parquet(table).map_err(|error| {
            Failure::Output("the Parquet file".into(), std::io::Error::other(error))
        }),
        Format::Csv | Format::Table => Ok(report::columns_csv(table).into_bytes()),
    }
}
