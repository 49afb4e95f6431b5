//! The step whose records are processed by another process.

mod checkpoint;
mod errors;
mod saved_state;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Epoch, Error, ErrorCode, Inbox, Instance, InstanceContext, Marker,
    MarkerDeferral, Ordinal, Outbox, Processor, ProcessorSupplier, Progress, Result, Watermark,
};
use ardea_operators::RecordErrors;
use serde_json::Value;

use crate::command::InstanceCommand;
use crate::format::{BatchFormat, EncodedBatch, UnencodableRecord};
use crate::process::{
    ChildContext, ChildEnd, ChildEvent, ChildHandle, OutputSink, OutputStream, log_to_stderr,
};
use crate::protocol::{InstanceConfiguration, RowFailure, StatePartWriter};
use crate::session::{
    InFlight, InstanceSession, ReadyItem, SessionError, SessionPhase, SessionSettings, Suspects,
};
use saved_state::ProcessState;

/// First delay before a restart of the process, and the longest.
const RESTART_DELAYS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// Number of starts without HELLO after which the job fails.
const FAILED_STARTS: u32 = 3;

/// The step of a graph whose instances run in processes of their own.
///
/// Each instance starts `command` and passes its records to that process in a [`BatchFormat`]. The
/// instances of a keyed step keep the state of their process in snapshots.
pub struct InstanceStep<M> {
    command: Arc<InstanceCommand>,
    make_format: M,
    is_keyed: bool,
    suspects: Arc<Suspects>,
    output: Arc<OutputSink>,
}

impl<M, F> InstanceStep<M>
where
    M: Fn() -> F + Send + Sync + 'static,
    F: BatchFormat + 'static,
{
    /// Creates a step without state. `make_format` creates the format of an instance.
    pub fn stateless(command: InstanceCommand, make_format: M) -> Self {
        InstanceStep {
            command: Arc::new(command),
            make_format,
            is_keyed: false,
            suspects: Arc::default(),
            output: Arc::new(log_to_stderr),
        }
    }

    /// Creates a step whose records have keys, and whose processes may have state.
    pub fn keyed(command: InstanceCommand, make_format: M) -> Self {
        InstanceStep {
            is_keyed: true,
            ..Self::stateless(command, make_format)
        }
    }

    /// Sets the destination of the processes' output. Default: standard error of the host.
    pub fn output(mut self, output: Arc<OutputSink>) -> Self {
        self.output = output;
        self
    }

    /// Creates the processor of an instance.
    pub fn processor(&self) -> InstanceP<F> {
        let command = Arc::clone(&self.command);
        InstanceP {
            errors: RecordErrors::new(command.on_error, Vec::clone),
            session: None,
            context: InstanceContext::detached("detached"),
            format: (self.make_format)(),
            is_keyed: self.is_keyed,
            suspects: Arc::clone(&self.suspects),
            output: Arc::clone(&self.output),
            command,
            child: None,
            events: VecDeque::new(),
            bad: Vec::new(),
            marker: None,
            state: ProcessState::default(),
            restored: StatePartWriter::default(),
            barrier: Barrier::default(),
            has_ended: false,
            failed_starts: 0,
            made_progress: false,
        }
    }
}

impl<M, F> ProcessorSupplier for InstanceStep<M>
where
    M: Fn() -> F + Send + Sync + 'static,
    F: BatchFormat + 'static,
{
    fn supply(&self, _: Instance) -> Result<Box<dyn Processor>> {
        Ok(Box::new(self.processor()))
    }
}

/// The latest barrier, and the latest one whose state was received.
#[derive(Clone, Copy, Default, Debug)]
struct Barrier {
    requested: Epoch,
    received: Epoch,
    is_final: bool,
}

