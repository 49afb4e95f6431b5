//! A fake cluster, for tests of clients of the interface (feature `testing`).

mod maps;
mod scenario;
mod tokens;
mod word_count;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_coordination::packing::{ContainerId, PackingPlan, PackingPolicy, Resources, RoundRobin};
use ardea_core::{Error, ErrorCode};
use tokio::sync::mpsc;

use crate::{
    Answer, CheckpointsView, Cluster, ClusterError, ClusterInfo, ContainerState, ContainerTop,
    ContainerView, DiagnosisView, HostView, JobDescription, JobEnding, JobSummary, KillQuery,
    LogLine, LogQuery, LogSource, LogStream, Maps, MetricsQuery, MetricsRange, NoteView,
    ParallelismUpdate, PastJobDescription, PastJobSummary, Pending, Phase, Plans, PointView,
    ProgramView, RangeQuery, RecoverRequest, SampleKind, SampleView, SavepointRequest,
    SavepointView, SeriesView, StatesView, SubmitRequest, TokenStore, TokenView, TopView,
    TrafficView, UpgradeRequest, VertexTop, VertexView, no_such_container, no_such_host,
    no_such_job,
};

use tokens::ready_result;
pub use word_count::word_count;

/// The name of the only host.
const HOST: &str = "here";

/// A fake cluster with one host, whose jobs are accepted, packed and described, but never run.
///
/// Clones share the same cluster.
#[derive(Clone, Default)]
pub struct FakeCluster(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    jobs: BTreeMap<String, Job>,
    /// The leader's URL of each job that another host leads, by job.
    elsewhere: BTreeMap<String, String>,
    /// Number of further commands to refuse, with the reason, by job.
    refusals: BTreeMap<String, (u32, ClusterError)>,
    refused: u32,
    commands: Vec<String>,
    /// The entries of the only map, `berths`, whose keys are texts.
    berths: BTreeMap<String, serde_json::Value>,
    /// Killed jobs, the latest first.
    past: Vec<PastJobDescription>,
    /// The named tokens, by name.
    tokens: BTreeMap<String, TokenView>,
    /// True if the only host is drained.
    drained: bool,
    /// True if streams of map changes stay open until the client disconnects.
    keep_changes_open: bool,
}

struct Job {
    request: SubmitRequest,
    plan: PackingPlan,
    version: u64,
    phase: Phase,
    restarts: BTreeMap<ContainerId, u32>,
}

impl FakeCluster {
    /// Creates a cluster without jobs; its only map is `berths`, in which the key `seagull` has the
    /// value 7.
    pub fn new() -> Self {
        let cluster = FakeCluster::default();
        cluster.state().berths.insert("seagull".into(), 7.into());
        cluster
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, name: &str, tell: impl FnOnce(&mut Job) -> T) -> Answer<T> {
        let mut state = self.state();
        if let Some(base) = state.elsewhere.get(name) {
            return Err(ClusterError::Elsewhere { base: base.clone() });
        }
        if !state.jobs.contains_key(name) {
            if let Some(past) = state.past.iter().find(|past| past.summary.name == name) {
                return Err(past.summary.ended().into());
            }
            return Err(no_such_job(name, state.jobs.keys().map(String::as_str)).into());
        }
        match state.jobs.get_mut(name) {
            Some(job) => Ok(tell(job)),
            None => Err(no_such_job(name, std::iter::empty()).into()),
        }
    }

    fn checkpoints_of(&self, job: &str, checked: bool) -> Answer<CheckpointsView> {
        self.with(job, |_| CheckpointsView {
            job: job.to_string(),
            folder: "/mnt/state".into(),
            state: "running".into(),
            held_by: None,
            committed: None,
            checked,
            checkpoints: Vec::new(),
        })
    }

    fn command(&self, name: &str, what: String, act: impl FnOnce(&mut Job)) -> Answer<()> {
        let mut state = self.state();
        if let Some((left @ 1.., why)) = state.refusals.get_mut(name) {
            *left -= 1;
            let why = why.clone();
            state.refused += 1;
            return Err(why);
        }
        drop(state);
        self.with(name, act)?;
        self.state().commands.push(what);
        Ok(())
    }

