//! Processor of the Kafka sink.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    BadRecords, Checkpointed, Epoch, Error, Guarantee, Inbox, InstanceContext, Ordinal, Outbox,
    Processor, Progress, RecordGuard, RestoredState, Result, SnapshotRequest, SnapshotWriter,
    Timestamp,
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

/// Processor that encodes records and hands them to librdkafka or to the exactly-once buffer.
pub(crate) struct WriteP<T, F> {
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

/// Result of handing over a record.
enum SendResult {
    Taken,
    /// The queue is full.
    NotNow,
    /// The record cannot be written; contains the reason.
    Bad(String),
}

impl<T, F> WriteP<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Outgoing) -> Result<(), String> + Send + Sync + 'static,
{
    pub fn new(
        plan: KafkaSinkConfig,
        encode: Arc<F>,
        values: Option<Arc<dyn ValueEncoder<T>>>,
    ) -> Self {
        WriteP {
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

    /// Processes delivery results for at most `wait`; returns the number of messages in flight.
    fn serve(&self, wait: Duration) -> Result<usize> {
        let Some(producer) = &self.producer else {
            return Ok(0);
        };
        producer.poll(wait);
        match producer.context().take_failed() {
            Some(failure) => Err(self.lost(failure)),
            None => Ok(usize::try_from(producer.in_flight_count()).unwrap_or(0)),
        }
    }

    fn lost(&self, failure: Failure) -> Error {
        failure.into_error(&self.plan.settings.topic)
    }

    fn send(&mut self, record: &T, time: Timestamp, position: u64) -> Result<SendResult> {
        self.out.clear();
        let mut encoded = (self.encode)(record, &mut self.out);
        if let Some(values) = &mut self.own_values {
            encoded = encoded.and_then(|()| {
                let value = self.out.value_mut();
                value.clear();
                values.encode(record, value)
            });
        }
        if let Err(reason) = encoded {
            return Ok(SendResult::Bad(reason));
        }
        if let Some(once) = &mut self.once {
            if !once.fits(self.out.byte_len()) {
                return Ok(SendResult::Bad(TOO_LARGE.into()));
            }
            once.push(BufferedMessage::of(&self.out, position, time))?;
            return Ok(SendResult::Taken);
        }
        let Some(producer) = &self.producer else {
            return Ok(SendResult::NotNow);
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
        match producer.send(message) {
            Ok(()) => Ok(SendResult::Taken),
            Err((error, _)) => match error.rdkafka_error_code() {
                Some(RDKafkaErrorCode::QueueFull) => Ok(SendResult::NotNow),
                Some(RDKafkaErrorCode::MessageSizeTooLarge) => {
                    Ok(SendResult::Bad(TOO_LARGE.into()))
                }
                _ => Err(self.lost(Failure {
                    position,
                    partition: self.out.partition.unwrap_or(-1),
                    error,
                })),
            },
        }
    }

    fn send_all(&mut self, inbox: &mut Inbox) -> Result<()> {
        let first = inbox.position();
        let rows = inbox.rows::<T>()?;
        let mut sent = 0;
        let mut guard = RecordGuard::new();
        for ((record, time), position) in rows.iter().zip(first..) {
            match self.send(record, time, position)? {
                SendResult::Taken => {}
                SendResult::NotNow => break,
                SendResult::Bad(reason) => {
                    self.bad
                        .report(|| format!("record {position}"), Vec::new, reason)?;
                }
            }
            sent += 1;
            guard.advance();
        }
        rows.discard_front(sent);
        Ok(())
    }

    /// Processes delivery results, and requests another call while messages are in flight. Returns
    /// true if no message is in flight.
    fn go_on(&mut self, wait: Duration, outbox: &mut Outbox) -> Result<bool> {
        let under_way = self.serve(wait)?;
        if under_way > 0 {
            outbox.wake_at(self.bad.context().clock.now().saturating_add(2 * WAIT));
        }
        Ok(under_way == 0)
    }
}

impl<T, F> Processor for WriteP<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Outgoing) -> Result<(), String> + Send + Sync + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
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

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let held = self.plan.held;
        let has_room = self.may_write()?
            && match &mut self.once {
                Some(once) => once.has_room(held)? && once.is_ready()?,
                None => true,
            };
        if has_room {
            self.send_all(inbox)?;
        } else {
            // Freed space is reported between calls.
            outbox.wake_at(self.bad.context().clock.now().saturating_add(2 * WAIT));
        }
        // Wait for a full queue here: this thread has no other work.
        let wait = if inbox.is_empty() {
            Duration::ZERO
        } else {
            WAIT
        };
        self.go_on(wait, outbox).map(|_| ())
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.go_on(Duration::ZERO, outbox).map(|_| ())
    }

    fn on_epoch(&mut self, _: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        self.go_on(WAIT, outbox).map(Progress::done_if)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        // The check must also complete without records, as the topic may be missing.
        if !self.may_write()? {
            std::thread::park_timeout(WAIT);
            outbox.wake_at(self.bad.context().clock.now().saturating_add(WAIT));
            return Ok(Progress::NONE);
        }
        self.go_on(WAIT, outbox).map(Progress::done_if)
    }

    fn close(&mut self) {
        self.requirements = None;
        self.own_values = None;
        self.producer = None;
        self.once = None;
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<T, F> Checkpointed for WriteP<T, F>
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
