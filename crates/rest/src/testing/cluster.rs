//! The operations of a fake cluster.

use std::num::NonZeroU32;

use ardea_coordination::packing::{ContainerId, Resources};
use ardea_core::{Error, ErrorCode};
use tokio::sync::mpsc;

use super::tokens::ready_result;
use super::{FakeCluster, HOST, Job, scenario};
use crate::{
    CheckpointsView, Cluster, ClusterInfo, DeadLettersQuery, DeadLettersView, DiagnosisView,
    HostView, JobDescription, JobSummary, KillQuery, LogLine, LogQuery, LogSource, LogStream, Maps,
    MetricsQuery, MetricsRange, ParallelismUpdate, PastJobDescription, PastJobSummary, Pending,
    Phase, Plans, PointView, ProgramOutcome, ProgramRequest, RangeQuery, RecoverRequest,
    SampleView, SavepointRequest, SavepointView, SeriesView, StatesView, SubmitRequest, TokenStore,
    TopView, TrafficView, UpgradeRequest, no_such_container,
};

impl Cluster for FakeCluster {
    fn about(&self) -> Pending<'_, ClusterInfo> {
        ready_result(Ok(ClusterInfo {
            name: "pretended".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            state: "file:/nowhere".into(),
            packages: "file:/nowhere".into(),
            scheduler: "local".into(),
            packing: "round-robin".into(),
            hosts: 1,
            jobs: self.state().jobs.len() as u32,
        }))
    }

    fn tokens(&self) -> &dyn TokenStore {
        self
    }

    fn maps(&self) -> &dyn Maps {
        self
    }

    fn hosts(&self) -> Pending<'_, Vec<HostView>> {
        let state = self.state();
        ready_result(Ok(vec![HostView {
            name: HOST.into(),
            address: "127.0.0.1:7401".into(),
            api: "http://127.0.0.1:7400".into(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            total: Resources::ZERO,
            free: Resources::ZERO,
            containers: Vec::new(),
            leads: state.jobs.keys().cloned().collect(),
            drained: state.drained,
            holds: 0,
        }]))
    }

    fn drain<'a>(&'a self, host: &'a str) -> Pending<'a, ()> {
        ready_result(self.set_drained(host, true))
    }

    fn undrain<'a>(&'a self, host: &'a str) -> Pending<'a, ()> {
        ready_result(self.set_drained(host, false))
    }

    fn list(&self) -> Pending<'_, Vec<JobSummary>> {
        ready_result(Ok(self.state().jobs.values().map(Job::summary).collect()))
    }

    fn past_jobs(&self) -> Pending<'_, Vec<PastJobSummary>> {
        let state = self.state();
        let past = state.past.iter().map(|past| past.summary.clone());
        ready_result(Ok(past.collect()))
    }

    fn past<'a>(&'a self, job: &'a str) -> Pending<'a, Vec<PastJobDescription>> {
        let state = self.state();
        let past = state.past.iter().filter(|past| past.summary.name == job);
        ready_result(Ok(past.cloned().collect()))
    }

    fn describe<'a>(&'a self, job: &'a str) -> Pending<'a, JobDescription> {
        ready_result(self.with(job, |job| job.description()))
    }

    fn submit(&self, request: SubmitRequest) -> Pending<'_, JobSummary> {
        ready_result(self.take(request))
    }

    fn resume<'a>(&'a self, job: &'a str) -> Pending<'a, ()> {
        ready_result(self.command(job, format!("resume {job}"), |job| {
            job.phase = Phase::Running;
        }))
    }

    fn pause<'a>(&'a self, job: &'a str) -> Pending<'a, ()> {
        ready_result(self.command(job, format!("pause {job}"), |job| {
            job.phase = Phase::Paused;
        }))
    }

    fn kill<'a>(&'a self, job: &'a str, query: KillQuery) -> Pending<'a, ()> {
        let there = self.with(job, |job| job.summary().submission);
        if let (Ok(there), Some(wanted)) = (there, query.submission)
            && there != wanted
        {
            let what = format!("submission {wanted} of job {job:?} is gone");
            return ready_result(Err(Error::new(ErrorCode::NoSuchJob, what).into()));
        }
        let answer = self.command(job, format!("kill {job}"), |_| {});
        if answer.is_ok() {
            let mut state = self.state();
            let killed = state.jobs.remove(job);
            if let Some(killed) = killed {
                state.past.insert(0, killed.past());
            }
        }
        ready_result(answer)
    }

    fn restart<'a>(&'a self, job: &'a str, container: ContainerId) -> Pending<'a, ()> {
        let known = self.with(job, |job| {
            let containers = job.plan.containers().iter();
            containers.map(|it| it.id).collect::<Vec<_>>()
        });
        ready_result(match known {
            Ok(known) if known.contains(&container) => {
                self.command(job, format!("restart {job} {container}"), |job| {
                    *job.restarts.entry(container).or_default() += 1;
                })
            }
            Ok(known) => Err(no_such_container(job, container, &known).into()),
            Err(unanswered) => Err(unanswered),
        })
    }

    fn rescale<'a>(&'a self, job: &'a str, containers: NonZeroU32) -> Pending<'a, ()> {
        ready_result(self.spread(job, containers))
    }

    fn update<'a>(&'a self, job: &'a str, update: ParallelismUpdate) -> Pending<'a, ()> {
        ready_result(self.change(job, &update))
    }

    fn recover<'a>(&'a self, job: &'a str, request: RecoverRequest) -> Pending<'a, ()> {
        ready_result(self.command(job, format!("recover {job} {request:?}"), |_| {}))
    }

    fn savepoint<'a>(
        &'a self,
        job: &'a str,
        request: SavepointRequest,
    ) -> Pending<'a, SavepointView> {
        ready_result(self.with(job, |_| SavepointView {
            job: job.to_string(),
            place: request.to,
            epoch: 7,
            manifest: serde_json::Value::Null,
        }))
    }

    fn states<'a>(&'a self, job: &'a str) -> Pending<'a, StatesView> {
        ready_result(self.with(job, |_| StatesView {
            job: job.to_string(),
            epoch: 7,
            states: serde_json::Value::Null,
        }))
    }

    fn upgrade<'a>(&'a self, job: &'a str, request: UpgradeRequest) -> Pending<'a, ()> {
        let next = request.definition.job.submission;
        ready_result(self.command(job, format!("upgrade {job} {next:x}"), |_| {}))
    }

    fn checkpoints<'a>(&'a self, job: &'a str) -> Pending<'a, CheckpointsView> {
        ready_result(self.checkpoints_of(job, false))
    }

    fn check_checkpoints<'a>(&'a self, job: &'a str) -> Pending<'a, CheckpointsView> {
        ready_result(self.checkpoints_of(job, true))
    }

    fn plans<'a>(&'a self, job: &'a str) -> Pending<'a, Plans> {
        ready_result(self.with(job, |job| {
            let packing = Some((job.version, job.plan.clone()));
            Plans::of(&job.request.demand, packing, &job.containers())
        }))
    }

    fn logs<'a>(&'a self, job: &'a str, query: LogQuery) -> Pending<'a, LogStream> {
        if let Some(gone) = self.logs_of_past(job, &query) {
            return ready_result(gone);
        }
        let containers = self.with(job, |job| job.containers());
        ready_result(containers.map(|containers| {
            let wanted = containers
                .into_iter()
                .filter(|container| query.container.is_none_or(|only| only == container.id));
            let lines: Vec<LogLine> = wanted
                .map(|container| LogLine {
                    container: container.id,
                    source: query.source.unwrap_or(LogSource::Stdout),
                    text: format!("hello from container {}", container.id),
                    continues: false,
                    left_out_bytes: None,
                })
                .collect();
            let (sender, receiver) = mpsc::channel(lines.len().max(1));
            for line in lines {
                // The channel has room for all lines.
                let _ = sender.try_send(Ok(line));
            }
            receiver
        }))
    }

    fn metrics<'a>(&'a self, job: &'a str, query: MetricsQuery) -> Pending<'a, Vec<SampleView>> {
        ready_result(self.with(job, |job| job.samples(&query)))
    }

    fn metrics_range<'a>(&'a self, job: &'a str, query: RangeQuery) -> Pending<'a, MetricsRange> {
        let latest = MetricsQuery {
            name: Some(query.name),
            vertex: query.vertex,
            instance: query.instance,
            container: query.container,
        };
        let samples = self.with(job, |job| job.samples(&latest));
        ready_result(samples.map(|samples| {
            MetricsRange {
                step_ms: 1_000,
                series: samples
                    .into_iter()
                    .map(|sample| SeriesView {
                        points: vec![PointView {
                            at_ms: query.from_ms.unwrap_or(sample.at_ms),
                            value: sample.value,
                        }],
                        name: sample.name,
                        labels: sample.labels,
                        kind: sample.kind,
                    })
                    .collect(),
            }
        }))
    }

    fn top<'a>(&'a self, job: &'a str) -> Pending<'a, TopView> {
        ready_result(self.with(job, |job| job.top()))
    }

    fn traffic<'a>(&'a self, job: &'a str) -> Pending<'a, TrafficView> {
        ready_result(self.with(job, |_| TrafficView::default()))
    }

    fn why<'a>(&'a self, job: &'a str) -> Pending<'a, DiagnosisView> {
        ready_result(self.with(job, |job| scenario::diagnosis(job.top())))
    }

    fn dead_letters<'a>(
        &'a self,
        job: &'a str,
        query: DeadLettersQuery,
    ) -> Pending<'a, DeadLettersView> {
        ready_result(self.with(job, |_| scenario::dead_letters(&query)))
    }

    fn run_program(&self, request: ProgramRequest) -> Pending<'_, ProgramOutcome> {
        let result = serde_json::json!({ "file": request.file });
        ready_result(Ok(ProgramOutcome { result }))
    }
}
