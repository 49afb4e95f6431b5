//! The threads of one process, and the jobs on them.

use std::sync::Arc;
use std::thread::JoinHandle;

use ardea_core::{Clock, Dag, Result, VertexId};

use crate::executor::cores::allowed_cores;
use crate::executor::ready::MAX_TASKLETS;
use crate::executor::threads::Threads;
use crate::executor::worker::{self, WorkerSettings};
use crate::executor::worker_shared::WorkerShared;
use crate::job::JobHandle;
use crate::planning::execution_plan::{ExecutionPlan, Fusion};
use crate::planning::wiring::Wiring;
use crate::{Deployment, JobConfig, Layout, NodeConfig, Placement, RemoteEdges, Site, StartMode};

/// The threads of one process, shared by many jobs.
///
/// Dropping the node cancels its jobs and waits for its threads.
pub struct Node {
    shared: Arc<Threads>,
    threads: Vec<JoinHandle<()>>,
}

impl Node {
    /// Starts the threads.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`](ardea_core::ErrorCode::LimitReached) if the system refuses a
    /// thread; [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if state is to be
    /// on disk but this build does not support it.
    pub fn start(config: NodeConfig) -> Result<Self> {
        Node::start_with_clock(config, Clock::system())
    }

    /// Starts a node with another clock, for tests. An idle thread reads the clock at least once
    /// per requested deadline.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with_clock(config: NodeConfig, clock: Clock) -> Result<Self> {
        let cores = allowed_cores();
        let count = config.threads.get() as usize;
        let workers = (0..count)
            .map(|_| WorkerShared::new(MAX_TASKLETS))
            .collect();
        let mut node = Node {
            shared: Arc::new(Threads::new(config, clock, workers)?),
            threads: Vec::new(),
        };
        for (index, shared) in node.shared.workers.iter().enumerate() {
            let config = &node.shared.config;
            let settings = WorkerSettings {
                name: format!("ardea-{index}"),
                // The last cores first: the first one handles interrupts.
                core: config
                    .pin
                    .then(|| cores[cores.len() - 1 - index % cores.len()]),
                clock: node.shared.clock.clone(),
                spin: config.spin,
                dedicated: false,
            };
            node.threads
                .push(worker::start(Arc::clone(shared), settings)?);
        }
        Ok(node)
    }

    /// Returns the node's settings.
    pub fn config(&self) -> &NodeConfig {
        &self.shared.config
    }

    /// Returns the clock of the node's instances.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Returns the number of tasklets on the cooperative threads.
    pub fn tasklets(&self) -> usize {
        let workers = self.shared.workers.iter();
        workers.map(|worker| worker.load()).sum()
    }

    /// Starts a job completely in this process.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) if the graph can't run; an
    /// error of a supplier; a limit of threads or tasklets. Then nothing of the job runs.
    pub fn submit(&self, dag: &Dag, config: JobConfig) -> Result<JobHandle> {
        let threads = self.config().threads;
        let parallelism = |id: VertexId| dag.get(id).wanted_parallelism().resolve(threads);
        let fusion = Fusion::within(self.config().fuse, Fusion::Lone);
        let plan = ExecutionPlan::made(dag, parallelism, fusion)?;
        let vertices = (0..dag.vertices().len()).map(VertexId::of_index);
        let layout = Layout::from(Placement::of_one(Site(0), vertices.map(parallelism)));
        let wiring = Wiring::new(dag.clone(), plan);
        let all = Deployment::start(
            &self.shared,
            wiring,
            config,
            &layout,
            None,
            StartMode::Running,
        )?;
        Ok(all.into_handle())
    }

    /// Starts the part of a job that `layout` assigns to this process. `crossings` provides the
    /// edges to other processes.
    ///
    /// The placement determines the parallelism of the vertices, not the graph or this node's
    /// threads. Vertices are chained by forward edges only, since their placement may change; see
    /// [`chains`](crate::chains).
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) if the graph can't run, an edge
    /// to another process has no codec, or instances of one tasklet are placed apart; an error of a
    /// supplier or of `crossings`; a limit of threads or tasklets. Then nothing of the job runs.
    pub fn deploy(
        &self,
        dag: &Dag,
        config: JobConfig,
        layout: impl Into<Layout>,
        crossings: Arc<dyn RemoteEdges>,
        begin: StartMode,
    ) -> Result<Deployment> {
        let layout = layout.into();
        let plan = ExecutionPlan::of_placement(dag, &layout.next, self.config().fuse)?;
        let wiring = Wiring::new(dag.clone(), plan);
        Deployment::start(
            &self.shared,
            wiring,
            config,
            &layout,
            Some(crossings),
            begin,
        )
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let dedicated = self.shared.end();
        // The panic of a thread has been reported by the panic hook.
        self.threads
            .drain(..)
            .chain(dedicated)
            .for_each(|thread| drop(thread.join()));
    }
}
