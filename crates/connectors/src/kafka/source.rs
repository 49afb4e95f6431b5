//! Reads a topic.

mod read;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Bounded, Instance, Isolation, OnError, OnLostPosition, Parallelism, Processor, Result, Source,
    Unbounded,
};
use serde::de::DeserializeOwned;

use crate::kafka::costs::SourceCosts;
use crate::kafka::message::{Message, Record};
use crate::kafka::partitions::Timing;
use crate::kafka::positions::{Bookmark, Start};
use crate::kafka::security::{Sasl, Tls};
use crate::kafka::settings::Settings;
use crate::kafka::topics::Topics;
use read::ReadP;

/// How far ahead a record may be to move time, unless set otherwise.
const MAX_AHEAD: Duration = Duration::from_secs(24 * 60 * 60);

/// A function that makes records of messages, or says why one is no record.
pub type Decoder<T> = fn(&Message<'_>) -> Result<T, String>;

/// The messages of a topic, of several, or of all whose names match a [pattern](Topics::matching), as they are. `brokers` are some of the
/// cluster's, such as `"kafka-1:9092,kafka-2:9092"`.
pub fn read(
    brokers: impl Into<String>,
    topics: impl Into<Topics>,
) -> KafkaSource<Record, Decoder<Record>, Unbounded> {
    let topics = topics.into();
    KafkaSource {
        plan: Plan {
            settings: Settings::new(brokers.into(), topics.to_string()),
            topics,
            on_lost: OnLostPosition::default(),
            needs_timestamps: false,
            skips_damage: false,
            start: Start::default(),
            is_bounded: false,
            timing: Timing {
                disorder: Duration::ZERO,
                idle_after: Some(Duration::from_secs(10)),
                max_ahead: Some(MAX_AHEAD),
            },
            group: None,
            refresh: Duration::from_secs(30),
            on_error: OnError::default(),
            bookmark: Bookmark::default(),
            costs: None,
        },
        parallelism: Parallelism::ONE,
        decode: |message| Record::try_from(message),
        kind: PhantomData,
    }
}

/// A source that reads the partitions of topics.
///
/// * Partition *p* of a topic is read by the instance *p* modulo their number; partitions of several topics are spread from different places on.
///   Partitions that are added to a topic, and topics that a pattern matches, are found while it runs, and read from their beginning.
/// * Each record has the time of its message. The source keeps a watermark for each partition and passes their minimum on; use
///   `with_source_time` on the stream. A partition at whose end nothing has come for a while is not waited for; one whose broker is
///   away, or that is behind, is.
/// * Where reading begins is said by [`start`](Self::start). No group is joined.
/// * A job that keeps its state goes on with the record that comes next in each partition, whatever `start` says; partitions that are new
///   since are read from their beginning. A bounded one ends where it was to end. When an epoch is committed, its offsets are committed to
///   Kafka as well, under the [group](Self::group): for people who look at it; the job does not read them. Other jobs commit nothing.
/// * Only what was committed by transactions is read, unless the property `isolation.level` says otherwise.
/// * Brokers that are away are waited for. Topics that are named have to exist.
/// * A position that does not mean any more what it meant fails the job, unless [`on_lost_position`](Self::on_lost_position) says
///   otherwise: the topic was deleted and made anew, has fewer partitions, its log was truncated, or retention has removed what comes next.
///   Topic id, leader epoch and the last record that was read are remembered with each offset, and compared when a job goes on.
/// * A bounded source that has not read all that was promised fails.
/// * A message that can't be decoded, whose timestamp no record can have, or whose headers can't be read, is a bad record:
///   see [`on_error`](Self::on_error).
/// * A job that drains stops at once: what was fetched and not emitted is still in the topic.
#[derive(Debug)]
pub struct KafkaSource<T, F, B> {
    plan: Plan,
    parallelism: Parallelism,
    decode: F,
    kind: PhantomData<fn() -> (T, B)>,
}

/// What the instances of a source have in common.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub settings: Settings,
    pub topics: Topics,
    pub on_lost: OnLostPosition,
    /// A message without a timestamp is none that can be used.
    pub needs_timestamps: bool,
    /// A batch that can't be read is left out.
    pub skips_damage: bool,
    pub start: Start,
    pub is_bounded: bool,
    pub timing: Timing,
    pub group: Option<String>,
    pub refresh: Duration,
    pub on_error: OnError,
    pub bookmark: Bookmark,
    pub costs: Option<Arc<SourceCosts>>,
}

impl<T, F, B> KafkaSource<T, F, B> {
    /// Makes records of messages; an error is the reason why one is no record, see [`on_error`](Self::on_error).
    pub fn decode<U, G>(self, decode: G) -> KafkaSource<U, G, B>
    where
        U: Send + 'static,
        G: Fn(&Message<'_>) -> Result<U, String> + Send + Sync + 'static,
    {
        let KafkaSource {
            plan, parallelism, ..
        } = self;
        KafkaSource {
            plan,
            parallelism,
            decode,
            kind: PhantomData,
        }
    }

    /// The values as text.
    pub fn text(self) -> KafkaSource<String, Decoder<String>, B> {
        self.decode(|message| message.text().map(str::to_string))
    }

    /// The values as JSON.
    pub fn json<U: DeserializeOwned + Send + 'static>(self) -> KafkaSource<U, Decoder<U>, B> {
        self.decode(|message| {
            let value = message.value.ok_or("there is no value (a tombstone)")?;
            serde_json::from_slice(value).map_err(|error| error.to_string())
        })
    }

