//! Processors on single records.

mod expressions;
mod filter;
mod project;
mod timestamps;

#[cfg(test)]
mod tests;

pub(crate) use expressions::{Expressions, record_errors};
pub use filter::ColumnFilterP;
pub use project::ProjectP;
pub use timestamps::ColumnTimestampsP;
