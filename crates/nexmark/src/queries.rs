//! The queries over a file of events, in event time.
//!
//! Each is a short [`Pipeline`] from JSON lines to JSON lines. The file is read to its end before
//! any window closes, unless [`QueryRun::out_of_order`] bounds its disorder. So the results are
//! those of exactly that file, in any order. `columns` has the same queries over Arrow columns
//! (feature `columns`).
//!
//! | query | result |
//! |---|---|
//! | q0 | every bid |
//! | q1 | every bid, its price in euros |
//! | q2 | the bids on auctions divisible by 123 |
//! | q3 | persons of OR, ID and CA with their auctions of category 10 |
//! | q4 | the average winning price of each category |
//! | q5 | in each sliding window, the auctions with the most bids |
//! | q6 | the average price of each seller's last ten auctions that were won |
//! | q7 | the highest bids of each tumbling window |
//! | q8 | persons who appear and open an auction in the same window |
//! | q13 | bids joined with a table |

mod auctions;
mod bids;
#[cfg(feature = "columns")]
pub mod columns;
mod joins;
mod query;
mod windows;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ardea_connectors::format::{Decode, JsonLines};
use ardea_connectors::{files, stdout};
use ardea_core::{Bounded, Error, ErrorCode, Result, Sink, Timestamp};
use ardea_pipeline::{Pipeline, Stream, Timed, WatermarkPolicy};
use serde::Serialize;

use crate::Event;

pub use query::Query;

/// A query with its input and output.
#[derive(Clone, Debug)]
pub struct QueryRun {
    /// The query.
    pub query: Query,
    /// A file of events as JSON lines; may be compressed. For queries over bids alone (q1, q2, q5,
    /// q7, q13) also a CSV file of bids, with a header.
    pub input: PathBuf,
    /// The file of results, as JSON lines; `-` is the standard output.
    pub output: PathBuf,
    /// The length of windows; the query's default if `None`.
    pub window: Option<Duration>,
    /// The slide of windows; the query's default if `None`.
    pub slide: Option<Duration>,
    /// The table of query 13: CSV of `key,value`, with or without a header.
    pub side: Option<PathBuf>,
    /// The maximum disorder of the events; unknown if `None`.
    pub out_of_order: Option<Duration>,
}

/// Returns the pipeline of a run.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the query needs a table and none is given;
/// [`ErrorCode::ReadFailed`] if the table can't be read.
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
        Query::Q8 => joins::q8(run, &p),
        Query::Q13 => joins::q13(run, &p)?,
    }
    Ok(p)
}

impl QueryRun {
    /// Returns the events of the input, with their times.
    fn events(&self, p: &Pipeline) -> Stream<Event, Bounded, Timed> {
        self.read(p, JsonLines, Event::date_time)
    }

    /// Returns the records of the input, with their times in milliseconds.
    fn read<T: Send + 'static>(
        &self,
        p: &Pipeline,
        decoder: impl Decode<T>,
        date_time: fn(&T) -> i64,
    ) -> Stream<T, Bounded, Timed> {
        p.read_from(files::read(&self.input, decoder).build())
            .with_timestamps(
                move |record| Timestamp::from_millis(date_time(record)),
                self.watermarks(),
            )
    }

    /// Returns the policy of watermarks. With an unknown disorder nothing is late, and windows
    /// close at the end of the file.
    fn watermarks(&self) -> WatermarkPolicy {
        WatermarkPolicy::out_of_order(self.out_of_order.unwrap_or(Duration::MAX)).idle_timeout(None)
    }

    /// Returns true if the name of the input is that of a CSV file.
    fn is_csv(&self) -> bool {
        let name = self.input.to_string_lossy();
        let name = name
            .strip_suffix(".gz")
            .or(name.strip_suffix(".zst"))
            .unwrap_or(&name);
        name.ends_with(".csv")
    }

    fn window(&self) -> Duration {
        self.window.unwrap_or(Duration::from_secs(10))
    }

    fn sink<T: Serialize + Send + 'static>(&self) -> Sink<T> {
        if self.output.as_os_str() == "-" {
            stdout::json_lines().build()
        } else {
            files::write_json_lines(&self.output).build()
        }
    }

    /// Returns the table of query 13, and the file from which it was read.
    fn side(&self) -> Result<(&Path, Vec<(u64, String)>)> {
        let Some(path) = &self.side else {
            return Err(Error::new(
                ErrorCode::InvalidConfig,
                "query 13 needs a table, and none was given",
            )
            .hint("give a CSV file of key,value with --side"));
        };
        Ok((path, joins::read_side(path)?))
    }
}
