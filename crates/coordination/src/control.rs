//! The control plane as state machines: `on(now, event)` gives the actions, and nothing else happens.
//!
//! No sockets, threads, clocks or randomness are in here. A driver passes in what has happened and the time since its own start, and
//! does what comes out: sends messages, asks the state manager, calls the scheduler. The same machines run on a laptop, in a
//! cluster, and under simulated faults (`ardea-sim`).
//!
//! In reading order:
//!
//! * [`JobRef`], [`WorkerId`], [`MasterEpoch`], [`Order`]: who speaks, and what counts;
//! * [`Lease`]: which process is a job's master; [`StoreRequest`]: what machines ask of a state manager;
//! * [`Membership`]: which workers there are; [`Refused`]: why one is not taken; [`Backoff`]: when to try again;
//! * [`ToMaster`], [`ToWorker`], [`FromWorker`], [`Assignment`]: the messages, all of them serialisable;
//! * [`WorkerAgent`]: a worker's side of it;
//! * [`Life`], [`LifeEnd`]: one life of a job with a guarantee, and why a worker can't go on with it;
//! * [`JobMaster`]: plans, starts, mends; [`JobRecord`]: what is stored of a job; [`Scaling`]: from one plan to the next;
//! * [`JobDefinition`], [`WorkerStart`]: what was submitted, and what a worker is started with;
//! * [`Epochs`]: conducts the epochs of a job, to snapshots that are committed; [`EpochsAgent`]: a participant's side of it;
//! * [`Candidate`]: a master with its lease; [`Submission`]: how a job comes to be; [`Upgrade`], [`Following`]: how its program is followed
//!   by another.
//!
//! # Invariants
//!
//! * A machine is a function of its configuration and the events so far, with their times.
//! * Messages may be lost, doubled, delayed and reordered; the state manager may not answer. What is not known to have
//!   happened is asked for again.
//! * At most one process acts as a job's master: terms of leases don't overlap, and what a master of an earlier epoch says is obeyed by nobody.
//! * What is decided is stored before it is done.
//! * A job's data does not wait for its master: workers go on with what they were told last.
//! * A job with a guarantee goes back as a whole: in each of its lives a container has one worker process, and after the loss of one that is
//!   needed there is another life.
//! * An epoch is committed when its snapshot is recorded, and then for good; nothing is published before.
//!
//! # Example: a worker that looks for its master
//!
//! A lease's example is at [`Lease`].
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
mod refused;

mod life;
mod message;
mod worker_agent;

mod definition;

mod epochs;

mod candidate;
mod job_master;
mod job_record;
mod scaling;
mod submission;
mod upgrade;

pub use backoff::{Backoff, BackoffConfig};
pub use candidate::{Candidate, CandidateAction, CandidateEvent};
pub use definition::{
    CertificateFiles, JobDefinition, ProgramRef, WORKER_START_VARIABLE, WorkerStart,
};
pub use epochs::{
    AttemptFailure, EpochKind, EpochNotDone, EpochWord, Epochs, EpochsAction, EpochsAgent,
    EpochsAgentAction, EpochsAgentEvent, EpochsCommand, EpochsConfig, EpochsEvent, EpochsNote,
    EpochsOver, EpochsRecord, FromParticipant, Generation, GivenUp, Needed, ParticipantId, Receipt,
    RecordedCut, RecordedSnapshot, Report, SafeMode, StopState, ToParticipant,
};
pub use identity::{JobRef, MasterEpoch, Order, PROTOCOL, PlanVersion, WorkerId};
pub use job_master::{
    Command, CommandId, ContainerRequest, ContainerState, Displaced, JobMaster, JobPhase,
    MasterAction, MasterConfig, MasterEvent, Note, SchedulerAnswer, SchedulerCall, SchedulerTraits,
};
pub use job_record::{Intent, JobRecord, Previous};
pub use lease::{Lease, LeaseAction, LeaseConfig, LeaseEvent, LeaseRecord};
pub use life::{Life, LifeEnd};
pub use membership::{Cause, Credentials, MemberAction, MemberEvent, Membership, MembershipConfig};
pub use message::{
    Assignment, FromWorker, Held, Peer, Registration, Run, Status, ToMaster, ToWorker,
};
pub use refused::Refused;
pub use scaling::{Scaling, ScalingAction, ScalingEvent, Stage};
pub use store::{RequestId, StoreReply, StoreRequest, StoreVersion};
pub use submission::{Submission, SubmissionAction, SubmissionEvent};
pub use upgrade::{
    BROUGHT, Following, Left, LeftState, Predecessor, Successor, Upgrade, UpgradeEnd, UpgradeOrder,
};
pub use worker_agent::{
    AgentAction, AgentConfig, AgentEvent, Change, Departure, Lookup, WorkerAgent,
};
