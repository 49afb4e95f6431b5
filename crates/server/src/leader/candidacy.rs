//! A process as candidate for one job: the task that drives control's machine, and the ways to ask it.

use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{Command, JobPhase, JobRef, MasterEpoch, Refused};
use ardea_core::{Error, Result};
use ardea_network::rpc::Courier;
use ardea_scheduler::JobScheduler;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::leader::driver::Driver;
use crate::leader::links::no_master;
use crate::leader::trouble::Trouble;
use crate::leader::{JobMetrics, JobStore, JobView, MasterSetup, Submitted};

/// How long a lease may take to be given up in good order.
const RESIGNS_WITHIN: Duration = Duration::from_secs(2);

/// What a candidacy has come to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Somebody else leads the job, or nobody yet.
    StandsBy,
    /// This process leads it.
    Leads {
        /// In which mastership.
        epoch: MasterEpoch,
        /// What the job is doing.
        phase: JobPhase,
    },
    /// The job is gone, and nothing is left of it.
    Over,
}

/// Why a command was not done.
#[derive(Clone, Debug)]
pub enum Undone {
    /// This process does not lead the job: nothing was done, and whoever leads it can be asked the same.
    NotLed(Error),
    /// The refusal, with its code: [`Superseded`](ardea_core::ErrorCode::Superseded) if this process has lost the job meanwhile, and then it
    /// is not known whether it was done; all others say that it was not.
    Failed(Error),
}

impl From<Undone> for Error {
    fn from(undone: Undone) -> Self {
        match undone {
            Undone::NotLed(error) | Undone::Failed(error) => error,
        }
    }
}

/// What somebody wants of a candidacy.
#[derive(Debug)]
pub(crate) enum Ask {
    /// A worker has connected.
    Connected(Courier),
    /// A user wants something of the job.
    Command(Command, oneshot::Sender<Commanded>),
    /// Somebody wants to see the job.
    View(oneshot::Sender<Option<JobView>>),
    /// Somebody wants to see what was measured.
    Metrics(oneshot::Sender<Option<JobMetrics>>),
    /// Somebody wants to ask its scheduler.
    Scheduler(oneshot::Sender<Option<JobScheduler>>),
    /// The lease is to be given up.
    Resign(oneshot::Sender<()>),
}

/// What a command comes to; nothing, if this process does not lead the job.
pub(crate) type Commanded = Option<Result<(), Refused>>;

/// A process as candidate for one job: it stands by, or leads. Dropping it is as if the process had died: the lease runs out.
#[derive(Debug)]
pub struct Candidacy {
    desk: JobDesk,
    task: JoinHandle<()>,
}

impl Candidacy {
    /// Stands as candidate for a job, at the address by which its workers reach this process; they come through [`JobDesk::connected`].
    ///
    /// # Errors
    ///
    /// When this process knows no such packing policy or scheduler.
    pub fn stand(
        setup: &MasterSetup,
        store: JobStore,
        submitted: Arc<Submitted>,
        address: &str,
    ) -> Result<Self> {
        let (asks, asked) = mpsc::unbounded_channel();
        let (standing_in, standing) = watch::channel(Standing::StandsBy);
        let desk = JobDesk {
            job: Arc::new(store.job().clone()),
            asks,
            standing,
            trouble: store.trouble().clone(),
        };
        let (driver, inlets) = Driver::new(setup, store, submitted, address, standing_in, asked)?;
        let task = tokio::spawn(driver.run(inlets));
        Ok(Candidacy { desk, task })
    }

    /// Where to ask it.
    pub fn desk(&self) -> &JobDesk {
        &self.desk
    }

    /// Gives the lease up in good order, so that another candidate may lead at once; then ends.
    pub async fn resign(self) {
        let (done, resigned) = oneshot::channel();
        if self.desk.asks.send(Ask::Resign(done)).is_ok() {
            // If it takes too long, the lease runs out.
            let _ = tokio::time::timeout(RESIGNS_WITHIN, resigned).await;
        }
    }

    /// Waits until the job is gone and nothing is left of it.
    pub async fn over(&self) {
        self.desk
            .wait_for(|standing| *standing == Standing::Over)
            .await;
    }
}

impl Drop for Candidacy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Where a candidacy is asked. Cheap to clone; it keeps nothing alive.
#[derive(Clone, Debug)]
pub struct JobDesk {
    job: Arc<JobRef>,
    asks: mpsc::UnboundedSender<Ask>,
    standing: watch::Receiver<Standing>,
    trouble: Trouble,
}

impl JobDesk {
    /// The job.
    pub fn job(&self) -> &JobRef {
        &self.job
    }

    /// What the candidacy has come to.
    pub fn standing(&self) -> Standing {
        self.standing.borrow().clone()
    }

    /// Why this process can't read or write the job's lease, as long as that is so: whoever leads can't go on, and nobody can follow.
    pub fn trouble(&self) -> Option<Error> {
        self.trouble.get()
    }

    /// Waits until the candidacy has come to something; what it was, or over if it has ended before.
    pub async fn wait_for(&self, mut what: impl FnMut(&Standing) -> bool) -> Standing {
        let mut standing = self.standing.clone();
        let found = standing.wait_for(|now| what(now)).await;
        found.map_or(Standing::Over, |found| found.clone())
    }

    /// A worker of the job has connected and greeted.
    pub fn connected(&self, courier: Courier) {
        // If the candidacy is over the connection is closed, and the worker looks for its master anew.
        let _ = self.asks.send(Ask::Connected(courier));
    }

    /// Does what a user wants of the job: ready when it is decided and stored, not when it is carried out.
    ///
    /// # Errors
    ///
    /// [`Undone::NotLed`] if this process does not lead the job, else the refusal.
    pub async fn command(&self, command: Command) -> Result<(), Undone> {
        let done = self.ask(|answer| Ask::Command(command, answer)).await;
        match done.map_err(Undone::Failed)? {
            Some(done) => done.map_err(|refused| Undone::Failed(refused.into())),
            None => Err(Undone::NotLed(no_master(&self.job.to_string()).hint(
                "nothing was done; another host takes over within seconds, then try again",
            ))),
        }
    }

    /// The job as this process sees it, if it leads it.
    ///
    /// # Errors
    ///
    /// [`Superseded`](ardea_core::ErrorCode::Superseded) if it does not.
    pub async fn view(&self) -> Result<JobView> {
        let view = self.ask(Ask::View).await?;
        view.ok_or_else(|| no_master(&self.job.to_string()))
    }

    /// What the job's workers have measured in the last hour, as long as this process leads it.
    ///
    /// # Errors
    ///
    /// [`Superseded`](ardea_core::ErrorCode::Superseded) if it does not.
    pub async fn metrics(&self) -> Result<JobMetrics> {
        let metrics = self.ask(Ask::Metrics).await?;
        metrics.ok_or_else(|| no_master(&self.job.to_string()))
    }

    /// The job's scheduler, if this process leads the job and the scheduler is there.
    ///
    /// # Errors
    ///
    /// [`Superseded`](ardea_core::ErrorCode::Superseded) otherwise.
    pub async fn scheduler(&self) -> Result<JobScheduler> {
        let scheduler = self.ask(Ask::Scheduler).await?;
        scheduler.ok_or_else(|| no_master(&self.job.to_string()))
    }

    async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let lost = || no_master(&self.job.to_string());
        self.asks.send(ask(answer)).map_err(|_| lost())?;
        answered.await.map_err(|_| lost())
    }
}
