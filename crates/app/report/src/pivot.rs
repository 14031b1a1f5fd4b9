//! Published tables in their original shape: rows and columns, one line per source in each cell.
//!
//! Places with the same name up to a colon are rows of one table. Columns are the varying metric and job.
//! Invariant: a cell's lines belong to one published value.

use analysis::comparing::{ClaimView, LineView, PlaceView, RowView};
use analysis::verdict::Lies;
use indexmap::IndexMap;
use serde::Serialize;

/// A table and its claims.
#[derive(Serialize)]
pub(crate) struct PlaceTable {
    place: String,
    pivot: Option<Pivot>,
    claims: Vec<ClaimRow>,
}

/// Numbers by row and column.
#[derive(Debug, Serialize)]
pub(crate) struct Pivot {
    columns: Vec<String>,
    rows: Vec<PivotRow>,
}

#[derive(Debug, Serialize)]
struct PivotRow {
    title: String,
    /// One per column; empty if nothing was published.
    cells: Vec<Vec<LineView>>,
}

#[derive(Serialize)]
struct ClaimRow {
    #[serde(flatten)]
    claim: ClaimView,
    /// Position of an inconclusive value, and its distance from the published one.
    lies: String,
}

/// One printed number with its place in a table.
struct Printed {
    row: String,
    view: RowView,
}

/// The tables of a publication, in the order of the publication.
pub(crate) fn place_tables(places: Vec<PlaceView>) -> Vec<PlaceTable> {
    let prefix = |place: &str| {
        place.rsplit_once(": ").map(|(table, row)| (table.to_owned(), row.to_owned()))
    };
    let shared = |table: &str| {
        let alike = places.iter().filter(|one| prefix(&one.place).is_some_and(|(t, _)| t == table));
        alike.count() > 1
    };
    let names: Vec<(String, Option<String>)> = places
        .iter()
        .map(|one| match prefix(&one.place) {
            Some((table, row)) if shared(&table) => (table, Some(row)),
            _ => (one.place.clone(), None),
        })
        .collect();
    let mut out: IndexMap<String, (Vec<Printed>, Vec<ClaimRow>)> = IndexMap::new();
    for ((table, row), place) in names.into_iter().zip(places) {
        let (rows, claims) = out.entry(table).or_default();
        let printed = place.rows.into_iter().map(|view| {
            let of_engine = view.what.split(',').next().unwrap_or_default();
            let row = match &row {
                Some(row) => format!("{}, {row}", crate::words::engine_word(of_engine)),
                None => view.stack.clone(),
            };
            Printed { row, view }
        });
        rows.extend(printed);
        claims.extend(place.claims.into_iter().map(claim_row));
    }
    out.into_iter()
        .map(|(place, (printed, claims))| {
            let pivot = (!printed.is_empty()).then(|| pivot(&printed));
            PlaceTable { place, pivot, claims }
        })
        .collect()
}

fn claim_row(claim: ClaimView) -> ClaimRow {
    // A claim can hold although its value is far from the published one.
    let far = claim.over_printed.filter(|times| !(1.0 / FAR..=FAR).contains(times));
    let far = far.map_or_else(String::new, |times| match times >= 1.0 {
        true => format!("{}x the published value", two_digits(times)),
        false => format!("1/{} of the published value", two_digits(1.0 / times)),
    });
    let lies = match claim.lies {
        Some(Lies::Outside) => "out of range",
        Some(Lies::Inside) => "within range",
        None => "",
    };
    let lies: Vec<&str> = [lies, &far].into_iter().filter(|one| !one.is_empty()).collect();
    let lies = lies.join(", ");
    ClaimRow { claim, lies }
}

/// Ratio from which ours and the printed value are called far apart.
const FAR: f64 = 2.0;

