//! A bolt whose instance is a process.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Epoch, Error, ErrorCode, Inbox, Instance, InstanceContext, Ordinal, Outbox,
    PartitionId, Processor, Progress, RestoredState, Result, SnapshotRequest, SnapshotWriter,
    StateShape, Timestamp, Watermark,
};
use ardea_instance::protocol::{
    ComponentConfiguration, ComponentInput, EmitReader, FrameType, HeldRow, InstanceFrame,
    InstanceRole, NOT_ANCHORED, ResultReader, RowBatchWriter, Violation, read_tuple_acks,
};
use ardea_instance::{
    BatchLayout, DeathPolicy, EncodedBatch, HostEvent, InstanceHost, ProcessState, ReadyItem,
    RowLayout, SharedParts,
};

use super::json_tuple::{ReceivedTuple, write_tuple};
use super::rows::{SentTuple, SentTuples};
use super::{names, outputs_of, stream_at, unopened};
use crate::ack_batcher::AckBatcher;
use crate::batch::TupleBatch;
use crate::collector::{AckBookkeeping, Collector, PendingTuple};
use crate::compile::BoltWiring;
use crate::emitter::{Emitter, StreamPlan};
use crate::failure::{Failure, Outcome};
use crate::grouping::write_key;
use crate::state::{ComponentState, StatefulComponent, UNSAVED_ACKS};
use crate::tuple::{Origin, Tuples};

/// The maximum number of tuples that an instance holds.
const MAX_HELD: usize = 1 << 20;

/// The process of an instance, and its tuples.
struct ProcessBolt {
    /// Present from `init` on.
    host: Option<InstanceHost>,
    state: ProcessState,
    /// Tuples that the process has not answered.
    sent: SentTuples,
    /// Tuples that the process holds.
    held: HashMap<HeldRow, PendingTuple>,
}

impl ProcessBolt {
    fn state(&mut self) -> ComponentState<'_> {
        ComponentState::Checkpointed(self)
    }

    fn host(&mut self) -> Result<&mut InstanceHost> {
        self.host.as_mut().ok_or_else(unopened)
    }
}

/// One instance of a bolt in a process, in the graph.
pub(super) struct ProcessBoltProcessor {
    /// The bolt; it has ended if it was asked to finish since the latest tuple.
    bolt: StatefulComponent<ProcessBolt>,
    shared: SharedParts,
    wiring: Arc<BoltWiring>,
    /// The origin of the tuples of each input.
    origins: Vec<Origin>,
    tick: Option<Duration>,
    tick_due: Option<Duration>,
    running: Option<Running>,
    /// True if all spouts are done: only replayed tuples follow.
    has_seen_end: bool,
    /// The epoch whose end is being handled. Frames after its state belong to the next epoch.
    barrier: Option<Epoch>,
    /// True if the last state was requested.
    is_final: bool,
    /// True if the present call moved something.
    made_progress: bool,
}

/// The state that exists from `init` on.
struct Running {
    context: InstanceContext,
    bookkeeping: AckBookkeeping,
}

impl Running {
    /// Calls `work` with a collector, and counts the failures.
    fn collect<R>(&mut self, work: impl FnOnce(&mut Collector<'_>) -> Result<R>) -> Result<R> {
        let mut out = Collector::new(&mut self.bookkeeping, &self.context);
        let outcome = work(&mut out);
        let failures = out.failures;
        if failures > 0 {
            self.context.metrics.count_bad(failures);
        }
        outcome
    }
}

/// The outcome of a row.
#[derive(Clone, Debug)]
enum RowOutcome {
    Acked,
    Held,
    Failed(String),
}

impl ProcessBoltProcessor {
    pub(super) fn new(shared: SharedParts, wiring: &Arc<BoltWiring>, instance: Instance) -> Self {
        let bolt = ProcessBolt {
            host: None,
            state: ProcessState::new(instance),
            sent: SentTuples::default(),
            held: HashMap::new(),
        };
        let inputs = wiring.inputs.iter();
        ProcessBoltProcessor {
            bolt: StatefulComponent::new(bolt, ProcessBolt::state, instance),
            shared,
            origins: inputs.map(|input| input.for_instance(instance)).collect(),
            wiring: Arc::clone(wiring),
            tick: wiring.tick.filter(|tick| !tick.is_zero()),
            tick_due: None,
            running: None,
            has_seen_end: false,
            barrier: None,
            is_final: false,
            made_progress: false,
        }
    }

