//! The start of a program as a process of a cluster.

use ardea_coordination::control::WorkerStart;

use crate::cluster::{Modules, as_host, be_host};
use crate::console::Failure;
use crate::job::as_worker;

/// Runs this process as a host, or as the worker of a container by `work`, if it was started as
/// one; returns `None` if it was not.
pub fn run_as_process_of_cluster(
    modules: &Modules,
    work: impl FnOnce(WorkerStart) -> Result<(), Failure>,
) -> Option<Result<(), Failure>> {
    match as_host().transpose() {
        Some(Ok(start)) => return Some(be_host(start, modules.clone()).map_err(Failure::from)),
        Some(Err(error)) => return Some(Err(error.into())),
        None => {}
    }
    let start = as_worker().transpose()?;
    Some(start.map_err(Failure::from).and_then(work))
}
