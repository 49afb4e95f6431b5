//! A bolt whose instance is a process.

mod answers;

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Epoch, Error, ErrorCode, Inbox, Instance, InstanceContext, Ordinal, Outbox,
    PartitionId, Processor, Progress, Result, Timestamp, Watermark,
};
use ardea_instance::protocol::{
    ComponentConfiguration, ComponentInput, InstanceControl, InstanceRole, PendingRow,
    RowBatchWriter,
};
use ardea_instance::{EncodedBatch, InstanceSlot, ProcessKind, RestartPolicy, SharedParts};

use super::rows::{SentTuple, SentTuples};
use super::{ProcessParts, SentParallelism, TupleFormat, names, outputs_of};
use crate::ack_batcher::AckBatcher;
use crate::batch::TupleBatch;
use crate::collector::{AckBookkeeping, Collector, PendingTuple};
use crate::compile::BoltWiring;
use crate::emitter::Emitter;
use crate::grouping::write_key;
use crate::state::{ComponentState, StatefulComponent, UNDECLARED_BOLT, UNSAVED_ACKS};
use crate::tuple::{Origin, Tuples};

/// The process of an instance, and its tuples.
struct ProcessBolt {
    /// The process, from `init` on.
    slot: InstanceSlot,
    /// Tuples that the process has not answered.
    sent: SentTuples,
    /// Tuples that the process holds.
    held: HashMap<PendingRow, PendingTuple>,
    declares_state: bool,
}

impl ProcessBolt {
    fn state(&mut self) -> ComponentState<'_> {
        match self.declares_state {
            true => ComponentState::Checkpointed(&mut self.slot),
            false => ComponentState::Undeclared,
        }
    }
}

#[cold]
fn unopened() -> Error {
    Error::new(ErrorCode::Internal, "a bolt is used before its start")
}

