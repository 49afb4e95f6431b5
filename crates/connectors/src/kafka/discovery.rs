//! Finds partitions, and where reading them begins, on a thread of its own: brokers are asked, and may take their time.

mod damage;
mod locate;
mod probe;
mod requests;
mod survey;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Instance, OnLostPosition, Result, Timestamp};
use rdkafka::Offset;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;

use crate::kafka::fingerprint::Fingerprint;
use crate::kafka::lost::Lost;
use crate::kafka::positions::Start;
use crate::kafka::settings::Settings;
use crate::kafka::teller::Teller;
use crate::kafka::topics::{PartitionId, Selection};
use probe::Probe;
pub(crate) use probe::is_damage;
pub(crate) use requests::Request;
use requests::{Open, Reports};
pub(crate) use survey::refused;

/// How long a broker may take to answer one question.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay before a question that was not answered is asked again.
const RETRY_DELAY: Duration = Duration::from_millis(300);

/// A partition, and where reading it begins and ends.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Found {
    pub id: PartitionId,
    /// What to ask the broker for.
    pub start: Offset,
    /// The offset that this comes to at the moment.
    pub next: i64,
    /// The offset behind the last record that there is at the moment, or that an earlier life was to read.
    pub end: i64,
    /// The latest time of a record that an earlier life has read.
    pub highest: Timestamp,
    /// The log that `next` is a position of.
    pub log: LogMark,
}

/// What tells the log of a partition from another one that takes its place.
#[derive(Clone, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct LogMark {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_epoch: Option<i32>,
    /// The record that was read last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Fingerprint>,
}

/// How far an earlier life has read a partition.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Reached {
    /// The offset that comes next.
    pub next: i64,
    /// Of a bounded source, where it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<i64>,
    /// The latest time of its records.
    pub highest: Timestamp,
    #[serde(default)]
    pub log: LogMark,
}

impl Reached {
    /// The last offset that the log has to reach to.
    fn furthest(&self) -> i64 {
        self.end.map_or(self.next, |end| end.max(self.next))
    }
}

/// What an earlier life knew of the topics.
#[derive(Clone, Default, Debug)]
pub(crate) struct Resumed {
    /// How many partitions each topic had at first, if that was known.
    pub at_first: Option<BTreeMap<String, i32>>,
    pub reached: BTreeMap<PartitionId, Reached>,
}

/// What the source learns.
#[derive(Default)]
pub(crate) struct News {
    /// Partitions to read: new ones, and known ones whose position was lost.
    pub found: Vec<Found>,
    /// Partitions whose logs still reach to the offset up to which they were to be read.
    pub ended: Vec<PartitionId>,
    /// Partitions that there are no more, which does not matter.
    pub gone: Vec<PartitionId>,
    /// Batches that can't be read, behind which their partitions go on.
    pub damaged: Vec<Damaged>,
    /// All partitions that the topics had at first have been found.
    pub is_complete: bool,
    /// How many these were.
    pub at_first: Option<BTreeMap<String, i32>>,
    pub failed: Option<Error>,
}

/// Offsets that are left out, as their batch can't be read.
#[derive(Debug)]
pub(crate) struct Damaged {
    pub id: PartitionId,
    pub offsets: Range<i64>,
    pub reason: String,
}

/// What to look for.
pub(crate) struct Mission {
    pub consumer: Arc<BaseConsumer<Teller>>,
    pub settings: Settings,
    pub job: Arc<str>,
    pub group: String,
    pub selection: Selection,
    pub start: Start,
    pub resumed: Resumed,
    pub instance: Instance,
    /// How often to look for new partitions; never if `None`.
    pub every: Option<Duration>,
    pub on_lost: OnLostPosition,
}

#[derive(Default)]
struct Desk {
    news: Mutex<News>,
    has_news: AtomicBool,
    requests: Mutex<Vec<Request>>,
    has_requests: AtomicBool,
    is_over: AtomicBool,
}

