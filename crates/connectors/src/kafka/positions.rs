//! How far topics have been read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::Timestamp;

use crate::kafka::topics::PartitionId;

/// The offset that comes next in each partition of a topic.
///
/// A partition that is not in it has not been read. It can be stored (serde), and given to [`Start::Positions`].
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Positions(BTreeMap<i32, i64>);

impl Positions {
    /// The offset that comes next in `partition`.
    pub fn next(&self, partition: i32) -> Option<i64> {
        self.0.get(&partition).copied()
    }

    /// Notes that `offset` comes next in `partition`.
    pub fn set(&mut self, partition: i32, offset: i64) {
        self.0.insert(partition, offset);
    }

    /// Each partition and the offset that comes next in it, in the order of the partitions.
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

/// Where the reading of topics begins.
///
/// Partitions that are added to a topic while it is being read are read from their beginning, whatever this says; so are topics that a
/// [pattern](crate::kafka::Topics::matching) finds later.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Start {
    /// At the oldest record of each partition.
    #[default]
    Earliest,
    /// Behind the newest record: only what comes from now on.
    Latest,
    /// At the offsets that this consumer group has committed; from the beginning where it has committed none.
    Stored {
        /// The group's name. The source does not become a member.
        group: String,
    },
    /// At the first record of each partition that is not older than this; at the end where there is none.
    At(Timestamp),
    /// At these offsets of the one topic that is read; from the beginning in partitions that are not among them.
    Positions(Positions),
    /// At these offsets of each topic; from the beginning in partitions that are not among them.
    TopicPositions(BTreeMap<String, Positions>),
}

impl Start {
    /// The positions that are given for a topic.
    pub(crate) fn positions(&self, topic: &str) -> Option<&Positions> {
        match self {
            Start::Positions(positions) => Some(positions),
            Start::TopicPositions(all) => all.get(topic),
            _ => None,
        }
    }
}

/// How far the instances of a source have got in this process: what they have emitted, which is not what the steps behind have dealt with.
#[derive(Clone, Debug, Default)]
pub struct Bookmark(Arc<Mutex<BTreeMap<Arc<str>, Positions>>>);

impl Bookmark {
    /// The positions as they are now, of a source that reads one topic.
    pub fn positions(&self) -> Positions {
        self.lock().values().next().cloned().unwrap_or_default()
    }

    /// The positions as they are now, by topic. They can be given to [`Start::TopicPositions`].
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
        let bookmark = Bookmark::default();
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
