//! A spout whose instance is a process.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Clock, Epoch, Instance, Progress, RestoredState, Result, SnapshotRequest,
    SnapshotWriter, StateShape,
};
use ardea_instance::protocol::{
    ComponentConfiguration, EmitReader, FrameType, InstanceFrame, InstanceRole, SPOUT_IS_DONE,
    Violation, write_message_outcomes,
};
use ardea_instance::{
    HostEvent, InstanceHost, ProcessState, ReadyItem, RestartPolicy, RowLayout, SharedParts,
};

use super::json_tuple::ReceivedTuple;
use super::{outputs_of, stream_at, unopened};
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
pub(super) struct ProcessSpout {
    shared: SharedParts,
    wiring: Arc<SpoutWiring>,
    /// Present from `open` on.
    host: Option<InstanceHost>,
    clock: Clock,
    keeps_state: bool,
    state: ProcessState,
    received: VecDeque<SpoutTuples>,
    /// The maximum number of tuples that the present request may still bring.
    requested: u32,
    /// The earliest time of the next request.
    next_at: Duration,
    is_done: bool,
    /// The number of failed messages since the latest request.
    failures: u32,
    /// The number of the present process, from zero.
    process: u64,
    /// The process and the id there of each pending message.
    messages: HashMap<u64, (u64, u64)>,
    next_message: u64,
    /// The number of the last state, once it was requested.
    last_epoch: Option<Epoch>,
}

impl ProcessSpout {
    pub(super) fn new(shared: SharedParts, wiring: &Arc<SpoutWiring>, instance: Instance) -> Self {
        ProcessSpout {
            shared,
            wiring: Arc::clone(wiring),
            host: None,
            clock: Clock::system(),
            keeps_state: false,
            state: ProcessState::new(instance),
            received: VecDeque::new(),
            requested: 0,
            next_at: Duration::ZERO,
            is_done: false,
            failures: 0,
            process: 0,
            messages: HashMap::new(),
            next_message: 0,
            last_epoch: None,
        }
    }

    fn host(&mut self) -> Result<&mut InstanceHost> {
        self.host.as_mut().ok_or_else(unopened)
    }

    /// Takes what the process has sent.
    fn receive(&mut self) -> Result<()> {
        loop {
            let event = self.host()?.next_event(&RowLayout)?;
            let Some(event) = event else { return Ok(()) };
            match event {
                HostEvent::Answered => self.take_answered()?,
                HostEvent::Received(frame) if frame.head.kind == FrameType::Emit => {
                    let taken = self.on_emit(frame);
                    let host = self.host.as_ref().ok_or_else(unopened)?;
                    taken.map_err(|violation| host.broken(violation))?;
                }
                HostEvent::Restarted => {
                    self.process += 1;
                    self.is_done = false;
                    self.next_at = Duration::ZERO;
                }
                HostEvent::Received(_) | HostEvent::Ended => {}
            }
        }
    }

    /// Takes the state of a barrier, if it was received.
    fn take_answered(&mut self) -> Result<()> {
        let host = self.host.as_mut().ok_or_else(unopened)?;
        while let Some(item) = host.session_mut().take_answered() {
            if let ReadyItem::State(epoch, payloads) = item {
                let taken = self.state.replace(epoch, payloads);
                taken.map_err(|violation| host.broken(violation))?;
            }
        }
        Ok(())
    }

    fn on_emit(&mut self, frame: InstanceFrame) -> Result<(), Violation> {
        let payload = frame.payload;
        let mut reader = EmitReader::read(&payload)?;
        let count = reader.left();
        if count > self.requested {
            let what = format!(
                "an EMIT has {count} tuples, and {} were requested",
                self.requested
            );
            return Err(Violation::new(what));
        }
        self.requested -= count;
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
        let wait = reader.wait_millis()?;
        self.is_done = wait == SPOUT_IS_DONE;
        let wait = Duration::from_millis(u64::try_from(wait).unwrap_or(0));
        self.next_at = self.clock.now() + wait;
        self.received.push_back(SpoutTuples {
            payload,
            tuples,
            process: self.process,
        });
        Ok(())
    }

