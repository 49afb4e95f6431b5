//! Spouts and bolts on the core graph, with acknowledgements.
//!
//! A **topology** is a graph of named components: **spouts** read input and emit tuples, **bolts**
//! take tuples and emit others. A **tuple** is a list of values under the field names that its
//! **stream** declares; a **grouping** determines the bolt instance that gets a tuple. The model is
//! that of Storm and Heron ("Twitter Heron: Towards Extensible Streaming Engines", section II). A
//! topology is compiled to the core graph, with a vertex per component and an edge per
//! subscription, which is then executed like any job.
//!
//! In reading order:
//!
//! * [`TopologyBuilder`] describes a [`Topology`]; [`Outputs`] declares a component's streams;
//! * [`Spout`] and [`Bolt`] are user code; [`SpoutCollector`] and [`Collector`] take its output;
//! * [`ComponentState`] is the state of a component in checkpoints;
//! * [`WindowedBolt`] processes many tuples at a time, by [`Window`];
//! * [`Tuple`] and [`Tuples`] are views of a [`TupleBatch`], which has encoded tuples; [`Value`],
//!   [`Encode`];
//! * [`Registry`] maps names to components, which a YAML file wires to a topology;
//! * `process`: the host's side of spouts and bolts in processes of their own, in any language;
//! * `guest`: the other side, for the topology's own spouts and bolts;
//! * [`RunningTopology`] activates, deactivates and reports;
//! * `acker` and `ack_channel`: the acknowledgements of a spout's tuples;
//! * [`Topology`] as an [`engine::Job`](ardea_engine::Job): `codec`, `ack_batch` and `parallelism`
//!   support execution in several processes.
//!
//! # Invariants
//!
//! * A tuple is encoded once, when it is emitted; receivers read it in place, and forwarding copies
//!   bytes. There is no allocation per tuple.
//! * A fields grouping and a pipeline's keyed edge send equal keys to the same instance.
//! * With acks on, every emitted message is acked or failed, once per emission. Acks cost one
//!   exchange per chunk.
//! * Errors in the graph are found before the start.
//! * Data from another process is validated when it is read: invalid data is an error, and changes
//!   nothing.
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
mod parallelism;
mod running;
mod topology;

mod registry;
mod yaml;

mod bolt;
mod collector;
mod context;
mod failure;
mod spout;
mod state;
mod window;

mod bolt_processor;
mod call_budget;
mod emitter;
mod guest;
mod process;
mod spout_processor;

mod batch;
mod codec;
mod encode;
mod tuple;
mod value;
mod wire;

mod ack_batch;
mod ack_batcher;
mod ack_channel;
mod ack_queue;
mod acker;
mod anchor;

pub use acker::FailReason;
pub use batch::TupleBatch;
pub use bolt::Bolt;
pub use builder::{BoltDeclarer, Reliability, SpoutDeclarer, StreamRef, TopologyBuilder};
pub use collector::{Collector, PendingTuple};
pub use context::ComponentContext;
pub use encode::{Encode, Items, Values};
pub use failure::{Failure, Outcome};
pub use outputs::{DEFAULT_STREAM, Outputs};
pub use registry::{Registry, Settings};
pub use running::{CompleteLatency, RunningTopology, SpoutReport};
pub use spout::{MessageId, Next, Spout, SpoutCollector};
pub use state::ComponentState;
pub use topology::Topology;
pub use tuple::{Tuple, Tuples};
pub use value::{Field, FieldWriter, List, Value};
pub use window::{Window, WindowTuples, Windowed, WindowedBolt};
