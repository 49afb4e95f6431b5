//! Fault-tolerant jobs: failing instances, damaged checkpoints, failing stores, savepoints, other
//! versions, user commands.
#![forbid(unsafe_code)]

#[path = "../windows/mod.rs"]
mod windows;

mod accounts;
mod beginning;
mod damaged;
mod early;
mod ends;
mod failures;
mod fixtures;
mod folders;
mod refusing;
mod savepoints;
mod site;
mod stuck;
