//! The tuples that the process of a bolt has received and not answered.
//!
//! Each tuple is the root of a tree, as if this process had the spout. The tree has the tuple and
//! those that the bolt emits for it. The exclusive-or of all ids is zero when the bolt has acked
//! the tuple, since the host tracks the emitted tuples from their receipt on.

use std::collections::HashMap;

use ardea_instance::protocol::PendingRow;

use crate::anchor::{Anchor, Ids, Root};

/// The outcome of a tuple.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RowOutcome {
    Acked,
    Failed(String),
}

/// A tuple without an outcome.
#[derive(Debug)]
struct OpenRow {
    row: PendingRow,
    /// The exclusive-or of the ids so far.
    ids: u64,
    failure: Option<String>,
}

/// The tuples without an outcome, by the number of their tree.
#[derive(Debug)]
pub(super) struct OpenRows {
    rows: HashMap<u64, OpenRow>,
    /// The trees that may have an outcome now.
    changed: Vec<u64>,
    next: u64,
    ids: Ids,
}

impl Default for OpenRows {
    fn default() -> Self {
        OpenRows {
            rows: HashMap::new(),
            changed: Vec::new(),
            next: 0,
            ids: Ids::random(),
        }
    }
}

impl OpenRows {
    /// The number of bits of a tree's number: all but those of the spout instance.
    const NUMBER_BITS: u32 = 44;

    /// Adds a tuple; returns its anchor.
    pub(super) fn open(&mut self, row: PendingRow) -> Anchor {
        let number = self.next & ((1 << Self::NUMBER_BITS) - 1);
        self.next += 1;
        let id = self.ids.draw();
        let open = OpenRow {
            row,
            ids: id,
            failure: None,
        };
        self.rows.insert(number, open);
        let root = Root::from_bits(number);
        Anchor { root, id }
    }

    /// Returns the place of an open tuple.
    pub(super) fn place(&self, root: Root) -> Option<PendingRow> {
        self.rows.get(&root.bits()).map(|open| open.row)
    }

    /// Adds ids of emitted or acked tuples to a tree.
    pub(super) fn update(&mut self, root: Root, ids: u64) {
        if let Some(open) = self.rows.get_mut(&root.bits()) {
            open.ids ^= ids;
            self.changed.push(root.bits());
        }
    }

    /// Fails a tuple; returns the reason if it is not open any more.
    pub(super) fn fail(&mut self, root: Root, reason: String) -> Option<String> {
        let Some(open) = self.rows.get_mut(&root.bits()) else {
            return Some(reason);
        };
        open.failure.get_or_insert(reason);
        self.changed.push(root.bits());
        None
    }

    /// Closes the tuples that have an outcome now, and returns them.
    pub(super) fn take_outcomes(&mut self) -> Vec<(PendingRow, RowOutcome)> {
        let mut outcomes = Vec::new();
        for number in std::mem::take(&mut self.changed) {
            let is_decided = |open: &OpenRow| open.ids == 0 || open.failure.is_some();
            if self.rows.get(&number).is_some_and(is_decided)
                && let Some(open) = self.rows.remove(&number)
            {
                let outcome = match open.failure {
                    Some(reason) => RowOutcome::Failed(reason),
                    None => RowOutcome::Acked,
                };
                outcomes.push((open.row, outcome));
            }
        }
        outcomes
    }

    /// Closes all tuples without an outcome.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.changed.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(row: u32) -> PendingRow {
        PendingRow { batch: 1, row }
    }

    #[test]
    fn a_tuple_is_acked_when_all_that_was_emitted_for_it_is_known() {
        let mut rows = OpenRows::default();
        let anchor = rows.open(row(0));
        // The ack names an emitted tuple that is not known yet.
        rows.update(anchor.root, anchor.id ^ 7);
        assert_eq!(rows.take_outcomes(), []);
        assert_eq!(rows.place(anchor.root), Some(row(0)));
        rows.update(anchor.root, 7);
        assert_eq!(rows.take_outcomes(), [(row(0), RowOutcome::Acked)]);
        assert_eq!(rows.place(anchor.root), None);
    }

    #[test]
    fn a_failed_tuple_has_one_outcome_with_the_first_reason() {
        let mut rows = OpenRows::default();
        let (one, other) = (rows.open(row(0)), rows.open(row(1)));
        assert_eq!(rows.fail(one.root, "first".into()), None);
        assert_eq!(rows.fail(one.root, "second".into()), None);
        rows.update(one.root, one.id);
        let failed = (row(0), RowOutcome::Failed("first".into()));
        assert_eq!(rows.take_outcomes(), [failed]);
        assert_eq!(rows.fail(one.root, "late".into()), Some("late".into()));
        assert_eq!(rows.place(other.root), Some(row(1)));
    }
}
