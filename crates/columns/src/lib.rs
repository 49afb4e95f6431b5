//! Record batches in Arrow columns: decoding, expressions and operators.
//!
//! A chunk of an edge holds a [`ColumnBatch`] instead of rows: an Arrow record batch, beside the
//! column of event times. The steps on columns work on whole batches by Arrow's kernels. Languages
//! other than Rust build on them: an [`Expr`] and an [`AggregateExpr`] are plain data.
//!
//! In reading order:
//!
//! * [`ColumnBatch`], [`ColumnCodec`]: batches, and their form between processes;
//! * [`Expr`], [`col`], [`BoundExpr`]: expressions, bound to a schema once;
//! * [`files`]: files of JSON lines, CSV and Parquet (feature `parquet`), decoded only into the
//!   columns that are asked for, and written from columns;
//! * [`ColumnDecoder`]: the decoder of such records; [`JsonEncoder`], [`CsvEncoder`]: their
//!   encoders;
//! * [`Columns`], [`IntoColumns`]: the API of pipelines;
//! * [`ColumnFilterP`], [`ProjectP`], [`ColumnStampP`], [`RowsOfColumnsP`], [`ColumnsOfRowsP`]:
//!   steps on single records;
//! * [`KeyColumns`], [`ColumnScatter`]: keys, with the partitions of the same keys in Rust;
//! * [`ColumnRollingP`], [`ColumnDistinctP`]: steps with a state per key;
//! * [`AggregateExpr`], [`ColumnSliceP`], [`AccumulatorCombine`], [`ColumnSessionP`],
//!   [`WindowColumnsP`]: windows;
//! * [`TopRecords`]: the records with the greatest values;
//! * [`ColumnHashJoinP`]: joins with a table. Other joins are those of rows.
//!
//! # Invariants
//!
//! * A key of columns has the canonical bytes of the same key in Rust.
//! * A record that cannot be decoded, or for which an expression has no value, is reported; the
//!   other records of its batch are not lost.
//! * The state of windows is that of [`SlidingWindowP`](ardea_operators::SlidingWindowP) and
//!   [`SessionWindowP`](ardea_operators::SessionWindowP).
//! * Sums do not depend on the order of records, on threads or on batches.
//!
//! See [`Columns`] for an example.
#![forbid(unsafe_code)]

pub use {arrow_array, arrow_schema};

pub mod files;

mod arrow_format;
mod batch;
mod batch_codec;
mod decode;
mod encode;
mod error;
mod expr;
mod join;
mod key;
mod keyed;
#[cfg(feature = "parquet")]
mod parquet;
mod record;
mod rows;
mod sink;
mod steps;
mod stream;
mod top;
mod window;

#[cfg(test)]
mod test_adapter;
#[cfg(test)]
mod test_source;

#[cfg(feature = "parquet")]
pub use self::parquet::{ParquetCompression, ParquetEncoder, ParquetFiles, infer_parquet};
pub use arrow_format::{ArrowFormat, read_stream, write_stream};
pub use batch::ColumnBatch;
pub use batch_codec::ColumnCodec;
pub use decode::{BATCH_ROWS, ColumnDecoder, FieldPath};
pub use encode::{ColumnEncode, CsvEncoder, JsonEncoder, write_json_lines};
pub use expr::{BinaryOperation, BoundExpr, Expr, Literal, UnaryOperation, col, lit};
pub use join::ColumnHashJoinP;
pub use key::{ColumnScatter, GroupKey, KeyColumns};
pub use keyed::{ColumnDistinctP, ColumnRollingP};
pub use rows::{ColumnsOfRowsP, RowsOfColumnsP};
pub use sink::ColumnSink;
pub use steps::{ColumnFilterP, ColumnStampP, ProjectP, record_errors};
pub use stream::{ColumnRecord, ColumnSource, Columns, IntoColumns, KeyedColumns, WindowedColumns};
pub use top::{TopRecords, all_with_max, top_n};
pub use window::{
    Accumulator, AccumulatorCombine, AccumulatorRow, AggregateExpr, AggregateFunction, BatchPart,
    BoundAggregate, ColumnArgument, ColumnExtreme, ColumnSessionP, ColumnSliceP, GroupAggregates,
    GroupFunction, WindowColumnsP, avg, count, count_of, max, min, sum,
};
