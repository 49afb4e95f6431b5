//! The candidacy of a process for one job: the task that drives the state machine, and the handle
//! for requests to it.

use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{Command, JobPhase, JobRef, MasterEpoch, Rejection};
use ardea_core::{Error, Result};
use ardea_network::rpc::RpcConnection;
use ardea_scheduler::JobScheduler;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::leader::driver::Driver;
use crate::leader::leader_error::LeaseError;
use crate::leader::worker_connections::not_leader;
use crate::leader::{JobMetrics, JobStore, JobView, MasterSetup, Submitted};

/// Maximum time for an orderly release of a lease.
const RESIGNS_WITHIN: Duration = Duration::from_secs(2);

/// The state of a candidacy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeadershipState {
    /// Another process leads the job, or no process does yet.
    Standby,
    /// This process leads the job.
    Leading {
        /// The epoch of this process's leadership.
        epoch: MasterEpoch,
        /// The job's phase.
        phase: JobPhase,
    },
    /// The job has been deleted and its nodes have been removed.
    Over,
}

/// The error of a command.
#[derive(Clone, Debug)]
pub enum CommandError {
    /// This process does not lead the job. Nothing was done; send the command to the current
    /// leader.
    NotLed(Error),
    /// The command was rejected, and nothing was done. With the code
    /// [`Superseded`](ardea_core::ErrorCode::Superseded), however, this process has lost the
    /// leadership and the outcome is unknown.
    Failed(Error),
}

impl From<CommandError> for Error {
    fn from(undone: CommandError) -> Self {
        match undone {
            CommandError::NotLed(error) | CommandError::Failed(error) => error,
        }
    }
}

/// A request to a candidacy.
#[derive(Debug)]
pub(crate) enum LeaderRequest {
    /// A worker has connected.
    Connected(RpcConnection),
    /// A user's command for the job.
    Command(Command, oneshot::Sender<Commanded>),
    /// Requests the view of the job.
    View(oneshot::Sender<Option<JobView>>),
    /// Requests the metrics of the job.
    Metrics(oneshot::Sender<Option<JobMetrics>>),
    /// Requests the job's scheduler.
    Scheduler(oneshot::Sender<Option<JobScheduler>>),
    /// Requests the release of the lease.
    Resign(oneshot::Sender<()>),
}

/// The result of a command, or `None` if this process does not lead the job.
pub(crate) type Commanded = Option<Result<(), Rejection>>;

/// The candidacy of a process for one job. Dropping it has the same effect as the death of the
/// process: the lease expires.
#[derive(Debug)]
pub struct LeaderTask {
    handle: JobHandle,
    task: JoinHandle<()>,
}

impl LeaderTask {
    /// Starts a candidacy. `address` is the address of this process for the job's workers; their
    /// connections are passed in with [`JobHandle::connected`].
    ///
    /// # Errors
    ///
    /// If this process does not know the job's packing policy or scheduler.
    pub fn start(
        setup: &MasterSetup,
        store: JobStore,
        submitted: Arc<Submitted>,
        address: &str,
    ) -> Result<Self> {
        let (asks, asked) = mpsc::unbounded_channel();
        let (standing_in, standing) = watch::channel(LeadershipState::Standby);
        let desk = JobHandle {
            job: Arc::new(store.job().clone()),
            asks,
            standing,
            trouble: store.trouble().clone(),
        };
        let (driver, inlets) = Driver::new(setup, store, submitted, address, standing_in, asked)?;
        let task = tokio::spawn(driver.run(inlets));
        Ok(LeaderTask { handle: desk, task })
    }

    /// Returns the handle for requests.
    pub fn handle(&self) -> &JobHandle {
        &self.handle
    }

    /// Releases the lease, so that another candidate can lead at once, and ends.
    pub async fn resign(self) {
        let (done, resigned) = oneshot::channel();
        if self.handle.asks.send(LeaderRequest::Resign(done)).is_ok() {
            // On a timeout the lease expires.
            let _ = tokio::time::timeout(RESIGNS_WITHIN, resigned).await;
        }
    }

