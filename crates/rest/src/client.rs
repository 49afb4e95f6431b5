//! A client of the interface.

mod hosts;
mod log_lines;
mod maps;
mod place;
mod request;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::packing::ContainerId;
use ardea_core::{ErrorCode, Result, Token};
use ardea_network::tls::Tls;
use serde::de::DeserializeOwned;

use crate::{
    ClusterInfo, ContainersUpdate, HostView, JobDescription, JobSummary, KillQuery, LogQuery,
    MetricsQuery, MetricsRange, ParallelismUpdate, PastJobDescription, PastJobSummary, Plans,
    RangeQuery, RecoverRequest, SampleView, SavepointRequest, SavepointView, SnapshotsView,
    StatesView, SubmitRequest, TopView, UpgradeRequest,
};

pub use hosts::DOUBTFUL;
use hosts::{GaveUp, Hosts, SETTLES_WITHIN};
pub use log_lines::{LogLines, MapChanges};
use place::Place;
use request::{Asked, encoded, path};

/// A client of a cluster's interface.
///
/// Each call makes a connection of its own, follows a redirection to the host that leads the job, and gives up after its patience, or
/// within 3.5 s if the host answers nothing at all. One that [finds](Self::finds) hosts then asks another, for 20 s at most, if
/// what is asked for changes nothing or may be done twice, or is known not to have been done. A host that can't answer yet is asked again
/// when it wants to be, for as long as [that may take](Self::asks_again_for). All have to be called on a tokio runtime with time and I/O
/// enabled.
///
/// ```no_run
/// # async fn look() -> ardea_core::Result<()> {
/// let cluster = ardea_rest::Client::new("http://127.0.0.1:7400", None)?;
/// for job in cluster.list().await? {
///     println!("{} is {}", job.name, job.phase.as_str());
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors of every method
///
/// * What the cluster says, with its code.
/// * [`Network`](ardea_core::ErrorCode::Network): nobody answers, or not in time. A command may have been taken all the same.
/// * [`BadAnswer`](ardea_core::ErrorCode::BadAnswer): somebody else answers.
#[derive(Clone, Debug)]
pub struct Client {
    hosts: Hosts,
    token: Option<Token>,
    tls: Option<Tls>,
    patience: Duration,
    asks_again_for: Duration,
}

impl Client {
    /// Of the interface at that address: `http://HOST:PORT`, or `https://HOST:PORT`, for which it needs [certificates](Self::tls).
    ///
    /// # Errors
    /// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if this is no such address.
    pub fn new(base: &str, token: Option<Token>) -> Result<Self> {
        Ok(Client {
            hosts: Hosts::only(Place::parse(base)?),
            token,
            tls: None,
            patience: Duration::from_secs(35),
            asks_again_for: SETTLES_WITHIN,
        })
    }

    /// The certificates by which it and the cluster prove who they are, if the cluster has some. With them it sends nothing to who has
    /// none.
    pub fn tls(mut self, tls: Option<Tls>) -> Self {
        self.tls = tls;
        self
    }

    /// How long an answer may take; 35 s unless told.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How long a request is asked again of hosts that can't answer yet, since nobody leads the job; 20 s unless told. An answer that is under
    /// way by then has its [patience](Self::patience) all the same: what was sent may be done.
    pub fn asks_again_for(mut self, asks_again_for: Duration) -> Self {
        self.asks_again_for = asks_again_for;
        self
    }

