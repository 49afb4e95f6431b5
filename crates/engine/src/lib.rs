//! Runs jobs, or parts of jobs, on the threads of one process.
//!
//! A [`Node`] owns as many cooperative threads as cores, pinned. A job's graph is cut into tasklets: chains of processors
//! that hand chunks to each other without a queue. Each thread runs the tasklets that have something to do, each for a slice of
//! about 100 µs, and rests when none has. Tasklets on different threads, and those that can't be chained, are joined by bounded
//! wait-free queues; a full one stops its producer, and so on up to the source. Code that blocks gets a thread of its own.
//!
//! A job may be spread over several processes. Each makes the same graph, deploys the instances that a [`Placement`] has there, and joins
//! them to the others by what implements [`Crossings`]. What runs where can be changed while records flow: [`Deployment::rewire`].
//! A job that is submitted is one that is all here.
//!
//! In reading order:
//!
//! * [`Node`], [`NodeConfig`]: the threads; [`JobHandle`]: a running job;
//! * `own_input`: what is refused before it starts; `interrupts`: Ctrl-C, by job or [`on_interrupt`];
//! * [`Placement`], [`Layout`], [`Crossings`]: what is where; [`Deployment`]: a part of a job;
//! * `execution_plan`: how a graph becomes tasklets; [`ExecutionPlan`] shows it;
//! * `wiring`: which tasklets a layout needs, and which queues; `roster`: those that there are, and changing them;
//! * `tasklet` and `stage`: a slice of work;
//! * [`CutSink`], [`CutSource`]: where the state of instances goes at the ends of epochs, and where it comes from; [`Keepsakes`]: what stays in
//!   memory from one life of a job to the next;
//! * `input`, `output`, `queue`: what joins tasklets; `mailbox`: how they learn that this has changed;
//! * `worker`, `bell`, `ready`, `timers`: the loop of a thread.
//!
//! # Invariants
//!
//! * Data never waits for control: submitting, watching or cancelling a job takes no lock that a tasklet takes while records flow.
//! * Nothing is dropped to keep up.
//! * A panic or error in one job's code ends that job only.
//! * A job that takes no cuts pays nothing for them, and one that does pays nothing a record here: a look a slice.
//! * A change of the layout loses no record, doubles none and makes none late, as long as no process dies.
//!
//! # Example
//!
//! ```
//! use ardea_core::{Dag, Outbox, Processor, Progress, Result, Vertex, supplier};
//! use ardea_engine::{JobConfig, Node, NodeConfig};
//!
//! struct Hello;
//! impl Processor for Hello {
//!     fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
//!         println!("hello");
//!         Ok(Progress::DONE)
//!     }
//! }
//!
//! let mut dag = Dag::new();
//! dag.vertex(Vertex::new("hello", supplier(|| Hello)));
//! let node = Node::start(NodeConfig::default()).unwrap();
//! node.submit(&dag, JobConfig::named("greeting")).unwrap().join().unwrap();
//! ```
#![forbid(unsafe_code)]

mod config;
mod deployment;
mod execution_plan;
#[cfg(not(loom))]
mod interrupts;
mod job;
mod launch;
mod node;
mod own_input;
mod roster;
mod settings;
mod state_place;
mod threads;

mod crossing;
mod layout;
mod placement;
mod program;
mod together;
mod wiring;

mod cuts;
mod keepsakes;
mod panics;
mod stage;
mod tasklet;

mod coming;
mod input;
mod mailbox;
mod marks;
mod output;
mod queue;

mod bell;
mod cores;
mod patience;
mod ready;
mod shim;
mod timers;
mod worker;

#[cfg(all(test, loom))]
mod model;

pub use config::{JobConfig, NodeConfig, OnInstanceFailure};
pub use cores::{allowed_cores, pin_to, stand_back};
pub use crossing::Crossings;
pub use cuts::{
    Counted, CutEnd, CutRead, CutReader, CutReport, CutSink, CutSource, Cuts, InstanceName,
};
pub use deployment::{Begin, Deployment};
pub use execution_plan::{ExecutionPlan, PlannedTasklet, chains};
#[cfg(not(loom))]
pub use interrupts::{Interruptible, end_on_interrupt, on_interrupt};
pub use job::{InstanceFailure, InstanceReport, JobHandle, JobStatus};
pub use keepsakes::Keepsakes;
pub use layout::{InstanceAt, Layout};
pub use node::Node;
pub use placement::{Placement, Site};
pub use program::{Job, Parallelisms, Program};
pub use settings::NODE_SETTINGS;
pub use state_place::StatePlace;
pub use together::{as_many, together};
