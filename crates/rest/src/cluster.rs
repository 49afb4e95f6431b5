//! What the interface serves.

use std::num::NonZeroU32;

use ardea_coordination::packing::ContainerId;

use crate::{
    ClusterInfo, HostView, JobDescription, JobSummary, KillQuery, LogQuery, LogStream, Maps,
    MetricsQuery, MetricsRange, ParallelismUpdate, PastJobDescription, PastJobSummary, Pending,
    Plans, RangeQuery, RecoverRequest, SampleView, SavepointRequest, SavepointView, SnapshotsView,
    StatesView, SubmitRequest, TopView, UpgradeRequest,
};

/// A cluster, as it is seen and commanded from outside. The server calls it, and whoever runs a host implements it.
///
/// Object-safe; all methods are called on a tokio runtime. A host that does not lead a job may answer what concerns it with
/// [`Unanswered::Elsewhere`](crate::Unanswered::Elsewhere); nothing is passed on in silence.
///
/// # Errors of every method that names a job
///
/// * [`NoSuchJob`](ardea_core::ErrorCode::NoSuchJob): there is none of that name,
///   and the hint is the name that was probably meant.
/// * [`WrongState`](ardea_core::ErrorCode::WrongState): the job is doing something that this can't be done beside.
/// * [`StateUnavailable`](ardea_core::ErrorCode::StateUnavailable): the state manager did not answer.
///
/// Commands are answered when they are decided and stored, not when they have been carried out: the phase of the job tells that.
pub trait Cluster: Send + Sync {
    /// The cluster itself.
    fn about(&self) -> Pending<'_, ClusterInfo>;

    /// Its maps.
    fn maps(&self) -> &dyn Maps;

    /// Its hosts, sorted by name.
    fn hosts(&self) -> Pending<'_, Vec<HostView>>;

    /// Has a host be drained: no container is placed there any more, and those that are there go to others. Nothing happens to one that is
    /// drained already. It stays so, whether it is up or not, until [`undrain`](Self::undrain).
    ///
    /// Fails with [`NoSuchHost`](ardea_core::ErrorCode::NoSuchHost) if none of that name is up, with
    /// [`NoRoom`](ardea_core::ErrorCode::NoRoom) if the others have none for what it holds, with
    /// [`WrongState`](ardea_core::ErrorCode::WrongState) if it has what can't go elsewhere; nothing is changed then.
    fn drain<'a>(&'a self, host: &'a str) -> Pending<'a, ()>;

    /// Takes that back. What has gone elsewhere stays there.
    fn undrain<'a>(&'a self, host: &'a str) -> Pending<'a, ()>;

    /// All jobs, sorted by name.
    fn list(&self) -> Pending<'_, Vec<JobSummary>>;

    /// The jobs that are gone and remembered, the latest first.
    fn past_jobs(&self) -> Pending<'_, Vec<PastJobSummary>>;

    /// What is remembered of the jobs of that name that are gone, the latest first; nothing if there is none.
    fn past<'a>(&'a self, job: &'a str) -> Pending<'a, Vec<PastJobDescription>>;

    /// All that is known of a job.
    fn describe<'a>(&'a self, job: &'a str) -> Pending<'a, JobDescription>;

    /// Takes a job whose package is in the store already. To submit the same again (the same random number) is no error, and has no
    /// effect.
    ///
    /// Fails with [`NameTaken`](ardea_core::ErrorCode::NameTaken) if another job has the name, with
    /// [`ResourcesImpossible`](ardea_core::ErrorCode::ResourcesImpossible) if it can't be packed, with
    /// [`WrongCluster`](ardea_core::ErrorCode::WrongCluster) if it is meant for another one.
    fn submit(&self, request: SubmitRequest) -> Pending<'_, JobSummary>;

    /// Has the sources read again.
    fn activate<'a>(&'a self, job: &'a str) -> Pending<'a, ()>;

    /// Has the sources read nothing until [`activate`](Self::activate); everything else stays.
    fn deactivate<'a>(&'a self, job: &'a str) -> Pending<'a, ()>;

    /// Ends the job, or that submission of it, and leaves nothing behind. To kill again what is being killed is no error.
    fn kill<'a>(&'a self, job: &'a str, query: KillQuery) -> Pending<'a, ()>;

    /// Stops what runs in a container, and starts it again.
    fn restart<'a>(&'a self, job: &'a str, container: ContainerId) -> Pending<'a, ()>;

    /// Gives vertices other numbers of instances, while the job runs.
    fn update<'a>(&'a self, job: &'a str, update: ParallelismUpdate) -> Pending<'a, ()>;

    /// Spreads a job's instances over another number of containers, while it runs.
    fn rescale<'a>(&'a self, job: &'a str, containers: NonZeroU32) -> Pending<'a, ()>;

    /// Has a job in safe mode begin again. Fails with [`WrongState`](ardea_core::ErrorCode::WrongState) if it isn't in safe mode, or has no such
    /// snapshot.
    fn recover<'a>(&'a self, job: &'a str, request: RecoverRequest) -> Pending<'a, ()>;

    /// Ends an epoch for a savepoint, writes that, and answers when it is there; while that takes the job goes on. Fails with
    /// [`WrongState`](ardea_core::ErrorCode::WrongState) if the job has no guarantee, something is in the folder, or another savepoint of the
    /// job is being written.
    fn savepoint<'a>(
        &'a self,
        job: &'a str,
        request: SavepointRequest,
    ) -> Pending<'a, SavepointView>;

    /// What a job with a guarantee remembers. Fails with [`WrongState`](ardea_core::ErrorCode::WrongState) if it has none.
    fn states<'a>(&'a self, job: &'a str) -> Pending<'a, StatesView>;

    /// Has another program follow that of a job, with its state; what came of it the job's description tells. The same again has no effect.
    /// Fails with [`InvalidJob`](ardea_core::ErrorCode::InvalidJob) if it can't go on from there, before anything stops.
    fn upgrade<'a>(&'a self, job: &'a str, request: UpgradeRequest) -> Pending<'a, ()>;

    /// The snapshots of a job that has a guarantee. Fails with [`WrongState`](ardea_core::ErrorCode::WrongState) if it has none.
    fn snapshots<'a>(&'a self, job: &'a str) -> Pending<'a, SnapshotsView>;

    /// As [`snapshots`](Self::snapshots), with all that they consist of read and verified. Of a job that runs an epoch is ended, whose snapshot
    /// is held until it is read.
    fn check_snapshots<'a>(&'a self, job: &'a str) -> Pending<'a, SnapshotsView>;

    /// The logical, physical and packing plan.
    fn plans<'a>(&'a self, job: &'a str) -> Pending<'a, Plans>;

    /// What the job's processes have written: the last lines, and with [`follow`](LogQuery::follow) what they write from now on.
    fn logs<'a>(&'a self, job: &'a str, query: LogQuery) -> Pending<'a, LogStream>;

    /// The latest value of each series that matches.
    fn metrics<'a>(&'a self, job: &'a str, query: MetricsQuery) -> Pending<'a, Vec<SampleView>>;

    /// The values of the series that match, over a time.
    fn metrics_range<'a>(&'a self, job: &'a str, query: RangeQuery) -> Pending<'a, MetricsRange>;

    /// How each vertex and container is doing at the moment.
    fn top<'a>(&'a self, job: &'a str) -> Pending<'a, TopView>;
}
