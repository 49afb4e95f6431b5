//! Steps whose function runs in processes: results, failures of the processes, guarantees.
//!
//! The test program is also the process: see `guest`.
#![forbid(unsafe_code)]

#[path = "../javascript/mod.rs"]
mod examples;

mod conformance;
mod failures;
mod guarantees;
mod guest;
mod javascript;
mod results;
mod vertices;
