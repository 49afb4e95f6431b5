//! The host's side of an instance: its session, its process, and the restarts of the process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    DeadLetter, Epoch, Error, ErrorCode, InstanceContext, OnError, RestoredState, Result,
};
use serde_json::Value;

use crate::command::InstanceCommand;
use crate::errors;
use crate::format::{BatchLayout, EncodedBatch};
use crate::process::{
    ChildContext, ChildEnd, ChildEvent, ChildHandle, OutputLine, OutputSink, OutputStream,
    log_to_stderr,
};
use crate::protocol::{
    ComponentConfiguration, FrameType, GuestDeadLetter, InstanceConfiguration, InstanceControl,
    InstanceFrame, Violation,
};
use crate::saved_state::ProcessState;
use crate::session::{InstanceSession, SessionError, SessionPhase, SessionSettings, Suspects};
use crate::user_metrics::record_user_metric;

/// First delay before a restart of the process, and the longest.
const RESTART_DELAYS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// Number of starts without HELLO after which the job fails.
const FAILED_STARTS: u32 = 3;

/// The reaction to the end of a process that was not stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestartPolicy {
    /// The process is restarted.
    Restart,
    /// The attempt of the job fails if the process has state; otherwise it is restarted.
    FailWithState,
    /// The attempt of the job fails.
    Fail,
}

/// The parts that instances of a step or component share.
#[derive(Clone)]
pub struct SharedParts {
    /// The command of the processes.
    pub command: Arc<InstanceCommand>,
    /// Records that were in flight at deaths.
    pub suspects: Arc<Suspects>,
    /// The destination of the processes' output.
    pub output: Arc<OutputSink>,
    /// The relation of the processes to the job.
    pub kind: ProcessKind,
}

/// The relation of a process to the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ProcessKind {
    /// A program of its own. Its state has one name in snapshots.
    #[default]
    Foreign,
    /// The job's own program. Its states have their names in snapshots, and the job's limit of
    /// restarts counts, if it has one.
    Own,
}

impl SharedParts {
    /// Creates the parts of a step or component. The output goes to standard error of the host.
    pub fn new(command: InstanceCommand) -> Self {
        SharedParts {
            command: Arc::new(command),
            suspects: Arc::default(),
            output: Arc::new(log_to_stderr),
            kind: ProcessKind::Foreign,
        }
    }

    /// Creates the parts of a component that is the job's own program.
    pub fn of_own_program(command: InstanceCommand) -> Self {
        SharedParts {
            kind: ProcessKind::Own,
            ..SharedParts::new(command)
        }
    }

    /// Returns the approximate maximum size of a batch.
    pub fn batch_limit_bytes(&self) -> usize {
        self.command.batch_bytes
    }

    /// Returns CONFIGURE of an instance of a component, with the name of a format.
    pub fn component_configuration(
        &self,
        context: &InstanceContext,
        is_keyed: bool,
        format: &str,
        component: ComponentConfiguration,
    ) -> InstanceConfiguration {
        InstanceConfiguration {
            component,
            ..self.configuration(context, is_keyed, (format, None))
        }
    }

    /// Returns CONFIGURE of an instance of a step, with the name of a format and the schema.
    pub(crate) fn configuration(
        &self,
        context: &InstanceContext,
        is_keyed: bool,
        (format, schema): (&str, Option<Value>),
    ) -> InstanceConfiguration {
        InstanceConfiguration {
            protocol: 0,
            job: context.job.to_string(),
            step: context.vertex.to_string(),
            instance: context.instance.index,
            instances: context.instance.parallelism,
            format: format.into(),
            schema,
            keyed: is_keyed,
            guarantee: context.guarantee.as_str().into(),
            restore: false,
            rings: false,
            parameters: Value::Object(self.command.parameters.clone()),
            component: ComponentConfiguration::default(),
        }
    }
}

/// An event of an instance.
#[derive(Debug)]
pub enum HostEvent {
    /// The session has processed a frame: items may be ready.
    Answered,
    /// A frame for the owner.
    Received(InstanceFrame),
    /// The process has died, and another one is started.
    Restarted,
    /// The process has ended after STOP.
    Ended,
}

