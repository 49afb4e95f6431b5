//! Replication protocol of a grid: partitions of key-value data in the memory of several members,
//! with backups.
//!
//! A member is a pure state machine that consumes events and returns actions. It has no thread,
//! socket or clock, so that the same code runs in a process (`ardea-grid`) and in a simulation with
//! faults (`ardea-sim --grid`).
//!
//! In reading order:
//!
//! * [`Member`], [`place`]: members, and the desired placement of partitions;
//! * [`View`], [`Record`]: the members of a grid and the replicas of each partition at one time;
//!   [`successor`]: computes the next view;
//! * [`Membership`]: agrees on views, and decides whether this member may act;
//! * [`Operation`], [`Change`]: operations on a partition, and their effects; [`Store`],
//!   [`PartitionStore`]: memory layout of entries; [`ByteArena`], [`Pairs`]: memory layout of
//!   entries in transit;
//! * [`Replica`]: one member's replica of a partition;
//! * [`EntryEvent`], [`EventBatch`]: events sent to members that watch a map;
//! * [`SequenceSlab`]: outstanding items by number;
//! * [`Node`]: a member: its membership, replicas, pending operations and watches; [`Reader`]:
//!   reads from any thread.
//!
//! # Guarantees
//!
//! With synchronous backups, and clocks whose rates differ by at most [`ConsensusConfig::drift`]:
//!
//! * **No acknowledged write is lost** as long as no more members are lost than there are backups.
//!   The count starts again whenever resync is complete. With few members there are fewer backups,
//!   with one member none. Members removed by failure detection count as lost. If all complete
//!   replicas of a partition are lost it restarts empty, and [`Record::losses`] is incremented.
//! * **Operations on a key are linearizable**: reads, writes and functions. The entries of one
//!   operation with several keys become visible together in each replica.
//! * **No operation is carried out twice.** An operation that ends as [`Outcome::Unknown`] was
//!   carried out once, will be, or never is. A refused one was not carried out.
//! * **No split brain.** Reads and writes need a majority of the members of the newest view. A
//!   minority refuses with [`Refusal::CutOff`]. Half of the members suffice only if the others are
//!   *known* to be dead.
//! * **Resync has a bounded rate**, and loses no concurrent write.
//!
//! With asynchronous backups, writes are acknowledged before backups have them. Those not
//! replicated yet are lost with the primary, at most [`ReplicaConfig::log_bytes`] per partition;
//! everything else holds.
//!
//! Nothing is stored on disk: if all members are lost, so is all data. A restarted process is a new
//! member.
//!
//! # Invariants
//!
//! * Views are totally ordered: each is decided by a majority of the members of its predecessor.
//! * Only complete replicas become primary, and a change is settled when all complete replicas have
//!   it.
//! * Messages between members may be lost, duplicated, delayed and reordered, but never reach a
//!   member other than the [`Recipient`].
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use ardea_core::PartitionId;
//! use ardea_grid::protocol::*;
//!
//! let me = Member::new(MemberId(1), "host-a", "10.0.0.1:7000");
//! let mut node = Node::found(me, NodeConfig::default(), Arc::new(NoFunctions));
//! let now = Duration::from_millis(1);
//! node.on(now, NodeEvent::Tick);
//!
//! let (map, key) = (MapId::named("berths"), &b"seagull"[..]);
//! let put = Operation::Put { map, key: key.into(), value: (&b"7"[..]).into(), expires: None, when: When::Always };
//! let done = node.on(now, NodeEvent::Ask(1, PartitionId::of_canonical(key), put));
//! assert_eq!(done, [NodeAction::Ended(1, Outcome::Answered(Answer::Done))]);
//!
//! let seen = node.reader().read(|| now, PartitionId::of_canonical(key), map, key, |value| value == Some(b"7"));
//! assert_eq!(seen, Ok(true));
//! ```

mod member;
mod placement;
mod reconfiguration;
mod view;

mod membership;

mod byte_arena;
mod entry_batch;
mod operation;
mod partition_store;
mod replica;
mod store;
mod watch_events;

mod node;
mod sequence_slab;

pub use byte_arena::ByteArena;
pub use entry_batch::{EntryBatch, Pairs};
pub use member::{Member, MemberId, Recipient};
pub use membership::{
    Ballot, ConsensusAction, ConsensusConfig, ConsensusEvent, Membership, MembershipMessage, Ping,
};
pub use node::{Message, Node, NodeAction, NodeConfig, NodeEvent, Reader};
pub use operation::{Answer, Change, MapId, Operation, Outcome, Refusal, Ticket, When, WhenFull};
pub use partition_store::{Cursor, EntryTransfer, PartitionStore};
pub use placement::place;
pub use reconfiguration::{
    PartitionNumber, ReconfigurationInputs, ReplicaClaim, SyncState, successor,
};
pub use replica::{
    Functions, NoFunctions, Quota, Replica, ReplicaAction, ReplicaBody, ReplicaConfig,
    ReplicaMessage, ReplicaProgress, ReplicationStreamId,
};
pub use sequence_slab::SequenceSlab;
pub use store::{APART_BYTES, Entry, NEVER, Setting, Store, Value};
pub use view::{Holder, Record, View, ViewNumber};
pub use watch_events::{EntryEvent, EventBatch, PrimaryTerm, WatchMessage};
