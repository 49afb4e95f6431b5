//! Availability of a client's brokers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ardea_core::OutageReporter;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::{ClientContext, TopicPartitionList};

use crate::kafka::identity::Identities;

/// Client context that reports outages, and collects topic ids, refusals and the number of offset
/// commits.
#[derive(Debug)]
pub(crate) struct KafkaClientContext {
    /// The outages of all brokers, and of those that refuse this client.
    pub outage: OutageReporter,
    /// Latest refusal of this client by a broker; cleared by the next successful response.
    refusal: Mutex<Option<String>>,
    /// Text of the latest error.
    reason: Mutex<String>,
    identities: Identities,
    commits: AtomicU64,
}

impl KafkaClientContext {
    pub fn new(system: String) -> Self {
        KafkaClientContext {
            outage: OutageReporter::new(system),
            refusal: Mutex::default(),
            reason: Mutex::default(),
            identities: Identities::default(),
            commits: AtomicU64::new(0),
        }
    }

    /// Reports a response from a broker.
    #[inline]
    pub fn report_response(&self) {
        if self.outage.answers() {
            lock(&self.refusal).take();
        }
    }

    /// Returns the reason if brokers refuse this client: its user, its password or a certificate.
    pub fn refusal(&self) -> Option<String> {
        lock(&self.refusal).clone()
    }

    /// Returns librdkafka's text of the latest error.
    pub fn reason(&self) -> String {
        lock(&self.reason).clone()
    }

    /// Returns the topic ids and leader epochs received by the client.
    pub fn identities(&self) -> &Identities {
        &self.identities
    }

    /// Returns the number of offset commits to which brokers have responded.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClientContext for KafkaClientContext {
    /// Parses debug lines for topic ids. Other relevant lines are also reported as errors.
    fn log(&self, level: RDKafkaLogLevel, _: &str, line: &str) {
        if matches!(level, RDKafkaLogLevel::Debug) {
            self.identities.note(line);
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        reason.clone_into(&mut lock(&self.reason));
        let code = error.rdkafka_error_code();
        if matches!(
            code,
            Some(
                RDKafkaErrorCode::Authentication
                    | RDKafkaErrorCode::SaslAuthenticationFailed
                    | RDKafkaErrorCode::SSL
            )
        ) {
            *lock(&self.refusal) = Some(reason.to_string());
        }
        // Errors of a single broker or partition are handled by the source or sink.
        if let Some(
            RDKafkaErrorCode::AllBrokersDown
            | RDKafkaErrorCode::Authentication
            | RDKafkaErrorCode::SaslAuthenticationFailed
            | RDKafkaErrorCode::SSL,
        ) = code
        {
            self.outage.away(reason);
        }
    }
}

impl ConsumerContext for KafkaClientContext {
    fn commit_callback(&self, _: KafkaResult<()>, _: &TopicPartitionList) {
        self.commits.fetch_add(1, Ordering::Release);
    }
}
