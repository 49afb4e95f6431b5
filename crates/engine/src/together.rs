//! Which vertices have to be where others are.

use ardea_core::{Dag, Result, Routing, VertexId};

use crate::execution_plan::chains;

/// The vertices of which instances of one number have to be in one process: those that run as one tasklet ([`chains`]), and those that
/// are joined by forward edges without a codec. In the order in which records pass through them; a vertex that may be anywhere is
/// alone.
///
/// Whoever says where instances are, takes each of these for a single component. An edge of another routing without a codec asks for
/// more, that all instances of both its vertices are in one process; that is refused when such a job is deployed otherwise.
///
/// # Errors
/// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) as [`Dag::validate`].
///
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
/// assert_eq!(ardea_engine::together(&dag)?, [[numbers, odd, even]]);
/// assert_eq!(ardea_engine::chains(&dag)?.len(), 3);
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub fn together(dag: &Dag) -> Result<Vec<Vec<VertexId>>> {
    let order = dag.topological_order()?;
    let mut group: Vec<usize> = (0..dag.vertices().len()).collect();
    let mut join = |one: VertexId, other: VertexId| {
        let (one, other) = (group[one.index()], group[other.index()]);
        for known in &mut group {
            if *known == other {
                *known = one;
            }
        }
    };
    for chain in chains(dag)? {
        chain.windows(2).for_each(|pair| join(pair[0], pair[1]));
    }
    for edge in dag.edges() {
        if matches!(edge.wanted_routing(), Routing::Forward) && edge.wanted_codec().is_none() {
            join(edge.source().0, edge.target().0);
        }
    }
    let mut groups: Vec<Vec<VertexId>> = Vec::new();
    for vertex in order {
        let of = |known: &VertexId| group[known.index()] == group[vertex.index()];
        match groups.iter_mut().find(|known| known.iter().any(of)) {
            Some(known) => known.push(vertex),
            None => groups.push(vec![vertex]),
        }
    }
    Ok(groups)
}
