//! The execution attempt of a job with a processing guarantee in this container. An attempt ends as
//! a whole. The process then continues with the next attempt.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ardea_coordination::control::{
    AttemptEnd, AttemptFailure, Change, EpochKind, ExecutionAttempt, Generation, ParticipantAction,
    Run,
};
use ardea_coordination::packing::InstanceId;
use ardea_core::{Dag, Epoch, Error, ErrorCode, Guarantee, Result, Waker};
use ardea_engine::{Deployment, SnapshotIo, StateHandoff};
use tokio::sync::mpsc;

use crate::bounded_inputs::BoundedInputGate;
use crate::driver::Event;
use crate::plan::parallelisms;
use ardea_checkpoint::local::{AttemptCheckpoints, AttemptContext, WorkerCheckpointBackend};

/// In-memory state handed off by the instances of an ended attempt. A new attempt can use the state
/// if it is restored from an epoch of the ended attempt.
pub(crate) struct HandedOffState {
    generation: Generation,
    keepsakes: Arc<StateHandoff>,
}

impl HandedOffState {
    /// Returns the state if the new attempt `life` can use it, and drops the state otherwise.
    fn for_life(self, life: ExecutionAttempt) -> Option<Arc<StateHandoff>> {
        let is_of_it = life.from.is_some() && life.taken_in == self.generation;
        if !is_of_it {
            drop_aside(self.keepsakes);
            return None;
        }
        Some(self.keepsakes)
    }
}

/// Drops unused state on a separate thread. Dropping large state takes long and must not delay the
/// new attempt.
fn drop_aside(left: Arc<StateHandoff>) {
    if left.is_empty() {
        return;
    }
    let aside = Arc::clone(&left);
    let dropping = thread::Builder::new().name("ardea-left".into());
    if dropping.spawn(move || aside.clear()).is_err() {
        left.clear();
    }
}

/// The attempt that runs in this container.
pub(crate) struct RunningAttempt {
    life: ExecutionAttempt,
    guarantee: Guarantee,
    snapshots: Box<dyn AttemptCheckpoints>,
    /// The state that the instances of this attempt hand off at its end.
    keepsakes: Arc<StateHandoff>,
    /// The state handed off by the previous attempt, until the instances of this attempt have been
    /// created.
    left: Option<Arc<StateHandoff>>,
    /// The initial number of entries in `left`.
    had_left: usize,
    events: mpsc::UnboundedSender<Event>,
    /// The run state requested by the leader.
    run: Run,
    /// True if sources are paused after an epoch, until the leader's next instruction.
    is_held: bool,
    /// True if all instances of this container have been restored.
    is_restored: Arc<AtomicBool>,
    /// The gate of the bounded sources that must end before an epoch can end in this container.
    first: BoundedInputGate,
    /// The epoch whose end is requested, but waits for the gate `first`.
    put_off: Option<(Epoch, EpochKind)>,
    look: Waker,
    /// True if the attempt has failed and the leader has been notified.
    is_over: bool,
}

impl RunningAttempt {
    /// Starts the attempt that a change of the assignment requests.
    ///
    /// # Errors
    /// If the program has no checkpoint backend, and the errors of the backend.
    pub(crate) fn begin(
        (life, change, legacy): (ExecutionAttempt, &Change, Option<HandedOffState>),
        instances: &[InstanceId],
        job: &str,
        keeper: Option<&Arc<dyn WorkerCheckpointBackend>>,
        (events, look): (&mpsc::UnboundedSender<Event>, &Waker),
    ) -> Result<Self> {
        let Some(keeper) = keeper else {
            return Err(Error::new(
                ErrorCode::InvalidConfig,
                "the job has a processing guarantee, but its program has no checkpoint backend",
            )
            .hint("run it with a version of ardea that supports checkpoints"));
        };
        let is_restored = Arc::new(AtomicBool::new(life.from.is_none()));
        let own_look = look.clone();
        let (restored, look) = (Arc::clone(&is_restored), look.clone());
        let (tells, fails) = (events.clone(), events.clone());
        let generation = life.generation;
        let snapshots = keeper.begin(AttemptContext {
            attempt: life,
            job: job.to_string(),
            instances: instances.to_vec(),
            parallelisms: parallelisms(&change.routes),
            tell: Arc::new(move |event| {
                let _ = tells.send(Event::Epochs(generation, event));
            }),
            restored: Arc::new(move || {
                restored.store(true, Ordering::Release);
                look.wake();
            }),
            fail: Arc::new(move |error| {
                let _ = fails.send(over(life, &error, |_| None));
            }),
        })?;
        let left = legacy.and_then(|legacy| legacy.for_life(life));
        Ok(RunningAttempt {
            life,
            guarantee: keeper.guarantee(),
            snapshots,
            keepsakes: Arc::default(),
            had_left: left.as_ref().map_or(0, |left| left.len()),
            left,
            events: events.clone(),
            run: Run::Prepared,
            is_held: false,
            is_restored,
            first: BoundedInputGate::default(),
            put_off: None,
            look: own_look,
            is_over: false,
        })
    }

    pub(crate) fn generation(&self) -> Generation {
        self.life.generation
    }

    pub(crate) fn guarantee(&self) -> Guarantee {
        self.guarantee
    }

