//! Kafka sink.

mod aborts;
mod answers;
mod batch;
mod deliveries;
mod exactly_once;
mod limits;
mod requirements;
mod transactions;
pub(crate) mod values;
mod write;

use std::fmt;
use std::sync::Arc;

use ardea_core::{Delivery, OnError, Parallelism, Result, Sink, Timestamp};

use crate::kafka::headers;
use crate::kafka::security::{Sasl, Tls};
use crate::kafka::settings::Settings;
use crate::sink_builder::SinkBuilder;
use values::ValueEncoder;
use write::KafkaWriter;

/// Creates a sink that writes each record to a topic; `encode` fills the message. An error of
/// `encode` is the reason why a record cannot be written; see [`KafkaSink::on_error`].
pub fn write<T, F>(
    brokers: impl Into<String>,
    topic: impl Into<String>,
    encode: F,
) -> KafkaSink<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Outgoing) -> Result<(), String> + Send + Sync + 'static,
{
    KafkaSink {
        plan: KafkaSinkConfig {
            settings: Settings::new(brokers.into(), topic.into()),
            on_error: OnError::default(),
            is_transactional: true,
            held: HELD,
        },
        parallelism: Parallelism::ONE,
        encode,
        values: None,
    }
}

/// An outgoing message. Its buffers are reused for the next message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outgoing {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    partition: Option<i32>,
    /// Headers encoded by [`headers::put`].
    headers: Vec<u8>,
    spare_key: Vec<u8>,
    spare_value: Vec<u8>,
}

impl Outgoing {
    /// Sets the key. Messages with the same key go to the same partition, in order.
    pub fn key(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        let buffer = self.key_mut();
        buffer.clear();
        buffer.extend_from_slice(key.as_ref());
        self
    }

    /// Sets the value. A message without a value is a tombstone, which deletes its key.
    pub fn value(&mut self, value: impl AsRef<[u8]>) -> &mut Self {
        let buffer = self.value_mut();
        buffer.clear();
        buffer.extend_from_slice(value.as_ref());
        self
    }

    /// Returns the key buffer for writing.
    pub fn key_mut(&mut self) -> &mut Vec<u8> {
        let spare = &mut self.spare_key;
        self.key.get_or_insert_with(|| std::mem::take(spare))
    }

    /// Returns the value buffer for writing.
    pub fn value_mut(&mut self) -> &mut Vec<u8> {
        let spare = &mut self.spare_value;
        self.value.get_or_insert_with(|| std::mem::take(spare))
    }

    /// Appends a header. A name may occur several times.
    ///
    /// ```
    /// use ardea_connectors::kafka::write;
    ///
    /// let sink = write("localhost:9092", "alarms", |(trace, text): &(String, String), out| {
    ///     out.header("trace", trace).value(text);
    ///     Ok(())
    /// });
    /// ```
    pub fn header(&mut self, name: impl AsRef<str>, value: impl AsRef<[u8]>) -> &mut Self {
        headers::put(&mut self.headers, name.as_ref(), Some(value.as_ref()));
        self
    }

    /// Appends a header without a value.
    pub fn header_without_value(&mut self, name: impl AsRef<str>) -> &mut Self {
        headers::put(&mut self.headers, name.as_ref(), None);
        self
    }

    /// Returns the total size of key, value and headers in bytes.
    fn byte_len(&self) -> usize {
        let length = |part: &Option<Vec<u8>>| part.as_ref().map_or(0, Vec::len);
        length(&self.key) + length(&self.value) + self.headers.len()
    }

    /// Sets the partition. By default the key determines the partition; librdkafka distributes
    /// messages without a key.
    pub fn partition(&mut self, partition: i32) -> &mut Self {
        self.partition = Some(partition);
        self
    }

    /// Clears the message for the next record.
    fn clear(&mut self) {
        if let Some(key) = self.key.take() {
            self.spare_key = key;
            self.spare_key.clear();
        }
        if let Some(value) = self.value.take() {
            self.spare_value = value;
            self.spare_value.clear();
        }
        self.partition = None;
        self.headers.clear();
    }
}

/// A sink that writes to a topic with an idempotent producer.
///
/// * While the job runs, each record is in the topic once, also across broker failures. Records of
///   one instance keep their order within a partition.
/// * With an *at least once* guarantee, an epoch completes when all its records are acknowledged.
///   After a failure, records after the last committed epoch are written again.
/// * With an *exactly once* guarantee, each record is in the topic once for consumers with
///   `isolation.level=read_committed`. Records are written when their epoch is committed, in one
///   transaction per epoch and instance. Until then they are buffered in memory, [within a
///   limit](Self::hold_at_most), and are part of the checkpoint. The transactional id is
///   `ardea-JOB-VERTEX-INSTANCE`, so two jobs of the same name must not run at the same time.
///   [`at_least_once`](Self::at_least_once) turns transactions off. A message larger than the topic
///   allows is refused at once; with compression, only when it is sent.
/// * The sink waits for unavailable brokers; only the property `delivery.timeout.ms` limits the
///   wait. The job also waits while librdkafka's queue is full. A failed delivery fails the job,
///   and the error contains the record's position.
/// * The capabilities of the brokers are checked before the first write. The job fails with a hint
///   if the topic is missing or `transaction.max.timeout.ms` is below the producer's
///   `transaction.timeout.ms`. A warning is logged if acknowledged records could be lost with one
///   broker (`min.insync.replicas`).
/// * A message has the event time of its record, if any, in milliseconds; times before 1970 become
///   the first millisecond of 1970.
/// * At the end of the job the sink waits for all acknowledgements. A cancelled job does not wait.
pub struct KafkaSink<T, F> {
    plan: KafkaSinkConfig,
    parallelism: Parallelism,
    encode: F,
    /// The encoder of values with a schema, which follows `encode`.
    values: Option<Arc<dyn ValueEncoder<T>>>,
}

