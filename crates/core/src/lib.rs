//! The model of a job: graph, processors, records, time and errors.
//!
//! Every job that Ardea runs is a [`Dag`]: vertices with [`Processor`] code, and edges that route
//! records between them. The typed pipeline, SQL and Python all compile to this model. This crate
//! starts no thread and opens no socket; it can be read alone.
//!
//! The main types, in reading order:
//!
//! * [`Timestamp`] and [`Watermark`]: event time, and the promise that no older event follows;
//! * [`Rows`] and [`Chunk`]: a batch of records with their event times, typed and type-erased;
//! * [`Inbox`] and [`Outbox`]: the input and output of a processor, both bounded;
//! * [`Processor`]: the code of a vertex, with the contract of every callback;
//! * [`Dag`], [`Vertex`], [`Edge`], [`Routing`]: the graph;
//! * [`Key`] and [`PartitionId`]: the frozen partition function;
//! * [`Guarantee`], [`SnapshotRequest`], [`SnapshotWriter`], [`RestoredState`]: snapshots and
//!   restore;
//! * [`Error`]: the failed operation, its object, the reason, and a hint.
//!
//! # Invariants
//!
//! * This crate has no threads, tasklets or networks, and reads no file; [`real_path`] resolves
//!   names only.
//! * Time comes from a [`Clock`], so that a test can control it; only [`thread_cpu_time`] reads the
//!   kernel.
//! * A dynamic call happens once per chunk, never once per record.
//! * A record is never dropped here: an inbox or outbox reports in advance how much it can take.
//!
//! # Example: a processor by hand
//!
//! ```
//! use ardea_core::{Inbox, Ordinal, Outbox, Processor, Result};
//!
//! /// Doubles each number.
//! struct Double;
//!
//! impl Processor for Double {
//!     fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
//!         let mut out = outbox.lane::<u64>(Ordinal::FIRST)?;
//!         for (number, time) in inbox.rows::<u64>()?.drain_front(out.room()) {
//!             out.push(number * 2, time);
//!         }
//!         Ok(())
//!     }
//! }
//! ```
#![forbid(unsafe_code)]

mod ahead_bound;
mod time;
mod watermark;
mod watermark_policy;

mod child_process;
mod chunk;
mod rows;

mod inbox;
mod outbox;

mod context;
mod position;
mod processor;
mod progress;

mod key;
mod partition;

mod guarantee;
mod state;

mod dag;
mod edge;
mod routing;
mod vertex;

mod backchannel;
mod codec;

mod boundedness;
mod connector;
mod delivery;

mod adaptive_spin;
mod bad_records;
mod clock;
mod cpu_time;
mod dead_letter;
mod error;
mod failure_reports;
mod file_use;
mod latency;
mod lost_position;
mod metrics;
mod origins;
mod outage_reporter;
mod token;
mod unicode_guard;
mod unique;
mod waker;

pub use adaptive_spin::AdaptiveSpin;
pub use ahead_bound::{AheadBound, BadTime};
pub use backchannel::{Backchannel, MessageCounts, MessageReport};
pub use bad_records::BadRecords;
pub use boundedness::{Bounded, Boundedness, Ends, Join, Unbounded};
pub use child_process::{ChildProcessMetrics, ChildProcessSnapshot};
pub use chunk::{Chunk, Records};
pub use clock::{Clock, ManualClock};
pub use codec::ChunkCodec;
pub use connector::{Sink, Source};
pub use context::{
    DEFAULT_CHUNK_RECORDS, Instance, InstanceContext, JobSignals, MicroBatchTime, UpstreamVertex,
};
pub use cpu_time::thread_cpu_time;
pub use dag::Dag;
pub use dead_letter::{DeadLetter, DeadLetters, OnError};
pub use delivery::Delivery;
pub use edge::{Edge, EdgeId, Priority};
pub use error::{Domain, Error, ErrorCode, Result};
pub use failure_reports::FailureReports;
pub use file_use::{FileUse, real_path};
pub use guarantee::Guarantee;
pub use inbox::Inbox;
pub use key::{Key, KeyBytes};
pub use latency::{LatencyHistogram, LatencySnapshot};
pub use lost_position::OnLostPosition;
pub use metrics::{InstanceMetrics, MetricsSnapshot};
pub use origins::{OriginLine, OriginRun, Origins};
pub use outage_reporter::OutageReporter;
pub use outbox::{Lane, Marker, Outbox, OutboxRuntime};
pub use partition::{PARTITION_COUNT, PartitionId};
pub use position::{RecordGuard, panic_message, take_failed_index};
pub use processor::{
    Checkpointed, MakeProcessor, MarkerDeferral, NoControl, NoPartitions, NoState,
    PartitionRestore, Processor, ProcessorSupplier, SourceControl, supplier,
};
pub use progress::Progress;
pub use routing::{Broadcast, Custom, Keyed, Replicate, Routing, Scatter};
pub use rows::Rows;
pub use state::{
    EnumSchema, FieldSchema, Integer, IntegerType, KeyValueStore, LocalChange, LocalEntries,
    PendingCommit, RUNTIME_STATE, RemovedKeys, RestoredEntry, RestoredState, Schema, SmallSnapshot,
    SnapshotRequest, SnapshotWriter, StateBackend, StateChunk, StateCodec, StateEntries,
    StateEntry, StateForm, StateRegistry, StateShape, StoreSnapshot, StructSchema, VariantSchema,
    instance_state,
};
pub use time::{Epoch, MicroBatch, Timestamp};
pub use token::Token;
pub use unicode_guard::{escape_invisible, is_invisible};
pub use unique::unique_number;
pub use vertex::{Demand, Isolation, Ordinal, Parallelism, Vertex, VertexId};
pub use waker::Waker;
pub use watermark::{Watermark, WatermarkMerge};
pub use watermark_policy::WatermarkPolicy;
