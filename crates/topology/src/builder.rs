//! The builder of topologies.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Isolation, Result};
use ardea_instance::{InstanceCommand, own_command};

use crate::bolt::Bolt;
use crate::bolt_processor::BoltMaker;
use crate::check;
use crate::component::{Component, Kind, ResourceRequirements, Subscription};
use crate::grouping::Grouping;
use crate::guest::ProgramProcess;
use crate::outputs::{DEFAULT_STREAM, Outputs};
use crate::process::ProcessComponent;
use crate::spout::Spout;
use crate::spout_processor::SpoutMaker;
use crate::topology::{Topology, TopologyConfig};
use crate::tuple::Tuple;

/// The guarantee for tuples on failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reliability {
    /// Tuples are not tracked. Failed tuples are lost; they are counted, and some are sampled. The
    /// fastest guarantee.
    #[default]
    AtMostOnce,
    /// Every tuple that a spout emits with a [`MessageId`](crate::MessageId) is tracked with all
    /// tuples derived from it. The spout is notified of the result and can emit it again.
    AtLeastOnce,
}

/// Describes a topology: its spouts, bolts and subscriptions. Nothing is checked before
/// [`build`](TopologyBuilder::build), so the order does not matter.
#[derive(Debug)]
pub struct TopologyBuilder {
    name: String,
    components: Vec<Component>,
    config: TopologyConfig,
    own_program: Option<InstanceCommand>,
}

impl TopologyBuilder {
    /// Creates a topology of this name, without components.
    pub fn new(name: impl Into<String>) -> Self {
        TopologyBuilder {
            name: name.into(),
            components: Vec::new(),
            config: TopologyConfig::default(),
            own_program: None,
        }
    }

    /// Sets the command that starts this program as the process of an instance, for components with
    /// [`Isolation::Process`]; by default this program with the arguments of this process. The
    /// program must build the same topology and run it as a worker does.
    pub fn own_program(&mut self, command: InstanceCommand) -> &mut Self {
        self.own_program = Some(command);
        self
    }

    /// Sets the guarantee for tuples on failures.
    pub fn reliability(&mut self, reliability: Reliability) -> &mut Self {
        self.config.reliability = reliability;
        self
    }

    /// Sets the maximum number of pending messages per spout instance; the default is as many as
    /// the queues hold. A larger number increases throughput, a smaller one reduces latency.
    pub fn max_spout_pending(&mut self, messages: NonZeroUsize) -> &mut Self {
        self.config.max_spout_pending = Some(messages);
        self
    }

    /// Sets the message timeout; the default is 30 s. A message that is not acked fails after 1 to
    /// 1⅓ times `timeout`.
    pub fn message_timeout(&mut self, timeout: Duration) -> &mut Self {
        self.config.message_timeout = timeout;
        self
    }

    /// Adds a spout with this parallelism. `make` creates each instance, and one more to read its
    /// [`outputs`](Spout::outputs).
    pub fn spout<S, F>(&mut self, name: &str, parallelism: u32, make: F) -> SpoutDeclarer<'_>
    where
        S: Spout + 'static,
        F: Fn() -> S + Send + Sync + 'static,
    {
        self.try_spout(name, parallelism, move || Ok(make()))
    }

    /// Like [`spout`](TopologyBuilder::spout), for a fallible constructor.
    pub fn try_spout<S, F>(&mut self, name: &str, parallelism: u32, make: F) -> SpoutDeclarer<'_>
    where
        S: Spout + 'static,
        F: Fn() -> Result<S> + Send + Sync + 'static,
    {
        let kind = Kind::Spout(Arc::new(SpoutMaker(make)));
        SpoutDeclarer(self.add(name, parallelism, kind))
    }

    /// Adds a bolt with this parallelism. `make` creates each instance, and one more to read its
    /// [`outputs`](Bolt::outputs).
    pub fn bolt<B, F>(&mut self, name: &str, parallelism: u32, make: F) -> BoltDeclarer<'_>
    where
        B: Bolt + 'static,
        F: Fn() -> B + Send + Sync + 'static,
    {
        self.try_bolt(name, parallelism, move || Ok(make()))
    }

