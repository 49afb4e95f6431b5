//! A job that runs in its own process, as a cluster with this one job. The REST server then serves
//! the job's figures, and the web page shows them.

mod queries;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_coordination::packing::{ContainerId, Resources};
use ardea_core::{DeadLetter, DeadLetters, Result, Timestamp};
use ardea_metrics::{Batch, History, HistoryConfig, MetricsSink};
use ardea_rest::{
    ContainerState, ContainerView, DeadLetterView, DeadLettersQuery, DeadLettersView,
    JobDescription, JobSummary, LogicalPlan, LogicalVertex, Phase, PhysicalContainer, PhysicalPlan,
    PlacedGroup, Plans, ProgramView, VertexView,
};

use crate::leader::now_ms;

/// The container label of a run outside a cluster.
const CONTAINER: ContainerId = ContainerId(0);
/// The name of the scheduler and the packing policy in the job's description: there are none.
const NONE: &str = "none";

/// The job of this process. Clones share the same job.
#[derive(Clone)]
pub struct EmbeddedJob(Arc<Shared>);

struct Shared {
    description: JobDescription,
    plans: Plans,
    history: Mutex<History>,
    dead_letters: Arc<DeadLetters>,
}

impl EmbeddedJob {
    /// Creates the job `name` with this graph and dead letters, without any figures yet.
    pub fn new(name: &str, logical: LogicalPlan, dead_letters: Arc<DeadLetters>) -> Self {
        let now = now();
        let history = History::new(HistoryConfig::default(), now);
        EmbeddedJob(Arc::new(Shared {
            description: description(name, &logical.vertices),
            plans: plans(name, logical),
            history: Mutex::new(history),
            dead_letters,
        }))
    }

    /// Returns the sink that receives the metrics of the process.
    pub fn sink(&self) -> Box<dyn MetricsSink> {
        Box::new(HistorySink(self.clone()))
    }

