//! Partition discovery on a dedicated thread: finds the partitions and their start offsets.
//! Requests to brokers may block there.

mod damage;
mod locate;
mod probe;
mod requests;
mod survey;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_core::{Error, Instance, OnLostPosition, Result, Timestamp, Waker};
use rdkafka::Offset;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;

use crate::blocking_worker::{BlockingWorker, WorkerContext};
use crate::kafka::client_context::KafkaClientContext;
use crate::kafka::fingerprint::Fingerprint;
use crate::kafka::lost::LostPosition;
use crate::kafka::positions::Start;
use crate::kafka::settings::Settings;
use crate::kafka::topics::{PartitionId, Selection};
use probe::Probe;
pub(crate) use probe::is_damage;
pub(crate) use requests::Request;
use requests::{PendingRequest, Reports};
pub(crate) use survey::refused;

/// Timeout of one request to a broker.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Retry delay after a failed request.
const RETRY_DELAY: Duration = Duration::from_millis(300);

/// A discovered partition with its start and end offsets.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct DiscoveredPartition {
    pub id: PartitionId,
    /// Start offset to assign to the consumer.
    pub start: Offset,
    /// Numeric offset of `start` at the time of discovery.
    pub next: i64,
    /// End offset: the current end of the log, or the end fixed by an earlier attempt.
    pub end: i64,
    /// Highest event time read by an earlier attempt.
    pub highest: Timestamp,
    /// Identity of the log that `next` refers to.
    pub log: LogMark,
}

/// Identity of a partition's log, used to detect a topic that was deleted and created again.
#[derive(Clone, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct LogMark {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_epoch: Option<i32>,
    /// The last record that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Fingerprint>,
}

/// Read position of a partition, as stored in the checkpoint.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Reached {
    /// Next offset to read.
    pub next: i64,
    /// End offset, for a bounded source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<i64>,
    /// Highest event time read.
    pub highest: Timestamp,
    #[serde(default)]
    pub log: LogMark,
}

impl Reached {
    /// Returns the higher one of `next` and `end`, which the log must at least reach.
    fn furthest(&self) -> i64 {
        self.end.map_or(self.next, |end| end.max(self.next))
    }
}

/// State of the topics restored from the checkpoint.
#[derive(Clone, Default, Debug)]
pub(crate) struct RestoredTopics {
    /// Number of partitions of each topic when the job first started, if known.
    pub at_first: Option<BTreeMap<String, i32>>,
    pub reached: BTreeMap<PartitionId, Reached>,
}

/// Result of discovery, taken by the source.
#[derive(Default)]
pub(crate) struct DiscoveryResult {
    /// Partitions to read: new partitions, and known partitions with a changed position.
    pub found: Vec<DiscoveredPartition>,
    /// Partitions of a bounded source that are fully read; their log still reaches the end offset.
    pub ended: Vec<PartitionId>,
    /// Deleted partitions that the source stops reading, as permitted by [`OnLostPosition`].
    pub gone: Vec<PartitionId>,
    /// Skipped unreadable batches.
    pub damaged: Vec<Damaged>,
    /// True if all partitions that existed when the job first started have been found.
    pub is_complete: bool,
    /// Number of initial partitions of each topic.
    pub at_first: Option<BTreeMap<String, i32>>,
    pub failed: Option<Error>,
}

/// Offsets skipped because their batch cannot be read.
#[derive(Debug)]
pub(crate) struct Damaged {
    pub id: PartitionId,
    pub offsets: Range<i64>,
    pub reason: String,
}

/// Configuration of partition discovery.
pub(crate) struct DiscoveryConfig {
    pub consumer: Arc<BaseConsumer<KafkaClientContext>>,
    pub settings: Settings,
    pub job: Arc<str>,
    pub group: String,
    pub selection: Selection,
    pub start: Start,
    pub resumed: RestoredTopics,
    pub instance: Instance,
    /// Interval of searches for new partitions; `None` for a bounded source, which searches only at
    /// its start.
    pub every: Option<Duration>,
    pub on_lost: OnLostPosition,
}

#[derive(Default)]
struct DiscoveryQueue {
    results: Option<DiscoveryResult>,
    requests: Vec<Request>,
}

/// Handle of the discovery thread, which runs until the handle is dropped.
pub(crate) struct Discovery(BlockingWorker<DiscoveryQueue>);

impl Discovery {
    pub fn start(mission: DiscoveryConfig) -> Result<Self> {
        let run = |context| Search::new(mission).run(&context);
        let queue = DiscoveryQueue::default();
        BlockingWorker::start("kafka-discovery", Waker::none(), queue, run).map(Discovery)
    }

    /// Returns the results found since the last call.
    pub fn take_results(&self) -> Result<Option<DiscoveryResult>> {
        self.0.take(Duration::ZERO, |queue| queue.results.take())
    }

    pub fn send_request(&self, request: Request) {
        self.0.update(|queue| queue.requests.push(request));
    }
}

/// Error of a request to brokers.
enum DiscoveryError {
    /// A broker returned an error or did not respond.
    Kafka(KafkaError),
    /// A partition is unknown to the brokers. Restarted brokers may report this temporarily.
    Missing(LostPosition),
    /// A failure of the job.
    Failed(Error),
}

impl From<KafkaError> for DiscoveryError {
    fn from(error: KafkaError) -> Self {
        DiscoveryError::Kafka(error)
    }
}

