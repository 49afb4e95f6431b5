//! The queries of an embedded job. Commands are refused: the process that runs the job controls it.

use std::num::NonZeroU32;

use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode};
use ardea_rest::{
    Answer, CheckpointsView, Cluster, ClusterInfo, DeadLettersQuery, DeadLettersView,
    DiagnosisView, HostView, JobDescription, JobSummary, KillQuery, LogQuery, LogStream,
    MapEntriesView, MapEntryView, MapPutRequest, MapQuery, MapStream, Maps, MapsView, MetricsQuery,
    MetricsRange, NewTokenView, ParallelismUpdate, PastJobDescription, PastJobSummary, Pending,
    Plans, ProgramOutcome, ProgramRequest, RangeQuery, RecoverRequest, SampleView,
    SavepointRequest, SavepointView, StatesView, SubmitRequest, TokenRequest, TokenStore,
    TokenView, TopView, TrafficView, UpgradeRequest, no_such_host, no_such_job,
};

use super::{EmbeddedJob, NONE};
use crate::daemon::metrics_view;
use crate::diagnosis;
use crate::leader::now_ms;

/// Creates a result that is available at once.
fn ready<'a, T: Send + 'a>(answer: Answer<T>) -> Pending<'a, T> {
    Box::pin(std::future::ready(answer))
}

/// Creates the error for an operation that requires a cluster.
fn refused<'a, T: Send + 'a>() -> Pending<'a, T> {
    let what = "the job runs in its own process, without a cluster";
    let error = Error::new(ErrorCode::WrongState, what);
    ready(Err(error
        .hint("Ctrl-C drains it; `ardea submit` runs it on a cluster, which has this operation")
        .into()))
}

impl EmbeddedJob {
    /// Returns a result if the job has this name.
    fn of<'a, T: Send + 'a>(&self, job: &str, answer: impl FnOnce() -> T) -> Pending<'a, T> {
        let own = &self.0.description.summary.name;
        ready(match job == own {
            true => Ok(answer()),
            false => Err(no_such_job(job, [own.as_str()].into_iter()).into()),
        })
    }
}

