//! Reads one record at an offset, by a consumer of its own.

use std::time::{Duration, Instant};

use ardea_core::Result;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};

use super::{ANSWER_TIMEOUT, LogMark, Mission};
use crate::kafka::fingerprint::Fingerprint;
use crate::kafka::teller::Teller;
use crate::kafka::topics::PartitionId;

/// The longest wait for a record at a time.
const POLL_TIMEOUT: Duration = Duration::from_millis(100);
/// Errors in a row after which the client is taken not to go on behind a batch by itself.
const MOST_ERRORS: u32 = 5;

pub(super) struct Probe {
    consumer: BaseConsumer<Teller>,
}

impl Probe {
    /// A probe that sees what a source sees.
    pub fn new(mission: &Mission) -> Result<Self> {
        Probe::with_isolation(mission, "read_committed")
    }

    /// A probe that sees open transactions as well.
    pub fn of_all(mission: &Mission) -> Result<Self> {
        Probe::with_isolation(mission, "read_uncommitted")
    }

    fn with_isolation(mission: &Mission, isolation: &str) -> Result<Self> {
        let fixed = [
            ("group.id", mission.group.as_str()),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("enable.partition.eof", "true"),
            ("auto.offset.reset", "error"),
            ("isolation.level", isolation),
        ];
        let mut settings = mission.settings.of_connections();
        settings.topic.push_str(" (comparing)");
        Ok(Probe {
            consumer: settings.consumer(&mission.job, &fixed)?,
        })
    }

    /// Returns the start and the end of a log.
    pub fn log_of(&self, id: &PartitionId) -> KafkaResult<(i64, i64)> {
        self.consumer
            .fetch_watermarks(&id.topic, id.number, ANSWER_TIMEOUT)
    }

    /// Returns identity and leader epoch of a log that has been looked at, as far as they are
    /// known.
    pub fn mark_of(&self, id: &PartitionId) -> LogMark {
        self.consumer.context().identities().mark_of(id)
    }

    /// Returns the first record at or behind an offset; `None` if there is none.
    pub fn record_at(&self, id: &PartitionId, offset: i64) -> KafkaResult<Option<Fingerprint>> {
        match self.look_at(id, offset)? {
            Seen::Record(record) => Ok(Some(record)),
            Seen::Nothing | Seen::Damaged => Ok(None),
        }
    }

    /// Returns whether the batch of an offset can be read.
    pub fn is_readable(&self, id: &PartitionId, offset: i64) -> KafkaResult<bool> {
        // One answer may be that of the question before.
        for _ in 0..2 {
            if matches!(self.look_at(id, offset)?, Seen::Damaged) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the offset at which the client goes on by itself behind a batch that can't be read; `None` if it doesn't.
    pub fn next_behind(&self, id: &PartitionId, offset: i64) -> KafkaResult<Option<i64>> {
        self.assign(id, offset)?;
        let mut next = None;
        for _ in 0..MOST_ERRORS {
            match self.await_something()? {
                Seen::Damaged => {}
                Seen::Record(record) => {
                    next = Some(record.offset);
                    break;
                }
                Seen::Nothing => break,
            }
        }
        self.consumer.unassign()?;
        Ok(next)
    }

    fn assign(&self, id: &PartitionId, offset: i64) -> KafkaResult<()> {
        let mut wanted = TopicPartitionList::new();
        wanted.add_partition_offset(&id.topic, id.number, Offset::Offset(offset))?;
        self.consumer.assign(&wanted)
    }

    fn look_at(&self, id: &PartitionId, offset: i64) -> KafkaResult<Seen> {
        self.assign(id, offset)?;
        let seen = self.await_something();
        self.consumer.unassign()?;
        seen
    }

    fn await_something(&self) -> KafkaResult<Seen> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        while Instant::now() < deadline {
            let seen = match self.consumer.poll(POLL_TIMEOUT) {
                Some(Ok(message)) => Seen::Record(Fingerprint::of(&message)),
                Some(Err(KafkaError::PartitionEOF(_))) => Seen::Nothing,
                Some(Err(KafkaError::MessageConsumption(code))) if is_damage(code) => Seen::Damaged,
                // It was removed in the meantime.
                Some(Err(KafkaError::MessageConsumption(RDKafkaErrorCode::AutoOffsetReset))) => {
                    Seen::Nothing
                }
                Some(Err(_)) | None => continue,
            };
            return Ok(seen);
        }
        Err(KafkaError::MessageConsumption(
            RDKafkaErrorCode::OperationTimedOut,
        ))
    }
}

/// What comes at an offset.
enum Seen {
    Record(Fingerprint),
    Nothing,
    /// A batch that can't be read.
    Damaged,
}

/// Returns whether an error says that a batch can't be read: its checksum is wrong, or its compression, or it is of an unknown kind.
pub(crate) fn is_damage(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::BadCompression
            | RDKafkaErrorCode::BadMessage
            | RDKafkaErrorCode::NotImplemented
            | RDKafkaErrorCode::InvalidMessage
    )
}
