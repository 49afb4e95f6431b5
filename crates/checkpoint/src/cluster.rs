//! Keeps the snapshots of a cluster's jobs, in folders that all of its hosts see, in buckets, or in the memory of hosts.
//!
//! The workers of a job with a guarantee write the cuts of their instances into its folder, which may be one of the grid, each under names of its own, and a **part** for each
//! epoch: the receipts of those cuts. The names of the parts travel to the job's master, which binds the parts of all workers into a
//! snapshot before the epoch is recorded as committed. Whoever begins a life of the job reads the snapshot that the record names.
//!
//! In reading order:
//!
//! * [`Promise`]: what a job promises by its settings, and where its snapshots are; [`make_room`], `probe`: whether all see the same folder; [`ShelterFolder`]: a folder in the memory of hosts; `mirrored`: a folder that is in
//!   memory as well;
//! * [`FolderKeeper`]: a worker's side; `scribe`: writes down what was saved; `part`: that file; `room`: whether there is
//!   room for it; `losing`: what is done when something of it may be lost;
//! * [`Archives`]: a master's side; `binder`: makes snapshots of parts, and clears away what is not needed; [`Told`]: what snapshots don't tell;
//! * [`Kept`]: the snapshots of a job, for people;
//! * [`write_states`], [`states_of`]: what a job remembers travels with what it asks for; `beginning`: a job that begins with state from
//!   elsewhere, [`compare`]; [`save`]: savepoints.
//!
//! # Invariants
//!
//! * **One writer, one name**: no two processes write the same file, whoever they take themselves for, and none is changed that was written.
//! * **A snapshot is made before it is recorded, and only the record commits**: one that is there and not recorded counts for nothing.
//! * **A master binds what workers have saved in its own record's life**; of what others do meanwhile it takes no notice, and so changes nothing.
//! * **What the record needs is not cleared away**: its snapshots, and the last parts of workers that have ended, as long as their life lasts.
//!
//! # Example
//!
//! ```
//! use ardea_checkpoint::cluster::Promise;
//! use ardea_coordination::control::JobRef;
//!
//! let job = JobRef { cluster: "harbour".into(), name: "word-count".into(), submission: 42 };
//! let settings = [("guarantee", "exactly-once"), ("snapshots.folder", "/mnt/state")];
//! let settings = settings.map(|(key, value)| (key.to_string(), value.to_string()));
//! let promise = Promise::by(&settings.into(), &job)?.expect("it promises something");
//! assert_eq!(promise.place.to_string(), "/mnt/state/word-count-2a");
//! # Ok::<(), ardea_core::Error>(())
//! ```

mod mirrored;
mod probe;
mod promise;
mod shelter_folder;

mod part;

mod keeper;
mod losing;
mod room;
mod scribe;

mod archives;
mod binder;

mod looking;

mod beginning;
mod remembered;

pub use crate::local::{address_of, recover_command};
pub use crate::savepoint::{JobStates, SavepointManifest};
pub use archives::Archives;
pub use beginning::{compare, kept_states, make_room, save};
pub use binder::{Told, ToldOfEpoch};
pub use keeper::FolderKeeper;
pub use looking::Kept;
pub use probe::{make_place, unmake_place};
pub use promise::{Origin, Place, Promise};
pub use remembered::{states_of, write_states};
pub use shelter_folder::ShelterFolder;
