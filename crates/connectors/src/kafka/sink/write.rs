//! Writer of the Kafka sink.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    BadRecords, Checkpointed, Epoch, Error, Guarantee, InstanceContext, Progress, RestoredState,
    Result, SnapshotRequest, SnapshotWriter, Timestamp,
};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use super::batch::BufferedMessage;
use super::deliveries::{DeliveryTracker, Failure};
use super::exactly_once::ExactlyOnceBuffer;
use super::requirements::Requirements;
use super::values::{EncodeValue, ValueEncoder};
use super::{KafkaSinkConfig, Outgoing, TOO_LARGE, kafka_time};
use crate::kafka::headers;
use crate::sink_builder::SinkWriter;

/// Longest wait per poll for deliveries. librdkafka does not return early when a delivery arrives.
const WAIT: Duration = Duration::from_millis(5);

/// Default settings that properties can override.
const DEFAULTS: &[(&str, &str)] = &[
    ("linger.ms", "1"),
    // No delivery timeout: the sink waits for brokers without limit.
    ("delivery.timeout.ms", "0"),
    ("reconnect.backoff.max.ms", "1000"),
];

/// Fixed settings on which the guarantees depend.
const FIXED: &[(&str, &str)] = &[("enable.idempotence", "true"), ("acks", "all")];

/// Writer that encodes records and hands them to librdkafka or to the exactly-once buffer.
pub(crate) struct KafkaWriter<T, F> {
    plan: KafkaSinkConfig,
    encode: Arc<F>,
    bad: BadRecords,
    /// Producer that sends at once; `None` with exactly-once output.
    producer: Option<BaseProducer<DeliveryTracker>>,
    /// Buffer for exactly-once output, sent at the commit; otherwise `None`.
    once: Option<ExactlyOnceBuffer>,
    requirements: Option<Requirements>,
    out: Outgoing,
    /// The encoder of values with a schema, and that of this instance once it is initialized.
    values: Option<Arc<dyn ValueEncoder<T>>>,
    own_values: Option<Box<dyn EncodeValue<T>>>,
}

impl<T, F> KafkaWriter<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Outgoing) -> Result<(), String> + Send + Sync + 'static,
{
    pub fn new(
        plan: KafkaSinkConfig,
        encode: Arc<F>,
        values: Option<Arc<dyn ValueEncoder<T>>>,
    ) -> Self {
        KafkaWriter {
            bad: BadRecords::new(plan.on_error),
            plan,
            encode,
            producer: None,
            once: None,
            requirements: None,
            out: Outgoing::default(),
            values,
            own_values: None,
        }
    }

    /// Returns true once brokers are known to support the guarantee, and the schema of values is
    /// known. The sink writes nothing before.
    fn may_write(&mut self) -> Result<bool> {
        let requirements = self.requirements.as_ref();
        if !requirements.map_or(Ok(false), Requirements::are_met)? {
            return Ok(false);
        }
        let values = self.own_values.as_mut();
        values.map_or(Ok(true), |values| values.is_ready())
    }

    fn lost(&self, failure: Failure) -> Error {
        failure.into_error(&self.plan.settings.topic)
    }

    /// Encodes a record. Returns the reason if it cannot be written.
    fn fill(&mut self, record: &T) -> Result<(), String> {
        self.out.clear();
        (self.encode)(record, &mut self.out)?;
        if let Some(values) = &mut self.own_values {
            let value = self.out.value_mut();
            value.clear();
            values.encode(record, value)?;
        }
        match &self.once {
            Some(once) if !once.fits(self.out.byte_len()) => Err(TOO_LARGE.into()),
            _ => Ok(()),
        }
    }

