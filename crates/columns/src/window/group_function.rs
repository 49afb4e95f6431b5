//! Functions of the records of a group.

use std::ops::Range;

use ardea_core::Result;
use arrow_array::{ArrayRef, RecordBatch};

use super::accumulator::add_values;
use super::{Accumulator, AccumulatorRow, BoundAggregate};
use crate::expr::BoundExpr;

/// A function of the records of a group, computed by the first of two stages.
pub trait GroupFunction: Send + 'static {
    /// The values of all groups of a slice.
    type Values: Default + Send + 'static;
    /// The value of a group.
    type Acc: Send + 'static;

    /// Returns the expressions that are evaluated on each record.
    fn arguments(&self) -> Vec<BoundExpr>;

    /// Adds records to the values of their groups, all of which are below `slots`.
    ///
    /// # Errors
    /// Internal errors only.
    fn add(&self, values: &mut Self::Values, slots: usize, part: &BatchPart<'_>) -> Result<()>;

    /// Takes the value of a group.
    fn take(&self, values: &mut Self::Values, group: usize) -> Self::Acc;
}

/// Consecutive records of a batch.
pub struct BatchPart<'a> {
    /// All records of the batch.
    pub records: &'a RecordBatch,
    /// The values of the arguments, for all records of the batch.
    pub arguments: &'a [ArrayRef],
    /// The rows of these records.
    pub rows: Range<usize>,
    /// The group of each of these records.
    pub groups: &'a [u32],
}

/// The aggregates of each group.
pub struct GroupAggregates(pub Vec<BoundAggregate>);

impl GroupFunction for GroupAggregates {
    /// The accumulators of each aggregate by group.
    type Values = Vec<Vec<Accumulator>>;
    type Acc = AccumulatorRow;

    fn arguments(&self) -> Vec<BoundExpr> {
        let arguments = self.0.iter().filter_map(|it| it.argument.clone());
        arguments.collect()
    }

    fn add(&self, values: &mut Self::Values, slots: usize, part: &BatchPart<'_>) -> Result<()> {
        values.resize_with(self.0.len(), Vec::new);
        let mut arguments = part.arguments.iter();
        for (aggregate, accumulators) in self.0.iter().zip(values) {
            accumulators.resize_with(slots, || aggregate.create());
            let values = aggregate.argument.as_ref().and_then(|_| arguments.next());
            let values = values.map(|values| values.slice(part.rows.start, part.rows.len()));
            add_values(accumulators, part.groups, values.as_ref());
        }
        Ok(())
    }

    fn take(&self, values: &mut Self::Values, group: usize) -> AccumulatorRow {
        let take =
            |all: &mut Vec<Accumulator>| std::mem::replace(&mut all[group], Accumulator::Count(0));
        AccumulatorRow(values.iter_mut().map(take).collect())
    }
}
