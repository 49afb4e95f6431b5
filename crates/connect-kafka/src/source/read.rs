//! The processor that reads partitions.

mod kept_offsets;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    BadRecords, Cut, CutWriter, Epoch, Error, ErrorCode, InstanceContext, Lane, Marker, Ordinal,
    Outbox, Processor, Progress, RecordGuard, RestoredState, Result, thread_cpu_time,
};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::BorrowedMessage;
use rdkafka::{Offset, TopicPartitionList};

use super::Plan;
use crate::TURN;
use crate::message::Message;
use crate::partitions::Partitions;
use crate::positions::Start;
use crate::scout::{Found, Mission, Scout};
use crate::teller::Teller;
use kept_offsets::KeptOffsets;

/// Reads the partitions of one instance. It takes messages a chunk at a time, then decodes them: each of the two can be measured so.
pub(crate) struct ReadP<T, F> {
    plan: Plan,
    decode: Arc<F>,
    bad: BadRecords,
    partitions: Partitions,
    consumer: Option<Arc<BaseConsumer<Teller>>>,
    reading: Option<Reading>,
    /// What it hands over.
    kept: KeptOffsets,
    record: PhantomData<fn() -> T>,
}

/// What a running instance has.
struct Reading {
    consumer: Arc<BaseConsumer<Teller>>,
    scout: Scout,
    /// All partitions that the topic had at first are known.
    is_complete: bool,
}

/// Why no more messages were taken.
#[derive(Default)]
struct Pause {
    /// The end of this partition was reached.
    at_end: Option<i32>,
}

/// Settings that can be changed by properties.
const DEFAULTS: &[(&str, &str)] = &[
    // A consumer that was full goes on at once when it no longer is.
    ("fetch.queue.backoff.ms", "5"),
    ("queued.max.messages.kbytes", "16384"),
    ("reconnect.backoff.max.ms", "1000"),
    ("isolation.level", "read_committed"),
];

/// Settings that what is promised rests on.
const FIXED: &[(&str, &str)] = &[
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    ("enable.partition.eof", "true"),
    // What the topic no longer holds must not be skipped.
    ("auto.offset.reset", "error"),
];

