//! Jobs that run on the threads of one process.

use std::num::NonZeroU32;

use ardea_core::{Dag, Result};
use ardea_engine::{JobConfig, JobHandle, Node};
use ardea_pipeline::Pipeline;
use ardea_topology::Topology;

/// A job that runs on the threads of this process, as often as it is started.
pub trait Embedded: Send + Sync {
    /// Its name.
    fn job_name(&self) -> &str;

    /// Its graph on a node with so many cooperative threads; the same each time.
    ///
    /// # Errors
    /// [`InvalidJob`](ardea_core::ErrorCode::InvalidJob) if there can be none.
    fn graph(&self, threads: NonZeroU32) -> Result<Dag>;

    /// Starts it on a node.
    ///
    /// # Errors
    /// Whatever keeps the node from starting it; nothing of it runs then.
    fn start(&self, node: &Node, config: JobConfig) -> Result<JobHandle>;
}

impl Embedded for Pipeline {
    fn job_name(&self) -> &str {
        self.name()
    }

    fn graph(&self, threads: NonZeroU32) -> Result<Dag> {
        self.to_dag(threads)
    }

    fn start(&self, node: &Node, config: JobConfig) -> Result<JobHandle> {
        self.submit(node, config)
    }
}

impl Embedded for Topology {
    fn job_name(&self) -> &str {
        self.name()
    }

    fn graph(&self, _: NonZeroU32) -> Result<Dag> {
        self.to_dag()
    }

    fn start(&self, node: &Node, config: JobConfig) -> Result<JobHandle> {
        Ok(self.submit_as(node, config)?.job().clone())
    }
}
