//! Checks, before the first write, that the brokers support the sink's guarantee.

use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, InstanceContext, Result, Waker};
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::metadata::Metadata;
use rdkafka::producer::{BaseProducer, Producer};

use super::answers::{is_passing, wait_for};
use super::deliveries::DeliveryTracker;
use crate::blocking_worker::{BlockingWorker, WorkerContext};
use crate::kafka::client_context::KafkaClientContext;
use crate::kafka::discovery::refused;
use crate::kafka::settings::Settings;

/// Timeout of a request to brokers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Retry delay after a failed request.
const RETRY_DELAY: Duration = Duration::from_millis(300);
/// Time for which brokers may report the topic as unknown or refuse this client. Restarted brokers
/// may not know topics and users yet.
const UNKNOWN_FOR: Duration = Duration::from_secs(10);

/// Producer property: time after which brokers abort an unfinished transaction.
const TRANSACTION_TIMEOUT: &str = "transaction.timeout.ms";
/// Default of [`TRANSACTION_TIMEOUT`].
const DEFAULT_TRANSACTION_TIMEOUT_MS: u64 = 60_000;
/// Broker setting with the largest allowed transaction timeout.
const TRANSACTION_LIMIT: &str = "transaction.max.timeout.ms";
const MIN_IN_SYNC: &str = "min.insync.replicas";

/// Result of the requirement check, true if all requirements are met.
pub(super) struct Requirements(BlockingWorker<bool>);

impl Requirements {
    /// Starts the check on a dedicated thread.
    ///
    /// # Errors
    /// An error if no client can be created.
    pub fn ask(
        settings: &Settings,
        context: &InstanceContext,
        is_transactional: bool,
    ) -> Result<Self> {
        let connection = settings.of_connections();
        let keeps_state = context.guarantee.keeps_state();
        let inquiry = RequirementsCheck {
            client: connection.client(&context.job, &[], &[])?,
            admin: match keeps_state {
                true => Some(connection.client(&context.job, &[], &[])?),
                false => None,
            },
            settings: settings.clone(),
            is_transactional,
            // Only one instance logs the warning.
            warns: keeps_state && context.instance.index == 0,
            unknown_since: None,
            refused_since: None,
        };
        let run = |context| inquiry.run(&context);
        BlockingWorker::start("kafka-requirements", Waker::none(), false, run).map(Requirements)
    }

    /// Returns true if all requirements are known to be met.
    ///
    /// # Errors
    /// An error that names the unmet requirement.
    pub fn are_met(&self) -> Result<bool> {
        self.0.until(Duration::ZERO, |are_met| *are_met)
    }
}

struct RequirementsCheck {
    /// Client that is polled to receive refusals by brokers.
    client: BaseProducer<DeliveryTracker>,
    /// Client for configuration requests.
    admin: Option<AdminClient<KafkaClientContext>>,
    settings: Settings,
    is_transactional: bool,
    warns: bool,
    /// Time at which brokers first reported the topic as unknown.
    unknown_since: Option<Instant>,
    /// Time of the first refusal of this client.
    refused_since: Option<Instant>,
}

/// Error of the requirement check.
enum RequirementError {
    Kafka(KafkaError),
    Unmet(Error),
}

impl From<KafkaError> for RequirementError {
    fn from(error: KafkaError) -> Self {
        RequirementError::Kafka(error)
    }
}

impl RequirementsCheck {
    fn run(mut self, desk: &WorkerContext<bool>) {
        while !desk.is_over() {
            let failed = match self.inquire() {
                Ok(()) => return desk.update(|are_met| *are_met = true),
                Err(RequirementError::Unmet(error)) => Some(error),
                Err(RequirementError::Kafka(error)) => self.failure_of(&error),
            };
            if let Some(error) = failed {
                return desk.fail(error);
            }
            desk.rest(RETRY_DELAY, |_| false);
        }
    }

    fn inquire(&self) -> Result<(), RequirementError> {
        let topic = &self.settings.topic;
        let client = self.client.client();
        let metadata = client.fetch_metadata(Some(topic), ANSWER_TIMEOUT)?;
        let replicas = replicas_of(&metadata, topic)?;
        self.teller().report_response();
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

    fn teller(&self) -> &KafkaClientContext {
        self.client.context().teller()
    }

    /// Returns a numeric setting of a broker or topic; `None` if this user may not read it.
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

    fn check_timeout(&self, broker: i32) -> Result<(), RequirementError> {
        let most = self.configured(&ResourceSpecifier::Broker(broker), TRANSACTION_LIMIT)?;
        match most {
            Some(most) => transactions_fit(broker, transaction_timeout_ms(&self.settings), most)
                .map_err(RequirementError::Unmet),
            None => Ok(()),
        }
    }

    fn warn_of_loss(&self, replicas: usize) -> Result<(), RequirementError> {
        let topic = ResourceSpecifier::Topic(&self.settings.topic);
        let least = self.configured(&topic, MIN_IN_SYNC)?;
        if let Some(warning) = least.and_then(|least| warning_of(replicas, least)) {
            self.teller().outage.log_line(&warning);
        }
        Ok(())
    }

    /// Returns the job's failure if retrying is useless.
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
                    true => failed("create the topic, or check its name"),
                    false => None,
                }
            }
            Some(RDKafkaErrorCode::InvalidTopic | RDKafkaErrorCode::TopicAuthorizationFailed) => {
                failed("check the topic's name and this user's write permission")
            }
            _ => {
                // Brokers that were unavailable may not know the topic yet.
                self.unknown_since = None;
                self.client.poll(Duration::ZERO);
                match self.teller().refusal() {
                    Some(refusal) if is_late(&mut self.refused_since) => {
                        return Some(refused(&self.settings.brokers, refusal));
                    }
                    Some(_) => {}
                    None => self.refused_since = None,
                }
                self.teller().outage.away(error);
                None
            }
        }
    }
}

/// Returns true if a condition has lasted too long; starts the timer on the first call.
fn is_late(since: &mut Option<Instant>) -> bool {
    since.get_or_insert_with(Instant::now).elapsed() >= UNKNOWN_FOR
}

/// Returns the smallest replica count of the topic's partitions.
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

/// Returns the transaction timeout in milliseconds of a producer with `settings`, set or default.
pub(super) fn transaction_timeout_ms(settings: &Settings) -> u64 {
    let own = settings.property(TRANSACTION_TIMEOUT);
    let own = own.and_then(|own| own.parse().ok());
    own.unwrap_or(DEFAULT_TRANSACTION_TIMEOUT_MS)
}

/// Returns an error if the transaction timeout exceeds a broker's limit.
fn transactions_fit(broker: i32, needed: u64, most: u64) -> Result<()> {
    if needed <= most {
        return Ok(());
    }
    let what = format!(
        "the Kafka broker {broker} ends transactions after {most} ms ({TRANSACTION_LIMIT}), exactly-once output needs {needed} ms ({TRANSACTION_TIMEOUT})"
    );
    Err(Error::new(ErrorCode::StoreUnsuitable, what).hint(
        "raise the broker's setting, lower the sink's property `transaction.timeout.ms`, or use `at_least_once`",
    ))
}

/// Returns a warning if the topic can lose acknowledged records when one broker fails, or if it
/// accepts no records.
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
        let mut inquiry = RequirementsCheck {
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