    /// Like [`bolt`](TopologyBuilder::bolt), for a fallible constructor.
    pub fn try_bolt<B, F>(&mut self, name: &str, parallelism: u32, make: F) -> BoltDeclarer<'_>
    where
        B: Bolt + 'static,
        F: Fn() -> Result<B> + Send + Sync + 'static,
    {
        let kind = Kind::Bolt(Arc::new(BoltMaker(make)));
        BoltDeclarer(self.add(name, parallelism, kind))
    }

    /// Adds a spout whose instances are processes of `command`, in any language. They speak the
    /// instance protocol; `outputs` are the streams that they emit.
    pub fn spout_in_process(
        &mut self,
        name: &str,
        parallelism: u32,
        command: InstanceCommand,
        outputs: Outputs,
    ) -> SpoutDeclarer<'_> {
        let kind = Kind::Spout(Arc::new(ProcessComponent::new(command, outputs)));
        SpoutDeclarer(self.add(name, parallelism, kind))
    }

    /// Adds a bolt whose instances are processes of `command`, in any language. They speak the
    /// instance protocol; `outputs` are the streams that they emit.
    ///
    /// If a process dies, the tuples that it has not answered are sent to another one, and those
    /// that it held fail. In a job with a guarantee, the death of a process with state fails the
    /// attempt of the job.
    pub fn bolt_in_process(
        &mut self,
        name: &str,
        parallelism: u32,
        command: InstanceCommand,
        outputs: Outputs,
    ) -> BoltDeclarer<'_> {
        let kind = Kind::Bolt(Arc::new(ProcessComponent::new(command, outputs)));
        BoltDeclarer(self.add(name, parallelism, kind))
    }

    /// Checks the description.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob): an unknown component, stream
    /// or field, two components or streams of one name, a bolt without input, a cycle, a grouping
    /// that does not fit its stream. The message names the edge and the alternatives.
    pub fn build(&self) -> Result<Topology> {
        let outputs = check::check(&self.name, &self.components, &self.config)?;
        let mut components = self.components.clone();
        for component in &mut components {
            let is_isolated = component.isolation == Isolation::Process;
            if is_isolated && !component.kind.is_process() {
                let command = self.own_program.clone();
                let command = command.map_or_else(own_command, Ok)?;
                component.own_process = Some(ProgramProcess::new(command, &component.name));
            }
        }
        Ok(Topology {
            name: self.name.clone(),
            components,
            outputs,
            config: self.config.clone(),
        })
    }

    pub(crate) fn add(&mut self, name: &str, parallelism: u32, kind: Kind) -> &mut Component {
        self.components.push(Component {
            name: name.into(),
            parallelism,
            isolation: Isolation::Tasklet,
            wants: ResourceRequirements::default(),
            kind,
            inputs: Vec::new(),
            tick: None,
            line: None,
            own_process: None,
        });
        let last = self.components.len() - 1;
        &mut self.components[last]
    }
}

/// The settings common to spouts and bolts.
macro_rules! where_it_runs {
    () => {
        /// Runs each instance on a separate thread: its code may block.
        pub fn on_thread(self) -> Self {
            self.isolation(Isolation::Thread)
        }

        /// Sets the isolation of instances. A crash of an instance in a
        /// [process](Isolation::Process) affects no other instance. The process is this program
        /// with the same arguments. An embedded run uses a thread instead.
        pub fn isolation(self, isolation: Isolation) -> Self {
            self.0.isolation = isolation;
            self
        }

        /// Sets the cores that each instance needs on a cluster, such as 0.5. The minimum is 0.001;
        /// the number is rounded to thousandths.
        pub fn cpu(self, cores: f64) -> Self {
            self.0.wants.cpu_cores = Some(cores);
            self
        }

        /// Sets the bytes of memory that each instance needs on a cluster.
        pub fn memory(self, bytes: u64) -> Self {
            self.0.wants.memory_bytes = Some(bytes);
            self
        }

        /// Sets the bytes of disk that each instance needs on a cluster.
        pub fn disk(self, bytes: u64) -> Self {
            self.0.wants.disk_bytes = Some(bytes);
            self
        }
    };
}

/// Further settings of a spout.
#[derive(Debug)]
pub struct SpoutDeclarer<'a>(&'a mut Component);

impl SpoutDeclarer<'_> {
    where_it_runs!();
}

