//! The operations that the interface serves.

use std::num::NonZeroU32;

use ardea_coordination::packing::ContainerId;

use crate::{
    CheckpointsView, ClusterInfo, DeadLettersQuery, DeadLettersView, DiagnosisView, HostView,
    JobDescription, JobSummary, KillQuery, LogQuery, LogStream, Maps, MetricsQuery, MetricsRange,
    ParallelismUpdate, PastJobDescription, PastJobSummary, Pending, Plans, ProgramOutcome,
    ProgramRequest, RangeQuery, RecoverRequest, SampleView, SavepointRequest, SavepointView,
    StatesView, SubmitRequest, TokenStore, TopView, TrafficView, UpgradeRequest,
};

/// The queries and commands of a cluster. A host implements this trait, and the REST server calls
/// it.
///
/// Object-safe; all methods are called on a tokio runtime. A host that does not lead a job may
/// answer a request about the job with [`ClusterError::Elsewhere`](crate::ClusterError::Elsewhere).
/// It never forwards requests to other hosts.
///
/// # Errors of every method that names a job
///
/// - [`NoSuchJob`](ardea_core::ErrorCode::NoSuchJob): there is no job of that name; the hint
///   suggests the nearest name.
/// - [`WrongState`](ardea_core::ErrorCode::WrongState): the current state of the job does not allow
///   the operation.
/// - [`StateUnavailable`](ardea_core::ErrorCode::StateUnavailable): the metadata store did not
///   respond.
///
/// A command returns once it is accepted and stored, before it is carried out. The job's phase
/// shows the progress.
pub trait Cluster: Send + Sync {
    /// Returns information about the cluster.
    fn about(&self) -> Pending<'_, ClusterInfo>;

    /// Returns the operations on the cluster's named tokens.
    fn tokens(&self) -> &dyn TokenStore;

    /// Returns the operations on the cluster's maps.
    fn maps(&self) -> &dyn Maps;

    /// Returns the cluster's hosts, sorted by name.
    fn hosts(&self) -> Pending<'_, Vec<HostView>>;

    /// Drains a host: no container is placed there any more, and its containers move to other
    /// hosts. Idempotent. The host stays drained until [`undrain`](Self::undrain), even over a
    /// restart.
    ///
    /// Fails without any change: with [`NoSuchHost`](ardea_core::ErrorCode::NoSuchHost) if no host
    /// of that name is up, with [`NoRoom`](ardea_core::ErrorCode::NoRoom) if the host's containers
    /// do not fit on the other hosts, with [`WrongState`](ardea_core::ErrorCode::WrongState) if
    /// some containers can't move.
    fn drain<'a>(&'a self, host: &'a str) -> Pending<'a, ()>;

    /// Ends the draining of a host. Moved containers do not return.
    fn undrain<'a>(&'a self, host: &'a str) -> Pending<'a, ()>;

    /// Returns all jobs, sorted by name.
    fn list(&self) -> Pending<'_, Vec<JobSummary>>;

    /// Returns the ended jobs whose summaries are still stored, the latest first.
    fn past_jobs(&self) -> Pending<'_, Vec<PastJobSummary>>;

    /// Returns the ended jobs of this name whose summaries are still stored, the latest first;
    /// empty if there are none.
    fn past<'a>(&'a self, job: &'a str) -> Pending<'a, Vec<PastJobDescription>>;

    /// Returns the details of a job.
    fn describe<'a>(&'a self, job: &'a str) -> Pending<'a, JobDescription>;

    /// Submits a job. The job's package must be in the package store. Idempotent for the same
    /// submission number.
    ///
    /// Fails with [`NameTaken`](ardea_core::ErrorCode::NameTaken) if another job has the name, with
    /// [`ResourcesImpossible`](ardea_core::ErrorCode::ResourcesImpossible) if the job can't be
    /// packed, with [`WrongCluster`](ardea_core::ErrorCode::WrongCluster) if the request names
    /// another cluster.
    fn submit(&self, request: SubmitRequest) -> Pending<'_, JobSummary>;

    /// Resumes the paused sources of a job.
    fn resume<'a>(&'a self, job: &'a str) -> Pending<'a, ()>;

    /// Pauses the sources of a job until [`resume`](Self::resume).
    fn pause<'a>(&'a self, job: &'a str) -> Pending<'a, ()>;

