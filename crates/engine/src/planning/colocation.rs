//! Groups of vertices that must be placed together, and of those with equal parallelism.

use ardea_core::{Dag, Edge, Result, Routing, VertexId};

use crate::planning::execution_plan::chains;

/// Returns the groups of vertices whose instances of the same index must be in one process: those
/// that run as one tasklet ([`chains`]), and those joined by forward edges without a codec.
/// Vertices of a group are in topological order; an independent vertex is alone.
///
/// A placement must treat each group as one component. An edge that has no codec and does not
/// forward requires more: all instances of both its vertices in one process. A deployment that
/// violates these rules is refused.
///
/// # Errors
/// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) as [`Dag::validate`].
/// ```
/// use ardea_core::{Dag, Edge, Processor, Routing, Vertex, VertexId, supplier};
///
/// struct Nothing;
/// impl Processor for Nothing {}
///
/// let mut dag = Dag::new();
/// let [numbers, odd, even] = ["numbers", "odd", "even"].map(|name| dag.vertex(Vertex::new(name, supplier(|| Nothing))));
/// let forward = |edge: Edge| edge.routing(Routing::Forward);
/// dag.edge(forward(Edge::between(numbers, odd)));
/// dag.edge(forward(Edge::from_ordinals((numbers, ardea_core::Ordinal::SECOND), (even, ardea_core::Ordinal::FIRST))));
/// assert_eq!(ardea_engine::colocation_groups(&dag)?, [[numbers, odd, even]]);
/// assert_eq!(ardea_engine::chains(&dag)?.len(), 3);
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub fn colocation_groups(dag: &Dag) -> Result<Vec<Vec<VertexId>>> {
    let mut groups = Groups::of_single(dag);
    for chain in chains(dag)? {
        chain
            .windows(2)
            .for_each(|pair| groups.join(pair[0], pair[1]));
    }
    groups.join_forward(dag, |edge| edge.wanted_codec().is_none());
    groups.in_order(dag)
}

/// Returns the groups of vertices that forward edges connect, so that their parallelism is equal.
/// They may be in different processes. Each group of [`colocation_groups`] is within one of these.
/// Vertices of a group are in topological order; an independent vertex is alone.
///
/// # Errors
/// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) if the graph has a cycle.
pub fn equal_parallelism_groups(dag: &Dag) -> Result<Vec<Vec<VertexId>>> {
    let mut groups = Groups::of_single(dag);
    groups.join_forward(dag, |_| true);
    groups.in_order(dag)
}

/// The id of the group of each vertex.
struct Groups(Vec<usize>);

impl Groups {
    fn of_single(dag: &Dag) -> Self {
        Groups((0..dag.vertices().len()).collect())
    }

    fn join(&mut self, one: VertexId, other: VertexId) {
        let (one, other) = (self.0[one.index()], self.0[other.index()]);
        let of_other = self.0.iter_mut().filter(|known| **known == other);
        of_other.for_each(|known| *known = one);
    }

    fn join_forward(&mut self, dag: &Dag, is_meant: impl Fn(&Edge) -> bool) {
        let edges = dag.edges().iter();
        for edge in edges.filter(|edge| matches!(edge.wanted_routing(), Routing::Forward)) {
            if is_meant(edge) {
                self.join(edge.source().0, edge.target().0);
            }
        }
    }

    fn in_order(&self, dag: &Dag) -> Result<Vec<Vec<VertexId>>> {
        let mut groups: Vec<Vec<VertexId>> = Vec::new();
        for vertex in dag.topological_order()? {
            let of = |known: &VertexId| self.0[known.index()] == self.0[vertex.index()];
            match groups.iter_mut().find(|known| known.iter().any(of)) {
                Some(known) => known.push(vertex),
                None => groups.push(vec![vertex]),
            }
        }
        Ok(groups)
    }
}
