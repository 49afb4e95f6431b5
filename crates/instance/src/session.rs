//! The host's side of the protocol, as a pure state machine.
//!
//! The session holds the items of the input in their order until their results are taken. It
//! decides which frames are sent, checks each frame of the instance, and keeps the batches in
//! flight, so that they can be sent again to a new process.

mod pending;
mod requests;
mod suspects;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use ardea_core::{Epoch, Marker, Watermark};

use crate::format::{BatchLayout, EncodedBatch};
use crate::protocol::{
    FLAG_AWAITS_COMMIT, FLAG_LAST, FLAG_MORE, FLAG_OF_WATERMARK, FrameHead, FrameType,
    GuestFailure, GuestHello, HostHello, InstanceConfiguration, InstanceControl, InstanceFrame,
    InstanceRole, ProtocolRange, SharedFrame, Violation,
};
use pending::{Answer, Content, Pending};
pub use suspects::Suspects;

/// Maximum payload of all parts of an answer.
const MAX_ANSWER_BYTES: usize = 1 << 30;

/// The phase of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionPhase {
    /// The instance has not sent HELLO.
    Starting,
    /// CONFIGURE is sent, and READY not received.
    Configuring,
    /// The instance processes records.
    Running,
    /// STOP is sent.
    Stopping,
}

/// The reason why a session cannot continue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionError {
    /// The instance broke the protocol.
    Violation(Violation),
    /// The instance speaks no version of this host.
    Version(ProtocolRange),
    /// The instance does not read the format of the step; its own formats.
    Format(Vec<String>),
    /// The instance does not have the required role; its own roles.
    Role(InstanceRole, Vec<String>),
    /// The instance has no state, and the checkpoint has.
    Stateless,
    /// The instance reported a failure.
    Failed(GuestFailure),
}

impl From<Violation> for SessionError {
    fn from(violation: Violation) -> Self {
        SessionError::Violation(violation)
    }
}

/// The next item whose results can be emitted.
#[derive(PartialEq, Eq, Debug)]
pub enum ReadyItem {
    /// The results of a batch.
    Results {
        /// The sequence of the batch.
        sequence: u64,
        /// The batch.
        batch: EncodedBatch,
        /// The payloads of its RESULT frames.
        payloads: Vec<Vec<u8>>,
    },
    /// A record that is not sent any more, because it was in flight at too many deaths.
    Poisoned(EncodedBatch),
    /// A watermark that may be passed on after its results.
    Watermark(Watermark, Vec<Vec<u8>>),
    /// The state at the end of an epoch.
    State(Epoch, Vec<Vec<u8>>),
    /// A marker.
    Marker(Marker),
}

/// The records in flight at the death of a process.
#[derive(PartialEq, Eq, Debug, Default)]
pub struct InFlight {
    /// The number of records.
    pub records: u64,
    /// The first of them.
    pub first: Option<EncodedBatch>,
}

/// The settings of a session.
#[derive(Clone, Debug)]
pub struct SessionSettings {
    /// Maximum number of unanswered batches.
    pub window_batches: usize,
    /// Number of deaths after which a record is poisoned.
    pub deaths_per_record: u32,
    /// The suspects of the step.
    pub suspects: Arc<Suspects>,
    /// True if rings may be used.
    pub rings: bool,
}

/// A session with the process of an instance.
#[derive(Debug)]
pub struct InstanceSession {
    settings: SessionSettings,
    configuration: InstanceConfiguration,
    phase: SessionPhase,
    guest: Option<GuestHello>,
    pending: VecDeque<Pending>,
    next_sequence: u64,
    /// Parts of the restored state that are not sent yet.
    restore: Vec<SharedFrame>,
    out: Vec<SharedFrame>,
    /// Deaths since the last answer.
    deaths_in_a_row: u32,
    /// The sequence of the NEXT or TICK in flight.
    request: Option<u64>,
    /// The state of the topology for a new process.
    control: InstanceControl,
    /// The latest epoch whose commit is not sent yet.
    commit: Option<Epoch>,
    /// The latest epoch whose commit the process has handled.
    committed: Epoch,
    /// True if the latest state must live until its commit.
    awaits_commit: bool,
}

impl InstanceSession {
    /// Creates a session. `configuration` is sent when the version is known.
    pub fn new(settings: SessionSettings, configuration: InstanceConfiguration) -> Self {
        InstanceSession {
            settings,
            configuration,
            phase: SessionPhase::Starting,
            guest: None,
            pending: VecDeque::new(),
            next_sequence: 1,
            restore: Vec::new(),
            out: Vec::new(),
            deaths_in_a_row: 0,
            request: None,
            control: InstanceControl::default(),
            commit: None,
            committed: Epoch::default(),
            awaits_commit: false,
        }
    }

