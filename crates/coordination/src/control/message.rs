//! Messages between workers and the job master: workers send [`FromWorker`], the master sends
//! [`ToWorker`].
//!
//! Commands are declarative: an [`Assignment`] is the complete desired state of a worker, and a
//! later one replaces it. Messages may thus be lost, duplicated or reordered. The newest one is
//! enough, and the master repeats it until the worker has carried it out.

use std::sync::Arc;

use crate::packing::{ContainerId, InstanceId, PackingPlan};
use serde::{Deserialize, Serialize};

use crate::control::{
    AttemptEnd, Credentials, ExecutionAttempt, FromParticipant, Generation, MasterEpoch, Order,
    PlanVersion, RecoveryScope, Rejection, RestoredWorker, ToParticipant, WorkerId,
};

/// A message that a worker sends over its connection to the master.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FromWorker {
    /// A message of the worker's agent, see [`WorkerAgent`](crate::control::WorkerAgent).
    Control(ToMaster),
    /// Metrics that this process has collected since the last report, as encoded by the metrics
    /// manager. The message may be lost.
    Metrics(Vec<u8>),
}

/// A control message of a worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToMaster {
    /// Requests membership and reports the running instances. Repeated until the master accepts or
    /// refuses the worker.
    Register(Registration),
    /// A heartbeat; also sent immediately after an assignment was carried out.
    Status(Status),
    /// Informs an outdated master that there is a newer one.
    NotMaster {
        /// The sender.
        worker: WorkerId,
        /// The newest master epoch known to the sender.
        newest: MasterEpoch,
    },
    /// An instance has failed; the worker restarts it by itself.
    Problem {
        /// The sender.
        worker: WorkerId,
        /// The instance.
        instance: InstanceId,
        /// The error message.
        message: String,
    },
    /// A message for the checkpoint coordinator.
    Epochs {
        /// The sender.
        worker: WorkerId,
        /// The message.
        message: FromParticipant,
    },
    /// The worker cannot continue its execution attempt. Repeated with every heartbeat until the
    /// master assigns a later attempt.
    AttemptOver {
        /// The sender.
        worker: WorkerId,
        /// The attempt.
        generation: Generation,
        /// The reason.
        why: AttemptEnd,
    },
}

impl ToMaster {
    /// Returns the worker that sent the message.
    pub fn speaker(&self) -> WorkerId {
        match self {
            ToMaster::Register(registration) => registration.worker,
            ToMaster::Status(status) => status.worker,
            ToMaster::NotMaster { worker, .. }
            | ToMaster::Problem { worker, .. }
            | ToMaster::Epochs { worker, .. }
            | ToMaster::AttemptOver { worker, .. } => *worker,
        }
    }
}

/// A worker's request for membership.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Registration {
    /// The worker.
    pub worker: WorkerId,
    /// The protocol version, cluster and job of the worker.
    pub who: Credentials,
    /// The address at which other workers reach this worker.
    pub endpoint: Arc<str>,
    /// The assignment that the worker runs, if it has received one.
    pub held: Option<RunningAssignment>,
}

/// The assignment that a worker runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunningAssignment {
    /// The instances of the assignment, including those that are being started or stopped.
    pub instances: Arc<[InstanceId]>,
    /// The plan versions known to the worker.
    pub plans: Vec<PlanVersion>,
    /// The execution attempt of the instances, if the job has a guarantee.
    pub attempt: Option<Generation>,
}

/// A heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The worker.
    pub worker: WorkerId,
    /// The order of the newest assignment that was carried out. Exactly the instances of this
    /// assignment run.
    pub applied: Option<Order>,
    /// True if all instances of the assignment `applied` have completed successfully.
    pub ended: bool,
    /// The part of the job that is restored if this worker is lost.
    pub scope: RecoveryScope,
}

