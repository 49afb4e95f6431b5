//! What a process that may be master has to know.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ardea_control::{
    CertificateFiles, EpochsConfig, EpochsNote, EpochsRecord, JobDefinition, JobRef, LeaseConfig,
    Left, MasterConfig, Needed, Successor,
};
use ardea_core::{Error, ErrorCode, Result};
use ardea_courier::Security;
use ardea_packing::ResourceManagers;
use ardea_scheduler::{LaunchPlan, Schedulers};
use ardea_state_manager::StateManager;

use crate::Submitted;

/// What a process that may be master of jobs has to know. The same for all jobs of a cluster.
#[derive(Clone, Debug)]
pub struct MasterSetup {
    /// The process, by a name that no other has or had: leases name it, and whoever reads one finds the process by it.
    pub holder: String,
    /// Where to listen for workers: `host:port`, port 0 for any that is free.
    pub listen: String,
    /// The host by which workers reach this process, if that is another than the one it listens at.
    pub advertised_host: Option<String>,
    /// The cluster's state.
    pub state: Arc<dyn StateManager>,
    /// The cluster's name, and what proves that a worker belongs to it.
    pub security: Security,
    /// Packing policies, by name.
    pub managers: ResourceManagers,
    /// Schedulers, by name.
    pub schedulers: Schedulers,
    /// What containers are started with.
    pub launch: LaunchSetup,
    /// Times of leases.
    pub lease: LeaseConfig,
    /// Times of masters; what the scheduler is like is taken from the scheduler, and what a job promises from [`Snapshots`].
    pub master: MasterConfig,
    /// What there is to know of snapshots; without it no job has a guarantee.
    pub snapshots: Option<Arc<dyn Snapshots>>,
}

/// What a master has to know of the snapshots of jobs with a guarantee, which it has taken and does not keep itself.
///
/// A process that stands for a job asks for its epochs first; what it says of one that it has not asked about, or that promises nothing, changes
/// nothing.
pub trait Snapshots: Send + Sync + fmt::Debug {
    /// What the job promises by its settings, and when its epochs end; none if it promises nothing.
    ///
    /// # Errors
    ///
    /// If its settings make no sense.
    fn epochs(&self, definition: &JobDefinition) -> Result<Option<EpochsConfig>>;

    /// Makes snapshots of what workers have saved for the epochs that this record adds to those before it. Called before the record is written,
    /// which is what commits them, and again if that has to be tried again. May wait for as long as writing takes.
    ///
    /// # Errors
    ///
    /// Why there is no such snapshot: then the record is not written, and the epoch given up. Of a job that it was not asked about, or that is
    /// [gone](Self::gone), none can be made.
    fn make(&self, job: &JobRef, record: &Arc<EpochsRecord>) -> Result<()> {
        let _ = (job, record);
        Ok(())
    }

    /// Whether the job begins with state from elsewhere. Must not wait.
    fn brings(&self, job: &JobRef) -> bool {
        let _ = job;
        false
    }

    /// The record that the epochs of a job [begin with](Self::brings) that has none yet: brings its state first. None if it begins with
    /// nothing. May wait for as long as bringing takes; called again it goes on from what there is.
    ///
    /// # Errors
    ///
    /// Why the state can't be brought: then the job does not begin.
    fn first(&self, job: &JobRef) -> Result<Option<Arc<EpochsRecord>>> {
        let _ = job;
        Ok(None)
    }

    /// Makes ready that `next` goes on from what another job of its name has left, and gives its definition as it has to be stored for that.
    /// May wait for files; to do it again changes nothing.
    ///
    /// # Errors
    ///
    /// If `next` can't go on from there, or nothing can be written for it.
    fn follow(&self, next: &Successor, left: &Left<'_>) -> Result<JobDefinition> {
        let _ = left;
        let what = format!(
            "no state is kept here that {} could go on from",
            next.definition.job
        );
        Err(Error::new(ErrorCode::WrongState, what))
    }

    /// Something has come of the job's epochs that a person may want to read. Must not wait.
    fn noted(&self, job: &JobRef, note: &EpochsNote) {
        let _ = (job, note);
    }

    /// The job is gone. Must not wait.
    fn gone(&self, job: &JobRef) {
        let _ = job;
    }

    /// The job needs only these snapshots, as [`EpochsAction::Keep`](ardea_control::EpochsAction::Keep)
    /// says. Must not wait: it may be done late, or not at all if another one follows.
    fn keep(&self, job: &JobRef, needed: &Needed);
}

/// What containers are started with, whatever their job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LaunchSetup {
    /// The URL of the package store.
    pub packages: String,
    /// The URL of the state manager.
    pub state_url: String,
    /// A file with the cluster's secret, if it has one, on every machine that starts containers.
    pub token_file: Option<String>,
    /// Where its certificates are, if its connections are encrypted: by the same paths on every machine that starts containers.
    pub certificates: Option<CertificateFiles>,
    /// Variables that are set for every container.
    pub environment: BTreeMap<String, String>,
}

impl LaunchSetup {
    /// For the containers of this job.
    pub fn plan_for(&self, submitted: &Submitted) -> LaunchPlan {
        LaunchPlan {
            definition: submitted.definition.clone(),
            packages: self.packages.clone(),
            state_url: self.state_url.clone(),
            token_file: self.token_file.clone(),
            certificates: self.certificates.clone(),
            environment: self.environment.clone(),
        }
    }
}
