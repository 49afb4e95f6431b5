//! The compiler from a topology to the core graph: a vertex per component, an edge per
//! subscription.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Dag, Edge, Error, ErrorCode, Instance, Ordinal, Parallelism, ProcessorSupplier, Result, Vertex,
    VertexId,
};
use ardea_instance::GuestInstance;

use crate::ack_channel::{AckChannel, AckQueues};
use crate::anchor::{Salt, Task};
use crate::builder::Reliability;
use crate::codec::TupleCodec;
use crate::component::{Component, Kind, Subscription};
use crate::emitter::{Reader, StreamPlan};
use crate::grouping::Grouping;
use crate::guest::{GuestWiring, ProgramProcess};
use crate::outputs::{OutputStream, Outputs};
use crate::parallelism::ComponentParallelism;
use crate::running::{Controls, SpoutInstances};
use crate::topology::Topology;
use crate::tuple::Origin;

/// The part of the topology that the instances of a spout need.
#[derive(Debug)]
pub(crate) struct SpoutWiring {
    pub(crate) streams: Vec<StreamPlan>,
    pub(crate) parallelism: Arc<ComponentParallelism>,
    /// The position of the spout among the topology's spouts.
    pub(crate) spout: usize,
    /// The ack queues of all spouts; `None` if acks are off.
    pub(crate) ack_queues: Option<Arc<AckQueues>>,
    pub(crate) max_pending: usize,
    pub(crate) message_timeout: Duration,
    pub(crate) controls: Arc<Controls>,
    /// The instances of this spout in this process, with their counters.
    pub(crate) instances: Arc<SpoutInstances>,
}

/// The part of the topology that the instances of a bolt need.
#[derive(Debug)]
pub(crate) struct BoltWiring {
    pub(crate) streams: Vec<StreamPlan>,
    /// The inputs of the bolt.
    pub(crate) inputs: Vec<Input>,
    pub(crate) parallelism: Arc<ComponentParallelism>,
    /// The ack queues of all spouts; `None` if acks are off.
    pub(crate) ack_queues: Option<Arc<AckQueues>>,
    pub(crate) tick: Option<Duration>,
}

/// One input of a bolt.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    pub(crate) origin: Origin,
    /// The positions of the fields of a fields grouping; `None` for another grouping.
    pub(crate) key: Option<Arc<[usize]>>,
    /// The number of the subscription, and true if each instance gets a copy. `None` if tuples are
    /// not copied.
    copy: Option<(usize, bool)>,
}

impl Input {
    /// Returns the origin of the tuples that `instance` of the bolt receives.
    pub(crate) fn for_instance(&self, instance: Instance) -> Origin {
        let salt = self.copy.map_or(Salt::NONE, |(subscription, is_all)| {
            Salt::of(subscription, is_all.then_some(instance.index))
        });
        Origin {
            salt,
            ..self.origin.clone()
        }
    }
}

/// The target environment of a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TargetRuntime {
    /// This process, with fixed parallelism.
    Local,
    /// Several processes. As components may be rescaled, the graph is independent of the
    /// parallelism.
    Distributed,
}

/// A compiled topology.
pub(crate) struct Compiled {
    pub(crate) dag: Dag,
    /// The state shared with the [`RunningTopology`](crate::RunningTopology).
    pub(crate) controls: Arc<Controls>,
    /// The communication of the topology's instances outside the graph.
    pub(crate) channel: Arc<AckChannel>,
}

/// Returns a new instance of a component, which is served to its host.
///
/// # Errors
/// [`ErrorCode::InvalidJob`] if there is no such component; errors of its constructor.
pub(crate) fn guest_of(topology: &Topology, name: &str) -> Result<Box<dyn GuestInstance>> {
    let compiler = Compiler::new(topology, TargetRuntime::Distributed);
    let mut components = topology.components.iter().zip(&topology.outputs);
    let Some((component, outputs)) = components.find(|(it, _)| *it.name == *name) else {
        let what = format!("the topology {:?} has no component {name:?}", topology.name);
        return Err(Error::new(ErrorCode::InvalidJob, what)
            .hint("build the same topology in each process of the job"));
    };
    let wiring = compiler.guest(component, outputs);
    match &component.kind {
        Kind::Spout(make) => make.guest(wiring),
        Kind::Bolt(make) => make.guest(wiring),
    }
}

/// Compiles a topology to a graph with its shared state.
pub(crate) fn compile(topology: &Topology, reach: TargetRuntime) -> Result<Compiled> {
    let components = &topology.components;
    let follows = topology.config.reliability == Reliability::AtLeastOnce;
    let mut compiler = Compiler::new(topology, reach);
    let mailboxes = Arc::clone(&compiler.all_queues);
    compiler.vertices()?;
    compiler.edges();
    compiler.dag.validate()?;
    let followed = components.iter().zip(&compiler.vertices);
    let followed = followed.filter(|(component, _)| follows && component.is_spout());
    let followed = followed.map(|(_, vertex)| *vertex).collect();
    let spouts = compiler.spouts;
    let channel = AckChannel::new(followed, mailboxes, compiler.parallelism, spouts.clone());
    Ok(Compiled {
        dag: compiler.dag,
        controls: compiler.controls.with_spouts(spouts),
        channel: Arc::new(channel),
    })
}

