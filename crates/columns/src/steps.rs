//! Processors on single records.

mod expr_list;
mod filter;
mod project;
mod stamp;

#[cfg(test)]
mod tests;

pub(crate) use expr_list::{ExprList, record_errors};
pub use filter::ColumnFilterP;
pub use project::ProjectP;
pub use stamp::ColumnStampP;
