//! The inert graph of a pipeline's steps, and its lowering to vertices and edges.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ardea_codec::ExchangeData;
use ardea_core::{
    ChunkCodec, Dag, Demand, Edge, EdgeId, Error, ErrorCode, Isolation, Ordinal, Parallelism,
    ProcessorSupplier, Result, Routing, Vertex, VertexId,
};

use crate::record_codecs::{RecordCodecs, TypedCodec, typed_codec};

/// An output of a step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct StepOutput {
    pub(crate) step: usize,
    pub(crate) output: usize,
}

/// A lowered output: its position in the graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    pub(crate) vertex: VertexId,
    pub(crate) ordinal: Ordinal,
    pub(crate) parallelism: Parallelism,
    /// The latency budget of the edges that leave here, if they have their own.
    pub(crate) latency: Option<Duration>,
}

impl Port {
    /// Returns the first output of a vertex.
    pub(crate) fn first_of(vertex: VertexId, parallelism: Parallelism) -> Port {
        Port {
            vertex,
            ordinal: Ordinal::FIRST,
            parallelism,
            latency: None,
        }
    }

    /// Creates an edge from here to an input.
    pub(crate) fn edge_to(self, to: VertexId, input: Ordinal) -> Edge {
        Edge::from_ordinals((self.vertex, self.ordinal), (to, input)).latency(self.latency)
    }

    /// Returns the second output of the same vertex.
    pub(crate) fn second(self) -> Port {
        Port {
            ordinal: Ordinal::SECOND,
            ..self
        }
    }
}

/// The routing of an input, and the codec of its records between processes.
#[derive(Clone)]
pub(crate) struct EdgeInput {
    routing: Routing,
    codec: Option<Arc<dyn ChunkCodec>>,
    /// The type of the records, if they are rows.
    record: Option<TypeId>,
}

impl EdgeInput {
    /// Creates an input of records that may be sent to other processes.
    pub(crate) fn of<T: ExchangeData>(routing: Routing) -> EdgeInput {
        let (record, codec) = typed_codec::<T>();
        EdgeInput {
            routing,
            codec,
            record: Some(record),
        }
    }

    /// Creates an input of records that may not be serializable.
    pub(crate) fn within_process<T: 'static>(routing: Routing) -> EdgeInput {
        EdgeInput {
            routing,
            codec: None,
            record: Some(TypeId::of::<T>()),
        }
    }

    /// Creates an input of records in another layout than rows.
    pub(crate) fn with_codec(routing: Routing, codec: Arc<dyn ChunkCodec>) -> EdgeInput {
        EdgeInput {
            routing,
            codec: Some(codec),
            record: None,
        }
    }

    /// Returns an input with the same codec and another routing.
    pub(crate) fn routed(&self, routing: Routing) -> EdgeInput {
        EdgeInput {
            routing,
            codec: self.codec.clone(),
            record: self.record,
        }
    }

    /// Applies the routing and codec to an edge.
    pub(crate) fn apply_to(self, edge: Edge) -> Edge {
        let edge = edge.routing(self.routing);
        match self.codec {
            Some(codec) => edge.codec(codec),
            None => edge,
        }
    }
}

/// A function that lowers a step to vertices, given the ports of its inputs, and returns the ports
/// of its outputs.
pub(crate) type Lower =
    Box<dyn Fn(&mut Lowering<'_>, &str, &[Port]) -> Result<Vec<Port>> + Send + Sync>;

/// The name of a step, and its origin.
pub(crate) struct StepName {
    pub(crate) text: String,
    /// True if the name was generated from the kind of step.
    pub(crate) is_generated: bool,
}

impl<S: Into<String>> From<S> for StepName {
    /// Creates a name given by the author of the job.
    fn from(text: S) -> Self {
        StepName {
            text: text.into(),
            is_generated: false,
        }
    }
}

/// A step of a pipeline: a name, its inputs, and its lowering.
pub(crate) struct Step {
    pub(crate) name: StepName,
    pub(crate) inputs: Vec<StepOutput>,
    /// The number of outputs that must have a consumer. Later outputs, such as late records, may be
    /// unused.
    pub(crate) required_outputs: usize,
    pub(crate) parallelism: Option<Parallelism>,
    pub(crate) demand: Demand,
    /// The latency budgets of the step's outputs, by their indices.
    pub(crate) latency: BTreeMap<usize, Duration>,
    /// True if the step delivers results to the process that describes the job.
    pub(crate) is_local_result: bool,
    /// The reason why the output does not follow from the inputs alone, if declared.
    pub(crate) nondeterminism: Option<Arc<str>>,
    /// True if one instance of the step can be restored while the others continue.
    pub(crate) is_repeatable: bool,
    /// The codecs of outputs that are declared recordable.
    pub(crate) recordable: Vec<TypedCodec>,
    pub(crate) lower: Lower,
}

/// The target of lowering.
#[derive(Clone, Copy)]
pub(crate) enum LoweringTarget {
    /// A node with this number of cooperative threads.
    Node(NonZeroU32),
    /// A cluster, where the parallelism may change while the job runs, but the graph must not.
    Cluster,
}

/// The graph under construction while steps lower themselves into it.
pub(crate) struct Lowering<'a> {
    pub(crate) dag: &'a mut Dag,
    codecs: &'a mut RecordCodecs,
    for_what: LoweringTarget,
    demand: Demand,
    /// True if the name of the current step was generated.
    has_generated_name: bool,
    /// The parallelism set for the current step by `Stream::parallelism`.
    pub(crate) wanted: Option<Parallelism>,
    /// The reason why the output of the current step does not follow from its inputs alone.
    pub(crate) nondeterminism: Option<Arc<str>>,
    /// True if one instance of the current step can be restored while the others continue.
    is_repeatable: bool,
}