    /// Hands the encoded record over. Returns false if the queue is full.
    fn hand_over(&mut self, time: Timestamp, position: u64) -> Result<bool> {
        if let Some(once) = &mut self.once {
            once.push(BufferedMessage::of(&self.out, position, time))?;
            return Ok(true);
        }
        let Some(producer) = &self.producer else {
            return Ok(false);
        };
        // The position is used only in error messages.
        let opaque = usize::try_from(position).unwrap_or(usize::MAX);
        let mut message: BaseRecord<'_, [u8], [u8], usize> =
            BaseRecord::with_opaque_to(&self.plan.settings.topic, opaque);
        message.key = self.out.key.as_deref();
        message.payload = self.out.value.as_deref();
        message.partition = self.out.partition;
        message.timestamp = kafka_time(time);
        message.headers = headers::owned(&self.out.headers);
        let Err((error, _)) = producer.send(message) else {
            return Ok(true);
        };
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::QueueFull) => Ok(false),
            Some(RDKafkaErrorCode::MessageSizeTooLarge) => {
                self.refuse(position, TOO_LARGE.into())?;
                Ok(true)
            }
            _ => Err(self.lost(Failure {
                position,
                partition: self.out.partition.unwrap_or(-1),
                error,
            })),
        }
    }

    fn refuse(&self, position: u64, reason: String) -> Result<()> {
        self.bad
            .report(|| format!("record {position}"), Vec::new, reason)
    }
}

impl<T, F> SinkWriter for KafkaWriter<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Outgoing) -> Result<(), String> + Send + Sync + 'static,
{
    type Record = T;

    const POLL_INTERVAL: Duration = WAIT;

    fn open(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        if context.guarantee == Guarantee::ExactlyOnce && self.plan.is_transactional {
            self.once = Some(ExactlyOnceBuffer::new(&self.plan.settings, context));
        } else {
            self.producer = Some(self.plan.settings.client(&context.job, DEFAULTS, FIXED)?);
        }
        if let Some(values) = &self.values {
            self.own_values = Some(values.instance(&self.plan.settings.topic, context)?);
        }
        let requirements = Requirements::ask(&self.plan.settings, context, self.once.is_some())?;
        self.requirements = Some(requirements);
        Ok(())
    }

    fn has_room(&mut self) -> Result<bool> {
        let held = self.plan.held;
        Ok(self.may_write()?
            && match &mut self.once {
                Some(once) => once.has_room(held)? && once.is_ready()?,
                None => true,
            })
    }

    fn write(&mut self, record: &T, time: Timestamp, position: u64) -> Result<bool> {
        match self.fill(record) {
            Ok(()) => self.hand_over(time, position),
            Err(reason) => self.refuse(position, reason).map(|()| true),
        }
    }

    /// Processes delivery results for at most `wait`.
    fn poll(&mut self, wait: Duration) -> Result<bool> {
        let Some(producer) = &self.producer else {
            return Ok(true);
        };
        producer.poll(wait);
        match producer.context().take_failed() {
            Some(failure) => Err(self.lost(failure)),
            None => Ok(producer.in_flight_count() <= 0),
        }
    }

    fn finish(&mut self) -> Result<bool> {
        // The check must also complete without records, as the topic may be missing.
        if !self.may_write()? {
            std::thread::park_timeout(WAIT);
            return Ok(false);
        }
        self.poll(WAIT)
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }

    fn close(&mut self) {
        self.requirements = None;
        self.own_values = None;
        self.producer = None;
        self.once = None;
    }
}

impl<T, F> Checkpointed for KafkaWriter<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Outgoing) -> Result<(), String> + Send + Sync + 'static,
{
    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        self.once
            .as_mut()
            .map_or(Ok(()), |once| once.take_snapshot(snapshot))
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        match &mut self.once {
            Some(once) => once.write_snapshot(writer),
            None => Ok(Progress::DONE),
        }
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        match &mut self.once {
            Some(once) => once.restore(state),
            // Buffered messages must not be dropped because the guarantee was changed.
            None => state
                .next()
                .map_or(Ok(()), |entry| Err(RestoredState::unknown(&entry))),
        }
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        if !self.may_write()? {
            std::thread::park_timeout(WAIT);
            return Ok(Progress::NONE);
        }
        match &mut self.once {
            Some(once) => once.resume(&self.bad),
            None => Ok(Progress::DONE),
        }
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        match &mut self.once {
            Some(once) => once.commit(epoch, &self.bad),
            None => Ok(Progress::DONE),
        }
    }

    fn on_checkpoint_aborted(&mut self, epoch: Epoch) -> Result<Progress> {
        if let Some(once) = &mut self.once {
            once.abort_epoch(epoch);
        }
        Ok(Progress::DONE)
    }

    fn awaits_commit(&self) -> bool {
        self.once
            .as_ref()
            .is_some_and(ExactlyOnceBuffer::is_waiting)
    }
}
