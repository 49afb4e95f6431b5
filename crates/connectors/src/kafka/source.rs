//! Kafka source.

pub(crate) mod decoders;
mod read;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Bounded, Instance, Isolation, OnError, OnLostPosition, Parallelism, Processor, Result, Source,
    Unbounded, WatermarkPolicy,
};
use serde::de::DeserializeOwned;

use crate::format::Decode;
use crate::kafka::cpu_accounting::SourceCosts;
use crate::kafka::message::{Message, Record};
use crate::kafka::positions::{EmittedPositions, Start};
use crate::kafka::security::{Sasl, Tls};
use crate::kafka::settings::Settings;
use crate::kafka::topics::Topics;
use decoders::{BatchMessageDecoder, Decoder, FormatDecoder, MessageDecoder};
use read::ReadP;
use read::message_form::{AsBatches, AsRows, MessageForm};

/// Creates a source of undecoded messages of one topic, several topics, or all topics whose names
/// match a [pattern](Topics::matching). `brokers` are addresses of one or more brokers of the
/// cluster, such as `"kafka-1:9092,kafka-2:9092"`.
pub fn read(
    brokers: impl Into<String>,
    topics: impl Into<Topics>,
) -> KafkaSource<Record, Decoder<Record>, Unbounded> {
    let topics = topics.into();
    KafkaSource {
        plan: KafkaSourceConfig {
            settings: Settings::new(brokers.into(), topics.to_string()),
            topics,
            on_lost: OnLostPosition::default(),
            needs_timestamps: false,
            skips_damage: false,
            start: Start::default(),
            is_bounded: false,
            time: WatermarkPolicy::in_order(),
            group: None,
            refresh: Duration::from_secs(30),
            on_error: OnError::default(),
            bookmark: EmittedPositions::default(),
            costs: None,
        },
        parallelism: Parallelism::ONE,
        decode: |message| Record::try_from(message),
        kind: PhantomData,
    }
}

/// A source that reads the partitions of topics.
///
/// * Partition *p* of a topic is read by instance *p* modulo the number of instances. With several
///   topics, each topic starts at a different instance. Partitions added to a topic and topics
///   matching a pattern are discovered while the job runs, and read from their beginning.
/// * Each record has the time of its message. The source keeps a watermark per partition and emits
///   their minimum; use `with_source_time` on the stream. A partition becomes idle when no record
///   arrives at its end for a while. A partition that lags or whose broker is unavailable holds the
///   watermark back.
/// * [`start`](Self::start) sets the start position. The source joins no consumer group.
/// * A job with checkpoints resumes at the next record of each partition, regardless of `start`.
///   Partitions added since the checkpoint are read from their beginning. A bounded source keeps
///   its end offsets. When an epoch is committed, its offsets are also committed to Kafka under the
///   [group](Self::group) for monitoring; the job does not read them. Other jobs commit nothing by
///   default.
/// * Only committed transactions are read, unless the property `isolation.level` is changed.
/// * The source waits for unavailable brokers. Named topics must exist.
/// * A lost position fails the job, unless [`on_lost_position`](Self::on_lost_position) is changed.
///   A position is lost if the topic was deleted and created again or has fewer partitions, if the
///   partition's log was truncated, or if retention has removed the next record. Topic id, leader
///   epoch and a hash of the last record read are stored with each offset, and compared on restore.
/// * A bounded source that cannot read up to its end offsets fails.
/// * A message is a bad record if it cannot be decoded, its timestamp is out of range, or its
///   headers are unreadable: see [`on_error`](Self::on_error).
/// * A draining job stops at once: records fetched but not emitted remain in the topic.
#[derive(Debug)]
pub struct KafkaSource<T, F, B> {
    plan: KafkaSourceConfig,
    parallelism: Parallelism,
    decode: F,
    kind: PhantomData<fn() -> (T, B)>,
}

/// Configuration shared by the instances of a source.
#[derive(Clone, Debug)]
pub(crate) struct KafkaSourceConfig {
    pub settings: Settings,
    pub topics: Topics,
    pub on_lost: OnLostPosition,
    /// True if a message without a timestamp is a bad record.
    pub needs_timestamps: bool,
    /// True if unreadable batches are skipped.
    pub skips_damage: bool,
    pub start: Start,
    pub is_bounded: bool,
    pub time: WatermarkPolicy,
    pub group: Option<String>,
    pub refresh: Duration,
    pub on_error: OnError,
    pub bookmark: EmittedPositions,
    pub costs: Option<Arc<SourceCosts>>,
}

