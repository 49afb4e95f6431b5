//! The errors of transactions.

use ardea_core::{Error, ErrorCode};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::Producer;

use super::Transactions;
use crate::kafka::sink::aborts::comes_again;
use crate::kafka::sink::requirements::transaction_timeout_ms;

impl Transactions {
    /// The error of a transaction that brokers have ended, or will end, for the time it takes.
    pub(super) fn too_slow(&self, error: KafkaError) -> Error {
        let what = format!(
            "a transaction to the Kafka topic {} took longer than {} ms",
            self.settings.topic,
            transaction_timeout_ms(&self.settings)
        );
        Error::new(ErrorCode::WriteFailed, what)
            .because(error)
            .hint("end epochs more often (`snapshots.every`), write by more instances, or raise the sink's property `transaction.timeout.ms`, which `transaction.max.timeout.ms` of the brokers limits")
    }

    /// The error of a transaction that can't go on.
    pub(super) fn failed(&self, error: KafkaError) -> Error {
        let topic = &self.settings.topic;
        let code = self.cause_of(&error);
        let is_overdue = self.is_in_transaction() && self.is_overdue();
        let hint = match code {
            // The broker does the same to one whose transaction it has ended, and the client takes
            // no more messages.
            Some(RDKafkaErrorCode::State | RDKafkaErrorCode::Fatal) if is_overdue => {
                return self.too_slow(error);
            }
            code if is_fenced(code) && is_overdue => return self.too_slow(error),
            code if is_fenced(code) => return taken_over(topic, error),
            Some(RDKafkaErrorCode::UnsupportedFeature | RDKafkaErrorCode::UnsupportedVersion) => {
                "brokers have transactions from 0.11 on; `at_least_once` needs none"
            }
            Some(RDKafkaErrorCode::InvalidTransactionTimeout) => {
                "raise `transaction.max.timeout.ms` of the brokers, or lower the property `transaction.timeout.ms`"
            }
            _ => "check the brokers' logs, and whether this user may use transactions",
        };
        let what = format!("cannot write to the Kafka topic {topic} by transactions");
        let failed = Error::new(ErrorCode::WriteFailed, what)
            .because(error)
            .hint(hint);
        match comes_again(code) {
            true => failed.permanent(),
            false => failed,
        }
    }

    /// Returns the code of an error. One of a client that has failed for good only says so, and the
    /// client has the code of its first failure.
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

    /// The error of a mark that is not there any more.
    pub fn mark_is_gone(&self) -> Error {
        let what = format!(
            "it can't be told which records are in the Kafka topic {}",
            self.settings.topic
        );
        Error::new(ErrorCode::WriteFailed, what)
            .because(format!(
                "the offsets of the group {} are gone, by which that is known",
                self.writer.group
            ))
            .hint("compare the topic's end with what it should be, and start the job without the snapshot; brokers keep offsets for `offsets.retention.minutes`")
    }
}

/// The error of a producer that is taken for an old one.
fn taken_over(topic: &str, error: KafkaError) -> Error {
    let what = format!("another run of this job writes to the Kafka topic {topic}");
    Error::new(ErrorCode::Superseded, what)
        .because(error)
        .hint("let one run at a time, or give each job its own name")
}

/// Returns whether an error says that the producer is taken for an old one.
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
