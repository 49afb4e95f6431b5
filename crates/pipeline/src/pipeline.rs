//! The pipeline: the description of a job.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::{Boundedness, Dag, Demand, Result, Source};
use ardea_engine::{JobConfig, JobHandle, Node, NodeConfig};

use crate::Untimed;
use crate::step::{self, JobEnd, Lower, LoweringTarget, Port, Step, StepName, StepOutput};
use crate::stream::Stream;

/// The description of a job, which does not run yet.
///
/// A pipeline is inert data. [`to_dag`](Pipeline::to_dag) compiles it to the core graph of a node.
/// As a [`Job`](ardea_engine::Job), it compiles to the graph of a cluster.
#[derive(Clone, Default)]
pub struct Pipeline {
    name: String,
    steps: Arc<Mutex<Vec<Step>>>,
}

impl Pipeline {
    /// Creates a job with this name.
    pub fn new(name: impl Into<String>) -> Self {
        Pipeline {
            name: name.into(),
            steps: Arc::default(),
        }
    }

    /// Returns the name of the job.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads from a source. Its records have no event time until
    /// [`with_timestamps`](Stream::with_timestamps) or
    /// [`with_native_timestamps`](Stream::with_native_timestamps) assigns one.
    pub fn read_from<T: Send + 'static, B: Boundedness>(
        &self,
        source: impl Into<Source<T, B>>,
    ) -> Stream<T, B, Untimed> {
        let source = source.into();
        let demand = source.wanted_demand();
        let is_repeatable = source.is_repeatable();
        let (name, supplier, parallelism, isolation) = source.into_parts();
        let lower: Lower = Box::new(move |lowering, name, _| {
            let parallelism = lowering.wanted.unwrap_or(parallelism);
            let vertex = lowering.end_vertex(
                JobEnd::Source,
                name,
                parallelism,
                isolation,
                supplier.clone(),
            );
            Ok(vec![Port::first_of(vertex, parallelism)])
        });
        let name = self.fresh_name(&name);
        let stream = self.add(name, vec![], 1, lower);
        self.edit(stream.from.step, |step| step.is_repeatable = is_repeatable);
        stream.resources(demand)
    }

    /// Compiles the pipeline to the core graph for a node with this number of cooperative threads.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob): a stream without a sink, two
    /// stateful steps with the same name, or invalid settings (a window whose length is not a
    /// multiple of its slide).
    pub fn to_dag(&self, threads: NonZeroU32) -> Result<Dag> {
        step::lower(&self.steps(), LoweringTarget::Node(threads))
    }

    /// Starts the job on a node.
    ///
    /// # Errors
    /// Those of [`to_dag`](Pipeline::to_dag), and those of the node.
    pub fn submit(&self, node: &Node, config: JobConfig) -> Result<JobHandle> {
        let config = if config.name.is_empty() {
            JobConfig {
                name: self.name.clone(),
                ..config
            }
        } else {
            config
        };
        node.submit(&self.to_dag(node.config().threads)?, config)
    }

    /// Runs the job in this process, on every core, until it ends. Prints a line to standard error
    /// if records were late, dropped or dead letters.
    ///
    /// # Errors
    /// Those of [`submit`](Pipeline::submit), and the failure of the job.
    pub fn run(&self) -> Result<()> {
        self.run_with(NodeConfig::default())
    }

    /// Works like [`run`](Pipeline::run), on a node with these settings.
    ///
    /// # Errors
    /// Those of [`run`](Pipeline::run).
    pub fn run_with(&self, config: NodeConfig) -> Result<()> {
        self.run_as(config, JobConfig::default())
    }

    /// Works like [`run_with`](Pipeline::run_with), with settings of the job: its name, and its
    /// dead-letter output.
    ///
    /// # Errors
    /// Those of [`run`](Pipeline::run).
    pub fn run_as(&self, node: NodeConfig, job: JobConfig) -> Result<()> {
        let node = Node::start(node)?;
        let job = self.submit(&node, job)?;
        let outcome = job.join();
        report_bad_records(&job);
        outcome
    }

    /// Adds a step. A generated name is made unique; a given name is retained and checked by
    /// `to_dag`.
    pub(crate) fn add<T, B, E>(
        &self,
        name: impl Into<StepName>,
        inputs: Vec<StepOutput>,
        required_outputs: usize,
        lower: Lower,
    ) -> Stream<T, B, E> {
        let mut steps = self.steps();
        let step = steps.len();
        steps.push(Step {
            name: name.into(),
            inputs,
            required_outputs,
            parallelism: None,
            demand: Demand::default(),
            latency: BTreeMap::new(),
            is_local_result: false,
            nondeterminism: None,
            is_repeatable: false,
            recordable: Vec::new(),
            lower,
        });
        drop(steps);
        Stream::new(self.clone(), StepOutput { step, output: 0 })
    }

    /// Generates a name for a step: its kind, with a number if there are several.
    pub(crate) fn fresh_name(&self, kind: &str) -> StepName {
        let steps = self.steps();
        let taken: HashSet<&str> = steps.iter().map(|step| step.name.text.as_str()).collect();
        let mut text = kind.to_string();
        let mut number = 2;
        while taken.contains(text.as_str()) {
            text = format!("{kind}-{number}");
            number += 1;
        }
        StepName {
            text,
            is_generated: true,
        }
    }

    /// Changes the step that produces a stream.
    pub(crate) fn edit(&self, step: usize, change: impl FnOnce(&mut Step)) {
        change(&mut self.steps()[step]);
    }

    /// Returns the locked list of steps, in the order in which they were added. No user code runs
    /// while the list is locked.
    pub(crate) fn steps(&self) -> MutexGuard<'_, Vec<Step>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if `other` is the same pipeline.
    pub(crate) fn is(&self, other: &Pipeline) -> bool {
        Arc::ptr_eq(&self.steps, &other.steps)
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.steps();
        write!(
            f,
            "Pipeline({:?}: {})",
            self.name,
            steps
                .iter()
                .map(|s| s.name.text.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        )
    }
}

/// Reports late records, dropped records and dead letters on standard error.
fn report_bad_records(job: &JobHandle) {
    let late: u64 = job.metrics().iter().map(|report| report.metrics.late).sum();
    let (letters, dropped) = (job.dead_letters().count(), job.dead_letters().dropped());
    let mut parts = Vec::new();
    if letters > 0 {
        let first = job.dead_letters().first();
        let why = first.map_or(String::new(), |letter| {
            format!(" (the first at {}: {})", letter.origin, letter.reason)
        });
        parts.push(format!("{letters} could not be dealt with{why}"));
    }
    if dropped > 0 {
        parts.push(format!("{dropped} were dropped by their step's policy"));
    }
    if late > 0 {
        parts.push(format!("{late} came too late for their windows"));
    }
    if !parts.is_empty() {
        eprintln!("job {:?}: of its records {}", job.name(), parts.join(", "));
    }
}