    /// Emits received tuples while there is room; returns true if all are emitted.
    fn emit(&mut self, out: &mut SpoutCollector<'_>) -> Result<bool> {
        while let Some(part) = self.received.front_mut() {
            let Some(SpoutTuple { message, place }) = part.tuples.pop_front() else {
                self.received.pop_front();
                continue;
            };
            let host = self.host.as_ref().ok_or_else(unopened)?;
            let document = part.payload.get(place).unwrap_or_default();
            let tuple = ReceivedTuple::read(document);
            let tuple = tuple.map_err(|reason| host.broken(Violation::new(reason)))?;
            let stream = stream_at(&self.wiring.streams, tuple.stream);
            let name = &stream.map_err(|violation| host.broken(violation))?.name;
            let Some(message) = message else {
                match tuple.target {
                    Some(instance) => out.emit_direct(instance, name, &tuple)?,
                    None => out.emit_to(name, &tuple)?,
                }
                if out.is_full() {
                    return Ok(false);
                }
                continue;
            };
            let id = self.next_message;
            self.next_message += 1;
            self.messages.insert(id, (part.process, message));
            match tuple.target {
                Some(instance) => out.emit_direct_tracked(MessageId(id), instance, name, &tuple)?,
                None => out.emit_tracked_to(MessageId(id), name, &tuple)?,
            }
            if out.is_full() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Emits received tuples, then requests up to `limit` more.
    fn turn(&mut self, limit: usize, out: &mut SpoutCollector<'_>) -> Result<Next> {
        self.receive()?;
        if !self.emit(out)? {
            return Ok(Next::More);
        }
        if self.host()?.session().has_request() {
            self.host()?.send();
            return Ok(Next::Wait(MAX_WAIT));
        }
        if self.is_done {
            return Ok(Next::Done);
        }
        let now = self.clock.now();
        if now < self.next_at {
            self.host()?.send();
            return Ok(Next::Wait(self.next_at - now));
        }
        let limit = limit.min(out.room()).clamp(1, MAX_REQUEST) as u32;
        if self.host()?.session_mut().request_tuples(limit) {
            self.requested = limit;
            self.failures = 0;
        }
        self.host()?.send();
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
        if let Some(host) = self.host.as_mut().filter(|_| !outcomes.is_empty()) {
            let payload = write_message_outcomes(&outcomes);
            host.session_mut().push_message_outcomes(payload);
            host.send();
        }
    }
}

impl Spout for ProcessSpout {
    fn outputs(&self) -> Outputs {
        Outputs::none()
    }

    fn state(&mut self) -> ComponentState<'_> {
        ComponentState::Checkpointed(self)
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
        };
        let configuration = self
            .shared
            .component_configuration(context, false, component);
        // The tuples of a dead process may be lost or repeated, with and without state.
        let on_death = match self.keeps_state {
            true => RestartPolicy::Fail,
            false => RestartPolicy::Restart,
        };
        let shared = self.shared.clone();
        let host = InstanceHost::start(shared, context, configuration, on_death);
        self.host = Some(host.map_err(Failure::of_the_job)?);
        Ok(())
    }

    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        self.turn(MAX_REQUEST, out).map_err(Failure::of_the_job)
    }

    fn next_batch(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        self.next_tuple(out)
    }

    fn next_failed(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        self.receive().map_err(Failure::of_the_job)?;
        let has_request = self.host()?.session().has_request();
        if self.failures == 0 && !has_request {
            let is_emitted = self.emit(out).map_err(Failure::of_the_job)?;
            return Ok(if is_emitted { Next::Done } else { Next::More });
        }
        let limit = self.failures as usize;
        self.turn(limit, out).map_err(Failure::of_the_job)
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
        let ProcessSpout {
            host,
            state,
            last_epoch,
            ..
        } = self;
        let host = host.as_mut().ok_or_else(unopened)?;
        if host.session().has_request() {
            return Ok(false);
        }
        if !self.keeps_state {
            return Ok(true);
        }
        let epoch = epoch.unwrap_or_else(|| {
            let next = Epoch(state.requested().0 + 1);
            *last_epoch.get_or_insert(next)
        });
        state.request(epoch, host.session_mut());
        host.send();
        // An instance without state answers at once.
        self.take_answered().map_err(Failure::of_the_job)?;
        Ok(self.state.has(epoch))
    }

    fn ack(&mut self, message: MessageId) {
        self.report(std::iter::once((message, true)));
    }

    fn ack_batch(&mut self, messages: &[MessageId]) {
        self.report(messages.iter().map(|message| (*message, true)));
    }

    fn fail(&mut self, message: MessageId) {
        self.failures += 1;
        self.is_done = false;
        self.next_at = Duration::ZERO;
        self.report(std::iter::once((message, false)));
    }

    fn close(&mut self) {
        if let Some(host) = self.host.take() {
            host.stop_detached();
        }
    }
}

impl Checkpointed for ProcessSpout {
    fn states(&mut self) -> Vec<StateShape> {
        Vec::new()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        // The next snapshot needs another state.
        self.last_epoch = None;
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
