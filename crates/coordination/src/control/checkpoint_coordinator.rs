//! The checkpoint coordinator: ends epochs, collects the snapshots of all participants, and commits
//! or aborts each checkpoint.
//!
//! Each leader has one coordinator, [`CheckpointCoordinator`], for the time of its leadership. It
//! repeats the following cycle. It requests the sources to end an epoch. Every participant saves a
//! snapshot and acknowledges it with a [`SnapshotAck`]. The coordinator records the
//! acknowledgements as one checkpoint. As soon as the record is stored, it announces the commit to
//! all participants, so that sinks publish. If a participant is lost, all are restored from the
//! committed epoch, and a new attempt with a new [`Generation`] starts.
//!
//! * `message`: messages to and from participants; `participant`: the participants' side,
//!   [`CheckpointParticipant`];
//! * `interface`: events, actions, commands; `status`: messages for users; `record`: the stored
//!   record; `record_store`: its reads and writes;
//! * `participants`: the participants that have ended or confirmed a commit; `pending_checkpoint`:
//!   those that have saved their snapshots; `trigger`: the start and end of an epoch;
//! * `interval`: the tuned checkpoint interval;
//! * `decisions`: stored decisions, and commands; `recovery`: rollbacks and safe mode.
//!
//! # Invariants
//!
//! * **A commit is announced only after its record is stored**, and epochs are recorded in the
//!   order of their numbers. If the reply to a write is lost, the outcome is determined before
//!   anything else is decided. Until then no epoch ends, and no attempt starts.
//! * **A recorded epoch is never aborted**, whichever process fails: a later leader finds it in the
//!   record and announces the commit again. So participants may receive commits twice, and commits
//!   from before their attempt.
//! * **A superseded leader changes nothing.** A new leader writes the record before it does
//!   anything else; from then on all pending writes of earlier leaders fail. The new leader uses
//!   epoch numbers that no earlier leader has used ([`CheckpointRecord::numbers`]), so that it
//!   cannot mistake their snapshots for its own. It replaces an attempt that is not known to have
//!   started, and does not wait for it.
//! * **A slow checkpoint does not fail the job**: it is aborted, the job continues, and the slow
//!   participants are reported. The content of an aborted increment is part of the next one
//!   ([`SnapshotAck::since`]).
//! * **A participant is required no longer than necessary**: one that has ended, whose final
//!   snapshot is committed, and that has confirmed the commit, may be lost.
//!
//! # One checkpoint at a time
//!
//! At most one checkpoint is pending. Concurrent checkpoints would require increments relative to
//! epochs that may still be aborted, and participants would have to track the changes of each
//! pending epoch separately. They pay off only if a snapshot takes longer than the interval, which
//! incremental snapshots avoid.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use ardea_coordination::control::{
//!     CheckpointCoordinator, CoordinatorAction, CoordinatorConfig, CoordinatorEvent, JobRef, MasterEpoch, StoreReply, StoreRequest, StoreVersion,
//! };
//!
//! let job = JobRef { cluster: "prod".into(), name: "word-count".into(), submission: 1 };
//! let mut epochs = CheckpointCoordinator::new(job, MasterEpoch(1), CoordinatorConfig::default());
//! let now = Duration::ZERO;
//! // It reads the record, then writes its claim and the start of the first attempt.
//! let [CoordinatorAction::Record(read, StoreRequest::Read)] = &epochs.on(now, CoordinatorEvent::Tick)[..] else { panic!() };
//! let nothing = CoordinatorEvent::Record(*read, StoreReply::Found(None));
//! let [CoordinatorAction::Record(write, _)] = &epochs.on(now, nothing)[..] else { panic!() };
//! let written = CoordinatorEvent::Record(*write, StoreReply::Written(StoreVersion(1)));
//! let actions = epochs.on(now, written);
//! assert!(matches!(actions[..], [CoordinatorAction::Keep(_), CoordinatorAction::RollBack { to: None, .. }]));
//! ```