struct Search {
    mission: DiscoveryConfig,
    /// Number of initial partitions of each topic.
    at_first: Option<BTreeMap<String, i32>>,
    /// Partitions that have been reported to the source.
    known: BTreeSet<PartitionId>,
    is_complete: bool,
    /// Time at which brokers first reported the topic or partition as missing.
    missing_since: Option<Instant>,
    refused_since: Option<Instant>,
    requests: Vec<PendingRequest>,
    /// Reports of lost positions by the client, for partitions whose log has not changed.
    reports: BTreeMap<PartitionId, Reports>,
    probe: Option<Probe>,
    next_look: Option<Instant>,
}

impl Search {
    fn new(mission: DiscoveryConfig) -> Self {
        Search {
            mission,
            at_first: None,
            known: BTreeSet::new(),
            is_complete: false,
            missing_since: None,
            refused_since: None,
            requests: Vec::new(),
            reports: BTreeMap::new(),
            probe: None,
            next_look: Some(Instant::now()),
        }
    }

    fn teller(&self) -> &KafkaClientContext {
        self.mission.consumer.context()
    }

    fn run(mut self, desk: &WorkerContext<DiscoveryQueue>) {
        while !desk.is_over() {
            let mut news = DiscoveryResult::default();
            let fresh = desk.with(|queue| std::mem::take(&mut queue.requests));
            self.requests
                .extend(fresh.into_iter().map(PendingRequest::new));
            if self.next_look.is_some_and(|at| at <= Instant::now()) {
                self.refresh(&mut news);
            }
            let unanswered = self.answer(&mut news);
            let is_over = news.failed.is_some();
            publish(desk, news);
            if is_over {
                return;
            }
            let retry = unanswered.then(|| Instant::now() + RETRY_DELAY);
            let next = self.next_look.into_iter().chain(retry).min();
            let left = next.map(|at| at.saturating_duration_since(Instant::now()));
            desk.rest(left.unwrap_or(Duration::MAX), |queue| {
                !queue.requests.is_empty()
            });
        }
    }

    fn refresh(&mut self, news: &mut DiscoveryResult) {
        match self.look(news) {
            Ok(()) => {
                (self.missing_since, self.refused_since) = (None, None);
                self.is_complete = true;
                news.is_complete = true;
                news.at_first.clone_from(&self.at_first);
                // `None` if the interval overflows: there are no further searches.
                let every = self.mission.every;
                self.next_look = every.and_then(|every| Instant::now().checked_add(every));
                // All restored positions have been compared, so the probe is no longer needed.
                self.probe = None;
            }
            Err(trouble) => {
                let mut since = self.missing_since.take();
                let is_aborted = self.deal_with(trouble, &mut since, news);
                self.missing_since = since;
                // Other partitions may be missing too, so search again at once.
                let delay = if is_aborted {
                    Duration::ZERO
                } else {
                    RETRY_DELAY
                };
                self.next_look = Some(Instant::now() + delay);
            }
        }
    }

    /// Searches for partitions of this instance that the source does not know yet.
    fn look(&mut self, news: &mut DiscoveryResult) -> Result<(), DiscoveryError> {
        let counts = self.partition_counts()?;
        if self.at_first.is_none() {
            self.refuse_positions_of_nothing(&counts)?;
            let of_now = || {
                counts
                    .iter()
                    .map(|(topic, count)| (topic.to_string(), *count))
            };
            let before = self.mission.resumed.at_first.clone();
            self.at_first = Some(before.unwrap_or_else(|| of_now().collect()));
        }
        self.check_counts(&counts)?;
        let is_bounded = self.mission.every.is_none();
        for (topic, count) in &counts {
            let first = self.at_first.as_ref().and_then(|all| all.get(&**topic));
            let at_first = first.copied().unwrap_or(0);
            // A bounded source reads only the partitions that existed at its first start.
            let count = if is_bounded {
                at_first.min(*count)
            } else {
                *count
            };
            for number in 0..count {
                let id = PartitionId {
                    topic: Arc::clone(topic),
                    number,
                };
                if self.is_ours(&id) && !self.known.contains(&id) {
                    news.found.push(self.locate(&id, number >= at_first)?);
                    self.known.insert(id);
                }
            }
        }
        self.teller().report_response();
        Ok(())
    }

    /// Returns the probe that reads single offsets, and creates it on first use.
    fn probe(&mut self) -> Result<&Probe, DiscoveryError> {
        let probe = match self.probe.take() {
            Some(probe) => probe,
            None => Probe::new(&self.mission).map_err(DiscoveryError::Failed)?,
        };
        Ok(self.probe.insert(probe))
    }

    fn is_ours(&self, id: &PartitionId) -> bool {
        let number = self.mission.selection.number(&id.topic, id.number);
        self.mission.instance.owns(number)
    }
}

fn publish(desk: &WorkerContext<DiscoveryQueue>, mut fresh: DiscoveryResult) {
    let is_news = fresh.is_complete
        || fresh.failed.is_some()
        || !(fresh.found.is_empty() && fresh.ended.is_empty() && fresh.gone.is_empty());
    if !is_news {
        return;
    }
    desk.update(|queue| {
        let news = queue.results.get_or_insert_default();
        news.found.append(&mut fresh.found);
        news.ended.append(&mut fresh.ended);
        news.gone.append(&mut fresh.gone);
        news.damaged.append(&mut fresh.damaged);
        news.is_complete |= fresh.is_complete;
        news.at_first = fresh.at_first.or(news.at_first.take());
        news.failed = fresh.failed;
    });
}
