//! Jobs that survive: failures of their instances, damaged snapshots, folders that refuse, savepoints, other versions, and people.
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
