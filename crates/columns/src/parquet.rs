//! Parquet files as sources and sinks of columns.

mod encoder;
mod file_columns;
mod footer;
mod group_filter;
mod inspect;
mod listing;
mod open_file;
mod read_groups;
mod source;

#[cfg(test)]
mod filter_tests;
#[cfg(test)]
mod tests;

pub use encoder::{ParquetCompression, ParquetEncoder};
pub use inspect::infer_parquet;
pub use source::ParquetFiles;
