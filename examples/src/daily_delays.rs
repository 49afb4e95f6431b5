//! The delayed departures of each carrier by day, computed in columns.
//!
//! The records stay in Arrow columns from the CSV file to the JSON file: no row is made. The
//! program `daily-delays` is this job: `daily-delays flights.csv delays.jsonl`. The flights of the
//! demo are a suitable input.

use std::sync::Arc;

use ardea::columns::arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use ardea::columns::{Columns, avg, col, count, files, max};
use ardea::core::{Error, ErrorCode};
use ardea::prelude::{Duration, Pipeline, Result, WatermarkPolicy, Window};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The text in the place of a delay of a flight that did not leave.
const NOT_AVAILABLE: &str = "NA";

/// A delay of fewer minutes does not count.
const LEAST_MINUTES: i64 = 15;

/// Builds the job for the arguments `FLIGHTS RESULTS`.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] for other arguments.
pub fn build(arguments: &[String]) -> Result<Pipeline> {
    let [flights, results] = arguments else {
        let what = "two arguments are required: a CSV file of flights and a file for results";
        return Err(Error::new(ErrorCode::InvalidConfig, what)
            .hint("write for example daily-delays flights.csv delays.jsonl"));
    };
    let p = Pipeline::new("daily-delays");
    let minutes = col("dep_delay").cast(DataType::Int64).alias("minutes");
    Columns::read_from(&p, files::csv(flights).schema(flight_columns()))
        .filter(col("dep_delay").not_eq(NOT_AVAILABLE))
        .select([col("carrier"), col("time_hour"), minutes])
        .filter(col("minutes").gt_eq(LEAST_MINUTES))
        .with_timestamps("time_hour", WatermarkPolicy::out_of_order(DAY))
        .key_by(["carrier"])
        .window(Window::tumbling(DAY))
        .aggregate(
            "delays",
            [
                count().alias("flights"),
                avg("minutes").alias("mean_minutes"),
                max("minutes").alias("most_minutes"),
            ],
        )
        .write_to(files::write_json_lines(results));
    Ok(p)
}

/// Returns the columns that are read; the others are skipped.
fn flight_columns() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    Arc::new(Schema::new(vec![
        Field::new("carrier", DataType::Utf8, false),
        Field::new("dep_delay", DataType::Utf8, false),
        Field::new("time_hour", time, false),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_aggregated_by_carrier_and_day() {
        let folder = tempfile::tempdir().unwrap();
        let (flights, results) = (
            folder.path().join("flights.csv"),
            folder.path().join("delays.jsonl"),
        );
        let lines = "time_hour,carrier,dep_delay\n2013-01-01T10:00:00Z,UA,20\n\
            2013-01-01T11:00:00Z,UA,NA\n2013-01-01T12:00:00Z,UA,40\n2013-01-02T10:00:00Z,AA,1\n";
        std::fs::write(&flights, lines).unwrap();
        let arguments = [&flights, &results].map(|path| path.display().to_string());
        build(&arguments).unwrap().run().unwrap();
        let expected = r#"{"window_start":"2013-01-01T00:00:00","window_end":"2013-01-02T00:00:00","carrier":"UA","flights":2,"mean_minutes":30.0,"most_minutes":40}"#;
        assert_eq!(
            std::fs::read_to_string(&results).unwrap().trim_end(),
            expected
        );
    }
}
