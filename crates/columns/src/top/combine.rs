//! The second stage of a selection.

use ardea_aggregate::Aggregate;
use ardea_operators::Partial;

use super::{TopLimit, TopSelection};
use crate::key::GroupKey;

/// Selects from the selections of [`TopFunction`](super::TopFunction).
#[derive(Clone, Copy, Debug)]
pub(crate) struct TopCombine {
    limit: TopLimit,
}

impl TopCombine {
    pub(crate) fn new(limit: TopLimit) -> Self {
        TopCombine { limit }
    }
}

impl Aggregate<Partial<GroupKey, TopSelection>> for TopCombine {
    type Acc = TopSelection;
    type Out = TopSelection;

    fn create(&self) -> TopSelection {
        TopSelection::default()
    }

    fn accumulate(&self, acc: &mut TopSelection, part: &Partial<GroupKey, TopSelection>) {
        acc.combine(self.limit, &part.acc);
    }

    fn combine(&self, acc: &mut TopSelection, other: &TopSelection) {
        acc.combine(self.limit, other);
    }

    fn finish(&self, acc: &TopSelection) -> TopSelection {
        acc.clone()
    }
}
