//! Savepoints: state that is carried from one version of a job's program to the next, and
//! compatibility checks.
//!
//! A **savepoint** contains all state of a job at the end of one epoch, in a self-contained folder
//! with a descriptive manifest. It outlives the job, the job's folder and, since record types may
//! change, the program. docs/design/savepoints-and-upgrades.md specifies the format.
//!
//! In reading order:
//!
//! * [`JobStateSchema`]: the state schema of a job by vertex name, as declared by its program;
//! * [`evolve`], [`Evolution`]: checks whether values of one type can be read as another;
//! * [`diff`], [`StateDiff`], [`Verdict`]: the change of each state when another program is
//!   restored from the states; [`AllowedDrops`]: the state that may be dropped;
//! * [`copy`], [`Copied`]: copies a checkpoint;
//! * [`SavepointManifest`], [`Savepoint`]: writing, opening and checking a savepoint.
//!
//! # Invariants
//!
//! * **A savepoint exists exactly when its manifest does.** The manifest is written last, when all
//!   other files are durable.
//! * **State is dropped only by name**: unless the user names it, state without a place in the
//!   program is an error.
//! * **Compatible state is readable**: if [`diff`] returns keep or migrate, the new program can
//!   read each written value.
//! * Checks change nothing: [`diff`] and [`evolve`] use schemas only.
//!
//! # Example
//!
//! ```
//! use ardea_core::{Schema, StateShape};
//! use ardea_checkpoint::savepoint::{AllowedDrops, JobStateSchema, Verdict, diff};
//!
//! let old = JobStateSchema::default().with("words", [StateShape::of_values("keys", Some(Schema::Text), Schema::I32)]);
//! let new = JobStateSchema::default().with("words", [StateShape::of_values("keys", Some(Schema::Text), Schema::I64)]);
//! let found = diff(&old, &new, &AllowedDrops::nothing());
//! assert_eq!(found.states[0].verdict, Verdict::Migrate(vec!["i32 becomes i64".into()]));
//! assert!(found.is_possible());
//! ```

mod job_schema;

mod schema_evolution;

mod diff;

mod copy;

mod manifest;
mod storage;

pub use copy::{Copied, StateCount, copy};
pub use diff::{AllowedDrops, StateDiff, StateVerdict, Verdict, diff};
pub use job_schema::{JobStateSchema, VertexStates};
pub use manifest::{SavepointManifest, SavepointState, SavepointVertex};
pub use schema_evolution::{Evolution, evolve, evolve_key};
pub use storage::{Checked, Savepoint, SavepointOf};
