//! News of a client's brokers.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::{ClientContext, TopicPartitionList};

use crate::kafka::identity::Identities;

/// Tells people, once, that the brokers are away, and once that they are back. Keeps what a client learns besides its answers.
#[derive(Debug)]
pub(crate) struct Teller {
    /// The prefix of messages.
    what: String,
    is_away: AtomicBool,
    /// The latest refusal of this client by a broker, until a broker has answered.
    refusal: Mutex<Option<String>>,
    /// The text of the latest error.
    reason: Mutex<String>,
    identities: Identities,
    commits: AtomicU64,
}

impl Teller {
    pub fn new(what: String) -> Self {
        Teller {
            what,
            is_away: AtomicBool::new(false),
            refusal: Mutex::default(),
            reason: Mutex::default(),
            identities: Identities::default(),
            commits: AtomicU64::new(0),
        }
    }

    /// The brokers can't be reached, or don't let us in.
    pub fn away(&self, why: &str) {
        if !self.is_away.swap(true, Ordering::Relaxed) {
            self.say(&format!(
                "no broker answers ({why}); waiting until one does"
            ));
        }
    }

    /// Returns whether no broker has answered since one was last heard of.
    pub fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }

    /// A broker has answered.
    #[inline]
    pub fn heard(&self) {
        if self.is_away.load(Ordering::Relaxed) {
            self.is_away.store(false, Ordering::Relaxed);
            lock(&self.refusal).take();
            self.say("a broker answers again");
        }
    }

    /// Returns why brokers refuse this client, if they do: its user, its password or a certificate.
    pub fn refusal(&self) -> Option<String> {
        lock(&self.refusal).clone()
    }

    /// Returns librdkafka's text of the error that came last.
    pub fn reason(&self) -> String {
        lock(&self.reason).clone()
    }

    /// Topic ids and leader epochs as far as the client has learnt them.
    pub fn identities(&self) -> &Identities {
        &self.identities
    }

    /// Returns the number of commits of offsets that brokers have answered.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }

    /// Writes a line to standard error.
    pub fn say(&self, what: &str) {
        // Nobody is left to be told that standard error is closed.
        let _ = writeln!(std::io::stderr().lock(), "ardea: {}: {what}", self.what);
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClientContext for Teller {
    /// What else is worth knowing comes as an error as well.
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
        // That one of several brokers is away, and news of partitions, are dealt with by who reads or writes.
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

impl ConsumerContext for Teller {
    fn commit_callback(&self, _: KafkaResult<()>, _: &TopicPartitionList) {
        self.commits.fetch_add(1, Ordering::Release);
    }
}