/// One instance of a bolt in a process, in the graph.
pub(crate) struct ProcessBoltProcessor {
    /// The bolt; it has ended if it was asked to finish since the latest tuple.
    bolt: StatefulComponent<ProcessBolt>,
    shared: SharedParts,
    format: TupleFormat,
    told: SentParallelism,
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

impl ProcessBoltProcessor {
    pub(crate) fn new(parts: &ProcessParts, wiring: &Arc<BoltWiring>, instance: Instance) -> Self {
        let traits = &parts.traits;
        let bolt = ProcessBolt {
            slot: InstanceSlot::with_states(traits.states.clone()),
            sent: SentTuples::default(),
            held: HashMap::new(),
            declares_state: traits.declares_state,
        };
        let tick = wiring.tick.or(traits.tick);
        let inputs = wiring.inputs.iter();
        ProcessBoltProcessor {
            bolt: StatefulComponent::new(bolt, ProcessBolt::state, instance),
            shared: parts.shared.clone(),
            format: parts.format,
            told: SentParallelism::default(),
            origins: inputs.map(|input| input.for_instance(instance)).collect(),
            wiring: Arc::clone(wiring),
            tick: tick.filter(|tick| !tick.is_zero()),
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
    fn component(&mut self) -> ComponentConfiguration {
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
            parallelism: match self.shared.kind {
                ProcessKind::Own => self.told.first(&self.wiring.parallelism),
                ProcessKind::Foreign => BTreeMap::new(),
            },
        }
    }

    /// Takes what the process has sent while there is room, and sends frames.
    fn turn(&mut self, outbox: &mut Outbox) -> Result<()> {
        if self.shared.kind == ProcessKind::Own
            && let Some(parallelism) = self.told.changed(&self.wiring.parallelism)
        {
            let session = self.bolt.slot.host_mut()?.session_mut();
            session.push_control(InstanceControl {
                parallelism: Some(parallelism),
                ..InstanceControl::default()
            });
        }
        loop {
            let has_room = match &mut self.running {
                Some(running) => {
                    let emitter = &mut running.bookkeeping.emitter;
                    !emitter.is_full() || emitter.flush(outbox)?
                }
                None => return Err(unopened()),
            };
            let host = self.bolt.slot.host()?;
            let has_state = self.barrier.is_some_and(|epoch| host.has_state(epoch));
            // Without state it is complete before the answer to an earlier tick.
            let is_cut = has_state && !host.session().has_request();
            if !has_room || is_cut {
                break;
            }
            self.take_answered()?;
            let Some(event) = self.bolt.slot.host_mut()?.next_event(&self.format)? else {
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
        self.bolt.slot.host_mut()?.send();
        Ok(())
    }

    fn flush(&mut self, outbox: &mut Outbox) -> Result<bool> {
        match &mut self.running {
            Some(running) => running.bookkeeping.emitter.flush(outbox),
            None => Ok(true),
        }
    }

    /// Asks the process to finish unless it was asked since the latest tuple; returns true if it
    /// has, and all its output is sent.
    fn finish(&mut self, outbox: &mut Outbox) -> Result<bool> {
        if !self.bolt.has_ended {
            self.bolt.has_ended = true;
            let session = self.bolt.slot.host_mut()?.session_mut();
            session.push_watermark(Watermark::END);
        }
        self.turn(outbox)?;
        Ok(self.is_answered()? && self.flush(outbox)?)
    }

    /// Returns true if the process has answered all batches, requests and ticks.
    fn is_answered(&self) -> Result<bool> {
        let session = self.bolt.slot.host()?.session();
        Ok(session.is_empty() && !session.has_request())
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
        if self.barrier.is_some() {
            // The answer would follow the state. The end of the epoch wakes this instance.
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
        let host = self.bolt.slot.host_mut()?;
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

impl Processor for ProcessBoltProcessor {
    fn unsaved_state(&self) -> Option<&'static str> {
        if self.wiring.ack_queues.is_some() {
            return Some(UNSAVED_ACKS);
        }
        (!self.bolt.is_declared()).then_some(UNDECLARED_BOLT)
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
        let format = self.format.as_str();
        let configuration = shared.component_configuration(context, is_keyed, format, component);
        let on_death = match self.keeps_state() {
            true => RestartPolicy::FailWithState,
            false => RestartPolicy::Restart,
        };
        let slot = &mut self.bolt.slot;
        slot.start(shared, context, configuration, on_death)
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        self.turn(outbox)?;
        let (limit, format) = (self.shared.batch_limit_bytes(), self.format);
        let place = input.index();
        let (Some(origin), Some(key)) = (self.origins.get(place), self.wiring.inputs.get(place))
        else {
            return Err(unopened());
        };
        let waiting = inbox.batch::<TupleBatch>()?;
        let ProcessBolt { slot, sent, .. } = &mut *self.bolt;
        let host = slot.host_mut()?;
        let mut has_sent = false;
        while !waiting.is_empty() && host.session().has_room() {
            let tuples = Tuples {
                batch: waiting,
                origin,
            };
            let position = sent.next_position();
            let mut writer = RowBatchWriter::reusing(host.take_buffer());
            for tuple in tuples.iter() {
                let write_key = |out: &mut Vec<u8>| {
                    if format == TupleFormat::Encoded {
                        // The process finds keys as the engine does.
                        return None;
                    }
                    let places = key.key.as_deref()?;
                    let start = out.len();
                    write_key(tuple.encoded(), places, out);
                    Some(PartitionId::of_canonical(&out[start..]))
                };
                let pushed = writer.push(Timestamp::MIN, write_key, |out| {
                    format.write_tuple(place, &tuple, out);
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
                payload: writer.finish().into(),
            };
            host.session_mut().push_batch(batch, &format);
            waiting.discard_front(records as usize);
            has_sent = true;
        }
        if has_sent {
            // Some of the tuples may be poisoned, and need no answer.
            self.turn(outbox)?;
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
            self.bolt.slot.host_mut()?.request_state(epoch);
        }
        self.turn(outbox)?;
        if !self.is_answered()? || !self.flush(outbox)? {
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
        if self.bolt.slot.host()?.has_ended() {
            return Ok(Progress::DONE);
        }
        if !self.finish(outbox)? {
            return Ok(self.waiting());
        }
        if self.bolt.slot.host()?.has_ended() {
            return Ok(Progress::DONE);
        }
        if self.keeps_state() && !self.is_final {
            self.is_final = true;
            self.bolt.slot.host_mut()?.request_last_state();
            self.bolt.slot.host_mut()?.send();
            return Ok(Progress::MADE);
        }
        let host = self.bolt.slot.host_mut()?;
        if host.session().awaits_commit() && self.keeps_state() {
            // The process is stopped after the commit, when the instance is closed.
            return Ok(Progress::DONE);
        }
        let host = self.bolt.slot.host_mut()?;
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
        match self.shared.kind {
            // Its own `close` is called.
            ProcessKind::Own => {
                if let Some(host) = self.bolt.slot.take() {
                    host.stop_detached();
                }
            }
            ProcessKind::Foreign => {
                if let Ok(host) = self.bolt.slot.host() {
                    host.kill();
                }
            }
        }
    }
}
