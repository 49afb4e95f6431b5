//! Requests of the source about partitions that it reads, and their results.

use std::time::Instant;

use rdkafka::error::KafkaResult;

use super::locate::{go_on_at, other_record, unlike};
use super::survey::{GONE_FOR, missing};
use super::{DiscoveryError, DiscoveryResult, LogMark, Reached, Search};
use crate::kafka::fingerprint::Fingerprint;
use crate::kafka::lost::{LossReason, LostPosition};
use crate::kafka::topics::PartitionId;

/// A request of the source about a partition that it reads.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// Check of a log without further records before the end offset of a bounded source: the
    /// remaining offsets may contain no records.
    End {
        id: PartitionId,
        next: i64,
        end: i64,
    },
    /// Search for the offset at which a partition continues after its position was lost or reported
    /// lost.
    Lost {
        id: PartitionId,
        reached: Reached,
        why: LossReason,
    },
    /// Search for the end of an unreadable batch.
    Damaged {
        id: PartitionId,
        reached: Reached,
        reason: String,
    },
}

impl Request {
    fn id(&self) -> &PartitionId {
        match self {
            Request::End { id, .. } | Request::Lost { id, .. } | Request::Damaged { id, .. } => id,
        }
    }
}

/// A pending request.
#[derive(Debug)]
pub(super) struct PendingRequest {
    request: Request,
    /// Time at which brokers first reported the partition as missing.
    missing_since: Option<Instant>,
}

impl PendingRequest {
    pub fn new(request: Request) -> Self {
        PendingRequest {
            request,
            missing_since: None,
        }
    }
}

/// Consecutive reports of a loss at the same offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reports {
    next: i64,
    first: Instant,
    last: Instant,
}

impl Reports {
    /// Records a report of a lost position at `next`. Returns true if the first such report is at
    /// least [`GONE_FOR`] old: the loss then counts as real.
    fn persist(of: &mut Option<Reports>, next: i64, now: Instant) -> bool {
        let before = of.filter(|reports| reports.next == next && now - reports.last < GONE_FOR);
        let first = before.map_or(now, |reports| reports.first);
        *of = Some(Reports {
            next,
            first,
            last: now,
        });
        now - first >= GONE_FOR
    }
}

impl Search {
    /// Processes requests; returns true if some must be retried.
    pub(super) fn answer(&mut self, news: &mut DiscoveryResult) -> bool {
        if !self.requests.is_empty() {
            // A probe used before may have a stale topic id.
            self.probe = None;
        }
        for mut open in std::mem::take(&mut self.requests) {
            // Requests for removed partitions are dropped.
            if !self.known.contains(open.request.id()) {
                continue;
            }
            let answered = match &open.request {
                Request::End { id, next, end } => self.compare_end(id, *next, *end, news),
                Request::Lost { id, reached, why } => {
                    self.go_on_elsewhere(id, reached, why.clone(), news)
                }
                Request::Damaged {
                    id,
                    reached,
                    reason,
                } => self.go_on_behind(id, reached, reason, news),
            };
            if let Err(trouble) = answered
                && !self.deal_with(trouble, &mut open.missing_since, news)
            {
                self.requests.push(open);
            }
        }
        !self.requests.is_empty()
    }

    /// Handles a lost position, or a reported loss, of a partition being read.
    fn go_on_elsewhere(
        &mut self,
        id: &PartitionId,
        reached: &Reached,
        why: LossReason,
        news: &mut DiscoveryResult,
    ) -> Result<(), DiscoveryError> {
        let next = reached.next;
        if let Some(why) = missing(id, &self.partition_counts()?) {
            return Err(DiscoveryError::Missing(LostPosition {
                partition: id.clone(),
                next,
                log: None,
                why,
            }));
        }
        let log = self.log_of(id)?;
        let whole = self.whole(id, reached.furthest(), log)?;
        let (mut mark, there) = self.look_at(id, reached)?;
        let seen = unlike(reached, &mark, whole)
            .or_else(|| reached.log.last.and_then(|last| other_record(last, there)));
        let why = match (seen, why) {
            (Some(seen), _) => seen,
            // Restarted brokers may briefly report missing data, and the client accepts that.
            (None, why @ LossReason::Reported(_)) => {
                if !self.is_reported_for_long(id, next) {
                    let mut found = go_on_at(id, next, reached, log);
                    found.log = LogMark {
                        last: reached.log.last,
                        ..mark
                    };
                    news.found.push(found);
                    return Ok(());
                }
                why
            }
            (None, why) => why,
        };
        if let LossReason::Replaced(replaced) = &why {
            mark.topic_id.get_or_insert_with(|| replaced.is.clone());
        }
        let mut found = self.instead(id, Some(reached), (next, why), log)?;
        found.log = mark;
        news.found.push(found);
        Ok(())
    }

    /// Reads the record at the last position with a fresh client.
    fn look_at(
        &mut self,
        id: &PartitionId,
        reached: &Reached,
    ) -> Result<(LogMark, Option<Fingerprint>), DiscoveryError> {
        let at = reached.log.last.map_or(reached.next, |last| last.offset);
        let probe = self.probe()?;
        let there: KafkaResult<_> = probe.record_at(id, at);
        Ok((probe.mark_of(id), there?))
    }