impl<T, F, B> KafkaSource<T, F, B> {
    /// Sets the decoder of messages. An error of `decode` is the reason why a message cannot be
    /// decoded; see [`on_error`](Self::on_error).
    pub fn decode<U, G>(self, decode: G) -> KafkaSource<U, G, B>
    where
        U: Send + 'static,
        G: Fn(&Message<'_>) -> Result<U, String> + Send + Sync + 'static,
    {
        self.with_decoder(decode)
    }

    fn with_decoder<U, G>(self, decode: G) -> KafkaSource<U, G, B> {
        KafkaSource {
            plan: self.plan,
            parallelism: self.parallelism,
            decode,
            kind: PhantomData,
        }
    }

    /// Decodes the value of each message with a format, from the memory of the client. A message
    /// without a value is a bad record.
    ///
    /// ```
    /// use ardea_connectors::format::JsonLines;
    /// use ardea_connectors::kafka::read;
    /// use ardea_core::{Source, Unbounded};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Event<'a> { kind: &'a str, auction: Option<u64> }
    ///
    /// let bids = JsonLines.decode_with(|value| {
    ///     let event: Event = value.read()?;
    ///     Ok(event.auction.filter(|_| event.kind == "bid"))
    /// });
    /// let auctions: Source<u64, Unbounded> = read("localhost:9092", "events").format(bids).build();
    /// ```
    pub fn format<U, D>(self, format: D) -> KafkaSource<U, FormatDecoder<D>, B>
    where
        U: Send + 'static,
        D: Decode<U>,
    {
        self.with_decoder(FormatDecoder(format))
    }

    /// Decodes the value of each message as Avro, with a schema registry.
    #[cfg(feature = "avro")]
    pub fn avro<U>(
        self,
        avro: impl Into<crate::kafka::Avro>,
    ) -> KafkaSource<U, crate::kafka::Avro, B>
    where
        U: DeserializeOwned + Send + 'static,
    {
        self.with_decoder(avro.into())
    }

    /// Decodes the value of each message as Protocol Buffers, with a schema registry.
    #[cfg(feature = "protobuf")]
    pub fn protobuf<U>(
        self,
        protobuf: impl Into<crate::kafka::Protobuf>,
    ) -> KafkaSource<U, crate::kafka::Protobuf, B>
    where
        U: DeserializeOwned + Send + 'static,
    {
        self.with_decoder(protobuf.into())
    }

    /// Decodes the value of each message as Avro, with a schema registry, into the batches of
    /// `batches`.
    #[cfg(feature = "avro")]
    pub fn avro_batches<D: crate::format::BatchFields>(
        self,
        avro: impl Into<crate::kafka::Avro>,
        batches: D,
    ) -> KafkaSource<(), crate::kafka::AvroBatches<D>, B> {
        self.with_decoder(avro.into().batches(batches))
    }

    /// Decodes the value of each message as Protocol Buffers, with a schema registry, into the
    /// batches of `batches`.
    #[cfg(feature = "protobuf")]
    pub fn protobuf_batches<D: crate::format::BatchFields>(
        self,
        protobuf: impl Into<crate::kafka::Protobuf>,
        batches: D,
    ) -> KafkaSource<(), crate::kafka::ProtobufBatches<D>, B> {
        self.with_decoder(protobuf.into().batches(batches))
    }

    /// Decodes the value of each message as text.
    pub fn text(self) -> KafkaSource<String, Decoder<String>, B> {
        self.decode(|message| message.text().map(str::to_string))
    }

    /// Decodes the value of each message as JSON.
    pub fn json<U: DeserializeOwned + Send + 'static>(self) -> KafkaSource<U, Decoder<U>, B> {
        self.decode(|message| {
            serde_json::from_slice(message.present_value()?).map_err(|error| error.to_string())
        })
    }

    /// Sets the start position: [`Start::Earliest`] by default.
    pub fn start(mut self, start: Start) -> Self {
        self.plan.start = start;
        self
    }

    /// Sets the policy for lost positions: by default the job fails. [`OnLostPosition::Continue`]
    /// continues at the oldest record of the partition.
    pub fn on_lost_position(mut self, on_lost: OnLostPosition) -> Self {
        self.plan.on_lost = on_lost;
        self
    }

    /// Skips unreadable batches, which have a wrong checksum or an unknown or damaged compression.
    /// The skipped offsets are one bad record, handled as set by [`on_error`](Self::on_error). By
    /// default an unreadable batch fails the job.
    pub fn skip_damaged_batches(mut self) -> Self {
        self.plan.skips_damage = true;
        self
    }

