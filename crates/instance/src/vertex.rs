//! The vertices of the job's own program in processes of their own.
//!
//! On a cluster, an instance with [`Isolation::Process`] is a process of the job's program. The
//! worker of the container starts it with the arguments of its own process; [`COMPONENT_VARIABLE`]
//! names the vertex. The process builds the graph again, and serves one new processor of the vertex
//! to the container by the instance protocol. In the container [`VertexHost`] takes the place of
//! the processor.

mod guest;
mod host;
mod layout;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ardea_core::{
    ChunkCodec, Dag, Delivery, EdgeId, Error, ErrorCode, FileUse, Instance, Isolation, Processor,
    ProcessorSupplier, Result, StateShape, UpstreamVertex, Vertex, VertexId,
};

use crate::command::{COMPONENT_VARIABLE, InstanceCommand};
use crate::guest::serve_own_program;
use crate::host::SharedParts;
use guest::VertexGuest;
use host::VertexHost;
use layout::ChunkLayout;

/// The name of the format of records: chunks in the encoding of their edges.
const FORMAT: &str = "chunks";

/// The properties of a processor that its host needs.
#[derive(Clone, Debug)]
struct VertexTraits {
    /// The states of the snapshots; `None` without state.
    states: Option<Vec<StateShape>>,
    unsaved: Option<&'static str>,
    pauses_itself: bool,
}

impl VertexTraits {
    fn of(processor: &mut dyn Processor) -> Self {
        let source = processor.source_control();
        VertexTraits {
            pauses_itself: source.is_some_and(|source| source.pauses_itself()),
            states: processor.checkpointed().map(|state| state.states()),
            unsaved: processor.unsaved_state(),
        }
    }
}

/// The parts of a vertex that its hosts share.
struct VertexParts {
    shared: SharedParts,
    inputs: ChunkLayout,
    outputs: Vec<Arc<dyn ChunkCodec>>,
}

/// The supplier of the hosts of a vertex.
struct VertexHosts {
    vertex: Arc<dyn ProcessorSupplier>,
    parts: Arc<VertexParts>,
}

impl ProcessorSupplier for VertexHosts {
    fn supply(&self, instance: Instance) -> Result<Box<dyn Processor>> {
        // It is asked and dropped; that of the process runs.
        let mut processor = self.vertex.supply(instance)?;
        let traits = VertexTraits::of(&mut *processor);
        Ok(Box::new(VertexHost::new(&self.parts, traits)))
    }

    fn files(&self, parallelism: u32) -> Vec<FileUse> {
        self.vertex.files(parallelism)
    }

    fn delivery(&self) -> Option<Delivery> {
        self.vertex.delivery()
    }
}

/// The processes of this program that run the vertices with [`Isolation::Process`].
pub struct VertexProcesses {
    command: InstanceCommand,
    /// The shared parts by vertex, which outlive restarts of the job in this process.
    shared: Mutex<HashMap<Arc<str>, SharedParts>>,
}

impl VertexProcesses {
    /// Creates the processes by a command that calls [`serve_vertex`].
    pub fn new(command: InstanceCommand) -> Self {
        VertexProcesses {
            command,
            shared: Mutex::default(),
        }
    }

    /// Returns a graph whose vertices with [`Isolation::Process`] run in processes.
    ///
    /// # Errors
    /// As [`check_isolated`].
    pub fn host(&self, dag: &Dag) -> Result<Dag> {
        let mut hosted = Dag::new();
        for (index, vertex) in dag.vertices().iter().enumerate() {
            let vertex = match vertex.wanted_isolation() {
                Isolation::Process => self.hosted(dag, VertexId::of_index(index), vertex)?,
                Isolation::Tasklet | Isolation::Thread => vertex.clone(),
            };
            hosted.vertex(vertex);
        }
        for edge in dag.edges() {
            hosted.edge(edge.clone());
        }
        Ok(hosted)
    }

    fn hosted(&self, dag: &Dag, id: VertexId, vertex: &Vertex) -> Result<Vertex> {
        let parts = VertexParts {
            shared: self.shared(vertex.name()),
            inputs: ChunkLayout::new(codecs(dag, id, dag.inputs(id))?),
            outputs: codecs(dag, id, dag.outputs(id))?,
        };
        let hosts = VertexHosts {
            vertex: Arc::clone(vertex.supplier()),
            parts: Arc::new(parts),
        };
        Ok(vertex.clone().with_supplier(Arc::new(hosts)))
    }

    fn shared(&self, name: &Arc<str>) -> SharedParts {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = shared.entry(Arc::clone(name)).or_insert_with(|| {
            let command = self.command.clone().env(COMPONENT_VARIABLE, &**name);
            SharedParts::of_own_program(command)
        });
        parts.clone()
    }
}

/// Checks that the vertices with [`Isolation::Process`] can run in processes.
///
/// # Errors
/// [`ErrorCode::InvalidJob`] if an edge of such a vertex has no codec.
pub fn check_isolated(dag: &Dag) -> Result<()> {
    for (index, vertex) in dag.vertices().iter().enumerate() {
        if vertex.wanted_isolation() == Isolation::Process {
            let id = VertexId::of_index(index);
            codecs(dag, id, dag.inputs(id))?;
            codecs(dag, id, dag.outputs(id))?;
        }
    }
    Ok(())
}

/// Serves a new instance of a vertex to the host that started this process. Returns when the host
/// stops it or is gone.
///
/// # Errors
/// [`ErrorCode::InvalidJob`] if there is no such vertex; the failure of the instance, which was
/// reported to the host.
pub fn serve_vertex(dag: &Dag, name: &str) -> Result<()> {
    let mut vertices = dag.vertices().iter();
    let Some(index) = vertices.position(|vertex| **vertex.name() == *name) else {
        let what = format!("the job has no vertex {name:?}");
        return Err(Error::new(ErrorCode::InvalidJob, what)
            .hint("build the same graph in each process of the job"));
    };
    let id = VertexId::of_index(index);
    let inputs = dag.inputs(id).into_iter().map(|edge| {
        let edge = &dag.edges()[edge.index()];
        UpstreamVertex::of(dag, edge)
    });
    let mut guest = VertexGuest::new(
        Arc::clone(dag.get(id).supplier()),
        inputs.collect(),
        codecs(dag, id, dag.inputs(id))?,
        codecs(dag, id, dag.outputs(id))?,
    );
    serve_own_program(&mut guest)
}

/// Returns the codecs of edges of a vertex.
fn codecs(dag: &Dag, vertex: VertexId, edges: Vec<EdgeId>) -> Result<Vec<Arc<dyn ChunkCodec>>> {
    let edges = edges.into_iter().map(|edge| &dag.edges()[edge.index()]);
    let codecs = edges.map(|edge| {
        edge.wanted_codec().cloned().ok_or_else(|| {
            let name = |id: VertexId| dag.get(id).name();
            let (from, to) = (name(edge.source().0), name(edge.target().0));
            let what = format!(
                "{:?} can't run in a process of its own: the edge from {from:?} to {to:?} has no codec",
                name(vertex)
            );
            Error::new(ErrorCode::InvalidJob, what).hint(
                "derive serde's traits for the type of the records, and call `recordable` on their stream; or isolate the step by a thread",
            )
        })
    });
    codecs.collect()
}