/// A processor whose records are processed by another process.
pub struct InstanceP<F> {
    command: Arc<InstanceCommand>,
    format: F,
    is_keyed: bool,
    suspects: Arc<Suspects>,
    output: Arc<OutputSink>,
    context: InstanceContext,
    errors: RecordErrors<Vec<u8>>,
    /// Present from `init` on.
    session: Option<InstanceSession>,
    child: Option<ChildHandle>,
    events: VecDeque<ChildEvent>,
    bad: Vec<UnencodableRecord>,
    /// A marker that follows the outputs that the format has not emitted yet.
    marker: Option<Marker>,
    state: ProcessState,
    /// The part of the restored state under construction.
    restored: StatePartWriter,
    barrier: Barrier,
    /// True if the process has ended after STOP.
    has_ended: bool,
    /// Starts of the process in a row without HELLO.
    failed_starts: u32,
    /// True if the present call moved something.
    made_progress: bool,
}

impl<F: BatchFormat> InstanceP<F> {
    fn session(&mut self) -> Result<&mut InstanceSession> {
        let missing = || Error::new(ErrorCode::Internal, "an instance is used before its start");
        self.session.as_mut().ok_or_else(missing)
    }

    fn keeps_state(&self) -> bool {
        self.is_keyed && self.context.guarantee.keeps_state()
    }

    fn start_child(&mut self, delay: Duration) -> Result<()> {
        let context = ChildContext {
            instance: self.context.clone(),
            waker: self.context.waker.clone(),
            output: Arc::clone(&self.output),
        };
        let started = ChildHandle::start(Arc::clone(&self.command), context, delay);
        let child = started.map_err(|error| errors::not_started(&self.command, error))?;
        self.child = Some(child);
        self.session()?.start();
        self.send()
    }

