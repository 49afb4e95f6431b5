//! One execution attempt of a job in one process, from restore to its end or failure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use crate::io::{
    Alignment, SnapshotEvent, SnapshotLocation, SnapshotTracker, SnapshotWriterPool, StateReading,
    Writers,
};
use crate::savepoint::{AllowedDrops, JobStateSchema, StateDiff, diff};
use crate::store::{Checkpoint, ObjectStore};
use ardea_coordination::control::{CheckpointParticipant, Generation, ParticipantId};
use ardea_core::{DeadLetters, Epoch, Error, ErrorCode, Guarantee, Result};
use ardea_engine::{
    InstanceName, Job, JobConfig, JobHandle, JobStatus, Node, RestoreSource, SnapshotIo,
    SnapshotSink,
};

use crate::local::counts::{AttemptCounts, JobCounts};
use crate::local::driver::SavepointCommand;
use crate::local::graph_compatibility;

/// The only participant: this process.
pub(crate) const PARTICIPANT: ParticipantId = ParticipantId(0);

/// An event for the driver of a fault-tolerant job.
#[derive(Debug)]
pub(crate) enum DriverEvent {
    /// An event of the attempt with this generation.
    Attempt(Generation, AttemptEvent),
    /// A command of the user.
    Command(JobCommand),
    /// Old checkpoints could not be compacted or removed.
    NotTidied(Error),
    /// A request to write a savepoint.
    Save(SavepointCommand),
    /// The savepoint of this epoch is written or has failed: the epoch's checkpoint may be
    /// garbage-collected.
    Wrote(Epoch),
}

/// A command for a running job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JobCommand {
    /// Commit a last epoch and then end the job. The job can be resumed from that epoch.
    Stop,
    /// End the sources as if their input had ended.
    Drain,
    /// End the job immediately, without a checkpoint.
    Cancel,
}

/// An event of one attempt.
#[derive(Debug)]
pub(crate) enum AttemptEvent {
    Restored,
    Snapshots(SnapshotEvent),
    /// The job has ended with this status.
    Ended(JobStatus),
}

/// The parameters and services shared by all attempts.
pub(crate) struct AttemptEnvironment<'a> {
    pub(crate) job: &'a dyn Job,
    pub(crate) node: &'a Node,
    pub(crate) guarantee: Guarantee,
    pub(crate) dead_letters: Arc<DeadLetters>,
    pub(crate) folder: Arc<dyn ObjectStore>,
    pub(crate) events: Sender<DriverEvent>,
    pub(crate) writers: Writers,
    /// The number of threads that read state during restore.
    pub(crate) readers: usize,
}

/// The checkpoint that an attempt is restored from, with its schemas and record counts.
pub(crate) struct StartFrom<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    /// The state schema recorded with the checkpoint, if any.
    pub(crate) was: Option<&'a JobStateSchema>,
    /// The state schema of the program.
    pub(crate) states: &'a JobStateSchema,
    /// The record counts up to the checkpoint.
    pub(crate) counts: JobCounts,
}

impl StartFrom<'_> {
    /// Checks that the job can be restored from the checkpoint. Returns the change of each state,
    /// or `None` if no state changes.
    fn check(&self, with: &AttemptEnvironment<'_>) -> Result<Option<StateDiff>> {
        let (job, checkpoint) = (with.job.name(), self.checkpoint);
        let dag = with.job.graph(with.node.config().threads)?;
        graph_compatibility::check(checkpoint, &dag, job)?;
        let Some(was) = self.was else {
            return Ok(None);
        };
        // States that were declared but have no data in the checkpoint cannot be lost.
        let was = was.having(|vertex, state| checkpoint.states(vertex).contains(&state));
        let changes = diff(&was, self.states, &AllowedDrops::nothing());
        let place = format!("its checkpoint {}", checkpoint.id());
        // Dropping state of the job's own checkpoint is never allowed: an intended removal cannot
        // be distinguished from a state that was left out by mistake.
        changes.check(job, &place).map_err(|error| {
            error.hint("change the program so that it can; or write a savepoint of this folder, and start from it in another folder, where recovery.drop can drop state; `diff` shows all changes")
        })?;
        Ok((!changes.is_same()).then_some(changes))
    }
}

/// A running attempt.
pub(crate) struct LocalAttempt {
    pub(crate) generation: Generation,
    pub(crate) handle: JobHandle,
    pub(crate) agent: CheckpointParticipant,
    pub(crate) tracker: SnapshotTracker,
    pub(crate) taker: Arc<SnapshotWriterPool>,
    /// The parallelism of each vertex.
    pub(crate) counts: BTreeMap<String, u32>,
    /// True if the coordinator has been notified that the attempt has started.
    pub(crate) has_begun: bool,
    /// True if the next snapshots may be increments on the committed checkpoint. Otherwise the
    /// first epoch's snapshots contain all state.
    pub(crate) has_base: bool,
    /// True after a failure of the attempt. The end that its instances report later is then
    /// ignored.
    pub(crate) has_failed: bool,
    /// The epoch in progress, and the time at which it was triggered.
    pub(crate) ending: Option<(Epoch, Duration)>,
    pub(crate) counts_at_snapshots: AttemptCounts,
    aligned: Alignment,
    /// The final status of the job in this attempt, once it has ended.
    pub(crate) over: Option<JobStatus>,
    /// The state changes, if the restore migrates state to another schema.
    pub(crate) migrates: Option<StateDiff>,
    _reading: Option<Arc<StateReading>>,
}

