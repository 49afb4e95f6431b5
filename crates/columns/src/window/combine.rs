//! The second stage of windows over columns: combines the partial results of the first.

use std::sync::Arc;

use ardea_aggregate::Aggregate;
use ardea_operators::Partial;

use super::{AccumulatorRow, BoundAggregate};
use crate::key::GroupKey;

/// Combines the partial results of [`ColumnSliceP`](super::ColumnSliceP).
///
/// `DEDUCTS` is true if all aggregates [deduct](BoundAggregate::deducts): windows then slide by
/// removing old slices.
#[derive(Clone, Debug)]
pub struct AccumulatorCombine<const DEDUCTS: bool> {
    empty: Arc<AccumulatorRow>,
}

impl<const DEDUCTS: bool> AccumulatorCombine<DEDUCTS> {
    /// Creates the second stage of these aggregates.
    pub fn new(aggregates: &[BoundAggregate]) -> Self {
        let empty = aggregates.iter().map(BoundAggregate::create);
        AccumulatorCombine {
            empty: Arc::new(AccumulatorRow(empty.collect())),
        }
    }

    /// Returns accumulators without records.
    pub(super) fn empty(&self) -> AccumulatorRow {
        AccumulatorRow::clone(&self.empty)
    }
}

impl<const DEDUCTS: bool> Aggregate<Partial<GroupKey, AccumulatorRow>>
    for AccumulatorCombine<DEDUCTS>
{
    type Acc = AccumulatorRow;
    type Out = AccumulatorRow;

    const DEDUCTS: bool = DEDUCTS;

    fn create(&self) -> AccumulatorRow {
        self.empty()
    }

    #[inline]
    fn accumulate(&self, acc: &mut AccumulatorRow, part: &Partial<GroupKey, AccumulatorRow>) {
        acc.combine(&part.acc);
    }

    #[inline]
    fn combine(&self, acc: &mut AccumulatorRow, other: &AccumulatorRow) {
        acc.combine(other);
    }

    #[inline]
    fn deduct(&self, acc: &mut AccumulatorRow, other: &AccumulatorRow) {
        acc.deduct(other);
    }

    fn finish(&self, acc: &AccumulatorRow) -> AccumulatorRow {
        acc.clone()
    }
}
