//! Driver of a job over its attempts: executes the actions of the checkpoint coordinator and feeds
//! events back to it.
//!
//! * `participant`: the process as participant of the checkpoints; `user_commands`: commands and
//!   notices; `disk_full`: waiting for disk space; `savepoints`: savepoints of the running job.

mod disk_full;
mod participant;
mod savepoints;
mod user_commands;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::io::{GcHorizon, MaintenanceTask, MaintenanceWorker};
use crate::store::{Checkpoint, CheckpointId, Commit};
use ardea_coordination::control::{
    AttemptFailure, CheckpointCoordinator, CheckpointRecord, CoordinatorAction, CoordinatorEvent,
    EpochsOver, Generation, RequestId, RequiredCheckpoints, StoreReply, StoreRequest, StoreVersion,
};
use ardea_core::{Epoch, Error, ErrorCode, MetricsSnapshot, Result};
use ardea_engine::JobStatus;

use crate::local::attempt::{
    AttemptEnvironment, DriverEvent, JobCommand, LocalAttempt, PARTICIPANT, StartFrom,
};
use crate::local::counts::RecordedCounts;
use crate::local::failure;
use crate::local::job_dir::JobDirectory;
use crate::local::record::{EpochStats, RecordedEnd};
use crate::local::runner::{JobEnd, JobOutcome, Shared};
use crate::local::{FaultTolerance, RecoveryEvent};
use disk_full::DiskFull;

use savepoints::PendingSavepoints;
pub(crate) use savepoints::SavepointCommand;

/// The interval of the timer events passed to the coordinator.
const TICK: Duration = Duration::from_millis(20);

/// The result of a run of the job, which takes effect once the present attempt has ended.
#[derive(Debug)]
enum Done {
    /// All epochs are committed and visible.
    Finished,
    /// The state is in the checkpoint of the committed epoch.
    Stopped,
    /// A stop was requested, but its last checkpoint was not completed in time.
    Interrupted,
    Cancelled,
    Failed(Error),
}

/// Drives a job until it ends.
pub(crate) struct Driver<'a> {
    with: AttemptEnvironment<'a>,
    survival: &'a FaultTolerance,
    /// The maintenance thread, joined before the lock of the directory is released.
    housekeeper: MaintenanceWorker,
    home: JobDirectory,
    epochs: CheckpointCoordinator,
    began: Instant,
    events: Receiver<DriverEvent>,
    shared: Arc<Shared>,
    attempt: Option<LocalAttempt>,
    /// The checkpoints pinned against garbage collection.
    held: BTreeMap<Epoch, Checkpoint>,
    /// The number of the next epoch.
    next: Epoch,
    swept: GcHorizon,
    /// The checkpoint before which unreferenced files of earlier processes are removed, once an
    /// attempt has begun. Before an attempt, another process may still write, or a user may restore
    /// a missing record file.
    left_before: Option<CheckpointId>,
    /// Events not yet passed to the coordinator.
    pending_events: VecDeque<CoordinatorEvent>,
    /// The error of the last attempt.
    last_error: Option<Error>,
    wish: Option<JobCommand>,
    /// The time at which the user requested a stop with a last checkpoint.
    stop_asked: Option<Duration>,
    commands: u64,
    /// The failure to write a final snapshot of the present attempt, while the disk is full.
    no_room: Option<DiskFull>,
    saving: PendingSavepoints,
    done: Option<Done>,
}

impl<'a> Driver<'a> {
    /// Creates the driver of a job that starts, or resumes, from the contents of its directory.
    ///
    /// # Errors
    /// `LimitReached` if the system refuses a thread.
    pub(crate) fn new(
        with: AttemptEnvironment<'a>,
        survival: &'a FaultTolerance,
        home: JobDirectory,
        events: Receiver<DriverEvent>,
        shared: Arc<Shared>,
    ) -> Result<Self> {
        let (folder, store) = (Arc::clone(home.folder()), home.store().clone());
        let told = with.events.clone();
        let housekeeper = MaintenanceWorker::start(folder, store, move |error| {
            // Fails only if the driver is gone.
            let _ = told.send(DriverEvent::NotTidied(error));
        })?;
        let epochs =
            CheckpointCoordinator::new(home.job().clone(), home.next_master(), survival.epochs());
        Ok(Driver {
            with,
            survival,
            housekeeper,
            epochs,
            began: Instant::now(),
            events,
            shared,
            attempt: None,
            held: BTreeMap::new(),
            next: home.committed().unwrap_or_default().next(),
            swept: GcHorizon::default(),
            left_before: None,
            pending_events: VecDeque::new(),
            last_error: None,
            wish: None,
            stop_asked: None,
            commands: 0,
            no_room: None,
            saving: PendingSavepoints::of(home.mailbox()),
            done: None,
            home,
        })
    }

