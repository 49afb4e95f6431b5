//! A client of the REST interface.

mod access;
mod endpoint;
mod forwarded;
mod hosts;
mod log_lines;
mod maps;
mod request;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::packing::ContainerId;
use ardea_core::{ErrorCode, Result, Token};
use ardea_network::tls::Tls;
use serde::de::DeserializeOwned;

use crate::{
    CheckpointsView, ClusterInfo, ContainersUpdate, DiagnosisView, HostView, JobDescription,
    JobSummary, KillQuery, LogQuery, MetricsQuery, MetricsRange, ParallelismUpdate,
    PastJobDescription, PastJobSummary, Plans, RangeQuery, RecoverRequest, SampleView,
    SavepointRequest, SavepointView, StatesView, SubmitRequest, TopView, TrafficView,
    UpgradeRequest,
};

use endpoint::Endpoint;
pub(crate) use forwarded::forward_request;
pub use hosts::OUTCOME_UNKNOWN;
use hosts::{Hosts, LEADER_CHANGE_TIMEOUT, RequestFailed};
pub use log_lines::{LogLines, MapChanges};
use request::{ApiRequest, encoded, path};

/// A client of a cluster's REST interface.
///
/// Each call opens a connection and follows redirects to the host that leads the job. It fails
/// after the [timeout](Self::timeout()), or within 3.5 s if the host does not respond at all. With
/// [host discovery](Self::discover_hosts), the client then tries other hosts for at most 20 s, if
/// the request is read-only or idempotent, or was certainly not executed. If a host asks for a
/// retry, the request is repeated until the [retry timeout](Self::retry_timeout()). All calls need
/// a tokio runtime with time and I/O enabled.
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
/// - The error reported by the cluster, with its code.
/// - [`Network`](ardea_core::ErrorCode::Network): no response arrived in time. A command may still
///   have been executed.
/// - [`BadResponse`](ardea_core::ErrorCode::BadResponse): the response is not one of Ardea's REST
///   interface.
#[derive(Clone, Debug)]
pub struct Client {
    hosts: Hosts,
    token: Option<Token>,
    tls: Option<Tls>,
    timeout: Duration,
    retry_timeout: Duration,
}

impl Client {
    /// Creates a client of the interface at `http://HOST:PORT` or `https://HOST:PORT`. An `https`
    /// client needs [certificates](Self::tls).
    ///
    /// # Errors
    /// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the address is invalid.
    pub fn new(base: &str, token: Option<Token>) -> Result<Self> {
        Ok(Client {
            hosts: Hosts::only(Endpoint::parse(base)?),
            token,
            tls: None,
            timeout: Duration::from_secs(35),
            retry_timeout: LEADER_CHANGE_TIMEOUT,
        })
    }

    /// Sets the certificates, if the cluster uses mutual TLS. With certificates, the client sends
    /// nothing over unencrypted connections.
    pub fn tls(mut self, tls: Option<Tls>) -> Self {
        self.tls = tls;
        self
    }

    /// Sets the timeout of a response; 35 s by default.
    pub fn timeout(mut self, patience: Duration) -> Self {
        self.timeout = patience;
        self
    }

    /// Sets how long a request is repeated while hosts ask for a retry because the job has no
    /// leader; 20 s by default. A request in progress at the end of this time still gets its full
    /// [timeout](Self::timeout()), because it may be executed.
    pub fn retry_timeout(mut self, asks_again_for: Duration) -> Self {
        self.retry_timeout = asks_again_for;
        self
    }