fn two_digits(value: f64) -> String {
    if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

fn pivot(printed: &[Printed]) -> Pivot {
    let several = |of: &dyn Fn(&Printed) -> &str| {
        let mut values: Vec<&str> = printed.iter().map(of).collect();
        values.sort_unstable();
        values.dedup();
        values.len() > 1
    };
    let metrics = several(&|one| one.view.metric.as_str());
    // If rows are engines, the columns need not repeat the engine.
    let of_row = |one: &Printed| {
        let same = printed.iter().filter(|other| other.row == one.row);
        let mut whats: Vec<&str> = same.map(|other| other.view.what.as_str()).collect();
        whats.sort_unstable();
        whats.dedup();
        whats.len()
    };
    let jobs = printed.iter().any(|one| of_row(one) > 1);
    let name = |one: &Printed| match (metrics, jobs) {
        (true, true) => format!("{}: {}", one.view.what, metric_words(&one.view.metric)),
        (false, true) => one.view.what.clone(),
        _ => metric_words(&one.view.metric),
    };
    let mut columns: Vec<String> = Vec::new();
    let mut rows: Vec<PivotRow> = Vec::new();
    for one in printed {
        let column = name(one);
        let at = columns.iter().position(|other| *other == column).unwrap_or_else(|| {
            columns.push(column);
            columns.len() - 1
        });
        let row = rows.iter().position(|other| other.title == one.row).unwrap_or_else(|| {
            rows.push(PivotRow { title: one.row.clone(), cells: Vec::new() });
            rows.len() - 1
        });
        let cells = &mut rows[row].cells;
        if cells.len() <= at {
            cells.resize_with(at + 1, Vec::new);
        }
        cells[at].extend(one.view.lines.iter().cloned());
    }
    for row in &mut rows {
        row.cells.resize_with(columns.len(), Vec::new);
    }
    let pivot = Pivot { columns, rows };
    if pivot.columns.len() > COLUMNS_MAX && pivot.rows.len() < COLUMNS_MAX {
        turned(pivot)
    } else {
        pivot
    }
}

/// Maximum number of columns; a wider table is transposed if it has fewer rows.
const COLUMNS_MAX: usize = 6;

/// Transposes the table.
fn turned(pivot: Pivot) -> Pivot {
    let columns = pivot.rows.iter().map(|row| row.title.clone()).collect();
    let mut rows: Vec<PivotRow> =
        pivot.columns.into_iter().map(|title| PivotRow { title, cells: Vec::new() }).collect();
    for cells in pivot.rows.into_iter().map(|row| row.cells) {
        for (row, cell) in rows.iter_mut().zip(cells) {
            row.cells.push(cell);
        }
    }
    Pivot { columns, rows }
}

/// A metric's name for people.
pub(crate) fn metric_words(metric: &str) -> String {
    let known = match metric {
        "latency_mean" => "mean latency",
        "latency_p50" => "median latency",
        "latency_p90" => "90th percentile",
        "latency_p99" => "99th percentile",
        "latency_p99_9" => "99.9th percentile",
        "iops" => "operations/s",
        "ops_rate" => "operations/s",
        "tx_rate" => "transactions/s",
        "iops_max" => "highest rate",
        "latency_growth_95" => "growth of latency at 95 %",
        "load_time" => "load time",
        "cpu_user" => "CPU, user",
        "cpu_sys" => "CPU, kernel",
        "cpu_ratio" => "CPU over time",
        "db_size" => "size",
        "db_bytes_per_record" => "bytes per record",
        "ctx_switches_voluntary" => "switches, voluntary",
        "ctx_switches_involuntary" => "switches, involuntary",
        "fs_in" => "blocks in",
        "fs_out" => "blocks out",
        "blocks_out_per_record" => "blocks out per record",
        "act_score" => "highest rating",
        "act_score_over_1ms" => "over 1 ms",
        "act_score_over_2ms" => "over 2 ms",
        "best_page_size" => "best page size",
        "race_time" => "time",
        other => return other.replace('_', " "),
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str, metric: &str) -> PlaceView {
        let line = LineView {
            source: "published",
            text: "1 s".into(),
            stand_in: false,
            tag: String::new(),
            near: "none",
        };
        let row = RowView {
            stack: "ext4".into(),
            what: "lmdb, load".into(),
            metric: metric.into(),
            lines: vec![line],
        };
        PlaceView { place: name.into(), rows: vec![row], claims: Vec::new() }
    }

    /// A value inside the claim's range but far from the published one must not read as agreement.
    #[test]
    fn a_claim_says_where_ours_lies_and_how_far_it_is() {
        let lies = |lies: Option<Lies>, over_printed: Option<f64>| {
            let claim = ClaimView {
                text: String::new(),
                number: String::new(),
                published: String::new(),
                ours: String::new(),
                source: String::new(),
                verdict: "inconclusive",
                about: "on the published drives",
                lies,
                over_printed,
                why: String::new(),
                range: String::new(),
                because: String::new(),
            };
            claim_row(claim).lies
        };
        assert_eq!(lies(Some(Lies::Inside), Some(42.2)), "within range, 42x the published value");
        assert_eq!(
            lies(Some(Lies::Outside), Some(0.128)),
            "out of range, 1/7.8 of the published value"
        );
        assert_eq!(lies(Some(Lies::Inside), Some(1.9)), "within range");
        assert_eq!(lies(None, None), "");
    }

    /// Places with the same table name are rows of one table; otherwise each row of a published table would
    /// become a table of its own.
    #[test]
    fn places_of_one_table_are_its_rows() {
        let tables = place_tables(vec![
            place("Loading (table): Flash", "load_time"),
            place("Loading (table): Optane", "load_time"),
            place("Loading (table): Optane", "db_size"),
            place("Curves", "iops"),
        ]);
        assert_eq!(tables.len(), 2);
        let pivot = tables[0].pivot.as_ref().unwrap();
        assert_eq!(pivot.columns, ["load time", "size"]);
        let titles: Vec<&str> = pivot.rows.iter().map(|row| row.title.as_str()).collect();
        assert_eq!(titles, ["LMDB, Flash", "LMDB, Optane"]);
        assert!(pivot.rows[0].cells[1].is_empty() && !pivot.rows[1].cells[1].is_empty());
    }

    /// A wide, low table would be cut off at the page's edge and must be transposed.
    #[test]
    fn a_table_that_is_wide_and_low_is_turned() {
        let metrics = ["a", "b", "c", "d", "e", "f", "g"];
        let tables = place_tables(metrics.iter().map(|metric| place("One", metric)).collect());
        let pivot = tables[0].pivot.as_ref().unwrap();
        assert_eq!(pivot.columns, ["ext4"]);
        let titles: Vec<&str> = pivot.rows.iter().map(|row| row.title.as_str()).collect();
        assert_eq!(titles, metrics);
        assert!(pivot.rows.iter().all(|row| row.cells.len() == 1 && row.cells[0].len() == 1));
    }
}