    /// Runs the job until it ends.
    ///
    /// # Errors
    /// The permanent failure of the job, or `Cancelled`.
    pub(crate) fn run(mut self) -> Result<JobOutcome> {
        self.greet();
        while !self.is_over() {
            self.handle_event(CoordinatorEvent::Tick);
            self.poll_for_space();
            self.check_stop_timeout();
            match self.events.recv_timeout(TICK) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            while let Ok(event) = self.events.try_recv() {
                self.take(event);
            }
            self.poll_requests();
        }
        self.end_saving();
        self.conclude()
    }

    fn greet(&mut self) {
        if !self.home.is_lasting() {
            self.notify(&RecoveryEvent::InMemory);
        }
        if let Some(epoch) = self.home.committed() {
            let at = self
                .home
                .checkpoint(epoch)
                .ok()
                .map(|checkpoint| checkpoint.at());
            self.shared
                .figures(|figures| figures.began_from = Some(epoch));
            self.notify(&RecoveryEvent::Resumed { epoch, at });
        }
        // Unfinished files of a killed process belong to earlier generations.
        let generation = self.home.epochs().map_or(0, |epochs| epochs.generation.0);
        self.left_before = Some(CheckpointId::start_of(generation + 1));
    }

    fn notify(&self, notice: &RecoveryEvent) {
        self.survival.notify(self.with.job.name(), notice);
    }

    /// Returns true if the result of the run is known and no attempt runs.
    fn is_over(&self) -> bool {
        let lives = self
            .attempt
            .as_ref()
            .is_some_and(|life| life.over.is_none());
        self.done.is_some() && !lives
    }

    fn is_done(&mut self, done: Done) {
        if self.done.is_some() {
            return;
        }
        if let Some(life) = self
            .attempt
            .as_ref()
            .filter(|_| !matches!(done, Done::Finished))
        {
            life.end();
        }
        self.done = Some(done);
    }

    fn conclude(mut self) -> Result<JobOutcome> {
        let status = self.attempt.take().and_then(|life| life.over);
        let end = match self.done.take() {
            Some(Done::Finished) if matches!(status, Some(JobStatus::Drained)) => JobEnd::Drained,
            Some(Done::Finished) | None => JobEnd::Completed,
            Some(Done::Stopped) => JobEnd::Stopped,
            Some(Done::Interrupted) => JobEnd::Interrupted,
            Some(Done::Failed(error)) => return Err(error),
            Some(Done::Cancelled) => {
                let what = format!("the job {:?} was cancelled", self.with.job.name());
                return Err(Error::new(ErrorCode::Cancelled, what));
            }
        };
        let recorded = match end {
            JobEnd::Drained => Some(RecordedEnd::Drained),
            JobEnd::Stopped => Some(RecordedEnd::Stopped),
            JobEnd::Completed | JobEnd::CompletedBefore => Some(RecordedEnd::Completed),
            // An interrupted job is recorded as if its process had died.
            JobEnd::Interrupted => None,
        };
        if let Some(recorded) = recorded {
            self.keep_end(recorded)?;
        }
        let stale = self.home.take_stale();
        self.housekeeper.submit(MaintenanceTask::Tidy(stale));
        // Another process may already run the job, in a later generation.
        if let Some(over) = self.home.epochs().map(|epochs| epochs.generation) {
            let next = CheckpointId::start_of(over.0 + 1);
            self.housekeeper.submit(MaintenanceTask::Close(next));
        }
        drop(self.housekeeper);
        while let Ok(event) = self.events.try_recv() {
            if let DriverEvent::NotTidied(error) = event {
                let notice = RecoveryEvent::not_tidied(&error);
                self.survival.notify(self.with.job.name(), &notice);
            }
        }
        let figures = self.shared.figures(|figures| figures.clone());
        Ok(JobOutcome { end, figures })
    }

    /// Queues an event for the coordinator and executes its actions.
    fn handle_event(&mut self, event: CoordinatorEvent) {
        self.pending_events.push_back(event);
        self.process_events();
    }

    /// Passes the queued events to the coordinator and executes its actions.
    fn process_events(&mut self) {
        while let Some(event) = self.pending_events.pop_front() {
            if self.done.is_some() {
                return self.pending_events.clear();
            }
            let now = self.began.elapsed();
            for action in self.epochs.on(now, event) {
                self.act(action);
            }
        }
    }

