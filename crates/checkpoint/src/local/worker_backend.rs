//! The storage of a worker's snapshots, as the worker sees it.

use std::fmt;
use std::sync::Arc;

use ardea_coordination::control::{EpochKind, EpochsAgentEvent, Life};
use ardea_coordination::packing::InstanceId;
use ardea_core::{Epoch, Error, Guarantee, Result};
use ardea_engine::{Cuts, JobHandle, Parallelisms};

/// Keeps what the instances of a container remember, for the lives of a job with a guarantee.
///
/// A worker has one, and at most one life at a time: the one before is dropped before another begins, when nothing of it runs any more.
pub trait CutKeeper: Send + Sync {
    /// What the job promises.
    fn guarantee(&self) -> Guarantee;

    /// A life begins here. Called on a thread of its own, which may wait for a while; the state itself is read later, by the instances.
    ///
    /// # Errors
    /// [`ErrorCode::SnapshotDamaged`](ardea_core::ErrorCode::SnapshotDamaged) or
    /// [`ErrorCode::NoSuchSnapshot`](ardea_core::ErrorCode::NoSuchSnapshot) if the snapshot can't be read: the job then takes another, where its
    /// promise allows for that, or waits for somebody to decide. [`ErrorCode::SnapshotsAway`](ardea_core::ErrorCode::SnapshotsAway) if it can't
    /// be read at the moment: the job waits until it can. Whatever else keeps the life from beginning; it is tried again.
    fn begin(&self, life: LifeHere) -> Result<Box<dyn LifeCuts>>;
}

/// Keeps the cuts of one life. When it is dropped that life is over, and whatever of its cuts is being written is worth nothing.
pub trait LifeCuts: Send {
    /// Where the cuts of instances go, and where their state comes from.
    fn cuts(&self) -> Cuts;

    /// All instances that run here have been made, as part of this job, with what [`cuts`](Self::cuts) says: no other will ask for state.
    fn begun(&mut self, job: &JobHandle) {
        let _ = job;
    }

    /// An epoch is about to end, for this reason.
    fn ends(&mut self, epoch: Epoch, kind: EpochKind);

    /// An epoch is committed; may be told twice. When all instances here have done what they do then, [`EpochsAgentEvent::Visible`] is to be
    /// told: a sink that could not publish fails its life, and has not.
    fn committed(&mut self, epoch: Epoch);

    /// An epoch is given up: nothing that was saved of it is needed.
    fn given_up(&mut self, epoch: Epoch);
}

/// A life of the job, as far as it is in this container.
#[derive(Clone)]
pub struct LifeHere {
    /// Which life, and what it begins from.
    pub life: Life,
    /// The job, as its state is called by.
    pub job: String,
    /// What runs here.
    pub instances: Vec<InstanceId>,
    /// How many instances each vertex has, wherever they are.
    pub parallelisms: Parallelisms,
    /// Whom to tell when the cuts of all instances here are durable for an epoch ([`EpochsAgentEvent::Saved`]), can't be saved
    /// ([`EpochsAgentEvent::CannotSave`]), the last of them has ended and left its last cut ([`EpochsAgentEvent::Ended`]), or all have done
    /// what they do at a commit ([`EpochsAgentEvent::Visible`]). From any thread; what is told after the life is over counts for nothing.
    pub tell: Arc<dyn Fn(EpochsAgentEvent) + Send + Sync>,
    /// Whom to tell when all instances here have the state that they begin with: the life does not run before. From any thread; not asked for
    /// where the life begins with nothing.
    pub restored: Arc<dyn Fn() + Send + Sync>,
    /// Whom to tell that the life can't go on here. From any thread.
    pub fail: Arc<dyn Fn(Error) + Send + Sync>,
}

impl fmt::Debug for LifeHere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LifeHere {
            life,
            job,
            instances,
            ..
        } = self;
        write!(f, "LifeHere({job}, {life:?}, {instances:?})")
    }
}
