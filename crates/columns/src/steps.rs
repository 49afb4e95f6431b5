//! Processors on single records.

mod expr_list;
mod filter;
mod forward;
mod project;
mod stamp;
mod tee;

#[cfg(test)]
mod tests;

pub(crate) use expr_list::{ExprList, text_of};
pub use expr_list::record_errors;
pub use filter::ColumnFilterP;
pub(crate) use forward::ForwardP;
pub use project::ProjectP;
pub use stamp::ColumnStampP;
pub(crate) use tee::ColumnTeeP;
