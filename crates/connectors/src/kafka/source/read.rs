//! Processor of the Kafka source.

mod checkpointed_offsets;
mod discovery_results;
mod group_offsets;
mod intake;
pub(super) mod message_form;
mod pending_messages;

use std::collections::BTreeMap;
use std::sync::Arc;

use ardea_core::{
    BadRecords, Checkpointed, Epoch, Error, ErrorCode, InstanceContext, Marker, Outbox, Processor,
    Progress, RecordGuard, RestoredState, Result, SnapshotRequest, SnapshotWriter, SourceControl,
    Timestamp, thread_cpu_time,
};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::BorrowedMessage;

use super::KafkaSourceConfig;
use super::decoders::DecodeMessage;
use crate::kafka::client_context::KafkaClientContext;
use crate::kafka::discovery::{Discovery, DiscoveryConfig};
use crate::kafka::fingerprint::Fingerprint;
use crate::kafka::identity::Replaced;
use crate::kafka::message::Message;
use crate::kafka::partitions::Partitions;
use crate::kafka::positions::Start;
use crate::kafka::topics::Selection;
use checkpointed_offsets::CheckpointedOffsets;
use group_offsets::GroupOffsets;
use intake::{Intake, Taken};
use message_form::{MessageForm, MessageOutput};
use pending_messages::PendingMessages;

/// Processor that reads the partitions of one instance. It first takes a chunk of messages and then
/// decodes them, so that both steps can be measured.
pub(crate) struct ReadP<M: MessageForm> {
    plan: KafkaSourceConfig,
    decoder: M::Decoder,
    bad: BadRecords,
    partitions: Partitions,
    source: Option<Opened>,
    reading: Option<Reading>,
    /// Partition errors received with the latest messages.
    failed: Vec<(usize, RDKafkaErrorCode, String)>,
    /// Topics that were deleted and created again, until all their partitions have been handled.
    replaced: BTreeMap<String, Replaced>,
    /// Read positions stored in the checkpoint.
    kept: CheckpointedOffsets,
    group: GroupOffsets,
    held: PendingMessages,
    /// The event times of the records of a batch.
    times: Vec<Timestamp>,
}

/// A source with an open consumer.
struct Opened {
    consumer: Arc<BaseConsumer<KafkaClientContext>>,
    selection: Selection,
    group: String,
}

/// State of a running instance.
struct Reading {
    discovery: Discovery,
    /// The consumer queues; `None` while messages taken from them are decoded.
    intake: Option<Intake>,
    /// True if all initial partitions are known.
    is_complete: bool,
}

/// Fixed settings on which the guarantees depend.
const FIXED: &[(&str, &str)] = &[
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    ("enable.partition.eof", "true"),
    // Records removed from the topic must not be skipped silently.
    ("auto.offset.reset", "error"),
];

impl<M: MessageForm> ReadP<M> {
    pub fn new(plan: KafkaSourceConfig, decoder: M::Decoder) -> Self {
        ReadP {
            bad: BadRecords::new(plan.on_error),
            partitions: Partitions::new(plan.time),
            plan,
            decoder,
            source: None,
            reading: None,
            failed: Vec::new(),
            replaced: BTreeMap::new(),
            kept: CheckpointedOffsets::default(),
            group: GroupOffsets::default(),
            held: PendingMessages::default(),
            times: Vec::new(),
        }
    }

