//! The processor that writes messages.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    BadRecords, Cut, CutWriter, Epoch, Error, Guarantee, Inbox, InstanceContext, Ordinal, Outbox,
    Processor, Progress, RecordGuard, RestoredState, Result, Timestamp,
};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use super::batch::Waiting;
use super::deliveries::{Deliveries, Failure};
use super::once::Once;
use super::requirements::Requirements;
use super::{Outgoing, Plan, TOO_LARGE, kafka_time};
use crate::kafka::headers;

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

/// Hands records to librdkafka, which sends them.
pub(crate) struct WriteP<T, F> {
    plan: Plan,
    encode: Arc<F>,
    bad: BadRecords,
    /// Sends at once, unless
    producer: Option<BaseProducer<Deliveries>>,
    /// each record is to be in the topic once, whatever dies: then it waits for the commit.
    once: Option<Once>,
    requirements: Option<Requirements>,
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
            once: None,
            requirements: None,
            out: Outgoing::default(),
            record: PhantomData,
        }
    }

    /// Whether it is known that brokers can do what the job promises. Nothing is written before.
    fn may_write(&self) -> Result<bool> {
        self.requirements
            .as_ref()
            .map_or(Ok(false), Requirements::are_met)
    }

    /// Hears what became of what was sent, after at most `wait`; says how much is under way.
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

    fn send(&mut self, record: &T, time: Timestamp, position: u64) -> Result<Sent> {
        self.out.clear();
        if let Err(reason) = (self.encode)(record, &mut self.out) {
            return Ok(Sent::Bad(reason));
        }
        if let Some(once) = &mut self.once {
            if !once.fits(self.out.byte_len()) {
                return Ok(Sent::Bad(TOO_LARGE.into()));
            }
            once.push(Waiting::of(&self.out, position, time))?;
            return Ok(Sent::Taken);
        }
        let Some(producer) = &self.producer else {
            return Ok(Sent::NotNow);
        };
        // A position is only ever told to people.
        let opaque = usize::try_from(position).unwrap_or(usize::MAX);
        let mut message: BaseRecord<'_, [u8], [u8], usize> =
            BaseRecord::with_opaque_to(&self.plan.settings.topic, opaque);
        message.key = self.out.key.as_deref();
        message.payload = self.out.value.as_deref();
        message.partition = self.out.partition;
        message.timestamp = kafka_time(time);
        message.headers = headers::owned(&self.out.headers);
        match producer.send(message) {
            Ok(()) => Ok(Sent::Taken),
            Err((error, _)) => match error.rdkafka_error_code() {
                Some(RDKafkaErrorCode::QueueFull) => Ok(Sent::NotNow),
                Some(RDKafkaErrorCode::MessageSizeTooLarge) => Ok(Sent::Bad(TOO_LARGE.into())),
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
        if context.guarantee == Guarantee::ExactlyOnce && self.plan.is_transactional {
            self.once = Some(Once::new(&self.plan.settings, context));
        } else {
            self.producer = Some(self.plan.settings.client(&context.job, DEFAULTS, FIXED)?);
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
            // What makes room is told between calls.
            outbox.wake_at(self.bad.context().clock.now().saturating_add(2 * WAIT));
        }
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
        // Also where no record has come: the topic may be missing.
        if !self.may_write()? {
            std::thread::park_timeout(WAIT);
            outbox.wake_at(self.bad.context().clock.now().saturating_add(WAIT));
            return Ok(Progress::NONE);
        }
        self.go_on(WAIT, outbox).map(Progress::done_if)
    }

    fn take_cut(&mut self, cut: Cut) -> Result<()> {
        self.once.as_mut().map_or(Ok(()), |once| once.take_cut(cut))
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        match &mut self.once {
            Some(once) => once.write_cut(writer),
            None => Ok(Progress::DONE),
        }
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        match &mut self.once {
            Some(once) => once.restore(state),
            // What was to be sent must not be forgotten because somebody has changed the promise.
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

    fn on_epoch_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        match &mut self.once {
            Some(once) => once.commit(epoch, &self.bad),
            None => Ok(Progress::DONE),
        }
    }

    fn on_epoch_given_up(&mut self, epoch: Epoch) -> Result<Progress> {
        if let Some(once) = &mut self.once {
            once.give_up(epoch);
        }
        Ok(Progress::DONE)
    }

    fn awaits_commit(&self) -> bool {
        self.once.as_ref().is_some_and(Once::is_waiting)
    }

    fn close(&mut self) {
        self.requirements = None;
        self.producer = None;
        self.once = None;
    }
}