struct Compiler<'a> {
    topology: &'a Topology,
    reach: TargetRuntime,
    parallelism: Arc<ComponentParallelism>,
    all_queues: Arc<AckQueues>,
    /// The ack queues of all spouts; `None` if acks are off.
    ack_queues: Option<Arc<AckQueues>>,
    controls: Arc<Controls>,
    spouts: Vec<Arc<SpoutInstances>>,
    dag: Dag,
    /// The vertex of each component.
    vertices: Vec<VertexId>,
}

/// An edge: the bolt, the number of its input, and the subscription.
type Reading<'a> = (&'a Component, usize, &'a Subscription);

impl<'a> Compiler<'a> {
    fn new(topology: &'a Topology, reach: TargetRuntime) -> Self {
        let components = &topology.components;
        let roster = components
            .iter()
            .map(|component| (Arc::clone(&component.name), component.parallelism));
        let spouts = components.iter().filter(|component| component.is_spout());
        let follows = topology.config.reliability == Reliability::AtLeastOnce;
        let all_queues = Arc::new(AckQueues::new(spouts.count()));
        Compiler {
            topology,
            reach,
            parallelism: Arc::new(ComponentParallelism::new(roster)),
            ack_queues: follows.then(|| Arc::clone(&all_queues)),
            all_queues,
            controls: Controls::new(),
            spouts: Vec::new(),
            dag: Dag::new(),
            vertices: Vec::new(),
        }
    }

    /// Returns all subscriptions to streams of a component, in the order of its outputs.
    fn readings<'b>(&'b self, from: &'b Component) -> impl Iterator<Item = Reading<'b>> {
        let all = self.topology.components.iter().flat_map(|to| {
            let inputs = to.inputs.iter().enumerate();
            inputs.map(move |(input, subscription)| (to, input, subscription))
        });
        all.filter(|(_, _, subscription)| subscription.component == from.name)
    }

    fn vertices(&mut self) -> Result<()> {
        for (component, outputs) in self.topology.components.iter().zip(&self.topology.outputs) {
            let streams = outputs.streams.iter().map(|s| self.stream(component, s));
            let streams = streams.collect();
            let supplier: Arc<dyn ProcessorSupplier> = match &component.kind {
                Kind::Spout(make) => {
                    let wiring = Arc::new(self.spout(component, streams));
                    self.spouts.push(Arc::clone(&wiring.instances));
                    match self.own_process(component) {
                        Some(own) => own.spouts(make.traits()?, wiring),
                        None => {
                            let make = Arc::clone(make);
                            Arc::new(move |instance: Instance| make.processor(&wiring, instance))
                        }
                    }
                }
                Kind::Bolt(make) => {
                    let wiring = Arc::new(self.bolt(component, streams));
                    match self.own_process(component) {
                        Some(own) => own.bolts(make.traits()?, wiring),
                        None => {
                            let make = Arc::clone(make);
                            Arc::new(move |instance: Instance| make.processor(&wiring, instance))
                        }
                    }
                }
            };
            let instances = NonZeroU32::new(component.parallelism).unwrap_or(NonZeroU32::MIN);
            let mut vertex = Vertex::new(Arc::clone(&component.name), supplier)
                .parallelism(Parallelism::Exactly(instances))
                .isolation(component.isolation)
                .demand(component.wants.demand());
            if matches!(component.kind, Kind::Bolt(_)) {
                vertex = vertex.nondeterministic("bolts may use the clock and chance");
            }
            if let Kind::Spout(make) = &component.kind {
                vertex = vertex.fixed_parallelism(make.has_fixed_instances());
            }
            let is_followed = component.is_spout() && self.ack_queues.is_some();
            if let Some(most) = NonZeroU32::new(Task::MOST_INSTANCES).filter(|_| is_followed) {
                vertex = vertex.max_instances(most);
            }
            self.vertices.push(self.dag.vertex(vertex));
        }
        Ok(())
    }

