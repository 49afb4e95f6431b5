//! The interface between a program and the runtime of its job.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use ardea_core::{Backchannel, Dag, Error, ErrorCode, Result};

use crate::{JobConfig, JobHandle, Node};

/// Parallelism of vertices by name, overriding the program's own.
pub type Parallelisms = BTreeMap<String, u32>;

/// A job's graph and its side channels.
#[derive(Clone)]
pub struct Program {
    /// The graph.
    pub dag: Dag,
    /// The channels between instances outside the graph.
    pub side_channels: Vec<Arc<dyn Backchannel>>,
    /// True if a failed instance may be restarted alone. Its state and the records that it was
    /// processing are then lost. Set this if lost records are replayed, or the job has no
    /// guarantee. If false, a failure ends the whole process.
    pub may_lose_instances: bool,
}

/// A job, independent of how it was described. Every process that runs a part of it builds the same
/// graph from it.
pub trait Job: Send + Sync {
    /// Returns the name.
    fn name(&self) -> &str;

    /// Returns the graph with the given parallelism of the named vertices. Must be deterministic,
    /// so that all processes number vertices and edges alike.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) if the graph can't run, or a
    /// name is not that of a vertex.
    fn program(&self, parallelism: &Parallelisms) -> Result<Program>;

    /// Returns the graph for a single node with `threads` cooperative threads. Must be
    /// deterministic.
    ///
    /// The default is the graph of [`program`](Self::program), for jobs without side channels.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) if the graph can't run.
    fn graph(&self, threads: NonZeroU32) -> Result<Dag> {
        let _ = threads;
        Ok(self.program(&Parallelisms::new())?.dag)
    }

    /// Returns true if the vertices with process isolation start the processes of their instances
    /// themselves, and [`serve_instance`](Self::serve_instance) serves these. By default the
    /// runtime does both.
    fn starts_processes(&self) -> bool {
        false
    }

    /// Serves an instance of a vertex to the process that started this one for it. Returns when the
    /// instance is stopped. Called only if the job [starts processes](Self::starts_processes).
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) if the job starts no processes,
    /// which is the default; errors of the instance.
    fn serve_instance(&self, vertex: &str) -> Result<()> {
        let what = format!("the job starts no process for the vertex {vertex:?}");
        Err(Error::new(ErrorCode::InvalidJob, what))
    }

    /// Starts the whole job on a node.
    ///
    /// # Errors
    /// As [`graph`](Self::graph) and [`Node::submit`]; then nothing of the job runs.
    fn start(&self, node: &Node, config: JobConfig) -> Result<JobHandle> {
        node.submit(&self.graph(node.config().threads)?, config)
    }
}
