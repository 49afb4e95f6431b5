//! How far a topic has been read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ardea_core::Timestamp;

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

/// Where the reading of a topic begins.
///
/// Partitions that are added to the topic while it is being read are read from their beginning, whatever this says.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Start {
    /// At the oldest record that the topic holds.
    #[default]
    Earliest,
    /// Behind the newest record: only what comes from now on.
    Latest,
    /// At the offsets that this consumer group has committed; from the beginning where it has committed none.
    Stored {
        /// The group's name. The source does not become a member, and commits nothing.
        group: String,
    },
    /// At the first record of each partition that is not older than this; at the end where there is none.
    At(Timestamp),
    /// At these offsets; from the beginning in partitions that are not among them.
    Positions(Positions),
}

/// How far the instances of a source have got in this process: what they have emitted, which is not what the steps behind have dealt with.
#[derive(Clone, Debug, Default)]
pub struct Bookmark(Arc<Mutex<Positions>>);

impl Bookmark {
    /// The positions as they are now.
    pub fn positions(&self) -> Positions {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn note(&self, positions: impl Iterator<Item = (i32, i64)>) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (partition, offset) in positions {
            noted.set(partition, offset);
        }
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
        let bookmark = Bookmark::default();
        bookmark.note([(0, 5)].into_iter());
        bookmark.clone().note([(1, 7), (0, 6)].into_iter());
        assert_eq!(bookmark.positions(), [(0, 6), (1, 7)].into_iter().collect());
    }
}
