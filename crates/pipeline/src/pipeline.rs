//! The pipeline: a job described step by step.

use std::collections::HashSet;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::{Boundedness, Dag, Demand, Result, Source};
use ardea_engine::{JobConfig, JobHandle, Node, NodeConfig};

use crate::Untimed;
use crate::step::{self, End, For, Lower, Port, Step, StepName, StepOutput};
use crate::stream::Stream;

/// A job under description: nothing runs yet.
///
/// A pipeline is inert data. [`to_dag`](Pipeline::to_dag) compiles it to the core graph, which a node runs. As a
/// [`Job`](ardea_engine::Job) it compiles to that of a cluster.
#[derive(Clone, Default)]
pub struct Pipeline {
    name: String,
    steps: Arc<Mutex<Vec<Step>>>,
}

impl Pipeline {
    /// A job with this name.
    pub fn new(name: impl Into<String>) -> Self {
        Pipeline {
            name: name.into(),
            steps: Arc::default(),
        }
    }

    /// The job's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads from a source. Its records have no event time until [`with_timestamps`](Stream::with_timestamps) or
    /// [`with_native_timestamps`](Stream::with_native_timestamps) gives them one.
    pub fn read_from<T: Send + 'static, B: Boundedness>(
        &self,
        source: impl Into<Source<T, B>>,
    ) -> Stream<T, B, Untimed> {
        let source = source.into();
        let demand = source.wanted_demand();
        let (name, supplier, parallelism, isolation) = source.into_parts();
        let lower: Lower = Box::new(move |lowering, name, _| {
            let parallelism = lowering.wanted.unwrap_or(parallelism);
            let vertex =
                lowering.end_vertex(End::Source, name, parallelism, isolation, supplier.clone());
            Ok(vec![Port::first_of(vertex, parallelism)])
        });
        let name = self.fresh_name(&name);
        let stream = self.add(name, vec![], 1, lower);
        stream.resources(demand)
    }

    /// Compiles to the core graph, for a node with this many cooperative threads.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob): a stream that ends nowhere, two stateful steps of one name,
    /// settings that make no sense (a window whose length is not a multiple of its slide).
    pub fn to_dag(&self, threads: NonZeroU32) -> Result<Dag> {
        step::lower(&self.steps(), For::Node(threads))
    }

    /// Starts the job on a node.
    ///
    /// # Errors
    /// As [`to_dag`](Pipeline::to_dag), and whatever keeps the node from starting it.
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

    /// Runs the job in this process, on every core, until it ends. Says in a line on standard error if records were late, dropped or
    /// could not be dealt with.
    ///
    /// # Errors
    /// As [`submit`](Pipeline::submit), and the job's own failure.
    pub fn run(&self) -> Result<()> {
        self.run_with(NodeConfig::default())
    }

    /// As [`run`](Pipeline::run), on a node with these settings.
    ///
    /// # Errors
    /// As [`run`](Pipeline::run).
    pub fn run_with(&self, config: NodeConfig) -> Result<()> {
        self.run_as(config, JobConfig::default())
    }

    /// As [`run_with`](Pipeline::run_with), with settings of the job too: its name, where its dead letters go.
    ///
    /// # Errors
    /// As [`run`](Pipeline::run).
    pub fn run_as(&self, node: NodeConfig, job: JobConfig) -> Result<()> {
        let node = Node::start(node)?;
        let job = self.submit(&node, job)?;
        let outcome = job.join();
        tell_what_was_set_aside(&job);
        outcome
    }

    /// Adds a step; a name that was generated is made unique, one that was given is kept and checked by `to_dag`.
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
            is_for_author: false,
            lower,
        });
        drop(steps);
        Stream::new(self.clone(), StepOutput { step, output: 0 })
    }

    /// A name for a step that was given none: its kind, and a number where there are several.
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

    /// Changes the step that a stream comes out of.
    pub(crate) fn edit(&self, step: usize, change: impl FnOnce(&mut Step)) {
        change(&mut self.steps()[step]);
    }

    /// Its steps, in the order in which they were written. No code of a user's runs while they are held.
    pub(crate) fn steps(&self) -> MutexGuard<'_, Vec<Step>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether both describe the same job.
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

/// Nothing disappears in silence, also for those who look at no counter.
fn tell_what_was_set_aside(job: &JobHandle) {
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
        parts.push(format!("{dropped} were dropped as their step says"));
    }
    if late > 0 {
        parts.push(format!("{late} came too late for their windows"));
    }
    if !parts.is_empty() {
        eprintln!("job {:?}: of its records {}", job.name(), parts.join(", "));
    }
}