    /// Returns the latest dead letters of the process in one page.
    fn dead_letters_of(&self, query: &DeadLettersQuery) -> DeadLettersView {
        let letters = self.0.dead_letters.sample().into_iter();
        let selected = letters.filter(|letter| query.selects(&letter.vertex));
        DeadLettersView {
            letters: selected.take(query.limit()).map(letter_view).collect(),
            next: None,
        }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        let history = &self.0.history;
        history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds batches of metrics to the history of the job.
struct HistorySink(EmbeddedJob);

impl MetricsSink for HistorySink {
    fn name(&self) -> &str {
        "ui"
    }

    fn take(&mut self, batch: &Batch) -> Result<()> {
        self.0.history().take(batch, now());
        Ok(())
    }
}

/// Returns a dead letter for the REST interface. A record that is no text is shown as far as it is.
fn letter_view(letter: DeadLetter) -> DeadLetterView {
    DeadLetterView {
        container: CONTAINER,
        vertex: letter.vertex,
        origin: letter.origin,
        reason: letter.reason,
        at_ms: None,
        bytes: letter.raw.len() as u64,
        text: Some(String::from_utf8_lossy(&letter.raw).into_owned()),
        base64: None,
    }
}

fn now() -> Timestamp {
    let millis = i64::try_from(now_ms()).unwrap_or(i64::MAX);
    Timestamp::from_micros(millis.saturating_mul(1_000))
}

fn description(name: &str, vertices: &[LogicalVertex]) -> JobDescription {
    let mut words = std::env::args();
    let instances = vertices
        .iter()
        .flat_map(|vertex| (0..vertex.parallelism).map(|index| format!("{}#{index}", vertex.name)));
    let instances: Vec<String> = instances.collect();
    let of_vertex = |vertex: &LogicalVertex| VertexView {
        name: vertex.name.clone(),
        parallelism: vertex.parallelism,
        resources: Resources::ZERO,
        restarts: 0,
        exceptions: 0,
    };
    JobDescription {
        summary: JobSummary {
            name: name.to_string(),
            submission: "0".into(),
            phase: Phase::Running,
            since_ms: now_ms(),
            container_count: 1,
            worker_count: 1,
            instance_count: u32::try_from(instances.len()).unwrap_or(u32::MAX),
            version: env!("CARGO_PKG_VERSION").into(),
            ..JobSummary::default()
        },
        program: ProgramView {
            package: String::new(),
            executable: words.next().unwrap_or_default(),
            arguments: words.collect(),
        },
        packing: NONE.into(),
        scheduler: NONE.into(),
        settings: BTreeMap::new(),
        master: None,
        epochs: None,
        upgrade: None,
        vertices: vertices.iter().map(of_vertex).collect(),
        containers: vec![ContainerView {
            id: CONTAINER,
            state: ContainerState::Up,
            host: None,
            host_name: Some("this process".into()),
            output_removed_bytes: 0,
            process: Some(format!("pid {}", std::process::id())),
            address: None,
            incarnation: None,
            heard_ms: None,
            restarts: 0,
            required: Resources::ZERO,
            instances,
            instance_processes: BTreeMap::new(),
            transports: BTreeMap::new(),
        }],
        problems: Vec::new(),
        notes: Vec::new(),
    }
}

fn plans(name: &str, logical: LogicalPlan) -> Plans {
    let groups = logical.vertices.iter().map(|vertex| PlacedGroup {
        vertices: vec![vertex.name.clone()],
        instances: (0..vertex.parallelism).collect(),
    });
    let container = PhysicalContainer {
        id: CONTAINER,
        state: ContainerState::Up,
        host: None,
        host_name: Some("this process".into()),
        address: None,
        groups: groups.collect(),
    };
    Plans {
        job: name.to_string(),
        version: None,
        physical: PhysicalPlan {
            containers: vec![container],
        },
        logical,
        packing: None,
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::OnError;
    use ardea_metrics::{InstanceCounters, Labels, Value, catalogue};
    use ardea_rest::{Cluster, LogicalEdge};

    use super::*;

    fn words() -> LogicalPlan {
        let vertex = |name: &str, parallelism| LogicalVertex {
            name: name.into(),
            parallelism,
            isolation: "tasklet".into(),
            together: None,
        };
        LogicalPlan {
            vertices: vec![vertex("words", 1), vertex("counts", 2)],
            edges: vec![LogicalEdge {
                from: "words".into(),
                output: 0,
                to: "counts".into(),
                input: 0,
                routing: "keyed".into(),
                latency_us: None,
                records_per_second: None,
            }],
        }
    }

    #[tokio::test]
    async fn the_job_of_a_process_is_described_with_its_figures() {
        let start = Timestamp::from_micros(now().as_micros() - 5_000_000);
        let second = |n: i64| Timestamp::from_micros(start.as_micros() + n * 1_000_000);
        let letters = Arc::new(DeadLetters::default());
        let job = EmbeddedJob::new("words", words(), Arc::clone(&letters));
        let mut sink = job.sink();
        let process = Labels::of([("job", "words"), ("container", "0")]);
        for n in 0..=5_i64 {
            let mut batch = Batch::new(process.clone(), start, second(n));
            let mut counters = InstanceCounters::new("counts", 1, Default::default());
            counters.counters.records_in = 1_000 * n as u64;
            counters.write(&mut batch);
            let cpu = Value::Counter(n as f64);
            batch.push(catalogue::CPU.name, &Labels::default(), cpu);
            sink.take(&batch).unwrap();
        }
        let described = job.describe("words").await.unwrap();
        assert_eq!(described.summary.instance_count, 3);
        let samples = job.metrics("words", Default::default()).await.unwrap();
        let read = samples
            .iter()
            .find(|it| it.name == "ardea_records_in_total")
            .unwrap();
        assert_eq!(read.value, Some(5_000.0));
        assert!(job.describe("other").await.is_err());
        assert!(job.kill("words", Default::default()).await.is_err());
        let found = job.why("words").await.unwrap();
        assert_eq!((found.is_measured, found.phase), (true, Phase::Running));
        assert!(job.why("other").await.is_err());
        letters
            .handle(OnError::DeadLetter, || DeadLetter {
                vertex: "counts".into(),
                origin: "in:1".into(),
                raw: b"x".to_vec(),
                reason: "bad".into(),
            })
            .unwrap();
        let page = job.dead_letters("words", Default::default()).await.unwrap();
        assert_eq!(page.letters[0].vertex, "counts");
        let plans = job.plans("words").await.unwrap();
        assert_eq!(plans.physical.containers[0].groups.len(), 2);
    }
}