    /// Treats a message without a timestamp as a bad record. By default its record is emitted, and
    /// fails the job if it reaches a window.
    pub fn require_timestamps(mut self) -> Self {
        self.plan.needs_timestamps = true;
        self
    }

    /// Makes the source bounded: it reads each partition to the end that the partition has at the
    /// job's start.
    pub fn until_present(mut self) -> KafkaSource<T, F, Bounded> {
        self.plan.is_bounded = true;
        KafkaSource {
            plan: self.plan,
            parallelism: self.parallelism,
            decode: self.decode,
            kind: PhantomData,
        }
    }

    /// Sets the number of instances that share the partitions.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.parallelism = parallelism.into();
        self
    }

    /// Sets the maximum disorder of event times within a partition; zero by default.
    pub fn out_of_order(mut self, by: Duration) -> Self {
        self.plan.time = self.plan.time.lag(by);
        self
    }

    /// Sets the time without a new record after which a fully read partition becomes idle: ten
    /// seconds by default, `None` for never.
    pub fn idle_after(mut self, silence: Option<Duration>) -> Self {
        self.plan.time = self.plan.time.idle_timeout(silence);
        self
    }

    /// Sets the maximum lead of an event time over both the highest earlier event time and the wall
    /// clock; a day by default, `None` for no limit. A record further ahead is emitted but does not
    /// advance the watermark: one wrong timestamp would otherwise make all later records late.
    pub fn max_ahead(mut self, ahead: Option<Duration>) -> Self {
        self.plan.time = self.plan.time.max_ahead(ahead);
        self
    }

    /// Sets the consumer group to which the source commits offsets, so that tools can show the lag.
    /// A job with checkpoints commits the offsets of each committed epoch, to `ardea-JOB` by
    /// default or to the group of [`Start::Stored`]. A job without checkpoints commits every five
    /// seconds and at its end, and only to a group set here. The group must have no members.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.plan.group = Some(group.into());
        self
    }

    /// Sets the interval of partition discovery: 30 seconds by default.
    pub fn look_for_partitions_every(mut self, every: Duration) -> Self {
        self.plan.refresh = every;
        self
    }

    /// Sets the policy for messages that cannot be decoded. By default such a message becomes a
    /// dead letter with topic, partition and offset.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.plan.on_error = on_error;
        self
    }

    /// Encrypts the connections to brokers.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.plan.settings.set_tls(tls);
        self
    }

    /// Sets the user and authentication mechanism for connections to brokers.
    pub fn sasl(mut self, sasl: Sasl) -> Self {
        self.plan.settings.set_sasl(sasl);
        self
    }

    /// Sets a property of librdkafka's consumer, such as `fetch.message.max.bytes`.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.plan.settings.set(name.into(), value.into());
        self
    }

    /// Returns a handle to the positions that the source has emitted. It is updated while the job
    /// runs in this process.
    pub fn bookmark(&self) -> EmittedPositions {
        self.plan.bookmark.clone()
    }

    /// Adds the source's CPU time to `costs`, with three system calls per chunk.
    pub fn measure(mut self, costs: Arc<SourceCosts>) -> Self {
        self.plan.costs = Some(costs);
        self
    }

    /// Builds the source for a pipeline.
    pub fn build(self) -> Source<T, B>
    where
        T: Send + 'static,
        F: MessageDecoder<T>,
    {
        self.build_as::<AsRows<T, F::Instance>, T>(|decoder| decoder.instance())
    }

    fn build_as<M, R>(self, instance: fn(&Arc<F>) -> M::Decoder) -> Source<R, B>
    where
        F: Send + Sync + 'static,
        M: MessageForm,
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
            Ok(Box::new(ReadP::<M>::new(plan.clone(), instance(&decode))))
        };
        Source::new(name, Arc::new(supply))
            .parallelism(parallelism)
            .isolation(Isolation::Thread)
    }
}

impl<D: BatchMessageDecoder, B> KafkaSource<(), D, B> {
    /// Builds a source of the batches of the decoder. `R` is the type of a record in the pipeline.
    /// Each record has the time of its message.
    pub fn build_batches<R>(self) -> Source<R, B> {
        self.build_as::<AsBatches<D::Instance>, R>(|decoder| decoder.batch_instance())
    }
}

impl<T, F, B> From<KafkaSource<T, F, B>> for Source<T, B>
where
    T: Send + 'static,
    F: MessageDecoder<T>,
{
    fn from(source: KafkaSource<T, F, B>) -> Self {
        source.build()
    }
}
