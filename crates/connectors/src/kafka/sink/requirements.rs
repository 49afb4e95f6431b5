//! Asks brokers whether they can do what a sink promises, before anything is written.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, InstanceContext, Result};
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::metadata::Metadata;
use rdkafka::producer::{BaseProducer, Producer};

use super::answers::{is_passing, wait_for};
use super::deliveries::Deliveries;
use crate::kafka::discovery::refused;
use crate::kafka::settings::Settings;
use crate::kafka::teller::Teller;

/// How long brokers may take to answer a question.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay before a question that was not answered is asked again.
const RETRY_DELAY: Duration = Duration::from_millis(300);
/// How long brokers may not know the topic, or refuse this client: those that have just been started learn of both late.
const UNKNOWN_FOR: Duration = Duration::from_secs(10);

/// The property of a producer by which brokers know when its transaction has died.
const TRANSACTION_TIMEOUT: &str = "transaction.timeout.ms";
/// Its value unless it is set.
const DEFAULT_TRANSACTION_TIMEOUT_MS: u64 = 60_000;
/// The greatest value that a broker takes.
const TRANSACTION_LIMIT: &str = "transaction.max.timeout.ms";
const MIN_IN_SYNC: &str = "min.insync.replicas";

/// What brokers say about the requirements of a sink.
pub(super) struct Requirements(Arc<Desk>);

struct Desk {
    outcome: Mutex<Option<Result<()>>>,
    is_over: AtomicBool,
}

impl Requirements {
    /// Begins to ask, on a thread of its own.
    ///
    /// # Errors
    /// If no client can be made.
    pub fn ask(
        settings: &Settings,
        context: &InstanceContext,
        is_transactional: bool,
    ) -> Result<Self> {
        let desk = Arc::new(Desk {
            outcome: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let connection = settings.of_connections();
        let keeps_state = context.guarantee.keeps_state();
        let inquiry = Inquiry {
            client: connection.client(&context.job, &[], &[])?,
            admin: match keeps_state {
                true => Some(connection.client(&context.job, &[], &[])?),
                false => None,
            },
            settings: settings.clone(),
            is_transactional,
            // One of several says it.
            warns: keeps_state && context.instance.index == 0,
            unknown_since: None,
            refused_since: None,
        };
        let report = Arc::clone(&desk);
        std::thread::Builder::new()
            .name("kafka-requirements".to_string())
            .spawn(move || inquiry.run(&report))
            .map_err(|error| {
                Error::new(ErrorCode::LimitReached, "no thread could be started").because(error)
            })?;
        Ok(Requirements(desk))
    }

    /// Returns whether all requirements are known to be met.
    ///
    /// # Errors
    /// The one that is not.
    pub fn are_met(&self) -> Result<bool> {
        let outcome = self.0.outcome.lock();
        match &*outcome.unwrap_or_else(PoisonError::into_inner) {
            None => Ok(false),
            Some(outcome) => outcome.clone().map(|()| true),
        }
    }
}

impl Drop for Requirements {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
    }
}

struct Inquiry {
    /// It is polled: so it learns why brokers refuse it.
    client: BaseProducer<Deliveries>,
    /// Where configurations are asked for.
    admin: Option<AdminClient<Teller>>,
    settings: Settings,
    is_transactional: bool,
    warns: bool,
    /// The time since which brokers do not know the topic.
    unknown_since: Option<Instant>,
    /// The time since which brokers refuse this client.
    refused_since: Option<Instant>,
}

/// Why there is no answer.
enum Trouble {
    Kafka(KafkaError),
    Unmet(Error),
}

impl From<KafkaError> for Trouble {
    fn from(error: KafkaError) -> Self {
        Trouble::Kafka(error)
    }
}

impl Inquiry {
    fn run(mut self, desk: &Desk) {
        let outcome = loop {
            if desk.is_over.load(Ordering::Acquire) {
                return;
            }
            let failed = match self.inquire() {
                Ok(()) => break Ok(()),
                Err(Trouble::Unmet(error)) => Some(error),
                Err(Trouble::Kafka(error)) => self.failure_of(&error),
            };
            if let Some(error) = failed {
                break Err(error);
            }
            std::thread::park_timeout(RETRY_DELAY);
        };
        let mut place = desk.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(outcome);
    }