/// The host's side of an instance.
pub struct InstanceHost {
    shared: SharedParts,
    context: InstanceContext,
    on_death: RestartPolicy,
    session: InstanceSession,
    /// The state of the process in snapshots.
    pub(crate) state: ProcessState,
    child: Option<ChildHandle>,
    events: VecDeque<ChildEvent>,
    /// Starts of the process in a row without HELLO.
    failed_starts: u32,
    has_ended: bool,
    /// The buffers of answered batches.
    spare_buffers: Vec<Vec<u8>>,
}

impl InstanceHost {
    /// Starts the process of an instance.
    ///
    /// # Errors
    /// If the system has no more threads or file descriptors.
    pub fn start(
        shared: SharedParts,
        context: &InstanceContext,
        configuration: InstanceConfiguration,
        on_death: RestartPolicy,
    ) -> Result<Self> {
        let settings = SessionSettings {
            window_batches: shared.command.window_batches,
            deaths_per_record: shared.command.deaths_per_record,
            suspects: Arc::clone(&shared.suspects),
            rings: shared.command.transfer.rings,
        };
        let mut host = InstanceHost {
            session: InstanceSession::new(settings, configuration),
            state: ProcessState::new(context.instance, shared.kind == ProcessKind::Own),
            shared,
            context: context.clone(),
            on_death,
            child: None,
            events: VecDeque::new(),
            failed_starts: 0,
            has_ended: false,
            spare_buffers: Vec::new(),
        };
        host.start_child(Duration::ZERO)?;
        Ok(host)
    }

    fn start_child(&mut self, delay: Duration) -> Result<()> {
        let command = &self.shared.command;
        let context = ChildContext {
            instance: self.context.clone(),
            waker: self.context.waker.clone(),
            output: Arc::clone(&self.shared.output),
        };
        let started = ChildHandle::start(Arc::clone(command), context, delay);
        self.child = Some(started.map_err(|error| errors::not_started(command, error))?);
        self.session.start();
        self.send();
        Ok(())
    }

    /// Returns the session.
    pub fn session(&self) -> &InstanceSession {
        &self.session
    }

    /// Returns the session, to add items. [`send`](Self::send) sends their frames.
    pub fn session_mut(&mut self) -> &mut InstanceSession {
        &mut self.session
    }

