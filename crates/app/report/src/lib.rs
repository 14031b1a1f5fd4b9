//! Views of runs: tables, sentences and the one-file report.
//!
//! Invariants: every value shows its source; the report makes no network request.

mod advice_view;
mod answer;
mod block_findings;
mod bounds;
mod chart;
mod charts;
mod checks;
mod columns;
mod compare_view;
mod comparison;
mod database_findings;
mod decision_text;
mod decision_view;
mod finding;
mod hue;
mod laws_view;
mod library;
mod page;
mod parts_view;
mod pivot;
mod scaling_view;
mod sql_charts;
#[cfg(test)]
mod stored;
mod strip_view;
mod svg;
mod sweeps;
mod table;
mod trust_view;
mod what_if;
mod words;

pub use advice_view::advice_lines;
pub use answer::{bottlenecks, headline};
pub use checks::{check_lines, shortlist_lines};
pub use columns::{columns_csv, columns_json, columns_parquet};
pub use compare_view::{CompareRow, CompareView, compare_view};
pub use decision_text::{decision_lines, junit, markdown};
pub use library::{Listed, follow_page, library_page, trend_page};
pub use page::{ReportError, html};
pub use table::{csv, gains, summary, text_table};