    fn keeps_state(&self) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.context.guarantee.keeps_state())
    }

    /// Returns the part of CONFIGURE that describes the bolt.
    fn component(&self) -> ComponentConfiguration {
        let inputs = self.origins.iter().map(|origin| ComponentInput {
            component: origin.component.to_string(),
            stream: origin.stream.to_string(),
            fields: names(&origin.fields),
        });
        ComponentConfiguration {
            role: InstanceRole::Bolt,
            inputs: inputs.collect(),
            outputs: outputs_of(&self.wiring.streams),
            acks: self.wiring.ack_queues.is_some(),
            max_pending: None,
        }
    }

    /// Takes what the process has sent while there is room, and sends frames.
    fn turn(&mut self, outbox: &mut Outbox) -> Result<()> {
        loop {
            let has_room = match &mut self.running {
                Some(running) => {
                    let emitter = &mut running.bookkeeping.emitter;
                    !emitter.is_full() || emitter.flush(outbox)?
                }
                None => return Err(unopened()),
            };
            let has_state = self.barrier.is_some_and(|epoch| self.bolt.state.has(epoch));
            if !has_room || has_state {
                break;
            }
            let Some(event) = self.bolt.host()?.next_event(&RowLayout)? else {
                break;
            };
            self.made_progress = true;
            self.on_event(event)?;
        }
        if !self.flush(outbox)?
            && let Some(running) = &self.running
        {
            // The rest is sent when the outbox has room.
            outbox.wake_at(running.context.clock.now());
        }
        if let Some(running) = &mut self.running {
            running.bookkeeping.ack_batcher.flush();
        }
        self.bolt.host()?.send();
        Ok(())
    }

    fn flush(&mut self, outbox: &mut Outbox) -> Result<bool> {
        match &mut self.running {
            Some(running) => running.bookkeeping.emitter.flush(outbox),
            None => Ok(true),
        }
    }

    fn on_event(&mut self, event: HostEvent) -> Result<()> {
        match event {
            HostEvent::Answered => loop {
                let item = self.bolt.host()?.session_mut().take_answered();
                let Some(item) = item else { return Ok(()) };
                self.on_item(item)?;
            },
            HostEvent::Received(frame) => match frame.head.kind {
                FrameType::Emit => self.on_emit(&frame),
                FrameType::Acks => self.on_acks(&frame),
                _ => Ok(()),
            },
            HostEvent::Restarted => self.fail_held(),
            HostEvent::Ended => Ok(()),
        }
    }

    fn on_item(&mut self, item: ReadyItem) -> Result<()> {
        match item {
            ReadyItem::Results {
                sequence,
                batch,
                payloads,
            } => self.on_results(sequence, &batch, &payloads),
            ReadyItem::Poisoned(batch) => {
                let deaths = self.shared.suspects.deaths(&batch);
                let reason = format!("its process died {deaths} times while it had this tuple");
                self.settle(0, &batch, &[RowOutcome::Failed(reason)])
            }
            ReadyItem::State(epoch, payloads) => {
                let bolt = &mut *self.bolt;
                let host = bolt.host.as_ref().ok_or_else(unopened)?;
                let taken = bolt.state.replace(epoch, payloads);
                taken.map_err(|violation| host.broken(violation))
            }
            ReadyItem::Watermark(..) | ReadyItem::Marker(_) => Ok(()),
        }
    }

    /// Emits the tuples of an answered batch, and settles its rows.
    fn on_results(
        &mut self,
        sequence: u64,
        batch: &EncodedBatch,
        payloads: &[Vec<u8>],
    ) -> Result<()> {
        let bolt = &mut *self.bolt;
        let host = bolt.host.as_ref().ok_or_else(unopened)?;
        let running = self.running.as_mut().ok_or_else(unopened)?;
        let streams = &self.wiring.streams;
        let mut outcomes = vec![RowOutcome::Acked; batch.records as usize];
        let sent = &bolt.sent;
        running.collect(|out| {
            for payload in payloads {
                let result = ResultReader::bolt(payload, batch.records);
                let result = result.map_err(|violation| host.broken(violation))?;
                for output in result.outputs {
                    let is_anchored = output.row != NOT_ANCHORED;
                    let position = batch.position + u64::from(output.row);
                    let anchor = sent.get(position).filter(|_| is_anchored);
                    match ReceivedTuple::read(output.value) {
                        Ok(tuple) => {
                            let stream = stream_at(streams, tuple.stream);
                            let stream = stream.map_err(|violation| host.broken(violation))?;
                            emit(out, anchor, stream, &tuple)?;
                        }
                        Err(reason) if is_anchored => {
                            outcomes[output.row as usize] = RowOutcome::Failed(reason);
                        }
                        Err(reason) => return Err(host.broken(Violation::new(reason))),
                    }
                }
                for row in result.held {
                    if let Some(outcome @ RowOutcome::Acked) = outcomes.get_mut(row as usize) {
                        *outcome = RowOutcome::Held;
                    }
                }
                for failure in result.failures {
                    if let Some(outcome) = outcomes.get_mut(failure.row as usize) {
                        *outcome = RowOutcome::Failed(failure.reason);
                    }
                }
            }
            Ok(())
        })?;
        self.settle(sequence, batch, &outcomes)
    }

    /// Acks, holds and fails the rows of a batch.
    fn settle(
        &mut self,
        sequence: u64,
        batch: &EncodedBatch,
        outcomes: &[RowOutcome],
    ) -> Result<()> {
        let ProcessBolt { sent, held, .. } = &mut *self.bolt;
        let running = self.running.as_mut().ok_or_else(unopened)?;
        let origins = &self.origins;
        let rows = sent.take(batch.position, batch.records);
        running.collect(|out| {
            for ((row, outcome), SentTuple { input, tuple }) in (0..).zip(outcomes).zip(rows) {
                match outcome {
                    RowOutcome::Acked => out.ack(tuple),
                    RowOutcome::Held => {
                        let batch = sequence;
                        held.insert(HeldRow { batch, row }, tuple);
                    }
                    RowOutcome::Failed(reason) => {
                        let failure = Failure::new(reason);
                        let failed = out.fail_as(&tuple, &failure, || {
                            let origin = origins.get(input);
                            let origin = origin.map_or_else(String::new, Origin::to_string);
                            (origin, RowLayout.raw(batch, row))
                        });
                        not_set_aside(failed)?;
                    }
                }
            }
            Ok(())
        })?;
        if held.len() > MAX_HELD {
            let what = format!(
                "the process `{}` holds too many tuples",
                self.shared.command
            );
            return Err(Error::new(ErrorCode::LimitReached, what)
                .hint(format!("ack or fail them: at most {MAX_HELD} are possible")));
        }
        Ok(())
    }

    /// Emits tuples that the process emits outside of a batch.
    fn on_emit(&mut self, frame: &InstanceFrame) -> Result<()> {
        let ProcessBolt { host, held, .. } = &mut *self.bolt;
        let host = host.as_ref().ok_or_else(unopened)?;
        let running = self.running.as_mut().ok_or_else(unopened)?;
        let streams = &self.wiring.streams;
        running.collect(|out| {
            let read = || -> Result<Vec<_>, Violation> {
                let mut reader = EmitReader::read(&frame.payload)?;
                let mut tuples = Vec::new();
                while let Some(tuple) = reader.next_tuple()? {
                    let anchors = tuple.anchors.iter();
                    let anchors = anchors.map(|row| held.get(row).ok_or_else(|| not_held(*row)));
                    let anchors = anchors.collect::<Result<Vec<_>, _>>()?;
                    let tuple = ReceivedTuple::read(tuple.value).map_err(Violation::new)?;
                    let stream = stream_at(streams, tuple.stream)?;
                    tuples.push((anchors, stream, tuple));
                }
                reader.wait_millis()?;
                Ok(tuples)
            };
            let tuples = read().map_err(|violation| host.broken(violation))?;
            for (anchors, stream, tuple) in tuples {
                emit(out, anchors, stream, &tuple)?;
            }
            Ok(())
        })
    }

    /// Acks and fails held tuples.
    fn on_acks(&mut self, frame: &InstanceFrame) -> Result<()> {
        let ProcessBolt { host, held, .. } = &mut *self.bolt;
        let host = host.as_ref().ok_or_else(unopened)?;
        let running = self.running.as_mut().ok_or_else(unopened)?;
        let acks = read_tuple_acks(&frame.payload);
        let acks = acks.map_err(|violation| host.broken(violation))?;
        running.collect(|out| {
            for ack in acks {
                let Some(tuple) = held.remove(&ack.held) else {
                    return Err(host.broken(not_held(ack.held)));
                };
                match ack.failure {
                    None => out.ack(tuple),
                    Some(reason) => not_set_aside(out.fail(tuple, &Failure::new(reason)))?,
                }
            }
            Ok(())
        })
    }

    /// Fails the tuples that a dead process held.
    fn fail_held(&mut self) -> Result<()> {
        let held = std::mem::take(&mut self.bolt.held);
        let running = self.running.as_mut().ok_or_else(unopened)?;
        let failure = Failure::new("the process that held it died");
        running.collect(|out| {
            let mut held = held.into_values();
            held.try_for_each(|tuple| not_set_aside(out.fail(tuple, &failure)))
        })
    }

    /// Asks the process to finish unless it was asked since the latest tuple; returns true if it
    /// has, and all its output is sent.
    fn finish(&mut self, outbox: &mut Outbox) -> Result<bool> {
        if !self.bolt.has_ended {
            self.bolt.has_ended = true;
            let session = self.bolt.host()?.session_mut();
            session.push_watermark(Watermark::END);
        }
        self.turn(outbox)?;
        let is_answered = self.bolt.host()?.session().is_empty();
        Ok(self.flush(outbox)? && is_answered)
    }

    /// Requests a tick if it is due, and sets the timer for the next one.
    fn tick_if_due(&mut self, outbox: &mut Outbox) -> Result<()> {
        let (Some(interval), Some(due)) = (self.tick, self.tick_due) else {
            return Ok(());
        };
        let now = self
            .running
            .as_ref()
            .ok_or_else(unopened)?
            .context
            .clock
            .now();
        if now < due {
            outbox.wake_at(due);
            return Ok(());
        }
        // Missed ticks are skipped.
        let next = if due + interval > now {
            due + interval
        } else {
            now + interval
        };
        self.tick_due = Some(next);
        outbox.wake_at(next);
        let host = self.bolt.host()?;
        if host.session_mut().request_tick() {
            host.send();
        }
        Ok(())
    }

    /// Returns the progress of a callback that is not done.
    fn waiting(&mut self) -> Progress {
        Progress {
            made: std::mem::take(&mut self.made_progress),
            done: false,
        }
    }
}

