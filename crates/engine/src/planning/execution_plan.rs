//! The division of a graph into tasklets.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use ardea_core::{Dag, Edge, EdgeId, Isolation, Result, Routing, VertexId};

use crate::Placement;

/// A chain of vertices whose instances run as one tasklet each, without queues between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedTasklet {
    /// The vertices, in topological order.
    pub vertices: Vec<VertexId>,
    /// The names of the vertices.
    pub names: Vec<Arc<str>>,
    /// The number of tasklets with this chain: one per instance.
    pub parallelism: u32,
    /// The kind of thread or process that runs the tasklets.
    pub isolation: Isolation,
}

/// The planned tasklets of a job, for display and for the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionPlan {
    /// The tasklets, producers before consumers.
    pub tasklets: Vec<PlannedTasklet>,
}

/// The vertices that may share a tasklet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fusion {
    /// None.
    Off,
    /// Vertices joined by forward edges, at any parallelism.
    Forward,
    /// Also vertices of one instance each, in a job whose parallelism does not change.
    Lone,
}

impl PlannedTasklet {
    /// Returns true if each tasklet needs a dedicated thread.
    pub(crate) fn is_dedicated(&self) -> bool {
        self.isolation != Isolation::Tasklet
    }

    /// Returns the vertex whose inputs are those of the tasklet.
    pub(crate) fn head(&self) -> VertexId {
        self.vertices[0]
    }
}

/// Returns the chains of vertices that run as one tasklet per instance on every node, each in
/// topological order. Most chains are a single vertex.
///
/// Instances of the same index of a chain must be in one process, so a placement must treat each
/// chain as one component.
///
/// # Errors
/// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) as [`Dag::validate`].
pub fn chains(dag: &Dag) -> Result<Vec<Vec<VertexId>>> {
    let plan = ExecutionPlan::made(dag, |_| 1, Fusion::Forward)?;
    Ok(plan.tasklets.into_iter().map(|t| t.vertices).collect())
}

impl ExecutionPlan {
    /// Plans `dag` for a node with this many cooperative threads.
    ///
    /// Two vertices share a tasklet if the only output of the first is the only input of the
    /// second, both are cooperative and have the same parallelism, and records go to the instance
    /// of the same index: over a forward edge, or over any edge between single instances.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) as [`Dag::validate`].
    pub fn of(dag: &Dag, threads: NonZeroU32, fuse: bool) -> Result<Self> {
        let parallelism = |id| dag.get(id).wanted_parallelism().resolve(threads);
        Self::made(dag, parallelism, Fusion::within(fuse, Fusion::Lone))
    }

    /// Plans `dag` for a job with the parallelism of `placement`, which may change while it runs:
    /// only forward edges join vertices to a tasklet, see [`chains`].
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) as [`Dag::validate`].
    pub fn of_placement(dag: &Dag, placement: &Placement, fuse: bool) -> Result<Self> {
        let parallelism = |id| placement.parallelism(id);
        Self::made(dag, parallelism, Fusion::within(fuse, Fusion::Forward))
    }

    pub(crate) fn made(
        dag: &Dag,
        parallelism: impl Fn(VertexId) -> u32,
        fusion: Fusion,
    ) -> Result<Self> {
        dag.validate()?;
        let mut tasklets: Vec<PlannedTasklet> = Vec::new();
        for id in dag.topological_order()? {
            let vertex = dag.get(id);
            let chain = fusable_input(dag, id, &parallelism, fusion).and_then(|before| {
                tasklets
                    .iter_mut()
                    .find(|tasklet| tasklet.vertices.last() == Some(&before))
            });
            match chain {
                Some(chain) => {
                    chain.vertices.push(id);
                    chain.names.push(Arc::clone(vertex.name()));
                }
                None => tasklets.push(PlannedTasklet {
                    vertices: vec![id],
                    names: vec![Arc::clone(vertex.name())],
                    parallelism: parallelism(id),
                    isolation: vertex.wanted_isolation(),
                }),
            }
        }
        Ok(ExecutionPlan { tasklets })
    }

    /// Returns true if an edge is inside a tasklet, so that it needs no queue.
    pub(crate) fn is_inside(&self, edge: &Edge) -> bool {
        let ends = [edge.source().0, edge.target().0];
        self.tasklets
            .iter()
            .any(|tasklet| tasklet.vertices.windows(2).any(|pair| pair == ends))
    }

    /// Returns the edges between tasklets, by id.
    pub(crate) fn edges_between<'a>(
        &'a self,
        dag: &'a Dag,
    ) -> impl Iterator<Item = (EdgeId, &'a Edge)> {
        dag.edge_ids()
            .zip(dag.edges())
            .filter(|(_, edge)| !self.is_inside(edge))
    }
}

impl Fusion {
    pub(crate) fn within(fuse: bool, most: Fusion) -> Fusion {
        if fuse { most } else { Fusion::Off }
    }
}

/// Returns the vertex before `id` that can be chained to it.
fn fusable_input(
    dag: &Dag,
    id: VertexId,
    parallelism: &impl Fn(VertexId) -> u32,
    fusion: Fusion,
) -> Option<VertexId> {
    let [input] = dag.inputs(id)[..] else {
        return None;
    };
    let edge = &dag.edges()[input.index()];
    let before = edge.source().0;
    if dag.outputs(before).len() != 1 {
        return None;
    }
    let cooperative = |id| dag.get(id).wanted_isolation() == Isolation::Tasklet;
    let counts = (parallelism(before), parallelism(id));
    let aligned = match (fusion, edge.wanted_routing()) {
        (Fusion::Off, _) => false,
        (Fusion::Forward | Fusion::Lone, Routing::Forward) => counts.0 == counts.1,
        (Fusion::Lone, _) => counts == (1, 1),
        (Fusion::Forward, _) => false,
    };
    (aligned && cooperative(before) && cooperative(id)).then_some(before)
}

impl fmt::Display for ExecutionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for tasklet in &self.tasklets {
            let place = match tasklet.isolation {
                Isolation::Tasklet => "tasklet",
                Isolation::Thread => "thread",
                Isolation::Process => "process",
            };
            writeln!(
                f,
                "{} × {place}: {}",
                tasklet.parallelism,
                tasklet.names.join(" → ")
            )?;
        }
        Ok(())
    }
}
