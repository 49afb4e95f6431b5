//! A spout whose instance is a process.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Clock, Epoch, Result};
use ardea_instance::protocol::{
    ComponentConfiguration, EmitReader, FLAG_MORE, FrameType, InstanceControl, InstanceFrame,
    InstanceRole, SPOUT_IS_DONE, Violation,
};
use ardea_instance::{HostEvent, InstanceSlot, ProcessKind, ReadyItem, RestartPolicy, SharedParts};

use super::failed_messages::FailedMessages;
use super::{ProcessParts, SentParallelism, TupleFormat, check_stream, outputs_of};
use crate::compile::SpoutWiring;
use crate::context::ComponentContext;
use crate::failure::{Failure, Outcome};
use crate::outputs::Outputs;
use crate::spout::{MessageId, Next, Spout, SpoutCollector};
use crate::state::ComponentState;

/// The maximum number of tuples of a request.
const MAX_REQUEST: usize = 1024;
/// The longest wait for the process, which wakes the instance earlier.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// A tuple that the process has emitted.
#[derive(Debug)]
struct SpoutTuple {
    /// The id of the message, if the tuple is tracked.
    message: Option<u64>,
    /// The place of the tuple in its payload.
    place: Range<usize>,
}

/// The tuples of an EMIT that are not emitted yet.
#[derive(Debug)]
struct SpoutTuples {
    payload: Vec<u8>,
    tuples: VecDeque<SpoutTuple>,
    /// The number of the process that has sent them.
    process: u64,
}

/// A spout whose instance is a process.
pub(crate) struct ProcessSpout {
    shared: SharedParts,
    format: TupleFormat,
    declares_state: bool,
    told: SentParallelism,
    /// True if the process asked for the next request while it was waiting.
    is_woken: bool,
    wiring: Arc<SpoutWiring>,
    /// The process, from `open` on.
    slot: InstanceSlot,
    clock: Clock,
    keeps_state: bool,
    received: VecDeque<SpoutTuples>,
    /// The maximum number of tuples that the present request may still bring.
    requested: u32,
    /// The earliest time of the next request.
    next_at: Duration,
    is_done: bool,
    failed: FailedMessages,
    /// The number of the present process, from zero.
    process: u64,
    /// The process and the id there of each pending message.
    messages: HashMap<u64, (u64, u64)>,
    next_message: u64,
}

impl ProcessSpout {
    pub(crate) fn new(parts: &ProcessParts, wiring: &Arc<SpoutWiring>) -> Self {
        ProcessSpout {
            shared: parts.shared.clone(),
            format: parts.format,
            declares_state: parts.traits.declares_state,
            told: SentParallelism::default(),
            is_woken: false,
            wiring: Arc::clone(wiring),
            slot: InstanceSlot::with_states(parts.traits.states.clone()),
            clock: Clock::system(),
            keeps_state: false,
            received: VecDeque::new(),
            requested: 0,
            next_at: Duration::ZERO,
            is_done: false,
            failed: FailedMessages::default(),
            process: 0,
            messages: HashMap::new(),
            next_message: 0,
        }
    }

    /// Takes what the process has sent.
    fn receive(&mut self) -> Result<()> {
        loop {
            let event = self.slot.host_mut()?.next_event(&self.format)?;
            let Some(event) = event else { return Ok(()) };
            match event {
                HostEvent::Answered => self.take_answered()?,
                HostEvent::Received(frame) if frame.head.kind == FrameType::Emit => {
                    let taken = self.on_emit(frame);
                    let host = self.slot.host()?;
                    taken.map_err(|violation| host.broken(violation))?;
                }
                HostEvent::Restarted => {
                    self.process += 1;
                    self.is_done = false;
                    self.next_at = Duration::ZERO;
                    self.failed.on_restart();
                }
                HostEvent::Received(frame) if frame.head.kind == FrameType::Wake => {
                    self.is_woken = true;
                    self.next_at = Duration::ZERO;
                }
                HostEvent::Received(_) | HostEvent::Ended => {}
            }
        }
    }

    /// Takes the state of a barrier, if it was received.
    fn take_answered(&mut self) -> Result<()> {
        let host = self.slot.host_mut()?;
        while let Some(item) = host.session_mut().take_answered() {
            if let ReadyItem::State(epoch, payloads) = item {
                host.take_state(epoch, payloads)?;
            }
        }
        Ok(())
    }

