//! What a snapshot of much state takes of which little has changed, and what records feel of it.

mod params;
mod run;

pub use params::SnapshotParams;
pub use run::run;