impl<T, F> ReadP<T, F>
where
    T: Send + 'static,
    F: Fn(&Message<'_>) -> Result<T, String> + Send + Sync + 'static,
{
    pub fn new(plan: Plan, decode: Arc<F>) -> Self {
        ReadP {
            bad: BadRecords::new(plan.on_error),
            partitions: Partitions::new(plan.timing),
            plan,
            decode,
            consumer: None,
            reading: None,
            kept: KeptOffsets::default(),
            record: PhantomData,
        }
    }

    /// Begins to look for partitions, where it has not begun.
    fn begin(&mut self) -> Result<()> {
        let (Some(consumer), None) = (&self.consumer, &self.reading) else {
            return Ok(());
        };
        let context = self.bad.context();
        let scout = Scout::send(Mission {
            consumer: Arc::clone(consumer),
            topic: self.plan.settings.topic.clone(),
            start: self.plan.start.clone(),
            resumed: self.kept.resumed(),
            instance: context.instance,
            every: (!self.plan.is_bounded).then_some(self.plan.refresh),
        })?;
        self.reading = Some(Reading {
            consumer: Arc::clone(consumer),
            scout,
            is_complete: false,
        });
        Ok(())
    }

    /// Tells Kafka how far a committed epoch came, for whoever looks.
    fn tell_kafka(&self, offsets: Vec<(i32, i64)>) {
        let mut list = TopicPartitionList::new();
        for (partition, next) in offsets {
            let topic = &self.plan.settings.topic;
            if list
                .add_partition_offset(topic, partition, Offset::Offset(next))
                .is_err()
            {
                return;
            }
        }
        if let Some(consumer) = self.consumer.as_ref().filter(|_| list.count() > 0) {
            // The job does not depend on it: what comes of it is nobody's concern here.
            let _ = consumer.commit(&list, CommitMode::Async);
        }
    }

    /// Begins to read partitions that have been found. True if some were.
    fn take_news(&mut self) -> Result<bool> {
        let Some(reading) = &mut self.reading else {
            return Ok(false);
        };
        let Some(news) = reading.scout.take_news() else {
            return Ok(false);
        };
        if let Some(error) = news.failed {
            return Err(error);
        }
        reading.is_complete |= news.is_complete;
        self.kept
            .note_partitions(news.at_first, reading.is_complete);
        let mut wanted = TopicPartitionList::new();
        let topic = &self.plan.settings.topic;
        let cannot = |error: KafkaError| cannot_read(topic, error);
        for Found {
            partition, start, ..
        } in news
            .found
            .iter()
            .filter(|found| self.partitions.add(**found, self.plan.is_bounded))
        {
            wanted
                .add_partition_offset(topic, *partition, *start)
                .map_err(cannot)?;
        }
        if wanted.count() > 0 {
            reading
                .consumer
                .incremental_assign(&wanted)
                .map_err(cannot)?;
        }
        self.plan.bookmark.note(self.partitions.positions());
        Ok(true)
    }

    /// Takes up to `room` messages, waits for the first.
    fn take<'a>(
        &self,
        consumer: &'a BaseConsumer<Teller>,
        room: usize,
    ) -> Result<(Vec<BorrowedMessage<'a>>, Pause)> {
        let mut messages = Vec::with_capacity(room);
        let mut pause = Pause::default();
        let mut wait = TURN;
        while messages.len() < room {
            match consumer.poll(wait) {
                None => break,
                Some(Ok(message)) => messages.push(message),
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    pause.at_end = Some(partition);
                    break;
                }
                Some(Err(error)) if is_final(&error) => {
                    return Err(cannot_read(&self.plan.settings.topic, error));
                }
                // Brokers are away: that has been told, and librdkafka goes on by itself.
                Some(Err(_)) => break,
            }
            wait = Duration::ZERO;
        }
        Ok((messages, pause))
    }

    fn decode(&mut self, messages: &[BorrowedMessage<'_>], lane: &mut Lane<'_, T>) -> Result<()> {
        let mut guard = RecordGuard::new();
        for message in messages {
            let message = Message::of(message);
            let Message {
                partition,
                offset,
                timestamp,
                ..
            } = message;
            if self.partitions.message(partition, offset, timestamp) {
                match (self.decode)(&message) {
                    Ok(record) => lane.push(record, timestamp),
                    Err(reason) => self.bad.report(
                        || format!("{}[{partition}]@{offset}", self.plan.settings.topic),
                        || message.value.unwrap_or_default().to_vec(),
                        reason,
                    )?,
                }
            }
            guard.advance();
        }
        Ok(())
    }

    /// Says what follows of time.
    fn tell_time(&mut self, outbox: &mut Outbox) {
        let now = self.bad.context().clock.now();
        let saying = self.partitions.time(now);
        if let Some(watermark) = saying.watermark {
            outbox.watermark(watermark);
        }
        if saying.is_idle {
            outbox.marker(Marker::Idle);
        }
    }

    /// Reads a chunk. Says how many messages there were.
    fn read(&mut self, consumer: &BaseConsumer<Teller>, outbox: &mut Outbox) -> Result<usize> {
        let mut lane = outbox.lane::<T>(Ordinal::FIRST)?;
        let is_measured = self.plan.costs.is_some();
        let spent = || is_measured.then(thread_cpu_time).unwrap_or_default();
        let before = spent();
        let (messages, pause) = self.take(consumer, lane.room())?;
        let taken = spent();
        self.decode(&messages, &mut lane)?;
        let decoded = spent();
        let count = messages.len();
        if count > 0 {
            consumer.context().heard();
            self.plan.bookmark.note(self.partitions.positions());
        }
        drop(messages);
        if let Some(partition) = pause.at_end {
            consumer.context().heard();
            let now = self.bad.context().clock.now();
            self.partitions.at_end(partition, now);
        }
        if let Some(costs) = &self.plan.costs {
            let fetch = taken.saturating_sub(before) + spent().saturating_sub(decoded);
            costs.add(fetch, decoded.saturating_sub(taken), count);
        }
        Ok(count)
    }
}