    fn inquire(&self) -> Result<(), Trouble> {
        let topic = &self.settings.topic;
        let client = self.client.client();
        let metadata = client.fetch_metadata(Some(topic), ANSWER_TIMEOUT)?;
        let replicas = replicas_of(&metadata, topic)?;
        self.teller().heard();
        if self.is_transactional {
            for broker in metadata.brokers() {
                self.check_timeout(broker.id())?;
            }
        }
        if self.warns && metadata.brokers().len() > 1 {
            self.warn_of_loss(replicas)?;
        }
        Ok(())
    }

    fn teller(&self) -> &Teller {
        self.client.context().teller()
    }

    /// A value of a broker's or a topic's configuration; none if this user may not ask.
    fn configured(&self, of: &ResourceSpecifier<'_>, name: &str) -> KafkaResult<Option<u64>> {
        let Some(admin) = &self.admin else {
            return Ok(None);
        };
        let options = AdminOptions::new().request_timeout(Some(ANSWER_TIMEOUT));
        match wait_for(admin.describe_configs([of], &options)) {
            Ok(answers) => Ok(answers.into_iter().flatten().find_map(|config| {
                let value = config.get(name)?.value.as_deref()?;
                value.parse().ok()
            })),
            Err(error) if is_passing(&error) => Err(error),
            Err(_) => Ok(None),
        }
    }

    fn check_timeout(&self, broker: i32) -> Result<(), Trouble> {
        let most = self.configured(&ResourceSpecifier::Broker(broker), TRANSACTION_LIMIT)?;
        match most {
            Some(most) => transactions_fit(broker, transaction_timeout_ms(&self.settings), most)
                .map_err(Trouble::Unmet),
            None => Ok(()),
        }
    }

    fn warn_of_loss(&self, replicas: usize) -> Result<(), Trouble> {
        let topic = ResourceSpecifier::Topic(&self.settings.topic);
        let least = self.configured(&topic, MIN_IN_SYNC)?;
        if let Some(warning) = least.and_then(|least| warning_of(replicas, least)) {
            self.teller().say(&warning);
        }
        Ok(())
    }

    /// The job's failure, if asking again is of no use.
    fn failure_of(&mut self, error: &KafkaError) -> Option<Error> {
        let topic = self.settings.topic.clone();
        let failed = |hint: &str| {
            let what = format!("cannot write to the Kafka topic {topic}");
            let failed = Error::new(ErrorCode::WriteFailed, what)
                .because(error.clone())
                .hint(hint);
            Some(failed.permanent())
        };
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownTopicOrPartition) => {
                self.refused_since = None;
                match is_late(&mut self.unknown_since) {
                    true => failed("make the topic, or check its name"),
                    false => None,
                }
            }
            Some(RDKafkaErrorCode::InvalidTopic | RDKafkaErrorCode::TopicAuthorizationFailed) => {
                failed("check the topic's name, and what this user may write")
            }
            _ => {
                // Brokers that were away may have to learn of the topic anew.
                self.unknown_since = None;
                self.client.poll(Duration::ZERO);
                match self.teller().refusal() {
                    Some(refusal) if is_late(&mut self.refused_since) => {
                        return Some(refused(&self.settings.brokers, refusal));
                    }
                    Some(_) => {}
                    None => self.refused_since = None,
                }
                self.teller().away(&error.to_string());
                None
            }
        }
    }
}

/// Returns whether something has been so for too long; since now if it has not been so before.
fn is_late(since: &mut Option<Instant>) -> bool {
    since.get_or_insert_with(Instant::now).elapsed() >= UNKNOWN_FOR
}

