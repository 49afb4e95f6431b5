//! The protocol between a host and the process of an instance: frames and their payloads.
//!
//! `docs/instance-protocol.md` describes it for authors of instances. This module is pure: it reads
//! and writes bytes, and does no input or output.

mod batch;
mod components;
mod control;
mod frame;
mod handshake;
mod outputs;
mod read;
mod state;
mod vertex;

pub use batch::{
    ColumnBatchWriter, RowBatchWriter, RowRecord, RowRecords, TimeAndPartition, slice_rows,
};
pub use components::{
    ComponentConfiguration, ComponentInput, ComponentOutput, EmitReader, EmitWriter, EmittedTuple,
    InstanceRole, MetricKind, PendingRow, SPOUT_IS_DONE, TupleAck, UserMetric,
    read_message_outcomes, read_tuple_acks, write_message_outcome_parts, write_message_outcomes,
    write_tuple_ack_parts, write_tuple_acks,
};
pub use control::{
    GuestDeadLetter, GuestOptions, InstanceControl, VertexCounts, split_named_key, write_named_key,
};
pub(crate) use frame::PART_BYTES;
pub use frame::{
    FLAG_AWAITS_COMMIT, FLAG_FAILED_ONLY, FLAG_IN_RING, FLAG_LAST, FLAG_MORE, FLAG_OF_WATERMARK,
    FrameBuffer, FrameHead, FrameType, HEAD_BYTES, InstanceFrame, MAX_FRAME_BYTES, SharedFrame,
};
pub use handshake::{
    GuestFailure, GuestHello, HostHello, InstanceConfiguration, PROTOCOL, ProtocolRange,
};
pub use outputs::{NOT_ANCHORED, ResultOutput, ResultReader, ResultWriter, RowFailure};
pub use read::Violation;
pub use state::{StatePartEntry, StatePartReader, StatePartWriter};
pub(crate) use vertex::{
    EdgeRecords, VERTEX_HAS_MORE, VERTEX_IS_AT_END, VERTEX_IS_DONE, VERTEX_WAITS, VertexOutput,
    begin_records, read_records, set_records, write_call, write_marker,
};