impl<T, F> Processor for ReadP<T, F>
where
    T: Send + 'static,
    F: Fn(&Message<'_>) -> Result<T, String> + Send + Sync + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        // librdkafka wants a name also of who reads what it is assigned, and joins nothing by it.
        let group = match (&self.plan.start, &self.plan.group) {
            (_, Some(group)) | (Start::Stored { group }, None) => group.clone(),
            _ => format!("ardea-{}", context.job),
        };
        let fixed: Vec<_> = FIXED
            .iter()
            .copied()
            .chain([("group.id", group.as_str())])
            .collect();
        let consumer: BaseConsumer<Teller> =
            self.plan.settings.client(&context.job, DEFAULTS, &fixed)?;
        self.consumer = Some(Arc::new(consumer));
        self.kept.begin(context.instance);
        if context.guarantee.keeps_state() {
            // It may go on in the middle.
            return Ok(());
        }
        self.begin()
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.bad.context().signals.is_cancelled() {
            return Ok(Progress::DONE);
        }
        if !outbox.has_room(Ordinal::FIRST) {
            return Ok(Progress::NONE);
        }
        self.begin()?;
        let news = self.take_news()?;
        let Some(reading) = &self.reading else {
            return Ok(Progress::DONE);
        };
        let is_complete = reading.is_complete;
        if self.plan.is_bounded && is_complete && self.partitions.are_done() {
            return Ok(Progress::DONE);
        }
        let consumer = Arc::clone(&reading.consumer);
        let count = self.read(&consumer, outbox)?;
        if is_complete {
            self.tell_time(outbox);
        }
        Ok(Progress {
            made: news || count > 0,
            done: false,
        })
    }

    fn is_at_end(&self) -> bool {
        self.plan.is_bounded
            && self.partitions.are_done()
            && self
                .reading
                .as_ref()
                .is_some_and(|reading| reading.is_complete)
    }

    fn take_cut(&mut self, cut: Cut) -> Result<()> {
        let moves = matches!(self.plan.start, Start::Latest);
        self.kept.take_cut(cut, self.partitions.reached(), moves)
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        self.kept.write_cut(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.kept.restore(state)
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        self.kept.resume()?;
        Ok(Progress::DONE)
    }

    fn on_epoch_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        if let Some(offsets) = self.kept.commit(epoch) {
            self.tell_kafka(offsets);
        }
        Ok(Progress::DONE)
    }

    fn close(&mut self) {
        self.reading = None;
        self.consumer = None;
    }
}

/// Whether librdkafka does not go on by itself.
fn is_final(error: &KafkaError) -> bool {
    matches!(error, KafkaError::MessageConsumptionFatal(_))
        || matches!(
            error.rdkafka_error_code(),
            Some(
                RDKafkaErrorCode::AutoOffsetReset
                    | RDKafkaErrorCode::OffsetOutOfRange
                    | RDKafkaErrorCode::UnknownTopic
                    | RDKafkaErrorCode::UnknownPartition
                    | RDKafkaErrorCode::UnknownTopicOrPartition
                    | RDKafkaErrorCode::TopicAuthorizationFailed
            )
        )
}

fn cannot_read(topic: &str, error: KafkaError) -> Error {
    let hint = match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange) => {
            "the topic no longer holds the records that come next: keep them for longer, or start elsewhere (`start`)"
        }
        _ => "check that the topic is there, and what this user may read",
    };
    Error::new(
        ErrorCode::ReadFailed,
        format!("cannot read on in the Kafka topic {topic}"),
    )
    .because(error)
    .hint(hint)
}
