//! How a graph becomes tasklets.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use ardea_core::{Dag, EdgeId, Isolation, Result, Routing, VertexId};

/// Vertices whose instances run as one tasklet each, joined by hand-over instead of queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedTasklet {
    /// The vertices, in the order in which records pass through them.
    pub vertices: Vec<VertexId>,
    /// Their names.
    pub names: Vec<Arc<str>>,
    /// How many of these tasklets there are, one an instance.
    pub parallelism: u32,
    /// Where they run.
    pub isolation: Isolation,
}

/// The tasklets of a job, before they are made: shown to people, and followed by the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionPlan {
    /// The tasklets, producers before consumers.
    pub tasklets: Vec<PlannedTasklet>,
}

impl PlannedTasklet {
    /// Whether each of them needs a thread of its own.
    pub(crate) fn is_dedicated(&self) -> bool {
        self.isolation != Isolation::Tasklet
    }
}

impl ExecutionPlan {
    /// Plans `dag` for a node with this many cooperative threads.
    ///
    /// Two vertices share a tasklet if the only way out of the first is the only way into the second, both are cooperative and have
    /// as many instances, and each instance's records go to the instance with its number: over a forward edge, or
    /// over any edge when there is one instance of each.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) as [`Dag::validate`].
    pub fn of(dag: &Dag, threads: NonZeroU32, fuse: bool) -> Result<Self> {
        dag.validate()?;
        let mut tasklets: Vec<PlannedTasklet> = Vec::new();
        for id in dag.topological_order()? {
            let vertex = dag.get(id);
            let parallelism = vertex.wanted_parallelism().resolve(threads);
            let before = fusable_input(dag, id, threads).filter(|_| fuse);
            let chain = before.and_then(|before| {
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
                    parallelism,
                    isolation: vertex.wanted_isolation(),
                }),
            }
        }
        Ok(ExecutionPlan { tasklets })
    }

    /// Whether an edge lies inside a tasklet, so that it needs no queue.
    pub(crate) fn is_inside(&self, dag: &Dag, edge: EdgeId) -> bool {
        let edge = &dag.edges()[edge.index()];
        self.tasklets.iter().any(|tasklet| {
            tasklet
                .vertices
                .windows(2)
                .any(|pair| pair == [edge.source().0, edge.target().0])
        })
    }
}

/// The vertex before `id` that it may share a tasklet with.
fn fusable_input(dag: &Dag, id: VertexId, threads: NonZeroU32) -> Option<VertexId> {
    let [input] = dag.inputs(id)[..] else {
        return None;
    };
    let edge = &dag.edges()[input.index()];
    let before = edge.source().0;
    if dag.outputs(before).len() != 1 {
        return None;
    }
    let (first, second) = (dag.get(before), dag.get(id));
    let count = |vertex: &ardea_core::Vertex| vertex.wanted_parallelism().resolve(threads);
    let cooperative = first.wanted_isolation() == Isolation::Tasklet
        && second.wanted_isolation() == Isolation::Tasklet;
    let aligned = match edge.wanted_routing() {
        Routing::Forward => true,
        _ => count(first) == 1 && count(second) == 1,
    };
    (cooperative && aligned && count(first) == count(second)).then_some(before)
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