/// The number of replicas of the partition that has the fewest.
fn replicas_of(metadata: &Metadata, topic: &str) -> KafkaResult<usize> {
    let unknown = KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicOrPartition);
    let about = metadata.topics().iter().find(|about| about.name() == topic);
    let about = about.ok_or(unknown.clone())?;
    if let Some(error) = about.error() {
        return Err(KafkaError::MetadataFetch(error.into()));
    }
    let replicas = about.partitions().iter().map(|p| p.replicas().len());
    replicas.min().ok_or(unknown)
}

/// The milliseconds after which brokers end a transaction of a producer with these settings.
pub(super) fn transaction_timeout_ms(settings: &Settings) -> u64 {
    let own = settings.property(TRANSACTION_TIMEOUT);
    let own = own.and_then(|own| own.parse().ok());
    own.unwrap_or(DEFAULT_TRANSACTION_TIMEOUT_MS)
}

/// Refuses a transaction timeout that is greater than a broker takes.
fn transactions_fit(broker: i32, needed: u64, most: u64) -> Result<()> {
    if needed <= most {
        return Ok(());
    }
    let what = format!(
        "the Kafka broker {broker} ends transactions after {most} ms ({TRANSACTION_LIMIT}), exactly-once output needs {needed} ms ({TRANSACTION_TIMEOUT})"
    );
    Err(Error::new(ErrorCode::StoreUnsuitable, what).hint(
        "raise the broker's setting, lower the sink's property `transaction.timeout.ms`, or write `at_least_once`",
    ))
}

/// The warning of a topic whose acknowledged records one broker may lose, or that takes none.
fn warning_of(replicas: usize, least_in_sync: u64) -> Option<String> {
    if least_in_sync > replicas as u64 {
        Some(format!(
            "the topic has {replicas} replicas, and takes records only if {least_in_sync} are in sync ({MIN_IN_SYNC}): it takes none"
        ))
    } else if replicas == 1 {
        Some(
            "the topic has one replica: records that it has acknowledged are lost with its broker"
                .to_string(),
        )
    } else if least_in_sync < 2 {
        Some(format!(
            "the topic acknowledges records that one replica has ({MIN_IN_SYNC}={least_in_sync}): they may be lost with its broker"
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_missing_for_as_long_as_brokers_that_answer_do_not_know_it() {
        let settings = Settings::new("localhost:1".into(), "t".into());
        let mut inquiry = Inquiry {
            client: settings.client("job", &[], &[]).unwrap(),
            admin: None,
            settings,
            is_transactional: false,
            warns: false,
            unknown_since: None,
            refused_since: None,
        };
        let unknown = KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicOrPartition);
        let away = KafkaError::MetadataFetch(RDKafkaErrorCode::BrokerTransportFailure);
        let long_ago = Instant::now().checked_sub(UNKNOWN_FOR);
        assert!(inquiry.failure_of(&unknown).is_none());
        inquiry.unknown_since = long_ago;
        assert!(inquiry.failure_of(&away).is_none());
        assert!(inquiry.failure_of(&unknown).is_none(), "they were away");
        inquiry.unknown_since = long_ago;
        assert!(inquiry.failure_of(&unknown).unwrap().is_permanent());
    }

    #[test]
    fn a_transaction_timeout_has_to_fit_the_brokers_limit_and_the_error_names_both() {
        assert!(transactions_fit(1, 60_000, 60_000).is_ok());
        let error = transactions_fit(3, 60_000, 10_000).unwrap_err();
        assert_eq!(error.code(), ErrorCode::StoreUnsuitable);
        let text = error.to_string();
        for part in ["broker 3", "10000 ms", "60000 ms", "at_least_once"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_topic_that_one_broker_can_lose_is_warned_of() {
        assert_eq!(warning_of(3, 2), None);
        assert!(warning_of(3, 1).unwrap().contains("may be lost"));
        assert!(warning_of(1, 1).unwrap().contains("one replica"));
        assert!(warning_of(2, 3).unwrap().contains("takes none"));
    }
}
