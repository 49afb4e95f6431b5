//! What librdkafka says of its brokers, and who hears of it.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// Tells people, once, that the brokers are away, and once that they are back.
#[derive(Debug)]
pub(crate) struct Teller {
    /// Who waits for whom.
    what: String,
    is_away: AtomicBool,
}

impl Teller {
    pub fn new(what: String) -> Self {
        Teller {
            what,
            is_away: AtomicBool::new(false),
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

    /// A broker has answered.
    #[inline]
    pub fn heard(&self) {
        if self.is_away.load(Ordering::Relaxed) {
            self.is_away.store(false, Ordering::Relaxed);
            self.say("a broker answers again");
        }
    }

    fn say(&self, what: &str) {
        // Nobody is left to be told that standard error is closed.
        let _ = writeln!(std::io::stderr().lock(), "ardea: {}: {what}", self.what);
    }
}

impl ClientContext for Teller {
    /// What is worth knowing comes as an error as well.
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, error: KafkaError, reason: &str) {
        // That one of several brokers is away, and news of partitions, are dealt with by who reads or writes.
        if let Some(
            RDKafkaErrorCode::AllBrokersDown
            | RDKafkaErrorCode::Authentication
            | RDKafkaErrorCode::SaslAuthenticationFailed
            | RDKafkaErrorCode::SSL,
        ) = error.rdkafka_error_code()
        {
            self.away(reason);
        }
    }
}

impl ConsumerContext for Teller {}
