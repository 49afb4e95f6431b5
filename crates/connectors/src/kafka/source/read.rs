//! The processor that reads partitions.

mod group_offsets;
mod intake;
mod kept_offsets;
mod news;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{
    BadRecords, Cut, CutWriter, Epoch, Error, ErrorCode, InstanceContext, Lane, Marker, Ordinal,
    Outbox, Processor, Progress, RecordGuard, RestoredState, Result, thread_cpu_time,
};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::BorrowedMessage;

use super::Plan;
use crate::kafka::discovery::{Discovery, Mission};
use crate::kafka::fingerprint::Fingerprint;
use crate::kafka::identity::Replaced;
use crate::kafka::message::Message;
use crate::kafka::partitions::Partitions;
use crate::kafka::positions::Start;
use crate::kafka::teller::Teller;
use crate::kafka::topics::Selection;
use group_offsets::GroupOffsets;
use intake::{Intake, Taken};
use kept_offsets::KeptOffsets;

/// Reads the partitions of one instance. It takes messages a chunk at a time, then decodes them: each of the two can be measured so.
pub(crate) struct ReadP<T, F> {
    plan: Plan,
    decode: Arc<F>,
    bad: BadRecords,
    partitions: Partitions,
    source: Option<Opened>,
    reading: Option<Reading>,
    /// Errors of partitions that came with the latest messages.
    failed: Vec<(usize, RDKafkaErrorCode, String)>,
    /// Topics that were made anew, and of which partitions may not be read yet.
    replaced: BTreeMap<String, Replaced>,
    /// What it hands over.
    kept: KeptOffsets,
    group: GroupOffsets,
    record: PhantomData<fn() -> T>,
}

/// A source whose consumer has been made.
struct Opened {
    consumer: Arc<BaseConsumer<Teller>>,
    selection: Selection,
    group: String,
}

