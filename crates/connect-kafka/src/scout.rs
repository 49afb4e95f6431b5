//! Finds a topic's partitions, and where reading them begins, on a thread of its own: brokers are asked, and may take their time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Instance, Result, Timestamp};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};

use crate::positions::Start;
use crate::teller::Teller;

/// How long a broker may take to answer one question.
const ANSWER: Duration = Duration::from_secs(5);
/// How soon a question that was not answered is asked again.
const AGAIN: Duration = Duration::from_millis(300);
/// How long brokers may not know the topic: those that have just been started learn of it late.
const UNKNOWN_FOR: Duration = Duration::from_secs(10);

/// A partition, and where reading it begins and ends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Found {
    pub partition: i32,
    /// What to ask the broker for.
    pub start: Offset,
    /// The offset that this comes to at the moment.
    pub next: i64,
    /// The offset behind the last record that there is at the moment, or that an earlier life was to read.
    pub end: i64,
    /// The latest time of a record that an earlier life has read.
    pub highest: Timestamp,
}

/// How far an earlier life has read a partition.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Reached {
    /// The offset that comes next.
    pub next: i64,
    /// Of a bounded source, where it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<i64>,
    /// The latest time of its records.
    pub highest: Timestamp,
}

/// What an earlier life knew of the topic.
#[derive(Clone, Default, Debug)]
pub(crate) struct Resumed {
    /// How many partitions the topic had at first, if that was known.
    pub at_first: Option<i32>,
    pub reached: BTreeMap<i32, Reached>,
}

/// What the source learns.
#[derive(Default)]
pub(crate) struct News {
    pub found: Vec<Found>,
    /// All partitions that the topic had at first have been found.
    pub is_complete: bool,
    /// How many these were.
    pub at_first: Option<i32>,
    pub failed: Option<Error>,
}

/// What to look for.
pub(crate) struct Mission {
    pub consumer: Arc<BaseConsumer<Teller>>,
    pub topic: String,
    pub start: Start,
    pub resumed: Resumed,
    pub instance: Instance,
    /// How often to look for new partitions; never if `None`.
    pub every: Option<Duration>,
}

#[derive(Default)]
struct Desk {
    news: Mutex<News>,
    has_news: AtomicBool,
    is_over: AtomicBool,
}

/// A thread that looks for partitions until this is dropped.
pub(crate) struct Scout {
    desk: Arc<Desk>,
    thread: Thread,
}

impl Scout {
    pub fn send(mission: Mission) -> Result<Self> {
        let desk = Arc::new(Desk::default());
        let report = Arc::clone(&desk);
        let thread = std::thread::Builder::new()
            .name("kafka-scout".to_string())
            .spawn(move || Search::new(mission).run(&report))
            .map_err(|error| {
                Error::new(ErrorCode::LimitReached, "no thread could be started").because(error)
            })?;
        // It ends by itself, at the latest when its last question has been answered.
        let thread = thread.thread().clone();
        Ok(Scout { desk, thread })
    }

    /// What has been found since the last call.
    pub fn take_news(&self) -> Option<News> {
        if !self.desk.has_news.swap(false, Ordering::AcqRel) {
            return None;
        }
        let mut news = self
            .desk
            .news
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_complete = news.is_complete;
        Some(News {
            is_complete,
            ..std::mem::take(&mut *news)
        })
    }
}