    /// Starts partition discovery, unless it is running.
    fn begin(&mut self) -> Result<()> {
        let (Some(opened), None) = (&self.source, &self.reading) else {
            return Ok(());
        };
        let context = self.bad.context();
        let discovery = Discovery::start(DiscoveryConfig {
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

    /// Decodes the messages, up to the first one that has to wait. Holds the others.
    fn decode(
        &mut self,
        messages: &[(usize, BorrowedMessage<'_>)],
        output: &mut M::Output<'_>,
    ) -> Result<()> {
        let mut guard = RecordGuard::new();
        let mut runs = messages.iter().peekable();
        let mut run = None;
        while let Some((index, fetched)) = runs.next() {
            // Messages of a partition arrive in runs and share the topic's name.
            let of_run = run
                .take()
                .filter(|(of, _)| of == index)
                .unwrap_or_else(|| (*index, Arc::clone(&self.partitions.at(*index).0.topic)));
            let topic = &of_run.1;
            let (message, is_timed) = Message::of(topic, fetched);
            if !self.held.is_empty() || !self.decoder.is_ready(&message)? {
                self.held.add(*index, topic, fetched);
            } else if self.emit(*index, &message, is_timed, output)?
                && runs.peek().is_none_or(|(next, _)| next != index)
            {
                self.partitions.last_was(*index, Fingerprint::of(fetched));
            }
            run = Some(of_run);
            guard.advance();
        }
        Ok(())
    }

    /// Decodes a message into the output; returns false if it is outside the range to read.
    #[inline]
    fn emit(
        &mut self,
        index: usize,
        message: &Message<'_>,
        is_timed: std::result::Result<(), String>,
        output: &mut M::Output<'_>,
    ) -> Result<bool> {
        if !self
            .partitions
            .message(index, message.offset, message.timestamp)
        {
            return Ok(false);
        }
        let record = is_timed
            .and_then(|()| self.check_time(message))
            .and_then(|()| self.decoder.decode(message));
        match record {
            Ok(Some(record)) => output.push(record, message.timestamp),
            Ok(None) => {}
            Err(reason) => self.bad.report(
                || {
                    format!(
                        "{}[{}]@{}",
                        message.topic, message.partition, message.offset
                    )
                },
                || message.value.unwrap_or_default().to_vec(),
                reason,
            )?,
        }
        Ok(true)
    }

    /// Decodes the messages held by an earlier call. Returns the number of messages.
    fn read_held(&mut self, outbox: &mut Outbox) -> Result<usize> {
        let mut times = std::mem::take(&mut self.times);
        let mut output = M::begin(outbox, &self.decoder, &mut times)?;
        let mut count = 0;
        while output.room() > 0
            && let Some(held) = self.held.messages.front()
        {
            if let Ok(record) = &held.record
                && !self.decoder.is_ready(&Message::from(record))?
            {
                break;
            }
            let Some(held) = self.held.messages.pop_front() else {
                break;
            };
            let (index, last) = (held.index, held.fingerprint);
            let is_read = match &held.record {
                Ok(record) => self.emit(index, &record.into(), Ok(()), &mut output)?,
                Err(reason) => {
                    let id = self.partitions.at(index).0.clone();
                    let unread = Message::unreadable(&id, held.offset, &held.raw);
                    self.emit(index, &unread, Err(reason.clone()), &mut output)?
                }
            };
            if is_read {
                self.partitions.last_was(index, last);
            }
            count += 1;
        }
        drop(output);
        M::finish(outbox, &mut self.decoder, &mut times)?;
        self.times = times;
        if count > 0 {
            self.plan.bookmark.note(self.partitions.positions());
        }
        if self.held.is_empty() {
            let ended = std::mem::take(&mut self.held.ended);
            ended.into_iter().for_each(|index| self.has_ended(index));
        }
        Ok(count)
    }

    fn check_time(&self, message: &Message<'_>) -> std::result::Result<(), String> {
        match self.plan.needs_timestamps && !message.timestamp.is_event_time() {
            true => Err("it has no timestamp".to_string()),
            false => Ok(()),
        }
    }

    /// Emits the watermark and idleness.
    fn emit_time(&mut self, outbox: &mut Outbox) {
        let now = self.bad.context().clock.now();
        let saying = self.partitions.time(now);
        if let Some(watermark) = saying.watermark {
            outbox.watermark(watermark);
        }
        if saying.is_idle {
            outbox.marker(Marker::Idle);
        }
    }

    /// Reads a chunk. Returns the number of messages.
    fn read(&mut self, intake: &mut Intake, outbox: &mut Outbox) -> Result<usize> {
        let mut times = std::mem::take(&mut self.times);
        let mut output = M::begin(outbox, &self.decoder, &mut times)?;
        let is_measured = self.plan.costs.is_some();
        let spent = || is_measured.then(thread_cpu_time).unwrap_or_default();
        let consumer = Arc::clone(&intake.consumer);
        let before = spent();
        let taken = intake.take(output.room());
        let Taken {
            messages,
            ended,
            failed,
        } = taken.map_err(|error| self.cannot_read(error))?;
        let fetched = spent();
        self.decode(&messages, &mut output)?;
        drop(output);
        M::finish(outbox, &mut self.decoder, &mut times)?;
        self.times = times;
        let decoded = spent();
        let count = messages.len();
        if count > 0 || !ended.is_empty() {
            consumer.context().report_response();
        }
        if count > 0 {
            self.plan.bookmark.note(self.partitions.positions());
        }
        drop(messages);
        if self.held.is_empty() {
            ended.into_iter().for_each(|index| self.has_ended(index));
        } else {
            self.held.ended = ended;
        }
        self.failed.extend(failed);
        if let Some(costs) = &self.plan.costs {
            let fetch = fetched.saturating_sub(before) + spent().saturating_sub(decoded);
            costs.add(fetch, decoded.saturating_sub(fetched), count);
        }
        Ok(count)
    }

    /// Commits the last offsets if the job has no checkpoints; returns true when the commit is
    /// finished.
    fn commit_last_offsets(&mut self) -> bool {
        let (Some(opened), true) = (&self.source, self.commits_by_time()) else {
            return true;
        };
        let now = self.bad.context().clock.now();
        let offsets = self.partitions.positions();
        let is_over = self.group.commit_last(&opened.consumer, now, offsets);
        if !is_over {
            // The response arrives with the consumer's events.
            let _ = opened
                .consumer
                .poll(crate::blocking_worker::CANCEL_CHECK_INTERVAL);
        }
        is_over
    }

    /// Returns true if offsets are committed periodically: a group is set and the job has no
    /// checkpoints.
    fn commits_by_time(&self) -> bool {
        self.plan.group.is_some() && !self.bad.context().guarantee.keeps_state()
    }

    fn commit_group_offsets(&mut self) {
        if let (Some(opened), true) = (&self.source, self.commits_by_time()) {
            let now = self.bad.context().clock.now();
            let offsets = self.partitions.positions();
            self.group
                .commit_now_and_then(&opened.consumer, now, offsets);
        }
    }
}

impl<M: MessageForm> Processor for ReadP<M> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        self.decoder.attach(context)?;
        let selection = self.plan.topics.selection()?;
        if matches!(self.plan.start, Start::Positions(_)) && self.plan.topics.only().is_none() {
            let what = "a source of several topics needs start positions by topic";
            return Err(
                Error::new(ErrorCode::InvalidConfig, what).hint("use `Start::TopicPositions`")
            );
        }
        // librdkafka requires a group name even for assigned partitions; the source joins no group.
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
            // The start is determined after the restore.
            return Ok(());
        }
        self.begin()
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.bad.context().signals.is_cancelled() {
            return Ok(Progress::DONE);
        }
        if !M::accepts(outbox) {
            return Ok(Progress::NONE);
        }
        self.begin()?;
        let news = self.apply_results()?;
        let Some(reading) = &mut self.reading else {
            return Ok(Progress::DONE);
        };
        let is_complete = reading.is_complete;
        if self.plan.is_bounded && is_complete && self.partitions.are_done() {
            return Ok(Progress::done_if(self.commit_last_offsets()));
        }
        if !self.held.is_empty() {
            let count = self.read_held(outbox)?;
            return Ok(Progress {
                made: news || count > 0,
                done: false,
            });
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
        if is_complete && self.held.is_empty() {
            self.emit_time(outbox);
        }
        self.commit_group_offsets();
        Ok(Progress {
            made: news || count > 0,
            done: false,
        })
    }

    fn close(&mut self) {
        // Queues must be dropped before their consumer.
        self.reading = None;
        self.source = None;
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }
}

impl<M: MessageForm> Checkpointed for ReadP<M> {
    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        let moves = matches!(self.plan.start, Start::Latest);
        if let Some(opened) = &self.source {
            self.partitions
                .learn(opened.consumer.context().identities());
        }
        self.kept
            .take_snapshot(snapshot, self.partitions.reached(), moves)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.kept.write_snapshot(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.kept.restore(state)
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        self.kept.resume()?;
        Ok(Progress::DONE)
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        if let (Some(offsets), Some(opened)) = (self.kept.commit(epoch), &self.source) {
            let offsets = offsets.iter().map(|(id, next)| (id, *next));
            group_offsets::commit(&opened.consumer, offsets);
        }
        Ok(Progress::DONE)
    }
}

impl<M: MessageForm> SourceControl for ReadP<M> {
    fn is_at_end(&self) -> bool {
        self.plan.is_bounded
            && self.partitions.are_done()
            && self
                .reading
                .as_ref()
                .is_some_and(|reading| reading.is_complete)
    }
}