    /// Kills the job and deletes its state. With a submission in `query`, kills only that
    /// submission. Idempotent.
    fn kill<'a>(&'a self, job: &'a str, query: KillQuery) -> Pending<'a, ()>;

    /// Restarts a container.
    fn restart<'a>(&'a self, job: &'a str, container: ContainerId) -> Pending<'a, ()>;

    /// Changes the parallelism of vertices of a running job.
    fn update<'a>(&'a self, job: &'a str, update: ParallelismUpdate) -> Pending<'a, ()>;

    /// Spreads a running job's instances over another number of containers.
    fn rescale<'a>(&'a self, job: &'a str, containers: NonZeroU32) -> Pending<'a, ()>;

    /// Restarts a job that is in safe mode. Fails with
    /// [`WrongState`](ardea_core::ErrorCode::WrongState) if the job isn't in safe mode, or lacks
    /// the requested checkpoint.
    fn recover<'a>(&'a self, job: &'a str, request: RecoverRequest) -> Pending<'a, ()>;

    /// Ends an epoch and writes a savepoint of it. Returns when the savepoint is complete; the job
    /// keeps running. Fails with [`WrongState`](ardea_core::ErrorCode::WrongState) if the job has
    /// no guarantee, the folder is not empty, or another savepoint of the job is being written.
    fn savepoint<'a>(
        &'a self,
        job: &'a str,
        request: SavepointRequest,
    ) -> Pending<'a, SavepointView>;

    /// Returns the state schema of a job with a guarantee. Fails with
    /// [`WrongState`](ardea_core::ErrorCode::WrongState) if the job has no guarantee.
    fn states<'a>(&'a self, job: &'a str) -> Pending<'a, StatesView>;

    /// Upgrades a job to another program and keeps the job's state. The job's description reports
    /// the outcome. Idempotent. Fails with [`InvalidJob`](ardea_core::ErrorCode::InvalidJob),
    /// before anything stops, if the program can't restore the state.
    fn upgrade<'a>(&'a self, job: &'a str, request: UpgradeRequest) -> Pending<'a, ()>;

    /// Returns the checkpoints of a job with a guarantee. Fails with
    /// [`WrongState`](ardea_core::ErrorCode::WrongState) if the job has no guarantee.
    fn checkpoints<'a>(&'a self, job: &'a str) -> Pending<'a, CheckpointsView>;

    /// Reads and verifies all files of the job's checkpoints, and returns the
    /// [`checkpoints`](Self::checkpoints). For a running job this ends an epoch, and that epoch's
    /// checkpoint is retained until the check is complete.
    fn check_checkpoints<'a>(&'a self, job: &'a str) -> Pending<'a, CheckpointsView>;

    /// Returns the logical, physical and packing plan of a job.
    fn plans<'a>(&'a self, job: &'a str) -> Pending<'a, Plans>;

    /// Returns the last lines of the output of the job's processes. With
    /// [`follow`](LogQuery::follow), the stream continues with later output.
    fn logs<'a>(&'a self, job: &'a str, query: LogQuery) -> Pending<'a, LogStream>;

    /// Returns the latest value of each metric series that matches `query`.
    fn metrics<'a>(&'a self, job: &'a str, query: MetricsQuery) -> Pending<'a, Vec<SampleView>>;

    /// Returns the values of the metric series that match `query`, over its time range.
    fn metrics_range<'a>(&'a self, job: &'a str, query: RangeQuery) -> Pending<'a, MetricsRange>;

    /// Returns the current load of each vertex and container of a job.
    fn top<'a>(&'a self, job: &'a str) -> Pending<'a, TopView>;

    /// Returns the measured traffic between the instances of a job.
    fn traffic<'a>(&'a self, job: &'a str) -> Pending<'a, TrafficView>;

    /// Returns the causes for which a job is slow, late or stuck.
    fn why<'a>(&'a self, job: &'a str) -> Pending<'a, DiagnosisView>;

    /// Returns a page of the dead letters of a job.
    fn dead_letters<'a>(
        &'a self,
        job: &'a str,
        query: DeadLettersQuery,
    ) -> Pending<'a, DeadLettersView>;

    /// Runs a program on this host, which submits its job or upgrades a job to it, or compares its
    /// states. Fails with the program's error; with
    /// [`WrongState`](ardea_core::ErrorCode::WrongState) if this host runs no programs.
    fn run_program(&self, request: ProgramRequest) -> Pending<'_, ProgramOutcome>;
}
