//! Commits offsets to a consumer group, for people and tools that watch how far behind a source is. The job never reads them.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::{Offset, TopicPartitionList};

use crate::kafka::teller::Teller;
use crate::kafka::topics::PartitionId;

/// Time between two commits of a job that keeps no state.
const INTERVAL: Duration = Duration::from_secs(5);
/// How long a source that is done waits for the answer to its last commit.
const LAST_ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The commits of a job that keeps no state: it has no epochs whose ends could be committed.
#[derive(Debug, Default)]
pub(super) struct GroupOffsets {
    /// The time of the latest commit, on the instance's clock.
    committed: Duration,
    /// The commits that were sent.
    sent: u64,
    /// When the source was done.
    done: Option<Duration>,
}

impl GroupOffsets {
    /// Commits offsets, if the latest commit is old enough.
    pub fn commit_now_and_then<'a>(
        &mut self,
        consumer: &Arc<BaseConsumer<Teller>>,
        now: Duration,
        offsets: impl Iterator<Item = (&'a PartitionId, i64)>,
    ) {
        if now.saturating_sub(self.committed) >= INTERVAL {
            self.committed = now;
            self.sent += u64::from(commit(consumer, offsets));
        }
    }

    /// Commits the last offsets; true if a broker has answered, or none does in time.
    pub fn commit_last<'a>(
        &mut self,
        consumer: &Arc<BaseConsumer<Teller>>,
        now: Duration,
        offsets: impl Iterator<Item = (&'a PartitionId, i64)>,
    ) -> bool {
        let done = match self.done {
            Some(done) => done,
            None => {
                self.sent += u64::from(commit(consumer, offsets));
                *self.done.insert(now)
            }
        };
        let is_answered = consumer.context().commits() >= self.sent;
        is_answered || now.saturating_sub(done) >= LAST_ANSWER_TIMEOUT
    }
}

/// Commits offsets to the consumer's group; false if there are none. The job does not depend on what comes of it.
pub(super) fn commit<'a>(
    consumer: &BaseConsumer<Teller>,
    offsets: impl Iterator<Item = (&'a PartitionId, i64)>,
) -> bool {
    let mut list = TopicPartitionList::new();
    for (id, next) in offsets {
        let added = list.add_partition_offset(&id.topic, id.number, Offset::Offset(next));
        if added.is_err() {
            return false;
        }
    }
    list.count() > 0 && consumer.commit(&list, CommitMode::Async).is_ok()
}
