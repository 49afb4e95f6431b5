//! Describing a topology.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Isolation, Result};

use crate::bolt::Bolt;
use crate::bolt_processor::BoltMaker;
use crate::check;
use crate::component::{Component, Kind, Subscription, Wants};
use crate::grouping::Grouping;
use crate::outputs::DEFAULT_STREAM;
use crate::spout::Spout;
use crate::spout_processor::SpoutMaker;
use crate::topology::{Topology, TopologyConfig};
use crate::tuple::Tuple;

/// What becomes of tuples when something fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reliability {
    /// Nothing is followed: what fails is lost, counted and kept as a sample. The fastest.
    #[default]
    AtMostOnce,
    /// Every tuple that a spout emits with a [`MessageId`](crate::MessageId) is followed with all that is made from it; the spout is told what became of
    /// it and can emit it again.
    AtLeastOnce,
}

/// Describes a topology: which spouts and bolts there are, and who reads what from whom. Nothing is checked before
/// [`build`](TopologyBuilder::build), so the order does not matter.
#[derive(Debug)]
pub struct TopologyBuilder {
    name: String,
    components: Vec<Component>,
    config: TopologyConfig,
}

impl TopologyBuilder {
    /// A topology of this name, without components.
    pub fn new(name: impl Into<String>) -> Self {
        TopologyBuilder {
            name: name.into(),
            components: Vec::new(),
            config: TopologyConfig::default(),
        }
    }

    /// Sets what becomes of tuples when something fails.
    pub fn reliability(&mut self, reliability: Reliability) -> &mut Self {
        self.config.reliability = reliability;
        self
    }

    /// Sets how many messages each spout instance may have pending; without it, as many as the queues hold. More keep the
    /// bolts busier, fewer keep the delay short.
    pub fn max_spout_pending(&mut self, messages: NonZeroUsize) -> &mut Self {
        self.config.max_spout_pending = Some(messages);
        self
    }

    /// Sets after what time a message that is not acked has failed (30 s). It fails between this time and a third more.
    pub fn message_timeout(&mut self, timeout: Duration) -> &mut Self {
        self.config.message_timeout = timeout;
        self
    }

    /// Adds a spout with so many instances; `make` makes each of them, and one more that is only asked for its
    /// [`outputs`](Spout::outputs).
    pub fn spout<S, F>(&mut self, name: &str, parallelism: u32, make: F) -> SpoutDeclarer<'_>
    where
        S: Spout + 'static,
        F: Fn() -> S + Send + Sync + 'static,
    {
        self.try_spout(name, parallelism, move || Ok(make()))
    }

    /// As [`spout`](TopologyBuilder::spout), for what may fail to be made.
    pub fn try_spout<S, F>(&mut self, name: &str, parallelism: u32, make: F) -> SpoutDeclarer<'_>
    where
        S: Spout + 'static,
        F: Fn() -> Result<S> + Send + Sync + 'static,
    {
        let kind = Kind::Spout(Arc::new(SpoutMaker(make)));
        SpoutDeclarer(self.add(name, parallelism, kind))
    }

    /// Adds a bolt with so many instances; `make` makes each of them, and one more that is only asked for its
    /// [`outputs`](Bolt::outputs).
    pub fn bolt<B, F>(&mut self, name: &str, parallelism: u32, make: F) -> BoltDeclarer<'_>
    where
        B: Bolt + 'static,
        F: Fn() -> B + Send + Sync + 'static,
    {
        self.try_bolt(name, parallelism, move || Ok(make()))
    }

    /// As [`bolt`](TopologyBuilder::bolt), for what may fail to be made.
    pub fn try_bolt<B, F>(&mut self, name: &str, parallelism: u32, make: F) -> BoltDeclarer<'_>
    where
        B: Bolt + 'static,
        F: Fn() -> Result<B> + Send + Sync + 'static,
    {
        let kind = Kind::Bolt(Arc::new(BoltMaker(make)));
        BoltDeclarer(self.add(name, parallelism, kind))
    }

    /// Checks the description.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob): an unknown component, stream or field, two components or streams
    /// of one name, a bolt without input, a cycle, a grouping that does not fit its stream. The edge is named, and what there is.
    pub fn build(&self) -> Result<Topology> {
        let outputs = check::check(&self.name, &self.components, &self.config)?;
        Ok(Topology {
            name: self.name.clone(),
            components: self.components.clone(),
            outputs,
            config: self.config.clone(),
        })
    }