    fn set_drained(&self, host: &str, drained: bool) -> Answer<()> {
        if host != HOST {
            return Err(no_such_host(host, [HOST].into_iter()).into());
        }
        self.state().drained = drained;
        Ok(())
    }

    fn take(&self, request: SubmitRequest) -> Answer<JobSummary> {
        let plan = RoundRobin.pack(&request.demand, &request.packing)?;
        let name = request.definition.job.name.clone();
        let mut state = self.state();
        let there = state.jobs.get(&name);
        if there.is_some_and(|there| there.request.definition.job != request.definition.job) {
            let what = format!("cluster \"pretended\" has a job {name:?} already");
            let error = Error::new(ErrorCode::NameTaken, what);
            return Err(error.hint("choose another name, or kill that job").into());
        }
        let job = state.jobs.entry(name).or_insert(Job {
            request,
            plan,
            version: 1,
            phase: Phase::Running,
            restarts: BTreeMap::new(),
        });
        Ok(job.summary())
    }

    /// Returns the logs of a submission that is not current: one line if it was killed, an error if
    /// it is unknown.
    fn logs_of_past(&self, name: &str, query: &LogQuery) -> Option<Answer<LogStream>> {
        let wanted = query.submission.as_ref()?;
        let there = self.with(name, |job| job.summary().submission);
        if there.is_ok_and(|there| there == *wanted) {
            return None;
        }
        let state = self.state();
        let mut past = state.past.iter().map(|past| &past.summary);
        if !past.any(|past| past.name == name && past.submission == *wanted) {
            let what = format!("nothing is known of a submission {wanted} of job {name:?}");
            return Some(Err(Error::new(ErrorCode::NoSuchJob, what).into()));
        }
        let (sender, receiver) = mpsc::channel(1);
        // The channel has room for the line.
        let _ = sender.try_send(Ok(LogLine {
            container: ContainerId(1),
            source: LogSource::Stdout,
            text: format!("hello from submission {wanted}"),
            continues: false,
            left_out_bytes: None,
        }));
        Some(Ok(receiver))
    }

    fn change(&self, name: &str, update: &ParallelismUpdate) -> Answer<()> {
        let (plan, packing) =
            self.with(name, |job| (job.plan.clone(), job.request.packing.clone()))?;
        let wanted = update.parallelism.iter();
        let demand = plan
            .demand()
            .rescaled(wanted.map(|(vertex, count)| (vertex.as_str(), *count)))?;
        let next = RoundRobin.repack(&plan, &demand, &packing)?;
        let what = format!("update {name} {:?}", update.parallelism);
        self.command(name, what, |job| {
            job.plan = next;
            job.version += 1;
            job.request.demand = demand;
        })
    }

    fn spread(&self, name: &str, containers: NonZeroU32) -> Answer<()> {
        let (plan, packing) =
            self.with(name, |job| (job.plan.clone(), job.request.packing.clone()))?;
        let next = RoundRobin.spread_over(&plan, &packing, containers)?;
        self.command(name, format!("rescale {name} {containers}"), |job| {
            job.plan = next;
            job.version += 1;
        })
    }
}

impl Job {
    fn summary(&self) -> JobSummary {
        let job = &self.request.definition.job;
        let containers = self.plan.containers().len() as u32;
        JobSummary {
            name: job.name.clone(),
            submission: format!("{:x}", job.submission),
            phase: self.phase,
            reason: None,
            since_ms: 0,
            container_count: containers,
            worker_count: containers,
            instance_count: self.plan.instance_count() as u32,
            version: self.request.definition.version.clone(),
            restarting_count: 0,
            last_problem: None,
            leader_changes: false,
        }
    }

