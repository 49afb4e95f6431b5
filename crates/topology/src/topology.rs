//! A checked topology, and how it is run.

use std::num::NonZeroUsize;
use std::time::Duration;

use ardea_core::{Dag, Result};
use ardea_engine::{JobConfig, Node, NodeConfig};

use crate::builder::Reliability;
use crate::compile::compile;
use crate::component::Component;
use crate::outputs::Outputs;
use crate::running::RunningTopology;

/// Settings of a whole topology.
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

/// A checked topology: inert, and as often to be run as one likes.
#[derive(Clone, Debug)]
pub struct Topology {
    pub(crate) name: String,
    pub(crate) components: Vec<Component>,
    /// Of each component.
    pub(crate) outputs: Vec<Outputs>,
    pub(crate) config: TopologyConfig,
}

impl Topology {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The core graph, to be looked at: a vertex a component, an edge a subscription.
    ///
    /// # Errors
    /// None for what was built; the graph is checked like any other.
    pub fn to_dag(&self) -> Result<Dag> {
        Ok(compile(self)?.0)
    }

    /// Runs the topology in this process, on every core, until it ends: when all its spouts are done and every tuple has been dealt
    /// with.
    ///
    /// # Errors
    /// As [`submit`](Topology::submit), and the topology's own failure.
    pub fn run(&self) -> Result<()> {
        self.run_with(NodeConfig::default())
    }

    /// As [`run`](Topology::run), on a node with these settings.
    ///
    /// # Errors
    /// As [`run`](Topology::run).
    pub fn run_with(&self, config: NodeConfig) -> Result<()> {
        let node = Node::start(config)?;
        self.submit(&node)?.join()
    }

    /// Starts the topology on a node, under its own name.
    ///
    /// # Errors
    /// What a component's supplier returns; a limit of threads or tasklets. Nothing of it runs then.
    pub fn submit(&self, node: &Node) -> Result<RunningTopology> {
        self.submit_as(node, JobConfig::named(self.name.clone()))
    }

    /// As [`submit`](Topology::submit), with settings of the job.
    ///
    /// # Errors
    /// As [`submit`](Topology::submit).
    pub fn submit_as(&self, node: &Node, config: JobConfig) -> Result<RunningTopology> {
        let (dag, controls) = compile(self)?;
        let job = node.submit(&dag, config)?;
        Ok(RunningTopology::new(job, controls))
    }
}
