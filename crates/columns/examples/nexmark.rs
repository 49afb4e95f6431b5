//! Runs queries 1 and 5 of NEXMark over a file of JSON lines, as written by `ardea nexmark
//! generate`, and prints the cpu time.
//!
//! ```text
//! cargo run --release --example nexmark -- q1 events.jsonl
//! ```

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use ardea_columns::{ColumnBatch, Columns, col, count, files, write_json_lines};
use ardea_connectors::null;
use ardea_core::{Error, ErrorCode, Inbox, Ordinal, Outbox, Processor, Result, WatermarkPolicy};
use ardea_pipeline::{Pipeline, Window};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use serde::Deserialize;

/// Writes records as JSON lines to `q1.jsonl` in the directory of temporary files.
#[derive(Default)]
struct WriteP {
    file: Option<File>,
    lines: Vec<u8>,
}

impl Processor for WriteP {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let failed = |error| Error::new(ErrorCode::WriteFailed, "q1.jsonl").because(error);
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let path = std::env::temp_dir().join("q1.jsonl");
                none.insert(File::create(path).map_err(failed)?)
            }
        };
        let batch = inbox.batch::<ColumnBatch>()?.take();
        self.lines.clear();
        write_json_lines(batch.records(), &mut self.lines, |_, _| {})?;
        file.write_all(&self.lines).map_err(failed)
    }
}

/// The number of bids of an auction in a window.
#[derive(Deserialize)]
struct Hot {
    bids: i64,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let query = arguments.next().unwrap_or_else(|| "q1".to_string());
    let path = arguments
        .next()
        .unwrap_or_else(|| "events.jsonl".to_string());
    let nullable = |name: &str, kind| Field::new(name, kind, true);
    let p = Pipeline::new("nexmark");
    let mut fields = vec![
        nullable("kind", DataType::Utf8),
        nullable("auction", DataType::UInt64),
    ];
    if query == "q1" {
        fields.push(nullable("price", DataType::UInt64));
        let events = files::json_lines(path).schema(Arc::new(Schema::new(fields)));
        let euros = Columns::read_from(&p, events.in_order())
            .filter(col("kind").eq("bid"))
            .select([col("auction"), (col("price") * 0.908).alias("euros")]);
        let written = euros
            .into_stream()
            .custom::<(), _>("write", |_| WriteP::default());
        written.write_to(null::sink());
        p.run()?;
    } else {
        fields.push(nullable(
            "date_time",
            DataType::Timestamp(TimeUnit::Millisecond, None),
        ));
        let events = files::json_lines(path).schema(Arc::new(Schema::new(fields)));
        let windows = Window::sliding(Duration::from_secs(10), Duration::from_secs(2));
        let hot = Columns::read_from(&p, events.in_order())
            .filter(col("kind").eq("bid"))
            .with_timestamps("date_time", WatermarkPolicy::in_order())
            .key_by(["auction"])
            .window(windows)
            .aggregate("hot", [count().alias("bids")])
            .rows::<Hot>()
            .map(|hot| hot.bids)
            .collect();
        p.run()?;
        let counts = hot.take();
        println!(
            "{} results, {} bids",
            counts.len(),
            counts.iter().sum::<i64>()
        );
    }
    let statistics = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = statistics
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace();
    let ticks: Vec<u64> = ticks
        .skip(11)
        .take(2)
        .filter_map(|it| it.parse().ok())
        .collect();
    println!("{query}: user and system cpu {ticks:?} hundredths of a second");
    Ok(())
}