    fn past(&self) -> PastJobDescription {
        let JobSummary {
            name,
            submission,
            container_count,
            instance_count,
            version,
            ..
        } = self.summary();
        PastJobDescription {
            summary: PastJobSummary {
                name,
                submission,
                ending: JobEnding::Killed,
                has_run: true,
                submitted_ms: 0,
                ended_ms: 0,
                container_count,
                instance_count,
                version,
                last_problem: None,
            },
            packing: self.request.definition.packing.clone(),
            scheduler: self.request.definition.scheduler.clone(),
            machines: vec!["here".to_string()],
            problems: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn containers(&self) -> Vec<ContainerView> {
        let of_one = |container: &ardea_coordination::packing::ContainerPlan| ContainerView {
            id: container.id,
            state: ContainerState::Up,
            host: Some("127.0.0.1".into()),
            host_name: Some(HOST.into()),
            output_removed_bytes: 0,
            process: Some(format!("pid {}", 4000 + container.id.0)),
            address: Some(format!("127.0.0.1:{}", 7000 + container.id.0)),
            incarnation: Some(1),
            heard_ms: Some(0),
            restarts: self.restarts.get(&container.id).copied().unwrap_or(0),
            required: container.required,
            instances: container.instances.iter().map(|i| i.to_string()).collect(),
            instance_processes: BTreeMap::new(),
            transports: BTreeMap::new(),
        };
        self.plan.containers().iter().map(of_one).collect()
    }

    fn description(&self) -> JobDescription {
        let definition = &self.request.definition;
        let vertex = |vertex: &ardea_coordination::packing::VertexDemand| VertexView {
            name: vertex.name.to_string(),
            parallelism: vertex.parallelism,
            resources: vertex.resources,
            restarts: 0,
            exceptions: 0,
        };
        JobDescription {
            summary: self.summary(),
            program: ProgramView {
                package: definition.program.package.clone(),
                executable: definition.program.executable.clone(),
                arguments: definition.program.arguments.clone(),
            },
            packing: definition.packing.clone(),
            scheduler: definition.scheduler.clone(),
            settings: definition.settings.clone(),
            master: None,
            epochs: None,
            upgrade: None,
            vertices: self.request.demand.vertices.iter().map(vertex).collect(),
            containers: self.containers(),
            problems: Vec::new(),
            notes: vec![NoteView {
                at_ms: 0,
                text: "plan 1 was made".into(),
            }],
        }
    }

    fn top(&self) -> TopView {
        let vertices = self.request.demand.vertices.iter().map(|vertex| VertexTop {
            vertex: vertex.name.to_string(),
            instances: vertex.parallelism,
            records_in_per_s: Some(1_250_000.0),
            busy: Some(0.5),
            ..VertexTop::default()
        });
        let containers = self.plan.containers().iter().map(|container| ContainerTop {
            container: container.id.0,
            memory_bytes: Some(64 << 20),
            restarts: self.restarts.get(&container.id).copied().unwrap_or(0),
            ..ContainerTop::default()
        });
        TopView {
            job: self.request.definition.job.name.clone(),
            phase: self.phase,
            at_ms: 0,
            vertices: vertices.collect(),
            containers: containers.collect(),
        }
    }

    fn samples(&self, query: &MetricsQuery) -> Vec<SampleView> {
        let instances = self.plan.containers().iter();
        let instances = instances.flat_map(|c| c.instances.iter().map(move |i| (c.id, i)));
        instances
            .filter(|(container, instance)| {
                query.container.is_none_or(|wanted| wanted == container.0)
                    && query.instance.is_none_or(|wanted| wanted == instance.index)
                    && query
                        .vertex
                        .as_ref()
                        .is_none_or(|wanted| wanted == instance.vertex.as_str())
            })
            .map(|(container, instance)| SampleView {
                name: "ardea_records_in_total".into(),
                labels: BTreeMap::from([
                    ("vertex".to_string(), instance.vertex.to_string()),
                    ("instance".to_string(), instance.index.to_string()),
                    ("container".to_string(), container.to_string()),
                ]),
                kind: SampleKind::Counter,
                value: Some(42.0),
                at_ms: 0,
            })
            .filter(|sample| query.name.as_ref().is_none_or(|name| *name == sample.name))
            .collect()
    }
}

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
}
