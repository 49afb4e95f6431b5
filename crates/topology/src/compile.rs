//! From a topology to the core graph: a vertex a component, an edge a subscription.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Dag, Edge, Instance, Ordinal, Parallelism, ProcessorSupplier, Result, Vertex, VertexId,
};

use crate::ack_channel::Mailbox;
use crate::anchor::Salt;
use crate::builder::Reliability;
use crate::component::{Component, Kind, Subscription};
use crate::context::Roster;
use crate::emitter::StreamPlan;
use crate::grouping::Grouping;
use crate::outputs::OutputStream;
use crate::running::{Controls, SpoutCounters};
use crate::topology::Topology;
use crate::tuple::Origin;

/// What the instances of a spout need to know of the topology.
#[derive(Debug)]
pub(crate) struct SpoutWiring {
    pub(crate) streams: Vec<StreamPlan>,
    pub(crate) roster: Roster,
    /// The number of the first instance among all spout instances.
    pub(crate) first_task: u16,
    /// Of all spout instances; none if acks are off.
    pub(crate) mailboxes: Arc<[Arc<Mailbox>]>,
    pub(crate) max_pending: usize,
    pub(crate) message_timeout: Duration,
    pub(crate) controls: Arc<Controls>,
    /// Of this spout's instances.
    pub(crate) counters: Vec<Arc<SpoutCounters>>,
}

/// What the instances of a bolt need to know of the topology.
#[derive(Debug)]
pub(crate) struct BoltWiring {
    pub(crate) streams: Vec<StreamPlan>,
    /// Of each input.
    pub(crate) inputs: Vec<Input>,
    pub(crate) roster: Roster,
    /// Of all spout instances; none if acks are off.
    pub(crate) mailboxes: Arc<[Arc<Mailbox>]>,
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

/// The graph of a topology, and what its instances share with whoever watches it.
pub(crate) fn compile(topology: &Topology) -> Result<(Dag, Arc<Controls>)> {
    let components = &topology.components;
    let roster: Roster = components
        .iter()
        .map(|component| (Arc::clone(&component.name), component.parallelism))
        .collect();
    let spout_tasks: u32 = components
        .iter()
        .filter(|component| matches!(component.kind, Kind::Spout(_)))
        .map(|component| component.parallelism)
        .sum();
    let follows = topology.config.reliability == Reliability::AtLeastOnce;
    let mailboxes = (0..if follows { spout_tasks } else { 0 })
        .map(|_| Arc::default())
        .collect();
    let mut compiler = Compiler {
        topology,
        roster,
        mailboxes,
        controls: Controls::new(),
        counters: Vec::new(),
        dag: Dag::new(),
        vertices: Vec::new(),
    };
    compiler.vertices()?;
    compiler.edges();
    let controls = compiler.controls.with_spouts(compiler.counters);
    compiler.dag.validate()?;
    Ok((compiler.dag, controls))
}

struct Compiler<'a> {
    topology: &'a Topology,
    roster: Roster,
    mailboxes: Arc<[Arc<Mailbox>]>,
    controls: Arc<Controls>,
    counters: Vec<(Arc<str>, Vec<Arc<SpoutCounters>>)>,
    dag: Dag,
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
        let mut first_task = 0;
        for (component, outputs) in self.topology.components.iter().zip(&self.topology.outputs) {
            let streams = outputs.streams.iter().map(|s| self.stream(component, s));
            let streams = streams.collect();
            let supplier: Arc<dyn ProcessorSupplier> = match &component.kind {
                Kind::Spout(make) => {
                    let wiring = Arc::new(self.spout(component, streams, first_task));
                    // Wraps only behind the last of as many as there may be.
                    first_task = u16::wrapping_add(first_task, component.parallelism as u16);
                    self.counters
                        .push((Arc::clone(&component.name), wiring.counters.clone()));
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
            let vertex = Vertex::new(Arc::clone(&component.name), supplier)
                .parallelism(Parallelism::Exactly(instances))
                .isolation(component.isolation);
            self.vertices.push(self.dag.vertex(vertex));
        }
        Ok(())
    }

    fn spout(
        &self,
        component: &Component,
        streams: Vec<StreamPlan>,
        first_task: u16,
    ) -> SpoutWiring {
        let config = &self.topology.config;
        SpoutWiring {
            streams,
            roster: Arc::clone(&self.roster),
            first_task,
            mailboxes: Arc::clone(&self.mailboxes),
            max_pending: config
                .max_spout_pending
                .map_or(usize::MAX, |most| most.get()),
            message_timeout: config.message_timeout,
            controls: Arc::clone(&self.controls),
            counters: (0..component.parallelism).map(|_| Arc::default()).collect(),
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
            mailboxes: Arc::clone(&self.mailboxes),
            tick: component.tick,
        }
    }

    /// A stream, as the instances of its component write to it.
    fn stream(&self, of: &Component, stream: &OutputStream) -> StreamPlan {
        let readings: Vec<(usize, Reading<'_>)> = self
            .readings(of)
            .enumerate()
            .filter(|(_, (_, _, subscription))| subscription.stream == stream.name)
            .collect();
        let mut salts = Vec::new();
        for (number, (_, (to, _, subscription))) in readings.iter().enumerate() {
            match (&readings[..], &subscription.grouping) {
                (_, Grouping::All) => {
                    salts.extend((0..to.parallelism).map(|i| Salt::of(number, Some(i))));
                }
                ([_], _) => salts.push(Salt::NONE),
                _ => salts.push(Salt::of(number, None)),
            }
        }
        StreamPlan {
            name: Arc::clone(&stream.name),
            fields: Arc::clone(&stream.fields),
            is_direct: stream.is_direct,
            outputs: readings
                .iter()
                .map(|(output, _)| Ordinal(*output as u16))
                .collect(),
            salts: salts.into(),
            targets: readings
                .iter()
                .map(|(_, (to, _, _))| to.parallelism)
                .min()
                .unwrap_or(u32::MAX),
        }
    }

    /// The input `number` of the bolt `to`.
    fn input(&self, to: &Component, number: usize, subscription: &Subscription) -> Input {
        let topology = self.topology;
        let from = topology
            .components
            .iter()
            .position(|component| component.name == subscription.component)
            .unwrap_or(0);
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
                let position = self
                    .topology
                    .components
                    .iter()
                    .position(|c| c.name == to.name);
                let target = self.vertices[position.unwrap_or(0)];
                let origin = self.input(to, number, subscription).origin;
                let routing =
                    subscription
                        .grouping
                        .routing(&origin, from.parallelism, to.parallelism);
                edges.push(
                    Edge::from_ordinals(
                        (*source, Ordinal(output as u16)),
                        (target, Ordinal(number as u16)),
                    )
                    .routing(routing),
                );
            }
        }
        for edge in edges {
            self.dag.edge(edge);
        }
    }
}