    /// Sets where reading begins: [`Start::Earliest`] by default.
    pub fn start(mut self, start: Start) -> Self {
        self.plan.start = start;
        self
    }

    /// Sets what to do when a position does not mean any more what it meant: the job fails by default.
    /// [`OnLostPosition::Continue`] goes on at the oldest record of the partition.
    pub fn on_lost_position(mut self, on_lost: OnLostPosition) -> Self {
        self.plan.on_lost = on_lost;
        self
    }

    /// Leaves out a batch that can't be read: its checksum is wrong, or its compression is unknown or damaged. Its offsets become one dead
    /// letter, or what [`on_error`](Self::on_error) says. Without this setting such a batch fails the job.
    pub fn skip_damaged_batches(mut self) -> Self {
        self.plan.skips_damage = true;
        self
    }

    /// Treats a message without a timestamp as one that can't be decoded: so one such does not come to a window, which would fail the job.
    pub fn require_timestamps(mut self) -> Self {
        self.plan.needs_timestamps = true;
        self
    }

    /// Ends when all has been read that the topic held when the job started.
    pub fn until_present(mut self) -> KafkaSource<T, F, Bounded> {
        self.plan.is_bounded = true;
        KafkaSource {
            plan: self.plan,
            parallelism: self.parallelism,
            decode: self.decode,
            kind: PhantomData,
        }
    }

    /// Sets how many instances share the partitions.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.parallelism = parallelism.into();
        self
    }

    /// Sets by how much a record may be older than one before it in its partition without being late; not at all by default.
    pub fn out_of_order(mut self, by: Duration) -> Self {
        self.plan.timing.disorder = by;
        self
    }

    /// Sets after how much silence time does not wait for a partition whose end has been reached: ten seconds by default, `None` for never.
    pub fn idle_after(mut self, silence: Option<Duration>) -> Self {
        self.plan.timing.idle_after = silence;
        self
    }

    /// Sets how far a record may be ahead of both the latest one before it and the wall clock; a day by default, `None` for any time. A
    /// record further ahead is read as others are, but moves no watermark: a single wrong time would make all records after it late.
    pub fn max_ahead(mut self, ahead: Option<Duration>) -> Self {
        self.plan.timing.max_ahead = ahead;
        self
    }

    /// Sets the consumer group to which offsets are committed, so that tools can show how far behind the job is. A job that keeps its state
    /// commits those of an epoch when that is committed: to `ardea-JOB` by default, or to the group of [`Start::Stored`]. A job that keeps
    /// none commits every five seconds and at its end, and only to a group that is named here. A group that has members can't be used.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.plan.group = Some(group.into());
        self
    }

    /// Sets how often to look for new partitions: every 30 seconds by default.
    pub fn look_for_partitions_every(mut self, every: Duration) -> Self {
        self.plan.refresh = every;
        self
    }

    /// Sets what becomes of a message that can't be decoded: kept aside with its topic, partition and offset (the default), dropped and
    /// counted, or the job fails.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.plan.on_error = on_error;
        self
    }

    /// Encrypts the connections to brokers.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.plan.settings.set_tls(tls);
        self
    }

    /// Sets the user that connects to brokers.
    pub fn sasl(mut self, sasl: Sasl) -> Self {
        self.plan.settings.set_sasl(sasl);
        self
    }

    /// Sets a property of librdkafka's consumer, such as `fetch.message.max.bytes`.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.plan.settings.set(name.into(), value.into());
        self
    }

    /// Tells how far the source has got, while its job runs in this process.
    pub fn bookmark(&self) -> Bookmark {
        self.plan.bookmark.clone()
    }

    /// Measures where the source's cpu time goes; takes three system calls a chunk.
    pub fn measure(mut self, costs: Arc<SourceCosts>) -> Self {
        self.plan.costs = Some(costs);
        self
    }

    /// The source, for a pipeline.
    pub fn build(self) -> Source<T, B>
    where
        T: Send + 'static,
        F: Fn(&Message<'_>) -> Result<T, String> + Send + Sync + 'static,
    {
        let KafkaSource {
            plan,
            parallelism,
            decode,
            ..
        } = self;
        let name = format!("kafka {}", plan.topics);
        let decode = Arc::new(decode);
        let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
            Ok(Box::new(ReadP::new(plan.clone(), Arc::clone(&decode))))
        };
        Source::new(name, Arc::new(supply))
            .parallelism(parallelism)
            .isolation(Isolation::Thread)
    }
}

impl<T, F, B> From<KafkaSource<T, F, B>> for Source<T, B>
where
    T: Send + 'static,
    F: Fn(&Message<'_>) -> Result<T, String> + Send + Sync + 'static,
{
    fn from(source: KafkaSource<T, F, B>) -> Self {
        source.build()
    }
}
