//! Offset commits to a consumer group for monitoring. The job never reads them.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::{Offset, TopicPartitionList};

use crate::kafka::client_context::KafkaClientContext;
use crate::kafka::topics::PartitionId;

/// Commit interval of a job without checkpoints.
const INTERVAL: Duration = Duration::from_secs(5);
/// Timeout of the last commit of a finished source.
const LAST_ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Periodic commits of a job without checkpoints.
#[derive(Debug, Default)]
pub(super) struct GroupOffsets {
    /// Time of the latest commit, on the instance's clock.
    committed: Duration,
    /// Number of commits sent.
    sent: u64,
    /// Time at which the source finished.
    done: Option<Duration>,
}

impl GroupOffsets {
    /// Commits offsets if the commit interval has passed.
    pub fn commit_now_and_then<'a>(
        &mut self,
        consumer: &Arc<BaseConsumer<KafkaClientContext>>,
        now: Duration,
        offsets: impl Iterator<Item = (&'a PartitionId, i64)>,
    ) {
        if now.saturating_sub(self.committed) >= INTERVAL {
            self.committed = now;
            self.sent += u64::from(commit(consumer, offsets));
        }
    }

    /// Commits the last offsets; returns true once a broker has responded or the timeout has
    /// passed.
    pub fn commit_last<'a>(
        &mut self,
        consumer: &Arc<BaseConsumer<KafkaClientContext>>,
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

/// Commits offsets to the consumer's group; returns false if `offsets` is empty. The job does not
/// depend on the result.
pub(super) fn commit<'a>(
    consumer: &BaseConsumer<KafkaClientContext>,
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
