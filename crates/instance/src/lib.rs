//! Runs an instance of a step in a process of its own.
//!
//! The process is started from any command and speaks the instance protocol over its standard
//! input, a Unix socket. `docs/instance-protocol.md` describes the protocol. A crash, a hang or a
//! leak of user code ends that process only.
//!
//! In reading order:
//!
//! * [`protocol`]: frames and their payloads, pure;
//! * [`InstanceSession`]: the host's side of the protocol, a pure state machine; [`Suspects`]:
//!   records that were in flight when a process died;
//! * [`InstanceCommand`]: the command and the limits of its process; [`ChildHandle`]: a running
//!   process, and the thread that serves it;
//! * [`BatchFormat`], [`JsonFormat`]: the formats of records;
//! * [`InstanceHost`]: session, process and restarts of an instance; [`InstanceSlot`]: its place in
//!   a processor, and its state in snapshots;
//! * [`InstanceStep`], [`InstanceP`]: the step of a graph. The crate `ardea-topology` has the
//!   components;
//! * [`VertexProcesses`], [`serve_vertex`]: vertices of the job's own program;
//! * [`record_user_metric`], [`user_metrics_of`]: metrics of user code;
//! * [`serve`], [`GuestInstance`]: the other side, for instances in Rust;
//! * [`check`]: the conformance kit, which plays the host against any command.
//!
//! # Invariants
//!
//! * The threads of the engine never wait for a process.
//! * No byte of a process is trusted: lengths, counts, rows, sequences and partitions are checked.
//! * Results of steps are emitted in the order of the input. A marker never overtakes a result.
//! * The results of a batch are emitted when all of them have been received, so a batch that is
//!   sent again emits them once.
//! * With a guarantee, the end of a process with state fails the attempt. The job restarts from its
//!   last checkpoint. A process without state is restarted alone.
#![forbid(unsafe_code)]

pub mod check;
pub mod protocol;

mod command;
mod errors;
mod fd_socket;
mod format;
mod guest;
mod host;
mod json_format;
mod process;
mod processor;
mod rings;
mod saved_state;
mod session;
mod slot;
mod user_metrics;
mod vertex;

pub use command::{COMPONENT_VARIABLE, InstanceCommand, TransferOptions};
pub use format::{BatchFormat, BatchLayout, EncodedBatch, RowLayout, UnencodableRecord};
pub use guest::{
    DeadLetterBuffer, GuestEmits, GuestError, GuestInstance, GuestResults, GuestState,
    RestoredEntries, guest_failure, own_command, save_state, serve, serve_own_program, until_done,
};
pub use host::{HostEvent, InstanceHost, ProcessKind, RestartPolicy, SharedParts};
pub use json_format::JsonFormat;
pub use process::{
    ChildContext, ChildEnd, ChildEvent, ChildHandle, OutputLine, OutputSink, OutputStream,
    log_to_stderr,
};
pub use processor::{InstanceP, InstanceStep};
pub use session::{
    InFlight, InstanceSession, ReadyItem, SessionError, SessionPhase, SessionSettings, Suspects,
};
pub use slot::InstanceSlot;
pub use user_metrics::{record_user_metric, user_metrics_of};
pub use vertex::{VertexProcesses, check_isolated, serve_vertex};
