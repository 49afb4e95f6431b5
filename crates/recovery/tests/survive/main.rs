//! Jobs that survive: failures of their instances, damaged snapshots, folders that refuse, and people.
#![forbid(unsafe_code)]

#[path = "../windows/mod.rs"]
mod windows;

mod damaged;
mod ends;
mod failures;
mod folders;
mod refusing;
mod site;
