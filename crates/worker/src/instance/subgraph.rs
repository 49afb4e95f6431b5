//! Subgraphs of one vertex, for the processes of its instances.

use std::collections::BTreeSet;
use std::sync::Arc;

use ardea_core::{
    ChunkCodec, Dag, Edge, Error, ErrorCode, Isolation, Ordinal, Processor, Result, Vertex,
    VertexId,
};
use ardea_engine::{Placement, Site};

use crate::backchannel::BackchannelCodec;

/// The graph of one vertex of a job. The other ends of the vertex's edges stay in the container and
/// are placeholders in this graph.
///
/// The number of an edge is that of the stream between both processes: first the inputs by ordinal,
/// then the outputs. A vertex without outputs gets an output for markers only, which reports ends
/// and barriers.
pub(super) struct Subgraph {
    pub(super) dag: Dag,
    pub(super) vertex: VertexId,
    inputs: usize,
    /// The number of outputs of the vertex in its job.
    outputs: usize,
    codecs: Vec<Arc<dyn ChunkCodec>>,
}

impl Subgraph {
    /// Extracts a vertex from its job's graph.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if an edge of the vertex has no codec.
    pub(super) fn of(job: &Dag, vertex: VertexId) -> Result<Self> {
        let original = job.get(vertex);
        let mut dag = Dag::new();
        let name = Arc::clone(original.name());
        let isolated = Vertex::new(name, Arc::clone(original.supplier()))
            .parallelism(original.wanted_parallelism())
            .isolation(Isolation::Thread);
        let isolated = dag.vertex(isolated);
        let mut cut = Subgraph {
            vertex: isolated,
            inputs: 0,
            outputs: 0,
            codecs: Vec::new(),
            dag,
        };
        let mut names = BTreeSet::from([original.name().to_string()]);
        for id in job.inputs(vertex) {
            let edge = &job.edges()[id.index()];
            let codec = codec_of(job, edge, vertex)?;
            let producer = cut.add_end(job, edge.source().0, &mut names);
            let mut inner =
                Edge::from_ordinals((producer, Ordinal::FIRST), (isolated, edge.target().1))
                    .priority(edge.wanted_priority())
                    .latency(edge.wanted_latency())
                    .codec(codec);
            if edge.is_timeless() {
                inner = inner.timeless();
            }
            cut.add_edge(inner);
            cut.inputs += 1;
        }
        for id in job.outputs(vertex) {
            let edge = &job.edges()[id.index()];
            let codec = codec_of(job, edge, vertex)?;
            let consumer = cut.add_end(job, edge.target().0, &mut names);
            let ends = ((isolated, edge.source().1), (consumer, Ordinal::FIRST));
            let inner = Edge::from_ordinals(ends.0, ends.1).latency(edge.wanted_latency());
            cut.add_edge(inner.codec(codec));
            cut.outputs += 1;
        }
        if cut.outputs == 0 {
            let end = cut.add_end(job, vertex, &mut names);
            cut.add_edge(Edge::between(isolated, end).codec(Arc::new(BackchannelCodec)));
        }
        Ok(cut)
    }

    fn add_end(&mut self, job: &Dag, other: VertexId, names: &mut BTreeSet<String>) -> VertexId {
        let name = job.get(other).name();
        let mut unique = name.to_string();
        let mut number = 2;
        while !names.insert(unique.clone()) {
            unique = format!("{name} ({number})");
            number += 1;
        }
        self.dag
            .vertex(Vertex::new(unique, ardea_core::supplier(|| Placeholder)))
    }

    fn add_edge(&mut self, edge: Edge) {
        self.codecs.extend(edge.wanted_codec().cloned());
        self.dag.edge(edge);
    }

    /// Returns the number and the codec of the stream to each input of the instance.
    pub(super) fn input_streams(&self) -> impl Iterator<Item = (usize, &Arc<dyn ChunkCodec>)> {
        self.codecs.iter().enumerate().take(self.inputs)
    }

    /// Returns the streams from the instance: number, codec, and the output ordinal in the job. The
    /// added output for markers has no ordinal.
    pub(super) fn output_streams(
        &self,
    ) -> impl Iterator<Item = (usize, &Arc<dyn ChunkCodec>, Option<Ordinal>)> {
        let streams = self.codecs.iter().enumerate().skip(self.inputs);
        streams.zip(0..).map(|((stream, codec), output)| {
            let is_real = usize::from(output) < self.outputs;
            (stream, codec, is_real.then_some(Ordinal(output)))
        })
    }

    /// Returns the placement of the subgraph: the instance at `here`, all other vertices at
    /// `container`.
    pub(super) fn placement(
        &self,
        instance: u32,
        parallelism: u32,
        here: Site,
        container: Site,
    ) -> Placement {
        let mut sites = vec![vec![container]; self.dag.vertices().len()];
        let own = &mut sites[self.vertex.index()];
        own.resize(parallelism.max(instance + 1) as usize, container);
        own[instance as usize] = here;
        Placement::new(here, sites)
    }
}

/// A placeholder for the end of an edge in the container; never instantiated.
struct Placeholder;

impl Processor for Placeholder {}

fn codec_of(job: &Dag, edge: &Edge, vertex: VertexId) -> Result<Arc<dyn ChunkCodec>> {
    edge.wanted_codec().cloned().ok_or_else(|| {
        let name = |id: VertexId| job.get(id).name();
        let (from, to) = (name(edge.source().0), name(edge.target().0));
        Error::new(
            ErrorCode::InvalidJob,
            format!(
                "{:?} can't run in a separate process: the edge from {from:?} to {to:?} has no codec",
                name(vertex)
            ),
        )
        .hint("give the edge a codec, or isolate the vertex by a thread")
    })
}

/// Returns the vertices with process isolation.
pub(super) fn isolated(dag: &Dag) -> Result<Vec<VertexId>> {
    let vertices = dag.topological_order()?.into_iter();
    let is_isolated = |id: &VertexId| dag.get(*id).needs_processes();
    Ok(vertices.filter(is_isolated).collect())
}
