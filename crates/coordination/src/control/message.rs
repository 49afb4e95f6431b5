//! What workers and master say to each other: a worker sends [`FromWorker`], a master [`ToWorker`].
//!
//! Orders are levels, not steps: an [`Assignment`] says all that a worker should run, and a later one replaces it. So a
//! message may be lost, doubled or overtaken: the newest that arrives is enough, and it is sent again until it is known to be carried out.

use std::sync::Arc;

use crate::packing::{ContainerId, InstanceId, PackingPlan};
use serde::{Deserialize, Serialize};

use crate::control::{
    Credentials, FromParticipant, Generation, Life, LifeEnd, MasterEpoch, Order, PlanVersion,
    Refused, ToParticipant, WorkerId,
};

/// What a worker sends to its master over a connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FromWorker {
    /// What its agent says.
    Control(ToMaster),
    /// What was measured in this process since the last time, as the metrics manager encodes it; it may be lost.
    Metrics(Vec<u8>),
}

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
    /// A word about epochs, for the conductor.
    Epochs {
        /// Who says it.
        worker: WorkerId,
        /// The word.
        message: FromParticipant,
    },
    /// It can't go on with the life that it was told of; again with every heartbeat until it is told of a later one.
    LifeOver {
        /// Who says it.
        worker: WorkerId,
        /// Which life.
        generation: Generation,
        /// Why.
        why: LifeEnd,
    },
}

impl ToMaster {
    /// Which worker says it.
    pub fn speaker(&self) -> WorkerId {
        match self {
            ToMaster::Register(registration) => registration.worker,
            ToMaster::Status(status) => status.worker,
            ToMaster::NotMaster { worker, .. }
            | ToMaster::Problem { worker, .. }
            | ToMaster::Epochs { worker, .. }
            | ToMaster::LifeOver { worker, .. } => *worker,
        }
    }
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
    /// The life of the job that they belong to, if it has lives.
    pub life: Option<Generation>,
}

/// "Still here."
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Who.
    pub worker: WorkerId,
    /// The newest assignment that is carried out: exactly its instances run.
    pub applied: Option<Order>,
    /// Whether all instances of that assignment have come to their end by themselves, and well.
    pub ended: bool,
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
    /// A word about epochs, from the conductor.
    Epochs(ToParticipant),
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
            ToWorker::Epochs(message) => message.master,
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
    /// The plan by which records that are still under way may have been routed; the routes' one, unless they have just been switched.
    pub last: PlanVersion,
    /// The life of the job that all of it belongs to, in a job with a guarantee. Whoever runs another one ends all of that, and begins this one.
    pub life: Option<Life>,
    /// The state that the table of peers has to have; without it, and the plans, the assignment can't be carried out.
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
    /// In a life that goes on from a snapshot they read as soon as they have what they begin with, though others are still being
    /// prepared: what is read waits where it is needed. So whoever is ready goes on while others still read what they remember.
    Early,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::JobRef;
    use crate::packing::{
        JobDemand, PackingConfig, ResourceManager, Resources, RoundRobin, VertexDemand,
    };
    use serde::de::DeserializeOwned;

    fn reads_back<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(message: &T) {
        let bytes = postcard::to_stdvec(message).unwrap();
        assert_eq!(&postcard::from_bytes::<T>(&bytes).unwrap(), message);
    }

    #[test]
    fn messages_read_back_in_a_format_without_names() {
        let demand = JobDemand::new("word-count")
            .vertex(VertexDemand::new("words", 3, Resources::ZERO))
            .vertex(VertexDemand::new("counts", 2, Resources::ZERO).attribute("rack", "1"));
        let plan = RoundRobin.pack(&demand, &PackingConfig::default()).unwrap();
        let job = JobRef {
            cluster: "prod".into(),
            name: "word-count".into(),
            submission: 1,
        };
        let worker = WorkerId {
            container: ContainerId(1),
            incarnation: 7,
        };
        let (epoch, version) = (MasterEpoch(3), PlanVersion(1));
        reads_back(&ToWorker::Plan {
            epoch,
            version,
            plan: Arc::new(plan),
        });
        reads_back(&FromWorker::Control(ToMaster::Register(Registration {
            worker,
            who: Credentials::of(&job),
            endpoint: "10.0.0.7:7001".into(),
            held: Some(Held {
                instances: [InstanceId::new("words", 0)].into(),
                plans: vec![version],
                life: Some(Generation(4)),
            }),
        })));
        reads_back(&FromWorker::Control(ToMaster::LifeOver {
            worker,
            generation: Generation(4),
            why: LifeEnd::Unreadable("a block is damaged".into()),
        }));
        reads_back(&FromWorker::Metrics(vec![1, 2, 3]));
    }
}