    /// Sets the function that finds the interfaces of the cluster's hosts. It is called when the
    /// current host fails, or the job changes its leader.
    pub fn discover_hosts<F, R>(mut self, find: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<Vec<String>>> + Send + 'static,
    {
        self.hosts = self
            .hosts
            .with_discovery(Arc::new(move || Box::pin(find())));
        self
    }

    /// Returns the URL of the host that is tried first.
    pub fn base(&self) -> String {
        self.hosts.at().to_string()
    }

    /// Returns information about the cluster.
    pub async fn about(&self) -> Result<ClusterInfo> {
        self.get("/v1/cluster".into()).await
    }

    /// Returns the hosts of the cluster, sorted by name.
    pub async fn hosts(&self) -> Result<Vec<HostView>> {
        self.get("/v1/hosts".into()).await
    }

    /// Drains a host, see [`Cluster::drain`](crate::Cluster::drain).
    pub async fn drain(&self, host: &str) -> Result<()> {
        let path = format!("/v1/hosts/{}/drain", encoded(host));
        self.command(ApiRequest::post(path).repeatable()).await
    }

    /// Ends the draining of a host.
    pub async fn undrain(&self, host: &str) -> Result<()> {
        let path = format!("/v1/hosts/{}/drain", encoded(host));
        self.command(ApiRequest::delete(path).repeatable()).await
    }

    /// Returns a client of another host of the cluster, with the same credentials, which tries no
    /// further hosts.
    ///
    /// # Errors
    /// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the address is invalid.
    pub fn at(&self, base: &str) -> Result<Self> {
        Ok(Client {
            hosts: Hosts::only(Endpoint::parse(base)?),
            ..self.clone()
        })
    }

    /// Returns all jobs, sorted by name.
    pub async fn list(&self) -> Result<Vec<JobSummary>> {
        self.get("/v1/jobs".into()).await
    }

    /// Returns the ended jobs whose summaries are still stored, the latest first.
    pub async fn past_jobs(&self) -> Result<Vec<PastJobSummary>> {
        self.get("/v1/history".into()).await
    }

    /// Returns the ended jobs of this name whose summaries are still stored, the latest first.
    pub async fn past(&self, job: &str) -> Result<Vec<PastJobDescription>> {
        self.get(format!("/v1/history/{}", encoded(job))).await
    }

    /// Submits a job. The job's package must be in the package store.
    pub async fn submit(&self, request: &SubmitRequest) -> Result<JobSummary> {
        let asked = ApiRequest::post("/v1/jobs".into())
            .json(request)?
            .repeatable();
        let job = self.ask(asked).await?.json().await;
        // The response began with a success status before it broke off.
        Ok(job.map_err(|error| RequestFailed {
            outcome_unknown: error.code() == ErrorCode::Network,
            error,
        })?)
    }

    /// Returns the details of a job.
    pub async fn describe(&self, job: &str) -> Result<JobDescription> {
        self.get(path(job, "")).await
    }

    /// Kills a job.
    pub async fn kill(&self, job: &str) -> Result<()> {
        self.command(ApiRequest::delete(path(job, ""))).await
    }

    /// Kills one submission of a job, but no later job of the same name. Idempotent, so the request
    /// is retried.
    pub async fn kill_submission(&self, job: &str, submission: &str) -> Result<()> {
        let query = KillQuery {
            submission: Some(submission.into()),
        };
        let asked = ApiRequest::delete(path(job, ""))
            .query(&query)?
            .repeatable();
        match self.ask(asked).await {
            // An earlier try of this request, without a response, has killed the submission.
            Err(RequestFailed {
                error,
                outcome_unknown: true,
            }) if error.code() == ErrorCode::NoSuchJob => Ok(()),
            answer => Ok(answer.map(drop)?),
        }
    }

    /// Resumes the paused sources of a job.
    pub async fn resume(&self, job: &str) -> Result<()> {
        self.command(ApiRequest::post(path(job, "/resume")).repeatable())
            .await
    }

    /// Pauses the sources of a job.
    pub async fn pause(&self, job: &str) -> Result<()> {
        self.command(ApiRequest::post(path(job, "/pause")).repeatable())
            .await
    }

    /// Restarts a container.
    pub async fn restart(&self, job: &str, container: ContainerId) -> Result<()> {
        let path = path(job, &format!("/containers/{container}/restart"));
        self.command(ApiRequest::post(path)).await
    }

    /// Changes the parallelism of vertices.
    pub async fn update(&self, job: &str, update: &ParallelismUpdate) -> Result<()> {
        let asked = ApiRequest::put(path(job, "/parallelism"))
            .json(update)?
            .repeatable();
        self.command(asked).await
    }

    /// Spreads all instances of a job over another number of containers.
    pub async fn rescale(&self, job: &str, update: &ContainersUpdate) -> Result<()> {
        let asked = ApiRequest::put(path(job, "/container-count"))
            .json(update)?
            .repeatable();
        self.command(asked).await
    }

    /// Restarts a job that is in safe mode.
    pub async fn recover(&self, job: &str, request: &RecoverRequest) -> Result<()> {
        let asked = ApiRequest::post(path(job, "/recover")).json(request)?;
        self.command(asked).await
    }

    /// Writes a savepoint of a job, and waits until it is complete.
    pub async fn savepoint(&self, job: &str, request: &SavepointRequest) -> Result<SavepointView> {
        let asked = ApiRequest::post(path(job, "/savepoint")).json(request)?;
        self.ask(asked).await?.json().await
    }

    /// Returns the state schema of a job with a guarantee.
    pub async fn states(&self, job: &str) -> Result<StatesView> {
        self.get(path(job, "/states")).await
    }

    /// Upgrades a job to another program. Idempotent.
    pub async fn upgrade(&self, job: &str, request: &UpgradeRequest) -> Result<()> {
        let asked = ApiRequest::post(path(job, "/upgrade"))
            .json(request)?
            .repeatable();
        self.command(asked).await
    }

    /// Returns the checkpoints of a job with a guarantee.
    pub async fn checkpoints(&self, job: &str) -> Result<CheckpointsView> {
        self.get(path(job, "/checkpoints")).await
    }

    /// Reads and verifies all files of the job's checkpoints, and returns the
    /// [`checkpoints`](Self::checkpoints). For a running job this ends an epoch, and that epoch's
    /// checkpoint is retained until the check is complete.
    pub async fn check_checkpoints(&self, job: &str) -> Result<CheckpointsView> {
        let asked = ApiRequest::post(path(job, "/checkpoints/check")).without_effect();
        self.ask(asked).await?.json().await
    }

    /// Returns the logical, physical and packing plan of a job.
    pub async fn plans(&self, job: &str) -> Result<Plans> {
        self.get(path(job, "/plan")).await
    }

    /// Returns the output of the job's processes. With [`follow`](LogQuery::follow), the stream
    /// continues with later output.
    pub async fn logs(&self, job: &str, query: &LogQuery) -> Result<LogLines> {
        let asked = ApiRequest::get(path(job, "/logs")).query(query)?;
        Ok(LogLines::of(self.ask(asked).await?))
    }

    /// Returns the latest value of each metric series that matches `query`.
    pub async fn metrics(&self, job: &str, query: &MetricsQuery) -> Result<Vec<SampleView>> {
        let asked = ApiRequest::get(path(job, "/metrics")).query(query)?;
        self.ask(asked).await?.json().await
    }

    /// Returns the values of the metric series that match `query`, over its time range.
    pub async fn metrics_range(&self, job: &str, query: &RangeQuery) -> Result<MetricsRange> {
        let asked = ApiRequest::get(path(job, "/metrics/range")).query(query)?;
        self.ask(asked).await?.json().await
    }

    /// Returns the current load of each vertex and container of a job.
    pub async fn top(&self, job: &str) -> Result<TopView> {
        self.get(path(job, "/top")).await
    }

    /// Returns the measured traffic between the instances of a job.
    pub async fn traffic(&self, job: &str) -> Result<TrafficView> {
        self.get(path(job, "/traffic")).await
    }

    /// Returns the causes for which a job is slow, late or stuck.
    pub async fn why(&self, job: &str) -> Result<DiagnosisView> {
        self.get(path(job, "/why")).await
    }

    async fn get<T: DeserializeOwned>(&self, path: String) -> Result<T> {
        self.ask(ApiRequest::get(path)).await?.json().await
    }

    async fn command(&self, asked: ApiRequest) -> Result<()> {
        self.ask(asked).await?;
        Ok(())
    }
}
