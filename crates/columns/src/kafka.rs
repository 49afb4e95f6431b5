//! Messages of Kafka as sources of columns.
//!
//! The options of a source are those of [`KafkaSource`]. Each record has the time of its message:
//! see [`Columns::with_source_time`](crate::Columns::with_source_time).
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::Duration;
//! use ardea_columns::{Columns, col, files, kafka, sum};
//! use ardea_connectors::kafka::read;
//! use ardea_pipeline::{Pipeline, Window};
//! use arrow_schema::{DataType, Field, Schema};
//!
//! let bids = Arc::new(Schema::new(vec![
//!     Field::new("auction", DataType::UInt64, false),
//!     Field::new("bid.price", DataType::UInt64, false),
//! ]));
//! let p = Pipeline::new("turnover");
//! Columns::read_from(&p, kafka::json(read("localhost:9092", "bids").until_present(), bids))
//!     .filter(col("bid.price").gt(10))
//!     .with_source_time()
//!     .key_by(["auction"])
//!     .window(Window::tumbling(Duration::from_secs(60)))
//!     .aggregate("turnover", [sum("bid.price").alias("turnover")])
//!     .write_to(files::write_csv("turnover.csv"));
//! p.run()?;
//! # Ok::<(), ardea_core::Error>(())
//! ```

use std::sync::Arc;

#[cfg(feature = "avro")]
use ardea_connectors::kafka::Avro;
use ardea_connectors::kafka::KafkaSource;
#[cfg(feature = "protobuf")]
use ardea_connectors::kafka::Protobuf;
use ardea_core::{Result, Source};
use arrow_schema::SchemaRef;

use crate::decode::{ColumnDecoder, FieldPath};
use crate::stream::{ColumnRecord, ColumnSource};

/// Returns a source of messages whose values are JSON objects; see [`ColumnDecoder`]. A column has
/// the name of a field, or its path: `bid.price`. A value that is no such object is a bad record.
pub fn json<T, F, B>(messages: KafkaSource<T, F, B>, schema: SchemaRef) -> ColumnSource<B> {
    source(schema, |decoder| {
        messages.format::<(), _>(decoder).build_batches()
    })
}

/// Returns a source of messages whose values are Avro records, with a schema registry. A column has
/// the name of a field, or the path of a field of a nested record. Other fields are skipped.
///
/// A field that the writer's schema lacks is null; it makes the record bad if its column is not
/// nullable. Timestamps are converted to the unit of their column. Enums and UUIDs are texts.
#[cfg(feature = "avro")]
pub fn avro<T, F, B>(
    messages: KafkaSource<T, F, B>,
    avro: impl Into<Avro>,
    schema: SchemaRef,
) -> ColumnSource<B> {
    let avro = avro.into();
    source(schema, |decoder| {
        messages.avro_batches(avro, decoder).build_batches()
    })
}

/// Returns a source of messages whose values are Protocol Buffers, with a schema registry. The
/// columns are as those of [`avro`](crate::kafka); a `google.protobuf.Timestamp` is a timestamp.
#[cfg(feature = "protobuf")]
pub fn protobuf<T, F, B>(
    messages: KafkaSource<T, F, B>,
    protobuf: impl Into<Protobuf>,
    schema: SchemaRef,
) -> ColumnSource<B> {
    let protobuf = protobuf.into();
    source(schema, |decoder| {
        messages.protobuf_batches(protobuf, decoder).build_batches()
    })
}

fn source<B>(
    schema: SchemaRef,
    build: impl FnOnce(ColumnDecoder) -> Source<ColumnRecord, B>,
) -> ColumnSource<B> {
    let decoder = || -> Result<ColumnDecoder> {
        let names = schema.fields().iter().map(|field| field.name().as_str());
        let paths: Vec<_> = names.map(FieldPath::from).collect();
        ColumnDecoder::json_at(Arc::clone(&schema), &paths)
    };
    match decoder() {
        Ok(decoder) => ColumnSource::new(build(decoder), schema),
        Err(error) => ColumnSource::refused("kafka".to_string(), error),
    }
}
