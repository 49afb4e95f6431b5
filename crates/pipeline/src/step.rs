//! The inert graph of steps that a pipeline is, and how it becomes vertices and edges.

use std::num::NonZeroU32;
use std::sync::Arc;

use ardea_codec::{Exchange, codec_of};
use ardea_core::{
    ChunkCodec, Dag, Demand, Edge, Error, ErrorCode, Isolation, Ordinal, Parallelism,
    ProcessorSupplier, Result, Routing, Vertex, VertexId,
};

/// Which output of which step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct StepOutput {
    pub(crate) step: usize,
    pub(crate) output: usize,
}

/// A lowered output: where in the graph its records come out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    pub(crate) vertex: VertexId,
    pub(crate) ordinal: Ordinal,
    pub(crate) parallelism: Parallelism,
}

impl Port {
    /// Where the first output of a vertex comes out.
    pub(crate) fn first_of(vertex: VertexId, parallelism: Parallelism) -> Port {
        Port {
            vertex,
            ordinal: Ordinal::FIRST,
            parallelism,
        }
    }
}

/// How records get into an input: to which instance, and as which bytes if that is in another process.
#[derive(Clone)]
pub(crate) struct Way {
    routing: Routing,
    codec: Option<Arc<dyn ChunkCodec>>,
}

impl Way {
    /// For records that may leave their process.
    pub(crate) fn of<T: Exchange>(routing: Routing) -> Way {
        Way {
            routing,
            codec: codec_of::<T>(),
        }
    }

    /// For records of which that is not known.
    pub(crate) fn within_process(routing: Routing) -> Way {
        Way {
            routing,
            codec: None,
        }
    }

    /// The same bytes, to other instances.
    pub(crate) fn routed(&self, routing: Routing) -> Way {
        Way {
            routing,
            codec: self.codec.clone(),
        }
    }

    /// Sets it on an edge.
    pub(crate) fn lead(self, edge: Edge) -> Edge {
        let edge = edge.routing(self.routing);
        match self.codec {
            Some(codec) => edge.codec(codec),
            None => edge,
        }
    }
}

/// Turns a step, given where its inputs come out, into vertices; returns where its own outputs come out.
pub(crate) type Lower =
    Box<dyn Fn(&mut Lowering<'_>, &str, &[Port]) -> Result<Vec<Port>> + Send + Sync>;

/// The name of a step, and who chose it.
pub(crate) struct StepName {
    pub(crate) text: String,
    /// Nobody: it was made from the kind of step.
    pub(crate) is_generated: bool,
}

impl<S: Into<String>> From<S> for StepName {
    /// A name that the job's author chose.
    fn from(text: S) -> Self {
        StepName {
            text: text.into(),
            is_generated: false,
        }
    }
}

/// One step of a pipeline: a name, its inputs, and how it is lowered.
pub(crate) struct Step {
    pub(crate) name: StepName,
    pub(crate) inputs: Vec<StepOutput>,
    /// How many of its outputs somebody has to read; later ones, such as late records, may be left alone.
    pub(crate) required_outputs: usize,
    pub(crate) parallelism: Option<Parallelism>,
    pub(crate) demand: Demand,
    /// Whether its results are for the process that describes the job, and nobody else.
    pub(crate) is_for_author: bool,
    pub(crate) lower: Lower,
}

/// What a pipeline is lowered for.
#[derive(Clone, Copy)]
pub(crate) enum For {
    /// A node with so many cooperative threads.
    Node(NonZeroU32),
    /// A cluster, where numbers of instances change while the job runs, and the graph must not.
    Cluster,
}

/// The graph under construction while steps lower themselves into it.
pub(crate) struct Lowering<'a> {
    pub(crate) dag: &'a mut Dag,
    for_what: For,
    demand: Demand,
    /// Whether nobody chose the name of the step at hand.
    has_generated_name: bool,
    /// What the step at hand was told by `Stream::parallelism`.
    pub(crate) wanted: Option<Parallelism>,
}

/// An end of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Source,
    Sink,
}

