//! The parameters of `ardea bench input`.

use ardea_config::parse_count;
use ardea_core::Result;
use clap::ValueEnum;

use crate::bounds::{check_range, check_threads, refused};
use crate::report::{Field, fields};

/// The format of the input.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum InputFormat {
    /// A JSON object per line
    Json,
    /// CSV with a header; bids only
    Csv,
    /// Parquet; bids only, read by columns
    Parquet,
}

/// The query over the input.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum InputQuery {
    /// Every bid, with its price in euros
    Q1,
    /// The auctions with the most bids, in sliding windows
    Q5,
    /// The number of each word of a text
    Words,
}

/// The parameters of `ardea bench input`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
pub struct InputParams {
    /// Format of the input; words are always read from text
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = InputFormat::Json)]
    pub format: InputFormat,
    /// Compute the query in Arrow columns instead of rows
    #[arg(long)]
    pub columns: bool,
    /// Query over the input
    #[arg(long, value_name = "QUERY", value_enum, default_value_t = InputQuery::Q1)]
    pub query: InputQuery,
    /// Number of events, or of words
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "1_000_000")]
    pub events: u64,
    /// Number of cooperative threads; DuckDB gets as many
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u32,
}

/// The largest number of events: the input is a file in a temporary directory.
const MOST_EVENTS: u64 = 1_000_000_000;

impl InputParams {
    pub(super) fn check(&self) -> Result<()> {
        check_range("--events", self.events, 1..=MOST_EVENTS)?;
        check_threads(self.threads)?;
        if self.query == InputQuery::Words && self.format != InputFormat::Json {
            return Err(
                refused("words are read from text, which has no format").hint("leave --format out")
            );
        }
        if self.format == InputFormat::Parquet && !self.columns {
            return Err(refused("Parquet is read by columns only").hint("add --columns"));
        }
        Ok(())
    }

    pub(super) fn fields(&self) -> Vec<Field> {
        let format = match (self.query, self.format) {
            (InputQuery::Words, _) => "text",
            (_, InputFormat::Json) => "json",
            (_, InputFormat::Csv) => "csv",
            (_, InputFormat::Parquet) => "parquet",
        };
        let query = match self.query {
            InputQuery::Q1 => "q1",
            InputQuery::Q5 => "q5",
            InputQuery::Words => "words",
        };
        fields!(self; format = format, columns, query = query, events, threads)
    }

    /// Returns the name of the input file.
    pub(super) fn file_name(&self) -> &'static str {
        match (self.query, self.format) {
            (InputQuery::Words, _) => "words.txt",
            (_, InputFormat::Json) => "events.jsonl",
            (_, InputFormat::Csv) => "bids.csv",
            (_, InputFormat::Parquet) => "bids.parquet",
        }
    }
}
