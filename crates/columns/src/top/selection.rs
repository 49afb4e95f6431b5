//! Selected records of a group.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::TopLimit;
use super::top_key::{TopKey, TopKeyColumns};
use crate::record::{EncodedRecord, RecordEncoder};

/// The selected records of a group, the greatest first.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct TopSelection(Vec<(TopKey, EncodedRecord)>);

impl TopSelection {
    /// Returns the records.
    pub(super) fn records(&self) -> impl Iterator<Item = &EncodedRecord> + Clone {
        self.0.iter().map(|(_, record)| record)
    }

    /// Adds the record at a row of a batch, if it is one of the greatest. Other records are not
    /// encoded.
    #[inline]
    pub(super) fn add(
        &mut self,
        limit: TopLimit,
        keys: &TopKeyColumns<'_>,
        encoder: &mut RecordEncoder,
        row: usize,
    ) {
        if let (true, Some((last, _))) = (self.is_full(limit), self.0.last())
            && keys.compare(row, last).is_lt()
        {
            return;
        }
        self.insert(limit, keys.key(row), encoder.encode(row));
    }

    /// Adds the records of another selection of the same group.
    pub(super) fn combine(&mut self, limit: TopLimit, other: &TopSelection) {
        for (key, record) in &other.0 {
            self.insert(limit, key.clone(), record.clone());
        }
    }

    /// Returns true if a further record must be at least as great as the last one.
    fn is_full(&self, limit: TopLimit) -> bool {
        match limit {
            TopLimit::Most(most) => self.0.len() >= most,
            TopLimit::Ties => !self.0.is_empty(),
        }
    }

    fn insert(&mut self, limit: TopLimit, key: TopKey, record: EncodedRecord) {
        let greatest = self.0.first().map(|(greatest, _)| key.compare(greatest));
        match (limit, greatest) {
            (TopLimit::Ties, Some(Ordering::Less)) => return,
            (TopLimit::Ties, Some(Ordering::Greater)) => self.0.clear(),
            _ => {}
        }
        let order = |other: &(TopKey, EncodedRecord)| {
            other.0.compare(&key).then_with(|| other.1.cmp(&record))
        };
        let at = self.0.partition_point(|other| order(other).is_ge());
        self.0.insert(at, (key, record));
        if let TopLimit::Most(most) = limit {
            self.0.truncate(most);
        }
    }
}