impl<T, F> fmt::Debug for KafkaSink<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSink")
            .field("plan", &self.plan)
            .field("parallelism", &self.parallelism)
            .finish_non_exhaustive()
    }
}

/// Configuration shared by the instances of a sink.
#[derive(Clone, Debug)]
pub(crate) struct KafkaSinkConfig {
    pub settings: Settings,
    pub on_error: OnError,
    /// True if an exactly-once job writes with transactions.
    pub is_transactional: bool,
    /// Maximum bytes of messages that an instance buffers until their epochs are committed.
    pub held: usize,
}

/// Default of [`KafkaSinkConfig::held`], in bytes.
const HELD: usize = 256 << 20;

/// Reason text for an oversized message.
const TOO_LARGE: &str = "its message is larger than the producer may send (`message.max.bytes`), or than the topic takes (`max.message.bytes`)";

/// Converts to a Kafka timestamp. Kafka has none before 1970, and librdkafka treats 0 as the
/// current time.
fn kafka_time(time: Timestamp) -> Option<i64> {
    time.is_event_time().then(|| time.as_millis().max(1))
}

impl<T, F> KafkaSink<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Outgoing) -> Result<(), String> + Send + Sync + 'static,
{
    /// Sets the number of instances, each with its own producer.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.parallelism = parallelism.into();
        self
    }

    /// Sets the policy for records that cannot be encoded or whose message is too large. By default
    /// such a record becomes a dead letter with its position.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.plan.on_error = on_error;
        self
    }

    /// Disables transactions in an exactly-once job: records are visible sooner, and some are
    /// written again after a failure.
    pub fn at_least_once(mut self) -> Self {
        self.plan.is_transactional = false;
        self
    }

    /// Sets the maximum bytes of messages that an instance buffers until their epochs are
    /// committed; 256 MiB by default. At the limit the sink waits while messages are being sent or
    /// a commit is pending. If the current epoch alone exceeds the limit, the job fails. A shorter
    /// checkpoint interval (`checkpoints.every`) needs less memory.
    pub fn hold_at_most(mut self, bytes: usize) -> Self {
        self.plan.held = bytes;
        self
    }

    /// Encodes each record as the value of its message, in Avro with a schema registry. `encode`
    /// sets the key, partition and headers. The sink writes nothing before the registry has
    /// answered. A record that does not fit the schema is handled as set by
    /// [`on_error`](Self::on_error).
    ///
    /// ```
    /// use ardea_connectors::kafka::{AvroValues, SchemaRegistry, write};
    ///
    /// #[derive(serde::Serialize)]
    /// struct Flight { carrier: String, delay: Option<i32> }
    ///
    /// let schema = r#"{"type": "record", "name": "Flight", "fields": [
    ///     {"name": "carrier", "type": "string"},
    ///     {"name": "delay", "type": ["null", "int"]}]}"#;
    /// let registry = SchemaRegistry::at("http://localhost:8081");
    /// let sink = write("localhost:9092", "flights", |flight: &Flight, out| {
    ///     out.key(&flight.carrier);
    ///     Ok(())
    /// })
    /// .avro(AvroValues::new(registry, schema))
    /// .build();
    /// ```
    #[cfg(feature = "avro")]
    pub fn avro(mut self, values: crate::kafka::AvroValues) -> Self
    where
        T: serde::Serialize,
    {
        self.values = Some(Arc::new(values));
        self
    }

    /// Encodes each record as the value of its message, as Protocol Buffers with a schema registry;
    /// as `avro` otherwise.
    #[cfg(feature = "protobuf")]
    pub fn protobuf(mut self, values: crate::kafka::ProtobufValues) -> Self
    where
        T: serde::Serialize,
    {
        self.values = Some(Arc::new(values));
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

    /// Sets a property of librdkafka's producer, such as `compression.type`.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.plan.settings.set(name.into(), value.into());
        self
    }

    /// Builds the sink for a pipeline.
    pub fn build(self) -> Sink<T> {
        let KafkaSink {
            plan,
            parallelism,
            encode,
            values,
        } = self;
        let name = format!("kafka {}", plan.settings.topic);
        let encode = Arc::new(encode);
        let delivery = match plan.is_transactional {
            true => Delivery::ExactlyOnce,
            false => Delivery::AtLeastOnce,
        };
        let make = move |_| KafkaWriter::new(plan.clone(), Arc::clone(&encode), values.clone());
        SinkBuilder::new(name)
            .parallelism(parallelism)
            .blocking()
            .writer(make)
            .with_delivery(delivery)
    }
}

impl<T, F> From<KafkaSink<T, F>> for Sink<T>
where
    T: Send + 'static,
    F: Fn(&T, &mut Outgoing) -> Result<(), String> + Send + Sync + 'static,
{
    fn from(sink: KafkaSink<T, F>) -> Self {
        sink.build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_keeps_nothing_of_the_one_before_it_but_the_memory() {
        let mut out = Outgoing::default();
        out.key("a long enough key")
            .value("v")
            .partition(3)
            .header("h", "1");
        let memory = out.key_mut().as_ptr();
        out.clear();
        assert_eq!((&out.key, &out.value, out.partition), (&None, &None, None));
        assert_eq!(out.byte_len(), 0);
        out.key("k");
        assert_eq!(out.key.as_deref(), Some(&b"k"[..]));
        assert_eq!(out.key_mut().as_ptr(), memory);
        assert_eq!(out.value, None, "a tombstone");
    }
}
