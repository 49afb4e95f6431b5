//! What is stored of a job: all that a master needs to take over, beside what the workers tell it.

use std::sync::Arc;

use crate::packing::{JobDemand, PackingConfig, PackingPlan};
use serde::{Deserialize, Serialize};

use crate::control::{JobRef, MasterEpoch, PlanVersion, Upgrade};

/// What is stored of a job. Written by its submitter once, and then by its masters only.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobRecord {
    /// The job.
    pub job: JobRef,
    /// The master that wrote this; zero if the submitter did.
    pub epoch: MasterEpoch,
    /// What it asks for.
    pub demand: JobDemand,
    /// Within what it is packed.
    pub packing: PackingConfig,
    /// What its user wants of it.
    pub intent: Intent,
    /// Whether all workers have been prepared once: from then on, a worker that comes starts at once.
    pub started: bool,
    /// Whether all of its instances have come to their end by themselves: what is left of it is removed, nothing is started again.
    pub finished: bool,
    /// The plan, as soon as there is one.
    pub plan: Option<Arc<PackingPlan>>,
    /// The plan's number.
    pub plan_version: PlanVersion,
    /// The plan before it, while the job comes from that to this one.
    pub previous: Option<Previous>,
    /// How far another program has followed, or this one has followed another; what came of it stays.
    pub upgrade: Option<Upgrade>,
}

/// What a job's user wants of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Intent {
    /// It runs.
    Run,
    /// It is there, and its sources don't read.
    Pause,
    /// It ends, and leaves nothing behind.
    Kill,
}

/// The plan that a job comes from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Previous {
    /// The plan.
    pub plan: Arc<PackingPlan>,
    /// Its number.
    pub version: PlanVersion,
    /// Whether records may be routed by the new plan already.
    pub switched: bool,
}

impl JobRecord {
    /// Whether what is left of the job is being removed: its user wants that, or it has finished.
    pub fn is_ending(&self) -> bool {
        self.finished || self.intent == Intent::Kill
    }

    /// Whether another job takes the place of this one, in one write, when nothing of it runs any more.
    pub fn gives_way(&self) -> bool {
        let gives_way = self.upgrade.as_ref().is_some_and(Upgrade::gives_way);
        self.finished && self.intent != Intent::Kill && gives_way
    }

    /// What a submitter writes, where there is no record yet. To know before that whether the job fits, it packs it itself.
    pub fn submitted(job: JobRef, demand: JobDemand, packing: PackingConfig) -> Self {
        JobRecord {
            job,
            epoch: MasterEpoch::default(),
            demand,
            packing,
            intent: Intent::Run,
            started: false,
            finished: false,
            plan: None,
            plan_version: PlanVersion::default(),
            previous: None,
            upgrade: None,
        }
    }
}