    /// Returns the processes that run the instances of a component, if it is isolated by them in
    /// this environment.
    fn own_process<'c>(&self, component: &'c Component) -> Option<&'c ProgramProcess> {
        let is_distributed = self.reach == TargetRuntime::Distributed;
        component.own_process.as_ref().filter(|_| is_distributed)
    }

    /// Returns the part of the topology that the process of a component needs.
    fn guest(&self, component: &Component, outputs: &Outputs) -> GuestWiring {
        let own = self.place(&component.name);
        let streams = outputs.streams.iter().map(|stream| {
            let plan = self.stream(component, stream);
            // The host sends the copies. A tuple of a spout without subscribers is acked there.
            let instances = |reader: &&Reader| self.parallelism.instances(reader.component);
            let least = plan.readers.iter().min_by_key(instances);
            let reads = least.map(|reader| reader.component);
            let reads = reads.or_else(|| component.is_spout().then_some(own));
            let reader = reads.map(|component| Reader {
                output: Ordinal::FIRST,
                component,
                is_all: false,
            });
            StreamPlan {
                readers: reader.into_iter().collect(),
                ..plan
            }
        });
        let inputs = component.inputs.iter().enumerate();
        let inputs = inputs.map(|(number, input)| Origin {
            salt: Salt::NONE,
            ..self.input(component, number, input).origin
        });
        GuestWiring {
            component: Arc::clone(&component.name),
            streams: streams.collect(),
            inputs: inputs.collect(),
            parallelism: Arc::clone(&self.parallelism),
        }
    }

    fn spout(&self, component: &Component, streams: Vec<StreamPlan>) -> SpoutWiring {
        let config = &self.topology.config;
        SpoutWiring {
            streams,
            parallelism: Arc::clone(&self.parallelism),
            spout: self.spouts.len(),
            ack_queues: self.ack_queues.clone(),
            max_pending: config
                .max_spout_pending
                .map_or(usize::MAX, |most| most.get()),
            message_timeout: config.message_timeout,
            controls: Arc::clone(&self.controls),
            instances: Arc::new(SpoutInstances::new(Arc::clone(&component.name))),
        }
    }

    fn bolt(&self, component: &Component, streams: Vec<StreamPlan>) -> BoltWiring {
        let inputs = component.inputs.iter().enumerate();
        BoltWiring {
            streams,
            inputs: inputs
                .map(|(number, input)| self.input(component, number, input))
                .collect(),
            parallelism: Arc::clone(&self.parallelism),
            ack_queues: self.ack_queues.clone(),
            tick: component.tick,
        }
    }

    /// Returns the plan by which the instances of `of` write `stream`.
    fn stream(&self, of: &Component, stream: &OutputStream) -> StreamPlan {
        let readings = self.readings(of).enumerate();
        let readings = readings.filter(|(_, (_, _, input))| input.stream == stream.name);
        StreamPlan {
            name: Arc::clone(&stream.name),
            fields: Arc::clone(&stream.fields),
            is_direct: stream.is_direct,
            readers: readings
                .map(|(output, (to, _, input))| Reader {
                    output: Ordinal(output as u16),
                    component: self.place(&to.name),
                    is_all: matches!(input.grouping, Grouping::All),
                })
                .collect(),
        }
    }

    /// Returns the position of the component `name`.
    fn place(&self, name: &str) -> usize {
        let mut components = self.topology.components.iter();
        let place = components.position(|component| *component.name == *name);
        place.unwrap_or(0)
    }

    /// Returns the input `number` of the bolt `to`.
    fn input(&self, to: &Component, number: usize, subscription: &Subscription) -> Input {
        let topology = self.topology;
        let from = self.place(&subscription.component);
        let stream = topology.outputs[from]
            .streams
            .iter()
            .find(|stream| stream.name == subscription.stream);
        let readers: Vec<Reading<'_>> = self
            .readings(&topology.components[from])
            .filter(|(_, _, other)| other.stream == subscription.stream)
            .collect();
        let is_all = matches!(subscription.grouping, Grouping::All);
        let copy = readers
            .iter()
            .position(|(reader, input, _)| reader.name == to.name && *input == number)
            .filter(|_| readers.len() > 1 || is_all)
            .map(|position| (position, is_all));
        let origin = Origin {
            component: Arc::clone(&subscription.component),
            stream: Arc::clone(&subscription.stream),
            fields: stream.map_or_else(|| Arc::from([]), |s| Arc::clone(&s.fields)),
            salt: Salt::NONE,
        };
        Input {
            key: subscription.grouping.key_places(&origin).map(Arc::from),
            origin,
            copy,
        }
    }

    fn edges(&mut self) {
        let mut edges = Vec::new();
        for (from, source) in self.topology.components.iter().zip(&self.vertices) {
            for (output, (to, number, subscription)) in self.readings(from).enumerate() {
                let target = self.vertices[self.place(&to.name)];
                let origin = self.input(to, number, subscription).origin;
                let is_aligned =
                    self.reach == TargetRuntime::Local && from.parallelism == to.parallelism;
                let fields = origin.fields.len();
                edges.push(
                    Edge::from_ordinals(
                        (*source, Ordinal(output as u16)),
                        (target, Ordinal(number as u16)),
                    )
                    .routing(subscription.grouping.routing(&origin, is_aligned))
                    .latency(subscription.latency)
                    .codec(Arc::new(TupleCodec::new(fields))),
                );
            }
        }
        for edge in edges {
            self.dag.edge(edge);
        }
    }
}
