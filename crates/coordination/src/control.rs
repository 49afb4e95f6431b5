//! The control plane as deterministic state machines: `on(now, event)` returns the actions to take.
//!
//! This module contains no sockets, threads, clocks or random numbers. A driver passes in events
//! with the time since its own start and executes the returned actions: it sends messages, calls
//! the metadata store and calls the scheduler. The same machines run on a laptop, in a cluster, and
//! under simulated faults (`ardea-sim`).
//!
//! In reading order:
//!
//! * [`JobRef`], [`WorkerId`], [`MasterEpoch`], [`Order`]: identities, fencing tokens and the order
//!   of commands;
//! * [`Lease`]: leader election; [`StoreRequest`]: requests to the metadata store;
//! * [`Membership`]: the registered workers; [`Rejection`]: reasons for a refusal; [`Backoff`]:
//!   retry delays;
//! * [`ToMaster`], [`ToWorker`], [`FromWorker`], [`Assignment`]: the serialisable messages;
//! * [`WorkerAgent`]: the worker's side of the protocol;
//! * [`ExecutionAttempt`], [`AttemptEnd`]: one execution attempt of a job with a guarantee, and the
//!   reasons for which a worker ends an attempt;
//! * [`JobMaster`]: packing, starting and recovery; [`JobRecord`]: the stored state of a job;
//!   [`Scaling`]: the transition from one plan to the next;
//! * [`JobDefinition`], [`WorkerStart`]: the submitted job, and the start parameters of a worker;
//! * [`CheckpointCoordinator`]: triggers, completes and commits checkpoints;
//!   [`CheckpointParticipant`]: the worker's part in them;
//! * [`Candidate`]: a job master with its lease; [`Submission`]: submission of a job; [`Upgrade`],
//!   [`Replacement`]: replacement of a job's program by another.
//!
//! # Invariants
//!
//! * A machine is a function of its configuration and of the timed events so far.
//! * Messages may be lost, duplicated, delayed and reordered, and the metadata store may not
//!   answer. A machine repeats a request until it knows the outcome.
//! * At most one process acts as the leader of a job: lease terms do not overlap, and receivers
//!   ignore commands with an outdated master epoch.
//! * Decisions are stored before they are executed.
//! * The data path does not depend on the leader: without one, workers continue with their last
//!   assignment.
//! * A job with a guarantee is restored as a whole: the loss of a required worker starts a new
//!   attempt. In micro-batches a worker may be restored alone, in the same attempt. At any time an
//!   attempt has at most one worker process per container.
//! * An epoch is committed, permanently, when its checkpoint is recorded. Nothing is published
//!   before that.
//!
//! # Example: a worker that looks up its leader
//!
//! See [`Lease`] for an example of a lease.
//!
//! ```
//! use std::time::Duration;
//! use ardea_coordination::control::{AgentAction, AgentConfig, AgentEvent, Credentials, JobRef, WorkerAgent, WorkerId};
//! use ardea_coordination::packing::ContainerId;
//!
//! let job = JobRef { cluster: "prod".into(), name: "word-count".into(), submission: 1 };
//! let worker = WorkerId { container: ContainerId(1), incarnation: 1 };
//! let mut agent = WorkerAgent::new(worker, Credentials::of(&job), "10.0.0.7:7001", AgentConfig::default());
//! let actions = agent.on(Duration::ZERO, AgentEvent::Tick);
//! assert_eq!(actions, [AgentAction::LookUp]);
//! ```

mod identity;
mod store;

mod lease;

mod backoff;
mod membership;
mod rejection;

mod attempt;
mod message;
mod recovery_scope;
mod worker_agent;

mod definition;

mod checkpoint_coordinator;
mod group_tuner;

mod candidate;
mod job_master;
mod job_record;
mod rescale;
mod submission;
mod upgrade;

pub use attempt::{AttemptEnd, ExecutionAttempt};
pub use backoff::{Backoff, BackoffConfig};
pub use candidate::{Candidate, CandidateAction, CandidateEvent};
pub use checkpoint_coordinator::{
    AbortReason, AttemptFailure, CheckpointCommand, CheckpointCoordinator, CheckpointParticipant,
    CheckpointRecord, CoordinatorAction, CoordinatorConfig, CoordinatorEvent, CoordinatorMessage,
    CoordinatorStatus, EpochKind, EpochNotDone, EpochsOver, FromParticipant, Generation,
    ParticipantAction, ParticipantEvent, ParticipantId, ParticipantReport, RecordedCheckpoint,
    RecordedSnapshot, RequiredCheckpoints, SafeMode, SnapshotAck, StopState, ToParticipant,
};
pub use definition::{
    CertificateFiles, JobDefinition, ProgramRef, WORKER_START_VARIABLE, WorkerStart,
};
pub(crate) use group_tuner::{GroupTuner, TunerConfig};
pub use identity::{JobRef, MasterEpoch, Order, PROTOCOL, PlanVersion, WorkerId};
pub use job_master::{
    Command, CommandId, ContainerRequest, ContainerState, ContainersToMove, JobMaster, JobPhase,
    MasterAction, MasterConfig, MasterEvent, MasterStatus, SchedulerAnswer, SchedulerCall,
    SchedulerTraits,
};
pub use job_record::{DesiredState, JobRecord, Previous};
pub use lease::{Lease, LeaseAction, LeaseConfig, LeaseEvent, LeaseRecord};
pub use membership::{Cause, Credentials, MemberAction, MemberEvent, Membership, MembershipConfig};
pub use message::{
    Assignment, FromWorker, Peer, Registration, Run, RunningAssignment, Status, ToMaster, ToWorker,
};
pub use recovery_scope::{JobRecoveryReason, RecoveryScope, RestoredWorker};
pub use rejection::Rejection;
pub use rescale::{RescalePhase, Scaling, ScalingAction, ScalingEvent};
pub use store::{RequestId, StoreReply, StoreRequest, StoreVersion};
pub use submission::{Submission, SubmissionAction, SubmissionEvent};
pub use upgrade::{
    FinalState, IMPORTED, Predecessor, PredecessorState, Replacement, Successor, Upgrade,
    UpgradeEnd, UpgradeOrder,
};
pub use worker_agent::{
    AgentAction, AgentConfig, AgentEvent, Change, LeaveReason, Lookup, WorkerAgent,
};