mod attempt;
mod decisions;
mod interface;
mod interval;
mod message;
mod participant;
mod participants;
mod pending_checkpoint;
mod record;
mod record_store;
mod recovery;
mod status;
mod trigger;
mod worker_recovery;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use ardea_core::{Epoch, Guarantee};

pub use attempt::AttemptFailure;
pub use interface::{
    AbortReason, CheckpointCommand, CoordinatorAction, CoordinatorConfig, CoordinatorEvent,
    EpochNotDone, EpochsOver, RequiredCheckpoints,
};
pub use message::{
    CoordinatorMessage, EpochKind, FromParticipant, Generation, ParticipantId, ParticipantReport,
    SnapshotAck, ToParticipant,
};
pub use participant::{CheckpointParticipant, ParticipantAction, ParticipantEvent};
pub use record::{CheckpointRecord, RecordedCheckpoint, RecordedSnapshot, SafeMode, StopState};
pub use status::CoordinatorStatus;

use crate::control::{CommandId, JobRef, MasterEpoch, PlanVersion};
use attempt::Repeats;
use decisions::Proposal;
use interval::CheckpointInterval;
use participants::Participants;
use pending_checkpoint::PendingCheckpoint;
use record_store::CheckpointRecordStore;
use recovery::{Failure, ReadRetry};

/// The checkpoint coordinator of a job during one leadership: created when the lease is gained,
/// dropped when it is lost.
///
/// Cost: a report is `O(log participants)`; the start and end of an epoch, and repeated messages,
/// are `O(participants)`.
#[derive(Debug)]
pub struct CheckpointCoordinator {
    config: CoordinatorConfig,
    master: MasterEpoch,
    keeper: CheckpointRecordStore,
    /// The purpose of the pending write, and the command to answer afterwards.
    proposal: Option<(Proposal, Option<CommandId>)>,
    phase: AttemptPhase,
    members: Participants,
    /// The reason for which the current attempt has ended, until the next attempt is stored.
    failure: Option<Failure>,
    /// The count of repeated failures of a vertex that makes no progress.
    repeats: Repeats,
    /// The retries to read the checkpoint to restore from, while it cannot be read.
    away: Option<ReadRetry>,
    pending: Option<PendingCheckpoint>,
    /// True if no checkpoint was requested since the committed one. Then the output that workers
    /// have kept since that checkpoint contains no barrier.
    is_between_checkpoints: bool,
    /// True while a worker is restored alone: no checkpoint is triggered.
    is_held: bool,
    next: Epoch,
    interval: CheckpointInterval,
    /// The time at which the next regular epoch is due to end.
    next_at: Duration,
    /// The earliest time at which an epoch may end, even if one is requested.
    pause_until: Duration,
    /// The time at which unconfirmed commits are announced again.
    retell_at: Duration,
    aborted_in_a_row: u32,
    /// The last reported problem with the metadata store, until something is stored.
    trouble: Option<CoordinatorStatus>,
    commands: VecDeque<(CommandId, CheckpointCommand)>,
    /// The commands that wait for the end of an epoch, and its kind.
    asks: Vec<(CommandId, EpochKind)>,
    over: Option<EpochsOver>,
    /// The packing plan for the next attempts; `None` if the driver uses no plans.
    plan: Option<PlanVersion>,
    /// The value of `plan` when the last epoch was committed. If equal to `plan`, a handover may
    /// follow.
    near: Option<PlanVersion>,
}

/// The progress of the current attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AttemptPhase {
    /// The coordinator has not read the record yet.
    Reading,
    /// The attempt is stored, and starts after a delay.
    Waiting {
        /// The time of the start.
        until: Duration,
    },
    /// The start of the attempt has been requested.
    Beginning {
        /// True if the attempt was already running under an earlier leader.
        again: bool,
    },
    /// The attempt runs: all participants are present.
    Running,
    /// No attempt runs. The job is in safe mode, and its paused attempt is lost too.
    Down,
}

