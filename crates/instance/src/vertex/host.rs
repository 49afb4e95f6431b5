//! The host's side of a vertex: takes the place of the processor in its container.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Chunk, DeadLetter, Epoch, Error, Inbox, InstanceContext, Marker, MarkerDeferral,
    OnError, Ordinal, Outbox, Processor, Progress, Result, SourceControl, Watermark,
};

use super::{FORMAT, VertexParts, VertexTraits};
use crate::format::{BatchLayout, EncodedBatch};
use crate::host::{HostEvent, RestartPolicy};
use crate::protocol::{
    ComponentConfiguration, EdgeRecords, EmitReader, FLAG_MORE, FrameType, InstanceControl,
    InstanceFrame, InstanceRole, ResultReader, VERTEX_HAS_MORE, VERTEX_IS_AT_END, VERTEX_IS_DONE,
    VERTEX_WAITS, VertexCounts, VertexOutput, Violation, begin_records, read_records,
};
use crate::session::{InstanceSession, ReadyItem};
use crate::slot::InstanceSlot;

/// The longest wait of a vertex that has not said when it is to be called.
const IDLE_POLL: Duration = Duration::from_millis(10);

/// An output that waits for room.
#[derive(Debug)]
enum QueuedOutput {
    Records(Ordinal, Chunk),
    Marker(Marker),
}

/// The end of an input, as far as the process knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum InputEnd {
    Open,
    Sent,
    Answered,
}

/// The host of an instance of a vertex.
pub(super) struct VertexHost {
    parts: Arc<VertexParts>,
    traits: VertexTraits,
    /// The process, from `init` on.
    slot: InstanceSlot,
    context: InstanceContext,
    /// The outputs in the order in which the processor emitted them.
    queue: VecDeque<QueuedOutput>,
    spare: Vec<Chunk>,
    chunk: Chunk,
    ends: Vec<InputEnd>,
    /// The latest watermark that was sent, and the latest that was answered.
    sent: Watermark,
    answered: Watermark,
    /// The time at which the processor wants to be called.
    call_at: Option<Duration>,
    /// True if the processor has requested a call at once.
    is_woken: bool,
    /// The earliest time of the next request for output.
    next_at: Duration,
    is_done: bool,
    is_at_end: bool,
    was_paused: bool,
    /// The epoch whose end is being handled. Frames after its state belong to the next epoch.
    barrier: Option<Epoch>,
    /// True if all inputs have ended.
    is_completing: bool,
    /// True if the present call moved something.
    made_progress: bool,
}

impl VertexHost {
    pub(super) fn new(parts: &Arc<VertexParts>, traits: VertexTraits) -> Self {
        VertexHost {
            parts: Arc::clone(parts),
            slot: InstanceSlot::with_states(traits.states.clone().unwrap_or_default()),
            traits,
            context: InstanceContext::detached("detached"),
            queue: VecDeque::new(),
            spare: Vec::new(),
            chunk: Chunk::default(),
            ends: Vec::new(),
            sent: Watermark::NONE,
            answered: Watermark::NONE,
            call_at: None,
            is_woken: false,
            next_at: Duration::ZERO,
            is_done: false,
            is_at_end: false,
            was_paused: false,
            barrier: None,
            is_completing: false,
            made_progress: false,
        }
    }

    fn is_source(&self) -> bool {
        self.parts.inputs.is_empty()
    }

    fn keeps_state(&self) -> bool {
        self.traits.states.is_some() && self.context.guarantee.keeps_state()
    }

    fn session(&mut self) -> Result<&mut InstanceSession> {
        Ok(self.slot.host_mut()?.session_mut())
    }

    /// Takes what the process has sent while there is room, and sends frames.
    fn turn(&mut self, outbox: &mut Outbox) -> Result<()> {
        loop {
            self.take_ready()?;
            if !self.emit(outbox)? {
                break;
            }
            let host = self.slot.host_mut()?;
            if self.barrier.is_some_and(|epoch| host.has_state(epoch)) {
                break;
            }
            let Some(event) = host.next_event(&self.parts.inputs)? else {
                break;
            };
            self.made_progress = true;
            match event {
                HostEvent::Received(frame) if frame.head.kind == FrameType::Emit => {
                    self.on_emit(&frame)?;
                }
                HostEvent::Received(frame) if frame.head.kind == FrameType::Wake => {
                    self.is_woken = true;
                    self.next_at = Duration::ZERO;
                }
                HostEvent::Received(frame) if frame.head.kind == FrameType::Counts => {
                    let counts = frame.read_json();
                    self.count(counts.map_err(|violation| self.broken(violation))?);
                }
                HostEvent::Restarted => self.on_restarted()?,
                HostEvent::Received(_) | HostEvent::Answered | HostEvent::Ended => {}
            }
        }
        let now = self.context.clock.now();
        self.call_if_due(now)?;
        self.slot.host_mut()?.send();
        if !self.queue.is_empty() {
            // The rest is emitted when the outbox has room.
            outbox.wake_at(now);
        } else if let Some(at) = self.call_at.filter(|at| *at > now) {
            outbox.wake_at(at);
        }
        Ok(())
    }

