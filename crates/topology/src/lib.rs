//! Spouts and bolts over the core graph, with acknowledgements.
//!
//! A **topology** is a graph of components that a user names: **spouts** read from outside and emit tuples, **bolts** take tuples and emit
//! others. A **tuple** is a list of values under the field names that its **stream** declares; a **grouping** says which instance of a bolt it
//! goes to. The model is that of Storm and Heron ("Twitter Heron: Towards Extensible Streaming Engines", section II). A topology compiles to
//! the core graph, a vertex a component and an edge a subscription, and nothing else is ever run.
//!
//! In reading order:
//!
//! * [`TopologyBuilder`] describes a [`Topology`]; [`Outputs`] declares a component's streams;
//! * [`Spout`] and [`Bolt`] are user code; [`SpoutCollector`] and [`Collector`] take what it emits;
//! * [`WindowedBolt`] takes many tuples at a time, by [`Window`];
//! * [`Tuple`] and [`Tuples`] are views of a [`TupleBatch`], in which tuples are encoded once and travel; [`Value`], [`Encode`];
//! * [`Registry`] has components under names, from which a YAML file wires a topology;
//! * [`RunningTopology`] activates, deactivates and reports;
//! * `acker` and `ack_channel`: how a spout learns what became of a tuple;
//! * [`Topology`] as an [`engine::Job`](ardea_engine::Job): `codec`, `letter` and `roster` are what it takes to run in many processes.
//!
//! # Invariants
//!
//! * A tuple is encoded once, when it is emitted; who receives it reads it where it lies, who passes it on copies bytes. Nothing is
//!   allocated for each tuple.
//! * A fields grouping and a pipeline's keyed edge send equal keys to the same instance.
//! * With acks on, every message that a spout emits is acked or failed, once each time it is emitted. Acks cost one exchange a chunk.
//! * A mistake in the graph is found before anything starts.
//! * What comes from another process is checked when it is read: garbage is an error, and changes nothing.
//!
//! # Example
//!
//! ```
//! use std::collections::HashMap;
//! use ardea_topology::{
//!     Bolt, Collector, Next, Outcome, Outputs, Spout, SpoutCollector, TopologyBuilder, Tuple,
//! };
//!
//! struct Lines(Vec<&'static str>);
//!
//! impl Spout for Lines {
//!     fn outputs(&self) -> Outputs {
//!         Outputs::fields(["line"])
//!     }
//!
//!     fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
//!         match self.0.pop() {
//!             Some(line) => out.emit([line])?,
//!             None => return Ok(Next::Done),
//!         }
//!         Ok(Next::More)
//!     }
//! }
//!
//! struct Split;
//!
//! impl Bolt for Split {
//!     fn outputs(&self) -> Outputs {
//!         Outputs::fields(["word"])
//!     }
//!
//!     fn execute(&mut self, tuple: &Tuple<'_>, out: &mut Collector<'_>) -> Outcome {
//!         for word in tuple.str("line")?.split(' ') {
//!             out.emit([word])?;
//!         }
//!         Ok(())
//!     }
//! }
//!
//! #[derive(Default)]
//! struct Count(HashMap<String, u64>);
//!
//! impl Bolt for Count {
//!     fn execute(&mut self, tuple: &Tuple<'_>, _: &mut Collector<'_>) -> Outcome {
//!         *self.0.entry(tuple.str("word")?.to_string()).or_default() += 1;
//!         Ok(())
//!     }
//!
//!     fn finish(&mut self, _: &mut Collector<'_>) -> Outcome {
//!         println!("{:?}", self.0);
//!         Ok(())
//!     }
//! }
//!
//! let mut topology = TopologyBuilder::new("word count");
//! topology.spout("lines", 1, || Lines(vec!["to be or not", "to be"]));
//! topology.bolt("split", 2, || Split).shuffle("lines");
//! topology.bolt("count", 2, Count::default).fields("split", ["word"]);
//! topology.build()?.run()?;
//! # Ok::<(), ardea_core::Error>(())
//! ```
#![forbid(unsafe_code)]

mod builder;
mod check;
mod compile;
mod component;
mod grouping;
mod outputs;
mod roster;
mod running;
mod topology;

mod registry;
mod yaml;

mod bolt;
mod collector;
mod context;
mod failure;
mod spout;
mod window;

mod bolt_processor;
mod emitter;
mod pace;
mod spout_processor;

mod batch;
mod codec;
mod encode;
mod tuple;
mod value;
mod wire;

mod ack_channel;
mod acker;
mod anchor;
mod letter;
mod mailbox;
mod postman;

pub use acker::FailReason;
pub use batch::TupleBatch;
pub use bolt::Bolt;
pub use builder::{BoltDeclarer, Reliability, SpoutDeclarer, StreamRef, TopologyBuilder};
pub use collector::{Collector, Held};
pub use context::ComponentContext;
pub use encode::{Encode, Items, Values};
pub use failure::{Failure, Outcome};
pub use outputs::{DEFAULT_STREAM, Outputs};
pub use registry::{Registry, Settings};
pub use running::{CompleteLatency, RunningTopology, SpoutReport};
pub use spout::{MessageId, Next, Spout, SpoutCollector};
pub use topology::Topology;
pub use tuple::{Tuple, Tuples};
pub use value::{Field, FieldWriter, List, Value};
pub use window::{Window, WindowTuples, Windowed, WindowedBolt};
