//! The records of the tests, and the settings of nodes.

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use ardea_columns::{Columns, IntoColumns};
use ardea_connectors::collections::items;
use ardea_core::{Bounded, Timestamp, WatermarkPolicy};
use ardea_engine::{ExecutionMode, MicroBatchConfig, NodeConfig};
use ardea_pipeline::{Pipeline, Stream, Timed};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bid {
    pub name: String,
    pub auction: u64,
    pub price: Option<i64>,
    pub rate: f64,
    pub time: i64,
}

pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("name", DataType::Utf8, false),
        Field::new("auction", DataType::UInt64, false),
        Field::new("price", DataType::Int64, true),
        Field::new("rate", DataType::Float64, false),
        Field::new(
            "time",
            DataType::Timestamp(TimeUnit::Microsecond, None),
            false,
        ),
    ]))
}

/// The maximum disorder of [`bids`].
const DISORDER_MICROS: i64 = 40;

pub fn bids() -> impl Strategy<Value = Vec<Bid>> {
    let bid = (
        "[ab]",
        0u64..3,
        prop::option::of(-10i64..100),
        -1e9..1e9,
        0..DISORDER_MICROS,
    );
    prop::collection::vec(bid, 0..300).prop_map(|bids| {
        let bids = bids.into_iter().enumerate();
        let bid = |(index, (name, auction, price, rate, jitter)): (usize, _)| Bid {
            name,
            auction,
            price,
            rate,
            time: index as i64 * 3 - jitter,
        };
        bids.map(bid).collect()
    })
}

/// Nodes with small chunks and queues.
pub fn nodes() -> impl Strategy<Value = NodeConfig> {
    // The records of a micro-batch, if the job runs in micro-batches.
    let batch = prop::option::of(1u64..60);
    let numbers = (1u32..4, 1usize..40, 1usize..4, any::<bool>(), batch);
    numbers.prop_map(|(threads, chunk, queue, fuse, batch)| NodeConfig {
        mode: batch.map_or(ExecutionMode::Continuous, |_| ExecutionMode::MicroBatch),
        micro_batch: MicroBatchConfig {
            epoch: Duration::from_millis(1),
            records: batch.and_then(NonZeroU64::new),
            ..MicroBatchConfig::default()
        },
        chunk_records: NonZeroUsize::new(chunk).unwrap(),
        queue_chunks: NonZeroUsize::new(queue).unwrap(),
        fuse,
        pin: false,
        ..NodeConfig::with_threads(threads)
    })
}

/// Watermarks that make no record of [`bids`] late.
pub fn watermarks() -> WatermarkPolicy {
    WatermarkPolicy::out_of_order(Duration::from_micros(DISORDER_MICROS as u64)).max_ahead(None)
}

/// Returns bids in columns, with event times.
pub fn timed_columns(p: &Pipeline, bids: &[Bid]) -> Columns<Bounded, Timed> {
    p.read_from(items(bids.to_vec()))
        .into_columns(schema())
        .with_timestamps("time", watermarks())
}

/// Returns bids in rows, with event times.
pub fn timed_rows(p: &Pipeline, bids: &[Bid]) -> Stream<Bid, Bounded, Timed> {
    p.read_from(items(bids.to_vec()))
        .with_timestamps(|bid| Timestamp::from_micros(bid.time), watermarks())
}

/// Sorts records that have no order by their form as text.
pub fn sorted<T: std::fmt::Debug>(mut records: Vec<T>) -> Vec<T> {
    records.sort_by_cached_key(|record| format!("{record:?}"));
    records
}
