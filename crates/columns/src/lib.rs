//! Record batches in Arrow columns: decoding, expressions and operators.
#![forbid(unsafe_code)]

mod batch;
mod batch_codec;
mod decode;
mod error;
mod expr;

pub use batch::ColumnBatch;
pub use batch_codec::ColumnCodec;
pub use decode::{BATCH_ROWS, BadLine, ColumnDecoder, FieldPath};
pub use expr::{BinaryOperation, BoundExpr, Expr, Literal, UnaryOperation, col, lit};
