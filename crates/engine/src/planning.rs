//! Derivations from a graph before it runs.
//!
//! * `execution_plan`: the chains of vertices that become tasklets; `colocation`: the vertices that
//!   are placed together;
//! * `wiring`: the tasklets and queues of a layout;
//! * `mode_choice`: continuous execution or micro-batches;
//! * `overwrite_check`: a check of the files that a job reads and replaces.

pub(crate) mod colocation;
pub(crate) mod execution_plan;
pub(crate) mod mode_choice;
pub(crate) mod overwrite_check;
pub(crate) mod wiring;
