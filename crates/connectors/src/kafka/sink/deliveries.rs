//! What becomes of messages that were handed to librdkafka.

use std::sync::{Mutex, PoisonError};

use ardea_core::{Error, ErrorCode};
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::ProducerContext;

use crate::kafka::teller::Teller;

/// A delivery that failed for good.
pub(crate) struct Failure {
    /// The record's position in the sink's input.
    pub position: u64,
    pub partition: i32,
    pub error: KafkaError,
}

impl Failure {
    /// The job's failure.
    pub fn into_error(self, topic: &str) -> Error {
        let partition = self.partition;
        let place = if partition < 0 {
            topic.to_string()
        } else {
            format!("{topic}[{partition}]")
        };
        let code = self.error.rdkafka_error_code();
        let hint = match code {
            Some(RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownTopicOrPartition) => {
                "make the topic, or check its name"
            }
            Some(RDKafkaErrorCode::MessageSizeTooLarge) => {
                "raise `max.message.bytes` of the topic: where each record is written once it is sent again when the job goes on"
            }
            _ => "check the brokers' logs; the records behind it may be in the topic or not",
        };
        let error = Error::new(
            ErrorCode::WriteFailed,
            format!(
                "record {} was not delivered to the Kafka topic {place}",
                self.position
            ),
        )
        .because(self.error)
        .hint(hint)
        .at_record(0, self.position);
        match code {
            // They come again with the record.
            Some(
                RDKafkaErrorCode::UnknownTopic
                | RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::UnknownPartition
                | RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::ClusterAuthorizationFailed
                | RDKafkaErrorCode::MessageSizeTooLarge
                | RDKafkaErrorCode::InvalidTopic
                | RDKafkaErrorCode::InvalidRecord
                | RDKafkaErrorCode::PolicyViolation,
            ) => error.permanent(),
            _ => error,
        }
    }
}

/// Hears of deliveries.
pub(crate) struct Deliveries {
    teller: Teller,
    /// The first that failed.
    failed: Mutex<Option<Failure>>,
}

impl Deliveries {
    /// The first that has failed since this was asked last.
    pub fn take_failed(&self) -> Option<Failure> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.take()
    }

    pub fn teller(&self) -> &Teller {
        &self.teller
    }
}

impl From<Teller> for Deliveries {
    fn from(teller: Teller) -> Self {
        Deliveries {
            teller,
            failed: Mutex::default(),
        }
    }
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.teller.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.teller.error(error, reason);
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, position: usize) {
        match result {
            Ok(_) => self.teller.heard(),
            Err((error, message)) => {
                let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
                failed.get_or_insert_with(|| Failure {
                    position: position as u64,
                    partition: message.partition(),
                    error: error.clone(),
                });
            }
        }
    }
}