    /// Requests a call of the processor if it is due. A vertex that emits on request needs none.
    fn call_if_due(&mut self, now: Duration) -> Result<()> {
        let is_due = self.is_woken || self.call_at.is_some_and(|at| now >= at);
        let may_call = !self.is_source() && !self.is_completing && self.barrier.is_none();
        if is_due && may_call && self.session()?.request_tick() {
            (self.is_woken, self.call_at) = (false, None);
        }
        Ok(())
    }

    /// Takes the answered items of the input, in their order.
    fn take_ready(&mut self) -> Result<()> {
        while let Some(ready) = self.session()?.take_ready() {
            self.made_progress = true;
            match ready {
                ReadyItem::Results {
                    batch, payloads, ..
                } => {
                    self.accept_all(&payloads)?;
                    if let Ok(EdgeRecords {
                        edge, records: 0, ..
                    }) = read_records(&batch.payload)
                        && let Some(end) = self.ends.get_mut(edge.index())
                    {
                        *end = InputEnd::Answered;
                    }
                    self.slot.host_mut()?.recycle(batch);
                }
                ReadyItem::Watermark(watermark, payloads) => {
                    self.accept_all(&payloads)?;
                    self.answered = watermark;
                }
                ReadyItem::Poisoned(record) => self.set_aside(&record)?,
                ReadyItem::Marker(marker) => self.queue.push_back(QueuedOutput::Marker(marker)),
                ReadyItem::State(epoch, payloads) => {
                    self.slot.host_mut()?.take_state(epoch, payloads)?;
                }
            }
        }
        Ok(())
    }

    /// Takes the payloads of RESULT frames.
    fn accept_all(&mut self, payloads: &[Vec<u8>]) -> Result<()> {
        for payload in payloads {
            self.call_at = None;
            let result = ResultReader::rows(payload, 1);
            let result = result.map_err(|violation| self.broken(violation))?;
            for output in result.outputs {
                self.accept(output.value)?;
            }
        }
        Ok(())
    }

    fn on_emit(&mut self, frame: &InstanceFrame) -> Result<()> {
        let read = EmitReader::read(&frame.payload);
        let mut reader = read.map_err(|violation| self.broken(violation))?;
        self.call_at = None;
        while let Some(item) = reader
            .next_tuple()
            .map_err(|violation| self.broken(violation))?
        {
            self.accept(item.value)?;
        }
        let answer = reader.wait_millis();
        let answer = answer.map_err(|violation| self.broken(violation))?;
        // The output of a barrier answers no request.
        if frame.head.has(FLAG_MORE) || frame.head.sequence == 0 {
            return Ok(());
        }
        let now = self.context.clock.now();
        self.next_at = match answer {
            VERTEX_HAS_MORE => now,
            VERTEX_WAITS if self.is_woken => now,
            VERTEX_WAITS => self.call_at.unwrap_or(now + IDLE_POLL),
            VERTEX_IS_DONE | VERTEX_IS_AT_END => {
                self.is_done = true;
                self.is_at_end |= answer == VERTEX_IS_AT_END;
                now
            }
            _ => return Err(self.broken(Violation::new(format!("an EMIT has the wait {answer}")))),
        };
        if self.is_source() || self.is_completing {
            self.is_woken = false;
        }
        Ok(())
    }

