//! Writes to a topic.

mod aborts;
mod answers;
mod batch;
mod deliveries;
mod limits;
mod once;
mod requirements;
mod transactions;
mod write;

use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{
    Delivery, Instance, Isolation, OnError, Parallelism, Processor, Result, Sink, Timestamp,
};

use crate::kafka::headers;
use crate::kafka::security::{Sasl, Tls};
use crate::kafka::settings::Settings;
use write::WriteP;

/// Writes each record to a topic as `encode` says; its error is the reason why one can't be written, see [`KafkaSink::on_error`].
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
        plan: Plan {
            settings: Settings::new(brokers.into(), topic.into()),
            on_error: OnError::default(),
            is_transactional: true,
            held: HELD,
        },
        parallelism: Parallelism::ONE,
        encode,
        record: PhantomData,
    }
}

/// A message on its way out. Its memory is used again for the next one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outgoing {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    partition: Option<i32>,
    /// Encoded by [`headers::put`].
    headers: Vec<u8>,
    spare_key: Vec<u8>,
    spare_value: Vec<u8>,
}

impl Outgoing {
    /// Sets the key. Messages of one key come into one partition, in their order.
    pub fn key(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        let buffer = self.key_mut();
        buffer.clear();
        buffer.extend_from_slice(key.as_ref());
        self
    }

    /// Sets the value. A message without one is a tombstone: it takes back what was said of its key.
    pub fn value(&mut self, value: impl AsRef<[u8]>) -> &mut Self {
        let buffer = self.value_mut();
        buffer.clear();
        buffer.extend_from_slice(value.as_ref());
        self
    }

    /// The key's bytes, to be written to.
    pub fn key_mut(&mut self) -> &mut Vec<u8> {
        let spare = &mut self.spare_key;
        self.key.get_or_insert_with(|| std::mem::take(spare))
    }

    /// The value's bytes, to be written to.
    pub fn value_mut(&mut self) -> &mut Vec<u8> {
        let spare = &mut self.spare_value;
        self.value.get_or_insert_with(|| std::mem::take(spare))
    }

    /// Adds a header behind those that there are. A name may occur several times.
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

    /// Adds a header that has no value.
    pub fn header_without_value(&mut self, name: impl AsRef<str>) -> &mut Self {
        headers::put(&mut self.headers, name.as_ref(), None);
        self
    }

    /// The bytes of key, value and headers.
    fn byte_len(&self) -> usize {
        let length = |part: &Option<Vec<u8>>| part.as_ref().map_or(0, Vec::len);
        length(&self.key) + length(&self.value) + self.headers.len()
    }

    /// Sets the partition. Without it the key decides, and without a key librdkafka spreads messages.
    pub fn partition(&mut self, partition: i32) -> &mut Self {
        self.partition = Some(partition);
        self
    }

    /// Empties it, for the next record.
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

/// A sink that writes to a topic by an idempotent producer.
///
/// * While the job runs each record is in the topic once, and those of one partition lie in the order in which an instance got
///   them, whatever brokers do in between.
/// * In a job that promises *at least once* an epoch ends when all its records have been acknowledged. After a failure, records behind the last
///   committed epoch are written again.
/// * In a job that promises *exactly once* each record is in the topic once, whatever dies, for consumers that read only what is committed
///   (`isolation.level=read_committed`). Records are written when their epoch is committed, in one transaction an epoch and instance, so they are
///   as late as that; until then they are held in memory, [within bounds](Self::hold_at_most), and are part of the snapshot. The transactional id is `ardea-JOB-VERTEX-INSTANCE`:
///   two jobs of one name can't run at a time. Another choice is [`at_least_once`](Self::at_least_once). A message that the topic would not take for its size
///   is refused at once, as brokers say how large one may be; with a compression that is only known when it is sent.
/// * Brokers that are away are waited for, without end unless the property `delivery.timeout.ms` sets one; when librdkafka's queue is full the
///   job waits as well. A delivery that fails for good fails the job, and names the record's position.
/// * Before anything is written brokers are asked whether they can do what the job promises; what they can't fails the job, and says what to
///   change: a topic that is not there, a `transaction.max.timeout.ms` below the producer's `transaction.timeout.ms`. A topic whose
///   acknowledged records could be lost with one broker (`min.insync.replicas`) is warned of.
/// * A message has the event time of its record, if that has one, in milliseconds; times before 1970 become its first millisecond.
/// * At its end the job waits until all has been acknowledged. A job that is cancelled does not.
#[derive(Debug)]
pub struct KafkaSink<T, F> {
    plan: Plan,
    parallelism: Parallelism,
    encode: F,
    record: PhantomData<fn(T)>,
}

/// What the instances of a sink have in common.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub settings: Settings,
    pub on_error: OnError,
    /// Whether it writes by transactions in a job that promises that each record counts once.
    pub is_transactional: bool,
    /// How many bytes of messages an instance may hold until their epochs are committed.
    pub held: usize,
}

/// How many bytes of messages an instance may hold, unless told.
const HELD: usize = 256 << 20;

/// What is said of a message that can't be sent.
const TOO_LARGE: &str = "its message is larger than the producer may send (`message.max.bytes`), or than the topic takes (`max.message.bytes`)";

/// A time as Kafka has it: it knows none before 1970, and librdkafka takes its very beginning for the present.
fn kafka_time(time: Timestamp) -> Option<i64> {
    time.is_event_time().then(|| time.as_millis().max(1))
}

impl<T, F> KafkaSink<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Outgoing) -> Result<(), String> + Send + Sync + 'static,
{
    /// Sets how many instances write, each with a producer of its own.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.parallelism = parallelism.into();
        self
    }

    /// Sets what becomes of a record that can't be encoded, or whose message is too large: kept aside with its position (the default),
    /// dropped and counted, or the job fails.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.plan.on_error = on_error;
        self
    }

    /// Writes at once also in a job that promises that each record counts once: sooner, and some again after a failure.
    pub fn at_least_once(mut self) -> Self {
        self.plan.is_transactional = false;
        self
    }

    /// Sets how many bytes of messages an instance may hold in memory until their epochs are committed: 256 MiB by default. What is being sent, or waits for a
    /// commit that is on its way, is waited for; where the epoch at hand alone is larger the job fails, and says so, rather than take all memory. Shorter epochs
    /// (`snapshots.every`) hold less.
    pub fn hold_at_most(mut self, bytes: usize) -> Self {
        self.plan.held = bytes;
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

    /// Sets a property of librdkafka's producer, such as `compression.type`.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.plan.settings.set(name.into(), value.into());
        self
    }

    /// The sink, for a pipeline.
    pub fn build(self) -> Sink<T> {
        let KafkaSink {
            plan,
            parallelism,
            encode,
            ..
        } = self;
        let name = format!("kafka {}", plan.settings.topic);
        let encode = Arc::new(encode);
        let delivery = match plan.is_transactional {
            true => Delivery::ExactlyOnce,
            false => Delivery::AtLeastOnce,
        };
        let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
            Ok(Box::new(WriteP::<T, F>::new(
                plan.clone(),
                Arc::clone(&encode),
            )))
        };
        Sink::new(name, Arc::new(supply))
            .parallelism(parallelism)
            .isolation(Isolation::Thread)
            .delivering(delivery)
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
