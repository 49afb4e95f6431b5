//! Carries a job's state from one version of its program to the next: whole, described, and checked before anything stops.
//!
//! A **savepoint** is a snapshot for later, and for others: all state of a job at the end of one epoch, in a folder of its own that needs
//! nothing
//! else, with a manifest that says what is in it. It outlives the job, its folder and, as the types of its records may change, its program.
//! docs/savepoints.md has the format.
//!
//! In reading order:
//!
//! * [`JobStates`]: what a job remembers, by the names of its vertices, as its program says it;
//! * [`evolve`], [`Evolution`]: whether values of one type can be read as those of another;
//! * [`diff`], [`StateDiff`], [`Verdict`]: what becomes of each state when another program goes on from it; [`Dropping`]: what may be lost;
//! * [`copy`], [`Copied`]: carries a snapshot from one place to another;
//! * [`SavepointManifest`], [`Savepoint`]: writing, opening and checking one.
//!
//! # Invariants
//!
//! * **A savepoint is there exactly when its manifest is**, which is written last, when all it speaks of is safe.
//! * **Nothing is dropped that nobody named**: what a program has no place for is refused, with its name.
//! * **What is found to fit is read**: where [`diff`] says keep or migrate, each value that was written is one that the new program reads.
//! * Deciding changes nothing: [`diff`] and [`evolve`] look at descriptions alone.
//!
//! # Example
//!
//! ```
//! use ardea_core::{Schema, StateShape};
//! use ardea_checkpoint::savepoint::{Dropping, JobStates, Verdict, diff};
//!
//! let old = JobStates::default().with("words", [StateShape::of_values("keys", Some(Schema::Text), Schema::I32)]);
//! let new = JobStates::default().with("words", [StateShape::of_values("keys", Some(Schema::Text), Schema::I64)]);
//! let found = diff(&old, &new, &Dropping::nothing());
//! assert_eq!(found.states[0].verdict, Verdict::Migrate(vec!["i32 becomes i64".into()]));
//! assert!(found.is_possible());
//! ```

mod described;

mod evolution;

mod diff;

mod copying;

mod manifest;
mod storage;

pub use copying::{Copied, StateCount, copy};
pub use described::{JobStates, VertexStates};
pub use diff::{Dropping, StateDiff, StateVerdict, Verdict, diff};
pub use evolution::{Evolution, evolve, evolve_key};
pub use manifest::{SavepointManifest, SavepointState, SavepointVertex};
pub use storage::{Checked, Savepoint, SavepointOf};