    /// Takes an item that the processor emitted.
    fn accept(&mut self, item: &[u8]) -> Result<()> {
        let output = VertexOutput::read(item).map_err(|violation| self.broken(violation))?;
        self.queue.push_back(match output {
            VertexOutput::CallAfter(after) => {
                self.call_at = Some(self.context.clock.now() + after);
                return Ok(());
            }
            VertexOutput::Marker(marker) => QueuedOutput::Marker(marker),
            VertexOutput::Records(EdgeRecords {
                edge,
                records,
                payload,
            }) => {
                let Some(codec) = self.parts.outputs.get(edge.index()) else {
                    let what = format!("an output is that of the edge {}", edge.index());
                    return Err(self.broken(Violation::new(what)));
                };
                let mut chunk = self.spare.pop().unwrap_or_default();
                codec.decode(records as usize, payload, &mut chunk)?;
                QueuedOutput::Records(edge, chunk)
            }
        });
        Ok(())
    }

    #[cold]
    fn broken(&self, violation: Violation) -> Error {
        match self.slot.host() {
            Ok(host) => host.broken(violation),
            Err(error) => error,
        }
    }

    /// Emits outputs in their order; returns true if none waits for room.
    fn emit(&mut self, outbox: &mut Outbox) -> Result<bool> {
        while let Some(output) = self.queue.front_mut() {
            match output {
                QueuedOutput::Records(edge, chunk) => {
                    if !outbox.offer_chunk(*edge, chunk)? {
                        return Ok(false);
                    }
                    if chunk.is_allocated() && self.spare.len() <= self.parts.outputs.len() {
                        self.spare.push(std::mem::take(chunk));
                    }
                }
                QueuedOutput::Marker(marker) => outbox.marker(*marker),
            }
            self.queue.pop_front();
        }
        Ok(true)
    }

    /// Counts the records that the processor has counted.
    fn count(&self, counts: VertexCounts) {
        let metrics = &self.context.metrics;
        metrics.count_late(counts.late);
        metrics.count_late_in_part(counts.late_in_part);
        metrics.count_bad(counts.bad);
    }

    /// Handles a record that was in flight at too many deaths.
    fn set_aside(&self, record: &EncodedBatch) -> Result<()> {
        let deaths = self.parts.shared.suspects.deaths(record);
        self.context.metrics.count_bad(u64::from(record.records));
        let letter = || DeadLetter {
            vertex: self.context.vertex.to_string(),
            origin: format!("record {}", record.position),
            raw: self.parts.inputs.raw(record, 0),
            reason: format!("its process died {deaths} times while it had this record"),
        };
        self.context
            .dead_letters
            .handle(OnError::DeadLetter, letter)
    }

    /// Tells a new process what an earlier one knew. Unanswered items are sent again anyway.
    fn on_restarted(&mut self) -> Result<()> {
        (self.is_done, self.is_woken, self.call_at) = (false, false, None);
        self.next_at = Duration::ZERO;
        if self.answered > Watermark::NONE && self.answered == self.sent {
            let watermark = self.answered;
            self.session()?.push_watermark(watermark);
        }
        for input in 0..self.ends.len() {
            if self.ends[input] == InputEnd::Answered {
                self.send_end(Ordinal(input as u16))?;
            }
        }
        Ok(())
    }

    /// Sends the end of an input.
    fn send_end(&mut self, input: Ordinal) -> Result<()> {
        let mut payload = Vec::new();
        begin_records(input, &mut payload);
        let batch = EncodedBatch {
            records: 0,
            position: 0,
            payload: payload.into(),
        };
        let session = self.slot.host_mut()?.session_mut();
        session.push_batch(batch, &self.parts.inputs);
        if let Some(end) = self.ends.get_mut(input.index()) {
            *end = InputEnd::Sent;
        }
        Ok(())
    }

    /// Requests output until the processor is done, then the last state.
    fn finish(&mut self, drains: bool, outbox: &mut Outbox) -> Result<Progress> {
        self.made_progress = false;
        self.turn(outbox)?;
        let keeps_state = self.keeps_state();
        let host = self.slot.host_mut()?;
        let is_answered = host.session().is_empty() && !host.session().has_request();
        if !self.queue.is_empty() || !is_answered {
            return Ok(self.waiting());
        }
        if !self.is_done {
            let now = self.context.clock.now();
            if now < self.next_at && !drains {
                outbox.wake_at(self.next_at);
                return Ok(self.waiting());
            }
            match drains {
                true => host.session_mut().request_failed(1),
                false => host.session_mut().request_tuples(1),
            };
            host.send();
            return Ok(self.waiting());
        }
        if keeps_state {
            let last = host.request_last_state();
            host.send();
            if !host.has_state(last) {
                return Ok(self.waiting());
            }
        }
        Ok(Progress::DONE)
    }

