//! Read positions of topics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::Timestamp;

use crate::kafka::topics::PartitionId;

/// The next offset of each partition of a topic.
///
/// Partitions that have not been read are missing. The positions can be stored (serde) and passed
/// to [`Start::Positions`].
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Positions(BTreeMap<i32, i64>);

impl Positions {
    /// Returns the next offset of `partition`; `None` if the partition has not been read.
    pub fn next(&self, partition: i32) -> Option<i64> {
        self.0.get(&partition).copied()
    }

    /// Sets the next offset of `partition`.
    pub fn set(&mut self, partition: i32, offset: i64) {
        self.0.insert(partition, offset);
    }

    /// Returns each partition with its next offset, ordered by partition.
    pub fn iter(&self) -> impl Iterator<Item = (i32, i64)> + '_ {
        self.0
            .iter()
            .map(|(&partition, &offset)| (partition, offset))
    }
}

impl FromIterator<(i32, i64)> for Positions {
    fn from_iter<I: IntoIterator<Item = (i32, i64)>>(positions: I) -> Self {
        Positions(positions.into_iter().collect())
    }
}

/// Start position of a source.
///
/// Partitions added to a topic while it is read are always read from their beginning; so are topics
/// that a [pattern](crate::kafka::Topics::matching) finds later.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Start {
    /// The oldest record of each partition.
    #[default]
    Earliest,
    /// The end of each partition: only new records.
    Latest,
    /// The committed offset of a consumer group in each partition; the beginning of a partition
    /// without a committed offset.
    Stored {
        /// Group name. The source does not become a member of the group.
        group: String,
    },
    /// The first record of each partition with this timestamp or a later one; the end of a
    /// partition without such a record.
    At(Timestamp),
    /// The given offsets in the only topic of the source; the beginning of partitions without an
    /// offset.
    Positions(Positions),
    /// The given offsets by topic; the beginning of partitions without an offset.
    TopicPositions(BTreeMap<String, Positions>),
}

impl Start {
    /// Returns the given positions of a topic.
    pub(crate) fn positions(&self, topic: &str) -> Option<&Positions> {
        match self {
            Start::Positions(positions) => Some(positions),
            Start::TopicPositions(all) => all.get(topic),
            _ => None,
        }
    }
}

/// Handle to the positions after the records that a source's instances in this process have
/// emitted. Later steps may not have processed these records yet.
#[derive(Clone, Debug, Default)]
pub struct EmittedPositions(Arc<Mutex<BTreeMap<Arc<str>, Positions>>>);

impl EmittedPositions {
    /// Returns the current positions in the first topic, for a source that reads one topic.
    pub fn positions(&self) -> Positions {
        self.lock().values().next().cloned().unwrap_or_default()
    }

    /// Returns the current positions by topic. They can be passed to [`Start::TopicPositions`].
    pub fn by_topic(&self) -> BTreeMap<String, Positions> {
        let topics = self.lock();
        let topics = topics.iter();
        topics
            .map(|(topic, positions)| (topic.to_string(), positions.clone()))
            .collect()
    }

    pub(crate) fn note<'a>(&self, positions: impl Iterator<Item = (&'a PartitionId, i64)>) {
        let mut noted = self.lock();
        for (partition, offset) in positions {
            match noted.get_mut(&partition.topic) {
                Some(positions) => positions.set(partition.number, offset),
                None => {
                    let positions = [(partition.number, offset)].into_iter().collect();
                    noted.insert(Arc::clone(&partition.topic), positions);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Positions>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_can_be_stored_and_read_back() {
        let positions: Positions = [(3, 70), (0, 12)].into_iter().collect();
        let stored = serde_json::to_string(&positions).unwrap();
        assert_eq!(stored, "{\"0\":12,\"3\":70}");
        assert_eq!(
            serde_json::from_str::<Positions>(&stored).unwrap(),
            positions
        );
    }

    #[test]
    fn a_bookmark_knows_the_latest_of_all_instances() {
        let id = |number| PartitionId::new("a", number);
        let bookmark = EmittedPositions::default();
        bookmark.note([(&id(0), 5)].into_iter());
        bookmark
            .clone()
            .note([(&id(1), 7), (&id(0), 6)].into_iter());
        assert_eq!(bookmark.positions(), [(0, 6), (1, 7)].into_iter().collect());
        bookmark.note([(&PartitionId::new("b", 0), 1)].into_iter());
        assert_eq!(bookmark.by_topic().len(), 2);
        let start = Start::TopicPositions(bookmark.by_topic());
        assert_eq!(start.positions("b").unwrap().next(0), Some(1));
        assert_eq!(start.positions("c"), None);
    }
}
