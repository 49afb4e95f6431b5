//! Errors of transactions.

use ardea_core::{Error, ErrorCode};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::Producer;

use super::Transactions;
use crate::kafka::sink::aborts::is_permanent;
use crate::kafka::sink::requirements::transaction_timeout_ms;

impl Transactions {
    /// Returns the error of a transaction that exceeds the transaction timeout of the brokers.
    pub(super) fn too_slow(&self, error: KafkaError) -> Error {
        let what = format!(
            "a transaction to the Kafka topic {} took longer than {} ms",
            self.settings.topic,
            transaction_timeout_ms(&self.settings)
        );
        Error::new(ErrorCode::WriteFailed, what)
            .because(error)
            .hint("end epochs more often (`checkpoints.every`), use more instances, or raise the sink's property `transaction.timeout.ms`, which `transaction.max.timeout.ms` of the brokers limits")
    }

    /// Returns the error of a transaction that cannot continue.
    pub(super) fn failed(&self, error: KafkaError) -> Error {
        let topic = &self.settings.topic;
        let code = self.cause_of(&error);
        let is_overdue = self.is_in_transaction() && self.is_overdue();
        let hint = match code {
            // Brokers fence a producer after aborting its transaction for the timeout, and the
            // client then rejects messages.
            Some(RDKafkaErrorCode::State | RDKafkaErrorCode::Fatal) if is_overdue => {
                return self.too_slow(error);
            }
            code if is_fenced(code) && is_overdue => return self.too_slow(error),
            code if is_fenced(code) => return taken_over(topic, error),
            Some(RDKafkaErrorCode::UnsupportedFeature | RDKafkaErrorCode::UnsupportedVersion) => {
                "brokers support transactions from 0.11 on; `at_least_once` needs none"
            }
            Some(RDKafkaErrorCode::InvalidTransactionTimeout) => {
                "raise `transaction.max.timeout.ms` of the brokers, or lower the property `transaction.timeout.ms`"
            }
            _ => "check the brokers' logs, and whether this user may use transactions",
        };
        let what = format!("cannot write to the Kafka topic {topic} with transactions");
        let failed = Error::new(ErrorCode::WriteFailed, what)
            .because(error)
            .hint(hint);
        match is_permanent(code) {
            true => failed.permanent(),
            false => failed,
        }
    }

    /// Returns the code of an error. After a fatal error the client reports no other code, so the
    /// code of its first failure is returned.
    fn cause_of(&self, error: &KafkaError) -> Option<RDKafkaErrorCode> {
        let code = error.rdkafka_error_code()?;
        match code {
            RDKafkaErrorCode::Fatal | RDKafkaErrorCode::State => {
                let failed = self.producer.client().fatal_error();
                Some(failed.map_or(code, |(first, _)| first))
            }
            code => Some(code),
        }
    }

    /// Returns the error of a missing mark.
    pub fn mark_is_gone(&self) -> Error {
        let what = format!(
            "it is unknown which records are in the Kafka topic {}",
            self.settings.topic
        );
        Error::new(ErrorCode::WriteFailed, what)
            .because(format!(
                "the offsets of the group {}, which record that, are missing",
                self.writer.group
            ))
            .hint("compare the end of the topic with the expected records, and start the job without the checkpoint; brokers keep offsets for `offsets.retention.minutes`")
    }
}

/// Returns the error of a fenced producer.
fn taken_over(topic: &str, error: KafkaError) -> Error {
    let what = format!("another run of this job writes to the Kafka topic {topic}");
    Error::new(ErrorCode::Superseded, what)
        .because(error)
        .hint("let one run at a time, or give each job its own name")
}

/// Returns true if an error means that the producer is fenced.
pub(super) fn is_fenced(code: Option<RDKafkaErrorCode>) -> bool {
    matches!(
        code,
        Some(
            RDKafkaErrorCode::Fenced
                | RDKafkaErrorCode::ProducerFenced
                | RDKafkaErrorCode::InvalidProducerEpoch
        )
    )
}