/// What a running instance has.
struct Reading {
    discovery: Discovery,
    /// None while messages of it are decoded.
    intake: Option<Intake>,
    /// All partitions that the topics had at first are known.
    is_complete: bool,
}

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
            source: None,
            reading: None,
            failed: Vec::new(),
            replaced: BTreeMap::new(),
            kept: KeptOffsets::default(),
            group: GroupOffsets::default(),
            record: PhantomData,
        }
    }

    /// Begins to look for partitions, where it has not begun.
    fn begin(&mut self) -> Result<()> {
        let (Some(opened), None) = (&self.source, &self.reading) else {
            return Ok(());
        };
        let context = self.bad.context();
        let discovery = Discovery::start(Mission {
            consumer: Arc::clone(&opened.consumer),
            settings: self.plan.settings.clone(),
            job: context.job.to_string().into(),
            group: opened.group.clone(),
            selection: opened.selection.clone(),
            start: self.plan.start.clone(),
            resumed: self.kept.resumed(),
            instance: context.instance,
            every: (!self.plan.is_bounded).then_some(self.plan.refresh),
            on_lost: self.plan.on_lost,
        })?;
        self.reading = Some(Reading {
            discovery,
            intake: Some(Intake::new(Arc::clone(&opened.consumer))),
            is_complete: false,
        });
        Ok(())
    }

    fn decode(
        &mut self,
        messages: &[(usize, BorrowedMessage<'_>)],
        lane: &mut Lane<'_, T>,
    ) -> Result<()> {
        let mut guard = RecordGuard::new();
        let mut runs = messages.iter().peekable();
        let mut run = None;
        while let Some((index, fetched)) = runs.next() {
            // Messages of a partition come in runs: they share its topic's name.
            let of_run = run
                .take()
                .filter(|(of, _)| of == index)
                .unwrap_or_else(|| (*index, Arc::clone(&self.partitions.at(*index).0.topic)));
            let topic = &of_run.1;
            let (message, is_timed) = Message::of(topic, fetched);
            if self
                .partitions
                .message(*index, message.offset, message.timestamp)
            {
                let record = is_timed
                    .and_then(|()| self.check_time(&message))
                    .and_then(|()| (self.decode)(&message));
                match record {
                    Ok(record) => lane.push(record, message.timestamp),
                    Err(reason) => self.bad.report(
                        || format!("{topic}[{}]@{}", message.partition, message.offset),
                        || message.value.unwrap_or_default().to_vec(),
                        reason,
                    )?,
                }
                if runs.peek().is_none_or(|(next, _)| next != index) {
                    self.partitions.last_was(*index, Fingerprint::of(fetched));
                }
            }
            run = Some(of_run);
            guard.advance();
        }
        Ok(())
    }

    fn check_time(&self, message: &Message<'_>) -> std::result::Result<(), String> {
        match self.plan.needs_timestamps && !message.timestamp.is_event_time() {
            true => Err("it has no timestamp".to_string()),
            false => Ok(()),
        }
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

    /// Reads a chunk. Returns how many messages there were.
    fn read(&mut self, intake: &mut Intake, outbox: &mut Outbox) -> Result<usize> {
        let mut lane = outbox.lane::<T>(Ordinal::FIRST)?;
        let is_measured = self.plan.costs.is_some();
        let spent = || is_measured.then(thread_cpu_time).unwrap_or_default();
        let consumer = Arc::clone(&intake.consumer);
        let before = spent();
        let taken = intake.take(lane.room());
        let Taken {
            messages,
            ended,
            failed,
        } = taken.map_err(|error| self.cannot_read(error))?;
        let fetched = spent();
        self.decode(&messages, &mut lane)?;
        let decoded = spent();
        let count = messages.len();
        if count > 0 || !ended.is_empty() {
            consumer.context().heard();
        }
        if count > 0 {
            self.plan.bookmark.note(self.partitions.positions());
        }
        drop(messages);
        ended.into_iter().for_each(|index| self.has_ended(index));
        self.failed.extend(failed);
        if let Some(costs) = &self.plan.costs {
            let fetch = fetched.saturating_sub(before) + spent().saturating_sub(decoded);
            costs.add(fetch, decoded.saturating_sub(fetched), count);
        }
        Ok(count)
    }

    /// Commits the source's last offsets, if nobody else does; true when that is over.
    fn is_told(&mut self) -> bool {
        let (Some(opened), true) = (&self.source, self.commits_by_time()) else {
            return true;
        };
        let now = self.bad.context().clock.now();
        let offsets = self.partitions.positions();
        let is_over = self.group.commit_last(&opened.consumer, now, offsets);
        if !is_over {
            // The answer comes with the consumer's events.
            let _ = opened.consumer.poll(crate::kafka::TURN);
        }
        is_over
    }

    /// Without epochs a named group is told of offsets now and then.
    fn commits_by_time(&self) -> bool {
        self.plan.group.is_some() && !self.bad.context().guarantee.keeps_state()
    }

    fn tell_group(&mut self) {
        if let (Some(opened), true) = (&self.source, self.commits_by_time()) {
            let now = self.bad.context().clock.now();
            let offsets = self.partitions.positions();
            self.group
                .commit_now_and_then(&opened.consumer, now, offsets);
        }
    }
}

impl<T, F> Processor for ReadP<T, F>
where
    T: Send + 'static,
    F: Fn(&Message<'_>) -> Result<T, String> + Send + Sync + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        let selection = self.plan.topics.selection()?;
        if matches!(self.plan.start, Start::Positions(_)) && self.plan.topics.only().is_none() {
            let what = "positions without topics are given to a source that reads several";
            return Err(
                Error::new(ErrorCode::InvalidConfig, what).hint("use `Start::TopicPositions`")
            );
        }
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
        let consumer = self.plan.settings.consumer(&context.job, &fixed)?;
        self.kept.begin(context.instance, selection.clone());
        self.source = Some(Opened {
            consumer: Arc::new(consumer),
            selection,
            group,
        });
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
        let Some(reading) = &mut self.reading else {
            return Ok(Progress::DONE);
        };
        let is_complete = reading.is_complete;
        if self.plan.is_bounded && is_complete && self.partitions.are_done() {
            return Ok(Progress::done_if(self.is_told()));
        }
        let Some(mut intake) = reading.intake.take() else {
            return Ok(Progress::NONE);
        };
        let count = self.read(&mut intake, outbox)?;
        if let Some(reading) = &mut self.reading {
            reading.intake = Some(intake);
        }
        for (index, code, reason) in std::mem::take(&mut self.failed) {
            self.has_failed(index, code, reason)?;
        }
        self.notice_replaced()?;
        if is_complete {
            self.tell_time(outbox);
        }
        self.tell_group();
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
        if let Some(opened) = &self.source {
            self.partitions
                .learn(opened.consumer.context().identities());
        }
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
        if let (Some(offsets), Some(opened)) = (self.kept.commit(epoch), &self.source) {
            let offsets = offsets.iter().map(|(id, next)| (id, *next));
            group_offsets::commit(&opened.consumer, offsets);
        }
        Ok(Progress::DONE)
    }

    fn close(&mut self) {
        // The queues before their consumer.
        self.reading = None;
        self.source = None;
    }
}
