//! Keeps a job of one process running: ends its epochs in time, keeps its snapshots, and after a failure starts it anew from the newest whole one.
//!
//! A job that survives has a [`Survival`]: what it promises, and where its snapshots are. [`Surviving`] runs it: it conducts the job's epochs by the
//! machines of a cluster's master, [`Epochs`](ardea_coordination::control::Epochs) and [`EpochsAgent`](ardea_coordination::control::EpochsAgent), with this process as the
//! only participant; has the cuts of instances written; and when the job fails begins another life of it.
//!
//! In reading order:
//!
//! * [`Survival`], [`SURVIVAL_SETTINGS`]: the guarantee of a job and its settings; [`Survive`]: runs a job;
//! * [`Surviving`], [`SurvivingHandle`]: a job that runs so; [`Survived`], [`Figures`], [`Notice`]: what is told of it;
//! * `home`: a job's folder, with its `lock` and its `record`; `notes`: what one of a cluster notes in its own; `shape`: whether a folder fits a job; [`look`]: what is in a folder;
//! * [`savepoint`], [`KeptStates`]: a copy of its state for later, and for another version of it; `requests`: asking the process that
//!   runs it;
//! * [`CutKeeper`], [`LifeCuts`], [`Snapshots`]: the storage of a cluster job, as a worker and as its leader see it;
//! * `life`: one life of the job, whose cuts are those of `io`; `driver`: from one to the next; `failure`: what is tried again.
//!
//! # Invariants
//!
//! * **An epoch is committed when its snapshot and then the record are durable**, and only then instances are told.
//! * **One process at a time** has a folder: its lock ends with it, however it ends. So what the record says of a life is over when it is read.
//! * **Nothing is passed over in silence**: a damaged snapshot, another job's folder, a job that has ended already.
//! * No thread that records flow on waits for a disk.
//!
//! # Example
//!
//! ```
//! use ardea_connectors::{collections::items, null};
//! use ardea_core::Guarantee;
//! use ardea_pipeline::Pipeline;
//! use ardea_checkpoint::local::{Survival, SurvivalEnd, Survive};
//!
//! let p = Pipeline::new("tea");
//! p.read_from(items(vec![3, 1, 2])).write_to(null::sink());
//! let survived = p.run_surviving(&Survival::in_memory().guarantee(Guarantee::AtLeastOnce))?;
//! assert_eq!(survived.end, SurvivalEnd::Completed);
//! # Ok::<(), ardea_core::Error>(())
//! ```

mod leader_backend;
mod notice;
mod settings;
mod survival;
mod worker_backend;

mod bucket;
mod lock;
mod notes;
mod record;

mod bringing;
mod home;
mod shape;

mod failure;

mod counts;
mod driver;
mod life;
mod surviving;

mod looking;
mod requests;
mod saving;

pub use crate::savepoint::Dropping;
pub use bringing::no_savepoint;
pub use bucket::{
    address_of, check_address, is_missing, keep_apart, open_place, open_to_write, part_of,
    place_of_savepoint,
};
pub use counts::JobCounts;
pub use failure::{past_damage, recover_command};
pub use leader_backend::Snapshots;
pub use looking::{Looked, LookedSnapshot, look};
pub use notes::{KeptNotes, note_remembered, read_note, write_note};
pub use notice::Notice;
pub use saving::{KeptStates, SAVING, savepoint};
pub use settings::SURVIVAL_SETTINGS;
pub use survival::Survival;
pub use surviving::{Figures, SurvivalEnd, Survive, Survived, Surviving, SurvivingHandle};
pub use worker_backend::{CutKeeper, LifeCuts, LifeHere};