/// A message of the job master to a worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToWorker {
    /// The worker is a member.
    Welcome(MasterEpoch),
    /// The worker is refused and must exit.
    Refused(MasterEpoch, Rejection),
    /// The worker is not, or no longer, a member and must register.
    Unknown(MasterEpoch),
    /// The reply to a heartbeat.
    StatusReceived(MasterEpoch),
    /// A plan to which a later assignment refers. The message is the same for all workers, so it is
    /// encoded only once.
    Plan {
        /// The epoch of the sending master.
        epoch: MasterEpoch,
        /// The version of the plan.
        version: PlanVersion,
        /// The plan.
        plan: Arc<PackingPlan>,
    },
    /// Changed addresses of other workers. The message is the same for many workers, so it is
    /// encoded only once.
    Peers {
        /// The epoch of the sending master.
        epoch: MasterEpoch,
        /// The state of the peer table to which the changes apply; a later state is possible too.
        from: Order,
        /// The state of the peer table after the changes.
        to: Order,
        /// The changed entries.
        changed: Arc<[Peer]>,
    },
    /// The desired state of the worker.
    Assign(Arc<Assignment>),
    /// A message of the checkpoint coordinator.
    Epochs(ToParticipant),
    /// The job is over: the worker must exit.
    Leave(MasterEpoch),
}

impl ToWorker {
    /// Returns the epoch of the sending master.
    pub fn epoch(&self) -> MasterEpoch {
        match self {
            ToWorker::Welcome(epoch)
            | ToWorker::Refused(epoch, _)
            | ToWorker::Unknown(epoch)
            | ToWorker::StatusReceived(epoch)
            | ToWorker::Plan { epoch, .. }
            | ToWorker::Peers { epoch, .. }
            | ToWorker::Leave(epoch) => *epoch,
            ToWorker::Assign(assignment) => assignment.order.epoch,
            ToWorker::Epochs(message) => message.master,
        }
    }
}

/// The complete desired state of a worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Assignment {
    /// The position of the assignment among all assignments. A worker carries out only assignments
    /// later than its last one.
    pub order: Order,
    /// The exact set of instances to run.
    pub instances: Arc<[InstanceId]>,
    /// The state of the sources.
    pub run: Run,
    /// The plan by which records are routed.
    pub routes: PlanVersion,
    /// The newest plan, by which records will be routed next. Equal to `routes` unless plans are
    /// being changed.
    pub next: PlanVersion,
    /// The plan by which records still in transit may have been routed. Equal to `routes` unless
    /// the routes have just been switched.
    pub last: PlanVersion,
    /// The execution attempt of the assignment; `None` in a job without a guarantee. A worker that
    /// runs another attempt ends that attempt and starts this one.
    pub attempt: Option<ExecutionAttempt>,
    /// The workers that were restored alone in the attempt.
    pub restarted: Arc<[RestoredWorker]>,
    /// The required state of the peer table. The worker needs this state and the plans before it
    /// can carry out the assignment.
    pub peers: Order,
}

/// The address of a container's worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// The worker. Other workers reject frames from an earlier start of its container.
    pub worker: WorkerId,
    /// The address at which the worker is reached.
    pub endpoint: Arc<str>,
}

impl Peer {
    /// Returns the worker's container.
    pub fn container(&self) -> ContainerId {
        self.worker.container
    }
}

/// The state of the sources.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Run {
    /// The sources do not read yet, since other workers are still being prepared.
    #[default]
    Prepared,
    /// The sources read.
    Running,
    /// The sources are paused. Records that were already read are still processed.
    Paused,
    /// Each source reads as soon as its own state is restored, in an attempt that restores a
    /// checkpoint. Records for an instance that is not ready are buffered, so restored instances do
    /// not wait for slower ones.
    Early,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::JobRef;
    use crate::packing::{
        JobDemand, PackingConfig, PackingPolicy, Resources, RoundRobin, VertexDemand,
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
            held: Some(RunningAssignment {
                instances: [InstanceId::new("words", 0)].into(),
                plans: vec![version],
                attempt: Some(Generation(4)),
            }),
        })));
        reads_back(&FromWorker::Control(ToMaster::AttemptOver {
            worker,
            generation: Generation(4),
            why: AttemptEnd::Unreadable("a block is damaged".into()),
        }));
        reads_back(&FromWorker::Metrics(vec![1, 2, 3]));
    }
}
