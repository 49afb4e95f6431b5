//! placeholder
#![forbid(unsafe_code)]

mod member;
mod placement;
mod succession;
mod view;

mod council;

mod operation;
mod replica;
mod shelf;
mod store;

mod node;

pub use council::{Ballot, Council, CouncilAction, CouncilConfig, CouncilEvent, CouncilWord, Ping};
pub use member::{Member, MemberId};
pub use node::{Node, NodeAction, NodeConfig, NodeEvent, Word};
pub use operation::{Answer, Change, MapId, Operation, Outcome, Refusal, Ticket, When};
pub use placement::place;
pub use replica::{
    Course, Functions, NoFunctions, Quota, Replica, ReplicaAction, ReplicaConfig, ReplicaWord, Say,
};
pub use shelf::{Cursor, Parcel, Shelf};
pub use store::{Entry, NEVER, Store};
pub use succession::{Claim, Facts, PartitionNumber, Promise, successor};
pub use view::{Holder, Record, View, ViewNumber};
