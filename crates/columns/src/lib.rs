//! Record batches in Arrow columns: decoding, expressions and operators.
#![forbid(unsafe_code)]

mod decode;
mod error;

pub use decode::{BATCH_ROWS, BadLine, ColumnDecoder, FieldPath};
