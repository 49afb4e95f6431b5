//! Consumer that reads single records at given offsets.

use std::time::{Duration, Instant};

use ardea_core::Result;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};

use super::{ANSWER_TIMEOUT, DiscoveryConfig, LogMark};
use crate::kafka::client_context::KafkaClientContext;
use crate::kafka::fingerprint::Fingerprint;
use crate::kafka::topics::PartitionId;

/// Longest wait per poll for a record.
const POLL_TIMEOUT: Duration = Duration::from_millis(100);
/// Number of consecutive errors after which the client is assumed not to skip an unreadable batch
/// by itself.
const MOST_ERRORS: u32 = 5;

pub(super) struct Probe {
    consumer: BaseConsumer<KafkaClientContext>,
}

impl Probe {
    /// Creates a probe with the isolation level of the source.
    pub fn new(mission: &DiscoveryConfig) -> Result<Self> {
        Probe::with_isolation(mission, "read_committed")
    }

    /// Creates a probe that also reads open transactions.
    pub fn of_all(mission: &DiscoveryConfig) -> Result<Self> {
        Probe::with_isolation(mission, "read_uncommitted")
    }

    fn with_isolation(mission: &DiscoveryConfig, isolation: &str) -> Result<Self> {
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

    /// Returns the start and end offsets of a partition's log.
    pub fn log_of(&self, id: &PartitionId) -> KafkaResult<(i64, i64)> {
        self.consumer
            .fetch_watermarks(&id.topic, id.number, ANSWER_TIMEOUT)
    }

    /// Returns identity and leader epoch of a log probed before, as far as known.
    pub fn mark_of(&self, id: &PartitionId) -> LogMark {
        self.consumer.context().identities().mark_of(id)
    }

    /// Returns the first record at or after an offset; `None` if there is none.
    pub fn record_at(&self, id: &PartitionId, offset: i64) -> KafkaResult<Option<Fingerprint>> {
        match self.look_at(id, offset)? {
            ProbeResult::Record(record) => Ok(Some(record)),
            ProbeResult::Nothing | ProbeResult::Damaged => Ok(None),
        }
    }

    /// Returns true if the batch of an offset is readable.
    pub fn is_readable(&self, id: &PartitionId, offset: i64) -> KafkaResult<bool> {
        // The first result may still belong to the previous assignment.
        for _ in 0..2 {
            if matches!(self.look_at(id, offset)?, ProbeResult::Damaged) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the offset at which the client continues by itself after an unreadable batch; `None`
    /// if it does not continue.
    pub fn next_behind(&self, id: &PartitionId, offset: i64) -> KafkaResult<Option<i64>> {
        self.assign(id, offset)?;
        let mut next = None;
        for _ in 0..MOST_ERRORS {
            match self.await_something()? {
                ProbeResult::Damaged => {}
                ProbeResult::Record(record) => {
                    next = Some(record.offset);
                    break;
                }
                ProbeResult::Nothing => break,
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

    fn look_at(&self, id: &PartitionId, offset: i64) -> KafkaResult<ProbeResult> {
        self.assign(id, offset)?;
        let seen = self.await_something();
        self.consumer.unassign()?;
        seen
    }

    fn await_something(&self) -> KafkaResult<ProbeResult> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        while Instant::now() < deadline {
            let seen = match self.consumer.poll(POLL_TIMEOUT) {
                Some(Ok(message)) => ProbeResult::Record(Fingerprint::of(&message)),
                Some(Err(KafkaError::PartitionEOF(_))) => ProbeResult::Nothing,
                Some(Err(KafkaError::MessageConsumption(code))) if is_damage(code) => {
                    ProbeResult::Damaged
                }
                // The offset was removed in the meantime.
                Some(Err(KafkaError::MessageConsumption(RDKafkaErrorCode::AutoOffsetReset))) => {
                    ProbeResult::Nothing
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

/// Result of reading at an offset.
enum ProbeResult {
    Record(Fingerprint),
    Nothing,
    /// An unreadable batch.
    Damaged,
}

/// Returns true if an error means that a batch is unreadable: a wrong checksum, a decompression
/// error or an unknown format.
pub(crate) fn is_damage(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::BadCompression
            | RDKafkaErrorCode::BadMessage
            | RDKafkaErrorCode::NotImplemented
            | RDKafkaErrorCode::InvalidMessage
    )
}