    fn act(&mut self, action: CoordinatorAction) {
        match action {
            CoordinatorAction::Record(id, request) => self.record(id, request),
            CoordinatorAction::To(_, message) => self.handle_message(message),
            CoordinatorAction::RollBack {
                generation,
                to,
                paused,
            } => self.begin(generation, to, paused),
            // The record is opened as not begun, so the coordinator has no attempt to resume.
            CoordinatorAction::Resume { generation } => {
                let reason = "there is no attempt of the job".to_string();
                self.pending_events
                    .push_back(CoordinatorEvent::NotBegun { generation, reason });
            }
            CoordinatorAction::Keep(needed) => self.keep(&needed),
            CoordinatorAction::Reply(id, outcome) => {
                if !self.saved(id, &outcome)
                    && let Err(why) = outcome
                {
                    self.not_done(&why);
                }
            }
            CoordinatorAction::Note(note) => self.note(note),
            CoordinatorAction::Over(EpochsOver::Finished) => self.is_done(Done::Finished),
            CoordinatorAction::Over(EpochsOver::Stopped) => self.is_done(Done::Stopped),
            CoordinatorAction::Over(over) => {
                let lost = || {
                    let job = self.with.job.name();
                    let what = format!("the job {job:?} has lost its record");
                    Error::new(ErrorCode::Superseded, what)
                        .because(over.to_string())
                        .hint("make sure that only one process uses the folder")
                };
                let error = self.home.overtaken().cloned().unwrap_or_else(lost);
                self.is_done(Done::Failed(error));
            }
        }
    }

    /// Reads or writes the job's record. If the new record commits an epoch, writes the epoch's
    /// checkpoint first.
    fn record(&mut self, id: RequestId, request: StoreRequest<Arc<CheckpointRecord>>) {
        let reply = match request {
            StoreRequest::Read => self.home.found(),
            StoreRequest::Write { value, expected } => self.write(value, expected),
            StoreRequest::Delete { .. } => StoreReply::Conflict,
        };
        self.pending_events
            .push_back(CoordinatorEvent::Record(id, reply));
    }

    fn write(
        &mut self,
        value: Arc<CheckpointRecord>,
        expected: Option<StoreVersion>,
    ) -> StoreReply<Arc<CheckpointRecord>> {
        let checkpoint = self.home.new_checkpoint(&value);
        let mut told = None;
        if let Some(id) = checkpoint {
            match self.make(id) {
                Ok(made) => told = made.map(|made| (id.epoch, made)),
                Err(error) => {
                    return StoreReply::Refused(
                        ardea_coordination::control::Rejection::not_stored(&error),
                    );
                }
            }
        }
        let reply = self.home.write(value, expected, told);
        if let (Some(id), StoreReply::Written(_), Some(life)) =
            (checkpoint, &reply, &mut self.attempt)
        {
            life.tracker.committed(id.epoch);
            life.has_base = true;
            life.taker.has_base();
        }
        reply
    }

    /// Writes the manifest of the checkpoint `id` from the saved snapshots. Returns the epoch's
    /// statistics.
    fn make(&mut self, id: CheckpointId) -> Result<Option<EpochStats>> {
        let Some(life) = &mut self.attempt else {
            return Err(Error::new(
                ErrorCode::Internal,
                "there is no attempt of the job",
            ));
        };
        let committed = self.home.committed().filter(|_| life.has_base);
        let base = committed.and_then(|epoch| self.home.id_of(epoch));
        let snapshots = life.tracker.snapshots(id, base).ok_or_else(|| {
            let what = format!("the snapshots of epoch {} are not all there", id.epoch.0);
            Error::new(ErrorCode::Internal, what)
        })?;
        let at = self.with.node.clock().wall();
        self.home.make(&Commit {
            id,
            base,
            at,
            snapshots,
        })?;
        let asked_at = life.ending.filter(|(epoch, _)| *epoch == id.epoch);
        let took = asked_at.map_or(Duration::ZERO, |(_, at)| self.began.elapsed() - at);
        let aligned = life.alignment().into_iter();
        let counts = life.counts_at_snapshots.at(id.epoch);
        Ok(Some(EpochStats {
            took_micros: took.as_micros() as u64,
            aligned_micros: aligned
                .map(|(vertex, held)| (vertex, held.as_micros() as u64))
                .collect(),
            counts: Some(RecordedCounts::from(&counts)),
        }))
    }

    /// Pins the needed checkpoints, and schedules garbage collection of all others.
    fn keep(&mut self, needed: &RequiredCheckpoints) {
        let epochs = &needed.epochs;
        self.next = needed.below;
        self.home.store().begin_generation(needed.generation.0);
        self.held.retain(|epoch, _| epochs.contains(epoch));
        for epoch in epochs {
            if !self.held.contains_key(epoch)
                && let Ok(checkpoint) = self.home.checkpoint(*epoch)
            {
                self.held.insert(*epoch, checkpoint);
            }
        }
        let stale = self.home.take_stale();
        self.housekeeper.submit(MaintenanceTask::Tidy(stale));
        if self.left_before.is_some() {
            return;
        }
        let committed = self.home.committed();
        let committed = committed.and_then(|epoch| self.home.id_of(epoch));
        if let Some(floor) = self.swept.due(committed, needed.generation.0) {
            self.housekeeper.submit(MaintenanceTask::Sweep(floor));
        }
    }

