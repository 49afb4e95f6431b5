//! The same queries as plain loops over the file, without the engine.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use ardea_columns::arrow_array::cast::AsArray;
use ardea_columns::arrow_array::types::{Int64Type, UInt64Type};
use ardea_nexmark::DOLLAR_TO_EURO;
use foldhash::fast::FixedState;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde::Deserialize;

use super::{InputFormat, InputParams, InputQuery};

/// The length of the windows of query 5, in slides.
const WINDOW_SLIDES: i64 = 5;
/// The slide of the windows of query 5, in milliseconds.
const SLIDE_MS: i64 = 2_000;

/// The size of the read buffer in bytes.
const BUFFER_BYTES: usize = 1 << 20;

type Counts<K> = HashMap<K, u64, FixedState>;

/// A bid, as far as the queries need it.
#[derive(Clone, Copy)]
struct RawBid {
    auction: u64,
    bidder: u64,
    price: u64,
    date_time: i64,
}

/// An event in a JSON line, as far as the queries need it.
#[derive(Deserialize)]
struct JsonEvent<'a> {
    kind: &'a str,
    #[serde(default)]
    auction: u64,
    #[serde(default)]
    bidder: u64,
    #[serde(default)]
    price: u64,
    date_time: i64,
}

/// Computes the query; returns the number of its results. Those of query 1 are also written, into a
/// file that is removed at once.
pub(super) fn results(params: &InputParams, input: &Path) -> io::Result<u64> {
    let open = || Ok::<_, io::Error>(BufReader::with_capacity(BUFFER_BYTES, File::open(input)?));
    match params.query {
        InputQuery::Q1 => {
            let mut out = BufWriter::with_capacity(BUFFER_BYTES, tempfile::tempfile()?);
            let mut results = 0;
            each_bid(params, input, |bid| {
                results += 1;
                let RawBid {
                    auction,
                    bidder,
                    date_time,
                    price,
                } = bid;
                let price = price as f64 * DOLLAR_TO_EURO;
                writeln!(
                    out,
                    r#"{{"auction":{auction},"bidder":{bidder},"price":{price},"date_time":{date_time}}}"#
                )
            })?;
            out.flush()?;
            Ok(results)
        }
        InputQuery::Q5 => {
            let mut slices: BTreeMap<i64, Counts<u64>> = BTreeMap::new();
            each_bid(params, input, |bid| {
                let slice = slices
                    .entry(bid.date_time.div_euclid(SLIDE_MS))
                    .or_default();
                *slice.entry(bid.auction).or_default() += 1;
                Ok(())
            })?;
            Ok(most_bids(&slices))
        }
        InputQuery::Words => {
            let mut counts = Counts::<String>::default();
            let mut lines = open()?;
            let mut line = String::new();
            while lines.read_line(&mut line)? > 0 {
                for word in line.split_ascii_whitespace() {
                    match counts.get_mut(word) {
                        Some(count) => *count += 1,
                        None => drop(counts.insert(word.to_string(), 1)),
                    }
                }
                line.clear();
            }
            Ok(counts.len() as u64)
        }
    }
}

fn each_bid(
    params: &InputParams,
    input: &Path,
    mut take: impl FnMut(RawBid) -> io::Result<()>,
) -> io::Result<()> {
    if params.format == InputFormat::Parquet {
        return each_bid_of_parquet(input, take);
    }
    let mut lines = BufReader::with_capacity(BUFFER_BYTES, File::open(input)?);
    let mut line = Vec::new();
    let mut is_header = params.format == InputFormat::Csv;
    while lines.read_until(b'\n', &mut line)? > 0 {
        let bid = match params.format {
            InputFormat::Json => bid_of_json(&line)?,
            InputFormat::Csv if is_header => None,
            InputFormat::Csv | InputFormat::Parquet => Some(bid_of_csv(&line)?),
        };
        is_header = false;
        if let Some(bid) = bid {
            take(bid)?;
        }
        line.clear();
    }
    Ok(())
}

/// Reads the columns that the queries need.
fn each_bid_of_parquet(
    input: &Path,
    mut take: impl FnMut(RawBid) -> io::Result<()>,
) -> io::Result<()> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(input)?)?;
    let names = ["auction", "bidder", "price", "date_time"];
    let mask = ProjectionMask::columns(builder.parquet_schema(), names);
    for batch in builder
        .with_projection(mask)
        .with_batch_size(8192)
        .build()?
    {
        let batch = batch.map_err(io::Error::other)?;
        let numbers = |at: usize| batch.column(at).as_primitive::<UInt64Type>().values();
        let times = batch.column(3).as_primitive::<Int64Type>().values();
        let columns = numbers(0).iter().zip(numbers(1)).zip(numbers(2)).zip(times);
        for (((auction, bidder), price), date_time) in columns {
            take(RawBid {
                auction: *auction,
                bidder: *bidder,
                price: *price,
                date_time: *date_time,
            })?;
        }
    }
    Ok(())
}

fn bid_of_json(line: &[u8]) -> io::Result<Option<RawBid>> {
    let event: JsonEvent<'_> = serde_json::from_slice(line)?;
    Ok((event.kind == "bid").then_some(RawBid {
        auction: event.auction,
        bidder: event.bidder,
        price: event.price,
        date_time: event.date_time,
    }))
}

/// Returns the bid of a CSV line; the generator writes no quotes.
fn bid_of_csv(line: &[u8]) -> io::Result<RawBid> {
    let line = std::str::from_utf8(line).map_err(io::Error::other)?;
    let mut fields = line.split(',');
    let mut field = |skipped: usize| fields.nth(skipped).unwrap_or_default();
    Ok(RawBid {
        auction: field(0).parse().map_err(io::Error::other)?,
        bidder: field(0).parse().map_err(io::Error::other)?,
        price: field(0).parse().map_err(io::Error::other)?,
        date_time: field(2).parse().map_err(io::Error::other)?,
    })
}

/// Returns the number of pairs of a window and an auction with the most bids in it.
fn most_bids(slices: &BTreeMap<i64, Counts<u64>>) -> u64 {
    let (Some((&first, _)), Some((&last, _))) = (slices.first_key_value(), slices.last_key_value())
    else {
        return 0;
    };
    let mut results = 0;
    for start in first - WINDOW_SLIDES + 1..=last {
        let mut window = Counts::<u64>::default();
        for (_, slice) in slices.range(start..start + WINDOW_SLIDES) {
            for (auction, bids) in slice {
                *window.entry(*auction).or_default() += bids;
            }
        }
        let most = window.values().max().copied();
        results += window.values().filter(|bids| Some(**bids) == most).count() as u64;
    }
    results
}

/// Returns the number of lines of a file.
pub(super) fn count_lines(path: &Path) -> io::Result<u64> {
    let mut file = BufReader::with_capacity(BUFFER_BYTES, File::open(path)?);
    let mut lines = 0;
    loop {
        let bytes = file.fill_buf()?;
        if bytes.is_empty() {
            return Ok(lines);
        }
        lines += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        let taken = bytes.len();
        file.consume(taken);
    }
}
