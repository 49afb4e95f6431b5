//! The topics that there are, how many partitions they have, and what follows if some are missing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, OnLostPosition, Result};
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::MetadataTopic;

use super::{ANSWER_TIMEOUT, News, Search, Trouble};
use crate::kafka::lost::{Lost, Why};
use crate::kafka::topics::{PartitionId, Selection};

/// How long brokers may not know a topic or a partition: those that have just been started learn of it late.
const MISSING_FOR: Duration = Duration::from_secs(10);
/// The same where it has been read: it has not gone because a broker that comes back does not know it yet.
pub(super) const GONE_FOR: Duration = Duration::from_secs(30);
/// How long brokers may refuse this client before one has accepted it: those that have just been started may not know users yet.
const REFUSED_FOR: Duration = Duration::from_secs(10);

const UNKNOWN: KafkaError = KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicOrPartition);

impl Search {
    /// How many partitions each topic has.
    pub(super) fn partition_counts(&self) -> Result<BTreeMap<Arc<str>, i32>, Trouble> {
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

    /// Refuses positions that are given for partitions that there are not.
    pub(super) fn refuse_positions_of_nothing(
        &self,
        counts: &BTreeMap<Arc<str>, i32>,
    ) -> Result<(), Trouble> {
        for (topic, count) in counts {
            let given = self.mission.start.positions(topic).into_iter();
            let nothing = given
                .flat_map(|positions| positions.iter())
                .find(|(partition, _)| !(0..*count).contains(partition));
            if let Some((number, next)) = nothing {
                let lost = Lost {
                    partition: PartitionId::new(topic, number),
                    next,
                    log: None,
                    why: Why::NoPartition { count: *count },
                };
                return Err(Trouble::Missing(lost));
            }
        }
        Ok(())
    }

    /// Compares the partitions that have been read with those that there are.
    pub(super) fn check_counts(&self, counts: &BTreeMap<Arc<str>, i32>) -> Result<(), Trouble> {
        let resumed = self.mission.resumed.reached.keys();
        let missing = resumed
            .chain(&self.known)
            .filter(|id| self.is_ours(id) && self.mission.selection.has(&id.topic))
            .find_map(|id| Some((id, missing(id, counts)?)));
        let Some((id, why)) = missing else {
            return Ok(());
        };
        let reached = self.mission.resumed.reached.get(id);
        Err(Trouble::Missing(Lost {
            next: reached.map_or(0, |reached| reached.next),
            log: None,
            why,
            partition: id.clone(),
        }))
    }

    /// Fails the job if asking again is of no use. Returns true if a partition is given up instead.
    ///
    /// `since` is the time since which brokers do not know what is asked for.
    pub(super) fn deal_with(
        &mut self,
        trouble: Trouble,
        since: &mut Option<Instant>,
        news: &mut News,
    ) -> bool {
        let failed = match trouble {
            Trouble::Failed(error) => Some(error),
            Trouble::Missing(lost) => {
                if !self.is_missing_for_long(since) {
                    return false;
                }
                let was_read = self.known.contains(&lost.partition)
                    || self.mission.resumed.reached.contains_key(&lost.partition);
                if was_read && self.mission.on_lost != OnLostPosition::Fail {
                    self.give_up(lost, news);
                    return true;
                }
                Some(lost.into_error())
            }
            Trouble::Kafka(error) => self.failure_of(&error, since),
        };
        if failed.is_some() {
            news.failed = failed;
        }
        false
    }

    /// Reads a partition no more.
    fn give_up(&mut self, lost: Lost, news: &mut News) {
        self.teller()
            .say(&format!("{} is not read any more: {lost}", lost.partition));
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
                true => failed("make the topic, or check its name"),
                false => None,
            },
            Some(
                RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::ClusterAuthorizationFailed
                | RDKafkaErrorCode::InvalidTopic,
            ) => failed("check the topic's name, and what this user may read"),
            Some(RDKafkaErrorCode::GroupAuthorizationFailed) => {
                failed("let this user read the consumer group, or name another one (`group`)")
            }
            _ => {
                // Who has been let in once has lost no right because a broker is in trouble.
                if let Some(refusal) = self.teller().refusal()
                    && !self.is_complete
                {
                    let since = self.refused_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= REFUSED_FOR {
                        return Some(refused(&self.mission.settings.brokers, refusal));
                    }
                }
                self.teller().away(&error.to_string());
                None
            }
        }
    }
}

/// Returns why a partition is missing; `None` if it is there.
pub(super) fn missing(id: &PartitionId, counts: &BTreeMap<Arc<str>, i32>) -> Option<Why> {
    match counts.get(&id.topic) {
        None => Some(Why::NoTopic),
        Some(count) if *count <= id.number => Some(Why::NoPartition { count: *count }),
        Some(_) => None,
    }
}

/// The failure of a client that no broker lets in.
pub(crate) fn refused(brokers: &str, why: String) -> Error {
    let what = format!("the Kafka brokers {brokers} refuse the connection");
    let error = Error::new(ErrorCode::Network, what)
        .because(why)
        .hint("check user, password and mechanism (`sasl`), and the certificates (`tls`)");
    error.permanent()
}

fn count(about: Option<&MetadataTopic>) -> Result<i32, Trouble> {
    let about = about.ok_or(UNKNOWN)?;
    if let Some(error) = about.error() {
        return Err(KafkaError::MetadataFetch(error.into()).into());
    }
    match i32::try_from(about.partitions().len()) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(UNKNOWN.into()),
    }
}