impl LocalAttempt {
    /// Starts an attempt from the checkpoint `from`, with epochs after `after`.
    ///
    /// # Errors
    /// Any error that prevents the start. No part of the attempt runs then.
    pub(crate) fn begin(
        with: &AttemptEnvironment<'_>,
        generation: Generation,
        from: Option<StartFrom<'_>>,
        after: Epoch,
    ) -> Result<LocalAttempt> {
        let migrates = match &from {
            Some(from) => from.check(with)?,
            None => None,
        };
        let counted_before = from
            .as_ref()
            .map(|from| from.counts.clone())
            .unwrap_or_default();
        let from = from.map(|from| from.checkpoint);
        let reading = match from {
            None => None,
            Some(checkpoint) => {
                let events = with.events.clone();
                let when_read = move || {
                    // Fails only if the driver is gone.
                    let _ = events.send(DriverEvent::Attempt(generation, AttemptEvent::Restored));
                };
                Some(StateReading::start(
                    checkpoint.clone(),
                    with.readers,
                    BTreeMap::new(),
                    when_read,
                )?)
            }
        };
        let taker = Arc::new(taker(with, generation));
        let config = JobConfig {
            guarantee: with.guarantee,
            dead_letters: Arc::clone(&with.dead_letters),
            snapshots: SnapshotIo {
                sink: Some(Arc::clone(&taker) as Arc<dyn SnapshotSink>),
                source: reading
                    .as_ref()
                    .map(|reading| Arc::clone(reading) as Arc<dyn RestoreSource>),
                after,
                ..SnapshotIo::default()
            },
            ..JobConfig::named(with.job.name())
        };
        let handle = with.job.start(with.node, config)?;
        if let Some(reading) = &reading {
            reading.all_are_open();
        }
        let names = instances(&handle);
        let counts = crate::io::counts(&names);
        // Migrated state is written in full with the first snapshots, so that later versions need
        // not read the old schema.
        let has_base = migrates.is_none()
            && from.is_some_and(|checkpoint| crate::io::is_same(checkpoint, &counts));
        if has_base {
            taker.has_base();
        }
        let life = LocalAttempt {
            generation,
            agent: CheckpointParticipant::new(
                PARTICIPANT,
                generation,
                from.map(|from| from.id().epoch),
            ),
            tracker: SnapshotTracker::of(generation.0, names),
            taker,
            counts,
            has_begun: false,
            has_failed: false,
            has_base,
            ending: None,
            counts_at_snapshots: AttemptCounts::from(counted_before),
            aligned: Alignment::default(),
            over: None,
            migrates,
            _reading: reading,
            handle,
        };
        life.watch(with.events.clone())?;
        Ok(life)
    }

    /// Starts a thread that sends [`AttemptEvent::Ended`] when the job ends.
    fn watch(&self, events: Sender<DriverEvent>) -> Result<()> {
        let (generation, handle) = (self.generation, self.handle.clone());
        let watcher = move || {
            // The status has the result.
            let _ = handle.join();
            let over = AttemptEvent::Ended(handle.status());
            let _ = events.send(DriverEvent::Attempt(generation, over));
        };
        let spawned = thread::Builder::new()
            .name("ardea-life".into())
            .spawn(watcher);
        spawned.map(drop).map_err(|error| {
            self.end();
            Error::new(ErrorCode::LimitReached, "no thread to watch the job")
                .because(error)
                .hint("raise the limit of threads (ulimit -u)")
        })
    }

    /// Cancels the instances of the attempt, and its unfinished snapshots.
    pub(crate) fn end(&self) {
        self.taker.end();
        self.handle.cancel();
    }

    /// Returns by vertex how long its slowest instance has blocked inputs for alignment since the
    /// last call.
    pub(crate) fn alignment(&mut self) -> BTreeMap<String, Duration> {
        self.aligned.since_last(self.handle.metrics())
    }
}

/// Creates the snapshot writers of an attempt.
fn taker(with: &AttemptEnvironment<'_>, generation: Generation) -> SnapshotWriterPool {
    let place = SnapshotLocation {
        folder: Arc::clone(&with.folder),
        job: with.job.name().to_string(),
        generation: generation.0,
    };
    let events = with.events.clone();
    SnapshotWriterPool::new(place, with.writers.clone(), move |news| {
        // Fails only if the driver is gone.
        let _ = events.send(DriverEvent::Attempt(
            generation,
            AttemptEvent::Snapshots(news),
        ));
    })
}

/// Returns the names of all instances of a job.
fn instances(handle: &JobHandle) -> Vec<InstanceName> {
    let mut counts: BTreeMap<Arc<str>, u32> = BTreeMap::new();
    for tasklet in &handle.plan().tasklets {
        for name in &tasklet.names {
            counts.insert(Arc::clone(name), tasklet.parallelism);
        }
    }
    let names = counts.into_iter().flat_map(|(vertex, parallelism)| {
        (0..parallelism).map(move |index| InstanceName {
            vertex: Arc::clone(&vertex),
            instance: ardea_core::Instance { index, parallelism },
        })
    });
    names.collect()
}
