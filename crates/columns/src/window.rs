//! Event-time windows over records in columns.
//!
//! Two stages, as for records in rows: [`ColumnSliceP`] aggregates each batch by slices of time and
//! keys, and emits [`Partial`](ardea_operators::Partial)s. The
//! [`SlidingWindowP`](ardea_operators::SlidingWindowP) of rows combines them and holds the state.
//! Sessions need the records of a key in one place: [`ColumnSessionP`] is a single stage.
//! [`WindowColumnsP`] returns the results to columns.

mod accumulator;
mod aggregate_expr;
mod argument_values;
mod combine;
mod group_function;
mod result_column;
mod results;
mod sessions;
mod slices;

#[cfg(test)]
mod tests;

pub use accumulator::{Accumulator, AccumulatorRow, ColumnExtreme};
pub use aggregate_expr::{
    AggregateExpr, AggregateFunction, BoundAggregate, ColumnArgument, avg, count, count_of, max,
    min, sum,
};
pub(crate) use argument_values::ArgumentValues;
pub use combine::AccumulatorCombine;
pub use group_function::{BatchPart, GroupAggregates, GroupFunction};
pub(crate) use result_column::ResultColumn;
pub use results::WindowColumnsP;
pub(crate) use results::{bound_columns, bound_fields, schema_of_results};
pub use sessions::ColumnSessionP;
pub use slices::ColumnSliceP;
