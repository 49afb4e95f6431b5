//! Brings the cuts of a process's instances into a snapshot store, and gives instances back what they remembered.
//!
//! The engine hands over cuts chunk by chunk, and asks for state chunk by chunk, on threads that may not wait; a store reads and writes files,
//! which takes as long as it takes. Between the two are these rooms' buffers and threads. Who conducts a job's epochs, and whether it is a job of one
//! process or of many, is not known here.
//!
//! In reading order:
//!
//! * [`CutTaker`], [`CutPlace`], [`Writers`], [`CutNews`]: takes the cuts of one life of a job, and writes them on threads of its own;
//! * [`Gathering`], [`Gathered`]: which cuts have come, and what they make together;
//! * [`Alignment`]: how long inputs were held for it;
//! * [`StateReading`]: reads a snapshot for the instances of a process, several parts of each at a time;
//! * [`counts`], [`is_same`]: whether increments may be based on a snapshot;
//! * [`Housekeeper`], [`Chore`]: folds layers, and removes what is not needed any more, beside everything else; [`Swept`]: when to look for that.
//!
//! # Invariants
//!
//! * No thread that records flow on waits for a file, and those that write and fold stand back behind them.
//! * A cut is told of when all of it is safe, and never before.
//! * What waits to be written, or to be taken, is bounded; who finds no room is woken when there is some.
//! * When a life is over nothing more is written for it.
//!
//! # Example
//!
//! ```
//! use ardea_core::{Epoch, Instance};
//! use ardea_checkpoint::io::{Gathered, Gathering};
//! use ardea_engine::InstanceName;
//! use ardea_checkpoint::store::{CutOf, CutReceipt, SnapshotId};
//!
//! let instance = Instance { index: 0, parallelism: 1 };
//! let name = InstanceName { vertex: "count".into(), instance };
//! let mut gathering = Gathering::of(3, [name.clone()]);
//! gathering.ends(Epoch(7));
//! assert!(gathering.news().is_empty());
//!
//! let snapshot = SnapshotId::new(3, Epoch(7));
//! let of = CutOf { snapshot, vertex: "count".into(), instance: 0, instances: 1 };
//! gathering.saved(&name, Epoch(7), false, CutReceipt::unchanged(of));
//! assert!(matches!(gathering.news()[..], [Gathered::Saved(Epoch(7), _)]));
//! ```

mod alignment;
mod gathering;
mod shape;

mod reading;
mod taker;

mod housekeeping;
mod swept;

pub use alignment::Alignment;
pub use gathering::{Gathered, Gathering};
pub use housekeeping::{Chore, Housekeeper};
pub use reading::{StateReading, waited_for};
pub use shape::{counts, is_same};
pub use swept::Swept;
pub use taker::{CutNews, CutPlace, CutTaker, Writers, block_config};