    fn is_reported_for_long(&mut self, id: &PartitionId, next: i64) -> bool {
        let mut reports = self.reports.remove(id);
        let is_long = Reports::persist(&mut reports, next, Instant::now());
        if let (Some(reports), false) = (reports, is_long) {
            self.reports.insert(id.clone(), reports);
        }
        is_long
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use ardea_core::{Instance, OnLostPosition, Timestamp};
    use rdkafka::ClientConfig;
    use rdkafka::mocking::MockCluster;
    use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
    use rdkafka::types::RDKafkaRespErr;

    use super::super::{DiscoveredPartition, Discovery, DiscoveryConfig, RestoredTopics};
    use super::*;
    use crate::kafka::positions::Start;
    use crate::kafka::settings::Settings;
    use crate::kafka::topics::Selection;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Creates a topic `t` with one partition and five records, on a broker that can drop the
    /// topic.
    fn topic() -> MockCluster<'static, impl rdkafka::ClientContext> {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("t", 1, 1).unwrap();
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", cluster.bootstrap_servers())
            .create()
            .unwrap();
        for number in 0..5 {
            let text = number.to_string();
            let record = BaseRecord::<str, str>::to("t").payload(&text);
            producer.send(record).map_err(|(error, _)| error).unwrap();
        }
        producer.flush(PATIENCE).unwrap();
        cluster
    }

    fn id() -> PartitionId {
        PartitionId::new("t", 0)
    }

    fn discovery(brokers: String, on_lost: OnLostPosition) -> Discovery {
        let settings = Settings::new(brokers, "t".into());
        let fixed = [("group.id", "g")];
        let consumer = settings.consumer("job", &fixed).unwrap();
        let discovery = Discovery::start(DiscoveryConfig {
            consumer: Arc::new(consumer),
            settings,
            job: "job".into(),
            group: "g".into(),
            selection: Selection::Named(vec!["t".into()]),
            start: Start::Earliest,
            resumed: RestoredTopics::default(),
            instance: Instance::ONLY,
            every: Some(Duration::MAX),
            on_lost,
        })
        .unwrap();
        assert_eq!(found(&discovery).next, 0);
        discovery
    }

    /// Waits for a discovered partition.
    fn found(discovery: &Discovery) -> DiscoveredPartition {
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "nothing is found");
            if let Some(news) = discovery.take_results().unwrap() {
                assert!(news.failed.is_none(), "{:?}", news.failed);
                if let Some(found) = news.found.into_iter().next() {
                    return found;
                }
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    fn lost(next: i64, end: Option<i64>) -> Request {
        let reached = Reached {
            next,
            end,
            highest: Timestamp::from_millis(7),
            log: LogMark::default(),
        };
        Request::Lost {
            id: id(),
            reached,
            why: LossReason::Reported("the topic does not exist".into()),
        }
    }

    #[test]
    fn a_topic_that_brokers_do_not_know_for_a_moment_goes_on_where_it_was() {
        let cluster = topic();
        for on_lost in [OnLostPosition::Fail, OnLostPosition::Continue] {
            let discovery = discovery(cluster.bootstrap_servers(), on_lost);
            let unknown = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
            cluster.topic_error("t", unknown).unwrap();
            discovery.send_request(lost(3, Some(4)));
            let none = RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR;
            cluster.topic_error("t", none).unwrap();
            let found = found(&discovery);
            assert_eq!((found.next, found.end), (3, 4), "{on_lost:?}");
            assert_eq!(found.start, rdkafka::Offset::Offset(3));
            assert_eq!(found.highest, Timestamp::from_millis(7));
        }
    }

    #[test]
    fn a_position_that_its_log_does_not_have_is_lost_whatever_the_client_reports() {
        let cluster = topic();
        let discovery = discovery(cluster.bootstrap_servers(), OnLostPosition::Continue);
        discovery.send_request(lost(9, None));
        let found = found(&discovery);
        assert_eq!((found.next, found.end), (0, 5));
    }

    #[test]
    fn a_loss_that_is_reported_again_and_again_at_one_offset_is_believed() {
        let mut reports = None;
        let begin = Instant::now();
        let mut persist =
            |next, secs| Reports::persist(&mut reports, next, begin + Duration::from_secs(secs));
        assert!(!persist(7, 0) && !persist(7, 20));
        assert!(persist(7, 40), "for 40 seconds");
        assert!(!persist(8, 50), "it has gone on");
        assert!(!persist(8, 500), "that was long ago");
    }

    #[test]
    fn a_partition_is_missing_where_its_topic_has_fewer() {
        let counts = |count| BTreeMap::from([(Arc::from("t"), count)]);
        assert_eq!(missing(&id(), &counts(1)), None);
        let fewer = missing(&id(), &counts(0));
        assert_eq!(fewer, Some(LossReason::NoPartition { count: 0 }));
        assert_eq!(missing(&id(), &BTreeMap::new()), Some(LossReason::NoTopic));
    }
}