impl Lowering<'_> {
    /// How many instances a step has that may run on every core.
    pub(crate) fn spread(&self) -> Parallelism {
        self.wanted.unwrap_or(Parallelism::Auto)
    }

    /// Whether a step will always have one instance, so that a first stage before it would only add work.
    pub(crate) fn is_single(&self, parallelism: Parallelism) -> bool {
        match self.for_what {
            For::Node(threads) => parallelism.resolve(threads) == 1,
            For::Cluster => false,
        }
    }

    /// Refuses to have told a step with a single instance to have several.
    pub(crate) fn require_single(&self, name: &str, why: &str) -> Result<()> {
        match self.wanted {
            None | Some(Parallelism::ONE) => Ok(()),
            Some(_) => Err(Error::new(
                ErrorCode::InvalidJob,
                format!("the step {name:?} cannot have several instances: {why}"),
            )
            .hint("leave `parallelism` out behind it, or put it behind another step")),
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
        Vertex::new(name, supplier)
            .generated_name(self.has_generated_name)
            .demand(self.demand)
    }

    /// Adds the vertex of a source or a sink, which runs as `isolation` says.
    pub(crate) fn end_vertex(
        &mut self,
        end: End,
        name: impl Into<Arc<str>>,
        parallelism: Parallelism,
        isolation: Isolation,
        supplier: Arc<dyn ProcessorSupplier>,
    ) -> VertexId {
        let vertex = self
            .named(name, supplier)
            .parallelism(parallelism)
            .isolation(isolation);
        // The instances of a source share what there is to read, each by how many they are.
        self.dag.vertex(vertex.fixed_instances(end == End::Source))
    }

    /// Leads a port into an input.
    pub(crate) fn connect(&mut self, from: Port, to: VertexId, input: Ordinal, way: Way) {
        let edge = Edge::from_ordinals((from.vertex, from.ordinal), (to, input));
        self.dag.edge(way.lead(edge));
    }

    /// One vertex, each of whose inputs comes in on a way of its own.
    pub(crate) fn fed(
        &mut self,
        name: impl Into<Arc<str>>,
        parallelism: Parallelism,
        inputs: impl IntoIterator<Item = (Port, Way)>,
        supplier: Arc<dyn ProcessorSupplier>,
    ) -> Port {
        let vertex = self.vertex(name, parallelism, supplier);
        for (ordinal, (input, way)) in (0..).map(Ordinal).zip(inputs) {
            self.connect(input, vertex, ordinal, way);
        }
        Port::first_of(vertex, parallelism)
    }

    /// The first of two stages of a step: stays with its input, whatever parallelism the step itself was told. Nobody named it.
    pub(crate) fn first_stage(
        &mut self,
        name: &str,
        input: Port,
        supplier: Arc<dyn ProcessorSupplier>,
    ) -> Port {
        let stage = Vertex::new(format!("{name}: partial"), supplier)
            .generated_name(true)
            .parallelism(input.parallelism);
        let vertex = self.dag.vertex(stage);
        let way = Way::within_process(Routing::Forward);
        self.connect(input, vertex, Ordinal::FIRST, way);
        Port::first_of(vertex, input.parallelism)
    }

    /// A step without state of its own: one vertex that stays with its input, instance by instance, so that the engine can run
    /// both in one tasklet.
    pub(crate) fn follow(
        &mut self,
        name: &str,
        input: Port,
        supplier: Arc<dyn ProcessorSupplier>,
    ) -> Port {
        let parallelism = self.wanted.unwrap_or(input.parallelism);
        let way = Way::within_process(self.straight(input, parallelism));
        self.fed(name, parallelism, [(input, way)], supplier)
    }

    /// Instance to instance where there are as many on both sides, else in turn.
    pub(crate) fn straight(&self, input: Port, parallelism: Parallelism) -> Routing {
        if input.parallelism == parallelism {
            Routing::Forward
        } else {
            Routing::RoundRobin
        }
    }
}

/// Lowers all steps, in the order in which they were written: inputs come before their readers.
pub(crate) fn lower(steps: &[Step], for_what: For) -> Result<Dag> {
    check_outputs(steps)?;
    let mut dag = Dag::new();
    let mut ports: Vec<Vec<Port>> = Vec::new();
    for step in steps {
        let inputs: Vec<Port> = step
            .inputs
            .iter()
            .map(|from| ports[from.step][from.output])
            .collect();
        let mut lowering = Lowering {
            dag: &mut dag,
            for_what,
            demand: step.demand,
            has_generated_name: step.name.is_generated,
            wanted: step.parallelism,
        };
        ports.push((step.lower)(&mut lowering, &step.name.text, &inputs)?);
    }
    dag.validate()?;
    Ok(dag)
}

/// Every result has to go somewhere.
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