    /// Starts an attempt of the job, restored from the epoch `to` if there is one.
    fn begin(&mut self, generation: Generation, to: Option<Epoch>, paused: bool) {
        self.retire();
        // In safe mode the user decides how to continue. In a single process, the user does so by
        // running the job again.
        if self.home.safe_mode().is_some() || self.done.is_some() {
            return;
        }
        if self.wish == Some(JobCommand::Stop) && !paused {
            return self.is_done(Done::Stopped);
        }
        let after = Epoch(self.next.0.saturating_sub(1));
        let checkpoint = to.map(|epoch| self.home.checkpoint(epoch)).transpose();
        let checkpoint = checkpoint.map_err(crate::io::as_unavailable);
        let counts = to.map(|epoch| self.home.counts_of(epoch));
        let counts = counts.unwrap_or_default();
        let counted_before = counts.clone();
        let life = checkpoint.and_then(|checkpoint| {
            let from = checkpoint.as_ref().map(|checkpoint| StartFrom {
                checkpoint,
                was: self.home.states_of(checkpoint.id().epoch),
                states: self.home.states(),
                counts,
            });
            LocalAttempt::begin(&self.with, generation, from, after)
        });
        let life = match life {
            Ok(life) => life,
            Err(error) => return self.not_begun(generation, error),
        };
        if paused {
            life.handle.pause();
        }
        self.shared.lives(&life.handle, counted_before);
        if let Some(changes) = life.migrates.clone().filter(|_| self.last_error.is_none()) {
            self.notify(&RecoveryEvent::Migrates { changes });
        }
        self.attempt = Some(life);
        if to.is_none() {
            self.has_begun(None);
        }
        match self.wish {
            Some(JobCommand::Drain) => self.shared.drain(),
            Some(JobCommand::Cancel) => self.is_done(Done::Cancelled),
            _ => {}
        }
    }

    /// Ends the present attempt, if any, and waits until all its instances have stopped.
    fn retire(&mut self) {
        self.no_room = None;
        if let Some(life) = self.attempt.take() {
            life.end();
            // The result of the attempt is already known.
            let _ = life.handle.join();
        }
    }

    fn has_begun(&mut self, restored_from: Option<Epoch>) {
        if let Some(floor) = self.left_before.take() {
            self.housekeeper.submit(MaintenanceTask::Sweep(floor));
        }
        if let Some(life) = &mut self.attempt {
            life.has_begun = true;
            self.pending_events.push_back(CoordinatorEvent::Begun {
                generation: life.generation,
                restored_from,
                participants: vec![PARTICIPANT],
            });
        }
    }

    fn not_begun(&mut self, generation: Generation, error: Error) {
        if failure::is_final(&error) {
            return self.is_done(Done::Failed(error));
        }
        let reason = error.to_string();
        let event = match error.code() {
            ErrorCode::CheckpointStoreUnavailable | ErrorCode::StateInUse => {
                CoordinatorEvent::Away { generation, reason }
            }
            _ if failure::is_of_checkpoint(&error) => {
                CoordinatorEvent::Unreadable { generation, reason }
            }
            _ => CoordinatorEvent::NotBegun { generation, reason },
        };
        self.last_error = Some(error);
        self.pending_events.push_back(event);
    }

    /// Handles the failure of the present attempt.
    fn failed(&mut self, error: Error) {
        let Some(life) = &mut self.attempt else {
            return;
        };
        let (generation, has_begun) = (life.generation, life.has_begun);
        life.has_failed = true;
        life.end();
        if !has_begun {
            return self.not_begun(generation, error);
        }
        if failure::is_final(&error) {
            return self.is_done(Done::Failed(error));
        }
        let processed = |vertex: &str| {
            let counted = |it: &MetricsSnapshot| it.records_in + it.records_out;
            Some(life.handle.sum(vertex, counted))
        };
        let failed = CoordinatorEvent::Failed {
            generation,
            participant: PARTICIPANT,
            failure: AttemptFailure::of(&error, processed),
        };
        self.pending_events.push_back(failed);
        self.last_error = Some(error);
    }

    fn take(&mut self, event: DriverEvent) {
        match event {
            DriverEvent::Command(wish) => self.handle_command(wish),
            DriverEvent::Save(wish) => self.save(wish),
            DriverEvent::Wrote(epoch) => self.wrote(epoch),
            DriverEvent::NotTidied(error) => self.notify(&RecoveryEvent::not_tidied(&error)),
            DriverEvent::Attempt(generation, event) => {
                let is_present = |life: &LocalAttempt| life.generation == generation;
                if self.attempt.as_ref().is_some_and(is_present) {
                    self.handle_attempt_event(event);
                }
            }
        }
        self.process_events();
    }
}
