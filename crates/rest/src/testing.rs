//! A fake cluster, for tests of clients of the interface (feature `testing`).

mod cluster;
mod maps;
mod scenario;
mod tokens;
mod word_count;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_coordination::packing::{ContainerId, PackingPlan, PackingPolicy, RoundRobin};
use ardea_core::{Error, ErrorCode};
use tokio::sync::mpsc;

use crate::{
    Answer, CheckpointsView, ClusterError, ContainerState, ContainerTop, ContainerView,
    JobDescription, JobEnding, JobSummary, LogLine, LogQuery, LogSource, LogStream, MetricsQuery,
    NoteView, ParallelismUpdate, PastJobDescription, PastJobSummary, Phase, ProgramView,
    SampleKind, SampleView, SubmitRequest, TokenView, TopView, VertexTop, VertexView, no_such_host,
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