    /// Starts the session with a new process.
    pub fn start(&mut self) {
        self.phase = SessionPhase::Starting;
        self.guest = None;
        self.out.clear();
        let hello = HostHello {
            protocol: ProtocolRange::OWN,
            ardea: env!("CARGO_PKG_VERSION").into(),
        };
        let hello = InstanceFrame::json(FrameType::Hello, 0, &hello);
        self.out.push(hello.into());
    }

    /// Returns the phase.
    pub fn phase(&self) -> SessionPhase {
        self.phase
    }

    /// Returns the instance's HELLO, once it is received.
    pub fn guest(&self) -> Option<&GuestHello> {
        self.guest.as_ref()
    }

    /// Returns the number of deaths of the process since the last answer.
    pub fn deaths_in_a_row(&self) -> u32 {
        self.deaths_in_a_row
    }

    /// Returns true if no item waits for an answer or for the emission of its results.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns true if another batch may be added.
    pub fn has_room(&self) -> bool {
        self.accepts_items()
            && self
                .pending
                .iter()
                .filter(|item| item.is_batch() && item.answer != Answer::Complete)
                .take(self.settings.window_batches)
                .count()
                < self.settings.window_batches
    }

    /// Returns true if another watermark or marker may be added.
    pub fn accepts_items(&self) -> bool {
        self.pending.len() < self.settings.window_batches * 4 + 16
    }

    /// Returns true if the process has to send something.
    pub fn awaits_answer(&self) -> bool {
        self.phase != SessionPhase::Running
            || self.request.is_some()
            || self
                .pending
                .iter()
                .any(|item| item.answer == Answer::Awaited)
    }

    /// Adds a batch. Suspects in it are sent alone, and records that were in flight at too many
    /// deaths are not sent.
    pub fn push_batch(&mut self, batch: EncodedBatch, format: &dyn BatchLayout) {
        if self.settings.suspects.is_empty() {
            return self.push_part(batch, false);
        }
        let mut start = 0;
        for row in 0..batch.records {
            let record = format.slice(&batch, row..row + 1);
            let deaths = self.settings.suspects.deaths(&record);
            if deaths == 0 {
                continue;
            }
            if start < row {
                self.push_part(format.slice(&batch, start..row), false);
            }
            start = row + 1;
            self.push_suspect(record, deaths);
        }
        if start == 0 {
            self.push_part(batch, false);
        } else if start < batch.records {
            self.push_part(format.slice(&batch, start..batch.records), false);
        }
    }

    fn push_suspect(&mut self, record: EncodedBatch, deaths: u32) {
        if record.payload.is_empty() {
            // Another part has the records, which can't be divided.
            return;
        }
        if deaths < self.settings.deaths_per_record {
            self.push_part(record, true);
        } else {
            self.pending
                .push_back(Pending::new(Content::Poisoned(record)));
        }
    }

    fn push_part(&mut self, batch: EncodedBatch, is_alone: bool) {
        if batch.payload.is_empty() {
            return;
        }
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.pending.push_back(Pending::new(Content::Batch {
            sequence,
            batch,
            is_alone,
        }));
    }

    /// Adds a watermark.
    pub fn push_watermark(&mut self, watermark: Watermark) {
        self.pending
            .push_back(Pending::new(Content::Watermark(watermark)));
    }

    /// Adds a marker, which is ready when all items before it are taken.
    pub fn push_marker(&mut self, marker: Marker) {
        self.pending
            .push_back(Pending::new(Content::Marker(marker)));
    }

    /// Adds a request for the state at the end of `epoch`. `is_last` is true after all records.
    pub fn push_barrier(&mut self, epoch: Epoch, is_last: bool) {
        let barrier = Content::Barrier { epoch, is_last };
        self.pending.push_back(Pending::new(barrier));
    }

    /// Adds a part of the state to restore; to be called before any other item is added.
    pub fn push_restore(&mut self, epoch: Epoch, payload: Vec<u8>, is_last: bool) {
        let flags = if is_last { FLAG_LAST } else { 0 };
        let head = FrameHead::new(FrameType::Restore, epoch.0).flags(flags);
        self.restore.push(InstanceFrame::new(head, payload).into());
    }

    /// Stops the instance, after all items are answered.
    pub fn stop(&mut self) {
        if self.phase == SessionPhase::Running {
            self.phase = SessionPhase::Stopping;
            let stop = InstanceFrame::empty(FrameType::Stop, 0);
            self.out.push(stop.into());
        }
    }