/// A stream of a component, as used in groupings: `"component"` for its default stream, or
/// `("component", "stream")`. [`latency`](Self::latency) sets a latency budget.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamRef {
    component: Arc<str>,
    stream: Arc<str>,
    latency: Option<Duration>,
}

impl StreamRef {
    /// Sets the latency budget of the subscription: the maximum time for which each part of its way
    /// gathers tuples while few come. It replaces the node's setting `latency`; see
    /// [`Edge::latency`](ardea_core::Edge::latency). Zero passes each tuple on at once, and the
    /// maximum is 1 s.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ardea_topology::StreamRef;
    ///
    /// let alarms = StreamRef::from(("sensors", "alarms")).latency(Duration::ZERO);
    /// ```
    pub fn latency(mut self, budget: Duration) -> Self {
        self.latency = Some(budget);
        self
    }
}

impl From<&str> for StreamRef {
    fn from(component: &str) -> Self {
        StreamRef::from((component, DEFAULT_STREAM))
    }
}

impl From<(&str, &str)> for StreamRef {
    fn from((component, stream): (&str, &str)) -> Self {
        StreamRef {
            component: component.into(),
            stream: stream.into(),
            latency: None,
        }
    }
}

/// The inputs and further settings of a bolt.
#[derive(Debug)]
pub struct BoltDeclarer<'a>(&'a mut Component);

impl BoltDeclarer<'_> {
    /// Subscribes to a stream with even distribution: batches in turn, to any instance with room.
    pub fn shuffle(self, from: impl Into<StreamRef>) -> Self {
        self.reads(from, Grouping::Shuffle)
    }

    /// Subscribes to a stream with local preference: batches go in turn to instances with room in
    /// the sender's process, or are distributed evenly if no instance runs there. In an embedded
    /// run, each tuple goes to the instance with its sender's number if both components have the
    /// same parallelism, without a queue between them.
    pub fn local_or_shuffle(self, from: impl Into<StreamRef>) -> Self {
        self.reads(from, Grouping::LocalOrShuffle)
    }

    /// Subscribes to a stream. Tuples with equal values in `fields` go to the same instance, chosen
    /// as by a keyed edge of a pipeline.
    pub fn fields<'f>(
        self,
        from: impl Into<StreamRef>,
        fields: impl IntoIterator<Item = &'f str>,
    ) -> Self {
        let fields = fields.into_iter().map(Arc::from).collect();
        self.reads(from, Grouping::Fields(fields))
    }

    /// Subscribes to a stream; every instance gets every tuple.
    pub fn all(self, from: impl Into<StreamRef>) -> Self {
        self.reads(from, Grouping::All)
    }

    /// Subscribes to a stream; all tuples go to the first instance.
    pub fn global(self, from: impl Into<StreamRef>) -> Self {
        self.reads(from, Grouping::Global)
    }

    /// Subscribes to a stream without a choice of distribution; tuples are shuffled.
    pub fn none(self, from: impl Into<StreamRef>) -> Self {
        self.reads(from, Grouping::None)
    }

    /// Subscribes to a direct stream; each tuple goes to the instance that its sender names in
    /// `emit_direct`.
    pub fn direct(self, from: impl Into<StreamRef>) -> Self {
        self.reads(from, Grouping::Direct)
    }

    /// Subscribes to a stream; each tuple goes to the instance `choose(tuple, instances)` modulo
    /// `instances`, their number.
    pub fn custom(
        self,
        from: impl Into<StreamRef>,
        choose: impl Fn(&Tuple<'_>, u32) -> u32 + Send + Sync + 'static,
    ) -> Self {
        self.reads(from, Grouping::Custom(Arc::new(choose)))
    }

    /// Sets the interval of [`Bolt::tick`].
    pub fn tick_every(self, interval: Duration) -> Self {
        self.0.tick = Some(interval);
        self
    }

    where_it_runs!();

    pub(crate) fn reads(self, from: impl Into<StreamRef>, grouping: Grouping) -> Self {
        let StreamRef {
            component,
            stream,
            latency,
        } = from.into();
        self.0.inputs.push(Subscription {
            component,
            stream,
            grouping,
            latency,
            line: None,
        });
        self
    }
}