    /// How it finds the interfaces of the cluster's hosts when the one that it asks fails, or the job changes its leader.
    pub fn finds<F, R>(mut self, find: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<Vec<String>>> + Send + 'static,
    {
        self.hosts = self.hosts.found_by(Arc::new(move || Box::pin(find())));
        self
    }

    /// Where it asks first.
    pub fn base(&self) -> String {
        self.hosts.at().to_string()
    }

    /// The cluster itself.
    pub async fn about(&self) -> Result<ClusterInfo> {
        self.get("/v1/cluster".into()).await
    }

    /// Its hosts, sorted by name.
    pub async fn hosts(&self) -> Result<Vec<HostView>> {
        self.get("/v1/hosts".into()).await
    }

    /// Has a host be drained, see [`Cluster::drain`](crate::Cluster::drain).
    pub async fn drain(&self, host: &str) -> Result<()> {
        let path = format!("/v1/hosts/{}/drain", encoded(host));
        self.command(Asked::post(path).repeatable()).await
    }

    /// Takes that back.
    pub async fn undrain(&self, host: &str) -> Result<()> {
        let path = format!("/v1/hosts/{}/drain", encoded(host));
        self.command(Asked::delete(path).repeatable()).await
    }

    /// All jobs, sorted by name.
    pub async fn list(&self) -> Result<Vec<JobSummary>> {
        self.get("/v1/jobs".into()).await
    }

    /// The jobs that are gone and remembered, the latest first.
    pub async fn past_jobs(&self) -> Result<Vec<PastJobSummary>> {
        self.get("/v1/history".into()).await
    }

    /// What is remembered of the jobs of that name that are gone, the latest first.
    pub async fn past(&self, job: &str) -> Result<Vec<PastJobDescription>> {
        self.get(format!("/v1/history/{}", encoded(job))).await
    }

    /// Submits a job whose package is in the store.
    pub async fn submit(&self, request: &SubmitRequest) -> Result<JobSummary> {
        let asked = Asked::post("/v1/jobs".into()).json(request)?.repeatable();
        let job = self.ask(asked).await?.json().await;
        // An answer that breaks off has begun as one that it was taken.
        Ok(job.map_err(|error| GaveUp {
            is_doubtful: error.code() == ErrorCode::Network,
            error,
        })?)
    }

    /// All that is known of a job.
    pub async fn describe(&self, job: &str) -> Result<JobDescription> {
        self.get(path(job, "")).await
    }

    /// Ends a job.
    pub async fn kill(&self, job: &str) -> Result<()> {
        self.command(Asked::delete(path(job, ""))).await
    }

    /// Ends a submission of a job, and nothing else that may have its name by then; so it may be asked for again.
    pub async fn kill_submission(&self, job: &str, submission: &str) -> Result<()> {
        let query = KillQuery {
            submission: Some(submission.into()),
        };
        let asked = Asked::delete(path(job, "")).query(&query)?.repeatable();
        match self.ask(asked).await {
            // Whoever was asked before, and did not say so, has killed it.
            Err(GaveUp {
                error,
                is_doubtful: true,
            }) if error.code() == ErrorCode::NoSuchJob => Ok(()),
            answer => Ok(answer.map(drop)?),
        }
    }

    /// Has the sources of a job read again.
    pub async fn activate(&self, job: &str) -> Result<()> {
        self.command(Asked::post(path(job, "/activate")).repeatable())
            .await
    }

    /// Has the sources of a job read nothing.
    pub async fn deactivate(&self, job: &str) -> Result<()> {
        self.command(Asked::post(path(job, "/deactivate")).repeatable())
            .await
    }

    /// Stops what runs in a container, and starts it again.
    pub async fn restart(&self, job: &str, container: ContainerId) -> Result<()> {
        let path = path(job, &format!("/containers/{container}/restart"));
        self.command(Asked::post(path)).await
    }

    /// Gives vertices other numbers of instances.
    pub async fn update(&self, job: &str, update: &ParallelismUpdate) -> Result<()> {
        let asked = Asked::put(path(job, "/parallelism"))
            .json(update)?
            .repeatable();
        self.command(asked).await
    }

    /// Spreads all instances over another number of containers.
    pub async fn rescale(&self, job: &str, update: &ContainersUpdate) -> Result<()> {
        let asked = Asked::put(path(job, "/container-count"))
            .json(update)?
            .repeatable();
        self.command(asked).await
    }

    /// Has a job in safe mode begin again.
    pub async fn recover(&self, job: &str, request: &RecoverRequest) -> Result<()> {
        let asked = Asked::post(path(job, "/recover")).json(request)?;
        self.command(asked).await
    }

    /// Has a savepoint of a job written, and waits for it.
    pub async fn savepoint(&self, job: &str, request: &SavepointRequest) -> Result<SavepointView> {
        let asked = Asked::post(path(job, "/savepoint")).json(request)?;
        self.ask(asked).await?.json().await
    }

    /// What a job with a guarantee remembers.
    pub async fn states(&self, job: &str) -> Result<StatesView> {
        self.get(path(job, "/states")).await
    }

    /// Has another program follow that of a job. The same again is no error and has no effect.
    pub async fn upgrade(&self, job: &str, request: &UpgradeRequest) -> Result<()> {
        let asked = Asked::post(path(job, "/upgrade"))
            .json(request)?
            .repeatable();
        self.command(asked).await
    }

    /// The snapshots of a job that has a guarantee.
    pub async fn snapshots(&self, job: &str) -> Result<SnapshotsView> {
        self.get(path(job, "/snapshots")).await
    }

    /// As [`snapshots`](Self::snapshots), with all that they consist of read and verified. Of a job that runs an epoch is ended, whose snapshot
    /// is held until it is read.
    pub async fn check_snapshots(&self, job: &str) -> Result<SnapshotsView> {
        let asked = Asked::post(path(job, "/snapshots/check")).passing();
        self.ask(asked).await?.json().await
    }

    /// The logical, physical and packing plan of a job.
    pub async fn plans(&self, job: &str) -> Result<Plans> {
        self.get(path(job, "/plan")).await
    }

    /// What the job's processes have written, and with [`follow`](LogQuery::follow) what they write from now on.
    pub async fn logs(&self, job: &str, query: &LogQuery) -> Result<LogLines> {
        let asked = Asked::get(path(job, "/logs")).query(query)?;
        Ok(LogLines::of(self.ask(asked).await?))
    }

    /// The latest value of each series that matches.
    pub async fn metrics(&self, job: &str, query: &MetricsQuery) -> Result<Vec<SampleView>> {
        let asked = Asked::get(path(job, "/metrics")).query(query)?;
        self.ask(asked).await?.json().await
    }

    /// The values of the series that match, over a time.
    pub async fn metrics_range(&self, job: &str, query: &RangeQuery) -> Result<MetricsRange> {
        let asked = Asked::get(path(job, "/metrics/range")).query(query)?;
        self.ask(asked).await?.json().await
    }

    /// How each vertex and container of a job is doing.
    pub async fn top(&self, job: &str) -> Result<TopView> {
        self.get(path(job, "/top")).await
    }

    async fn get<T: DeserializeOwned>(&self, path: String) -> Result<T> {
        self.ask(Asked::get(path)).await?.json().await
    }

    async fn command(&self, asked: Asked) -> Result<()> {
        self.ask(asked).await?;
        Ok(())
    }
}