impl Cluster for EmbeddedJob {
    fn about(&self) -> Pending<'_, ClusterInfo> {
        ready(Ok(ClusterInfo {
            name: "this process".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            state: String::new(),
            packages: String::new(),
            scheduler: NONE.into(),
            packing: NONE.into(),
            hosts: 0,
            jobs: 1,
        }))
    }

    fn tokens(&self) -> &dyn TokenStore {
        self
    }

    fn maps(&self) -> &dyn Maps {
        self
    }

    fn hosts(&self) -> Pending<'_, Vec<HostView>> {
        ready(Ok(Vec::new()))
    }

    fn drain<'a>(&'a self, host: &'a str) -> Pending<'a, ()> {
        ready(Err(no_such_host(host, std::iter::empty()).into()))
    }

    fn undrain<'a>(&'a self, host: &'a str) -> Pending<'a, ()> {
        self.drain(host)
    }

    fn list(&self) -> Pending<'_, Vec<JobSummary>> {
        ready(Ok(vec![self.0.description.summary.clone()]))
    }

    fn past_jobs(&self) -> Pending<'_, Vec<PastJobSummary>> {
        ready(Ok(Vec::new()))
    }

    fn past<'a>(&'a self, _job: &'a str) -> Pending<'a, Vec<PastJobDescription>> {
        ready(Ok(Vec::new()))
    }

    fn describe<'a>(&'a self, job: &'a str) -> Pending<'a, JobDescription> {
        self.of(job, || self.0.description.clone())
    }

    fn submit(&self, _request: SubmitRequest) -> Pending<'_, JobSummary> {
        refused()
    }

    fn resume<'a>(&'a self, _job: &'a str) -> Pending<'a, ()> {
        refused()
    }

    fn pause<'a>(&'a self, _job: &'a str) -> Pending<'a, ()> {
        refused()
    }

    fn kill<'a>(&'a self, _job: &'a str, _query: KillQuery) -> Pending<'a, ()> {
        refused()
    }

    fn restart<'a>(&'a self, _job: &'a str, _container: ContainerId) -> Pending<'a, ()> {
        refused()
    }

    fn update<'a>(&'a self, _job: &'a str, _update: ParallelismUpdate) -> Pending<'a, ()> {
        refused()
    }

    fn rescale<'a>(&'a self, _job: &'a str, _containers: NonZeroU32) -> Pending<'a, ()> {
        refused()
    }

    fn recover<'a>(&'a self, _job: &'a str, _request: RecoverRequest) -> Pending<'a, ()> {
        refused()
    }

    fn savepoint<'a>(
        &'a self,
        _job: &'a str,
        _request: SavepointRequest,
    ) -> Pending<'a, SavepointView> {
        refused()
    }

    fn states<'a>(&'a self, _job: &'a str) -> Pending<'a, StatesView> {
        refused()
    }

    fn upgrade<'a>(&'a self, _job: &'a str, _request: UpgradeRequest) -> Pending<'a, ()> {
        refused()
    }

    fn checkpoints<'a>(&'a self, _job: &'a str) -> Pending<'a, CheckpointsView> {
        refused()
    }

    fn check_checkpoints<'a>(&'a self, _job: &'a str) -> Pending<'a, CheckpointsView> {
        refused()
    }

    fn plans<'a>(&'a self, job: &'a str) -> Pending<'a, Plans> {
        self.of(job, || self.0.plans.clone())
    }

    fn logs<'a>(&'a self, _job: &'a str, _query: LogQuery) -> Pending<'a, LogStream> {
        refused()
    }

    fn metrics<'a>(&'a self, job: &'a str, query: MetricsQuery) -> Pending<'a, Vec<SampleView>> {
        self.of(job, || {
            metrics_view::latest(&self.history(), &query, now_ms())
        })
    }

    fn metrics_range<'a>(&'a self, job: &'a str, query: RangeQuery) -> Pending<'a, MetricsRange> {
        self.of(job, || {
            metrics_view::range(&self.history(), &query, now_ms())
        })
    }

    fn top<'a>(&'a self, job: &'a str) -> Pending<'a, TopView> {
        self.of(job, || {
            let (job, edges) = (&self.0.description, &self.0.plans.logical.edges);
            metrics_view::top(&self.history(), job, edges, now_ms())
        })
    }

    fn traffic<'a>(&'a self, _job: &'a str) -> Pending<'a, TrafficView> {
        refused()
    }

    fn why<'a>(&'a self, job: &'a str) -> Pending<'a, DiagnosisView> {
        self.of(job, || {
            let (job, edges) = (&self.0.description, &self.0.plans.logical.edges);
            diagnosis::diagnose(&self.history(), job, edges, now_ms())
        })
    }

    fn dead_letters<'a>(
        &'a self,
        job: &'a str,
        query: DeadLettersQuery,
    ) -> Pending<'a, DeadLettersView> {
        self.of(job, || self.dead_letters_of(&query))
    }

    fn run_program(&self, _request: ProgramRequest) -> Pending<'_, ProgramOutcome> {
        refused()
    }
}

impl TokenStore for EmbeddedJob {
    fn create_token(&self, _request: TokenRequest) -> Pending<'_, NewTokenView> {
        refused()
    }

    fn list_tokens(&self) -> Pending<'_, Vec<TokenView>> {
        refused()
    }

    fn revoke_token<'a>(&'a self, _name: &'a str) -> Pending<'a, ()> {
        refused()
    }
}

impl Maps for EmbeddedJob {
    fn list_maps(&self) -> Pending<'_, MapsView> {
        refused()
    }

    fn map_entry<'a>(&'a self, _map: &'a str, _key: &'a str) -> Pending<'a, MapEntryView> {
        refused()
    }

    fn map_entries<'a>(&'a self, _map: &'a str, _query: MapQuery) -> Pending<'a, MapEntriesView> {
        refused()
    }

    fn map_changes<'a>(&'a self, _map: &'a str, _query: MapQuery) -> Pending<'a, MapStream> {
        refused()
    }

    fn put_entry<'a>(
        &'a self,
        _map: &'a str,
        _key: &'a str,
        _request: MapPutRequest,
    ) -> Pending<'a, MapEntryView> {
        refused()
    }

    fn remove_entry<'a>(&'a self, _map: &'a str, _key: &'a str) -> Pending<'a, MapEntryView> {
        refused()
    }

    fn drop_map<'a>(&'a self, _map: &'a str) -> Pending<'a, ()> {
        refused()
    }
}
