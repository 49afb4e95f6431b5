//! What a program hands to whoever runs its job.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use ardea_core::{Dag, Result, SideChannel};

use crate::{JobConfig, JobHandle, Node};

/// How many instances vertices have, by name, where that is not what the program itself says.
pub type Parallelisms = BTreeMap<String, u32>;

/// A job's graph, and what its instances tell each other beside it.
#[derive(Clone)]
pub struct Program {
    /// The graph.
    pub dag: Dag,
    /// Beside it.
    pub side_channels: Vec<Arc<dyn SideChannel>>,
    /// Whether an instance that fails may be made anew by itself. What it remembered is gone then, and what it had at hand: right where
    /// that is sent again, or nobody was promised it. If not, what fails takes its process with it.
    pub may_lose_instances: bool,
}

/// A job, whichever way it was described. Every process that runs a part of it makes the same graph from it.
pub trait Job: Send + Sync {
    /// Its name.
    fn name(&self) -> &str;

    /// The graph, with so many instances of the vertices named; deterministic, so that all processes number vertices and edges alike.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) if the graph can't run, or a name is none of its vertices'.
    fn program(&self, parallelism: &Parallelisms) -> Result<Program>;

    /// Returns the graph for a single node with so many cooperative threads; the same each time.
    ///
    /// The default is the graph of [`program`](Self::program), for jobs without side channels.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) if the graph can't run.
    fn graph(&self, threads: NonZeroU32) -> Result<Dag> {
        let _ = threads;
        Ok(self.program(&Parallelisms::new())?.dag)
    }

    /// Starts the whole job on a node.
    ///
    /// # Errors
    /// As [`graph`](Self::graph) and [`Node::submit`]; nothing of the job runs then.
    fn start(&self, node: &Node, config: JobConfig) -> Result<JobHandle> {
        node.submit(&self.graph(node.config().threads)?, config)
    }
}