    fn on_emit(&mut self, frame: InstanceFrame) -> Result<(), Violation> {
        let has_more = frame.head.has(FLAG_MORE);
        let payload = frame.payload;
        let mut reader = EmitReader::read(&payload)?;
        let count = reader.left();
        // A spout in Rust returns when it is asked to, and what it emits until then is not lost.
        let is_own = self.shared.kind == ProcessKind::Own;
        if count > self.requested && !is_own {
            let what = format!(
                "an EMIT has {count} tuples, and {} were requested",
                self.requested
            );
            return Err(Violation::new(what));
        }
        self.requested = self.requested.saturating_sub(count);
        let mut tuples = VecDeque::with_capacity(count as usize);
        while let Some(tuple) = reader.next_tuple()? {
            let message = match &*tuple.anchors {
                [] => None,
                [message] => Some(message.batch),
                _ => return Err(Violation::new("a tuple of a spout has several message ids")),
            };
            let start = tuple.value.as_ptr().addr() - payload.as_ptr().addr();
            let place = start..start + tuple.value.len();
            tuples.push_back(SpoutTuple { message, place });
        }
        self.failed.on_tuples(count);
        let wait = reader.wait_millis()?;
        if wait < SPOUT_IS_DONE {
            return Err(Violation::new(format!("an EMIT has the wait {wait}")));
        }
        if !has_more {
            self.on_answer(wait);
        }
        self.received.push_back(SpoutTuples {
            payload,
            tuples,
            process: self.process,
        });
        Ok(())
    }

    /// Completes an answer with this wait in milliseconds.
    fn on_answer(&mut self, wait: i32) {
        self.failed.on_answer(wait != 0);
        // The process has more if a message failed after the request.
        let has_replays = self.failed.left() > 0;
        self.is_done = wait == SPOUT_IS_DONE && !has_replays;
        let wait = match has_replays || std::mem::take(&mut self.is_woken) {
            true => 0,
            false => u64::try_from(wait).unwrap_or(0),
        };
        self.next_at = self.clock.now() + Duration::from_millis(wait);
    }

    /// Emits received tuples while there is room; returns true if all are emitted.
    fn emit(&mut self, out: &mut SpoutCollector<'_>) -> Result<bool> {
        while let Some(part) = self.received.front_mut() {
            let Some(SpoutTuple { message, place }) = part.tuples.pop_front() else {
                self.received.pop_front();
                continue;
            };
            let host = self.slot.host()?;
            let document = part.payload.get(place).unwrap_or_default();
            let tuple = self.format.read_tuple(document, &self.wiring.streams);
            let tuple = tuple.map_err(|reason| host.broken(Violation::new(reason)))?;
            let checked = check_stream(&self.wiring.streams, tuple.stream);
            checked.map_err(|violation| host.broken(violation))?;
            let id = message.map(|message| {
                let id = self.next_message;
                self.next_message += 1;
                self.messages.insert(id, (part.process, message));
                MessageId(id)
            });
            out.emit_at(tuple.stream, tuple.target, id, &tuple)?;
            if out.is_full() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Tells the process a change of the topology.
    fn control(&mut self, control: InstanceControl) {
        if let (Ok(host), ProcessKind::Own) = (self.slot.host_mut(), self.shared.kind) {
            host.session_mut().push_control(control);
            host.send();
        }
    }

    /// Emits received tuples, then requests up to `limit` more: failed messages only, or any.
    fn turn(
        &mut self,
        limit: usize,
        failed_only: bool,
        out: &mut SpoutCollector<'_>,
    ) -> Result<Next> {
        if let Some(parallelism) = self.told.changed(&self.wiring.parallelism) {
            self.control(InstanceControl {
                parallelism: Some(parallelism),
                ..InstanceControl::default()
            });
        }
        self.receive()?;
        if !self.emit(out)? {
            return Ok(Next::More);
        }
        let host = self.slot.host_mut()?;
        if host.session().has_request() {
            host.send();
            return Ok(Next::Wait(MAX_WAIT));
        }
        if self.is_done {
            return Ok(Next::Done);
        }
        let now = self.clock.now();
        if now < self.next_at {
            host.send();
            return Ok(Next::Wait(self.next_at - now));
        }
        let limit = limit.min(out.room()).clamp(1, MAX_REQUEST) as u32;
        let session = host.session_mut();
        let is_requested = match failed_only {
            true => session.request_failed(limit),
            false => session.request_tuples(limit),
        };
        if is_requested {
            self.requested = limit;
            self.failed.on_request();
        }
        host.send();
        Ok(Next::Wait(MAX_WAIT))
    }

    /// Reports outcomes of messages to the process that has sent them, if it still runs.
    fn report(&mut self, outcomes: impl Iterator<Item = (MessageId, bool)>) {
        let process = self.process;
        let messages = &mut self.messages;
        let outcomes: Vec<(u64, bool)> = outcomes
            .filter_map(|(message, is_acked)| {
                let (sender, id) = messages.remove(&message.0)?;
                (sender == process).then_some((id, is_acked))
            })
            .collect();
        if let (Ok(host), false) = (self.slot.host_mut(), outcomes.is_empty()) {
            host.session_mut().push_message_outcomes(&outcomes);
            host.send();
        }
    }
}

impl Spout for ProcessSpout {
    fn outputs(&self) -> Outputs {
        Outputs::none()
    }

    fn state(&mut self) -> ComponentState<'_> {
        match self.declares_state {
            true => ComponentState::Checkpointed(&mut self.slot),
            false => ComponentState::Undeclared,
        }
    }

    fn open(&mut self, context: &ComponentContext) -> Outcome {
        let context = context.instance_context();
        self.clock = context.clock.clone();
        self.keeps_state = context.guarantee.keeps_state();
        let wiring = &self.wiring;
        let component = ComponentConfiguration {
            role: InstanceRole::Spout,
            inputs: Vec::new(),
            outputs: outputs_of(&wiring.streams),
            acks: wiring.ack_queues.is_some(),
            max_pending: Some(wiring.max_pending)
                .filter(|most| *most != usize::MAX)
                .map(|most| most as u64),
            parallelism: match self.shared.kind {
                ProcessKind::Own => self.told.first(&wiring.parallelism),
                ProcessKind::Foreign => BTreeMap::new(),
            },
        };
        let format = self.format.as_str();
        let configuration = self
            .shared
            .component_configuration(context, false, format, component);
        // The tuples of a dead process may be lost or repeated, with and without state.
        let on_death = match self.keeps_state {
            true => RestartPolicy::Fail,
            false => RestartPolicy::Restart,
        };
        let shared = self.shared.clone();
        let slot = &mut self.slot;
        let started = slot.start(shared, context, configuration, on_death);
        started.map_err(Failure::of_the_job)
    }

    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        self.turn(MAX_REQUEST, false, out)
            .map_err(Failure::of_the_job)
    }