    /// Returns the frames to send.
    pub fn take_frames(&mut self) -> std::vec::Drain<'_, SharedFrame> {
        self.pump();
        self.out.drain(..)
    }

    /// Moves items into the output as far as the window allows.
    fn pump(&mut self) {
        let (SessionPhase::Running, Some(guest)) = (self.phase, &self.guest) else {
            return;
        };
        let (wants_watermarks, has_state) = (guest.watermarks, guest.state);
        self.out.append(&mut self.restore);
        self.send_commit(has_state);
        let awaited = |item: &&Pending| item.answer == Answer::Awaited;
        let mut in_flight = self.pending.iter().filter(awaited).count();
        let mut batches = self.pending.iter().filter(|item| item.is_batch());
        let mut in_window = batches.by_ref().filter(awaited).count();
        let is_component = self.configuration.component.role != InstanceRole::Step;
        let mut is_alone = self
            .pending
            .iter()
            .any(|item| item.is_alone() && item.answer == Answer::Awaited);
        for item in &mut self.pending {
            if item.answer != Answer::Unsent {
                continue;
            }
            let is_wanted = match item.content {
                // The end of the input is the request to finish.
                Content::Watermark(Watermark::END) if is_component => true,
                Content::Watermark(_) => wants_watermarks,
                Content::Barrier { .. } => has_state,
                _ => true,
            };
            if !is_wanted {
                item.answer = Answer::Complete;
                continue;
            }
            let waits = is_alone
                || (item.is_alone() && in_flight > 0)
                || (item.is_batch() && in_window >= self.settings.window_batches);
            if waits {
                break;
            }
            self.out.extend(item.frame());
            item.answer = Answer::Awaited;
            in_flight += 1;
            in_window += usize::from(item.is_batch());
            is_alone |= item.is_alone();
        }
    }

    /// Processes a frame of the instance. Returns the frame if it is for the owner: EMIT, ACKS,
    /// WAKE and COUNTS of a spout, bolt or vertex, METRIC and DEADLETTER.
    ///
    /// # Errors
    /// A frame that breaks the protocol, or a failure that the instance reports.
    pub fn on_frame(
        &mut self,
        frame: InstanceFrame,
    ) -> Result<Option<InstanceFrame>, SessionError> {
        let role = self.configuration.component.role;
        let (is_component, is_bolt) = (role != InstanceRole::Step, role == InstanceRole::Bolt);
        match (self.phase, frame.head.kind) {
            (_, FrameType::Log | FrameType::Heartbeat) => {}
            (_, FrameType::Error) => return Err(SessionError::Failed(frame.read_json()?)),
            (SessionPhase::Starting, FrameType::Hello) => self.on_hello(frame.read_json()?)?,
            (SessionPhase::Configuring, FrameType::Ready) => self.on_ready(),
            (
                SessionPhase::Running,
                FrameType::Result | FrameType::Watermark | FrameType::State,
            ) => self.on_answer(frame)?,
            (_, FrameType::Metric | FrameType::DeadLetter) if self.guest.is_some() => {
                return Ok(Some(frame));
            }
            (SessionPhase::Running | SessionPhase::Stopping, FrameType::Commit) => {
                self.committed = self.committed.max(Epoch(frame.head.sequence));
            }
            (SessionPhase::Running, FrameType::Wake) if is_component => return Ok(Some(frame)),
            (SessionPhase::Stopping, FrameType::Wake) if is_component => {}
            (SessionPhase::Running, FrameType::Emit) if is_component => {
                self.on_emit(frame.head)?;
                return Ok(Some(frame));
            }
            (SessionPhase::Running, FrameType::Acks) if is_bolt => return Ok(Some(frame)),
            (_, FrameType::Counts) if role == InstanceRole::Vertex => return Ok(Some(frame)),
            // The instance sent it before it received STOP.
            (SessionPhase::Stopping, FrameType::Emit) if is_component => {}
            (SessionPhase::Stopping, FrameType::Acks) if is_bolt => {}
            (phase, kind) => {
                let what = format!("a {} came in the phase {phase:?}", kind.as_str());
                return Err(Violation::new(what).into());
            }
        }
        Ok(None)
    }

    fn on_hello(&mut self, guest: GuestHello) -> Result<(), SessionError> {
        let Some(protocol) = ProtocolRange::OWN.common(guest.protocol) else {
            return Err(SessionError::Version(guest.protocol));
        };
        let role = self.configuration.component.role;
        if !guest.roles.iter().any(|it| it == role.as_str()) {
            return Err(SessionError::Role(role, guest.roles));
        }
        let format = &self.configuration.format;
        if !guest.formats.contains(format) {
            return Err(SessionError::Format(guest.formats));
        }
        let has_entries = self.restore.iter().any(|part| part.payload.len() > 4);
        if has_entries && !guest.state {
            return Err(SessionError::Stateless);
        }
        if !guest.state {
            self.restore.clear();
        }
        self.configuration.protocol = protocol;
        self.configuration.rings = guest.rings && self.settings.rings;
        self.configuration.restore = !self.restore.is_empty();
        let configure = InstanceFrame::json(FrameType::Configure, 0, &self.configuration);
        self.out.push(configure.into());
        self.guest = Some(guest);
        self.phase = SessionPhase::Configuring;
        Ok(())
    }

    fn on_answer(&mut self, frame: InstanceFrame) -> Result<(), SessionError> {
        let head = frame.head;
        let of_watermark = head.kind == FrameType::Result && head.has(FLAG_OF_WATERMARK);
        let role = self.configuration.component.role;
        if role != InstanceRole::Step && head.kind == FrameType::State {
            let mut earlier = self.pending.iter();
            if earlier.any(|item| item.is_batch() && item.answer == Answer::Awaited) {
                let what = "a STATE came before the RESULT of an earlier batch";
                return Err(Violation::new(what).into());
            }
        }
        let mut items = self.pending.iter_mut();
        let Some(item) = items.find(|item| item.is_answered_by(head, of_watermark)) else {
            let (name, sequence) = (head.kind.as_str(), head.time());
            let what = format!("a {name} with the sequence {sequence} answers nothing");
            return Err(Violation::new(what).into());
        };
        if !frame.payload.is_empty() {
            item.payloads.push(frame.payload);
        }
        let bytes: usize = item.payloads.iter().map(Vec::len).sum();
        if bytes > MAX_ANSWER_BYTES {
            let what = format!("an answer has more than {MAX_ANSWER_BYTES} bytes");
            return Err(Violation::new(what).into());
        }
        let is_last = match head.kind {
            FrameType::Result => !of_watermark && !head.has(FLAG_MORE),
            FrameType::State => head.has(FLAG_LAST),
            _ => true,
        };
        if is_last && head.kind == FrameType::State {
            self.awaits_commit = head.has(FLAG_AWAITS_COMMIT);
        }
        if is_last {
            item.answer = Answer::Complete;
            self.deaths_in_a_row = 0;
            if let Content::Batch {
                batch,
                is_alone: true,
                ..
            } = &item.content
            {
                self.settings.suspects.acquit(batch);
            }
        }
        Ok(())
    }

    /// Takes the next item whose results can be emitted, in the order of the input.
    pub fn take_ready(&mut self) -> Option<ReadyItem> {
        // Items that the instance does not want are complete by themselves.
        self.pump();
        let is_complete = |item: &mut Pending| item.answer == Answer::Complete;
        let item = self.pending.pop_front_if(is_complete)?;
        Some(ready(item))
    }

    /// Takes the next answered item: batches in the order of their answers, other items after all
    /// earlier ones. For the owner of a bolt, who takes it after each frame.
    pub fn take_answered(&mut self) -> Option<ReadyItem> {
        self.pump();
        let is_answered = |(at, item): (usize, &Pending)| {
            item.answer == Answer::Complete && (at == 0 || item.is_batch())
        };
        let at = self.pending.iter().enumerate().position(is_answered)?;
        self.pending.remove(at).map(ready)
    }

    /// Processes the end of the process: marks the records in flight as suspects, and prepares all
    /// unanswered items for another process. Returns the records in flight.
    pub fn on_death(&mut self, format: &dyn BatchLayout) -> InFlight {
        self.deaths_in_a_row += 1;
        self.request = None;
        let mut in_flight = InFlight::default();
        let mut counted = HashSet::new();
        for mut item in std::mem::take(&mut self.pending) {
            if item.answer != Answer::Awaited {
                self.pending.push_back(item);
                continue;
            }
            item.payloads.clear();
            item.answer = Answer::Unsent;
            let Content::Batch { batch, .. } = &item.content else {
                self.pending.push_back(item);
                continue;
            };
            let batch = batch.clone();
            if batch.records == 0 {
                // The end of an input.
                self.push_part(batch, false);
                continue;
            }
            in_flight.records += u64::from(batch.records);
            for row in 0..batch.records {
                let record = format.slice(&batch, row..row + 1);
                // Equal records are one suspect.
                if counted.insert(Suspects::fingerprint(&record)) {
                    self.settings.suspects.count(&record);
                }
                in_flight.first.get_or_insert_with(|| record.clone());
                // One death at least, also if there are too many suspects.
                let deaths = self.settings.suspects.deaths(&record).max(1);
                self.push_suspect(record, deaths);
            }
        }
        in_flight
    }
}

fn ready(item: Pending) -> ReadyItem {
    match item.content {
        Content::Batch {
            sequence, batch, ..
        } => ReadyItem::Results {
            sequence,
            batch,
            payloads: item.payloads,
        },
        Content::Poisoned(batch) => ReadyItem::Poisoned(batch),
        Content::Watermark(watermark) => ReadyItem::Watermark(watermark, item.payloads),
        Content::Barrier { epoch, .. } => ReadyItem::State(epoch, item.payloads),
        Content::Marker(marker) => ReadyItem::Marker(marker),
    }
}

#[cfg(test)]
mod tests;
