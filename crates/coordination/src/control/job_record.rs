//! The stored state of a job. Together with the reports of the workers, it is all that a new leader
//! needs to take over.

use std::sync::Arc;

use crate::packing::{JobDemand, PackingConfig, PackingPlan};
use serde::{Deserialize, Serialize};

use crate::control::{JobRef, MasterEpoch, PlanVersion, Upgrade};

/// The stored state of a job. The submitter writes it once; then only the job's leaders write it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobRecord {
    /// The job.
    pub job: JobRef,
    /// The master epoch of the leader that wrote this record; zero for the submitter.
    pub epoch: MasterEpoch,
    /// The requested vertices and resources.
    pub demand: JobDemand,
    /// The configuration of the packing.
    pub packing: PackingConfig,
    /// The state of the job that the user has requested.
    pub intent: DesiredState,
    /// True once all workers have been prepared. From then on a worker that registers starts
    /// immediately.
    pub started: bool,
    /// True if all instances have completed. The job's remains are then removed, and nothing is
    /// restarted.
    pub finished: bool,
    /// The packing plan; `None` until the first leader has packed the job.
    pub plan: Option<Arc<PackingPlan>>,
    /// The version of the plan.
    pub plan_version: PlanVersion,
    /// The previous plan, while the job changes from that plan to the current one.
    pub previous: Option<Previous>,
    /// The progress of an upgrade from or to another program. The outcome of the last upgrade is
    /// retained.
    pub upgrade: Option<Upgrade>,
}

/// The state that a user requested for a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DesiredState {
    /// The job runs.
    Run,
    /// The job is deployed, but its sources do not read.
    Pause,
    /// The job is stopped and removed.
    Kill,
}

/// The old plan during a change of plans.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Previous {
    /// The plan.
    pub plan: Arc<PackingPlan>,
    /// The version of the plan.
    pub version: PlanVersion,
    /// True if workers may already route records by the new plan.
    pub switched: bool,
}

impl JobRecord {
    /// Returns true if the job is being removed, by the user's request or because it has finished.
    pub fn is_ending(&self) -> bool {
        self.finished || self.intent == DesiredState::Kill
    }

    /// Returns true if another job replaces this one as soon as none of its instances run.
    pub fn is_being_replaced(&self) -> bool {
        let gives_way = self.upgrade.as_ref().is_some_and(Upgrade::is_replaced);
        self.finished && self.intent != DesiredState::Kill && gives_way
    }

    /// Creates the record with which a submitter creates the job. The submitter packs the job
    /// beforehand to check that it fits.
    pub fn submitted(job: JobRef, demand: JobDemand, packing: PackingConfig) -> Self {
        JobRecord {
            job,
            epoch: MasterEpoch::default(),
            demand,
            packing,
            intent: DesiredState::Run,
            started: false,
            finished: false,
            plan: None,
            plan_version: PlanVersion::default(),
            previous: None,
            upgrade: None,
        }
    }
}
