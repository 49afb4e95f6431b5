//! The input file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use ardea_columns::arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt64Array};
use ardea_nexmark::{Bid, Event, Generator, GeneratorConfig, NexmarkError, write_jsonl};

use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::{InputFormat, InputParams, InputQuery};

/// The number of distinct words of a text.
const WORDS: u64 = 50_000;
/// The number of bids of a row group.
const ROW_GROUP_BIDS: usize = 128 << 10;
/// The number of words of a line.
const WORDS_A_LINE: u64 = 12;

/// Writes the input; returns the number of events or words.
pub(super) fn write(params: &InputParams, path: &Path) -> io::Result<u64> {
    let config = GeneratorConfig {
        events: params.events,
        ..GeneratorConfig::default()
    };
    let file = File::create(path)?;
    match (params.query, params.format) {
        (InputQuery::Words, _) => write_words(params.events, file),
        (_, InputFormat::Json) => write_jsonl(config, file).map_err(io::Error::other),
        (_, InputFormat::Csv) => write_csv(config, file),
        (_, InputFormat::Parquet) => write_parquet(config, file),
    }
}

/// The number of bids of a batch.
const BATCH_BIDS: usize = 8192;

fn write_parquet(config: GeneratorConfig, file: File) -> io::Result<u64> {
    let mut bids = Generator::new(config)
        .map_err(|error: NexmarkError| io::Error::other(error))?
        .filter_map(|event| match event {
            Event::Bid(bid) => Some(bid),
            _ => None,
        });
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(ROW_GROUP_BIDS))
        .build();
    let schema = bids_of(&[])?.schema();
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties))?;
    let mut written = 0;
    loop {
        let batch: Vec<Bid> = bids.by_ref().take(BATCH_BIDS).collect();
        if batch.is_empty() {
            writer.close()?;
            return Ok(written);
        }
        written += batch.len() as u64;
        writer.write(&bids_of(&batch)?)?;
    }
}

/// Returns bids in columns.
fn bids_of(bids: &[Bid]) -> io::Result<RecordBatch> {
    let number = |of: fn(&Bid) -> u64| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(bids.iter().map(of)))
    };
    let text = |of: fn(&Bid) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(bids.iter().map(of)))
    };
    let times = Int64Array::from_iter_values(bids.iter().map(|bid| bid.date_time));
    let columns: [(_, ArrayRef); 7] = [
        ("auction", number(|bid| bid.auction)),
        ("bidder", number(|bid| bid.bidder)),
        ("price", number(|bid| bid.price)),
        ("channel", text(|bid| bid.channel.clone())),
        ("url", text(|bid| bid.url.clone())),
        ("date_time", Arc::new(times)),
        ("extra", text(|bid| bid.extra.clone())),
    ];
    RecordBatch::try_from_iter(columns).map_err(io::Error::other)
}

fn write_csv(config: GeneratorConfig, file: File) -> io::Result<u64> {
    let mut file = BufWriter::with_capacity(1 << 16, file);
    writeln!(file, "auction,bidder,price,channel,url,date_time,extra")?;
    let mut written = 0;
    let events = Generator::new(config).map_err(|error: NexmarkError| io::Error::other(error))?;
    for event in events {
        let Event::Bid(bid) = event else { continue };
        let Bid {
            auction,
            bidder,
            price,
            channel,
            url,
            date_time,
            extra,
        } = bid;
        writeln!(
            file,
            "{auction},{bidder},{price},{channel},{url},{date_time},{extra}"
        )?;
        written += 1;
    }
    file.flush()?;
    Ok(written)
}

fn write_words(count: u64, file: File) -> io::Result<u64> {
    let mut file = BufWriter::with_capacity(1 << 16, file);
    for index in 0..count {
        // Squaring makes the first words more frequent, as in a natural text.
        let random = index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        let word = (((random * random) >> 24) * WORDS) >> 24;
        let end = match (index + 1) % WORDS_A_LINE == 0 || index + 1 == count {
            true => '\n',
            false => ' ',
        };
        write!(file, "{}{end}", word_of(word))?;
    }
    file.flush()?;
    Ok(count)
}

/// Returns the word with this number: syllables of its digits.
fn word_of(mut number: u64) -> String {
    const SYLLABLES: [&str; 16] = [
        "ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe", "ri", "so", "tu",
        "wa",
    ];
    let mut word = String::new();
    loop {
        word.push_str(SYLLABLES[(number % 16) as usize]);
        number /= 16;
        if number == 0 {
            return word;
        }
    }
}