    /// Returns a buffer for a batch, with the memory of an answered one if there is one.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        self.spare_buffers.pop().unwrap_or_default()
    }

    /// Keeps the buffer of an answered batch for [`take_buffer`](Self::take_buffer).
    pub fn recycle(&mut self, batch: EncodedBatch) {
        let command = &self.shared.command;
        let has_room = self.spare_buffers.len() < command.window_batches;
        if command.transfer.reuses_buffers
            && has_room
            && let Some(buffer) = Arc::into_inner(batch.payload)
        {
            self.spare_buffers.push(buffer);
        }
    }

    /// Requests the state at the end of `epoch`, once.
    pub fn request_state(&mut self, epoch: Epoch) {
        self.state.request(epoch, &mut self.session);
    }

    /// Requests a state after the latest requested one, once until the next snapshot. Returns its
    /// epoch.
    pub fn request_last_state(&mut self) -> Epoch {
        self.state.request_last(&mut self.session)
    }

    /// Returns true if the state at the end of `epoch` was received.
    pub fn has_state(&self, epoch: Epoch) -> bool {
        self.state.has(epoch)
    }

    /// Takes the state of the process at the end of `epoch`, for the next snapshot.
    ///
    /// # Errors
    /// A state that breaks the protocol.
    pub fn take_state(&mut self, epoch: Epoch, payloads: Vec<Vec<u8>>) -> Result<()> {
        let taken = self.state.replace(epoch, payloads);
        taken.map_err(|violation| self.broken(violation))
    }

    /// Restores entries of a snapshot.
    pub(crate) fn restore(&mut self, entries: &mut RestoredState<'_>) -> Result<()> {
        self.state.restore(entries, &mut self.session)
    }

    /// Completes the restore from `epoch`.
    pub(crate) fn on_restored(&mut self, epoch: Epoch) {
        self.state.on_restored(epoch, &mut self.session);
    }

    /// Notifies the process of the commit of `epoch`.
    pub(crate) fn on_committed(&mut self, epoch: Epoch) {
        self.state.commit(epoch);
        self.session.push_commit(epoch);
        self.send();
    }

    /// Notifies the process that `epoch` has no checkpoint.
    pub(crate) fn on_aborted(&mut self, epoch: Epoch) {
        self.session.push_control(InstanceControl {
            aborted: Some(epoch.0),
            ..InstanceControl::default()
        });
        self.send();
    }

    /// Returns true if the process has handled the commit of `epoch`. Frames before the answer are
    /// retained for [`next_event`](Self::next_event).
    ///
    /// # Errors
    /// If the process ended.
    pub(crate) fn has_committed(&mut self, epoch: Epoch) -> Result<bool> {
        if !self.session.has_committed(epoch)
            && let Some(child) = &self.child
        {
            child.take_events(&mut self.events);
            // An owner that has ended takes no events.
            let is_commit = |event: &ChildEvent| match event {
                ChildEvent::Frame(frame) => frame.head.kind == FrameType::Commit,
                _ => false,
            };
            while let Some(at) = self.events.iter().position(is_commit) {
                if let Some(ChildEvent::Frame(frame)) = self.events.remove(at) {
                    let taken = self.session.on_frame(frame);
                    taken.map_err(|error| errors::failed(&self.shared.command, error))?;
                }
            }
            let ended = self.events.iter().find_map(|event| match event {
                ChildEvent::Ended(end) => Some(end),
                _ => None,
            });
            match ended {
                // The owner takes no event any more.
                Some(end) if self.session.awaits_commit() => {
                    let none = "before it has published its output";
                    return Err(errors::died(&self.shared.command, end, none));
                }
                // The owner handles the end.
                Some(_) => return Ok(true),
                None => {}
            }
        }
        Ok(self.session.has_committed(epoch))
    }

    /// Returns true if the process has ended after STOP.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the next event of the process, if there is one.
    ///
    /// # Errors
    /// A frame that breaks the protocol, a failure that the instance reports, or a death after
    /// which the process is not restarted.
    pub fn next_event(&mut self, layout: &dyn BatchLayout) -> Result<Option<HostEvent>> {
        if let (true, Some(child)) = (self.events.is_empty(), &self.child) {
            child.take_events(&mut self.events);
        }
        let command = &self.shared.command;
        let event = match self.events.pop_front() {
            None => return Ok(None),
            Some(ChildEvent::Frame(frame)) => match self.session.on_frame(frame) {
                Ok(None) => HostEvent::Answered,
                Ok(Some(frame)) if frame.head.kind == FrameType::Metric => {
                    let metric = frame.read_json();
                    let recorded = metric.and_then(|it| record_user_metric(&self.context, it));
                    recorded.map_err(|violation| self.broken(violation))?;
                    HostEvent::Answered
                }
                Ok(Some(frame)) if frame.head.kind == FrameType::DeadLetter => {
                    let letter = frame.read_json();
                    let letter = letter.map_err(|violation| self.broken(violation))?;
                    self.set_aside(letter)?;
                    HostEvent::Answered
                }
                Ok(Some(frame)) => HostEvent::Received(frame),
                Err(error) => return Err(errors::failed(command, error)),
            },
            Some(ChildEvent::Violation(violation)) => return Err(self.broken(violation)),
            Some(ChildEvent::NotStarted(error)) => {
                return Err(errors::not_started(command, error));
            }
            Some(ChildEvent::Ended(end)) => self.on_end(&end, layout)?,
        };
        Ok(Some(event))
    }

    /// Handles a record that the process could not process outside of a batch.
    fn set_aside(&self, letter: GuestDeadLetter) -> Result<()> {
        let context = &self.context;
        if letter.failed {
            context.metrics.count_bad(1);
        }
        let letter = || DeadLetter {
            vertex: context.vertex.to_string(),
            origin: letter.origin,
            raw: letter.raw.into_bytes(),
            reason: letter.reason,
        };
        context.dead_letters.handle(OnError::DeadLetter, letter)
    }

    /// Returns the error of a process that broke the protocol.
    pub fn broken(&self, violation: Violation) -> Error {
        errors::failed(&self.shared.command, SessionError::Violation(violation))
    }

    /// Handles the end of the process: completes, restarts it, or fails.
    fn on_end(&mut self, end: &ChildEnd, layout: &dyn BatchLayout) -> Result<HostEvent> {
        let command = Arc::clone(&self.shared.command);
        if self.session.phase() == SessionPhase::Stopping {
            self.has_ended = true;
            if !end.is_success {
                self.log(format!("the process {} after it was stopped", end.how));
            }
            return Ok(HostEvent::Ended);
        }
        let has_state = self.session.guest().is_some_and(|guest| guest.state);
        let was_seen = self.session.guest().is_some();
        let records = errors::in_flight(&self.session.on_death(layout), layout);
        self.failed_starts = if was_seen { 0 } else { self.failed_starts + 1 };
        let is_failure = match self.on_death {
            RestartPolicy::Restart => false,
            RestartPolicy::FailWithState => has_state,
            RestartPolicy::Fail => true,
        };
        if is_failure || self.failed_starts >= FAILED_STARTS {
            return Err(errors::died(&command, end, &records));
        }
        let deaths = self.session.deaths_in_a_row();
        let of_job = self.context.failures.most_in_a_row();
        let most = of_job.filter(|_| self.shared.kind == ProcessKind::Own);
        let death = errors::died(&command, end, &records);
        if deaths > most.unwrap_or(command.restarts_in_a_row) {
            let what = format!(
                "the process `{command}` died {deaths} times in a row, and is not started again"
            );
            let error = Error::new(ErrorCode::RestartLimitReached, what);
            return Err(error.because(death.without_hint()));
        }
        self.context.failures.report(death);
        let (first, longest) = RESTART_DELAYS;
        let delay = first.saturating_mul(1 << (deaths - 1).min(10)).min(longest);
        let lost = if has_state { "; its state is lost" } else { "" };
        self.log(format!(
            "the process {} {records}{lost}; it is restarted",
            end.how
        ));
        self.start_child(delay)?;
        Ok(HostEvent::Restarted)
    }

    fn log(&self, text: String) {
        (self.shared.output)(&OutputLine {
            vertex: self.context.vertex.to_string(),
            instance: self.context.instance.index,
            time: self.context.clock.wall(),
            stream: OutputStream::Log,
            text,
        });
    }

    /// Sends the frames of the session, and sets the time within which the process must answer.
    pub fn send(&mut self) {
        let Some(child) = &self.child else { return };
        let (session, command) = (&mut self.session, &self.shared.command);
        child.send(session.take_frames());
        let timeout = match session.phase() {
            SessionPhase::Starting | SessionPhase::Configuring => Some(command.start_timeout),
            SessionPhase::Running => session.awaits_answer().then_some(command.answer_timeout),
            SessionPhase::Stopping => Some(command.stop_timeout),
        };
        // The process may already have answered.
        child.expect_answer(timeout.filter(|_| self.events.is_empty()));
    }

    /// Kills the process, without waiting for its end.
    pub fn kill(&self) {
        if let Some(child) = &self.child {
            child.kill();
        }
    }

    /// Stops the process without waiting for its end. It is killed if it does not exit in time.
    pub fn stop_detached(mut self) {
        if self.session.phase() == SessionPhase::Running {
            self.session.stop();
            // Nothing is taken any more, and the deadline must count.
            self.events.clear();
            self.send();
            if let Some(child) = self.child.take() {
                child.detach();
            }
        }
    }
}
