//! Topic metadata: existing topics, partition counts, and the handling of missing ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, OnLostPosition, Result};
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::MetadataTopic;

use super::{ANSWER_TIMEOUT, DiscoveryError, DiscoveryResult, Search};
use crate::kafka::lost::{LossReason, LostPosition};
use crate::kafka::topics::{PartitionId, Selection};

/// Time for which brokers may report a topic or partition as unknown. Restarted brokers may not
/// know it yet.
const MISSING_FOR: Duration = Duration::from_secs(10);
/// Time for which brokers may report a partition as unknown that has been read before.
pub(super) const GONE_FOR: Duration = Duration::from_secs(30);
/// Time for which brokers may refuse this client before one has accepted it. Restarted brokers may
/// not know users yet.
const REFUSED_FOR: Duration = Duration::from_secs(10);

const UNKNOWN: KafkaError = KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicOrPartition);

impl Search {
    /// Returns the number of partitions of each topic.
    pub(super) fn partition_counts(&self) -> Result<BTreeMap<Arc<str>, i32>, DiscoveryError> {
        let consumer = &self.mission.consumer;
        let mut counts = BTreeMap::new();
        match &self.mission.selection {
            Selection::Named(names) => {
                for name in names {
                    let metadata = consumer.fetch_metadata(Some(name), ANSWER_TIMEOUT)?;
                    let about = metadata
                        .topics()
                        .iter()
                        .find(|about| about.name() == &**name);
                    counts.insert(Arc::clone(name), count(about)?);
                }
            }
            selection @ Selection::Matching(_) => {
                let metadata = consumer.fetch_metadata(None, ANSWER_TIMEOUT)?;
                for about in metadata.topics() {
                    if selection.has(about.name()) {
                        counts.insert(about.name().into(), count(Some(about))?);
                    }
                }
                if counts.is_empty() && self.mission.every.is_none() {
                    return Err(UNKNOWN.into());
                }
            }
        }
        Ok(counts)
    }

    /// Returns an error if the configured start positions name partitions that do not exist.
    pub(super) fn refuse_positions_of_nothing(
        &self,
        counts: &BTreeMap<Arc<str>, i32>,
    ) -> Result<(), DiscoveryError> {
        for (topic, count) in counts {
            let given = self.mission.start.positions(topic).into_iter();
            let nothing = given
                .flat_map(|positions| positions.iter())
                .find(|(partition, _)| !(0..*count).contains(partition));
            if let Some((number, next)) = nothing {
                let lost = LostPosition {
                    partition: PartitionId::new(topic, number),
                    next,
                    log: None,
                    why: LossReason::NoPartition { count: *count },
                };
                return Err(DiscoveryError::Missing(lost));
            }
        }
        Ok(())
    }

    /// Checks that all partitions read so far still exist.
    pub(super) fn check_counts(
        &self,
        counts: &BTreeMap<Arc<str>, i32>,
    ) -> Result<(), DiscoveryError> {
        let resumed = self.mission.resumed.reached.keys();
        let missing = resumed
            .chain(&self.known)
            .filter(|id| self.is_ours(id) && self.mission.selection.has(&id.topic))
            .find_map(|id| Some((id, missing(id, counts)?)));
        let Some((id, why)) = missing else {
            return Ok(());
        };
        let reached = self.mission.resumed.reached.get(id);
        Err(DiscoveryError::Missing(LostPosition {
            next: reached.map_or(0, |reached| reached.next),
            log: None,
            why,
            partition: id.clone(),
        }))
    }