    /// Returns the snapshot input and output for these instances of the job's graph.
    pub(crate) fn snapshots(&mut self, dag: &Dag, instances: &[InstanceId]) -> SnapshotIo {
        self.first = BoundedInputGate::of(dag, instances);
        let snapshots = self.snapshots.snapshots();
        SnapshotIo {
            sink: snapshots.sink.map(|sink| self.first.wrap(sink, &self.look)),
            handoff_out: Some(Arc::clone(&self.keepsakes)),
            handoff_in: self.left.clone(),
            ..snapshots
        }
    }

    /// Records that all instances of this container have been created.
    pub(crate) fn begun(&mut self, deployment: &Deployment) {
        self.snapshots.begun(deployment.handle());
        // State that is still unused belongs to instances or partitions that moved to other
        // containers.
        if let Some(left) = self.left.take() {
            let _ = self
                .events
                .send(Event::StateReused(self.had_left.saturating_sub(left.len())));
            drop_aside(left);
        }
    }

    /// Returns the state that the ended attempt has handed off.
    pub(crate) fn into_handed_off(self) -> HandedOffState {
        HandedOffState {
            generation: self.life.generation,
            keepsakes: self.keepsakes,
        }
    }

    /// Returns true if all instances of this container have been restored.
    pub(crate) fn is_restored(&self) -> bool {
        self.is_restored.load(Ordering::Acquire)
    }

    /// Sets the run state requested by the leader.
    pub(crate) fn set_run(&mut self, run: Run, deployment: &Deployment) {
        self.run = run;
        self.have_sources_read(deployment);
    }

    fn have_sources_read(&self, deployment: &Deployment) {
        match self.run {
            Run::Running | Run::Early if !self.is_held => deployment.resume(),
            Run::Running | Run::Early | Run::Prepared | Run::Paused => deployment.pause(),
        }
    }

    /// Executes an action of the checkpoint participant.
    pub(crate) fn act(&mut self, action: ParticipantAction, deployment: &Deployment) {
        let job = deployment.handle();
        match action {
            ParticipantAction::End(epoch, kind) => {
                self.snapshots.ends(epoch, kind);
                self.put_off = Some((epoch, kind));
                self.end_if_due(deployment);
            }
            ParticipantAction::Commit(epoch) => {
                self.snapshots.committed(epoch);
                job.epoch_committed(epoch);
            }
            ParticipantAction::Abort(epoch) => {
                self.snapshots.aborted(epoch);
                job.epoch_aborted(epoch);
                self.put_off.take_if(|(put_off, _)| *put_off <= epoch);
                self.is_held = false;
                self.have_sources_read(deployment);
            }
            // The worker's agent sends the message to the leader.
            ParticipantAction::Send(_) => {}
        }
    }

    /// Ends the epoch that waits for the gate `first`, once all sources of the gate have ended.
    pub(crate) fn end_if_due(&mut self, deployment: &Deployment) {
        if !self.first.have_ended() {
            return;
        }
        let Some((epoch, kind)) = self.put_off.take() else {
            return;
        };
        self.is_held = kind.holds_sources();
        // Pause before the barrier: sources must read nothing after it.
        if self.is_held {
            deployment.pause();
        }
        deployment.handle().end_epoch_as(epoch);
        self.have_sources_read(deployment);
    }

    /// Reports the failure of the attempt, once. Returns true if this call has reported the
    /// failure. `processed` returns the number of records that a vertex's instances in this
    /// container have processed.
    pub(crate) fn fail(
        &mut self,
        error: &Error,
        processed: impl FnOnce(&str) -> Option<u64>,
    ) -> bool {
        let is_news = !std::mem::replace(&mut self.is_over, true);
        if is_news {
            let _ = self.events.send(over(self.life, error, processed));
        }
        is_news
    }
}

/// Returns the event for an attempt that cannot start or continue.
///
/// If a retry cannot help, the job waits for an operator. Errors in the job's description or
/// settings are not retried before the first commit. After it they are retried, because the same
/// job has run before. Two errors are retried without limit: an unavailable checkpoint location,
/// and a resource still held by a process of an earlier attempt.
pub(crate) fn over(
    life: ExecutionAttempt,
    error: &Error,
    processed: impl FnOnce(&str) -> Option<u64>,
) -> Event {
    let why = error.to_string();
    let is_of_the_job = matches!(
        error.code(),
        ErrorCode::InvalidJob
            | ErrorCode::InvalidConfig
            | ErrorCode::StoreUnsuitable
            | ErrorCode::WrongCluster
    );
    let is_checkpoint = matches!(
        error.code(),
        ErrorCode::CheckpointDamaged | ErrorCode::NoSuchCheckpoint
    );
    let end = match error.code() {
        ErrorCode::CheckpointStoreUnavailable | ErrorCode::StateInUse => AttemptEnd::Away(why),
        _ if is_checkpoint || (is_of_the_job && life.from.is_none()) => AttemptEnd::Unreadable(why),
        _ => {
            let failure = AttemptFailure::of(error, processed);
            let is_permanent = failure.is_permanent && !is_of_the_job;
            AttemptEnd::Failed(AttemptFailure {
                is_permanent,
                ..failure
            })
        }
    };
    Event::AttemptOver(life.generation, end)
}