impl Drop for Scout {
    fn drop(&mut self) {
        self.desk.is_over.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

struct Search {
    mission: Mission,
    /// How many partitions the topic had at first.
    at_first: Option<i32>,
    /// Those that have been reported.
    known: Vec<i32>,
    unknown_since: Option<Instant>,
}

impl Search {
    fn new(mission: Mission) -> Self {
        Search {
            mission,
            at_first: None,
            known: Vec::new(),
            unknown_since: None,
        }
    }

    fn run(mut self, desk: &Desk) {
        while !desk.is_over.load(Ordering::Acquire) {
            let mut found = Vec::new();
            let looked = self.look(&mut found);
            let rest = match (&looked, self.mission.every) {
                (Ok(()), Some(every)) => Some(every),
                (Ok(()), None) => None,
                (Err(_), _) => Some(AGAIN),
            };
            let is_complete = looked.is_ok();
            let failed = looked.err().and_then(|error| self.is_final(&error));
            let is_over = failed.is_some() || rest.is_none();
            if !found.is_empty() || failed.is_some() || is_complete {
                let mut news = desk.news.lock().unwrap_or_else(PoisonError::into_inner);
                news.found.append(&mut found);
                news.is_complete |= is_complete;
                news.at_first = self.at_first;
                news.failed = failed;
                desk.has_news.store(true, Ordering::Release);
            }
            if is_over {
                return;
            }
            let until = Instant::now() + rest.unwrap_or(AGAIN);
            while !desk.is_over.load(Ordering::Acquire) && Instant::now() < until {
                std::thread::park_timeout(until.saturating_duration_since(Instant::now()));
            }
        }
    }

    /// Looks for partitions of this instance that are not known yet.
    fn look(&mut self, found: &mut Vec<Found>) -> KafkaResult<()> {
        let count = self.count()?;
        let before = self.mission.resumed.at_first;
        let at_first = *self.at_first.get_or_insert(before.unwrap_or(count));
        let is_bounded = self.mission.every.is_none();
        // What has come since is not what a bounded source was to read.
        let count = if is_bounded {
            count.min(at_first)
        } else {
            count
        };
        for partition in 0..count {
            let is_ours = u64::try_from(partition).is_ok_and(|p| self.mission.instance.owns(p));
            if is_ours && !self.known.contains(&partition) {
                found.push(self.locate(partition, partition >= at_first)?);
                self.known.push(partition);
            }
        }
        self.mission.consumer.context().heard();
        Ok(())
    }

    /// How many partitions the topic has.
    fn count(&mut self) -> KafkaResult<i32> {
        let Mission {
            consumer, topic, ..
        } = &self.mission;
        let metadata = consumer.fetch_metadata(Some(topic), ANSWER)?;
        let about = metadata.topics().iter().find(|about| about.name() == topic);
        let unknown = KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicOrPartition);
        let Some(about) = about else {
            return Err(unknown);
        };
        if let Some(error) = about.error() {
            return Err(KafkaError::MetadataFetch(error.into()));
        }
        match i32::try_from(about.partitions().len()) {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(unknown),
        }
    }

    fn locate(&self, partition: i32, is_new: bool) -> KafkaResult<Found> {
        let Mission {
            consumer,
            topic,
            start,
            resumed,
            ..
        } = &self.mission;
        let reached = resumed.reached.get(&partition);
        let (low, high) = consumer.fetch_watermarks(topic, partition, ANSWER)?;
        let mut asked = TopicPartitionList::new();
        let from = |offset: i64| (Offset::Offset(offset), offset);
        let earliest = (Offset::Beginning, low);
        let (start, next) = match (reached, start) {
            (Some(reached), _) => from(reached.next),
            _ if is_new => earliest,
            (None, Start::Earliest) => earliest,
            (None, Start::Latest) => from(high),
            (None, Start::Positions(positions)) => positions.next(partition).map_or(earliest, from),
            (None, Start::Stored { .. }) => {
                asked.add_partition(topic, partition);
                match answer(&consumer.committed_offsets(asked, ANSWER)?)? {
                    Offset::Offset(offset) => from(offset),
                    _ => earliest,
                }
            }
            (None, Start::At(time)) => {
                let millis = first_milli(*time);
                asked.add_partition_offset(topic, partition, Offset::Offset(millis))?;
                match answer(&consumer.offsets_for_times(asked, ANSWER)?)? {
                    Offset::Offset(offset) => from(offset),
                    _ => from(high),
                }
            }
        };
        Ok(Found {
            partition,
            start,
            next,
            end: reached.and_then(|reached| reached.end).unwrap_or(high),
            highest: reached.map_or(Timestamp::MIN, |reached| reached.highest),
        })
    }

    /// The job's failure, if asking again is of no use.
    fn is_final(&mut self, error: &KafkaError) -> Option<Error> {
        let topic = &self.mission.topic;
        let what = format!("cannot read the Kafka topic {topic}");
        let failed = |hint: &str| {
            Some(
                Error::new(ErrorCode::ReadFailed, &what)
                    .because(error.clone())
                    .hint(hint),
            )
        };
        match error.rdkafka_error_code() {
            // A topic that could be read once has not gone because a broker that comes back doesn't know it yet.
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic)
                if self.at_first.is_none() =>
            {
                let since = *self.unknown_since.get_or_insert_with(Instant::now);
                if since.elapsed() < UNKNOWN_FOR {
                    return None;
                }
                failed("make the topic, or check its name")
            }
            Some(RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::InvalidTopic) => {
                failed("check the topic's name, and what this user may read")
            }
            _ => {
                self.mission.consumer.context().away(&error.to_string());
                None
            }
        }
    }
}

/// What was answered of the one partition that was asked for.
fn answer(list: &TopicPartitionList) -> KafkaResult<Offset> {
    let Some(element) = list.elements().into_iter().next() else {
        return Ok(Offset::Invalid);
    };
    element.error()?;
    Ok(element.offset())
}

/// The first millisecond that does not begin before `time`: no record that is older has it.
fn first_milli(time: Timestamp) -> i64 {
    let millis = time.as_millis();
    let is_whole = time.as_micros() % 1_000 == 0;
    (if is_whole { millis } else { millis + 1 }).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_to_what_kafka_knows() {
        assert_eq!(first_milli(Timestamp::from_millis(7)), 7);
        assert_eq!(first_milli(Timestamp::from_micros(7_001)), 8);
        assert_eq!(first_milli(Timestamp::MIN), 0);
    }
}