    pub(crate) fn add(&mut self, name: &str, parallelism: u32, kind: Kind) -> &mut Component {
        self.components.push(Component {
            name: name.into(),
            parallelism,
            isolation: Isolation::Tasklet,
            wants: Wants::default(),
            kind,
            inputs: Vec::new(),
            tick: None,
            line: None,
        });
        let last = self.components.len() - 1;
        &mut self.components[last]
    }
}

/// What can be said of spouts and bolts alike.
macro_rules! where_it_runs {
    () => {
        /// Gives each instance a thread of its own: its code may block.
        pub fn on_thread(self) -> Self {
            self.isolation(Isolation::Thread)
        }

        /// Says where instances run. In a [process](Isolation::Process) of its own an instance that crashes takes no other with it;
        /// embedded that is a thread.
        pub fn isolation(self, isolation: Isolation) -> Self {
            self.0.isolation = isolation;
            self
        }

        /// Says how many cores each instance needs, such as 0.5, where the topology runs on a cluster. From 0.001 on, in thousandths.
        pub fn cpu(self, cores: f64) -> Self {
            self.0.wants.cpu_cores = Some(cores);
            self
        }

        /// Says how many bytes of memory each instance needs, where the topology runs on a cluster.
        pub fn memory(self, bytes: u64) -> Self {
            self.0.wants.memory_bytes = Some(bytes);
            self
        }

        /// Says how many bytes on disk each instance needs, where the topology runs on a cluster.
        pub fn disk(self, bytes: u64) -> Self {
            self.0.wants.disk_bytes = Some(bytes);
            self
        }
    };
}

/// Says more of a spout.
#[derive(Debug)]
pub struct SpoutDeclarer<'a>(&'a mut Component);

impl SpoutDeclarer<'_> {
    where_it_runs!();
}

/// A stream of a component, as groupings name it: `"component"` for its default stream, or `("component", "stream")`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamRef {
    component: Arc<str>,
    stream: Arc<str>,
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
        }
    }
}

/// Says what a bolt reads, and more of it.
#[derive(Debug)]
pub struct BoltDeclarer<'a>(&'a mut Component);

impl BoltDeclarer<'_> {
    /// Reads a stream; its tuples are spread evenly: batches in turn, to whichever instance has room.
    pub fn shuffle(self, from: impl Into<StreamRef>) -> Self {
        self.reads(from, Grouping::Shuffle)
    }

    /// Reads a stream; tuples stay in the process in which they were made, if there is an instance: batches go in turn to whichever of
    /// those there has room. If there is none, they are spread evenly. Embedded, each tuple stays with the instance of its
    /// sender's number if both have as many, with no queue between them.
    pub fn local_or_shuffle(self, from: impl Into<StreamRef>) -> Self {
        self.reads(from, Grouping::LocalOrShuffle)
    }

    /// Reads a stream; tuples with equal values in these fields meet in one instance, the same that a pipeline's keyed edge
    /// would choose.
    pub fn fields<'f>(
        self,
        from: impl Into<StreamRef>,
        fields: impl IntoIterator<Item = &'f str>,
    ) -> Self {
        let fields = fields.into_iter().map(Arc::from).collect();
        self.reads(from, Grouping::Fields(fields))
    }

    /// Reads a stream; every instance gets every tuple.
    pub fn all(self, from: impl Into<StreamRef>) -> Self {
        self.reads(from, Grouping::All)
    }

    /// Reads a stream; all tuples go to the first instance.
    pub fn global(self, from: impl Into<StreamRef>) -> Self {
        self.reads(from, Grouping::Global)
    }

    /// Reads a stream; it does not matter where tuples go.
    pub fn none(self, from: impl Into<StreamRef>) -> Self {
        self.reads(from, Grouping::None)
    }

    /// Reads a direct stream; each tuple goes to the instance that its sender names.
    pub fn direct(self, from: impl Into<StreamRef>) -> Self {
        self.reads(from, Grouping::Direct)
    }

    /// Reads a stream; each tuple goes to the instance `choose(tuple, instances)`, modulo their number.
    pub fn custom(
        self,
        from: impl Into<StreamRef>,
        choose: impl Fn(&Tuple<'_>, u32) -> u32 + Send + Sync + 'static,
    ) -> Self {
        self.reads(from, Grouping::Custom(Arc::new(choose)))
    }

    /// Calls [`Bolt::tick`] this often.
    pub fn tick_every(self, interval: Duration) -> Self {
        self.0.tick = Some(interval);
        self
    }

    where_it_runs!();

    pub(crate) fn reads(self, from: impl Into<StreamRef>, grouping: Grouping) -> Self {
        let StreamRef { component, stream } = from.into();
        self.0.inputs.push(Subscription {
            component,
            stream,
            grouping,
            line: None,
        });
        self
    }
}