    /// Takes what the process has sent, emits results while there is room, and sends frames.
    fn turn(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.receive()?;
        let is_unfinished = self.emit(outbox)?;
        self.send()?;
        if is_unfinished {
            // The rest is emitted when the outbox has room.
            outbox.wake_at(self.context.clock.now());
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<()> {
        let mut events = std::mem::take(&mut self.events);
        if let Some(child) = &self.child {
            child.take_events(&mut events);
        }
        for event in events.drain(..) {
            self.made_progress = true;
            match event {
                ChildEvent::Frame(frame) => {
                    let outcome = self.session()?.on_frame(frame);
                    outcome.map_err(|error| errors::failed(&self.command, error))?;
                }
                ChildEvent::Violation(violation) => {
                    let error = SessionError::Violation(violation);
                    return Err(errors::failed(&self.command, error));
                }
                ChildEvent::NotStarted(error) => {
                    return Err(errors::not_started(&self.command, error));
                }
                ChildEvent::Ended(end) => self.on_end(&end)?,
            }
        }
        self.events = events;
        Ok(())
    }

    /// Handles the end of the process: completes, restarts it, or fails.
    fn on_end(&mut self, end: &ChildEnd) -> Result<()> {
        let (keeps_state, command) = (self.keeps_state(), Arc::clone(&self.command));
        let session = self.session()?;
        if session.phase() == SessionPhase::Stopping {
            self.has_ended = true;
            if !end.is_success {
                self.log(format!("the process {} after it was stopped", end.how));
            }
            return Ok(());
        }
        let has_state = session.guest().is_some_and(|guest| guest.state);
        let was_seen = session.guest().is_some();
        let in_flight = match &mut self.session {
            Some(session) => session.on_death(&self.format),
            None => InFlight::default(),
        };
        let records = errors::in_flight(&in_flight, &self.format);
        self.failed_starts = if was_seen { 0 } else { self.failed_starts + 1 };
        if (has_state && keeps_state) || self.failed_starts >= FAILED_STARTS {
            return Err(errors::died(&command, end, &records));
        }
        let deaths = self.session()?.deaths_in_a_row();
        if deaths > command.restarts_in_a_row {
            let what = format!("the process `{command}` died {deaths} times in a row");
            return Err(Error::new(ErrorCode::RestartLimitReached, what)
                .because(errors::died(&command, end, &records).without_hint()));
        }
        let (first, longest) = RESTART_DELAYS;
        let delay = first.saturating_mul(1 << (deaths - 1).min(10)).min(longest);
        let lost = if has_state { "; its state is lost" } else { "" };
        self.log(format!(
            "the process {} {records}{lost}; it is restarted",
            end.how
        ));
        self.start_child(delay)
    }

    fn log(&self, text: String) {
        (self.output)(&crate::process::OutputLine {
            vertex: self.context.vertex.to_string(),
            instance: self.context.instance.index,
            time: self.context.clock.wall(),
            stream: OutputStream::Log,
            text,
        });
    }

    /// Emits results in the order of the input; returns true if some wait for room.
    fn emit(&mut self, outbox: &mut Outbox) -> Result<bool> {
        loop {
            if !self.format.emit(outbox)? {
                return Ok(true);
            }
            if let Some(marker) = self.marker.take() {
                outbox.marker(marker);
            }
            let Some(ready) = self.session()?.take_ready() else {
                return Ok(false);
            };
            self.made_progress = true;
            match ready {
                ReadyItem::Results { batch, payloads } => {
                    for payload in payloads {
                        let failures = self.accept(&payload, batch.records)?;
                        self.report(&batch, &failures)?;
                    }
                }
                ReadyItem::Poisoned(record) => {
                    let reason = format!(
                        "its process died {} times while it had this record",
                        self.suspects.deaths(&record)
                    );
                    self.report(&record, &[RowFailure { row: 0, reason }])?;
                }
                ReadyItem::Watermark(watermark, payloads) => {
                    for payload in payloads {
                        self.accept(&payload, 0)?;
                    }
                    self.marker = Some(Marker::Watermark(watermark));
                }
                ReadyItem::Marker(marker) => self.marker = Some(marker),
                ReadyItem::State(epoch, payloads) => {
                    let taken = self.state.replace(epoch, payloads, self.context.instance);
                    let failed = |violation| SessionError::Violation(violation);
                    taken.map_err(|it| errors::failed(&self.command, failed(it)))?;
                    self.barrier.received = epoch;
                }
            }
        }
    }

    fn accept(&mut self, payload: &[u8], rows: u32) -> Result<Vec<RowFailure>> {
        let accepted = self.format.accept(payload, rows);
        accepted.map_err(|it| errors::failed(&self.command, SessionError::Violation(it)))
    }

    fn report(&self, batch: &EncodedBatch, failures: &[RowFailure]) -> Result<()> {
        for failure in failures {
            let position = batch.position + u64::from(failure.row);
            let raw = self.format.raw(batch, failure.row);
            self.errors
                .handle(Ordinal::FIRST, position, &raw, &failure.reason)?;
        }
        Ok(())
    }

    /// Sends the frames of the session, and sets the time within which the process must answer.
    fn send(&mut self) -> Result<()> {
        let (start, answer, stop) = {
            let command = &self.command;
            (
                command.start_timeout,
                command.answer_timeout,
                command.stop_timeout,
            )
        };
        let (Some(session), Some(child)) = (&mut self.session, &self.child) else {
            return Ok(());
        };
        child.send(session.take_frames());
        let timeout = match session.phase() {
            SessionPhase::Starting | SessionPhase::Configuring => Some(start),
            SessionPhase::Running => session.awaits_answer().then_some(answer),
            SessionPhase::Stopping => Some(stop),
        };
        child.expect_answer(timeout);
        Ok(())
    }

    /// Returns true if no record and no marker is in the process or waits for room.
    fn is_drained(&mut self, outbox: &mut Outbox) -> Result<bool> {
        let is_emitted = self.format.emit(outbox)? && self.marker.is_none();
        Ok(is_emitted && self.session()?.is_empty())
    }

    /// Returns the progress of a callback that is not done.
    fn waiting(&mut self) -> Progress {
        Progress {
            made: std::mem::take(&mut self.made_progress),
            done: false,
        }
    }

    /// Requests the state at the end of `epoch`, after all earlier records; done when it is here.
    fn request_state(&mut self, epoch: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        if self.barrier.requested < epoch {
            self.barrier.requested = epoch;
            self.session()?.push_barrier(epoch);
        }
        self.turn(outbox)?;
        if self.barrier.received >= epoch && self.is_drained(outbox)? {
            return Ok(Progress::DONE);
        }
        Ok(self.waiting())
    }
}

impl<F: BatchFormat> Processor for InstanceP<F> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.context = context.clone();
        self.errors.attach(context);
        let settings = SessionSettings {
            window_batches: self.command.window_batches,
            deaths_per_record: self.command.deaths_per_record,
            suspects: Arc::clone(&self.suspects),
        };
        let configuration = InstanceConfiguration {
            protocol: 0,
            job: context.job.to_string(),
            step: context.vertex.to_string(),
            instance: context.instance.index,
            instances: context.instance.parallelism,
            format: self.format.name().into(),
            schema: self.format.schema(),
            keyed: self.is_keyed,
            guarantee: context.guarantee.as_str().into(),
            restore: false,
            rings: false,
            parameters: Value::Object(self.command.parameters.clone()),
        };
        self.session = Some(InstanceSession::new(settings, configuration));
        // The process starts while other instances are restored.
        self.start_child(Duration::ZERO)
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        self.turn(outbox)?;
        let limit = self.command.batch_bytes;
        while !inbox.is_empty() && self.session()?.has_room() {
            let batch = self.format.encode(inbox, limit, &mut self.bad)?;
            if let Some(batch) = batch
                && let Some(session) = &mut self.session
            {
                session.push_batch(batch, &self.format);
            }
            for (position, reason) in std::mem::take(&mut self.bad) {
                self.errors
                    .handle(Ordinal::FIRST, position, &Vec::new(), reason)?;
            }
        }
        self.send()
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.turn(outbox)?;
        if !self.session()?.accepts_items() {
            return Ok(self.waiting());
        }
        self.session()?.push_watermark(watermark);
        self.turn(outbox)?;
        Ok(Progress::DONE)
    }