    fn next_batch(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        self.next_tuple(out)
    }

    fn next_failed(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        self.receive().map_err(Failure::of_the_job)?;
        let has_request = self.slot.host()?.session().has_request();
        if self.failed.left() == 0 && !has_request {
            let is_emitted = self.emit(out).map_err(Failure::of_the_job)?;
            return Ok(if is_emitted { Next::Done } else { Next::More });
        }
        let limit = self.failed.left() as usize;
        self.turn(limit, true, out).map_err(Failure::of_the_job)
    }

    fn prepare_snapshot(
        &mut self,
        epoch: Option<Epoch>,
        out: &mut SpoutCollector<'_>,
    ) -> Outcome<bool> {
        self.receive().map_err(Failure::of_the_job)?;
        if !self.emit(out).map_err(Failure::of_the_job)? {
            return Ok(false);
        }
        let host = self.slot.host_mut()?;
        if host.session().has_request() {
            return Ok(false);
        }
        if !self.keeps_state {
            return Ok(true);
        }
        let epoch = match epoch {
            Some(epoch) => {
                host.request_state(epoch);
                epoch
            }
            None => host.request_last_state(),
        };
        host.send();
        // An instance without state answers at once.
        self.take_answered().map_err(Failure::of_the_job)?;
        Ok(self.slot.host()?.has_state(epoch))
    }

    fn ack(&mut self, message: MessageId) {
        self.report(std::iter::once((message, true)));
    }

    fn ack_batch(&mut self, messages: &[MessageId]) {
        self.report(messages.iter().map(|message| (*message, true)));
    }

    fn fail(&mut self, message: MessageId) {
        self.failed.on_failure();
        self.is_done = false;
        self.next_at = Duration::ZERO;
        self.report(std::iter::once((message, false)));
    }

    fn activate(&mut self) {
        self.control(InstanceControl {
            active: Some(true),
            ..InstanceControl::default()
        });
    }

    fn deactivate(&mut self) {
        self.control(InstanceControl {
            active: Some(false),
            ..InstanceControl::default()
        });
    }

    fn close(&mut self) {
        if let Some(host) = self.slot.take() {
            host.stop_detached();
        }
    }
}
