//! Demands of vertices and edges for tests.

use crate::packing::{Resources, VertexDemand};
use crate::placement::InputEdge;

/// Returns a vertex without required resources, with its inputs as pairs of producer and routing.
pub(crate) fn vertex(name: &str, parallelism: u32, inputs: &[(&str, &str)]) -> VertexDemand {
    vertex_with(name, parallelism, Resources::ZERO, inputs)
}

/// Like [`vertex`], with the resources that each instance requires.
pub(crate) fn vertex_with(
    name: &str,
    parallelism: u32,
    each: Resources,
    inputs: &[(&str, &str)],
) -> VertexDemand {
    let mut vertex = VertexDemand::new(name, parallelism, each);
    let edges = inputs.iter().map(|(from, routing)| InputEdge {
        from: (*from).into(),
        output: 0,
        input: 0,
        routing: (*routing).into(),
        latency_us: None,
        records_per_second: None,
    });
    InputEdge::write(&edges.collect::<Vec<_>>(), &mut vertex.attributes);
    vertex
}