    /// Waits until the job has been deleted and its nodes have been removed.
    pub async fn over(&self) {
        self.handle
            .wait_for(|standing| *standing == LeadershipState::Over)
            .await;
    }
}

impl Drop for LeaderTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The handle of a candidacy. Cheap to clone; it does not keep the candidacy alive.
#[derive(Clone, Debug)]
pub struct JobHandle {
    job: Arc<JobRef>,
    asks: mpsc::UnboundedSender<LeaderRequest>,
    standing: watch::Receiver<LeadershipState>,
    trouble: LeaseError,
}

impl JobHandle {
    /// Returns the job.
    pub fn job(&self) -> &JobRef {
        &self.job
    }

    /// Returns the state of the candidacy.
    pub fn state(&self) -> LeadershipState {
        self.standing.borrow().clone()
    }

    /// Returns the error of the last operation on the lease, if that operation failed. While the
    /// error lasts, this process can neither lead the job nor take over the leadership.
    pub fn trouble(&self) -> Option<Error> {
        self.trouble.get()
    }

    /// Waits until the state of the candidacy satisfies `what`, and returns that state. Returns
    /// [`LeadershipState::Over`] if the candidacy ends before.
    pub async fn wait_for(
        &self,
        mut what: impl FnMut(&LeadershipState) -> bool,
    ) -> LeadershipState {
        let mut standing = self.standing.clone();
        let found = standing.wait_for(|now| what(now)).await;
        found.map_or(LeadershipState::Over, |found| found.clone())
    }

    /// Passes the connection of one of the job's workers to the candidacy, after the handshake.
    pub fn connected(&self, courier: RpcConnection) {
        // If the candidacy has ended, the connection closes and the worker looks up its leader
        // again.
        let _ = self.asks.send(LeaderRequest::Connected(courier));
    }

    /// Requests the execution of a user's command. Returns once the command is accepted and stored,
    /// before it is carried out.
    ///
    /// # Errors
    ///
    /// [`CommandError::NotLed`] if this process does not lead the job; [`CommandError::Failed`] if
    /// the command is rejected.
    pub async fn command(&self, command: Command) -> Result<(), CommandError> {
        let done = self
            .ask(|answer| LeaderRequest::Command(command, answer))
            .await;
        match done.map_err(CommandError::Failed)? {
            Some(done) => done.map_err(|refused| CommandError::Failed(refused.into())),
            None => Err(CommandError::NotLed(
                not_leader(&self.job.to_string()).hint(
                    "nothing was done; another host takes over within seconds, then try again",
                ),
            )),
        }
    }

    /// Returns the view of the job, if this process leads it.
    ///
    /// # Errors
    ///
    /// [`Superseded`](ardea_core::ErrorCode::Superseded) if this process does not lead the job.
    pub async fn view(&self) -> Result<JobView> {
        let view = self.ask(LeaderRequest::View).await?;
        view.ok_or_else(|| not_leader(&self.job.to_string()))
    }

    /// Returns the metrics of the job's workers within the last hour, if this process leads the
    /// job.
    ///
    /// # Errors
    ///
    /// [`Superseded`](ardea_core::ErrorCode::Superseded) if this process does not lead the job.
    pub async fn metrics(&self) -> Result<JobMetrics> {
        let metrics = self.ask(LeaderRequest::Metrics).await?;
        metrics.ok_or_else(|| not_leader(&self.job.to_string()))
    }

    /// Returns the job's scheduler, if this process leads the job and the scheduler has started.
    ///
    /// # Errors
    ///
    /// [`Superseded`](ardea_core::ErrorCode::Superseded) if this process does not lead the job or
    /// the scheduler has not started.
    pub async fn scheduler(&self) -> Result<JobScheduler> {
        let scheduler = self.ask(LeaderRequest::Scheduler).await?;
        scheduler.ok_or_else(|| not_leader(&self.job.to_string()))
    }

    async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> LeaderRequest) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let lost = || not_leader(&self.job.to_string());
        self.asks.send(ask(answer)).map_err(|_| lost())?;
        answered.await.map_err(|_| lost())
    }
}