impl CheckpointCoordinator {
    /// Creates the checkpoint coordinator of a job for the leadership with the epoch `master`.
    pub fn new(job: JobRef, master: MasterEpoch, config: CoordinatorConfig) -> Self {
        CheckpointCoordinator {
            interval: CheckpointInterval::new(&config),
            config,
            master,
            keeper: CheckpointRecordStore::new(job, master),
            proposal: None,
            phase: AttemptPhase::Reading,
            members: Participants::default(),
            failure: None,
            repeats: Repeats::default(),
            away: None,
            pending: None,
            is_between_checkpoints: false,
            is_held: false,
            next: Epoch(0),
            next_at: Duration::ZERO,
            pause_until: Duration::ZERO,
            retell_at: Duration::ZERO,
            aborted_in_a_row: 0,
            trouble: None,
            commands: VecDeque::new(),
            asks: Vec::new(),
            over: None,
            plan: None,
            near: None,
        }
    }

    /// Returns the stored record, as this leader last observed it; `None` before the first read.
    pub fn record(&self) -> Option<&CheckpointRecord> {
        self.keeper.record()
    }

    /// Returns the processing guarantee of the job.
    pub fn guarantee(&self) -> Guarantee {
        self.config.guarantee
    }

    /// Returns the present checkpoint interval.
    pub fn interval(&self) -> Duration {
        self.interval.length()
    }

    /// If the job waits for a checkpoint that cannot be read at the moment, returns the reason.
    pub fn waiting_reason(&self) -> Option<&str> {
        self.away.as_ref().map(ReadRetry::reason)
    }

    /// Returns true if the current attempt has ended or never started, and the next one has not
    /// been requested.
    pub fn is_between_attempts(&self) -> bool {
        let is_being_left = matches!(
            self.proposal,
            Some((Proposal::RollBack(_) | Proposal::GoDown, _))
        );
        self.failure.is_some()
            || is_being_left
            || matches!(self.phase, AttemptPhase::Waiting { .. })
    }

    /// Returns the epoch of the pending checkpoint, and the participants whose snapshots are
    /// missing.
    pub fn under_way(&self) -> Option<(Epoch, Vec<ParticipantId>)> {
        let under_way = self.pending.as_ref()?;
        Some((under_way.epoch, under_way.waiting_for()))
    }

    /// Returns true if all participants have carried out the newest commit, so that its output is
    /// published.
    pub fn is_published(&self) -> bool {
        let hears = |epoch| self.members.unconfirmed(epoch).next().is_none();
        self.phase == AttemptPhase::Running && self.committed().is_some_and(hears)
    }

    /// Returns true if the loss of `participant` would end the current attempt. Returns false for a
    /// participant that has ended, whose final snapshot is committed, and that has confirmed this
    /// commit.
    pub fn needs(&self, participant: ParticipantId) -> bool {
        match self.phase {
            AttemptPhase::Beginning { .. } => true,
            AttemptPhase::Running => self.members.needs(participant, self.stopped_at()),
            AttemptPhase::Reading | AttemptPhase::Waiting { .. } | AttemptPhase::Down => false,
        }
    }

    /// Returns the reason for which there are no more epochs, or `None` if there may be more.
    pub fn over(&self) -> Option<&EpochsOver> {
        self.over.as_ref()
    }