    /// Returns the progress of a callback that is not done.
    fn waiting(&mut self) -> Progress {
        Progress {
            made: std::mem::take(&mut self.made_progress),
            done: false,
        }
    }
}

impl Processor for VertexHost {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.context = context.clone();
        self.ends = vec![InputEnd::Open; context.inputs.len()];
        let loses_output = self.is_source() || self.traits.states.is_some();
        let on_death = match loses_output && context.guarantee.keeps_state() {
            true => RestartPolicy::Fail,
            false => RestartPolicy::Restart,
        };
        let shared = self.parts.shared.clone();
        let vertex = ComponentConfiguration {
            role: InstanceRole::Vertex,
            ..ComponentConfiguration::default()
        };
        let configuration = shared.component_configuration(context, false, FORMAT, vertex);
        // The process starts while other instances are restored.
        self.slot.start(shared, context, configuration, on_death)
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        self.turn(outbox)?;
        let parts = Arc::clone(&self.parts);
        let mut position = inbox.position();
        let mut chunk = std::mem::take(&mut self.chunk);
        inbox.swap(&mut chunk);
        let mut outcome = Ok(());
        while !chunk.is_empty() && self.session()?.has_room() {
            let host = self.slot.host_mut()?;
            let (limit, buffer) = (parts.shared.batch_limit_bytes(), host.take_buffer());
            let (records, payload) = match parts.inputs.encode(input, &mut chunk, limit, buffer) {
                Ok(encoded) => encoded,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            };
            let batch = EncodedBatch {
                records,
                position,
                payload: payload.into(),
            };
            position += u64::from(records);
            host.session_mut().push_batch(batch, &parts.inputs);
        }
        inbox.swap(&mut chunk);
        self.chunk = chunk;
        self.slot.host_mut()?.send();
        outcome
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.made_progress = false;
        self.turn(outbox)?;
        if !self.session()?.accepts_items() {
            return Ok(self.waiting());
        }
        self.sent = watermark;
        self.session()?.push_watermark(watermark);
        self.turn(outbox)?;
        Ok(Progress::DONE)
    }

    fn on_edge_done(&mut self, input: Ordinal, outbox: &mut Outbox) -> Result<Progress> {
        self.made_progress = false;
        self.turn(outbox)?;
        if !self.session()?.accepts_items() {
            return Ok(self.waiting());
        }
        self.send_end(input)?;
        self.turn(outbox)?;
        Ok(Progress::DONE)
    }

    fn on_epoch(&mut self, epoch: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        self.made_progress = false;
        self.barrier = Some(epoch);
        self.slot.host_mut()?.request_state(epoch);
        self.turn(outbox)?;
        if !self.queue.is_empty() || !self.slot.host()?.has_state(epoch) {
            return Ok(self.waiting());
        }
        self.barrier = None;
        // For frames after the state.
        self.context.waker.wake();
        Ok(Progress::DONE)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.is_completing = true;
        let is_paused = self.context.signals.is_paused();
        if self.traits.pauses_itself && is_paused != self.was_paused {
            self.was_paused = is_paused;
            self.session()?.push_control(InstanceControl {
                active: Some(!is_paused),
                ..InstanceControl::default()
            });
        }
        let progress = self.finish(false, outbox)?;
        self.is_at_end |= progress.done;
        Ok(progress)
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.turn(outbox)
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        match self.traits.states {
            Some(_) => Some(&mut self.slot),
            None => None,
        }
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        match self.is_source() {
            true => Some(self),
            false => None,
        }
    }

    fn marker_deferral(&mut self) -> Option<&mut dyn MarkerDeferral> {
        Some(self)
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        self.traits.unsaved
    }

    fn close(&mut self) {
        // The processor's own `close` is called.
        if let Some(host) = self.slot.take() {
            host.stop_detached();
        }
    }
}

impl SourceControl for VertexHost {
    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.finish(true, outbox)
    }

    fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    fn pauses_itself(&self) -> bool {
        self.traits.pauses_itself
    }
}

impl MarkerDeferral for VertexHost {
    /// Queues a marker behind the records in the process, if there are any.
    fn defer(&mut self, marker: Marker) -> Result<bool> {
        let session = self.slot.host_mut()?.session_mut();
        if !session.is_empty() {
            session.push_marker(marker);
            return Ok(true);
        }
        if self.queue.is_empty() {
            return Ok(false);
        }
        self.queue.push_back(QueuedOutput::Marker(marker));
        Ok(true)
    }
}
