//! What workers and master say to each other.
//!
//! Orders are levels, not steps: an [`Assignment`] says all that a worker should run, and a later one replaces it. So a
//! message may be lost, doubled or overtaken: the newest that arrives is enough, and it is sent again until it is known to be carried out.

use std::sync::Arc;

use ardea_packing::{ContainerId, InstanceId, PackingPlan};
use serde::{Deserialize, Serialize};

use crate::{Credentials, MasterEpoch, Order, PlanVersion, Refused, WorkerId};

/// What a worker says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToMaster {
    /// Asks to be taken, and tells what it runs already; again until it is welcomed or refused.
    Register(Registration),
    /// "Still here", every heartbeat, and at once when an assignment has been carried out.
    Status(Status),
    /// "You are no master any more."
    NotMaster {
        /// Who says it.
        worker: WorkerId,
        /// The newest mastership that it has heard of.
        newest: MasterEpoch,
    },
    /// Something is wrong with an instance; the worker restarts it by itself.
    Problem {
        /// Who says it.
        worker: WorkerId,
        /// The instance.
        instance: InstanceId,
        /// What happened.
        message: String,
    },
}

/// A worker asks to be taken.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Registration {
    /// Who.
    pub worker: WorkerId,
    /// Which version, cluster and job.
    pub who: Credentials,
    /// Where other workers reach it.
    pub endpoint: Arc<str>,
    /// What it runs, if a master has assigned something before.
    pub held: Option<Held>,
}

/// What a worker runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    /// Its instances, those included that are just being started or stopped.
    pub instances: Arc<[InstanceId]>,
    /// The plan versions that it knows.
    pub plans: Vec<PlanVersion>,
}

/// "Still here."
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Who.
    pub worker: WorkerId,
    /// The newest assignment that is carried out: exactly its instances run.
    pub applied: Option<Order>,
    /// Whether all of its instances have come to their end, and ended well; never before it is carried out.
    pub ended: bool,
}

/// All that a worker sends over its connection to the master.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FromWorker {
    /// A word to the master.
    Control(ToMaster),
    /// What its instances have counted lately: a batch of samples, as whoever keeps them encodes it. May be lost.
    Metrics(Vec<u8>),
}

/// What a master says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToWorker {
    /// It is a member.
    Welcome(MasterEpoch),
    /// It is none, and has to end.
    Refused(MasterEpoch, Refused),
    /// The master doesn't know it (any more): it has to register.
    Unknown(MasterEpoch),
    /// The answer to a status.
    Heard(MasterEpoch),
    /// A plan that an assignment will speak of. The same for all workers: it has to be encoded once only.
    Plan {
        /// Which master says it.
        epoch: MasterEpoch,
        /// The plan's number.
        version: PlanVersion,
        /// The plan.
        plan: Arc<PackingPlan>,
    },
    /// Where other workers are. The same for many workers: it has to be encoded once only.
    Peers {
        /// Which master says it.
        epoch: MasterEpoch,
        /// Who has the table in this state, or a later one, ...
        from: Order,
        /// ... has it in this one,
        to: Order,
        /// with these changes.
        changed: Arc<[Peer]>,
    },
    /// What it has to run.
    Assign(Arc<Assignment>),
    /// The job is over: end.
    Leave(MasterEpoch),
}

impl ToWorker {
    /// Which master says it.
    pub fn epoch(&self) -> MasterEpoch {
        match self {
            ToWorker::Welcome(epoch)
            | ToWorker::Refused(epoch, _)
            | ToWorker::Unknown(epoch)
            | ToWorker::Heard(epoch)
            | ToWorker::Plan { epoch, .. }
            | ToWorker::Peers { epoch, .. }
            | ToWorker::Leave(epoch) => *epoch,
            ToWorker::Assign(assignment) => assignment.order.epoch,
        }
    }
}

/// All that a worker has to run and needs to know for it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Assignment {
    /// Its place among all assignments: only a later one than the last is carried out.
    pub order: Order,
    /// What to run: no more and no less.
    pub instances: Arc<[InstanceId]>,
    /// Whether sources read.
    pub run: Run,
    /// The plan by which records are routed.
    pub routes: PlanVersion,
    /// The newest plan, which records will be routed by next; the same one, unless plans are being changed.
    pub next: PlanVersion,
    /// The state that the table of peers has to have; without it, and both plans, the assignment can't be carried out.
    pub peers: Order,
}

/// Where a container's worker is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// The worker: frames from an earlier life of its container are not taken.
    pub worker: WorkerId,
    /// Where it is reached.
    pub endpoint: Arc<str>,
}

impl Peer {
    /// The container that it works for.
    pub fn container(&self) -> ContainerId {
        self.worker.container
    }
}

/// Whether sources read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Run {
    /// Not yet: other workers are still being prepared.
    #[default]
    Prepared,
    /// They read.
    Running,
    /// They have been told to stop reading for a while; what was read flows on.
    Paused,
}
