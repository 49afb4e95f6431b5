//! Keeps a job's dead letters in a topic.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use ardea_core::{DeadLetter, DeadLetters, Error, ErrorCode, Result};
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};

use crate::kafka::security::{Sasl, Tls};
use crate::kafka::settings::Settings;
use crate::kafka::teller::Teller;

/// Settings that can be changed by properties.
const DEFAULTS: &[(&str, &str)] = &[
    ("linger.ms", "0"),
    ("delivery.timeout.ms", "20000"),
    ("reconnect.backoff.max.ms", "1000"),
];

/// Settings that what is promised rests on.
const FIXED: &[(&str, &str)] = &[("enable.idempotence", "true"), ("acks", "all")];

/// Delay before a letter is handed over again to a full queue.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// The dead letters of a job, each written to a topic.
///
/// A letter's message has the record's bytes as its value, and the headers `ardea.job`,
/// `ardea.vertex`, `ardea.origin` and `ardea.reason`. A value that is too large for the topic is
/// cut, and the header `ardea.truncated` says how many bytes it had. The job goes on with the next
/// record when brokers have acknowledged the letter, so none is lost. A letter that is not
/// acknowledged within 20 seconds (the property `delivery.timeout.ms`) fails the job. In a job that
/// keeps its state, letters of records that come again after a failure are written again.
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

/// Writes the dead letters of a job to `topic`; see [`DeadLetterTopic`].
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

    /// Sets the user that connects to brokers.
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
    /// [`ErrorCode::InvalidConfig`] if a setting is wrong; later, on the job, [`ErrorCode::WriteFailed`] if a letter cannot be written.
    pub fn open(self, job: &str) -> Result<DeadLetters> {
        let writer = DeadLetterWriter::open(self.settings, job)?;
        Ok(DeadLetters::with_receiver(move |letter| {
            writer.write(&letter)
        }))
    }
}

/// Sends letters, each of which is waited for.
struct DeadLetterWriter {
    topic: String,
    job: String,
    producer: ThreadedProducer<Receipts>,
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
                // The limits of client, topic and broker are of all that is sent, after
                // compression: they are found by trying.
                Err(error) if is_too_large(&error) && kept > 0 => kept /= 2,
                sent => return sent.map_err(|error| self.not_written(letter, error)),
            }
        }
    }

    /// Sends a letter with the first bytes of its record, and waits for the outcome.
    fn send(&self, letter: &DeadLetter, kept: usize) -> Result<(), KafkaError> {
        let receipt = Arc::new(Receipt::default());
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
            .hint("check that the topic is there, that this user may write to it, and that it takes messages of this size");
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

/// The outcome of one delivery.
#[derive(Default)]
struct Receipt {
    outcome: Mutex<Option<Result<(), KafkaError>>>,
    is_there: Condvar,
}

impl Receipt {
    fn give(&self, outcome: Result<(), KafkaError>) {
        let mut place = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(outcome);
        self.is_there.notify_one();
    }

    /// Waits for the outcome, which librdkafka gives within `delivery.timeout.ms`.
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

/// Hands outcomes of deliveries to the threads that wait for them.
struct Receipts {
    teller: Teller,
}

impl From<Teller> for Receipts {
    fn from(teller: Teller) -> Self {
        Receipts { teller }
    }
}

impl ClientContext for Receipts {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.teller.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.teller.error(error, reason);
    }
}

impl ProducerContext for Receipts {
    type DeliveryOpaque = Arc<Receipt>;

    fn delivery(&self, result: &DeliveryResult<'_>, receipt: Self::DeliveryOpaque) {
        let outcome = match result {
            Ok(_) => {
                self.teller.heard();
                Ok(())
            }
            Err((error, _)) => Err(error.clone()),
        };
        receipt.give(outcome);
    }
}
