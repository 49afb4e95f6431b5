//! The processor that writes messages.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ardea_core::{
    BadRecords, Epoch, Error, ErrorCode, Inbox, InstanceContext, Ordinal, Outbox, Processor,
    Progress, RecordGuard, Result, Timestamp,
};
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};

use super::{Outgoing, Plan};
use crate::teller::Teller;

/// How long to wait for deliveries at a time. librdkafka's wait is not cut short by them.
const WAIT: Duration = Duration::from_millis(5);

/// Settings that can be changed by properties.
const DEFAULTS: &[(&str, &str)] = &[
    ("linger.ms", "1"),
    // Brokers are waited for without end.
    ("delivery.timeout.ms", "0"),
    ("reconnect.backoff.max.ms", "1000"),
];

/// Settings that what is promised rests on.
const FIXED: &[(&str, &str)] = &[("enable.idempotence", "true"), ("acks", "all")];

/// A delivery that failed for good.
struct Failure {
    /// The record's position in the sink's input.
    position: u64,
    partition: i32,
    error: KafkaError,
}

/// Hears of deliveries.
struct Deliveries {
    teller: Teller,
    /// The first that failed.
    failed: Mutex<Option<Failure>>,
}

impl From<Teller> for Deliveries {
    fn from(teller: Teller) -> Self {
        Deliveries {
            teller,
            failed: Mutex::default(),
        }
    }
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.teller.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.teller.error(error, reason);
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, position: usize) {
        match result {
            Ok(_) => self.teller.heard(),
            Err((error, message)) => {
                let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
                failed.get_or_insert_with(|| Failure {
                    position: position as u64,
                    partition: message.partition(),
                    error: error.clone(),
                });
            }
        }
    }
}

/// Hands records to librdkafka, which sends them.
pub(crate) struct WriteP<T, F> {
    plan: Plan,
    encode: Arc<F>,
    bad: BadRecords,
    producer: Option<BaseProducer<Deliveries>>,
    out: Outgoing,
    record: PhantomData<fn(T)>,
}

/// What became of a record.
enum Sent {
    Taken,
    /// The queue is full.
    NotNow,
    /// It is not to be written, and why.
    Bad(String),
}

impl<T, F> WriteP<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Outgoing) -> Result<(), String> + Send + Sync + 'static,
{
    pub fn new(plan: Plan, encode: Arc<F>) -> Self {
        WriteP {
            bad: BadRecords::new(plan.on_error),
            plan,
            encode,
            producer: None,
            out: Outgoing::default(),
            record: PhantomData,
        }
    }

    /// Hears what became of what was sent, after at most `wait`; says how much is under way.
    fn serve(&self, wait: Duration) -> Result<usize> {
        let Some(producer) = &self.producer else {
            return Ok(0);
        };
        producer.poll(wait);
        let failed = &producer.context().failed;
        let failed = failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        match failed {
            Some(failure) => Err(self.lost(failure)),
            None => Ok(usize::try_from(producer.in_flight_count()).unwrap_or(0)),
        }
    }

    fn lost(&self, failure: Failure) -> Error {
        let topic = &self.plan.settings.topic;
        let partition = failure.partition;
        let place = if partition < 0 {
            topic.clone()
        } else {
            format!("{topic}[{partition}]")
        };
        let hint = match failure.error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownTopicOrPartition) => {
                "make the topic, or check its name"
            }
            _ => "check the brokers' logs; the records behind it may be in the topic or not",
        };
        Error::new(
            ErrorCode::WriteFailed,
            format!(
                "record {} was not delivered to the Kafka topic {place}",
                failure.position
            ),
        )
        .because(failure.error)
        .hint(hint)
        .at_record(0, failure.position)
    }

    fn send(&mut self, record: &T, time: Timestamp, position: u64) -> Result<Sent> {
        let Some(producer) = &self.producer else {
            return Ok(Sent::NotNow);
        };
        self.out.clear();
        if let Err(reason) = (self.encode)(record, &mut self.out) {
            return Ok(Sent::Bad(reason));
        }
        // A position is only ever told to people.
        let opaque = usize::try_from(position).unwrap_or(usize::MAX);
        let mut message: BaseRecord<'_, [u8], [u8], usize> =
            BaseRecord::with_opaque_to(&self.plan.settings.topic, opaque);
        message.key = self.out.key.as_deref();
        message.payload = self.out.value.as_deref();
        message.partition = self.out.partition;
        // Kafka knows no time before 1970, and librdkafka takes its very beginning for the present.
        message.timestamp = time.is_event_time().then(|| time.as_millis().max(1));
        match producer.send(message) {
            Ok(()) => Ok(Sent::Taken),
            Err((error, _)) => match error.rdkafka_error_code() {
                Some(RDKafkaErrorCode::QueueFull) => Ok(Sent::NotNow),
                Some(RDKafkaErrorCode::MessageSizeTooLarge) => Ok(Sent::Bad(
                    "its message is larger than the producer may send (`message.max.bytes`)".into(),
                )),
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
                Sent::Taken => {}
                Sent::NotNow => break,
                Sent::Bad(reason) => {
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

    /// Hears what has been delivered, and asks to be called again while something is under way.
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
        self.producer = Some(self.plan.settings.client(&context.job, DEFAULTS, FIXED)?);
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        self.send_all(inbox)?;
        // A full queue is waited for: this thread has nothing else to do.
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
        self.go_on(WAIT, outbox).map(Progress::done_if)
    }

    fn close(&mut self) {
        self.producer = None;
    }
}