/// A source or sink of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JobEnd {
    Source,
    Sink,
}

impl Lowering<'_> {
    /// Returns the parallelism of a step that may run on every core.
    pub(crate) fn default_parallelism(&self) -> Parallelism {
        self.wanted.unwrap_or(Parallelism::Auto)
    }

    /// Returns true if a step will always have one instance, so that a first stage would be
    /// useless.
    pub(crate) fn is_single(&self, parallelism: Parallelism) -> bool {
        match self.for_what {
            LoweringTarget::Node(threads) => parallelism.resolve(threads) == 1,
            LoweringTarget::Cluster => false,
        }
    }

    /// Refuses a parallelism other than one for a step with a single instance.
    pub(crate) fn require_single(&self, name: &str, why: &str) -> Result<()> {
        match self.wanted {
            None | Some(Parallelism::ONE) => Ok(()),
            Some(_) => Err(Error::new(
                ErrorCode::InvalidJob,
                format!("the step {name:?} cannot have several instances: {why}"),
            )
            .hint("remove `parallelism` after it, or move it after another step")),
        }
    }

    /// Adds a cooperative vertex.
    pub(crate) fn vertex(
        &mut self,
        name: impl Into<Arc<str>>,
        parallelism: Parallelism,
        supplier: Arc<dyn ProcessorSupplier>,
    ) -> VertexId {
        let vertex = self.named(name, supplier);
        self.dag.vertex(vertex.parallelism(parallelism))
    }

    fn named(&self, name: impl Into<Arc<str>>, supplier: Arc<dyn ProcessorSupplier>) -> Vertex {
        let vertex = Vertex::new(name, supplier)
            .generated_name(self.has_generated_name)
            .demand(self.demand)
            .repeatable(self.is_repeatable);
        match &self.nondeterminism {
            Some(reason) => vertex.nondeterministic(Arc::clone(reason)),
            None => vertex,
        }
    }

    /// Adds the vertex of a source or sink with this isolation.
    pub(crate) fn end_vertex(
        &mut self,
        end: JobEnd,
        name: impl Into<Arc<str>>,
        parallelism: Parallelism,
        isolation: Isolation,
        supplier: Arc<dyn ProcessorSupplier>,
    ) -> VertexId {
        let vertex = self
            .named(name, supplier)
            .parallelism(parallelism)
            .isolation(isolation);
        // The instances of a source divide the input by their number.
        self.dag
            .vertex(vertex.fixed_parallelism(end == JobEnd::Source))
    }

    /// Connects a port to an input.
    pub(crate) fn connect(&mut self, from: Port, to: VertexId, input: Ordinal, way: EdgeInput) {
        let (record, codec) = (way.record, way.codec.clone());
        let edge = self.dag.edge(way.apply_to(from.edge_to(to, input)));
        self.note_codec(edge, record, codec);
    }

    /// Adds the codec of an edge to the known ones, or the edge to those without a codec.
    fn note_codec(
        &mut self,
        edge: EdgeId,
        record: Option<TypeId>,
        codec: Option<Arc<dyn ChunkCodec>>,
    ) {
        match (record, codec) {
            (Some(record), None) => self.codecs.add_edge(edge, record),
            (Some(record), codec) => self.codecs.add((record, codec)),
            (None, _) => {}
        }
    }

    /// Adds a vertex, each of whose inputs has its own routing.
    pub(crate) fn vertex_with_inputs(
        &mut self,
        name: impl Into<Arc<str>>,
        parallelism: Parallelism,
        inputs: impl IntoIterator<Item = (Port, EdgeInput)>,
        supplier: Arc<dyn ProcessorSupplier>,
    ) -> Port {
        let vertex = self.vertex(name, parallelism, supplier);
        for (ordinal, (input, way)) in (0..).map(Ordinal).zip(inputs) {
            self.connect(input, vertex, ordinal, way);
        }
        Port::first_of(vertex, parallelism)
    }

    /// Adds the first of two stages of a step. It has the parallelism of its input and a generated
    /// name. `way` is the input of the step if it has one stage.
    pub(crate) fn first_stage(
        &mut self,
        name: &str,
        input: Port,
        way: &EdgeInput,
        supplier: Arc<dyn ProcessorSupplier>,
    ) -> Port {
        let stage = Vertex::new(format!("{name}: partial"), supplier)
            .generated_name(true)
            .repeatable(self.is_repeatable)
            .parallelism(input.parallelism);
        let vertex = self.dag.vertex(stage);
        if let Some(record) = way.record {
            self.codecs.add((record, way.codec.clone()));
        }
        let way = EdgeInput {
            routing: Routing::Forward,
            codec: None,
            record: way.record,
        };
        self.connect(input, vertex, Ordinal::FIRST, way);
        // The edge between both stages has the budget of the step's input.
        Port {
            latency: input.latency,
            ..Port::first_of(vertex, input.parallelism)
        }
    }

    /// Adds a stateless step: a vertex that follows its input instance by instance, so that the
    /// engine can run both in one tasklet.
    pub(crate) fn follow<T: 'static>(
        &mut self,
        name: &str,
        input: Port,
        supplier: Arc<dyn ProcessorSupplier>,
    ) -> Port {
        let parallelism = self.wanted.unwrap_or(input.parallelism);
        let way = EdgeInput::within_process::<T>(self.forward_or_round_robin(input, parallelism));
        self.vertex_with_inputs(name, parallelism, [(input, way)], supplier)
    }

    /// Works like [`follow`](Self::follow), with a thread for each instance.
    pub(crate) fn follow_on_thread<T: 'static>(
        &mut self,
        name: &str,
        input: Port,
        supplier: Arc<dyn ProcessorSupplier>,
    ) -> Port {
        let parallelism = self.wanted.unwrap_or(input.parallelism);
        let vertex = self
            .named(name, supplier)
            .parallelism(parallelism)
            .isolation(Isolation::Thread);
        let vertex = self.dag.vertex(vertex);
        let way = EdgeInput::within_process::<T>(self.forward_or_round_robin(input, parallelism));
        self.connect(input, vertex, Ordinal::FIRST, way);
        Port::first_of(vertex, parallelism)
    }

    /// Returns forward routing for equal parallelism, otherwise round-robin.
    pub(crate) fn forward_or_round_robin(&self, input: Port, parallelism: Parallelism) -> Routing {
        if input.parallelism == parallelism {
            Routing::Forward
        } else {
            Routing::RoundRobin
        }
    }
}

