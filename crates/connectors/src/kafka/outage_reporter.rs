//! Availability of a client's brokers.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::{ClientContext, TopicPartitionList};

use crate::kafka::identity::Identities;

/// Client context that logs once when brokers become unavailable and once when they return. It also
/// collects topic ids, refusals and the number of offset commits.
#[derive(Debug)]
pub(crate) struct OutageReporter {
    /// Prefix of log lines.
    what: String,
    is_away: AtomicBool,
    /// Latest refusal of this client by a broker; cleared by the next successful response.
    refusal: Mutex<Option<String>>,
    /// Text of the latest error.
    reason: Mutex<String>,
    identities: Identities,
    commits: AtomicU64,
}

impl OutageReporter {
    pub fn new(what: String) -> Self {
        OutageReporter {
            what,
            is_away: AtomicBool::new(false),
            refusal: Mutex::default(),
            reason: Mutex::default(),
            identities: Identities::default(),
            commits: AtomicU64::new(0),
        }
    }

    /// Reports that no broker is reachable or accepts this client.
    pub fn away(&self, why: &str) {
        if !self.is_away.swap(true, Ordering::Relaxed) {
            self.log_line(&format!(
                "no broker answers ({why}); waiting until one does"
            ));
        }
    }

    /// Returns true if no broker has responded since the outage was reported.
    pub fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }

    /// Reports a response from a broker.
    #[inline]
    pub fn report_response(&self) {
        if self.is_away.load(Ordering::Relaxed) {
            self.is_away.store(false, Ordering::Relaxed);
            lock(&self.refusal).take();
            self.log_line("a broker answers again");
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

    /// Writes a line to standard error.
    pub fn log_line(&self, what: &str) {
        // A closed standard error cannot be reported anywhere.
        let _ = writeln!(std::io::stderr().lock(), "ardea: {}: {what}", self.what);
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClientContext for OutageReporter {
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
            self.away(reason);
        }
    }
}

impl ConsumerContext for OutageReporter {
    fn commit_callback(&self, _: KafkaResult<()>, _: &TopicPartitionList) {
        self.commits.fetch_add(1, Ordering::Release);
    }
}
