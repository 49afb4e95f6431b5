//! Record batches in Arrow columns: decoding, expressions and operators.
#![forbid(unsafe_code)]

mod batch;
mod batch_codec;
mod decode;
mod error;
mod expr;
mod key;
mod rows;
mod source;
mod steps;
mod stream;
mod window;

#[cfg(test)]
mod test_adapter;

pub use batch::ColumnBatch;
pub use batch_codec::ColumnCodec;
pub use decode::{BATCH_ROWS, BadLine, ColumnDecoder, FieldPath};
pub use expr::{BinaryOperation, BoundExpr, Expr, Literal, UnaryOperation, col, lit};
pub use key::{ColumnScatter, GroupKey, KeyColumns};
pub use rows::{ColumnsOfRowsP, RowsOfColumnsP};
pub use source::{BlockRead, BlockReader, ColumnSourceP};
pub use steps::{ColumnFilterP, ColumnStampP, ProjectP};
pub use stream::{ColumnRecord, Columns, IntoColumns, KeyedColumns, WindowedColumns};
pub use window::{
    Accumulator, AccumulatorCombine, AccumulatorRow, AggregateExpr, AggregateFunction,
    BoundAggregate, ColumnArgument, ColumnExtreme, ColumnSliceP, WindowColumnsP, avg, count,
    count_of, max, min, sum,
};
