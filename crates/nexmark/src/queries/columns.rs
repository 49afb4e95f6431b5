//! The queries over Arrow columns, with the results of the queries over rows.
//!
//! Only the fields that a query uses are decoded.

mod auctions;
mod bids;
mod joins;
mod windows;

use std::sync::Arc;

use ardea_columns::{ColumnArgument, ColumnSource, Columns, Expr, col, files};
use ardea_core::{Bounded, Result};
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
/// Those of [`queries::build`](super::build).
pub fn build(run: &QueryRun) -> Result<Pipeline> {
    let p = Pipeline::new(run.query.name());
    match run.query {
        Query::Q0 => bids::q0(run, &p),
        Query::Q1 => bids::q1(run, &p),
        Query::Q2 => bids::q2(run, &p),
        Query::Q3 => joins::q3(run, &p),
        Query::Q4 => auctions::q4(run, &p),
        Query::Q5 => windows::q5(run, &p),
        Query::Q6 => auctions::q6(run, &p),
        Query::Q7 => windows::q7(run, &p),
        Query::Q8 => windows::q8(run, &p),
        Query::Q13 => joins::q13(run, &p)?,
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

    /// Writes results as JSON lines. On the standard output, they are rows of `T`.
    fn write<T: Serialize + DeserializeOwned + Send + 'static, E>(
        &self,
        results: Columns<Bounded, E>,
    ) {
        match self.output.as_os_str() == "-" {
            true => results.rows::<T>().write_to(self.sink()),
            false => results.write_to(files::write_json_lines(&self.output)),
        }
    }
}

/// Returns the type of a field of an event.
fn type_of(name: &str) -> DataType {
    match name {
        "date_time" | "expires" => DataType::Int64,
        "name" | "city" | "state" | "channel" | "url" | "extra" => DataType::Utf8,
        _ => DataType::UInt64,
    }
}

/// Returns the value of a field that events of its kind have. A missing text is empty, and a
/// missing number makes the event bad.
fn required(name: &str) -> Expr {
    match type_of(name) {
        DataType::Utf8 => col(name).if_null("").alias(name),
        _ => col(name).required(),
    }
}

/// Returns these fields of the events of the input, all of which are nullable, and their kind.
fn events(run: &QueryRun, p: &Pipeline, names: &[&str]) -> Columns<Bounded, Untimed> {
    let mut fields = vec![Field::new("kind", DataType::Utf8, false)];
    let nullable = names
        .iter()
        .map(|name| Field::new(*name, type_of(name), true));
    fields.extend(nullable);
    Columns::read_from(p, run.columns(fields))
}

/// Returns the events of one kind, with these fields.
fn of_kind<E>(
    events: Columns<Bounded, E>,
    kind: &str,
    names: impl IntoIterator<Item = &'static str>,
) -> Columns<Bounded, E> {
    let names = names.into_iter();
    events
        .filter(col("kind").eq(kind))
        .select(names.map(required))
}

/// Returns these fields of the bids of the input: of a CSV or Parquet file each record is one.
fn bids(run: &QueryRun, p: &Pipeline, names: &[&'static str]) -> Columns<Bounded, Untimed> {
    if !run.is_csv() && !run.is_parquet() {
        return of_kind(events(run, p, names), "bid", names.iter().copied());
    }
    let fields = names
        .iter()
        .map(|name| Field::new(*name, type_of(name), false));
    Columns::read_from(p, run.columns(fields.collect()))
}

/// Assigns the event times of the field `date_time`.
fn timed(run: &QueryRun, events: Columns<Bounded, Untimed>) -> Columns<Bounded, Timed> {
    let time = col("date_time").cast(DataType::Timestamp(TimeUnit::Millisecond, None));
    events.with_timestamps(time, run.watermarks())
}

/// Returns a bound of windows in milliseconds since the Unix epoch, as the column `name`.
fn in_millis(bound: &str, name: &str) -> ColumnArgument {
    let millis = DataType::Timestamp(TimeUnit::Millisecond, None);
    let expr: Expr = col(bound).cast(millis).cast(DataType::Int64).alias(name);
    expr.into()
}
