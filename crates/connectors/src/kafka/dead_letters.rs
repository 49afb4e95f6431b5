//! Dead letter output to a topic.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use ardea_core::{DeadLetter, DeadLetters, Error, ErrorCode, Result};
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};

use crate::kafka::client_context::KafkaClientContext;
use crate::kafka::security::{Sasl, Tls};
use crate::kafka::settings::Settings;

/// Default settings that properties can override.
const DEFAULTS: &[(&str, &str)] = &[
    ("linger.ms", "0"),
    ("delivery.timeout.ms", "20000"),
    ("reconnect.backoff.max.ms", "1000"),
];

/// Fixed settings on which the guarantees depend.
const FIXED: &[(&str, &str)] = &[("enable.idempotence", "true"), ("acks", "all")];

/// Retry delay while librdkafka's queue is full.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// Writer of a job's dead letters to a topic.
///
/// A message has the record's bytes as its value, and the headers `ardea.job`, `ardea.vertex`,
/// `ardea.origin` and `ardea.reason`. A value that is too large for the topic is truncated, and the
/// header `ardea.truncated` contains its original length. The job continues when brokers have
/// acknowledged the letter, so no letter is lost. A letter not acknowledged within 20 seconds (the
/// property `delivery.timeout.ms`) fails the job. In a job with checkpoints, dead letters of
/// records replayed after a failure are written again.
///
/// ```no_run
/// use ardea_connectors::kafka::dead_letters;
///
/// let letters = dead_letters("kafka-1:9092,kafka-2:9092", "bad-records").open("flights")?;
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DeadLetterTopic {
    settings: Settings,
}

/// Creates a writer of dead letters to `topic`; see [`DeadLetterTopic`].
pub fn dead_letters(brokers: impl Into<String>, topic: impl Into<String>) -> DeadLetterTopic {
    DeadLetterTopic {
        settings: Settings::new(brokers.into(), topic.into()),
    }
}

impl DeadLetterTopic {
    /// Encrypts the connections to brokers.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.settings.set_tls(tls);
        self
    }

    /// Sets the user and authentication mechanism for connections to brokers.
    pub fn sasl(mut self, sasl: Sasl) -> Self {
        self.settings.set_sasl(sasl);
        self
    }

    /// Sets a property of librdkafka's producer.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.set(name.into(), value.into());
        self
    }

    /// Returns the receiver of the dead letters of `job`. It connects to brokers in the background.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if a setting is invalid. Later, in the job,
    /// [`ErrorCode::WriteFailed`] if a letter cannot be written.
    pub fn open(self, job: &str) -> Result<DeadLetters> {
        let writer = DeadLetterWriter::open(self.settings, job)?;
        Ok(DeadLetters::with_receiver(move |letter| {
            writer.write(&letter)
        }))
    }
}

/// Synchronous producer of dead letters: waits for each acknowledgement.
struct DeadLetterWriter {
    topic: String,
    job: String,
    producer: ThreadedProducer<DeliveryReports>,
}

impl DeadLetterWriter {
    fn open(settings: Settings, job: &str) -> Result<Self> {
        Ok(DeadLetterWriter {
            producer: settings.client(job, DEFAULTS, FIXED)?,
            topic: settings.topic,
            job: job.to_string(),
        })
    }

    fn write(&self, letter: &DeadLetter) -> Result<()> {
        let mut kept = letter.raw.len();
        loop {
            match self.send(letter, kept) {
                // The size limits of client, topic and broker apply to the compressed message, so
                // the allowed size is found by trying.
                Err(error) if is_too_large(&error) && kept > 0 => kept /= 2,
                sent => return sent.map_err(|error| self.not_written(letter, error)),
            }
        }
    }

    /// Sends a letter with the first `kept` bytes of its record and waits for the result.
    fn send(&self, letter: &DeadLetter, kept: usize) -> Result<(), KafkaError> {
        let receipt = Arc::new(DeliveryReport::default());
        let headers = [
            ("ardea.job", &self.job),
            ("ardea.vertex", &letter.vertex),
            ("ardea.origin", &letter.origin),
            ("ardea.reason", &letter.reason),
        ];
        let mut headers = headers
            .into_iter()
            .fold(OwnedHeaders::new(), |headers, (key, value)| {
                let value = Some(value.as_bytes());
                headers.insert(Header { key, value })
            });
        let length = letter.raw.len();
        if kept < length {
            let (key, length) = ("ardea.truncated", length.to_string());
            let value = Some(length.as_bytes());
            headers = headers.insert(Header { key, value });
        }
        let mut record: BaseRecord<'_, [u8], [u8], _> =
            BaseRecord::with_opaque_to(&self.topic, Arc::clone(&receipt))
                .payload(&letter.raw[..kept])
                .headers(headers);
        while let Err((error, back)) = self.producer.send(record) {
            if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
                return Err(error);
            }
            record = back;
            std::thread::park_timeout(RETRY_DELAY);
        }
        receipt.wait()
    }

    fn not_written(&self, letter: &DeadLetter, error: KafkaError) -> Error {
        let what = format!(
            "the dead letter of {} cannot be written to the Kafka topic {}",
            letter.origin, self.topic
        );
        let code = error.rdkafka_error_code();
        let why = match self.producer.context().teller.refusal() {
            Some(refusal) => format!("{error}: {refusal}"),
            None => error.to_string(),
        };
        let error = Error::new(ErrorCode::WriteFailed, what)
            .because(why)
            .hint("check that the topic exists, that this user may write to it, and that it accepts messages of this size");
        match code {
            Some(
                RDKafkaErrorCode::UnknownTopic
                | RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::MessageSizeTooLarge,
            ) => error.permanent(),
            _ => error,
        }
    }
}

fn is_too_large(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(RDKafkaErrorCode::MessageSizeTooLarge)
}

/// Result of one delivery.
#[derive(Default)]
struct DeliveryReport {
    outcome: Mutex<Option<Result<(), KafkaError>>>,
    is_there: Condvar,
}

impl DeliveryReport {
    fn give(&self, outcome: Result<(), KafkaError>) {
        let mut place = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(outcome);
        self.is_there.notify_one();
    }

    /// Waits for the result, which librdkafka reports within `delivery.timeout.ms`.
    fn wait(&self) -> Result<(), KafkaError> {
        let mut place = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(outcome) = place.take() {
                return outcome;
            }
            place = self
                .is_there
                .wait(place)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Producer context that passes delivery results to the waiting threads.
struct DeliveryReports {
    teller: KafkaClientContext,
}

impl From<KafkaClientContext> for DeliveryReports {
    fn from(teller: KafkaClientContext) -> Self {
        DeliveryReports { teller }
    }
}

impl ClientContext for DeliveryReports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.teller.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.teller.error(error, reason);
    }
}

impl ProducerContext for DeliveryReports {
    type DeliveryOpaque = Arc<DeliveryReport>;

    fn delivery(&self, result: &DeliveryResult<'_>, receipt: Self::DeliveryOpaque) {
        let outcome = match result {
            Ok(_) => {
                self.teller.report_response();
                Ok(())
            }
            Err((error, _)) => Err(error.clone()),
        };
        receipt.give(outcome);
    }
}
