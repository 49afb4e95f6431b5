//! The model of a job: graph, processors, records, time and errors.
//!
//! Everything that Ardea runs is a [`Dag`]: vertices that hold [`Processor`] code and edges that say how
//! records travel between them. The typed pipeline, SQL and Python all compile to this model, and the
//! engine runs nothing else. This crate starts no thread and opens no socket; it can be read alone.
//!
//! The main types, in reading order:
//!
//! * [`Timestamp`] and [`Watermark`]: event time, and the promise that no older event follows;
//! * [`Rows`] and [`Chunk`]: a batch of records with their event times, typed and type-erased;
//! * [`Inbox`] and [`Outbox`]: what a processor reads from and writes to, both bounded;
//! * [`Processor`]: the code of a vertex, with the contract of every callback written out;
//! * [`Dag`], [`Vertex`], [`Edge`], [`Routing`]: the graph;
//! * [`Key`] and [`PartitionId`]: the frozen partition function;
//! * [`Guarantee`], [`Cut`], [`CutWriter`], [`RestoredState`]: state that outlives its instance;
//! * [`Error`]: what failed, on what, why, and what to do next;
//!
//! # Invariants
//!
//! * This crate knows nothing of threads, tasklets or networks, and reads no file;
//!   [`real_path`] looks at names only.
//! * Time is asked of a [`Clock`] only, so that a test can move it by hand; only what a thread costs is asked of the kernel
//!   ([`thread_cpu_time`]).
//! * A dynamic call happens once a chunk, never once a record.
//! * A record is never dropped here: an inbox or outbox that can't take more says so before it is asked.
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

mod codec;
mod side_channel;

mod boundedness;
mod connector;
mod delivery;

mod bad_records;
mod clock;
mod cpu_time;
mod dead_letter;
mod error;
mod file_use;
mod latency;
mod lost_position;
mod metrics;
mod origins;
mod token;
mod unique;
mod unseen;
mod waker;

pub use ahead_bound::{AheadBound, BadTime};
pub use bad_records::BadRecords;
pub use boundedness::{Bounded, Boundedness, Ends, Join, Unbounded};
pub use chunk::{Chunk, Records};
pub use clock::{Clock, ManualClock};
pub use codec::ChunkCodec;
pub use connector::{Sink, Source};
pub use context::{DEFAULT_CHUNK_RECORDS, Instance, InstanceContext, JobSignals};
pub use cpu_time::thread_cpu_time;
pub use dag::Dag;
pub use dead_letter::{DeadLetter, DeadLetters, OnError};
pub use delivery::Delivery;
pub use edge::{Edge, EdgeId, Priority};
pub use error::{Domain, Error, ErrorCode, Result};
pub use file_use::{FileUse, real_path};
pub use guarantee::Guarantee;
pub use inbox::Inbox;
pub use key::{Key, KeyBytes};
pub use latency::{Latencies, LatencySnapshot};
pub use lost_position::OnLostPosition;
pub use metrics::{InstanceMetrics, MetricsSnapshot};
pub use origins::{OriginRun, Origins};
pub use outbox::{FarNews, Lane, Marker, Outbox};
pub use partition::{PARTITION_COUNT, PartitionId};
pub use position::{RecordGuard, panic_message, take_failed_index};
pub use processor::{MakeProcessor, Processor, ProcessorSupplier, supplier};
pub use progress::Progress;
pub use routing::{Broadcast, Custom, Keyed, Replicate, Routing, Scatter};
pub use rows::Rows;
pub use side_channel::{MessageCounts, MessageReport, SideChannel};
pub use state::{
    Cut, CutDraft, CutWriter, EnumSchema, FieldSchema, GoneKeys, Integer, IntegerType, LocalChange,
    LocalEntries, LocalPlace, LocalStore, LocalView, RUNTIME_STATE, RestoredEntry, RestoredState,
    Schema, StateChunk, StateCodec, StateEntries, StateEntry, StateForm, StateShape, StructSchema,
    Undecided, VariantSchema, instance_state,
};
pub use time::{Epoch, Timestamp};
pub use token::Token;
pub use unique::unique_number;
pub use unseen::{is_unseen, shown};
pub use vertex::{Demand, Isolation, Ordinal, Parallelism, Vertex, VertexId};
pub use waker::Waker;
pub use watermark::{Watermark, WatermarkMerge};
