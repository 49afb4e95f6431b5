//! Reads a topic.

mod read;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Bounded, Instance, Isolation, OnError, Parallelism, Processor, Result, Source, Unbounded,
};
use serde::de::DeserializeOwned;

use crate::costs::SourceCosts;
use crate::message::{Message, Record};
use crate::partitions::Timing;
use crate::positions::{Bookmark, Start};
use crate::settings::Settings;
use read::ReadP;

/// A function that makes records of messages, or says why one is no record.
pub type Decoder<T> = fn(&Message<'_>) -> Result<T, String>;

/// The messages of a topic, as they are. `brokers` are some of the cluster's, such as `"kafka-1:9092,kafka-2:9092"`.
pub fn read(
    brokers: impl Into<String>,
    topic: impl Into<String>,
) -> KafkaSource<Record, Decoder<Record>, Unbounded> {
    KafkaSource {
        plan: Plan {
            settings: Settings::new(brokers.into(), topic.into()),
            start: Start::default(),
            is_bounded: false,
            timing: Timing {
                disorder: Duration::ZERO,
                idle_after: Some(Duration::from_secs(10)),
            },
            group: None,
            refresh: Duration::from_secs(30),
            on_error: OnError::default(),
            bookmark: Bookmark::default(),
            costs: None,
        },
        parallelism: Parallelism::ONE,
        decode: |message| Ok(Record::from(message)),
        kind: PhantomData,
    }
}

/// A source that reads the partitions of a topic.
///
/// * Partition *p* is read by the instance *p* modulo their number. Partitions that are added to the topic are found while it runs, and
///   read from their beginning.
/// * Each record has the time of its message. The source keeps a watermark for each partition and passes their minimum on; use
///   `with_source_time` on the stream. A partition at whose end nothing has come for a while is not waited for; one whose broker is
///   away, or that is behind, is.
/// * Where reading begins is said by [`start`](Self::start). No group is joined.
/// * A job that keeps its state goes on with the record that comes next in each partition, whatever `start` says; partitions that are new
///   since are read from their beginning. A bounded one ends where it was to end. When an epoch is committed, its offsets are committed to
///   Kafka as well, under the [group](Self::group): for people who look at it; the job does not read them. Other jobs commit nothing.
/// * Only what was committed by transactions is read, unless the property `isolation.level` says otherwise.
/// * Brokers that are away are waited for. The topic has to exist. A position that the topic no longer holds fails the job.
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
    pub fn parallelism(mut self, parallelism: Parallelism) -> Self {
        self.parallelism = parallelism;
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

    /// Sets the consumer group under which a job that keeps its state commits the offsets of its epochs to Kafka, so that tools can show how far
    /// behind it is: `ardea-JOB` by default, or the one of [`Start::Stored`]. A group that has members can't be used.
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
        let name = format!("kafka {}", plan.settings.topic);
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