    /// Handles an error: fails the job if retrying is useless. Returns true if a partition is
    /// dropped instead.
    ///
    /// `since` is the time at which brokers first reported the item as missing.
    pub(super) fn deal_with(
        &mut self,
        trouble: DiscoveryError,
        since: &mut Option<Instant>,
        news: &mut DiscoveryResult,
    ) -> bool {
        let failed = match trouble {
            DiscoveryError::Failed(error) => Some(error),
            DiscoveryError::Missing(lost) => {
                if !self.is_missing_for_long(since) {
                    return false;
                }
                let was_read = self.known.contains(&lost.partition)
                    || self.mission.resumed.reached.contains_key(&lost.partition);
                if was_read && self.mission.on_lost != OnLostPosition::Fail {
                    self.drop_partition(lost, news);
                    return true;
                }
                Some(lost.into_error())
            }
            DiscoveryError::Kafka(error) => self.failure_of(&error, since),
        };
        if failed.is_some() {
            news.failed = failed;
        }
        false
    }

    /// Stops reading a partition.
    fn drop_partition(&mut self, lost: LostPosition, news: &mut DiscoveryResult) {
        self.teller()
            .outage
            .log_line(format_args!("{} is no longer read: {lost}", lost.partition));
        let id = lost.partition;
        self.mission.resumed.reached.remove(&id);
        self.known.remove(&id);
        self.reports.remove(&id);
        news.gone.push(id);
    }

    fn is_missing_for_long(&self, since: &mut Option<Instant>) -> bool {
        let limit = match self.is_complete {
            true => GONE_FOR,
            false => MISSING_FOR,
        };
        since.get_or_insert_with(Instant::now).elapsed() >= limit
    }

    fn failure_of(&mut self, error: &KafkaError, since: &mut Option<Instant>) -> Option<Error> {
        let topic = self.mission.settings.topic.clone();
        let failed = |hint: &str| {
            let what = format!("cannot read the Kafka topic {topic}");
            let failed = Error::new(ErrorCode::ReadFailed, what)
                .because(error.clone())
                .hint(hint);
            Some(failed.permanent())
        };
        match error.rdkafka_error_code() {
            Some(
                RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::UnknownTopic
                | RDKafkaErrorCode::UnknownPartition,
            ) => match self.is_missing_for_long(since) {
                true => failed("create the topic, or check its name"),
                false => None,
            },
            Some(
                RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::ClusterAuthorizationFailed
                | RDKafkaErrorCode::InvalidTopic,
            ) => failed("check the topic's name and this user's read permission"),
            Some(RDKafkaErrorCode::GroupAuthorizationFailed) => {
                failed("let this user read the consumer group, or name another one (`group`)")
            }
            _ => {
                // A client accepted before is not refused permanently because a broker is in
                // trouble.
                if let Some(refusal) = self.teller().refusal()
                    && !self.is_complete
                {
                    let since = self.refused_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= REFUSED_FOR {
                        return Some(refused(&self.mission.settings.brokers, refusal));
                    }
                }
                self.teller().outage.away(error);
                None
            }
        }
    }
}

/// Returns the reason why a partition is missing; `None` if it exists.
pub(super) fn missing(id: &PartitionId, counts: &BTreeMap<Arc<str>, i32>) -> Option<LossReason> {
    match counts.get(&id.topic) {
        None => Some(LossReason::NoTopic),
        Some(count) if *count <= id.number => Some(LossReason::NoPartition { count: *count }),
        Some(_) => None,
    }
}

/// Returns the error for a client that all brokers refuse.
pub(crate) fn refused(brokers: &str, why: String) -> Error {
    let what = format!("the Kafka brokers {brokers} refuse the connection");
    let error = Error::new(ErrorCode::Network, what)
        .because(why)
        .hint("check user, password and mechanism (`sasl`), and the certificates (`tls`)");
    error.permanent()
}

fn count(about: Option<&MetadataTopic>) -> Result<i32, DiscoveryError> {
    let about = about.ok_or(UNKNOWN)?;
    if let Some(error) = about.error() {
        return Err(KafkaError::MetadataFetch(error.into()).into());
    }
    match i32::try_from(about.partitions().len()) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(UNKNOWN.into()),
    }
}
