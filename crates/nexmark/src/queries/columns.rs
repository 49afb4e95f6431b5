//! The queries over Arrow columns, with the results of the queries over rows.
//!
//! Only the fields that a query uses are decoded.

mod bids;
mod windows;

use std::sync::Arc;

use ardea_columns::{ColumnArgument, ColumnSource, Columns, Expr, col, files};
use ardea_core::{Bounded, Error, ErrorCode, Result};
use ardea_pipeline::{Pipeline, Timed, Untimed};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Query, QueryRun};

/// Returns the pipeline of a run over columns.
///
/// ```no_run
/// use ardea_nexmark::queries::{Query, QueryRun, columns};
///
/// let run = QueryRun {
///     query: Query::Q5,
///     input: "events.jsonl".into(),
///     output: "hot.jsonl".into(),
///     window: None,
///     slide: None,
///     side: None,
///     out_of_order: None,
/// };
/// columns::build(&run)?.run()?;
/// # Ok::<(), ardea_core::Error>(())
/// ```
///
/// # Errors
/// Those of [`queries::build`](super::build), and [`ErrorCode::InvalidConfig`] for a query that is
/// not available over columns.
pub fn build(run: &QueryRun) -> Result<Pipeline> {
    let p = Pipeline::new(run.query.name());
    match run.query {
        Query::Q1 => bids::q1(run, &p),
        Query::Q2 => bids::q2(run, &p),
        Query::Q5 => windows::q5(run, &p),
        other => {
            let what = format!("query {} is not available over columns", other.name());
            return Err(Error::new(ErrorCode::InvalidConfig, what).hint("run it over rows"));
        }
    }
    Ok(p)
}

impl QueryRun {
    /// Returns a source of these fields of the input.
    fn columns(&self, fields: Vec<Field>) -> ColumnSource<Bounded> {
        let schema = Arc::new(Schema::new(fields));
        #[cfg(feature = "parquet")]
        if self.is_parquet() {
            return files::parquet(&self.input).schema(schema).into();
        }
        let files = match self.is_csv() {
            true => files::csv(&self.input),
            false => files::json_lines(&self.input),
        };
        files.schema(schema).into()
    }

    /// Returns true if the name of the input is that of a Parquet file.
    fn is_parquet(&self) -> bool {
        self.input.extension().is_some_and(|it| it == "parquet")
    }
}

/// Writes results, whose records in rows are `T`.
fn write<T, E>(run: &QueryRun, results: Columns<Bounded, E>)
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    match run.output.as_os_str() == "-" {
        true => results.rows::<T>().write_to(run.sink()),
        false => results.write_to(files::write_json_lines(&run.output)),
    }
}

/// Returns the type of a numeric field of an event.
fn number(name: &str) -> DataType {
    match name {
        "date_time" | "expires" => DataType::Int64,
        _ => DataType::UInt64,
    }
}

/// Returns these fields of the bids of the input: of a CSV or Parquet file each record is one.
fn bids<const N: usize>(
    run: &QueryRun,
    p: &Pipeline,
    names: [&str; N],
) -> Columns<Bounded, Untimed> {
    let of_bids = |is_nullable| names.map(|name| Field::new(name, number(name), is_nullable));
    if run.is_csv() || run.is_parquet() {
        return Columns::read_from(p, run.columns(of_bids(false).to_vec()));
    }
    let mut fields = vec![Field::new("kind", DataType::Utf8, false)];
    // Other events lack these fields.
    fields.extend(of_bids(true));
    Columns::read_from(p, run.columns(fields))
        .filter(col("kind").eq("bid"))
        .select(names.map(|name| col(name).required()))
}

/// Assigns the event times of the field `date_time`.
fn timed(run: &QueryRun, events: Columns<Bounded, Untimed>) -> Columns<Bounded, Timed> {
    let time = col("date_time").cast(DataType::Timestamp(TimeUnit::Millisecond, None));
    events.with_timestamps(time, run.watermarks())
}

/// Returns a bound of windows in milliseconds since the Unix epoch.
fn in_millis(bound: &str) -> ColumnArgument {
    let millis = DataType::Timestamp(TimeUnit::Millisecond, None);
    let expr: Expr = col(bound).cast(millis).cast(DataType::Int64).alias(bound);
    expr.into()
}
