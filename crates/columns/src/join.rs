//! Joins of records in columns.
//!
//! * Interval joins and joins in windows are those of rows: [`KeyedRecordsP`] encodes each record
//!   as bytes, the operators of rows hold the state, and [`JoinedColumnsP`] or [`WindowPairsP`]
//!   returns pairs to columns.
//! * [`ColumnHashJoinP`] joins with a table in memory, batch by batch.

mod hash_join;
mod joined_columns;
mod joined_layout;
mod keyed_records;
mod window_pairs;

#[cfg(test)]
mod tests;

pub use hash_join::ColumnHashJoinP;
pub(crate) use joined_columns::{JoinedColumnsP, JoinedRecord};
pub(crate) use joined_layout::JoinedLayout;
pub(crate) use keyed_records::KeyedRecordsP;
pub(crate) use window_pairs::WindowPairsP;