/// A thread that looks for partitions until this is dropped.
pub(crate) struct Discovery {
    desk: Arc<Desk>,
    thread: JoinHandle<()>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Discovery {
    pub fn start(mission: Mission) -> Result<Self> {
        let desk = Arc::new(Desk::default());
        let report = Arc::clone(&desk);
        let thread = std::thread::Builder::new()
            .name("kafka-discovery".to_string())
            .spawn(move || Search::new(mission).run(&report))
            .map_err(|error| {
                Error::new(ErrorCode::LimitReached, "no thread could be started").because(error)
            })?;
        Ok(Discovery { desk, thread })
    }

    /// Returns what has been found since the last call.
    pub fn take_news(&self) -> Option<News> {
        let is_over = self.thread.is_finished();
        if !self.desk.has_news.swap(false, Ordering::AcqRel) {
            // Only a failure ends it, which is news.
            return is_over.then(|| News {
                failed: Some(Error::new(
                    ErrorCode::Internal,
                    "the thread that looks for partitions of Kafka has ended by itself",
                )),
                ..News::default()
            });
        }
        let mut news = lock(&self.desk.news);
        let is_complete = news.is_complete;
        Some(News {
            is_complete,
            ..std::mem::take(&mut *news)
        })
    }

    pub fn ask(&self, request: Request) {
        lock(&self.desk.requests).push(request);
        self.desk.has_requests.store(true, Ordering::Release);
        self.thread.thread().unpark();
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        self.desk.is_over.store(true, Ordering::Release);
        self.thread.thread().unpark();
    }
}

/// Why a question has no answer.
enum Trouble {
    /// A broker says so, or none answers.
    Kafka(KafkaError),
    /// Brokers do not know a partition, which those that have just been started may learn of late.
    Missing(Lost),
    /// The job fails.
    Failed(Error),
}

impl From<KafkaError> for Trouble {
    fn from(error: KafkaError) -> Self {
        Trouble::Kafka(error)
    }
}

struct Search {
    mission: Mission,
    /// How many partitions each topic had at first.
    at_first: Option<BTreeMap<String, i32>>,
    /// Those that have been reported.
    known: BTreeSet<PartitionId>,
    is_complete: bool,
    /// The time since which brokers do not know what is looked for.
    missing_since: Option<Instant>,
    refused_since: Option<Instant>,
    requests: Vec<Open>,
    /// Losses that the client has reported of partitions which were as they had been.
    reports: BTreeMap<PartitionId, Reports>,
    probe: Option<Probe>,
    next_look: Option<Instant>,
}

impl Search {
    fn new(mission: Mission) -> Self {
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

    fn teller(&self) -> &Teller {
        self.mission.consumer.context()
    }

    fn run(mut self, desk: &Desk) {
        while !desk.is_over.load(Ordering::Acquire) {
            let mut news = News::default();
            if desk.has_requests.swap(false, Ordering::AcqRel) {
                let fresh = std::mem::take(&mut *lock(&desk.requests));
                self.requests.extend(fresh.into_iter().map(Open::new));
            }
            if self.next_look.is_some_and(|at| at <= Instant::now()) {
                self.look_again(&mut news);
            }
            let unanswered = self.answer(&mut news);
            let is_over = news.failed.is_some();
            publish(desk, news);
            if is_over {
                return;
            }
            let retry = unanswered.then(|| Instant::now() + RETRY_DELAY);
            rest(desk, earlier(self.next_look, retry));
        }
    }

    fn look_again(&mut self, news: &mut News) {
        match self.look(news) {
            Ok(()) => {
                (self.missing_since, self.refused_since) = (None, None);
                self.is_complete = true;
                news.is_complete = true;
                news.at_first.clone_from(&self.at_first);
                // One that lies beyond all time never comes.
                let every = self.mission.every;
                self.next_look = every.and_then(|every| Instant::now().checked_add(every));
                // Positions of earlier lives have all been compared.
                self.probe = None;
            }
            Err(trouble) => {
                let mut since = self.missing_since.take();
                let is_given_up = self.deal_with(trouble, &mut since, news);
                self.missing_since = since;
                // There may be other partitions that are gone.
                let delay = if is_given_up {
                    Duration::ZERO
                } else {
                    RETRY_DELAY
                };
                self.next_look = Some(Instant::now() + delay);
            }
        }
    }

    /// Looks for partitions of this instance that are not known yet.
    fn look(&mut self, news: &mut News) -> Result<(), Trouble> {
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
            // What has come since is not what a bounded source was to read.
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
        self.teller().heard();
        Ok(())
    }

    /// Looks at single offsets.
    fn probe(&mut self) -> Result<&Probe, Trouble> {
        let probe = match self.probe.take() {
            Some(probe) => probe,
            None => Probe::new(&self.mission).map_err(Trouble::Failed)?,
        };
        Ok(self.probe.insert(probe))
    }

    fn is_ours(&self, id: &PartitionId) -> bool {
        let number = self.mission.selection.number(&id.topic, id.number);
        self.mission.instance.owns(number)
    }
}

fn publish(desk: &Desk, mut fresh: News) {
    let is_news = fresh.is_complete
        || fresh.failed.is_some()
        || !(fresh.found.is_empty() && fresh.ended.is_empty() && fresh.gone.is_empty());
    if !is_news {
        return;
    }
    let mut news = lock(&desk.news);
    news.found.append(&mut fresh.found);
    news.ended.append(&mut fresh.ended);
    news.gone.append(&mut fresh.gone);
    news.damaged.append(&mut fresh.damaged);
    news.is_complete |= fresh.is_complete;
    news.at_first = fresh.at_first.or(news.at_first.take());
    news.failed = fresh.failed;
    desk.has_news.store(true, Ordering::Release);
}

/// Waits until then, or until there is something to do.
fn rest(desk: &Desk, until: Option<Instant>) {
    let has_work =
        || desk.is_over.load(Ordering::Acquire) || desk.has_requests.load(Ordering::Acquire);
    while !has_work() {
        match until.map(|until| until.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => return,
            Some(left) => std::thread::park_timeout(left),
            None => std::thread::park(),
        }
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}
