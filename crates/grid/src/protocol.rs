//! Keeps partitions of key-value data in the memory of several members, with backups.
//!
//! Everything here is pure: a member is a state machine that is told what happens and says what is to be done. It has no thread, socket or clock, so
//! that the same code runs in a process (`ardea-grid`) and in a simulation with faults (`ardea-sim --grid`).
//!
//! In reading order:
//!
//! * [`Member`], [`place`]: who keeps data, and who should keep what;
//! * [`View`], [`Record`]: who belongs to a grid and keeps what at one time; [`successor`]: what the next view should be;
//! * [`Council`]: agrees on views, and knows whether this member may act;
//! * [`Operation`], [`Change`]: what can be asked, and what it changes; [`Store`], [`Shelf`]: where entries lie; [`Pieces`], [`Pairs`]: where bytes do that are on their way;
//! * [`Replica`]: one member's copy of a partition;
//! * [`Happened`], [`Chapter`]: what is told of a map to those who watch it;
//! * [`Roll`]: what is under way, by its number;
//! * [`Node`]: a member: its council, its replicas, who asks whom, and who watches what; [`Reader`]: reads beside it, from any thread.
//!
//! # What is promised
//!
//! With synchronous backups, and clocks that run at the same rate within [`CouncilConfig::drift`]:
//!
//! * **Nothing acknowledged is lost** as long as no more members are lost than there are backups, counted anew whenever refilling is done. Where fewer members
//!   stay there are fewer backups: none where there is one. Members that are put out because nobody hears them, or they hear too few, are lost as well. If all whole copies of a
//!   partition are lost it begins anew, empty, and [`Record::losses`] says so.
//! * **Each operation on a key is done at one moment** while it is under way, seen by all: reads, writes and computations of a key are linearizable. What one operation puts
//!   several keys is there at once, in each copy.
//! * **Nothing is done twice.** What ends as [`Outcome::Unknown`] was done once, or will be, or never. What was refused was not done.
//! * **Two sides never both act.** Reading and writing needs a majority of the members of the newest view. A minority refuses, with
//!   [`Refusal::CutOff`]. Half of them is enough only if the others are *proven* to be dead.
//! * **Refilling takes a bounded rate**, and loses no write that comes meanwhile.
//!
//! With asynchronous backups writes are acknowledged before any backup has them: those that backups had not taken yet are lost with a primary, at most
//! [`ReplicaConfig::log_bytes`] of a partition, and all else holds.
//!
//! Nothing is kept on disk: when all members are gone everything is. A member that begins anew is another member.
//!
//! # Invariants
//!
//! * Views have one order: each is decided by a majority of the members of the one before.
//! * Only whole copies become primary, and a change is settled when all whole copies have it.
//! * Words between members may be lost, doubled, late and out of order, but none comes to another member than the [`Recipient`].
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
mod succession;
mod view;

mod council;

mod operation;
mod pairs;
mod pieces;
mod replica;
mod shelf;
mod store;
mod tidings;

mod node;
mod roll;

pub use council::{Ballot, Council, CouncilAction, CouncilConfig, CouncilEvent, CouncilWord, Ping};
pub use member::{Member, MemberId, Recipient};
pub use node::{Node, NodeAction, NodeConfig, NodeEvent, Reader, Word};
pub use operation::{Answer, Change, MapId, Operation, Outcome, Refusal, Ticket, When, WhenFull};
pub use pairs::{Bunch, Pairs};
pub use pieces::Pieces;
pub use placement::place;
pub use replica::{
    Course, Functions, Have, NoFunctions, Quota, Replica, ReplicaAction, ReplicaConfig,
    ReplicaWord, Say,
};
pub use roll::Roll;
pub use shelf::{Cursor, Parcel, Shelf};
pub use store::{APART_BYTES, Entry, NEVER, Setting, Store, Value};
pub use succession::{Claim, Facts, PartitionNumber, Promise, successor};
pub use tidings::{Chapter, Happened, Rule, WatchWord};
pub use view::{Holder, Record, View, ViewNumber};