/// Lowers all steps in the order in which they were added: inputs come before their consumers.
pub(crate) fn lower(steps: &[Step], for_what: LoweringTarget) -> Result<Dag> {
    check_outputs(steps)?;
    let mut dag = Dag::new();
    let mut codecs = RecordCodecs::default();
    let mut ports: Vec<Vec<Port>> = Vec::new();
    for step in steps {
        let inputs: Vec<Port> = step
            .inputs
            .iter()
            .map(|from| ports[from.step][from.output])
            .collect();
        let mut lowering = Lowering {
            dag: &mut dag,
            codecs: &mut codecs,
            for_what,
            demand: step.demand,
            has_generated_name: step.name.is_generated,
            wanted: step.parallelism,
            nondeterminism: step.nondeterminism.clone(),
            is_repeatable: step.is_repeatable,
        };
        let mut outputs = (step.lower)(&mut lowering, &step.name.text, &inputs)?;
        for (index, port) in outputs.iter_mut().enumerate() {
            port.latency = step.latency.get(&index).copied();
        }
        ports.push(outputs);
        let recordable = step.recordable.iter().cloned();
        recordable.for_each(|codec| codecs.add(codec));
    }
    dag.validate()?;
    Ok(match for_what {
        LoweringTarget::Node(_) => codecs.applied_to(&dag, |_| true),
        // A codec lets an edge lead to another process.
        LoweringTarget::Cluster => codecs.applied_to(&dag, |edge| {
            let ends = [edge.source().0, edge.target().0];
            let isolations = ends.map(|end| dag.get(end).wanted_isolation());
            isolations.contains(&Isolation::Process)
        }),
    })
}

/// Checks that every required output has a consumer.
fn check_outputs(steps: &[Step]) -> Result<()> {
    for (index, step) in steps.iter().enumerate() {
        for output in 0..step.required_outputs {
            let read = StepOutput {
                step: index,
                output,
            };
            if !steps.iter().any(|reader| reader.inputs.contains(&read)) {
                return Err(Error::new(
                    ErrorCode::InvalidJob,
                    format!("nothing reads the output of step {:?}", step.name.text),
                )
                .hint("end the stream with write_to(sink), or with null::sink() if only its effect counts"));
            }
        }
    }
    Ok(())
}