    /// Handles an event and returns the resulting actions.
    pub fn on(&mut self, now: Duration, event: CoordinatorEvent) -> Vec<CoordinatorAction> {
        let mut actions = Vec::new();
        if self.over.is_some() {
            return actions;
        }
        match event {
            CoordinatorEvent::Tick => {}
            CoordinatorEvent::Record(id, reply) => {
                if let Some(kept) = self.keeper.answered(now, id, reply) {
                    self.kept(now, kept, &mut actions);
                }
            }
            CoordinatorEvent::Begun {
                generation,
                restored_from,
                participants,
            } if self.awaits(generation) => {
                self.begun(now, restored_from, participants, &mut actions);
            }
            CoordinatorEvent::NotBegun { generation, reason } if self.awaits(generation) => {
                self.failure.get_or_insert(Failure::NotBegun(reason));
            }
            CoordinatorEvent::Unreadable { generation, reason } if self.awaits(generation) => {
                self.failure.get_or_insert(Failure::Unreadable(reason));
            }
            CoordinatorEvent::Away { generation, reason } if self.awaits(generation) => {
                self.failure.get_or_insert(Failure::Away(reason));
            }
            // These events belong to attempts that have ended, or are not known to have started.
            CoordinatorEvent::Begun { .. }
            | CoordinatorEvent::NotBegun { .. }
            | CoordinatorEvent::Unreadable { .. }
            | CoordinatorEvent::Away { .. } => {}
            CoordinatorEvent::From(message) => self.reported(now, message, &mut actions),
            CoordinatorEvent::Lost {
                generation,
                participant,
                reason,
            } => self.lost(generation, participant, Failure::Lost(reason)),
            CoordinatorEvent::Failed {
                generation,
                participant,
                failure,
            } => self.lost(generation, participant, Failure::Failed(failure)),
            CoordinatorEvent::Arranged(plan) => self.plan = Some(plan),
            CoordinatorEvent::Command(id, command) => self.commands.push_back((id, command)),
        }
        self.settle(now, &mut actions);
        actions
    }

    /// Adds all actions that are due in the current state.
    fn settle(&mut self, now: Duration, actions: &mut Vec<CoordinatorAction>) {
        self.check_timeouts(now, actions);
        if self.keeper.is_idle() && self.over.is_none() {
            self.decide(now, actions);
        }
        if self.keeper.is_idle() && self.over.is_none() {
            self.start_attempt(now, actions);
            self.begin_epoch(now, actions);
            self.tell_again(now, actions);
            self.check_completion(actions);
        }
        if self.over.is_none() {
            let (doubtful, request) = self.keeper.ask(now);
            if let Some(kept) = doubtful {
                self.kept(now, kept, actions);
            }
            actions.extend(request.map(|(id, request)| CoordinatorAction::Record(id, request)));
        }
    }

    fn awaits(&self, generation: Generation) -> bool {
        matches!(self.phase, AttemptPhase::Beginning { .. }) && self.is_present(generation)
    }

    fn is_present(&self, generation: Generation) -> bool {
        self.record()
            .is_some_and(|record| record.generation == generation)
    }

    fn committed(&self) -> Option<Epoch> {
        self.record().and_then(|record| record.committed)
    }

    /// Returns the epoch after which the job stops, if it is stopping.
    fn stopped_at(&self) -> Option<Epoch> {
        let record = self.record()?;
        record
            .committed
            .filter(|_| record.stop == StopState::WhenHeard)
    }

    fn message_to(&self, to: ParticipantId, word: CoordinatorMessage) -> CoordinatorAction {
        let generation = self
            .record()
            .map_or(Generation(0), |record| record.generation);
        let message = ToParticipant {
            master: self.master,
            generation,
            committed: self.committed(),
            word,
        };
        CoordinatorAction::To(to, message)
    }

    /// Takes the unanswered commands, when the coordinator will not answer them any more.
    pub(crate) fn open_commands(&mut self) -> Vec<CommandId> {
        let proposed = self.proposal.take().and_then(|(_, asked_by)| asked_by);
        let under_way = self.pending.take().map(|under_way| under_way.requested_by);
        let commands = self.commands.drain(..).map(|(id, _)| id);
        let asks = self.asks.drain(..).map(|(id, _)| id);
        let unanswered = (proposed.into_iter()).chain(under_way.into_iter().flatten());
        unanswered.chain(asks).chain(commands).collect()
    }

    fn end(&mut self, over: EpochsOver, actions: &mut Vec<CoordinatorAction>) {
        for id in self.open_commands() {
            let not_done = EpochNotDone::Over(over.clone());
            actions.push(CoordinatorAction::Reply(id, Err(not_done)));
        }
        actions.push(CoordinatorAction::Over(over.clone()));
        self.over = Some(over);
    }
}
