//! Parquet files as sources and sinks of columns.

mod encoder;
mod footer;
mod inspect;
mod listing;
mod open_file;
mod read_groups;
mod source;

#[cfg(test)]
mod tests;

pub use encoder::{ParquetCompression, ParquetEncoder};
pub use inspect::infer_parquet;
pub use source::ParquetFiles;
