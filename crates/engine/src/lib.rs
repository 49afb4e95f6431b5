//! The runtime that executes jobs, or parts of jobs, on the threads of one process.
//!
//! A [`Node`] owns pinned cooperative threads, one per core. A job's graph is split into tasklets:
//! chains of processors that pass chunks to each other without a queue. Each thread runs its ready
//! tasklets in turn, each for a slice of about 100 µs, and sleeps when none is ready. Tasklets on
//! different threads, and those that can't be chained, are connected by bounded wait-free queues. A
//! full queue stops its producer, and so on up to the source. Blocking code gets a dedicated
//! thread.
//!
//! A job may be spread over several processes. Each process builds the same graph, deploys the
//! instances that a [`Placement`] assigns to it, and connects them to the others by an
//! implementation of [`RemoteEdges`]. The placement can be changed while records flow:
//! [`Deployment::rewire`]. A job started by [`Node::submit`] runs completely in this process.
//!
//! In reading order:
//!
//! * [`Node`], [`NodeConfig`]: the threads; [`JobHandle`]: a running job;
//! * [`Placement`], [`Layout`], [`RemoteEdges`]: the distribution over processes; [`Deployment`]:
//!   the part of a job in this process, with its tasklets and the changes to them;
//! * `planning`: the tasklets and queues that follow from a graph and a layout, and checks before
//!   the start; [`ExecutionPlan`] displays the division of a graph;
//! * `tasklet` and `stage`: a slice of work;
//! * [`SnapshotSink`], [`RestoreSource`]: the destination of snapshots, and the source of restored
//!   state; [`StateHandoff`]: state that stays in memory from one attempt of a job to the next;
//! * `channels`: the connections between tasklets, and requests to change them;
//! * `executor`: the threads, and the loop of each;
//! * [`replay`], [`InstanceRecording`]: recorded micro-batches of one instance, run again;
//! * Ctrl-C: [`on_interrupt`].
//!
//! # Invariants
//!
//! * The data path never waits for control: submitting, observing or cancelling a job takes no lock
//!   that a tasklet takes while records flow.
//! * Nothing is dropped to keep up.
//! * A panic or error in one job's code ends that job only.
//! * A job without snapshots does not pay for them. A job with snapshots pays nothing per record
//!   here, only a check per slice.
//! * A change of the layout loses no record, duplicates none and makes none late, as long as no
//!   process dies.
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

mod batch_delay;
mod config;
mod deployment;
mod job;
mod micro_batch;
mod node;
mod pair_traffic;
mod planning;
mod program;
mod recording;
mod remote;
mod source_log;

mod channels;
mod executor;
mod snapshotting;
mod stage;
mod tasklet;

mod panics;
mod shim;

#[cfg(all(test, loom))]
mod model;

pub use batch_delay::BatchDelay;
pub use config::{
    ExecutionMode, JobConfig, MicroBatchConfig, NODE_SETTINGS, NodeConfig, OnInstanceFailure,
    StateBackendConfig,
};
pub use deployment::{Deployment, StartMode};
pub use executor::cores::{allowed_cores, lower_priority, pin_to, wake_on_time};
pub use job::{InstanceFailure, InstanceReport, JobHandle, JobStatus};
#[cfg(not(loom))]
pub use job::{Interruptible, end_on_interrupt, on_interrupt};
pub use node::Node;
pub use pair_traffic::PairReport;
pub use planning::colocation::{colocation_groups, equal_parallelism_groups};
pub use planning::execution_plan::{ExecutionPlan, PlannedTasklet, chains};
pub use planning::mode_choice::ModeChoice;
pub use program::{Job, Parallelisms, Program};
pub use recording::{
    InstanceRecording, OutputItem, RecordedRun, ReplayDifference, ReplayReport,
    recordable_vertices, replay,
};
pub use remote::{
    InstanceAt, Layout, Placement, ReceiveEnd, RemoteEdges, RemoteItem, SendEnd, Site, StreamState,
};
pub use snapshotting::{
    InstanceName, RecordCounts, RestoreReader, RestoreSource, SnapshotAbort, SnapshotIo,
    SnapshotRead, SnapshotReport, SnapshotSink, StateHandoff,
};
pub use source_log::{SourceBatchEnd, SourceLog, SourceLogReader};
