//! Event-time windows over records in columns.
//!
//! Two stages, as for records in rows: [`ColumnSliceP`] aggregates each batch by slices of time and
//! keys, and emits [`Partial`](ardea_operators::Partial)s. The
//! [`SlidingWindowP`](ardea_operators::SlidingWindowP) of rows combines them and holds the state.
//! [`WindowColumnsP`] returns its results to columns.

mod accumulator;
mod aggregate_expr;
mod combine;
mod results;
mod slices;

#[cfg(test)]
mod tests;

pub use accumulator::{Accumulator, AccumulatorRow, ColumnExtreme};
pub use aggregate_expr::{
    AggregateExpr, AggregateFunction, BoundAggregate, ColumnArgument, avg, count, count_of, max,
    min, sum,
};
pub use combine::AccumulatorCombine;
pub use results::WindowColumnsP;
pub use slices::ColumnSliceP;
