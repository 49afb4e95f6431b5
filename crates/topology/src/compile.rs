//! From a topology to the core graph: a vertex a component, an edge a subscription.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Dag, Edge, Instance, Ordinal, Parallelism, ProcessorSupplier, Result, Vertex, VertexId,
};

use crate::ack_channel::{AckChannel, Mailboxes};
use crate::anchor::{Salt, Task};
use crate::builder::Reliability;
use crate::codec::TupleCodec;
use crate::component::{Component, Kind, Subscription};
use crate::emitter::{Reader, StreamPlan};
use crate::grouping::Grouping;
use crate::outputs::OutputStream;
use crate::roster::Roster;
use crate::running::{Controls, SpoutInstances};
use crate::topology::Topology;
use crate::tuple::Origin;

/// What the instances of a spout need to know of the topology.
#[derive(Debug)]
pub(crate) struct SpoutWiring {
    pub(crate) streams: Vec<StreamPlan>,
    pub(crate) roster: Arc<Roster>,
    /// Its place among the topology's spouts.
    pub(crate) spout: usize,
    /// None if acks are off.
    pub(crate) mailboxes: Option<Arc<Mailboxes>>,
    pub(crate) max_pending: usize,
    pub(crate) message_timeout: Duration,
    pub(crate) controls: Arc<Controls>,
    /// Of this spout's instances.
    pub(crate) instances: Arc<SpoutInstances>,
}

/// What the instances of a bolt need to know of the topology.
#[derive(Debug)]
pub(crate) struct BoltWiring {
    pub(crate) streams: Vec<StreamPlan>,
    /// Of each input.
    pub(crate) inputs: Vec<Input>,
    pub(crate) roster: Arc<Roster>,
    /// None if acks are off.
    pub(crate) mailboxes: Option<Arc<Mailboxes>>,
    pub(crate) tick: Option<Duration>,
}

/// One input of a bolt.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    pub(crate) origin: Origin,
    /// Among several copies of a tuple, which subscription this is, and whether each instance has a copy of its own.
    copy: Option<(usize, bool)>,
}

impl Input {
    /// As `instance` of the bolt sees it.
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

/// Where the graph is to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// In this process, with as many instances as it says, to its end.
    Local,
    /// In several processes, which may be rescaled: its shape depends on no number of instances.
    Distributed,
}

/// A topology as it is run.
pub(crate) struct Compiled {
    pub(crate) dag: Dag,
    /// Shared with whoever watches it.
    pub(crate) controls: Arc<Controls>,
    /// What its instances tell each other beside the graph.
    pub(crate) channel: Arc<AckChannel>,
}

/// The graph of a topology, and what belongs to it.
pub(crate) fn compile(topology: &Topology, reach: Reach) -> Result<Compiled> {
    let components = &topology.components;
    let roster = components
        .iter()
        .map(|component| (Arc::clone(&component.name), component.parallelism));
    let spouts = components.iter().filter(|component| component.is_spout());
    let follows = topology.config.reliability == Reliability::AtLeastOnce;
    let mailboxes = Arc::new(Mailboxes::new(spouts.count()));
    let mut compiler = Compiler {
        topology,
        reach,
        roster: Arc::new(Roster::new(roster)),
        mailboxes: follows.then(|| Arc::clone(&mailboxes)),
        controls: Controls::new(),
        spouts: Vec::new(),
        dag: Dag::new(),
        vertices: Vec::new(),
    };
    compiler.vertices()?;
    compiler.edges();
    compiler.dag.validate()?;
    let followed = components.iter().zip(&compiler.vertices);
    let followed = followed.filter(|(component, _)| follows && component.is_spout());
    let followed = followed.map(|(_, vertex)| *vertex).collect();
    let spouts = compiler.spouts;
    let channel = AckChannel::new(followed, mailboxes, compiler.roster, spouts.clone());
    Ok(Compiled {
        dag: compiler.dag,
        controls: compiler.controls.with_spouts(spouts),
        channel: Arc::new(channel),
    })
}

struct Compiler<'a> {
    topology: &'a Topology,
    reach: Reach,
    roster: Arc<Roster>,
    /// None if acks are off.
    mailboxes: Option<Arc<Mailboxes>>,
    controls: Arc<Controls>,
    spouts: Vec<Arc<SpoutInstances>>,
    dag: Dag,
    /// By component.
    vertices: Vec<VertexId>,
}

/// An edge: the bolt, the number of its input, and what it reads there.
type Reading<'a> = (&'a Component, usize, &'a Subscription);

impl Compiler<'_> {
    /// All subscriptions to streams of a component, in the order of its outputs.
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
                    let make = Arc::clone(make);
                    Arc::new(move |instance: Instance| make.processor(&wiring, instance))
                }
                Kind::Bolt(make) => {
                    let wiring = Arc::new(self.bolt(component, streams));
                    let make = Arc::clone(make);
                    Arc::new(move |instance: Instance| make.processor(&wiring, instance))
                }
            };
            let instances = NonZeroU32::new(component.parallelism).unwrap_or(NonZeroU32::MIN);
            let mut vertex = Vertex::new(Arc::clone(&component.name), supplier)
                .parallelism(Parallelism::Exactly(instances))
                .isolation(component.isolation)
                .demand(component.wants.demand());
            if let Kind::Spout(make) = &component.kind {
                vertex = vertex.fixed_instances(make.has_fixed_instances());
            }
            let is_followed = component.is_spout() && self.mailboxes.is_some();
            if let Some(most) = NonZeroU32::new(Task::MOST_INSTANCES).filter(|_| is_followed) {
                vertex = vertex.most_instances(most);
            }
            self.vertices.push(self.dag.vertex(vertex));
        }
        Ok(())
    }

    fn spout(&self, component: &Component, streams: Vec<StreamPlan>) -> SpoutWiring {
        let config = &self.topology.config;
        SpoutWiring {
            streams,
            roster: Arc::clone(&self.roster),
            spout: self.spouts.len(),
            mailboxes: self.mailboxes.clone(),
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
            roster: Arc::clone(&self.roster),
            mailboxes: self.mailboxes.clone(),
            tick: component.tick,
        }
    }

    /// A stream, as the instances of its component write to it.
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

    /// The place of a component among all; there is one of each name.
    fn place(&self, name: &str) -> usize {
        let mut components = self.topology.components.iter();
        let place = components.position(|component| *component.name == *name);
        place.unwrap_or(0)
    }

    /// The input `number` of the bolt `to`.
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
        Input {
            origin: Origin {
                component: Arc::clone(&subscription.component),
                stream: Arc::clone(&subscription.stream),
                fields: stream.map_or_else(|| Arc::from([]), |s| Arc::clone(&s.fields)),
                salt: Salt::NONE,
            },
            copy,
        }
    }

    fn edges(&mut self) {
        let mut edges = Vec::new();
        for (from, source) in self.topology.components.iter().zip(&self.vertices) {
            for (output, (to, number, subscription)) in self.readings(from).enumerate() {
                let target = self.vertices[self.place(&to.name)];
                let origin = self.input(to, number, subscription).origin;
                let is_aligned = self.reach == Reach::Local && from.parallelism == to.parallelism;
                let fields = origin.fields.len();
                edges.push(
                    Edge::from_ordinals(
                        (*source, Ordinal(output as u16)),
                        (target, Ordinal(number as u16)),
                    )
                    .routing(subscription.grouping.routing(&origin, is_aligned))
                    .codec(Arc::new(TupleCodec::new(fields))),
                );
            }
        }
        for edge in edges {
            self.dag.edge(edge);
        }
    }
}