/// Emits a tuple, anchored to `anchors`.
fn emit<'h>(
    out: &mut Collector<'_>,
    anchors: impl IntoIterator<Item = &'h PendingTuple>,
    stream: &StreamPlan,
    tuple: &ReceivedTuple,
) -> Result<()> {
    let emitted = out.tied_to(anchors, |out| {
        match tuple.target {
            Some(instance) => out.emit_direct(instance, &stream.name, tuple)?,
            None => out.emit_to(&stream.name, tuple)?,
        }
        Ok(())
    });
    emitted.map_err(|failure| failure.into_error("a tuple of a process could not be emitted"))
}

fn not_set_aside(failed: Outcome) -> Result<()> {
    failed.map_err(|failure| failure.into_error("a failed tuple could not be set aside"))
}

fn not_held(HeldRow { batch, row }: HeldRow) -> Violation {
    Violation::new(format!(
        "row {row} of batch {batch} is named, and the process does not hold it"
    ))
}

impl Processor for ProcessBoltProcessor {
    fn unsaved_state(&self) -> Option<&'static str> {
        self.wiring.ack_queues.is_some().then_some(UNSAVED_ACKS)
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        self.bolt.checkpointed()
    }

    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        let wiring = &self.wiring;
        let emitter = Emitter::new(
            Arc::clone(&context.vertex),
            &wiring.streams,
            &wiring.parallelism,
            wiring.ack_queues.is_some(),
            context.chunk_records,
        );
        let acks = AckBatcher::new(wiring.ack_queues.clone());
        self.running = Some(Running {
            context: context.clone(),
            bookkeeping: AckBookkeeping::new(emitter, acks),
        });
        self.tick_due = self.tick.map(|interval| context.clock.now() + interval);
        if self.tick_due.is_some() {
            // The first call sets the timer.
            context.waker.wake();
        }
        let is_keyed = self.wiring.inputs.iter().any(|input| input.key.is_some());
        let component = self.component();
        let shared = self.shared.clone();
        let configuration = shared.component_configuration(context, is_keyed, component);
        let on_death = match self.keeps_state() {
            true => DeathPolicy::FailWithState,
            false => DeathPolicy::Restart,
        };
        let host = InstanceHost::start(shared, context, configuration, on_death)?;
        self.bolt.host = Some(host);
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        self.turn(outbox)?;
        let limit = self.shared.batch_limit_bytes();
        let place = input.index();
        let (Some(origin), Some(key)) = (self.origins.get(place), self.wiring.inputs.get(place))
        else {
            return Err(unopened());
        };
        let waiting = inbox.batch::<TupleBatch>()?;
        let ProcessBolt { host, sent, .. } = &mut *self.bolt;
        let host = host.as_mut().ok_or_else(unopened)?;
        let mut has_sent = false;
        while !waiting.is_empty() && host.session().has_room() {
            let tuples = Tuples {
                batch: waiting,
                origin,
            };
            let position = sent.next_position();
            let mut writer = RowBatchWriter::default();
            for tuple in tuples.iter() {
                let write_key = |out: &mut Vec<u8>| {
                    let places = key.key.as_deref()?;
                    let start = out.len();
                    write_key(tuple.encoded(), places, out);
                    Some(PartitionId::of_canonical(&out[start..]))
                };
                let pushed = writer.push(Timestamp::MIN, write_key, |out| {
                    write_tuple(place, &tuple, out);
                    Ok::<(), Infallible>(())
                });
                pushed.unwrap_or_else(|never| match never {});
                sent.push(SentTuple {
                    input: place,
                    tuple: PendingTuple::of(&tuple),
                });
                if writer.byte_len() >= limit {
                    break;
                }
            }
            let records = writer.records();
            let batch = EncodedBatch {
                records,
                position,
                payload: writer.finish(),
            };
            host.session_mut().push_batch(batch, &RowLayout);
            waiting.discard_front(records as usize);
            has_sent = true;
        }
        host.send();
        if has_sent {
            self.bolt.has_ended = false;
            if let Some(running) = self.running.as_ref().filter(|_| self.has_seen_end) {
                // The end is not signalled again: the process must finish again after these tuples.
                running.context.waker.wake();
            }
        }
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.made_progress = false;
        if watermark == Watermark::END {
            self.has_seen_end = true;
            if !self.finish(outbox)? {
                return Ok(self.waiting());
            }
        }
        outbox.watermark(watermark);
        Ok(Progress::DONE)
    }

    fn on_epoch(&mut self, epoch: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        self.made_progress = false;
        if self.keeps_state() {
            self.barrier = Some(epoch);
            let ProcessBolt { host, state, .. } = &mut *self.bolt;
            let host = host.as_mut().ok_or_else(unopened)?;
            state.request(epoch, host.session_mut());
        }
        self.turn(outbox)?;
        let session = self.bolt.host()?.session();
        let is_answered = session.is_empty() && !session.has_request();
        if !is_answered || !self.flush(outbox)? {
            return Ok(self.waiting());
        }
        self.barrier = None;
        if let Some(running) = &self.running {
            // For frames after the state.
            running.context.waker.wake();
        }
        Ok(Progress::DONE)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.made_progress = false;
        if self.bolt.host()?.has_ended() {
            return Ok(Progress::DONE);
        }
        if !self.finish(outbox)? {
            return Ok(self.waiting());
        }
        if self.bolt.host()?.has_ended() {
            return Ok(Progress::DONE);
        }
        if self.keeps_state() && !self.is_final {
            self.is_final = true;
            let ProcessBolt { host, state, .. } = &mut *self.bolt;
            let host = host.as_mut().ok_or_else(unopened)?;
            let last = Epoch(state.requested().0 + 1);
            state.request(last, host.session_mut());
            host.send();
            return Ok(Progress::MADE);
        }
        let host = self.bolt.host()?;
        host.session_mut().stop();
        host.send();
        Ok(self.waiting())
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.turn(outbox)?;
        if self.has_seen_end {
            self.finish(outbox)?;
        }
        self.tick_if_due(outbox)
    }

    fn close(&mut self) {
        if let Some(host) = &self.bolt.host {
            host.kill();
        }
    }
}

impl Checkpointed for ProcessBolt {
    fn states(&mut self) -> Vec<StateShape> {
        Vec::new()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        self.state.take_snapshot(snapshot)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.state.write(writer)
    }

    fn restore(&mut self, entries: &mut RestoredState<'_>) -> Result<()> {
        let host = self.host.as_mut().ok_or_else(unopened)?;
        self.state.restore(entries, host.session_mut())
    }

    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        let host = self.host.as_mut().ok_or_else(unopened)?;
        self.state.on_restored(epoch, host.session_mut());
        Ok(Progress::DONE)
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.state.commit(epoch);
        let host = self.host.as_mut().ok_or_else(unopened)?;
        host.session_mut().push_commit(epoch);
        host.send();
        Ok(Progress::DONE)
    }
}
