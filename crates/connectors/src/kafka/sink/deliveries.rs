//! Results of message deliveries by librdkafka.

use std::sync::{Mutex, PoisonError};

use ardea_core::{Error, ErrorCode};
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::ProducerContext;

use crate::kafka::client_context::KafkaClientContext;

/// A permanently failed delivery.
pub(crate) struct Failure {
    /// Position of the record in the sink's input.
    pub position: u64,
    pub partition: i32,
    pub error: KafkaError,
}

impl Failure {
    /// Converts to the job's failure.
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
                "create the topic, or check its name"
            }
            Some(RDKafkaErrorCode::MessageSizeTooLarge) => {
                "raise `max.message.bytes` of the topic; an exactly-once sink sends the record again when the job is restored"
            }
            _ => "check the brokers' logs; later records may or may not be in the topic",
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
            // These errors recur when the record is written again.
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

/// Producer context that collects failed deliveries.
pub(crate) struct DeliveryTracker {
    teller: KafkaClientContext,
    /// First failed delivery.
    failed: Mutex<Option<Failure>>,
}

impl DeliveryTracker {
    /// Returns the first delivery that has failed since the last call.
    pub fn take_failed(&self) -> Option<Failure> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.take()
    }

    pub fn teller(&self) -> &KafkaClientContext {
        &self.teller
    }
}

impl From<KafkaClientContext> for DeliveryTracker {
    fn from(teller: KafkaClientContext) -> Self {
        DeliveryTracker {
            teller,
            failed: Mutex::default(),
        }
    }
}

impl ClientContext for DeliveryTracker {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.teller.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.teller.error(error, reason);
    }
}

impl ProducerContext for DeliveryTracker {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, position: usize) {
        match result {
            Ok(_) => self.teller.report_response(),
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
