//! A checked topology, and its execution.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use ardea_config::nearest;
use ardea_core::{Dag, Error, ErrorCode, Result};
use ardea_engine::{Job, JobConfig, JobHandle, Node, NodeConfig, Parallelisms, Program};
use ardea_instance::serve_own_program;

use crate::builder::Reliability;
use crate::check::check_components;
use crate::compile::{TargetRuntime, compile, guest_of};
use crate::component::Component;
use crate::outputs::Outputs;
use crate::running::RunningTopology;

/// The settings of a whole topology.
#[derive(Clone, Debug)]
pub(crate) struct TopologyConfig {
    pub(crate) reliability: Reliability,
    pub(crate) max_spout_pending: Option<NonZeroUsize>,
    pub(crate) message_timeout: Duration,
}

impl Default for TopologyConfig {
    fn default() -> Self {
        TopologyConfig {
            reliability: Reliability::default(),
            max_spout_pending: None,
            message_timeout: Duration::from_secs(30),
        }
    }
}

/// A checked topology, which can be run any number of times.
#[derive(Clone, Debug)]
pub struct Topology {
    pub(crate) name: String,
    pub(crate) components: Vec<Component>,
    /// The outputs of each component.
    pub(crate) outputs: Vec<Outputs>,
    pub(crate) config: TopologyConfig,
}

impl Topology {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the core graph for inspection: a vertex per component, an edge per subscription.
    ///
    /// # Errors
    /// None for a built topology; the graph is checked like any other.
    pub fn to_dag(&self) -> Result<Dag> {
        Ok(compile(self, TargetRuntime::Local)?.dag)
    }

    /// Runs the topology in this process, on all cores, until all its spouts are done and every
    /// tuple is processed.
    ///
    /// # Errors
    /// Those of [`submit`](Topology::submit), and the failure of the topology.
    pub fn run(&self) -> Result<()> {
        self.run_with(NodeConfig::default())
    }

    /// Like [`run`](Topology::run), on a node with these settings.
    ///
    /// # Errors
    /// Those of [`run`](Topology::run).
    pub fn run_with(&self, config: NodeConfig) -> Result<()> {
        let node = Node::start(config)?;
        self.submit(&node)?.join()
    }

    /// Starts the topology on a node, under its name.
    ///
    /// # Errors
    /// A component's supplier fails, or a limit of threads or tasklets is exceeded. No part of the
    /// topology runs then.
    pub fn submit(&self, node: &Node) -> Result<RunningTopology> {
        self.submit_as(node, JobConfig::named(self.name.clone()))
    }

    /// Like [`submit`](Topology::submit), with settings of the job.
    ///
    /// # Errors
    /// Those of [`submit`](Topology::submit).
    pub fn submit_as(&self, node: &Node, config: JobConfig) -> Result<RunningTopology> {
        let compiled = compile(self, TargetRuntime::Local)?;
        let job = node.submit(&compiled.dag, config)?;
        Ok(RunningTopology::new(job, compiled.controls))
    }

    /// Returns the topology with this parallelism of the named components.
    fn rescaled(&self, parallelism: &Parallelisms) -> Result<Topology> {
        let mut topology = self.clone();
        for (name, instances) in parallelism {
            let found = topology.components.iter_mut().find(|c| *c.name == **name);
            let Some(component) = found else {
                return Err(self.no_such_component(name));
            };
            component.parallelism = *instances;
        }
        check_components(&self.name, &topology.components, &self.config)?;
        Ok(topology)
    }

    fn no_such_component(&self, name: &str) -> Error {
        let known: Vec<&str> = self.components.iter().map(|c| &*c.name).collect();
        let what = format!("the topology {:?} has no component {name:?}", self.name);
        let list = format!("the components are {}", known.join(", "));
        let error = Error::new(ErrorCode::InvalidJob, what);
        match nearest(name, known.into_iter()) {
            Some(meant) => error.hint(format!("did you mean {meant:?}? {list}")),
            None => error.hint(list),
        }
    }
}

/// A topology that may run in several processes. Every process creates the same graph, independent
/// of the parallelism.
impl Job for Topology {
    fn name(&self) -> &str {
        &self.name
    }

    fn program(&self, parallelism: &Parallelisms) -> Result<Program> {
        let compiled = compile(&self.rescaled(parallelism)?, TargetRuntime::Distributed)?;
        Ok(Program {
            dag: compiled.dag,
            side_channels: vec![compiled.channel],
            // With acks, lost messages are replayed; without, losses are permitted.
            may_lose_instances: true,
        })
    }

    fn graph(&self, _: NonZeroU32) -> Result<Dag> {
        self.to_dag()
    }

    fn starts_processes(&self) -> bool {
        true
    }

    fn serve_instance(&self, vertex: &str) -> Result<()> {
        serve_own_program(&mut *guest_of(self, vertex)?)
    }

    fn start(&self, node: &Node, config: JobConfig) -> Result<JobHandle> {
        Ok(self.submit_as(node, config)?.job().clone())
    }
}