    fn on_epoch(&mut self, epoch: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        self.made_progress = false;
        if self.keeps_state() {
            return self.request_state(epoch, outbox);
        }
        self.turn(outbox)?;
        if self.is_drained(outbox)? {
            return Ok(Progress::DONE);
        }
        Ok(self.waiting())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.made_progress = false;
        self.turn(outbox)?;
        if self.has_ended {
            return Ok(Progress::DONE);
        }
        if !self.is_drained(outbox)? {
            return Ok(self.waiting());
        }
        if self.keeps_state() {
            if !self.barrier.is_final {
                self.barrier.is_final = true;
                self.barrier.requested = Epoch(self.barrier.requested.0 + 1);
                let epoch = self.barrier.requested;
                self.session()?.push_barrier(epoch);
                self.send()?;
                return Ok(Progress::MADE);
            }
            if self.barrier.received < self.barrier.requested {
                return Ok(self.waiting());
            }
        }
        self.session()?.stop();
        self.send()?;
        Ok(self.waiting())
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.turn(outbox)
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        if self.is_keyed { Some(self) } else { None }
    }

    fn marker_deferral(&mut self) -> Option<&mut dyn MarkerDeferral> {
        Some(self)
    }

    fn close(&mut self) {
        if let Some(child) = &self.child {
            child.kill();
        }
    }
}

impl<F: BatchFormat> MarkerDeferral for InstanceP<F> {
    /// Queues a marker behind the records in the process, if there are any.
    fn defer(&mut self, marker: Marker) -> Result<bool> {
        Ok(match &mut self.session {
            Some(session) if !session.is_empty() => {
                session.push_marker(marker);
                true
            }
            _ => false,
        })
    }
}
